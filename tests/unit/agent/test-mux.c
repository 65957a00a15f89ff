#include "tests/lib/cm.h"

#include <stdlib.h>
#include <string.h>

#include "agent/mux.h"
#include "base/xalloc.h"

/* Frames in, events out; and what mux_write() puts on the wire, in which order. */

static uint8_t wire[MUX_FRAME_MAX_BYTES];

/* A source of input: @left bytes, of which @available may be had now. */
struct source {
	size_t left;
	size_t available;
	bool is_open; /* more will come */
};

static size_t pull(void *owner, uint8_t *out, size_t max, bool *ret_is_end)
{
	struct source *s = owner;
	size_t ready = MIN(s->left, s->available);
	size_t n = MIN(max, ready);

	memset(out, 'x', n);
	s->left -= n;
	s->available -= n;
	*ret_is_end = s->left == 0 && !s->is_open;
	return n;
}

static struct mux_stream *open_call(struct mux *mux, uint16_t type, size_t len, void *owner)
{
	struct err err;
	struct mux_request request = {
		.type = type,
		.body = xcalloc(1, len),
		.len = len,
		.pull = type == FRAME_FILE_PUT ? pull : NULL,
	};
	struct mux_stream *stream = mux_open(mux, &request, owner, &err);

	assert_non_null(stream);
	return stream;
}

/* The next frame the host writes, as the guest parses it; type 0: none. */
static struct frame next(struct mux *mux)
{
	struct frame frame = {0};
	size_t used;
	size_t n = mux_write(mux, wire);

	if (n > 0) {
		assert_int_equal(frame_parse(FRAME_SIDE_HOST, wire, n, &frame, &used), FRAME_OK);
		assert_int_equal(used, n);
	}
	return frame;
}

static void expect(struct mux *mux, uint16_t type, uint32_t stream)
{
	struct frame frame = next(mux);

	assert_int_equal(frame.type, type);
	assert_int_equal(frame.stream, stream);
}

static int give(struct mux *mux, uint16_t type, uint16_t flags, uint32_t stream, size_t len,
	struct mux_event *ret)
{
	static uint8_t zeros[PROTO_PAYLOAD_MAX_BYTES];
	struct err err = ERR_INIT;
	struct frame frame = {.type = type,
		.flags = flags,
		.stream = stream,
		.length = (uint32_t)len,
		.payload = zeros};
	int r = mux_input(mux, &frame, ret, &err);

	assert_int_equal(err.kind, r < 0 ? ERR_UNAVAILABLE : ERR_NONE);
	return r;
}

static int grant(struct mux *mux, uint32_t stream, uint32_t credit)
{
	uint8_t raw[4];
	struct mux_event event;
	struct err err = ERR_INIT;
	struct frame frame = {.type = FRAME_WINDOW, .stream = stream, .length = 4, .payload = raw};

	put_le32(raw, credit);
	return mux_input(mux, &frame, &event, &err);
}

static int owner; /* something to point to */

static void test_streams_are_numbered_in_the_order_on_the_wire(void **state)
{
	struct mux mux;

	(void)state;
	mux_init(&mux);
	/* A request of many frames is opened first, but the small ones overtake it. */
	open_call(&mux, FRAME_CONFIGURE, 3 * PROTO_PAYLOAD_MAX_BYTES, &owner);
	open_call(&mux, FRAME_EXEC, 10, &owner);
	open_call(&mux, FRAME_EXEC, 0, &owner);
	expect(&mux, FRAME_EXEC, 1);
	expect(&mux, FRAME_EXEC, 2);
	struct frame frame = next(&mux);

	assert_int_equal(frame.type, FRAME_CONFIGURE);
	assert_int_equal(frame.stream, 3);
	assert_int_equal(frame.flags, FRAME_MORE);
	assert_int_equal(frame.length, PROTO_PAYLOAD_MAX_BYTES);
	open_call(&mux, FRAME_EXEC, 1, &owner);
	expect(&mux, FRAME_EXEC, 4);
	expect(&mux, FRAME_CONFIGURE, 3);
	frame = next(&mux);
	assert_int_equal(frame.type, FRAME_CONFIGURE);
	assert_int_equal(frame.flags, 0);
	assert_false(mux_has_output(&mux));
	expect(&mux, 0, 0);
	mux_reset(&mux);
}

