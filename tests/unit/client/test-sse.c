#include "tests/lib/cm.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/macros.h"
#include "base/xalloc.h"
#include "client/sse.h"

/* What was read, each event as "name|id|data;" with "." for NUL. */
struct record {
	struct buffer text;
	unsigned count;
	unsigned gives_up_at; /* 0: never */
};

static int on_event(void *arg, const struct sse_event *event)
{
	struct record *record = arg;

	buffer_add_text(&record->text, event->name);
	buffer_add_text(&record->text, "|");
	buffer_add_text(&record->text, event->id);
	buffer_add_text(&record->text, "|");
	assert_int_equal(event->data[event->len], '\0');
	for (size_t i = 0; i < event->len; i++) {
		buffer_add(&record->text, event->data[i] ? &event->data[i] : ".", 1);
	}
	buffer_add_text(&record->text, ";");
	return ++record->count == record->gives_up_at ? -1 : 0;
}

/* @piece: bytes at a time, the first piece being @first. From memory of just that size, so that a
 * sanitizer sees a byte too many. */
static void read_in_pieces(
	const char *stream, size_t len, size_t first, size_t piece, const char *expected)
{
	struct record record = {.count = 0};
	_cleanup_sse_ struct sse sse = SSE_INIT(on_event, &record);
	struct err err;

	for (size_t at = 0; at < len;) {
		size_t n = MIN(at == 0 ? first : piece, len - at);
		_cleanup_free_ char *copy = xmemdup(stream + at, n);

		assert_ok(sse_feed(&sse, copy, n, &err), &err);
		at += n;
	}
	const char *got = record.text.len > 0 ? record.text.data : "";

	if (strcmp(got, expected) != 0) {
		fail_msg("\"%s\" in pieces of %zu, %zu: \"%s\", not \"%s\"", stream, first, piece,
			got, expected);
	}
	buffer_fini(&record.text);
}

static void assert_reads(const char *stream, size_t len, const char *expected)
{
	for (size_t first = 1; first <= len; first++) {
		read_in_pieces(stream, len, first, len, expected);
	}
	for (size_t piece = 1; piece < 8; piece++) {
		read_in_pieces(stream, len, piece, piece, expected);
	}
}

#define assert_stream(stream, expected) assert_reads(stream, sizeof(stream) - 1, expected)

static void test_events_come_out_however_the_stream_is_cut(void **state)
{
	(void)state;
	assert_stream("event: start\ndata: {\"id\":\"ex_1\"}\n\nevent: exit\ndata: 1\n\n",
		"start||{\"id\":\"ex_1\"};exit||1;");
	assert_stream("data: ü€😀\n\n", "message||ü€😀;");
}

static void test_lines_end_in_any_of_the_three_ways(void **state)
{
	(void)state;
	assert_stream("event: a\r\ndata: 1\r\n\r\ndata: 2\r\n\r\n", "a||1;message||2;");
	assert_stream("event: a\rdata: 1\r\rdata: 2\r\r", "a||1;message||2;");
	assert_stream("event: a\rdata: 1\ndata: 2\r\n\ndata: 3\r\n\r", "a||1\n2;message||3;");
	assert_stream("data: 1\n\r\ndata: 2\n\r", "message||1;message||2;");
}

static void test_a_cr_ends_an_event_without_waiting_for_more(void **state)
{
	struct record record = {.count = 0};
	_cleanup_sse_ struct sse sse = SSE_INIT(on_event, &record);
	struct err err;

	(void)state;
	assert_ok(sse_feed(&sse, "data: 1\r\n\r", 10, &err), &err);
	assert_int_equal(record.count, 1);
	assert_ok(sse_feed(&sse, "\n", 1, &err), &err);
	assert_ok(sse_feed(&sse, "data: 2\n\n", 9, &err), &err);
	assert_string_equal(record.text.data, "message||1;message||2;");
	buffer_fini(&record.text);
}

static void test_lines_of_data_are_joined(void **state)
{
	(void)state;
	assert_stream(
		"data: a\ndata:b\ndata:  c\ndata\ndata:\ndata: d\n\n", "message||a\nb\n c\n\n\nd;");
	assert_stream("data:\n\n", "message||;");
	assert_stream("data\n\n", "message||;");
	assert_stream("data\ndata\n\n", "message||\n;");
}

static void test_an_id_stays_until_the_next(void **state)
{
	(void)state;
	assert_stream("id: 5\ndata: a\n\ndata: b\n\nid: 77\n\ndata: c\n\nid\ndata: d\n\n",
		"message|5|a;message|5|b;message|77|c;message||d;");
	/* One with a NUL is none. */
	assert_stream("id: 5\ndata: a\n\nid: 6\0\ndata: b\n\n", "message|5|a;message|5|b;");
}

