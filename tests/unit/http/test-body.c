#include "tests/lib/cm.h"

#include <event2/buffer.h>

#include "base/macros.h"
#include "http/body.h"

/* Takes @bytes in pieces of @step; the content is put into @content. Returns how many bytes belong
 * to the body. */
static size_t take(struct http_body *body, const char *bytes, size_t len, size_t step,
	struct evbuffer *content)
{
	size_t at = 0;
	size_t there = 0; /* the bytes that have come */

	while (!http_body_is_end(body) && !body->problem && at < len) {
		if (at == there) {
			there = MIN(len, there + step);
		}
		size_t n = (size_t)MIN(http_body_content(body), (uint64_t)(there - at));

		if (n > 0) {
			evbuffer_add(content, bytes + at, n);
			http_body_took(body, n);
		} else {
			n = http_body_frame(body, bytes + at, there - at);
			assert_int_not_equal(n, 0);
		}
		at += n;
	}
	return at;
}

struct row {
	const char *bytes;
	const char *content; /* NULL: not looked at */
	const char *says;    /* NULL: no problem */
	size_t behind;       /* bytes that aren't the body's */
};

static void try_row(const struct row *row, size_t step)
{
	struct evbuffer *content = evbuffer_new();
	size_t len = strlen(row->bytes);
	struct http_body body;

	http_body_init(&body, true, 0);
	size_t used = take(&body, row->bytes, len, step, content);

	if (row->says) {
		if (!body.problem || !strstr(body.problem, row->says)) {
			fail_msg("%s: %s", row->bytes, body.problem ? body.problem : "no problem");
		}
	} else {
		if (body.problem || !http_body_is_end(&body)) {
			fail_msg("%s: %s", row->bytes, body.problem ? body.problem : "no end");
		}
		assert_int_equal(len - used, row->behind);
		assert_int_equal(body.total_bytes, strlen(row->content));
		assert_int_equal(evbuffer_get_length(content), body.total_bytes);
		assert_memory_equal(evbuffer_pullup(content, -1), row->content, body.total_bytes);
	}
	evbuffer_free(content);
}

static void try_rows(const struct row *rows, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		for (size_t step = 1; step < 20; step++) {
			try_row(&rows[i], step);
		}
	}
}

static void test_chunks_are_put_together(void **state)
{
	static const struct row rows[] = {
		{"0\r\n\r\n", "", NULL, 0},
		{"1\r\na\r\n0\r\n\r\nGET", "a", NULL, 3},
		{"a\r\n0123456789\r\n2\r\nab\r\n000\r\n\r\n", "0123456789ab", NULL, 0},
		{"0A\r\n0123\r\n6789\r\n0\r\n\r\n", "0123\r\n6789", NULL, 0},
		{"1;a=b\r\nx\r\n0;last\r\n\r\n", "x", NULL, 0},
		{"1 ;a=\"b;\xc3\xa4\"\r\nx\r\n0\t\r\n\r\n", "x", NULL, 0},
		{"1\r\nx\r\n0\r\nContent-Length: 5\r\nA: b\r\n\r\nabcde", "x", NULL, 5},
	};

	(void)state;
	try_rows(rows, ARRAY_SIZE(rows));
}

