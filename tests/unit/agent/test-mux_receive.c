#include "tests/lib/cm.h"

#include "mux_rig.h"

/* What the mux makes of the frames of a guest. */

static void test_output_is_taken_up_to_the_window_and_not_beyond(void **state)
{
	struct mux mux;
	struct mux_event event;

	(void)state;
	mux_init(&mux);
	open_call(&mux, FRAME_EXEC, 1, &owner);
	expect(&mux, FRAME_EXEC, 1);
	for (unsigned i = 0; i < PROTO_WINDOW_INITIAL_BYTES / PROTO_PAYLOAD_MAX_BYTES; i++) {
		assert_int_equal(give(&mux, FRAME_DATA, FRAME_CHANNEL_OUT, 1,
					 PROTO_PAYLOAD_MAX_BYTES, &event),
			0);
		assert_int_equal(event.kind, MUX_DATA);
		assert_int_equal(event.channel, FRAME_CHANNEL_OUT);
		assert_ptr_equal(event.owner, &owner);
	}
	/* ERR has a window of its own. */
	assert_int_equal(give(&mux, FRAME_DATA, FRAME_CHANNEL_ERR, 1, 1, &event), 0);
	assert_int_equal(give(&mux, FRAME_DATA, FRAME_CHANNEL_OUT, 1, 1, &event), -1);
	mux_reset(&mux);
}

static void test_credit_is_given_back_in_steps(void **state)
{
	struct mux mux;
	struct mux_event event;

	(void)state;
	mux_init(&mux);
	struct mux_stream *exec = open_call(&mux, FRAME_EXEC, 1, &owner);

	expect(&mux, FRAME_EXEC, 1);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(give(&mux, FRAME_DATA, FRAME_CHANNEL_OUT, 1,
					 PROTO_PAYLOAD_MAX_BYTES, &event),
			0);
	}
	mux_consume(&mux, exec, FRAME_CHANNEL_OUT, PROTO_WINDOW_INITIAL_BYTES / 2 - 1);
	expect(&mux, 0, 0);
	mux_consume(&mux, exec, FRAME_CHANNEL_OUT, 1);
	struct frame frame = next(&mux);

	assert_int_equal(frame.type, FRAME_WINDOW);
	assert_int_equal(frame.flags, FRAME_CHANNEL_OUT);
	assert_int_equal(get_le32(frame.payload), PROTO_WINDOW_INITIAL_BYTES / 2);
	/* Exactly so much, and no more. */
	assert_int_equal(
		give(&mux, FRAME_DATA, FRAME_CHANNEL_OUT, 1, PROTO_PAYLOAD_MAX_BYTES, &event), 0);
	assert_int_equal(
		give(&mux, FRAME_DATA, FRAME_CHANNEL_OUT, 1, PROTO_PAYLOAD_MAX_BYTES, &event), 0);
	assert_int_equal(give(&mux, FRAME_DATA, FRAME_CHANNEL_OUT, 1, 1, &event), -1);
	mux_reset(&mux);
}

static void test_wrong_frames_are_violations(void **state)
{
	static const struct {
		const char *what;
		uint16_t call;
		uint16_t type;
		uint16_t flags;
		uint32_t stream;
		size_t len;
	} cases[] = {
		{"a stream never opened", FRAME_EXEC, FRAME_DATA, FRAME_CHANNEL_OUT, 2, 1},
		{"END of a stream never opened", FRAME_EXEC, FRAME_END, 0, 9, 0},
		{"stderr of a file", FRAME_FILE_GET, FRAME_DATA, FRAME_CHANNEL_ERR, 1, 1},
		{"output of an upload", FRAME_FILE_PUT, FRAME_DATA, FRAME_CHANNEL_OUT, 1, 1},
		{"output of configure", FRAME_CONFIGURE, FRAME_DATA, FRAME_CHANNEL_OUT, 1, 1},
		{"CLOSE of stderr of a list", FRAME_FILE_LIST, FRAME_CLOSE, FRAME_CHANNEL_ERR, 1,
			0},
		{"STARTED of an upload", FRAME_FILE_PUT, FRAME_STARTED, 0, 1, 0},
		{"STARTED of a list", FRAME_FILE_LIST, FRAME_STARTED, 0, 1, 0},
		{"STARTED of a job's start", FRAME_JOB_START, FRAME_STARTED, 0, 1, 0},
		{"output of a signal", FRAME_SIGNAL, FRAME_DATA, FRAME_CHANNEL_OUT, 1, 1},
		{"output of waiting for a job", FRAME_JOB_WAIT, FRAME_DATA, FRAME_CHANNEL_OUT, 1,
			1},
		{"stderr of a list of jobs", FRAME_JOB_LIST, FRAME_DATA, FRAME_CHANNEL_ERR, 1, 1},
		{"a gap before the start", FRAME_JOB_READ, FRAME_GAP, 0, 1, 8},
		{"a gap in a command's output", FRAME_EXEC, FRAME_GAP, 0, 1, 8},
		{"CANCEL from the guest", FRAME_EXEC, FRAME_CANCEL, 0, 1, 0},
		{"a call from the guest", FRAME_EXEC, FRAME_EXEC, 0, 1, 0},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct source s = {.left = 1, .available = 1};
		struct mux mux;
		struct mux_event event;

		mux_init(&mux);
		open_call(&mux, cases[i].call, 1, &s);
		expect(&mux, cases[i].call, 1);
		if (give(&mux, cases[i].type, cases[i].flags, cases[i].stream, cases[i].len,
			    &event) == 0) {
			fail_msg("%s passes", cases[i].what);
		}
		mux_reset(&mux);
	}
}

