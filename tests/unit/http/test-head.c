#include "tests/lib/cm.h"

#include <stdlib.h>

#include "base/cleanup.h"
#include "base/macros.h"
#include "base/xalloc.h"
#include "http/head.h"

#define MAX_BYTES 4096

/* ---- bytes ---- */

static bool is_same(const char *a, const char *b)
{
	return (!a && !b) || (a && b && strcmp(a, b) == 0);
}

/* Takes the bytes at once and one by one, which must make no difference. */
static void take(struct http_head *whole, const char *bytes, size_t len)
{
	struct http_head pieces;
	size_t taken = 0;

	http_head_init(whole, MAX_BYTES);
	http_head_init(&pieces, MAX_BYTES);
	size_t used = http_head_take(whole, bytes, len);

	for (size_t i = 0; i < len; i++) {
		taken += http_head_take(&pieces, bytes + i, 1);
	}
	assert_int_equal(used, taken);
	assert_ptr_equal(whole->problem, pieces.problem);
	assert_int_equal(whole->state, pieces.state);
	assert_int_equal(whole->header_count, pieces.header_count);
	assert_true(is_same(whole->method, pieces.method));
	assert_true(is_same(whole->target, pieces.target));
	http_head_fini(&pieces);
}

static const char *problem_of(const char *bytes, size_t len)
{
	struct http_head head;

	take(&head, bytes, len);
	if (!head.problem) {
		assert_int_equal(head.state, HTTP_HEAD_OVER);
	}
	http_head_fini(&head);
	return head.problem;
}

static void test_a_head_has_its_parts(void **state)
{
	static const char bytes[] = "PUT /a?b=%20c HTTP/1.1\r\nHost: localhost:1\r\nEmpty:\r\n"
				    "X-A:   a\tb\t \r\nhost: other\r\nC:d\r\n\r\nbody";
	struct http_head head;

	(void)state;
	take(&head, bytes, sizeof bytes - 1);
	assert_int_equal(head.state, HTTP_HEAD_OVER);
	assert_string_equal(head.method, "PUT");
	assert_string_equal(head.target, "/a?b=%20c");
	assert_false(head.is_old);
	assert_string_equal(http_head_find(&head, "HOST"), "localhost:1");
	assert_string_equal(http_head_find(&head, "empty"), "");
	assert_string_equal(http_head_find(&head, "x-a"), "a\tb");
	assert_string_equal(http_head_find(&head, "C"), "d");
	assert_null(http_head_find(&head, "body"));
	assert_null(http_head_find(&head, ""));
	http_head_fini(&head);
}

static void test_a_head_ends_where_it_ends(void **state)
{
	static const char bytes[] = "GET / HTTP/1.0\r\n\r\nGET /next HTTP/1.1\r\n\r\n";
	struct http_head head;

	(void)state;
	http_head_init(&head, MAX_BYTES);
	assert_true(http_head_is_fresh(&head));
	assert_int_equal(http_head_take(&head, bytes, sizeof bytes - 1), 18);
	assert_true(head.is_old);
	assert_int_equal(http_head_take(&head, bytes + 18, sizeof bytes - 19), 0);
	http_head_reset(&head);
	assert_true(http_head_is_fresh(&head));
	assert_int_equal(http_head_take(&head, bytes + 18, sizeof bytes - 19), 22);
	assert_string_equal(head.target, "/next");
	assert_false(head.is_old);
	http_head_fini(&head);
}

static void test_lists_are_looked_through(void **state)
{
	static const char bytes[] = "GET / HTTP/1.1\r\nConnection: keep-alive , Upgrade\r\n"
				    "Connection:x,, Close,\r\nB: upgrades\r\n\r\n";
	struct http_head head;

	(void)state;
	take(&head, bytes, sizeof bytes - 1);
	assert_true(http_head_has_token(&head, "connection", "upgrade"));
	assert_true(http_head_has_token(&head, "connection", "KEEP-ALIVE"));
	assert_true(http_head_has_token(&head, "connection", "x"));
	assert_true(http_head_has_token(&head, "connection", "close"));
	assert_false(http_head_has_token(&head, "connection", "keep"));
	assert_false(http_head_has_token(&head, "B", "upgrade"));
	http_head_fini(&head);
}

