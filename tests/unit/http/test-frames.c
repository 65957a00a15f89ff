#include "tests/lib/cm.h"

#include <event2/buffer.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/macros.h"
#include "base/xalloc.h"
#include "http/frames.h"

/*
 * Conversations as bytes: what a client sends, and what comes of it. A frame is written as
 * "HEAD payload" with the head's two bytes and the mask's four given, so that the wrong ones can be
 * written too.
 */

#define MESSAGE_MAX 1000
#define OUT_MAX     1000

static struct evbuffer *in;
static struct evbuffer *out;
static struct http_frames *frames;
static struct http_frames_message message;

static int set_up(void **state)
{
	(void)state;
	in = evbuffer_new();
	out = evbuffer_new();
	frames = http_frames_new(in, out, MESSAGE_MAX);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	http_frames_free(frames);
	evbuffer_free(in);
	evbuffer_free(out);
	return 0;
}

static enum http_frames_event next(void)
{
	return http_frames_next(frames, OUT_MAX, &message);
}

/* ---- a client's frames ---- */

#define FIN    0x80u
#define TEXT   0x1u
#define BINARY 0x2u
#define CLOSE  0x8u
#define PING   0x9u
#define PONG   0xau

/* @first: FIN, reserved bits, kind. */
static void add_frame(unsigned first, const void *payload, size_t len)
{
	static const unsigned char mask[4] = {0x12, 0x34, 0x56, 0x78};
	unsigned char head[4] = {(unsigned char)first};
	size_t head_len = 2;
	_cleanup_free_ unsigned char *masked = xcalloc(len + 1, 1);

	if (len < 126) {
		head[1] = (unsigned char)(0x80 | len);
	} else {
		head[1] = 0x80 | 126;
		head[2] = (unsigned char)(len >> 8);
		head[3] = (unsigned char)len;
		head_len = 4;
	}
	for (size_t i = 0; i < len; i++) {
		masked[i] = ((const unsigned char *)payload)[i] ^ mask[i % 4];
	}
	evbuffer_add(in, head, head_len);
	evbuffer_add(in, mask, sizeof mask);
	evbuffer_add(in, masked, len);
}

static void expect_message(bool is_text, const char *text, size_t len)
{
	assert_int_equal(next(), HTTP_FRAMES_MESSAGE);
	assert_int_equal(message.is_text, is_text);
	assert_int_equal(message.len, len);
	assert_memory_equal(message.text, text, len);
}

/* What we sent. */
static void expect_sent(const char *bytes, size_t len)
{
	assert_int_equal(evbuffer_get_length(out), len);
	if (len > 0) {
		assert_memory_equal(evbuffer_pullup(out, -1), bytes, len);
	}
	evbuffer_drain(out, len);
}

/* ---- messages ---- */

static void test_messages_come_whole_and_in_order(void **state)
{
	(void)state;
	assert_int_equal(next(), HTTP_FRAMES_MORE);
	add_frame(FIN | TEXT, "hello", 5);
	add_frame(FIN | BINARY, "\0\xff", 2);
	add_frame(FIN | TEXT, "", 0);
	expect_message(true, "hello", 5);
	expect_message(false, "\0\xff", 2);
	expect_message(true, "", 0);
	assert_int_equal(next(), HTTP_FRAMES_MORE);
	expect_sent("", 0);
}

static void test_fragments_are_put_together_with_control_frames_between(void **state)
{
	(void)state;
	add_frame(TEXT, "gr\xc3", 3);
	add_frame(FIN | PING, "are you there", 13);
	add_frame(0, "", 0);
	add_frame(FIN | PONG, "", 0);
	add_frame(FIN, "\xbc\xc3\x9f", 3);
	add_frame(FIN | BINARY, "x", 1);
	expect_message(true, "gr\xc3\xbc\xc3\x9f", 6);
	expect_sent("\x8a\x0d"
		    "are you there",
		15);
	expect_message(false, "x", 1);
}