static void test_one_request_in_parts_at_a_time(void **state)
{
	struct mux mux;

	(void)state;
	mux_init(&mux);
	open_call(&mux, FRAME_EXEC, PROTO_PAYLOAD_MAX_BYTES + 1, &owner);
	open_call(&mux, FRAME_EXEC, PROTO_REQUEST_MAX_BYTES, &owner);
	expect(&mux, FRAME_EXEC, 1);
	expect(&mux, FRAME_EXEC, 1);
	for (unsigned i = 0; i < PROTO_REQUEST_MAX_BYTES / PROTO_PAYLOAD_MAX_BYTES; i++) {
		expect(&mux, FRAME_EXEC, 2);
	}
	expect(&mux, 0, 0);
	mux_reset(&mux);
}

static void test_bulk_streams_take_turns_and_small_frames_go_first(void **state)
{
	struct source a = {.left = SIZE_MAX, .available = SIZE_MAX};
	struct source b = a;
	struct mux mux;

	(void)state;
	mux_init(&mux);
	open_call(&mux, FRAME_FILE_PUT, 1, &a);
	open_call(&mux, FRAME_FILE_PUT, 1, &b);
	expect(&mux, FRAME_FILE_PUT, 1);
	expect(&mux, FRAME_FILE_PUT, 2);
	expect(&mux, FRAME_DATA, 1);
	expect(&mux, FRAME_DATA, 2);
	expect(&mux, FRAME_DATA, 1);
	struct mux_stream *exec = open_call(&mux, FRAME_EXEC, 1, &owner);

	expect(&mux, FRAME_EXEC, 3);
	expect(&mux, FRAME_DATA, 2);
	assert_false(mux_cancel(&mux, exec));
	expect(&mux, FRAME_CANCEL, 3);
	expect(&mux, FRAME_DATA, 1);
	expect(&mux, FRAME_DATA, 2);
	mux_reset(&mux);
}

static void test_input_stops_at_the_window_to_the_byte(void **state)
{
	struct source s = {.left = SIZE_MAX, .available = SIZE_MAX};
	struct mux mux;
	size_t sent = 0;

	(void)state;
	mux_init(&mux);
	open_call(&mux, FRAME_FILE_PUT, 1, &s);
	expect(&mux, FRAME_FILE_PUT, 1);
	for (struct frame f = next(&mux); f.type; f = next(&mux)) {
		assert_int_equal(f.type, FRAME_DATA);
		sent += f.length;
	}
	assert_int_equal(sent, PROTO_WINDOW_INITIAL_BYTES);
	assert_false(mux_has_output(&mux));
	assert_int_equal(grant(&mux, 1, 5), 0);
	struct frame frame = next(&mux);

	assert_int_equal(frame.length, 5);
	expect(&mux, 0, 0);
	/* The most a window may hold, and one more. */
	assert_int_equal(grant(&mux, 1, PROTO_WINDOW_MAX_BYTES), 0);
	assert_int_equal(grant(&mux, 1, 1), -1);
	mux_reset(&mux);
}

static void test_close_follows_the_last_byte_even_without_credit(void **state)
{
	struct source s = {.left = PROTO_WINDOW_INITIAL_BYTES, .available = SIZE_MAX};
	struct mux mux;

	(void)state;
	s.is_open = true;
	mux_init(&mux);
	struct mux_stream *put = open_call(&mux, FRAME_FILE_PUT, 1, &s);

	expect(&mux, FRAME_FILE_PUT, 1);
	for (unsigned i = 0; i < PROTO_WINDOW_INITIAL_BYTES / PROTO_PAYLOAD_MAX_BYTES; i++) {
		expect(&mux, FRAME_DATA, 1);
	}
	expect(&mux, 0, 0);
	s.is_open = false;
	mux_poke(&mux, put);
	expect(&mux, FRAME_CLOSE, 1);
	expect(&mux, 0, 0);
	/* No input after the end. */
	mux_poke(&mux, put);
	assert_int_equal(grant(&mux, 1, 100), 0);
	expect(&mux, 0, 0);
	mux_reset(&mux);
}