static void test_odd_chunks_are_refused(void **state)
{
	static const struct row rows[] = {
		{"\r\n", NULL, "no size", 0},
		{";a\r\n", NULL, "hexadecimal", 0},
		{" 1\r\nx\r\n", NULL, "hexadecimal", 0},
		{"x\r\n", NULL, "hexadecimal", 0},
		{"-1\r\n", NULL, "hexadecimal", 0},
		{"+1\r\n", NULL, "hexadecimal", 0},
		{"0x1\r\n", NULL, "hexadecimal", 0},
		{"1_0\r\n", NULL, "hexadecimal", 0},
		{"1234567890abcdef\r\n", NULL, "digits", 0},
		{"0000000000000001\r\n", NULL, "digits", 0},
		{"1\nx\r\n", NULL, "CR LF", 0},
		{"1\rx\r\n", NULL, "CR LF", 0},
		{"1\r\r\n", NULL, "CR LF", 0},
		{"1\r\nxy\r\n", NULL, "where its size says", 0},
		{"1\r\nx0\r\n\r\n", NULL, "where its size says", 0},
		{"1\r\nx\n", NULL, "CR LF", 0},
		{"1;a\x01\r\n", NULL, "control character", 0},
		{"1;a\x7f\r\n", NULL, "control character", 0},
		{"0\r\nA: b\n\r\n", NULL, "CR LF", 0},
		{"0\r\nA: \x0b\r\n\r\n", NULL, "control character", 0},
		{"0\r\n\n", NULL, "CR LF", 0},
	};

	(void)state;
	try_rows(rows, ARRAY_SIZE(rows));
}

/* ---- bounds ---- */

/* @count times @text, then @end; whether all of it is taken. */
static bool takes(const char *begin, const char *text, size_t count, const char *end)
{
	struct evbuffer *bytes = evbuffer_new();
	struct evbuffer *content = evbuffer_new();
	struct http_body body;

	evbuffer_add(bytes, begin, strlen(begin));
	for (size_t i = 0; i < count; i++) {
		evbuffer_add(bytes, text, strlen(text));
	}
	evbuffer_add(bytes, end, strlen(end));
	http_body_init(&body, true, 0);
	take(&body, (const char *)evbuffer_pullup(bytes, -1), evbuffer_get_length(bytes), 1000,
		content);
	evbuffer_free(bytes);
	evbuffer_free(content);
	assert_true(http_body_is_end(&body) || body.problem);
	return !body.problem;
}

static void test_what_is_around_chunks_is_bounded(void **state)
{
	(void)state;
	assert_true(takes("1;", "a", HTTP_CHUNK_LINE_MAX_BYTES - 2, "\r\nx\r\n0\r\n\r\n"));
	assert_false(takes("1;", "a", HTTP_CHUNK_LINE_MAX_BYTES - 1, "\r\nx\r\n0\r\n\r\n"));
	/* 8 bytes of extension each. */
	assert_true(takes("", "1;234567\r\nx\r\n", HTTP_EXTENSIONS_MAX_BYTES / 7, "0\r\n\r\n"));
	assert_false(
		takes("", "1;234567\r\nx\r\n", HTTP_EXTENSIONS_MAX_BYTES / 7 + 1, "0\r\n\r\n"));
	assert_true(takes("0\r\n", "A: b\r\n", HTTP_TRAILER_MAX_BYTES / 6, "\r\n"));
	assert_false(takes("0\r\n", "A: b\r\n", HTTP_TRAILER_MAX_BYTES / 6 + 1, "\r\n"));
	assert_true(takes("", "1\r\nx\r\n", 100000, "0\r\n\r\n"));
}

/* ---- of a known length ---- */

static void test_a_length_is_kept_to(void **state)
{
	struct http_body body;

	(void)state;
	http_body_init(&body, false, 0);
	assert_true(http_body_is_end(&body));
	http_body_init(&body, false, 5);
	assert_false(http_body_is_end(&body));
	assert_int_equal(http_body_content(&body), 5);
	assert_int_equal(http_body_frame(&body, "abc", 3), 0);
	http_body_took(&body, 3);
	assert_int_equal(http_body_content(&body), 2);
	http_body_took(&body, 2);
	assert_true(http_body_is_end(&body));
	assert_int_equal(http_body_content(&body), 0);
	assert_int_equal(body.total_bytes, 5);
	/* More than 4 GiB. */
	http_body_init(&body, false, UINT64_C(1) << 40);
	assert_true(http_body_content(&body) == UINT64_C(1) << 40);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_chunks_are_put_together),
		cmocka_unit_test(test_odd_chunks_are_refused),
		cmocka_unit_test(test_what_is_around_chunks_is_bounded),
		cmocka_unit_test(test_a_length_is_kept_to),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
