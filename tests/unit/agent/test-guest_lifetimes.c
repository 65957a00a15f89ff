#include "tests/lib/cm.h"

#include <stdlib.h>
#include <string.h>

#include "agent/mux.h"
#include "base/clock.h"
#include "base/xalloc.h"
#include "fixture.h"

/*
 * Every call ends exactly once, whatever happens to it: cancel, time-out, loss of the channel,
 * close, and callbacks that do any of it. Memory errors are for the sanitizers to find.
 */

static void test_cancel_before_anything_was_sent(void **state)
{
	struct fixture f;
	struct record record = {0};

	(void)state;
	fixture_init(&f, &fixture_patient);
	fixture_start(&f);
	struct guest_call *call = fixture_exec(&f, &record, "x");

	f.driver->ops->cancel(call);
	f.driver->ops->cancel(call);
	assert_int_equal(record.done, 0);
	fixture_wait_done(&f, &record);
	assert_int_equal(record.err.kind, ERR_CANCELLED);
	assert_true(peer_is_silent(&f.peer));
	fixture_fini(&f);
	assert_int_equal(record.done, 1);
}

static void test_cancel_waits_for_the_guests_last_word(void **state)
{
	struct fixture f;
	struct record record = {0};
	uint8_t body[64];
	struct msg_writer w = {.buf = body, .size = sizeof body};

	(void)state;
	fixture_init(&f, &fixture_patient);
	fixture_start(&f);
	struct guest_call *call = fixture_exec(&f, &record, "x");

	peer_expect(&f.peer, FRAME_EXEC);
	f.driver->ops->cancel(call);
	peer_expect(&f.peer, FRAME_CANCEL);
	peer_turns(&f.peer, 5);
	assert_int_equal(record.done, 0);
	msg_put_u32(&w, MSG_STATUS, STATUS_OK);
	msg_put_u32(&w, MSG_EXIT_CODE, 143);
	msg_put_u32(&w, MSG_SIGNAL, 15);
	msg_put_u32(&w, MSG_END_FLAGS, MSG_END_CANCELLED);
	peer_send(&f.peer, FRAME_END, 0, 1, body, w.len);
	fixture_wait_done(&f, &record);
	assert_int_equal(record.err.kind, ERR_CANCELLED);
	assert_true(record.has_result);
	assert_int_equal(record.result.signal, 15);
	fixture_fini(&f);
	assert_int_equal(record.done, 1);
}

static void test_cancel_that_comes_too_late_leaves_the_result(void **state)
{
	struct fixture f;
	struct record record = {0};

	(void)state;
	fixture_init(&f, &fixture_patient);
	fixture_start(&f);
	struct guest_call *call = fixture_exec(&f, &record, "x");

	peer_expect(&f.peer, FRAME_EXEC);
	peer_send_exit(&f.peer, 1, 3, 0);
	f.driver->ops->cancel(call);
	fixture_wait_done(&f, &record);
	assert_int_equal(record.err.kind, ERR_NONE);
	assert_int_equal(record.result.exit_code, 3);
	fixture_fini(&f);
	assert_int_equal(record.done, 1);
}

static void test_cancel_without_an_answer_times_out(void **state)
{
	struct fixture f;
	struct record record = {0};
	struct guest_timing timing = fixture_patient;

	(void)state;
	timing.cancel_ms = 50;
	fixture_init(&f, &timing);
	fixture_start(&f);
	struct guest_call *call = fixture_exec(&f, &record, "x");

	peer_expect(&f.peer, FRAME_EXEC);
	f.driver->ops->cancel(call);
	fixture_wait_done(&f, &record);
	assert_int_equal(record.err.kind, ERR_TIMEOUT);
	/* The guest's last word comes in the end, and does no harm. */
	peer_send_exit(&f.peer, 1, 0, 0);
	peer_turns(&f.peer, 5);
	assert_int_equal(f.down, 0);
	fixture_fini(&f);
	assert_int_equal(record.done, 1);
}

