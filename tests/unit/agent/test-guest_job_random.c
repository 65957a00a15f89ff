#include "tests/lib/cm.h"

#include <stdio.h>
#include <string.h>

#include "base/xalloc.h"
#include "job_rig.h"

/*
 * A guest that answers commands and calls about jobs with frames that are nearly right: whatever it
 * says and whatever is asked of the calls meanwhile, each ends exactly once and holds no more than
 * its windows.
 */

#define ROUNDS 300
#define CALLS  8

enum kind { EXEC, READ, FOLLOW, WAIT, LIST, SIGNAL, START, INPUT, KIND_MAX };

struct conversation {
	struct fixture f;
	struct record records[CALLS];
	struct guest_call *calls[CALLS];
	enum kind kinds[CALLS];
	struct pipe *pipes[CALLS]; /* writer's ends */
	uint64_t positions[CALLS];
	uint64_t left[CALLS]; /* bytes that may still come */
};

static uint64_t seed;

static unsigned dice(unsigned n)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (unsigned)(seed >> 33) % n;
}

/* ---- calls ---- */

static struct guest_call *begin_input(struct conversation *c, size_t i, struct err *err)
{
	c->pipes[i] = pipe_new(c->f.loop, 5000);
	pipe_write(c->pipes[i], "typed", 5);
	return c->f.driver->ops->job_input(
		c->f.guest, "ex_1", c->pipes[i], dice(2), record_done, &c->records[i], err);
}

static struct guest_call *begin_command(struct conversation *c, size_t i, struct err *err)
{
	const struct guest_job_spec spec = {.exec = {.id = "ex_1", .command = "x"}};
	const struct guest_exec_spec exec = {.id = "ex_2",
		.command = "x",
		.output_cap = dice(2) ? UINT64_MAX : dice(50000),
		.tail_cap = dice(500)};
	struct guest_exec_hooks hooks = record_exec_hooks;
	const struct guest_driver_ops *ops = c->f.driver->ops;

	hooks.arg = &c->records[i];
	c->left[i] = exec.output_cap;
	if (c->kinds[i] == START) {
		return ops->job_start(c->f.guest, &spec, record_done, &c->records[i], err);
	}
	return c->kinds[i] == EXEC ? ops->exec(c->f.guest, &exec, &hooks, err)
				   : ops->job_wait(c->f.guest, "ex_1", &hooks, err);
}

static struct guest_call *begin(struct conversation *c, size_t i)
{
	const struct guest_read_spec spec = {.id = "ex_1",
		.max = dice(2) ? UINT64_MAX : dice(30000),
		.wait_ms = dice(20),
		.is_followed = c->kinds[i] == FOLLOW};
	const struct guest_driver_ops *ops = c->f.driver->ops;
	struct guest_job_hooks hooks = record_job_hooks;
	struct err err;

	hooks.arg = &c->records[i];
	c->left[i] = spec.max;
	switch (c->kinds[i]) {
	case READ:
	case FOLLOW:
		return ops->job_read(c->f.guest, &spec, &hooks, &err);
	case LIST:
		return ops->job_list(c->f.guest, &hooks, &err);
	case SIGNAL:
		return ops->signal(c->f.guest, "ex_1", 9, record_done, &c->records[i], &err);
	case INPUT:
		return begin_input(c, i, &err);
	case EXEC:
	case WAIT:
	case START:
	case KIND_MAX:
	default:
		return begin_command(c, i, &err);
	}
}

static void trouble(struct conversation *c, size_t i)
{
	const struct guest_driver_ops *ops = c->f.driver->ops;

	if (c->records[i].done > 0) {
		return;
	}
	if (dice(10) == 0) {
		ops->cancel(c->calls[i]);
	} else if (c->kinds[i] <= FOLLOW) {
		ops->exec_pause(c->calls[i], dice(2));
	} else if (c->kinds[i] == INPUT && dice(4) == 0) {
		pipe_close(c->pipes[i]);
	}
}

/* ---- answers ---- */

static void send_started(struct conversation *c, size_t i)
{
	const struct msg_job *job = dice(4) ? &job_running : &job_ended;

	c->positions[i] = dice(300) ? job->first_offset : dice(300);
	job_send_started(&c->f.peer, (uint32_t)i + 1, job, c->positions[i]);
}

