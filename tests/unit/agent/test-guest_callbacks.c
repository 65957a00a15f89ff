#include "tests/lib/cm.h"

#include <stdlib.h>
#include <string.h>

#include "agent/mux.h"
#include "base/clock.h"
#include "base/xalloc.h"
#include "job_rig.h"

/* Each kind of call through each way to end, with callbacks that close, cancel and start. */

enum act {
	ACT_NOTHING,
	ACT_CLOSE,
	ACT_CANCEL_SELF,
	ACT_CANCEL_OTHER,
	ACT_START,
	ACT_MAX,
};

struct actor {
	struct fixture *f;
	enum act act;
	struct guest_call *self;
	struct guest_call *other;
	struct record record;
	struct record started;
};

static void act(struct actor *a)
{
	const struct guest_driver_ops *ops = a->f->driver->ops;

	switch (a->act) {
	case ACT_CLOSE:
		if (a->f->guest) {
			ops->close(steal_ptr(&a->f->guest));
		}
		break;
	case ACT_CANCEL_SELF:
		ops->cancel(a->self);
		break;
	case ACT_CANCEL_OTHER:
		if (a->other) {
			ops->cancel(a->other);
		}
		break;
	case ACT_START: {
		struct guest_exec_spec spec = {.command = "again"};
		struct guest_exec_hooks hooks = record_exec_hooks;
		struct err err;

		hooks.arg = &a->started;
		if (a->started.done == 0 && a->f->guest) {
			ops->exec(a->f->guest, &spec, &hooks, &err);
		}
		break;
	}
	case ACT_NOTHING:
	case ACT_MAX:
		break;
	}
}

static void actor_output(void *arg, int fd, const void *data, size_t len)
{
	struct actor *a = arg;

	record_exec_hooks.on_output(&a->record, fd, data, len);
	act(a);
}

static void actor_exec_done(
	void *arg, const struct guest_exec_result *result, const struct err *err)
{
	struct actor *a = arg;

	record_exec_hooks.on_done(&a->record, result, err);
	act(a);
}

static void actor_entry(void *arg, const struct guest_entry *entry)
{
	struct actor *a = arg;

	record_list_hooks.on_entry(&a->record, entry);
	act(a);
}

static void actor_list_done(
	void *arg, bool is_cut, const struct guest_status *status, const struct err *err)
{
	struct actor *a = arg;

	record_list_hooks.on_done(&a->record, is_cut, status, err);
	act(a);
}

static void actor_info(void *arg, const struct guest_file_info *info)
{
	struct actor *a = arg;

	record_get_hooks.on_info(&a->record, info);
	act(a);
}

static void actor_done(void *arg, const struct guest_status *status, const struct err *err)
{
	struct actor *a = arg;

	record_done(&a->record, status, err);
	act(a);
}

static void other_done(void *arg, const struct guest_exec_result *result, const struct err *err)
{
	struct actor *a = arg;

	(void)result;
	(void)err;
	a->other = NULL;
}

static void ignore_output(void *arg, int fd, const void *data, size_t len)
{
	(void)arg;
	(void)fd;
	(void)data;
	(void)len;
}

static void actor_job(void *arg, const struct guest_job *job)
{
	struct actor *a = arg;

	record_job_hooks.on_job(&a->record, job);
	act(a);
}

static void actor_start(void *arg, uint64_t offset)
{
	struct actor *a = arg;

	record_job_hooks.on_start(&a->record, offset);
	act(a);
}

enum kind {
	KIND_EXEC,
	KIND_LIST,
	KIND_GET,
	KIND_PUT,
	KIND_CONFIGURE,
	KIND_JOB_WAIT,
	KIND_JOB_READ,
	KIND_JOB_LIST,
	KIND_JOB_INPUT,
	KIND_MAX
};

/* It takes the reader's end of the pipe. */
static bool reads_pipe(enum kind kind)
{
	return kind == KIND_PUT || kind == KIND_JOB_INPUT;
}