static void test_empty_input_is_a_close(void **state)
{
	struct source s = {0};
	struct mux mux;

	(void)state;
	mux_init(&mux);
	open_call(&mux, FRAME_FILE_PUT, 1, &s);
	expect(&mux, FRAME_FILE_PUT, 1);
	expect(&mux, FRAME_CLOSE, 1);
	expect(&mux, 0, 0);
	mux_reset(&mux);
}

static void test_dry_source_waits_to_be_poked(void **state)
{
	struct source s = {.left = 100, .available = 0};
	struct mux mux;

	(void)state;
	mux_init(&mux);
	struct mux_stream *put = open_call(&mux, FRAME_FILE_PUT, 1, &s);

	expect(&mux, FRAME_FILE_PUT, 1);
	expect(&mux, 0, 0);
	assert_false(mux_has_output(&mux));
	s.available = 60;
	mux_poke(&mux, put);
	struct frame frame = next(&mux);

	assert_int_equal(frame.length, 60);
	expect(&mux, 0, 0);
	s.available = 60;
	mux_poke(&mux, put);
	frame = next(&mux);
	assert_int_equal(frame.length, 40);
	expect(&mux, FRAME_CLOSE, 1);
	mux_reset(&mux);
}

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

static void test_cancel_before_the_first_frame_leaves_no_trace(void **state)
{
	struct mux mux;

	(void)state;
	mux_init(&mux);
	struct mux_stream *first = open_call(&mux, FRAME_EXEC, 1, &owner);

	open_call(&mux, FRAME_EXEC, 2, &owner);
	assert_true(mux_cancel(&mux, first));
	assert_int_equal(mux.count, 1);
	struct frame frame = next(&mux);

	assert_int_equal(frame.stream, 1);
	assert_int_equal(frame.length, 2);
	mux_reset(&mux);
}