static void test_exec_is_timed_out_by_the_host_too(void **state)
{
	struct fixture f;
	struct record record = {0};
	struct guest_timing timing = fixture_patient;
	struct guest_exec_spec spec = {.command = "x", .timeout_ms = 1};
	struct guest_exec_hooks hooks = record_exec_hooks;
	struct err err;

	(void)state;
	timing.exec_margin_ms = 1;
	hooks.arg = &record;
	fixture_init(&f, &timing);
	fixture_start(&f);
	assert_non_null(f.driver->ops->exec(f.guest, &spec, &hooks, &err));
	peer_expect(&f.peer, FRAME_EXEC);
	peer_expect(&f.peer, FRAME_CANCEL);
	fixture_wait_done(&f, &record);
	assert_int_equal(record.err.kind, ERR_TIMEOUT);
	assert_false(record.has_result);
	fixture_fini(&f);
	assert_int_equal(record.done, 1);
}

static void test_paused_exec_is_not_timed_out(void **state)
{
	struct fixture f;
	struct record record = {0};
	struct guest_timing timing = fixture_patient;
	struct guest_exec_spec spec = {.command = "x", .timeout_ms = 1, .output_cap = 100};
	struct guest_exec_hooks hooks = record_exec_hooks;
	struct err err;

	(void)state;
	timing.exec_margin_ms = 1;
	hooks.arg = &record;
	fixture_init(&f, &timing);
	fixture_start(&f);
	struct guest_call *call = f.driver->ops->exec(f.guest, &spec, &hooks, &err);

	assert_non_null(call);
	f.driver->ops->exec_pause(call, true);
	peer_expect(&f.peer, FRAME_EXEC);
	peer_send(&f.peer, FRAME_DATA, FRAME_CHANNEL_OUT, 1, "abc", 3);
	/* Beyond time-out, grace and margin. */
	uint64_t end = clock_monotonic_ms() + PROTO_EXEC_GRACE_MS + 200;

	while (clock_monotonic_ms() < end) {
		peer_turns(&f.peer, 1);
	}
	assert_int_equal(record.done, 0);
	f.driver->ops->exec_pause(call, false);
	fixture_wait_done(&f, &record);
	assert_int_equal(record.err.kind, ERR_TIMEOUT);
	fixture_fini(&f);
}

static void test_file_calls_time_out_only_on_the_guests_turn(void **state)
{
	struct fixture f;
	struct record put = {0};
	struct record get = {0};
	struct record list = {0};
	struct guest_timing timing = fixture_patient;

	(void)state;
	timing.idle_ms = 60;
	fixture_init(&f, &timing);
	fixture_start(&f);
	struct pipe *in = pipe_new(f.loop, 100);
	struct pipe *out = pipe_new(f.loop, 1);

	/* Waits for its sender; and for its receiver. */
	fixture_put(&f, &put, in, UINT64_MAX);
	peer_expect(&f.peer, FRAME_FILE_PUT);
	fixture_get(&f, &get, out);
	peer_expect(&f.peer, FRAME_FILE_GET);
	peer_send(&f.peer, FRAME_STARTED, 0, 2, NULL, 0);
	peer_send(&f.peer, FRAME_DATA, FRAME_CHANNEL_OUT, 2, "abc", 3);
	fixture_list(&f, &list, 10);
	fixture_wait_done(&f, &list);
	assert_int_equal(list.err.kind, ERR_TIMEOUT);
	assert_int_equal(put.done, 0);
	assert_int_equal(get.done, 0);
	/* Now it's the guest's turn. */
	pipe_close(in);
	pipe_writer_free(in);
	fixture_wait_done(&f, &put);
	assert_int_equal(put.err.kind, ERR_TIMEOUT);
	assert_int_equal(get.done, 0);
	pipe_reader_free(out);
	fixture_wait_done(&f, &get);
	assert_int_equal(get.err.kind, ERR_CANCELLED);
	fixture_fini(&f);
}