static void start_actor(struct actor *a, enum kind kind, struct pipe *pipe)
{
	const struct guest_driver_ops *ops = a->f->driver->ops;
	struct guest *guest = a->f->guest;
	struct err err;
	struct guest_exec_spec exec = {.command = "x", .output_cap = 100};
	struct guest_file_spec file = {
		.path = "/x", .path_len = 2, .limit = 10, .length = UINT64_MAX};
	struct guest_config config = {0};
	struct guest_read_spec read = {.id = "ex_1", .max = UINT64_MAX};
	struct guest_job_hooks job_hooks = {actor_job, actor_start, actor_output, actor_done, a};

	switch (kind) {
	case KIND_EXEC:
		a->self = ops->exec(guest, &exec,
			&(struct guest_exec_hooks){
				.on_output = actor_output, .on_done = actor_exec_done, .arg = a},
			&err);
		break;
	case KIND_LIST:
		a->self = ops->list(guest, &file,
			&(struct guest_list_hooks){actor_entry, actor_list_done, a}, &err);
		break;
	case KIND_GET:
		a->self = ops->get(guest, &file, pipe,
			&(struct guest_get_hooks){actor_info, actor_done, a}, &err);
		break;
	case KIND_PUT:
		a->self = ops->put(guest, &file, pipe, actor_done, a, &err);
		break;
	case KIND_CONFIGURE:
		a->self = ops->configure(guest, &config, actor_done, a, &err);
		break;
	case KIND_JOB_WAIT:
		a->self = ops->job_wait(guest, "ex_1",
			&(struct guest_exec_hooks){
				.on_output = actor_output, .on_done = actor_exec_done, .arg = a},
			&err);
		break;
	case KIND_JOB_READ:
		a->self = ops->job_read(guest, &read, &job_hooks, &err);
		break;
	case KIND_JOB_LIST:
		a->self = ops->job_list(guest, &job_hooks, &err);
		break;
	case KIND_JOB_INPUT:
		a->self = ops->job_input(guest, "ex_1", pipe, true, actor_done, a, &err);
		break;
	case KIND_MAX:
		break;
	}
	assert_non_null(a->self);
	a->other = ops->exec(guest, &exec,
		&(struct guest_exec_hooks){
			.on_output = ignore_output, .on_done = other_done, .arg = a},
		&err);
	assert_non_null(a->other);
}

enum cause { CAUSE_END, CAUSE_LOSS, CAUSE_VIOLATION, CAUSE_CANCEL, CAUSE_CLOSE, CAUSE_MAX };

static void send_answer(struct peer *peer, enum kind kind)
{
	uint8_t body[128];
	struct msg_writer w = {.buf = body, .size = sizeof body};
	struct msg_entry entry = {.type = ENTRY_FILE, .name = "n", .name_len = 1};

	switch (kind) {
	case KIND_EXEC:
		peer_send(peer, FRAME_DATA, FRAME_CHANNEL_OUT, 1, "abc", 3);
		break;
	case KIND_LIST:
		assert_true(msg_entry_put(&w, &entry));
		assert_true(msg_entry_put(&w, &entry));
		peer_send(peer, FRAME_DATA, FRAME_CHANNEL_OUT, 1, body, w.len);
		break;
	case KIND_GET:
		peer_send(peer, FRAME_STARTED, 0, 1, NULL, 0);
		peer_send(peer, FRAME_DATA, FRAME_CHANNEL_OUT, 1, "abc", 3);
		break;
	case KIND_JOB_READ:
		job_send_started(peer, 1, &job_running, 100);
		peer_send(peer, FRAME_DATA, FRAME_CHANNEL_ERR, 1, "abc", 3);
		job_send_gap(peer, 1, 150);
		break;
	case KIND_JOB_LIST:
		job_send_entries(peer, &job_running, 2);
		break;
	case KIND_PUT:
	case KIND_CONFIGURE:
	case KIND_JOB_WAIT:
	case KIND_JOB_INPUT:
	case KIND_MAX:
		break;
	}
}

static bool is_over(const void *arg)
{
	const struct actor *a = arg;

	return a->record.done > 0;
}

static void run_actor(enum kind kind, enum act what, enum cause cause)
{
	struct fixture f;
	struct actor a = {.f = &f, .act = what};

	fixture_init(&f, &fixture_patient);
	fixture_start(&f);
	struct pipe *pipe = pipe_new(f.loop, 100);

	start_actor(&a, kind, pipe);
	peer_receive(&f.peer);
	peer_receive(&f.peer);
	send_answer(&f.peer, kind);
	switch (cause) {
	case CAUSE_END:
		peer_send_end(&f.peer, 1, STATUS_IO, "no");
		break;
	case CAUSE_LOSS:
		peer_hang_up(&f.peer);
		break;
	case CAUSE_VIOLATION:
		peer_send(&f.peer, FRAME_END, 0, 1, "x", 1);
		break;
	case CAUSE_CANCEL:
		f.driver->ops->cancel(a.self);
		peer_send_end(&f.peer, 1, STATUS_CANCELLED, "");
		break;
	case CAUSE_CLOSE:
		peer_turns(&f.peer, 3);
		if (f.guest) {
			f.driver->ops->close(steal_ptr(&f.guest));
		}
		break;
	case CAUSE_MAX:
		break;
	}
	peer_wait(&f.peer, is_over, &a);
	peer_turns(&f.peer, 3);
	if (reads_pipe(kind)) {
		pipe_writer_free(pipe);
	} else if (kind == KIND_GET) {
		pipe_reader_free(pipe);
	} else {
		pipe_close(pipe);
		pipe_writer_free(pipe);
		pipe_reader_free(pipe);
	}
	fixture_fini(&f);
	assert_int_equal(a.record.done, 1);
	assert_true(a.record.err.kind != ERR_NONE);
	assert_null(a.other);
}

static void test_callbacks_may_do_anything_at_any_time(void **state)
{
	(void)state;
	for (enum kind kind = 0; kind < KIND_MAX; kind++) {
		for (enum act what = 0; what < ACT_MAX; what++) {
			for (enum cause cause = 0; cause < CAUSE_MAX; cause++) {
				run_actor(kind, what, cause);
			}
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_callbacks_may_do_anything_at_any_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