static void send_end(struct conversation *c, size_t i)
{
	uint8_t body[256];
	struct msg_writer w = {.buf = body, .size = sizeof body};

	msg_put_u32(&w, MSG_STATUS, dice(3) ? STATUS_OK : dice(STATUS_LIMIT + 2));
	msg_put_u32(&w, MSG_EXIT_CODE, dice(257));
	msg_put_u32(&w, MSG_END_FLAGS, dice(10) ? 0 : dice(8));
	msg_put_u64(&w, MSG_OUT_BYTES, dice(20) ? c->positions[i] : UINT64_MAX - dice(3));
	msg_put_u64(&w, MSG_ERR_BYTES, dice(20) ? c->positions[i] : UINT64_MAX - dice(3));
	msg_put_u64(&w, MSG_OUT_TAIL, dice(3) ? 0 : dice(600));
	msg_put_u64(&w, MSG_OFFSET, c->positions[i] + (dice(20) == 0));
	peer_send(&c->f.peer, FRAME_END, 0, (uint32_t)i + 1, body, w.len);
}

static void send_output(struct conversation *c, size_t i)
{
	static const uint8_t bytes[PROTO_PAYLOAD_MAX_BYTES];
	uint64_t len = 1 + dice(dice(10) ? 2000 : PROTO_PAYLOAD_MAX_BYTES);
	uint16_t channel = dice(2) ? FRAME_CHANNEL_OUT : FRAME_CHANNEL_ERR;

	if (dice(500)) {
		len = MIN(len, c->left[i]);
	}
	if (c->kinds[i] == LIST) {
		job_send_entries(&c->f.peer, dice(2) ? &job_running : &job_ended, 1 + dice(9));
	} else if (len == 0) {
		send_end(c, i);
	} else {
		c->positions[i] += len;
		c->left[i] -= c->left[i] == UINT64_MAX ? 0 : MIN(len, c->left[i]);
		peer_send(&c->f.peer, FRAME_DATA, channel, (uint32_t)i + 1, bytes, (size_t)len);
	}
}

static void send_gap(struct conversation *c, size_t i)
{
	c->positions[i] += 1 + dice(1000) - (dice(100) == 0);
	job_send_gap(&c->f.peer, (uint32_t)i + 1, c->positions[i]);
}

static void send_window(struct conversation *c, size_t i)
{
	uint8_t raw[4];

	put_le32(raw, dice(70000));
	peer_send(&c->f.peer, FRAME_WINDOW, FRAME_CHANNEL_IN, (uint32_t)i + 1, raw, sizeof raw);
}

/* What such a call may be sent, or now and then anything. */
static void answer(struct conversation *c, size_t i)
{
	enum kind kind = dice(500) ? c->kinds[i] : (enum kind)dice(KIND_MAX);
	unsigned number = dice(40);

	if (number == 0) {
		send_end(c, i);
	} else if (number == 1) {
		send_window(c, i);
	} else if (kind == READ || kind == FOLLOW) {
		number < 6 ? send_gap(c, i) : send_output(c, i);
	} else if (kind == EXEC || (kind == LIST && number < 4)) {
		send_output(c, i);
	} else if (dice(500) == 0) {
		send_started(c, i);
	}
}

/* ---- rounds ---- */

static bool may_start(enum kind kind)
{
	return kind == EXEC || kind == READ || kind == FOLLOW;
}

static void converse(struct conversation *c)
{
	for (size_t i = 0; i < CALLS; i++) {
		c->kinds[i] = dice(2) ? (enum kind)dice(WAIT) : (enum kind)dice(KIND_MAX);
		c->calls[i] = begin(c, i);
		assert_non_null(c->calls[i]);
	}
	peer_turns(&c->f.peer, 3);
	for (size_t i = 0; i < CALLS; i++) {
		if (may_start(c->kinds[i])) {
			send_started(c, i);
		}
	}
	for (unsigned left = 20 + dice(200); left > 0 && c->f.down == 0; left--) {
		size_t i = dice(CALLS);

		answer(c, i);
		if (dice(3) == 0) {
			peer_turns(&c->f.peer, 1);
			trouble(c, dice(CALLS));
		}
	}
}

static void test_whatever_a_guest_says_each_call_ends_once(void **state)
{
	(void)state;
	seed = 1;
	for (unsigned round = 0; round < ROUNDS; round++) {
		_cleanup_free_ struct conversation *c = xnew(struct conversation);

		fixture_init(&c->f, &fixture_patient);
		fixture_start(&c->f);
		converse(c);
		if (dice(2)) {
			peer_hang_up(&c->f.peer);
			peer_turns(&c->f.peer, 3);
		}
		for (size_t i = 0; i < CALLS; i++) {
			pipe_writer_free(c->pipes[i]);
		}
		fixture_fini(&c->f);
		for (size_t i = 0; i < CALLS; i++) {
			assert_int_equal(c->records[i].done, 1);
			assert_false(c->records[i].inside_call);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whatever_a_guest_says_each_call_ends_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