static void test_loss_of_the_channel_ends_all_calls_once(void **state)
{
	struct fixture f;
	struct record records[6] = {0};
	struct guest_config config = {0};
	struct err err;

	(void)state;
	fixture_init(&f, &fixture_patient);
	fixture_start(&f);
	struct pipe *in = pipe_new(f.loop, 100);
	struct pipe *out = pipe_new(f.loop, 100);

	fixture_put(&f, &records[0], in, UINT64_MAX);
	fixture_get(&f, &records[1], out);
	fixture_list(&f, &records[2], 10);
	fixture_exec(&f, &records[3], "x");
	f.driver->ops->configure(f.guest, &config, record_done, &records[4], &err);
	peer_expect(&f.peer, FRAME_FILE_PUT);
	/* One is being cancelled just then. */
	f.driver->ops->cancel(fixture_exec(&f, &records[5], "y"));
	peer_hang_up(&f.peer);
	fixture_wait_down(&f, 1);
	for (size_t i = 0; i < ARRAY_SIZE(records); i++) {
		assert_int_equal(records[i].done, 1);
		assert_true(records[i].err.kind == ERR_UNAVAILABLE ||
			    (i == 5 && records[i].err.kind == ERR_CANCELLED));
	}
	assert_int_equal(pipe_failure(in)->kind, ERR_UNAVAILABLE);
	assert_int_equal(pipe_failure(out)->kind, ERR_UNAVAILABLE);
	pipe_writer_free(in);
	pipe_reader_free(out);
	peer_start_session(&f.peer);
	fixture_wait_ready(&f, 2);
	fixture_fini(&f);
	for (size_t i = 0; i < ARRAY_SIZE(records); i++) {
		assert_int_equal(records[i].done, 1);
	}
}

static void test_guest_that_ends_nothing_is_dropped(void **state)
{
	struct fixture f;
	struct guest_timing timing = fixture_patient;
	struct record record = {0};

	(void)state;
	timing.cancel_ms = 1;
	fixture_init(&f, &timing);
	fixture_start(&f);
	for (unsigned i = 0; i <= MUX_ORPHANS_MAX; i++) {
		assert_int_equal(f.down, 0);
		record = (struct record){0};
		struct guest_call *call = fixture_exec(&f, &record, "x");

		peer_expect(&f.peer, FRAME_EXEC);
		f.driver->ops->cancel(call);
		peer_expect(&f.peer, FRAME_CANCEL);
		fixture_wait_done(&f, &record);
	}
	fixture_wait_down(&f, 1);
	assert_int_equal(f.down_err.kind, ERR_UNAVAILABLE);
	fixture_fini(&f);
}

static void test_receivers_that_leave_together_cost_a_sound_guest_nothing(void **state)
{
	enum { COUNT = 2 * MUX_ORPHANS_MAX };
	struct fixture f;
	struct record exec = {0};
	struct record records[COUNT] = {0};
	struct pipe *pipes[COUNT];

	(void)state;
	fixture_init(&f, &fixture_patient);
	fixture_start(&f);
	fixture_exec(&f, &exec, "x");
	peer_expect(&f.peer, FRAME_EXEC);
	for (unsigned i = 0; i < COUNT; i++) {
		pipes[i] = pipe_new(f.loop, 100);
		fixture_get(&f, &records[i], pipes[i]);
		peer_expect(&f.peer, FRAME_FILE_GET);
	}
	for (unsigned i = 0; i < COUNT; i++) {
		pipe_reader_free(pipes[i]);
	}
	for (unsigned i = 0; i < COUNT; i++) {
		uint32_t stream = peer_expect(&f.peer, FRAME_CANCEL).stream;

		peer_send_end(&f.peer, stream, STATUS_CANCELLED, "cancelled");
	}
	peer_send_exit(&f.peer, 1, 5, 0);
	fixture_wait_done(&f, &exec);
	assert_int_equal(exec.err.kind, ERR_NONE);
	assert_int_equal(f.down, 0);
	fixture_fini(&f);
	for (unsigned i = 0; i < COUNT; i++) {
		assert_int_equal(records[i].done, 1);
	}
}

/* ---- a hostile guest ---- */

static uint32_t random_number(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*seed >> 33);
}