static void test_heads_are_bounded(void **state)
{
	_cleanup_free_ char *bytes = xcalloc(MAX_BYTES + 1, 1);
	const char start[] = "GET / HTTP/1.1\r\nA: ";

	(void)state;
	memset(bytes, 'a', MAX_BYTES + 1);
	memcpy(bytes, start, sizeof start - 1);
	memcpy(bytes + MAX_BYTES - 4, "\r\n\r\n", 4);
	assert_null(problem_of(bytes, MAX_BYTES));
	memcpy(bytes + MAX_BYTES - 4, "a\r\n\r\n", 5);
	assert_non_null(strstr(problem_of(bytes, MAX_BYTES + 1), "longer than may be"));

	char *at = bytes + sprintf(bytes, "GET / HTTP/1.1\r\n");

	for (unsigned i = 0; i < HTTP_HEAD_LINES_MAX - 2; i++) {
		at += sprintf(at, "a:b\r\n");
	}
	memcpy(at, "\r\n", 2);
	assert_null(problem_of(bytes, (size_t)(at + 2 - bytes)));
	memcpy(at, "a:b\r\n\r\n", 7);
	assert_non_null(strstr(problem_of(bytes, (size_t)(at + 7 - bytes)), "more headers"));
}

static void test_ordinary_heads_are_fine(void **state)
{
	static const char *const good[] = {
		"GET / HTTP/1.1\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\nX-Tab:\ta\tb \r\n\r\n",
		"GET / HTTP/1.1\r\nX-Utf8: \xc3\xa4\xff\r\nX-Empty:\r\n\r\n",
		"GET / HTTP/1.1\r\n!#$%&'*+-.^_`|~09azAZ: x:y\r\n\r\n",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		assert_null(problem_of(good[i], strlen(good[i])));
	}
}

static void test_what_follows_a_head_is_not_looked_at(void **state)
{
	static const char bytes[] = "PUT / HTTP/1.1\r\n\r\n\0\n\r\x01 : body";

	(void)state;
	assert_null(problem_of(bytes, sizeof bytes - 1));
}

static void test_odd_heads_are_refused(void **state)
{
#define HEAD(text, says)                                                                           \
	{                                                                                          \
		text, sizeof(text) - 1, says                                                       \
	}
	static const struct {
		const char *bytes;
		size_t len;
		const char *says;
	} bad[] = {
		HEAD("GET / HTTP/1.1\n", "LF alone"),
		HEAD("GET / HTTP/1.1\r\nA: b\n\r\n", "LF alone"),
		HEAD("GET / HTTP/1.1\r\nA: b\r\n\n", "LF alone"),
		HEAD("GET /\r HTTP/1.1\r\n", "CR without LF"),
		HEAD("GET / HTTP/1.1\r\nA: b\rContent-Length: 5\r\n", "CR without LF"),
		HEAD("GET / HTTP/1.1\r\r\n", "CR without LF"),
		HEAD("GET / HTTP/1.1\r\nA: b\r\n c\r\n", "second line"),
		HEAD("GET / HTTP/1.1\r\n\tc: d\r\n", "second line"),
		HEAD("GET / HTTP/1.1\r\nA : b\r\n", "name"),
		HEAD("GET / HTTP/1.1\r\n: b\r\n", "name"),
		HEAD("GET / HTTP/1.1\r\nA\xc3\xa4: b\r\n", "name"),
		HEAD("GET / HTTP/1.1\r\nA(b): b\r\n", "name"),
		HEAD("GET / HTTP/1.1\r\nA\r\n", "no colon"),
		HEAD("GET / HTTP/1.1\r\nA: b\0c\r\n", "control character"),
		HEAD("GET / HTTP/1.1\r\n\0\r\n", "control character"),
		HEAD("GET / HTTP/1.1\r\nA: \x7f\r\n", "control character"),
		HEAD("GET /\x0b HTTP/1.1\r\n", "control character"),
		HEAD("GET /\xc3\xa4 HTTP/1.1\r\n", "ASCII"),
		HEAD("GET /\r\n", "one blank"),
		HEAD("GET  / HTTP/1.1\r\n", "one blank"),
		HEAD("GET / /x HTTP/1.1\r\n", "one blank"),
		HEAD("GET /\tx HTTP/1.1\r\n", "one blank"),
		HEAD("GET / HTTP/1.1 \r\n", "one blank"),
		HEAD("\r\n", "one blank"),
		HEAD("GET\t/ HTTP/1.1\r\n", "one blank"),
		HEAD("GET  HTTP/1.1\r\n", "one blank"),
		HEAD(" / HTTP/1.1\r\n", "method"),
		HEAD("G(T / HTTP/1.1\r\n", "method"),
		HEAD("ABCDEFGHIJKLMNOPQ / HTTP/1.1\r\n", "method"),
		HEAD("GET / HTTP/2.0\r\n", "version"),
		HEAD("GET / HTTP/1.2\r\n", "version"),
		HEAD("GET / HTTP/1.10\r\n", "version"),
		HEAD("GET / http/1.1\r\n", "version"),
		HEAD("GET / \r\n", "version"),
	};
#undef HEAD

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		const char *problem = problem_of(bad[i].bytes, bad[i].len);

		if (!problem || !strstr(problem, bad[i].says)) {
			fail_msg("%zu: %s", i, problem ? problem : "accepted");
		}
	}
}

