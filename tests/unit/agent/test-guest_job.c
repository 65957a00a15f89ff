#include "tests/lib/cm.h"

#include <string.h>

#include "agent/mux.h"
#include "base/clock.h"
#include "base/xalloc.h"
#include "job_rig.h"

/* Jobs against a scripted peer: what is asked for, and what comes of it. */

/* The number field @tag of a request; fails where it has none. */
static uint64_t number_in(const struct frame *frame, uint16_t tag)
{
	struct msg_reader r = {.buf = frame->payload, .len = frame->length};

	for (struct msg_field f; msg_next(&r, &f);) {
		if ((f.tag & ~MSG_CRITICAL) == tag) {
			return f.len == 8 ? msg_u64(&r, &f) : msg_u32(&r, &f);
		}
	}
	fail_msg("no field %u", tag);
	return 0;
}

static bool has_field(const struct frame *frame, uint16_t tag, const char *text)
{
	struct msg_reader r = {.buf = frame->payload, .len = frame->length};

	for (struct msg_field f; msg_next(&r, &f);) {
		if ((f.tag & ~MSG_CRITICAL) == tag &&
			(!text || (f.len == strlen(text) && memcmp(f.data, text, f.len) == 0))) {
			return true;
		}
	}
	return false;
}

static void test_a_read_hands_on_what_comes_in_its_order(void **state)
{
	struct fixture f;
	struct record record;
	const struct guest_read_spec spec = {.id = "ex_1", .offset = 50, .max = 1000, .wait_ms = 9};

	(void)state;
	fixture_init(&f, NULL);
	fixture_start(&f);
	job_begin_read(&f, &spec, &record);
	struct frame frame = peer_expect(&f.peer, FRAME_JOB_READ);

	assert_true(has_field(&frame, MSG_ID, "ex_1"));
	assert_int_equal(number_in(&frame, MSG_OFFSET), 50);
	assert_int_equal(number_in(&frame, MSG_LENGTH), 1000);
	assert_int_equal(number_in(&frame, MSG_WAIT_MS), 9);
	assert_false(has_field(&frame, MSG_JOB_FLAGS, NULL));
	job_send_started(&f.peer, 1, &job_running, 100);
	peer_send(&f.peer, FRAME_DATA, FRAME_CHANNEL_OUT, 1, "abc", 3);
	peer_send(&f.peer, FRAME_DATA, FRAME_CHANNEL_ERR, 1, "de", 2);
	job_send_gap(&f.peer, 1, 150);
	peer_send(&f.peer, FRAME_DATA, FRAME_CHANNEL_OUT, 1, "f", 1);
	job_send_end_at(&f.peer, 1, 151);
	fixture_wait_done(&f, &record);
	assert_int_equal(record.err.kind, ERR_NONE);
	assert_int_equal(record.jobs, 1);
	assert_true(record.job.is_running);
	assert_int_equal(record.job.end_offset, 200);
	assert_int_equal(record.starts, 2);
	assert_int_equal(record.start, 150);
	assert_string_equal(record.head[1], "abcf");
	assert_string_equal(record.head[2], "de");
	fixture_fini(&f);
}

static void test_a_paused_reader_gives_no_credit_and_has_no_deadline(void **state)
{
	struct fixture f;
	struct record record;
	struct guest_timing timing = fixture_patient;
	const struct guest_read_spec spec = {.id = "ex_1", .max = UINT64_MAX};
	_cleanup_free_ uint8_t *part = xcalloc(1, PROTO_PAYLOAD_MAX_BYTES);

	(void)state;
	timing.idle_ms = 100;
	fixture_init(&f, &timing);
	fixture_start(&f);
	struct guest_call *call = job_begin_read(&f, &spec, &record);

	peer_expect(&f.peer, FRAME_JOB_READ);
	f.driver->ops->exec_pause(call, true);
	job_send_started(&f.peer, 1, &job_running, 100);
	for (unsigned i = 0; i < PROTO_WINDOW_INITIAL_BYTES / PROTO_PAYLOAD_MAX_BYTES; i++) {
		peer_send(&f.peer, FRAME_DATA, FRAME_CHANNEL_OUT, 1, part, PROTO_PAYLOAD_MAX_BYTES);
	}
	await(f.loop, record.output[1] == PROTO_WINDOW_INITIAL_BYTES, 20000);
	uint64_t until = clock_monotonic_ms() + 500;

	while (clock_monotonic_ms() < until) {
		peer_turns(&f.peer, 1);
	}
	assert_int_equal(record.done, 0);
	f.driver->ops->exec_pause(call, false);
	struct frame frame = peer_expect(&f.peer, FRAME_WINDOW);

	assert_int_equal(get_le32(frame.payload), PROTO_WINDOW_INITIAL_BYTES);
	fixture_fini(&f);
	assert_int_equal(record.err.kind, ERR_CANCELLED);
}