/* A body that may or may not be an answer, with a byte or two changed. */
static size_t random_body(uint64_t *seed, uint8_t *body, size_t size)
{
	struct msg_writer w = {.buf = body, .size = size};
	struct msg_entry entry = {.type = ENTRY_FILE, .name = "name", .name_len = 4};

	switch (random_number(seed) % 5) {
	case 0:
		msg_put_u32(&w, MSG_STATUS, random_number(seed) % 20);
		msg_put_text(&w, MSG_TEXT, "text");
		break;
	case 1:
		msg_put_u32(&w, MSG_STATUS, STATUS_OK);
		msg_put_u32(&w, MSG_EXIT_CODE, random_number(seed) % 300);
		msg_put_u64(&w, MSG_OUT_BYTES, random_number(seed) % 300);
		msg_put_u64(&w, MSG_BYTES, random_number(seed) % 300);
		break;
	case 2:
		while (random_number(seed) % 4 != 0) {
			msg_entry_put(&w, &entry);
		}
		break;
	case 3:
		w.len = random_number(seed) % size;
		memset(body, (int)random_number(seed), w.len);
		break;
	default:
		w.len = 4;
		put_le32(body, random_number(seed) % 100000);
		break;
	}
	if (w.len > 0 && random_number(seed) % 3 == 0) {
		body[random_number(seed) % w.len] = (uint8_t)random_number(seed);
	}
	return w.len;
}

static void send_random(struct peer *peer, uint64_t *seed)
{
	static const uint16_t types[] = {FRAME_DATA, FRAME_DATA, FRAME_DATA, FRAME_STARTED,
		FRAME_END, FRAME_CLOSE, FRAME_WINDOW, FRAME_PONG, FRAME_SYNC_ACK, FRAME_ABORT};
	uint8_t body[256];
	size_t len = random_body(seed, body, sizeof body);
	uint16_t type = types[random_number(seed) % (ARRAY_SIZE(types) - (*seed >> 60 != 0))];
	uint16_t channel = type == FRAME_WINDOW ? FRAME_CHANNEL_IN
						: (uint16_t)(1 + random_number(seed) % 2);
	bool has_channel = type == FRAME_DATA || type == FRAME_CLOSE || type == FRAME_WINDOW;

	if (type == FRAME_CLOSE) {
		len = 0;
	} else if (type == FRAME_WINDOW) {
		len = 4;
		put_le32(body, random_number(seed) % 100000);
	}
	if (random_number(seed) % 50 == 0) {
		/* No frame at all. */
		peer_send_raw(peer, body, len);
		return;
	}
	peer_send(peer, type, has_channel ? channel : 0,
		type < FRAME_EXEC ? 0 : 1 + random_number(seed) % 5, body, len);
}

static void test_hostile_guest_gets_no_further_than_its_calls(void **state)
{
	uint64_t seed = 1;

	(void)state;
	for (int round = 0; round < 300; round++) {
		struct fixture f;
		struct record records[5] = {0};
		struct guest_config config = {0};
		struct err err;

		fixture_init(&f, &fixture_patient);
		fixture_start(&f);
		struct pipe *in = pipe_new(f.loop, 100);
		struct pipe *out = pipe_new(f.loop, 100);

		fixture_exec(&f, &records[0], "x");
		fixture_put(&f, &records[1], in, UINT64_MAX);
		fixture_get(&f, &records[2], out);
		fixture_list(&f, &records[3], 20);
		f.driver->ops->configure(f.guest, &config, record_done, &records[4], &err);
		for (int i = 0; i < 5; i++) {
			peer_receive(&f.peer);
		}
		pipe_write(in, "abc", 3);
		for (int i = 0; i < 30; i++) {
			uint8_t drain[64];

			send_random(&f.peer, &seed);
			loop_turn_for(f.loop, 0);
			pipe_read(out, drain, sizeof drain);
		}
		pipe_writer_free(in);
		pipe_reader_free(out);
		fixture_fini(&f);
		for (size_t i = 0; i < ARRAY_SIZE(records); i++) {
			assert_int_equal(records[i].done, 1);
			assert_true(records[i].entries <= 20);
		}
	}
}

/* ---- close and the state hook ---- */

struct closer {
	struct guest_driver *driver;
	struct guest *guest;
	enum guest_state when;
	unsigned calls;
};

static void close_on_state(void *arg, enum guest_state state, const struct err *err)
{
	struct closer *c = arg;

	(void)err;
	c->calls++;
	if (state == c->when) {
		c->driver->ops->close(steal_ptr(&c->guest));
	}
}

static bool is_closed(const void *arg)
{
	const struct closer *c = arg;

	return c->guest == NULL;
}

