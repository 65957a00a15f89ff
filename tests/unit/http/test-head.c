#include "tests/lib/cm.h"

#include <event2/keyvalq_struct.h>
#include <stdlib.h>
#include <sys/queue.h>

#include "base/macros.h"
#include "http/head.h"

/* ---- bytes ---- */

static const char *problem_of(const char *bytes, size_t len)
{
	struct http_head whole = HTTP_HEAD_INIT;
	struct http_head pieces = HTTP_HEAD_INIT;

	http_head_scan(&whole, bytes, len);
	for (size_t i = 0; i < len; i++) {
		http_head_scan(&pieces, bytes + i, 1);
	}
	assert_ptr_equal(whole.problem, pieces.problem);
	assert_int_equal(whole.state, pieces.state);
	if (!whole.problem) {
		assert_int_equal(whole.state, HTTP_HEAD_OVER);
	}
	return whole.problem;
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
	struct evkeyvalq headers;

	TAILQ_INIT(&headers);
	for (; pairs[0]; pairs += 2) {
		evhttp_add_header(&headers, pairs[0], pairs[1]);
	}
	int ret = http_head_check(&headers, may_have_body, err);

	evhttp_clear_headers(&headers);
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
	static const char *const values[] = {"", "+5", "-1", "0x5", "5 5", "5, 5", "5,5", " 5",
		"\t5", "1234567890123456789", "5a"};
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
		"origin", "expect"};
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
		cmocka_unit_test(test_ordinary_heads_are_fine),
		cmocka_unit_test(test_what_follows_a_head_is_not_looked_at),
		cmocka_unit_test(test_odd_heads_are_refused),
		cmocka_unit_test(test_one_clear_length_is_fine),
		cmocka_unit_test(test_doubtful_lengths_are_refused),
		cmocka_unit_test(test_headers_that_decide_come_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