static void test_cancel_waits_for_the_rest_of_the_request_and_ends_input(void **state)
{
	struct source s = {.left = SIZE_MAX, .available = SIZE_MAX};
	struct mux mux;
	struct mux_event event;

	(void)state;
	mux_init(&mux);
	struct mux_stream *put = open_call(&mux, FRAME_FILE_PUT, PROTO_PAYLOAD_MAX_BYTES + 1, &s);

	expect(&mux, FRAME_FILE_PUT, 1);
	assert_false(mux_cancel(&mux, put));
	expect(&mux, FRAME_FILE_PUT, 1);
	expect(&mux, FRAME_CANCEL, 1);
	expect(&mux, 0, 0);
	assert_int_equal(grant(&mux, 1, 100), 0);
	expect(&mux, 0, 0);
	assert_int_equal(give(&mux, FRAME_END, 0, 1, 0, &event), 0);
	assert_ptr_equal(event.owner, &s);
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

static void test_streams_are_capped_with_a_reserve(void **state)
{
	struct mux mux;
	struct err err;
	struct mux_request request = {.type = FRAME_EXEC};
	unsigned n = 0;

	(void)state;
	mux_init(&mux);
	while (mux_open(&mux, &request, &owner, &err)) {
		n++;
	}
	assert_int_equal(n, PROTO_STREAMS_MAX - MUX_STREAMS_RESERVED);
	assert_int_equal(err.kind, ERR_UNAVAILABLE);
	request = (struct mux_request){.type = FRAME_SHUTDOWN, .is_reserved = true};
	while (mux_open(&mux, &request, &owner, &err)) {
		n++;
	}
	assert_int_equal(n, PROTO_STREAMS_MAX);
	mux_reset(&mux);
	/* A new session starts from 1. */
	open_call(&mux, FRAME_EXEC, 1, &owner);
	expect(&mux, FRAME_EXEC, 1);
	mux_reset(&mux);
}

static void test_numbers_never_start_over(void **state)
{
	struct mux_request request = {.type = FRAME_EXEC};
	struct mux mux;
	struct err err;

	(void)state;
	mux_init(&mux);
	mux.last_id = UINT32_MAX - 3;
	for (unsigned i = 0; i < 3; i++) {
		assert_non_null(mux_open(&mux, &request, &owner, &err));
	}
	assert_null(mux_open(&mux, &request, &owner, &err));
	assert_int_equal(err.kind, ERR_UNAVAILABLE);
	for (unsigned i = 0; i < 3; i++) {
		expect(&mux, FRAME_EXEC, UINT32_MAX - 2 + i);
	}
	assert_null(mux_open(&mux, &request, &owner, &err));
	mux_reset(&mux);
}

static void test_requests_that_wait_are_capped(void **state)
{
	struct mux mux;
	struct err err;
	struct mux_request request = {.type = FRAME_EXEC};
	unsigned n = 0;

	(void)state;
	mux_init(&mux);
	for (;; n++) {
		request.len = PROTO_REQUEST_MAX_BYTES;
		request.body = xcalloc(1, request.len);
		if (!mux_open(&mux, &request, &owner, &err)) {
			break;
		}
	}
	assert_int_equal(n, MUX_WAITING_MAX_BYTES / PROTO_REQUEST_MAX_BYTES);
	assert_int_equal(err.kind, ERR_UNAVAILABLE);
	/* Not for the calls that manage the guest. */
	request.is_reserved = true;
	assert_non_null(mux_open(&mux, &request, &owner, &err));
	while (next(&mux).type) {
	}
	assert_int_equal(mux.waiting, 0);
	open_call(&mux, FRAME_EXEC, 1, &owner);
	mux_reset(&mux);
}

static void test_random_frames_keep_the_books(void **state)
{
	static const uint16_t types[] = {
		FRAME_DATA, FRAME_CLOSE, FRAME_WINDOW, FRAME_STARTED, FRAME_END};
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
			open_call(&mux, r % 2 ? FRAME_EXEC : FRAME_FILE_PUT, r % 100, &s);
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
		cmocka_unit_test(test_streams_are_numbered_in_the_order_on_the_wire),
		cmocka_unit_test(test_one_request_in_parts_at_a_time),
		cmocka_unit_test(test_bulk_streams_take_turns_and_small_frames_go_first),
		cmocka_unit_test(test_input_stops_at_the_window_to_the_byte),
		cmocka_unit_test(test_close_follows_the_last_byte_even_without_credit),
		cmocka_unit_test(test_empty_input_is_a_close),
		cmocka_unit_test(test_dry_source_waits_to_be_poked),
		cmocka_unit_test(test_output_is_taken_up_to_the_window_and_not_beyond),
		cmocka_unit_test(test_credit_is_given_back_in_steps),
		cmocka_unit_test(test_wrong_frames_are_violations),
		cmocka_unit_test(test_second_start_and_data_after_close_are_violations),
		cmocka_unit_test(test_frames_of_an_ended_stream_are_ignored),
		cmocka_unit_test(test_end_before_the_request_is_whole_stops_it),
		cmocka_unit_test(test_cancel_before_the_first_frame_leaves_no_trace),
		cmocka_unit_test(test_cancel_waits_for_the_rest_of_the_request_and_ends_input),
		cmocka_unit_test(test_abandoned_stream_drains_until_end),
		cmocka_unit_test(test_streams_are_capped_with_a_reserve),
		cmocka_unit_test(test_numbers_never_start_over),
		cmocka_unit_test(test_requests_that_wait_are_capped),
		cmocka_unit_test(test_random_frames_keep_the_books),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