static void test_state_hook_may_close(void **state)
{
	static const enum guest_state states[] = {GUEST_READY, GUEST_DOWN};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(states); i++) {
		struct fixture f;

		fixture_init(&f, &fixture_patient);
		f.driver->ops->close(steal_ptr(&f.guest));
		struct closer c = {.driver = f.driver, .when = states[i]};
		struct guest_hooks hooks = {.on_state = close_on_state, .arg = &c};

		c.guest = f.driver->ops->open(f.driver, f.peer.path, NULL, &hooks);
		peer_listen(&f.peer);
		peer_accept(&f.peer);
		peer_answer_sync(&f.peer);
		if (states[i] == GUEST_DOWN) {
			peer_expect(&f.peer, FRAME_HELLO);
			/* Several frames at once; the first is the end of it. */
			peer_send(&f.peer, FRAME_HELLO, 0, 0, NULL, 0);
			peer_send(&f.peer, FRAME_HELLO, 0, 0, NULL, 0);
		}
		peer_wait(&f.peer, is_closed, &c);
		peer_turns(&f.peer, 5);
		assert_int_equal(c.calls, 1 + i);
		fixture_fini(&f);
	}
}

static void test_close_in_every_phase_of_the_session(void **state)
{
	(void)state;
	for (int phase = 0; phase < 6; phase++) {
		struct fixture f;

		fixture_init(&f, &fixture_patient);
		if (phase > 0) {
			peer_listen(&f.peer);
		}
		if (phase > 1) {
			peer_accept(&f.peer);
		}
		if (phase > 2) {
			peer_expect(&f.peer, FRAME_SYNC);
		}
		if (phase > 3) {
			peer_send_raw(&f.peer, frame_magic, sizeof frame_magic);
			peer_turns(&f.peer, 3);
		}
		if (phase > 4) {
			peer_hang_up(&f.peer);
			peer_turns(&f.peer, 3);
		}
		assert_int_equal(f.driver->ops->state(f.guest), GUEST_CONNECTING);
		assert_int_equal(f.down, 0);
		fixture_fini(&f);
	}
}

static void test_missing_or_bad_hello_is_told(void **state)
{
	(void)state;
	for (int is_bad = 0; is_bad < 2; is_bad++) {
		struct fixture f;
		struct guest_timing timing = fixture_patient;
		uint8_t ack[FRAME_SYNC_BYTES];

		timing.chan.hello_ms = 30;
		fixture_init(&f, &timing);
		peer_listen(&f.peer);
		peer_accept(&f.peer);
		memcpy(ack, peer_expect(&f.peer, FRAME_SYNC).payload, sizeof ack);
		peer_send(&f.peer, FRAME_SYNC_ACK, 0, 0, ack, sizeof ack);
		if (is_bad) {
			/* No version. */
			peer_send(&f.peer, FRAME_HELLO, 0, 0, NULL, 0);
		}
		fixture_wait_down(&f, 1);
		assert_int_equal(f.down_err.kind, is_bad ? ERR_UNAVAILABLE : ERR_TIMEOUT);
		assert_null(f.driver->ops->hello(f.guest));
		assert_int_equal(f.ready, 0);
		peer_hang_up(&f.peer);
		peer_start_session(&f.peer);
		fixture_wait_ready(&f, 1);
		fixture_fini(&f);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cancel_before_anything_was_sent),
		cmocka_unit_test(test_cancel_waits_for_the_guests_last_word),
		cmocka_unit_test(test_cancel_that_comes_too_late_leaves_the_result),
		cmocka_unit_test(test_cancel_without_an_answer_times_out),
		cmocka_unit_test(test_exec_is_timed_out_by_the_host_too),
		cmocka_unit_test(test_paused_exec_is_not_timed_out),
		cmocka_unit_test(test_file_calls_time_out_only_on_the_guests_turn),
		cmocka_unit_test(test_loss_of_the_channel_ends_all_calls_once),
		cmocka_unit_test(test_guest_that_ends_nothing_is_dropped),
		cmocka_unit_test(test_receivers_that_leave_together_cost_a_sound_guest_nothing),
		cmocka_unit_test(test_hostile_guest_gets_no_further_than_its_calls),
		cmocka_unit_test(test_state_hook_may_close),
		cmocka_unit_test(test_close_in_every_phase_of_the_session),
		cmocka_unit_test(test_missing_or_bad_hello_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
