#include "tests/lib/cm.h"

#include "base/xalloc.h"
#include "mux_rig.h"

/* What the mux puts on the wire, in which order, and how much it lets wait. */

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
	assert_int_equal(err.kind, ERR_RATE);
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
		cmocka_unit_test(test_cancel_before_the_first_frame_leaves_no_trace),
		cmocka_unit_test(test_cancel_waits_for_the_rest_of_the_request_and_ends_input),
		cmocka_unit_test(test_streams_are_capped_with_a_reserve),
		cmocka_unit_test(test_numbers_never_start_over),
		cmocka_unit_test(test_requests_that_wait_are_capped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