static void test_a_paused_reader_hears_of_no_more_gaps_than_it_gave_credit_for(void **state)
{
	struct fixture f;
	struct record record;
	const struct guest_read_spec spec = {.id = "ex_1", .max = UINT64_MAX};
	const unsigned most = PROTO_WINDOW_INITIAL_BYTES / PROTO_GAP_BYTES;

	(void)state;
	fixture_init(&f, &fixture_patient);
	fixture_start(&f);
	struct guest_call *call = job_begin_read(&f, &spec, &record);

	peer_expect(&f.peer, FRAME_JOB_READ);
	f.driver->ops->exec_pause(call, true);
	job_send_started(&f.peer, 1, &job_running, 100);
	for (unsigned i = 0; i < most; i++) {
		job_send_gap(&f.peer, 1, 101 + i);
	}
	await(f.loop, record.starts == 1 + most, 20000);
	f.driver->ops->exec_pause(call, false);
	struct frame frame = peer_expect(&f.peer, FRAME_WINDOW);

	assert_int_equal(get_le32(frame.payload), PROTO_WINDOW_INITIAL_BYTES);
	f.driver->ops->exec_pause(call, true);
	for (unsigned i = 0; i <= most; i++) {
		job_send_gap(&f.peer, 1, 101 + most + i);
	}
	fixture_wait_done(&f, &record);
	assert_int_equal(record.starts, 1 + 2 * most);
	assert_int_equal(record.err.kind, ERR_UNAVAILABLE);
	fixture_fini(&f);
}

static void test_a_silent_guest_is_given_up_unless_it_is_followed(void **state)
{
	struct fixture f;
	struct record plain;
	struct record follower;
	struct guest_timing timing = fixture_timing;
	const struct guest_read_spec spec = {.id = "ex_1", .max = UINT64_MAX, .wait_ms = 50};
	const struct guest_read_spec follow = {
		.id = "ex_1", .max = UINT64_MAX, .is_followed = true, .wait_ms = 50};

	(void)state;
	timing.idle_ms = 100;
	fixture_init(&f, &timing);
	fixture_start(&f);
	job_begin_read(&f, &follow, &follower);
	struct frame frame = peer_expect(&f.peer, FRAME_JOB_READ);

	assert_int_equal(number_in(&frame, MSG_JOB_FLAGS), MSG_JOB_FOLLOW);
	assert_false(has_field(&frame, MSG_WAIT_MS, NULL));
	assert_false(has_field(&frame, MSG_LENGTH, NULL));
	job_begin_read(&f, &spec, &plain);
	await(f.loop, plain.done == 1, 20000);
	assert_int_equal(plain.err.kind, ERR_TIMEOUT);
	assert_int_equal(follower.done, 0);
	fixture_fini(&f);
}

static void test_a_list_brings_each_job_with_its_result(void **state)
{
	struct fixture f;
	struct record record;

	(void)state;
	fixture_init(&f, NULL);
	fixture_start(&f);
	job_begin_list(&f, &record);
	peer_expect(&f.peer, FRAME_JOB_LIST);
	job_send_entries(&f.peer, &job_running, 1);
	job_send_entries(&f.peer, &job_ended, 95);
	peer_send_end(&f.peer, 1, STATUS_OK, NULL);
	fixture_wait_done(&f, &record);
	assert_int_equal(record.err.kind, ERR_NONE);
	assert_int_equal(record.jobs, 96);
	assert_string_equal(record.job.id, "ex_1");
	assert_int_equal(record.job.result.exit_code, 3);
	assert_int_equal(record.job.result.stdout_bytes, 150);
	fixture_fini(&f);
}

static void test_input_sends_the_pipe(void **state)
{
	struct fixture f;
	struct record record = {0};
	struct err err;

	(void)state;
	fixture_init(&f, NULL);
	fixture_start(&f);
	struct pipe *pipe = pipe_new(f.loop, 100);

	assert_non_null(
		f.driver->ops->job_input(f.guest, "ex_1", pipe, true, record_done, &record, &err));
	struct frame frame = peer_expect(&f.peer, FRAME_JOB_INPUT);

	assert_int_equal(number_in(&frame, MSG_JOB_FLAGS), MSG_JOB_CLOSE);
	pipe_write(pipe, "abc", 3);
	frame = peer_expect(&f.peer, FRAME_DATA);
	assert_memory_equal(frame.payload, "abc", 3);
	pipe_close(pipe);
	peer_expect(&f.peer, FRAME_CLOSE);
	peer_send_end(&f.peer, 1, STATUS_OK, NULL);
	fixture_wait_done(&f, &record);
	assert_int_equal(record.err.kind, ERR_NONE);
	pipe_writer_free(pipe);
	fixture_fini(&f);
}

