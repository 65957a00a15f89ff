#include "tests/lib/cm.h"

#include <string.h>

#include "job_rig.h"

/* Answers about jobs that are wrong: each drops the channel. */

enum bad_read {
	BAD_DATA_BEFORE_STARTED,
	BAD_GAP_BEFORE_STARTED,
	BAD_END_BEFORE_STARTED,
	BAD_STARTED_TWICE,
	BAD_ID,
	BAD_OTHER_JOB,
	BAD_OFFSETS,
	BAD_START_BELOW,
	BAD_START_ABOVE,
	BAD_NO_START,
	BAD_COUNTS,
	BAD_CRITICAL,
	BAD_EMPTY_STARTED,
	BAD_TOO_MUCH,
	BAD_GAP_BACK,
	BAD_GAP_STAYS,
	BAD_GAP_HUGE,
	BAD_END_SHORT,
	BAD_END_FAR,
	BAD_END_WITHOUT_OFFSET,
	BAD_READ_MAX
};

static void send_bad_started(struct peer *peer, enum bad_read which)
{
	struct msg_job job = which == BAD_COUNTS ? job_ended : job_running;
	uint8_t body[32];
	struct msg_writer w = {.buf = body, .size = sizeof body};

	switch ((int)which) {
	case BAD_ID:
		strcpy(job.id, "ex 1");
		break;
	case BAD_OTHER_JOB:
		strcpy(job.id, "ex_2");
		break;
	case BAD_OFFSETS:
		job.first_offset = 201;
		job_send_started(peer, 1, &job, 201);
		return;
	case BAD_START_BELOW:
		job_send_started(peer, 1, &job, 99);
		return;
	case BAD_START_ABOVE:
		job_send_started(peer, 1, &job, 101);
		return;
	case BAD_COUNTS:
		job.out_bytes++;
		break;
	case BAD_CRITICAL:
		msg_put_u32(&w, MSG_CRITICAL | 0x7000, 1);
		peer_send(peer, FRAME_STARTED, 0, 1, body, w.len);
		return;
	case BAD_NO_START:
		job_send_started(peer, 1, &job, UINT64_MAX);
		return;
	default:
		peer_send(peer, FRAME_STARTED, 0, 1, NULL, 0);
		return;
	}
	job_send_started(peer, 1, &job, 100);
}

static void send_bad_rest(struct peer *peer, enum bad_read which)
{
	switch ((int)which) {
	case BAD_STARTED_TWICE:
		job_send_started(peer, 1, &job_running, 100);
		break;
	case BAD_TOO_MUCH:
		peer_send(peer, FRAME_DATA, FRAME_CHANNEL_OUT, 1, "0123456", 7);
		peer_send(peer, FRAME_DATA, FRAME_CHANNEL_ERR, 1, "0123", 4);
		break;
	case BAD_GAP_BACK:
		peer_send(peer, FRAME_DATA, FRAME_CHANNEL_OUT, 1, "0123456", 7);
		job_send_gap(peer, 1, 106);
		break;
	case BAD_GAP_STAYS:
		job_send_gap(peer, 1, 100);
		break;
	case BAD_GAP_HUGE:
		job_send_gap(peer, 1, (uint64_t)INT64_MAX + 1);
		break;
	case BAD_END_SHORT:
		peer_send(peer, FRAME_DATA, FRAME_CHANNEL_OUT, 1, "0123456", 7);
		job_send_end_at(peer, 1, 106);
		break;
	case BAD_END_FAR:
		job_send_end_at(peer, 1, 200);
		break;
	default:
		peer_send_end(peer, 1, STATUS_OK, NULL);
		break;
	}
}

static void send_bad_read(struct peer *peer, enum bad_read which)
{
	if (which == BAD_DATA_BEFORE_STARTED) {
		peer_send(peer, FRAME_DATA, FRAME_CHANNEL_OUT, 1, "x", 1);
	} else if (which == BAD_GAP_BEFORE_STARTED) {
		job_send_gap(peer, 1, 150);
	} else if (which == BAD_END_BEFORE_STARTED) {
		job_send_end_at(peer, 1, 0);
	} else if (which > BAD_STARTED_TWICE && which < BAD_TOO_MUCH) {
		send_bad_started(peer, which);
	} else {
		job_send_started(peer, 1, &job_running, 100);
		send_bad_rest(peer, which);
	}
}