static void test_second_start_and_data_after_close_are_violations(void **state)
{
	struct mux mux;
	struct mux_event event;

	(void)state;
	mux_init(&mux);
	open_call(&mux, FRAME_EXEC, 1, &owner);
	expect(&mux, FRAME_EXEC, 1);
	assert_int_equal(give(&mux, FRAME_STARTED, 0, 1, 0, &event), 0);
	assert_int_equal(event.kind, MUX_STARTED);
	assert_int_equal(give(&mux, FRAME_STARTED, 0, 1, 0, &event), -1);
	assert_int_equal(give(&mux, FRAME_CLOSE, FRAME_CHANNEL_OUT, 1, 0, &event), 0);
	assert_int_equal(event.kind, MUX_CLOSE);
	assert_int_equal(give(&mux, FRAME_DATA, FRAME_CHANNEL_OUT, 1, 1, &event), -1);
	assert_int_equal(give(&mux, FRAME_CLOSE, FRAME_CHANNEL_OUT, 1, 0, &event), -1);
	mux_reset(&mux);
}

static void test_frames_of_an_ended_stream_are_ignored(void **state)
{
	struct mux mux;
	struct mux_event event;

	(void)state;
	mux_init(&mux);
	open_call(&mux, FRAME_EXEC, 1, &owner);
	expect(&mux, FRAME_EXEC, 1);
	assert_int_equal(give(&mux, FRAME_END, 0, 1, 0, &event), 0);
	assert_int_equal(event.kind, MUX_END);
	assert_ptr_equal(event.owner, &owner);
	assert_int_equal(mux.count, 0);
	assert_int_equal(give(&mux, FRAME_DATA, FRAME_CHANNEL_OUT, 1, 1, &event), 0);
	assert_int_equal(event.kind, MUX_NOTHING);
	assert_int_equal(give(&mux, FRAME_END, 0, 1, 0, &event), 0);
	assert_int_equal(event.kind, MUX_NOTHING);
	mux_reset(&mux);
}

static void test_end_before_the_request_is_whole_stops_it(void **state)
{
	struct mux mux;
	struct mux_event event;

	(void)state;
	mux_init(&mux);
	open_call(&mux, FRAME_EXEC, PROTO_REQUEST_MAX_BYTES, &owner);
	expect(&mux, FRAME_EXEC, 1);
	assert_int_equal(give(&mux, FRAME_END, 0, 1, 0, &event), 0);
	assert_int_equal(event.kind, MUX_END);
	/* The next one in parts isn't held up by it. */
	open_call(&mux, FRAME_EXEC, PROTO_REQUEST_MAX_BYTES, &owner);
	expect(&mux, FRAME_EXEC, 2);
	mux_reset(&mux);
}

static void test_abandoned_stream_drains_until_end(void **state)
{
	struct mux mux;
	struct mux_event event;

	(void)state;
	mux_init(&mux);
	struct mux_stream *exec = open_call(&mux, FRAME_EXEC, 1, &owner);

	expect(&mux, FRAME_EXEC, 1);
	for (int i = 0; i < 4; i++) {
		give(&mux, FRAME_DATA, FRAME_CHANNEL_OUT, 1, PROTO_PAYLOAD_MAX_BYTES, &event);
	}
	mux_abandon(&mux, exec);
	assert_int_equal(mux.orphans, 1);
	expect(&mux, FRAME_CANCEL, 1);
	/* The guest gets its credit back, or it might never come to the end. */
	expect(&mux, FRAME_WINDOW, 1);
	for (int i = 0; i < 100; i++) {
		assert_int_equal(give(&mux, FRAME_DATA, FRAME_CHANNEL_OUT, 1,
					 PROTO_PAYLOAD_MAX_BYTES, &event),
			0);
		assert_int_equal(event.kind, MUX_NOTHING);
		while (next(&mux).type) {
		}
	}
	assert_int_equal(give(&mux, FRAME_END, 0, 1, 0, &event), 0);
	assert_int_equal(event.kind, MUX_NOTHING);
	assert_int_equal(mux.orphans, 0);
	assert_int_equal(mux.count, 0);
	mux_reset(&mux);
}