static void test_input_that_the_job_refuses_fails_its_writer(void **state)
{
	struct fixture f;
	struct record record = {0};
	struct err err;

	(void)state;
	fixture_init(&f, NULL);
	fixture_start(&f);
	struct pipe *pipe = pipe_new(f.loop, 100);

	assert_non_null(
		f.driver->ops->job_input(f.guest, "ex_1", pipe, false, record_done, &record, &err));
	peer_expect(&f.peer, FRAME_JOB_INPUT);
	peer_send_end(&f.peer, 1, STATUS_INVALID, "the command's stdin isn't open");
	fixture_wait_done(&f, &record);
	assert_int_equal(record.err.kind, ERR_GUEST);
	assert_int_equal(record.status, STATUS_INVALID);
	assert_int_equal(pipe_failure(pipe)->kind, ERR_GUEST);
	pipe_writer_free(pipe);
	fixture_fini(&f);
}

static void test_input_whose_writer_goes_away_is_cancelled(void **state)
{
	struct fixture f;
	struct record record = {0};
	struct err err;

	(void)state;
	fixture_init(&f, NULL);
	fixture_start(&f);
	struct pipe *pipe = pipe_new(f.loop, 100);

	pipe_write(pipe, "abc", 3);
	assert_non_null(
		f.driver->ops->job_input(f.guest, "ex_1", pipe, true, record_done, &record, &err));
	peer_expect(&f.peer, FRAME_JOB_INPUT);
	peer_expect(&f.peer, FRAME_DATA);
	pipe_writer_free(pipe);
	peer_expect(&f.peer, FRAME_CANCEL);
	fixture_wait_done(&f, &record);
	assert_int_equal(record.err.kind, ERR_CANCELLED);
	fixture_fini(&f);
}

static void test_a_start_carries_all_that_was_asked(void **state)
{
	struct fixture f;
	struct record record = {0};
	const struct guest_job_spec spec = {
		.exec = {.id = "ex_1", .command = "x", .shell = "sh", .timeout_ms = 5},
		.keep_stdin = true,
		.has_tty = true,
		.rows = 24,
		.cols = 80};
	struct err err;

	(void)state;
	fixture_init(&f, NULL);
	fixture_start(&f);
	assert_non_null(f.driver->ops->job_start(f.guest, &spec, record_done, &record, &err));
	struct frame frame = peer_expect(&f.peer, FRAME_JOB_START);

	assert_true(has_field(&frame, MSG_ID, "ex_1"));
	assert_true(has_field(&frame, MSG_COMMAND, "x"));
	assert_true(has_field(&frame, MSG_SHELL, "sh"));
	assert_int_equal(number_in(&frame, MSG_EXEC_FLAGS), MSG_EXEC_STDIN | MSG_EXEC_TTY);
	assert_int_equal(number_in(&frame, MSG_ROWS), 24);
	assert_int_equal(number_in(&frame, MSG_COLS), 80);
	assert_int_equal(number_in(&frame, MSG_TIMEOUT_MS), 5);
	assert_false(has_field(&frame, MSG_OUTPUT_CAP, NULL));
	peer_send_end(&f.peer, 1, STATUS_LIMIT, "32 background commands run");
	fixture_wait_done(&f, &record);
	assert_int_equal(record.err.kind, ERR_RATE);
	fixture_fini(&f);
}

/* ---- what is refused before it is asked ---- */