static void test_wrong_answers_to_a_read_drop_the_channel(void **state)
{
	(void)state;
	for (int which = 0; which < BAD_READ_MAX; which++) {
		struct fixture f;
		struct record record;
		const struct guest_read_spec spec = {.id = "ex_1", .max = 10, .is_followed = true};

		fixture_init(&f, &fixture_patient);
		fixture_start(&f);
		job_begin_read(&f, &spec, &record);
		peer_expect(&f.peer, FRAME_JOB_READ);
		send_bad_read(&f.peer, (enum bad_read)which);
		fixture_wait_down(&f, 1);
		assert_int_equal(record.done, 1);
		assert_int_equal(record.err.kind, ERR_UNAVAILABLE);
		assert_err_says(&f.down_err, "broke the protocol");
		fixture_fini(&f);
	}
}

static void test_frames_that_other_calls_do_not_have_drop_the_channel(void **state)
{
	(void)state;
	for (int which = 0; which < 3; which++) {
		struct fixture f;
		struct record record = {0};
		struct err err;

		fixture_init(&f, &fixture_patient);
		fixture_start(&f);
		if (which == 0) {
			fixture_exec(&f, &record, "x");
			peer_expect(&f.peer, FRAME_EXEC);
			job_send_gap(&f.peer, 1, 5);
		} else {
			assert_non_null(f.driver->ops->signal(
				f.guest, "ex_1", 9, record_done, &record, &err));
			peer_expect(&f.peer, FRAME_SIGNAL);
			peer_send(&f.peer, which == 1 ? FRAME_STARTED : FRAME_DATA,
				which == 1 ? 0 : FRAME_CHANNEL_OUT, 1, "x", 1);
		}
		fixture_wait_down(&f, 1);
		assert_int_equal(record.err.kind, ERR_UNAVAILABLE);
		fixture_fini(&f);
	}
}

static void test_wrong_entries_drop_the_channel(void **state)
{
	(void)state;
	for (int which = 0; which < 6; which++) {
		struct fixture f;
		struct record record;
		struct msg_job job = job_ended;
		uint8_t raw[8] = {0};

		fixture_init(&f, &fixture_patient);
		fixture_start(&f);
		job_begin_list(&f, &record);
		peer_expect(&f.peer, FRAME_JOB_LIST);
		switch (which) {
		case 0:
			job.id[0] = '\0';
			job_send_entries(&f.peer, &job, 1);
			break;
		case 1:
			job.exit_code = 256;
			job_send_entries(&f.peer, &job, 1);
			break;
		case 2: /* more than there can be */
			job_send_entries(&f.peer, &job, 90);
			job_send_entries(&f.peer, &job, 7);
			break;
		case 3: /* longer than the frame */
			put_le32(raw, 9);
			peer_send(&f.peer, FRAME_DATA, FRAME_CHANNEL_OUT, 1, raw, sizeof raw);
			break;
		case 4: /* too short for its own length */
			peer_send(&f.peer, FRAME_DATA, FRAME_CHANNEL_OUT, 1, raw, 3);
			break;
		default: /* no length at all: it would never end */
			peer_send(&f.peer, FRAME_DATA, FRAME_CHANNEL_OUT, 1, raw, sizeof raw);
			break;
		}
		fixture_wait_down(&f, 1);
		assert_int_equal(record.err.kind, ERR_UNAVAILABLE);
		fixture_fini(&f);
	}
}

static void test_a_wait_without_a_possible_exit_drops_the_channel(void **state)
{
	(void)state;
	for (int which = 0; which < 5; which++) {
		struct fixture f;
		struct record record = {0};
		struct guest_exec_hooks hooks = record_exec_hooks;
		struct err err;
		uint8_t body[64];
		struct msg_writer w = {.buf = body, .size = sizeof body};

		fixture_init(&f, &fixture_patient);
		fixture_start(&f);
		hooks.arg = &record;
		assert_non_null(f.driver->ops->job_wait(f.guest, "ex_1", &hooks, &err));
		peer_expect(&f.peer, FRAME_JOB_WAIT);
		msg_put_u32(&w, MSG_STATUS, STATUS_OK);
		if (which == 1) {
			msg_put_u32(&w, MSG_EXIT_CODE, 256);
		} else if (which == 2) {
			msg_put_u32(&w, MSG_EXIT_CODE, 0);
			msg_put_u32(&w, MSG_END_FLAGS, MSG_END_CANCELLED);
		} else if (which > 2) { /* counts that no number of ours holds */
			msg_put_u32(&w, MSG_EXIT_CODE, 0);
			msg_put_u64(&w, MSG_OUT_BYTES, which == 3 ? UINT64_MAX : INT64_MAX);
			msg_put_u64(&w, MSG_ERR_BYTES, 1);
		}
		assert_false(w.overflow);
		peer_send(&f.peer, FRAME_END, 0, 1, body, w.len);
		fixture_wait_down(&f, 1);
		assert_int_equal(record.done, 1);
		assert_false(record.has_result);
		assert_int_equal(record.err.kind, ERR_UNAVAILABLE);
		fixture_fini(&f);
	}
}