static void test_bytes_may_come_one_by_one(void **state)
{
	struct evbuffer *all = evbuffer_new();
	char text[300];

	(void)state;
	memset(text, 'x', sizeof text);
	add_frame(BINARY, text, sizeof text);
	add_frame(FIN, text, sizeof text);
	evbuffer_add_buffer(all, in);
	while (evbuffer_get_length(all) > 1) {
		evbuffer_remove_buffer(all, in, 1);
		assert_int_equal(next(), HTTP_FRAMES_MORE);
	}
	evbuffer_remove_buffer(all, in, 1);
	assert_int_equal(next(), HTTP_FRAMES_MESSAGE);
	assert_int_equal(message.len, 600);
	evbuffer_free(all);
}

static void test_pings_are_not_answered_while_much_is_unsent(void **state)
{
	(void)state;
	for (int i = 0; i < 1000; i++) {
		add_frame(FIN | PING, "0123456789", 10);
	}
	assert_int_equal(next(), HTTP_FRAMES_MORE);
	assert_in_range(evbuffer_get_length(out), 12, OUT_MAX + 12);
}

/* ---- sending ---- */

static void test_what_is_sent_is_framed_without_a_mask(void **state)
{
	char large[70000] = "";

	(void)state;
	http_frames_send(frames, true, "abc", 3);
	expect_sent("\x81\x03"
		    "abc",
		5);
	http_frames_send(frames, false, "", 0);
	expect_sent("\x82\x00", 2);
	http_frames_send(frames, false, large, 126);
	assert_memory_equal(evbuffer_pullup(out, 4), "\x82\x7e\x00\x7e", 4);
	assert_int_equal(evbuffer_get_length(out), 130);
	evbuffer_drain(out, 130);
	http_frames_send(frames, false, large, sizeof large);
	assert_memory_equal(evbuffer_pullup(out, 10), "\x82\x7f\0\0\0\0\0\x01\x11\x70", 10);
	assert_int_equal(evbuffer_get_length(out), 10 + sizeof large);
	evbuffer_drain(out, 10 + sizeof large);
	http_frames_ping(frames);
	expect_sent("\x89\x00", 2);
	http_frames_close(frames, 1001, "going");
	expect_sent("\x88\x07\x03\xe9"
		    "going",
		9);
	http_frames_close(frames, 0, "unsaid");
	expect_sent("\x88\x00", 2);
}

static void test_a_long_reason_is_cut_between_characters(void **state)
{
	char reason[200];

	(void)state;
	for (size_t i = 0; i + 2 < sizeof reason; i += 2) {
		memcpy(reason + i, "\xc3\xa4", 3);
	}
	http_frames_close(frames, 1000, reason);
	assert_int_equal(evbuffer_get_length(out), 2 + 2 + 122);
}

/* ---- ends ---- */

static void test_a_goodbye_is_told(void **state)
{
	(void)state;
	add_frame(FIN | CLOSE,
		"\x03\xe8"
		"done",
		6);
	assert_int_equal(next(), HTTP_FRAMES_CLOSED);
	assert_int_equal(message.code, 1000);
}

static void test_a_goodbye_without_a_code_is_told(void **state)
{
	(void)state;
	add_frame(FIN | CLOSE, "", 0);
	assert_int_equal(next(), HTTP_FRAMES_CLOSED);
	assert_int_equal(message.code, 0);
}

static void expect_broken(unsigned code)
{
	enum http_frames_event event = next();

	if (event != HTTP_FRAMES_BROKEN || message.code != code) {
		fail_msg("event %d with %u, not %u", event, message.code, code);
	}
	assert_true(message.len > 0);
	tear_down(NULL);
	set_up(NULL);
}