static void test_an_old_agent_is_a_conflict_and_its_session_stands(void **state)
{
	struct fixture f;
	struct record record = {0};
	const struct guest_job_spec job = {.exec = {.id = "ex_1", .command = "x"}};
	const struct guest_job_spec tty = {.exec = {.id = "ex_1"}, .has_tty = true};
	const struct guest_exec_spec shell = {.command = "x", .shell = "sh"};
	const struct guest_read_spec read = {.id = "ex_1"};
	struct guest_exec_hooks exec_hooks = record_exec_hooks;
	struct guest_job_hooks job_hooks = record_job_hooks;
	struct err err;

	(void)state;
	fixture_init(&f, NULL);
	f.peer.features = PROTO_FEATURE_CGROUP;
	fixture_start(&f);
	const struct guest_driver_ops *ops = f.driver->ops;
	struct pipe *pipe = pipe_new(f.loop, 10);

#define REFUSED(call)                                                                              \
	assert_null(call);                                                                         \
	assert_int_equal(err.kind, ERR_CONFLICT);                                                  \
	assert_err_says(&err, "rebuilt")
	REFUSED(ops->signal(f.guest, "ex_1", 9, record_done, &record, &err));
	REFUSED(ops->job_start(f.guest, &job, record_done, &record, &err));
	REFUSED(ops->job_wait(f.guest, "ex_1", &exec_hooks, &err));
	REFUSED(ops->job_read(f.guest, &read, &job_hooks, &err));
	REFUSED(ops->job_input(f.guest, "ex_1", pipe, false, record_done, &record, &err));
	REFUSED(ops->job_resize(f.guest, "ex_1", 1, 1, record_done, &record, &err));
	REFUSED(ops->job_list(f.guest, &job_hooks, &err));
	REFUSED(ops->job_forget(f.guest, "ex_1", record_done, &record, &err));
	REFUSED(ops->exec(f.guest, &shell, &exec_hooks, &err));
	pipe_writer_free(pipe);
	pipe_reader_free(pipe);
	/* An id is no reason: it is skipped there. */
	fixture_exec(&f, &record, "x");
	peer_expect(&f.peer, FRAME_EXEC);
	fixture_fini(&f);

	fixture_init(&f, NULL);
	f.peer.features = PROTO_FEATURE_JOBS;
	fixture_start(&f);
	REFUSED(f.driver->ops->job_start(f.guest, &tty, record_done, &record, &err));
	fixture_fini(&f);
#undef REFUSED
}

static void test_what_can_be_no_id_is_never_sent(void **state)
{
	static const char *const bad[] = {"", "a b", "../x", "ex_1\n"};
	struct fixture f;
	struct record record = {0};
	char longest[PROTO_ID_MAX_BYTES + 2] = "";
	struct err err;

	(void)state;
	fixture_init(&f, NULL);
	fixture_start(&f);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_null(f.driver->ops->signal(f.guest, bad[i], 9, record_done, &record, &err));
		assert_int_equal(err.kind, ERR_INVALID);
	}
	memset(longest, 'x', sizeof longest - 1);
	assert_null(f.driver->ops->job_forget(f.guest, longest, record_done, &record, &err));
	assert_int_equal(err.kind, ERR_INVALID);
	assert_true(peer_is_silent(&f.peer));
	fixture_fini(&f);
}

static void test_signals_go_while_all_other_streams_are_taken(void **state)
{
	struct fixture f;
	static struct record records[PROTO_STREAMS_MAX];
	struct record record = {0};
	struct record read_record;
	const struct guest_job_spec spec = {.exec = {.id = "ex_1", .command = "x"}};
	struct err err;

	(void)state;
	memset(records, 0, sizeof records);
	fixture_init(&f, NULL);
	fixture_start(&f);
	for (unsigned i = 0; i < PROTO_STREAMS_MAX - MUX_STREAMS_RESERVED; i++) {
		fixture_exec(&f, &records[i], "x");
	}
	assert_null(f.driver->ops->job_start(f.guest, &spec, record_done, &record, &err));
	assert_int_equal(err.kind, ERR_RATE);
	assert_non_null(f.driver->ops->signal(f.guest, "ex_1", 9, record_done, &record, &err));
	read_record = (struct record){0};
	job_begin_list(&f, &read_record);
	fixture_fini(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_read_hands_on_what_comes_in_its_order),
		cmocka_unit_test(test_a_paused_reader_gives_no_credit_and_has_no_deadline),
		cmocka_unit_test(
			test_a_paused_reader_hears_of_no_more_gaps_than_it_gave_credit_for),
		cmocka_unit_test(test_a_silent_guest_is_given_up_unless_it_is_followed),
		cmocka_unit_test(test_a_list_brings_each_job_with_its_result),
		cmocka_unit_test(test_input_sends_the_pipe),
		cmocka_unit_test(test_input_that_the_job_refuses_fails_its_writer),
		cmocka_unit_test(test_input_whose_writer_goes_away_is_cancelled),
		cmocka_unit_test(test_a_start_carries_all_that_was_asked),
		cmocka_unit_test(test_an_old_agent_is_a_conflict_and_its_session_stands),
		cmocka_unit_test(test_what_can_be_no_id_is_never_sent),
		cmocka_unit_test(test_signals_go_while_all_other_streams_are_taken),
	};

	return cmocka_run_group_tests_name("guest_job", tests, NULL, NULL);
}