static void test_input_said_to_be_taken_before_it_was_sent_drops_the_channel(void **state)
{
	struct fixture f;
	struct record record = {0};
	struct err err;

	(void)state;
	fixture_init(&f, &fixture_patient);
	fixture_start(&f);
	struct pipe *pipe = pipe_new(f.loop, 100);

	assert_non_null(
		f.driver->ops->job_input(f.guest, "ex_1", pipe, true, record_done, &record, &err));
	peer_expect(&f.peer, FRAME_JOB_INPUT);
	peer_send_end(&f.peer, 1, STATUS_OK, NULL);
	fixture_wait_down(&f, 1);
	assert_int_equal(record.err.kind, ERR_UNAVAILABLE);
	pipe_writer_free(pipe);
	fixture_fini(&f);
}

static void test_tails_that_can_not_be_drop_the_channel(void **state)
{
	static const struct {
		uint64_t out_tail;
		uint64_t err_tail;
		unsigned sent; /* of stdout; the cap is 4, a tail 3 */
		bool is_fine;
	} cases[] = {
		{0, 0, 4, true},
		{3, 0, 7, true},
		{2, 0, 6, true},
		{0, 0, 5, false},
		{2, 0, 7, false},
		{4, 0, 7, false},
		{0, 1, 4, false},
		{UINT64_MAX, 0, 4, false},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct fixture f;
		struct record record = {0};
		const struct guest_exec_spec spec = {
			.command = "x", .output_cap = 4, .tail_cap = 3};
		struct guest_exec_hooks hooks = record_exec_hooks;
		struct err err;
		uint8_t body[128];
		struct msg_writer w = {.buf = body, .size = sizeof body};

		fixture_init(&f, &fixture_patient);
		fixture_start(&f);
		hooks.arg = &record;
		assert_non_null(f.driver->ops->exec(f.guest, &spec, &hooks, &err));
		peer_expect(&f.peer, FRAME_EXEC);
		peer_send(&f.peer, FRAME_DATA, FRAME_CHANNEL_OUT, 1, "0123456", cases[i].sent);
		msg_put_u32(&w, MSG_STATUS, STATUS_OK);
		msg_put_u32(&w, MSG_EXIT_CODE, 0);
		msg_put_u64(&w, MSG_OUT_BYTES, 1000);
		msg_put_u64(&w, MSG_OUT_TAIL, cases[i].out_tail);
		msg_put_u64(&w, MSG_ERR_TAIL, cases[i].err_tail);
		peer_send(&f.peer, FRAME_END, 0, 1, body, w.len);
		if (cases[i].is_fine) {
			fixture_wait_done(&f, &record);
			assert_int_equal(record.err.kind, ERR_NONE);
			assert_int_equal(record.result.stdout_tail, cases[i].out_tail);
			assert_true(record.result.truncated);
		} else {
			fixture_wait_down(&f, 1);
			assert_false(record.has_result);
		}
		assert_int_equal(record.done, 1);
		fixture_fini(&f);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_wrong_answers_to_a_read_drop_the_channel),
		cmocka_unit_test(test_frames_that_other_calls_do_not_have_drop_the_channel),
		cmocka_unit_test(test_wrong_entries_drop_the_channel),
		cmocka_unit_test(test_a_wait_without_a_possible_exit_drops_the_channel),
		cmocka_unit_test(test_input_said_to_be_taken_before_it_was_sent_drops_the_channel),
		cmocka_unit_test(test_tails_that_can_not_be_drop_the_channel),
	};

	return cmocka_run_group_tests_name("guest_job_wrong", tests, NULL, NULL);
}