/* ---- headers ---- */

static int check(const char *const *pairs, bool may_have_body, struct err *err)
{
	_cleanup_free_ char *bytes = xstrdup("GET / HTTP/1.1\r\n");
	struct http_length length;
	struct http_head head;

	for (; pairs[0]; pairs += 2) {
		char *longer = xasprintf("%s%s: %s\r\n", bytes, pairs[0], pairs[1]);

		free(bytes);
		bytes = longer;
	}
	http_head_init(&head, MAX_BYTES);
	http_head_take(&head, bytes, strlen(bytes));
	http_head_take(&head, "\r\n", 2);
	assert_int_equal(head.state, HTTP_HEAD_OVER);
	int ret = http_head_length(&head, may_have_body, &length, err);

	http_head_fini(&head);
	return ret;
}

static void test_one_clear_length_is_fine(void **state)
{
	static const char *const good[][7] = {
		{NULL},
		{"Content-Length", "0"},
		{"Content-Length", "123456789012345678"},
		{"Transfer-Encoding", "Chunked"},
		{"Accept", "a", "Accept", "b"},
	};
	struct err err;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		assert_ok(check(good[i], true, &err), &err);
	}
	assert_ok(check((const char *[]){"Content-Length", "00", NULL}, false, &err), &err);
}

static void test_doubtful_lengths_are_refused(void **state)
{
	static const char *const values[] = {
		"", "+5", "-1", "0x5", "5 5", "5, 5", "5,5", "\t5", "1234567890123456789", "5a"};
	static const char *const codings[] = {"gzip, chunked", "xchunked", "chunked, identity",
		"identity", "", "\tchunked", "chunked;q=1", "\"chunked\""};
	struct err err;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
		const char *pairs[] = {"Content-Length", values[i], NULL};

		assert_err(check(pairs, true, &err), &err, ERR_INVALID);
	}
	for (size_t i = 0; i < ARRAY_SIZE(codings); i++) {
		const char *pairs[] = {"Transfer-Encoding", codings[i], NULL};

		assert_err(check(pairs, true, &err), &err, ERR_INVALID);
	}
	assert_err(
		check((const char *[]){"Content-Length", "5", "Transfer-Encoding", "chunked", NULL},
			true, &err),
		&err, ERR_INVALID);
	assert_err(check((const char *[]){"Content-Length", "1", NULL}, false, &err), &err,
		ERR_INVALID);
	assert_err(check((const char *[]){"Transfer-Encoding", "chunked", NULL}, false, &err), &err,
		ERR_INVALID);
}

static void test_headers_that_decide_come_once(void **state)
{
	static const char *const names[] = {"host", "CONTENT-LENGTH", "transfer-encoding",
		"content-type", "authorization", "X-Api-Key", "idempotency-key", "x-file-path",
		"origin", "expect", "content-encoding", "upgrade", "sec-websocket-key",
		"sec-websocket-version"};
	struct err err;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		const char *pairs[] = {names[i], "1", "Accept", "x", names[i], "1", NULL};

		assert_err(check(pairs, true, &err), &err, ERR_INVALID);
		assert_err_says(&err, "given twice");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_head_has_its_parts),
		cmocka_unit_test(test_a_head_ends_where_it_ends),
		cmocka_unit_test(test_lists_are_looked_through),
		cmocka_unit_test(test_heads_are_bounded),
		cmocka_unit_test(test_ordinary_heads_are_fine),
		cmocka_unit_test(test_what_follows_a_head_is_not_looked_at),
		cmocka_unit_test(test_odd_heads_are_refused),
		cmocka_unit_test(test_one_clear_length_is_fine),
		cmocka_unit_test(test_doubtful_lengths_are_refused),
		cmocka_unit_test(test_headers_that_decide_come_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