static void test_what_no_client_may_send_breaks_it(void **state)
{
	static const char bad_text[] = "a\xff";
	char large[MESSAGE_MAX + 1] = "";

	(void)state;
	evbuffer_add(in,
		"\x81\x03"
		"abc",
		5); /* no mask */
	expect_broken(1002);
	evbuffer_add(in, "\x81\x00", 2);
	expect_broken(1002);
	for (unsigned bit = 0x10; bit <= 0x40; bit <<= 1) {
		add_frame(FIN | bit | TEXT, "a", 1);
		expect_broken(1002);
	}
	for (unsigned kind = 3; kind <= 15; kind += kind == 7 ? 4 : 1) {
		add_frame(FIN | kind, "a", 1);
		expect_broken(1002);
	}
	add_frame(FIN, "a", 1); /* goes on with nothing */
	expect_broken(1002);
	add_frame(TEXT, "a", 1); /* one within another */
	add_frame(FIN | TEXT, "b", 1);
	expect_broken(1002);
	add_frame(PING, "a", 1); /* in fragments */
	expect_broken(1002);
	add_frame(FIN | PING, large, 126);
	expect_broken(1002);
	evbuffer_add(in, "\x82\xfe\x00\x05\1\2\3\4abcde", 13); /* a length in a longer form */
	expect_broken(1002);
	evbuffer_add(in, "\x82\xff\x80\0\0\0\0\0\0\0\1\2\3\4a", 15); /* a negative one */
	expect_broken(1002);
	add_frame(FIN | TEXT, bad_text, 2);
	expect_broken(1007);
	add_frame(FIN | BINARY, large, sizeof large);
	expect_broken(1009);
	add_frame(BINARY, large, MESSAGE_MAX);
	add_frame(0, "a", 1);
	expect_broken(1009);
	/* A head is enough, and one byte. */
	evbuffer_add(in, "\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff\1\2\3\4a", 15);
	expect_broken(1009);
}

static void test_closing_codes_are_checked(void **state)
{
	static const unsigned bad[] = {0, 999, 1004, 1005, 1006, 1012, 1015, 2999, 5000, 65535};
	static const unsigned good[] = {1000, 1003, 1007, 1011, 3000, 4999};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		const char code[3] = {(char)(bad[i] >> 8), (char)bad[i]};

		add_frame(FIN | CLOSE, code, 2);
		expect_broken(1002);
	}
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		const char code[3] = {(char)(good[i] >> 8), (char)good[i]};

		add_frame(FIN | CLOSE, code, 2);
		assert_int_equal(next(), HTTP_FRAMES_CLOSED);
		assert_int_equal(message.code, good[i]);
		tear_down(NULL);
		set_up(NULL);
	}
	add_frame(FIN | CLOSE, "\x03", 1);
	expect_broken(1002);
	add_frame(FIN | CLOSE, "\x03\xe8\xff", 3);
	expect_broken(1007);
}

static void test_a_message_may_be_as_long_as_it_may_be(void **state)
{
	char large[MESSAGE_MAX + 1] = "";

	(void)state;
	for (int i = 0; i < 3; i++) {
		add_frame(BINARY, large, MESSAGE_MAX - 1);
		add_frame(FIN, large, 1);
		assert_int_equal(next(), HTTP_FRAMES_MESSAGE);
		assert_int_equal(message.len, MESSAGE_MAX);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
		T(test_messages_come_whole_and_in_order),
		T(test_fragments_are_put_together_with_control_frames_between),
		T(test_bytes_may_come_one_by_one),
		T(test_pings_are_not_answered_while_much_is_unsent),
		T(test_what_is_sent_is_framed_without_a_mask),
		T(test_a_long_reason_is_cut_between_characters),
		T(test_a_goodbye_is_told),
		T(test_a_goodbye_without_a_code_is_told),
		T(test_what_no_client_may_send_breaks_it),
		T(test_closing_codes_are_checked),
		T(test_a_message_may_be_as_long_as_it_may_be),
#undef T
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