static void test_what_is_no_event_is_skipped(void **state)
{
	(void)state;
	assert_stream(": heartbeat\n\n:\n\ndata: a\n: comment\ndata: b\n\n", "message||a\nb;");
	assert_stream("event: lonely\n\ndata: a\n\n", "message||a;");
	assert_stream(
		"retry: 10\nnonsense\nDATA: x\ndata : y\n data: z\n\ndata: a\n\n", "message||a;");
	assert_stream("\n\n\r\n\r\r", "");
	assert_stream("", "");
}

static void test_an_event_without_its_empty_line_never_happened(void **state)
{
	(void)state;
	assert_stream("data: a\n\nevent: exit\ndata: {\"exit_code\":0}\n", "message||a;");
	assert_stream("data: a\n\nevent: exit\ndata: {\"exit_code\":0}", "message||a;");
}

static void test_a_byte_order_mark_is_skipped_once(void **state)
{
	(void)state;
	assert_stream("\xef\xbb\xbf"
		      "data: a\n\n",
		"message||a;");
	assert_stream("\xef\xbb\xbf\n\xef\xbb\xbf"
		      "data: a\ndata: b\n\n",
		"message||b;");
	assert_stream("data: \xef\xbb\xbf\n\n", "message||\xef\xbb\xbf;");
}

static void test_bytes_that_are_no_text_pass(void **state)
{
	(void)state;
	assert_stream("data: a\0b\xff\n\n", "message||a.b\xff;");
}

static void test_an_event_has_its_limit(void **state)
{
	static const char line[] = "data: 0123456789012345678901234567890123456789\n";
	size_t len = sizeof line - 1;

	(void)state;
	for (unsigned ends_lines = 0; ends_lines < 2; ends_lines++) {
		struct record record = {.count = 0};
		_cleanup_sse_ struct sse sse = SSE_INIT(on_event, &record);
		struct err err = ERR_INIT;
		size_t fed = 0;

		while (sse_feed(&sse, line, len - 1 + ends_lines, &err) == 0) {
			fed += len;
			assert_true(fed < 2 * SSE_EVENT_MAX_BYTES);
		}
		assert_int_equal(err.kind, ERR_TOO_LARGE);
		assert_true(fed > SSE_EVENT_MAX_BYTES - len);
		assert_int_equal(record.count, 0);
	}
}

static void test_an_event_just_below_the_limit_passes(void **state)
{
	size_t len = SSE_EVENT_MAX_BYTES;
	_cleanup_free_ char *stream = xcalloc(1, len + 2);
	struct record record = {.count = 0};
	_cleanup_sse_ struct sse sse = SSE_INIT(on_event, &record);
	struct err err;

	(void)state;
	memset(stream, 'x', len);
	memcpy(stream, "data:", 5);
	stream[len] = stream[len + 1] = '\n';
	assert_ok(sse_feed(&sse, stream, len + 2, &err), &err);
	assert_int_equal(record.count, 1);
	/* What went before doesn't count for the next one. */
	assert_ok(sse_feed(&sse, stream, len + 2, &err), &err);
	assert_int_equal(record.count, 2);
	assert_err(sse_feed(&sse, "data: 1\ndata: ", 14, &err) || sse_feed(&sse, stream, len, &err),
		&err, ERR_TOO_LARGE);
	buffer_fini(&record.text);
}

static void test_a_reader_may_give_up(void **state)
{
	struct record record = {.gives_up_at = 2};
	_cleanup_sse_ struct sse sse = SSE_INIT(on_event, &record);
	struct err err;

	(void)state;
	assert_err(
		sse_feed(&sse, "data: 1\n\ndata: 2\n\ndata: 3\n\n", 27, &err), &err, ERR_CANCELLED);
	assert_int_equal(record.count, 2);
	buffer_fini(&record.text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_events_come_out_however_the_stream_is_cut),
		cmocka_unit_test(test_lines_end_in_any_of_the_three_ways),
		cmocka_unit_test(test_a_cr_ends_an_event_without_waiting_for_more),
		cmocka_unit_test(test_lines_of_data_are_joined),
		cmocka_unit_test(test_an_id_stays_until_the_next),
		cmocka_unit_test(test_what_is_no_event_is_skipped),
		cmocka_unit_test(test_an_event_without_its_empty_line_never_happened),
		cmocka_unit_test(test_a_byte_order_mark_is_skipped_once),
		cmocka_unit_test(test_bytes_that_are_no_text_pass),
		cmocka_unit_test(test_an_event_has_its_limit),
		cmocka_unit_test(test_an_event_just_below_the_limit_passes),
		cmocka_unit_test(test_a_reader_may_give_up),
	};

	return cmocka_run_group_tests_name("event stream", tests, NULL, NULL);
}