static void test_gaps_come_between_the_outputs_of_a_job(void **state)
{
	struct mux mux;
	struct mux_event event;

	(void)state;
	mux_init(&mux);
	open_call(&mux, FRAME_JOB_READ, 1, &owner);
	expect(&mux, FRAME_JOB_READ, 1);
	assert_int_equal(give(&mux, FRAME_STARTED, 0, 1, 0, &event), 0);
	assert_int_equal(give(&mux, FRAME_DATA, FRAME_CHANNEL_OUT, 1, 1, &event), 0);
	assert_int_equal(give(&mux, FRAME_GAP, 0, 1, 8, &event), 0);
	assert_int_equal(event.kind, MUX_GAP);
	assert_ptr_equal(event.owner, &owner);
	assert_int_equal(event.len, 8);
	assert_int_equal(give(&mux, FRAME_DATA, FRAME_CHANNEL_ERR, 1, 1, &event), 0);
	mux_reset(&mux);
}

static void test_gaps_cost_credit(void **state)
{
	struct mux mux;
	struct mux_event event;

	(void)state;
	mux_init(&mux);
	struct mux_stream *stream = open_call(&mux, FRAME_JOB_READ, 1, &owner);
	const unsigned most = PROTO_WINDOW_INITIAL_BYTES / PROTO_GAP_BYTES;

	expect(&mux, FRAME_JOB_READ, 1);
	assert_int_equal(give(&mux, FRAME_STARTED, 0, 1, 0, &event), 0);
	for (unsigned i = 0; i < most; i++) {
		assert_int_equal(give(&mux, FRAME_GAP, 0, 1, 8, &event), 0);
	}
	mux_consume(&mux, stream, FRAME_CHANNEL_OUT, PROTO_WINDOW_INITIAL_BYTES);
	expect(&mux, FRAME_WINDOW, 1);
	for (unsigned i = 0; i < most; i++) {
		assert_int_equal(give(&mux, FRAME_GAP, 0, 1, 8, &event), 0);
	}
	assert_int_equal(give(&mux, FRAME_GAP, 0, 1, 8, &event), -1);
	mux_reset(&mux);
}

static void test_gaps_of_an_orphan_are_paid_back(void **state)
{
	struct mux mux;
	struct mux_event event;

	(void)state;
	mux_init(&mux);
	struct mux_stream *stream = open_call(&mux, FRAME_JOB_READ, 1, &owner);

	expect(&mux, FRAME_JOB_READ, 1);
	assert_int_equal(give(&mux, FRAME_STARTED, 0, 1, 0, &event), 0);
	mux_abandon(&mux, stream);
	for (unsigned i = 0; i < 2 * PROTO_WINDOW_INITIAL_BYTES / PROTO_GAP_BYTES; i++) {
		assert_int_equal(give(&mux, FRAME_GAP, 0, 1, 8, &event), 0);
		assert_int_equal(event.kind, MUX_NOTHING);
		while (next(&mux).type) {
		}
	}
	mux_reset(&mux);
}

static void test_random_frames_keep_the_books(void **state)
{
	static const uint16_t types[] = {
		FRAME_DATA, FRAME_CLOSE, FRAME_WINDOW, FRAME_STARTED, FRAME_GAP, FRAME_END};
	struct source s = {.left = SIZE_MAX, .available = SIZE_MAX};
	struct mux mux;
	uint64_t seed = 7;

	(void)state;
	mux_init(&mux);
	for (int i = 0; i < 200000; i++) {
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		unsigned r = (unsigned)(seed >> 33);
		struct mux_event event;
		struct err err;

		if (r % 5 == 0 && mux.count < 20) {
			static const uint16_t calls[] = {
				FRAME_EXEC, FRAME_FILE_PUT, FRAME_JOB_READ, FRAME_FILE_PUT};

			open_call(&mux, calls[(r >> 2) % ARRAY_SIZE(calls)], r % 100, &s);
		}
		while (next(&mux).type && r % 3) {
		}
		uint8_t raw[4] = {(uint8_t)r, (uint8_t)(r >> 8), 0, 0};
		struct frame frame = {.type = types[(r >> 3) % ARRAY_SIZE(types)],
			.flags = (uint16_t)(1 + (r >> 6) % 2),
			.stream = mux.last_id - (r >> 8) % 8 * (mux.last_id > 8),
			.length = 4,
			.payload = raw};

		if (mux_input(&mux, &frame, &event, &err) < 0) {
			mux_reset(&mux);
		}
		assert_true(mux.count <= PROTO_STREAMS_MAX);
	}
	mux_reset(&mux);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_output_is_taken_up_to_the_window_and_not_beyond),
		cmocka_unit_test(test_credit_is_given_back_in_steps),
		cmocka_unit_test(test_wrong_frames_are_violations),
		cmocka_unit_test(test_second_start_and_data_after_close_are_violations),
		cmocka_unit_test(test_frames_of_an_ended_stream_are_ignored),
		cmocka_unit_test(test_end_before_the_request_is_whole_stops_it),
		cmocka_unit_test(test_abandoned_stream_drains_until_end),
		cmocka_unit_test(test_gaps_come_between_the_outputs_of_a_job),
		cmocka_unit_test(test_gaps_cost_credit),
		cmocka_unit_test(test_gaps_of_an_orphan_are_paid_back),
		cmocka_unit_test(test_random_frames_keep_the_books),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
