#include "tests/lib/cm.h"

#include <stdio.h>
#include <string.h>

#include "base/base64.h"
#include "base/macros.h"
#include "base/xalloc.h"
#include "client/ws_handshake.h"

/* The key of the RFC's example. */
#define KEY    "dGhlIHNhbXBsZSBub25jZQ=="
#define ACCEPT "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="

static const struct ws_offer offer = {
	.target = "/v1/sandboxes/sb_1/pty?rows=24",
	.host = "127.0.0.1:8470",
	.key = KEY,
	.protocol = "paddock.pty.v1",
	.auth_header = "Authorization: Bearer pdk_secret",
};

#define AGREED                                                                                     \
	"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"        \
	"Sec-WebSocket-Accept: " ACCEPT "\r\nSec-WebSocket-Protocol: paddock.pty.v1\r\n"

static int read_head(const char *head, struct ws_head *ret, struct err *err)
{
	size_t len = strlen(head);
	_cleanup_free_ char *copy = xmemdup(head, len); /* without a terminator */

	*err = ERR_INIT;
	return ws_read_head(copy, len, &offer, ret, err);
}

static void test_a_key_is_sixteen_fresh_bytes(void **state)
{
	char one[WS_KEY_BYTES];
	char other[WS_KEY_BYTES];

	(void)state;
	ws_make_key(one);
	ws_make_key(other);
	assert_int_equal(strlen(one), 24);
	assert_true(base64_is_valid(one, 24));
	assert_int_equal(base64_decoded_bytes(one, 24), 16);
	assert_string_not_equal(one, other);
}

static void test_a_key_is_accepted_as_the_rfc_says(void **state)
{
	char accept[WS_ACCEPT_BYTES];

	(void)state;
	ws_make_accept(KEY, accept);
	assert_string_equal(accept, ACCEPT);
}

static void test_the_request_has_what_it_needs(void **state)
{
	_cleanup_buffer_ struct buffer request = {0};
	_cleanup_buffer_ struct buffer bare = {0};
	struct ws_offer keyless = offer;

	(void)state;
	ws_write_request(&request, &offer);
	assert_string_equal(request.data, "GET /v1/sandboxes/sb_1/pty?rows=24 HTTP/1.1\r\n"
					  "Host: 127.0.0.1:8470\r\n"
					  "Upgrade: websocket\r\n"
					  "Connection: Upgrade\r\n"
					  "Sec-WebSocket-Key: " KEY "\r\n"
					  "Sec-WebSocket-Version: 13\r\n"
					  "Sec-WebSocket-Protocol: paddock.pty.v1\r\n"
					  "Accept: application/json\r\n"
					  "Authorization: Bearer pdk_secret\r\n"
					  "\r\n");
	keyless.auth_header = NULL;
	ws_write_request(&bare, &keyless);
	assert_null(strstr(bare.data, "Authorization"));
	assert_int_equal(ws_head_bytes(bare.data, bare.len), bare.len);
}

static void test_a_head_ends_with_its_empty_line(void **state)
{
	static const char text[] = "HTTP/1.1 101 x\r\nA: b\r\n\r\n\x81\x01x";
	size_t len = sizeof text - 1;

	(void)state;
	for (size_t n = 1; n <= len; n++) {
		_cleanup_free_ char *copy = xmemdup(text, n);

		assert_int_equal(ws_head_bytes(copy, n), n >= len - 3 ? len - 3 : 0);
	}
}

static void test_an_agreement_is_believed(void **state)
{
	static const char *const good[] = {
		AGREED "\r\n",
		"HTTP/1.1 101\r\nconnection: keep-alive, Upgrade\r\nUPGRADE:  WebSocket \r\n"
		"sec-websocket-accept:" ACCEPT "\r\nsec-websocket-protocol:paddock.pty.v1\r\n\r\n",
		"HTTP/1.1 101 ok\nConnection: upgrade,x\nUpgrade: websocket\n"
		"Sec-WebSocket-Accept: " ACCEPT "\nSec-WebSocket-Protocol: paddock.pty.v1\n\n",
	};
	struct ws_head head;
	struct err err;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		assert_ok(read_head(good[i], &head, &err), &err);
		assert_int_equal(head.status, 101);
	}
}

static void test_what_is_no_agreement_is_refused(void **state)
{
	static const struct {
		const char *head;
		const char *says;
	} wrong[] = {
		{"HTTP/1.1 101 x\r\n\r\n", "switch"},
		{"HTTP/1.1 101 x\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n", "switch"},
		{"HTTP/1.1 101 x\r\nUpgrade: websocket\r\nConnection: upgraded\r\n\r\n", "switch"},
		{"HTTP/1.1 101 x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n", "prove"},
		{"HTTP/1.1 101 x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
		 "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOO=\r\n\r\n",
			"prove"},
		{"HTTP/1.1 101 x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
		 "Sec-WebSocket-Accept: " ACCEPT "\r\n\r\n",
			"protocol"},
		{"HTTP/1.1 101 x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
		 "Sec-WebSocket-Accept: " ACCEPT "\r\nSec-WebSocket-Protocol: chat\r\n\r\n",
			"protocol"},
		{AGREED "Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n", "extensions"},
	};
	struct ws_head head;
	struct err err;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		assert_err(read_head(wrong[i].head, &head, &err), &err, ERR_UNAVAILABLE);
		assert_err_says(&err, wrong[i].says);
	}
}

static void test_what_is_no_http_is_refused(void **state)
{
	static const char *const wrong[] = {"\r\n\r\n", "SSH-2.0-OpenSSH\r\n\r\n",
		"HTTP/1.1 \r\n\r\n", "HTTP/1.1 -10 x\r\n\r\n", "HTTP/2 101 x\r\n\r\n",
		"HTTP/1.1 7 x\r\n\r\n", "\0\0\0\r\n\r\n"};
	struct ws_head head;
	struct err err;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		assert_err(read_head(wrong[i], &head, &err), &err, ERR_UNAVAILABLE);
		assert_err_says(&err, "no HTTP");
	}
}

static void test_a_refusal_is_read_and_not_judged(void **state)
{
	struct ws_head head;
	struct err err;

	(void)state;
	assert_ok(read_head("HTTP/1.1 429 Too Many\r\nContent-Length: 77\r\n"
			    "X-Request-Id: rq_12\x1b[2J\r\nno colon\r\n: none\r\n\r\n",
			  &head, &err),
		&err);
	assert_int_equal(head.status, 429);
	assert_true(head.has_length);
	assert_int_equal(head.length, 77);
	assert_string_equal(head.request_id, "rq_12");
	assert_ok(read_head("HTTP/1.0 503 x\r\n\r\n", &head, &err), &err);
	assert_false(head.has_length);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_key_is_sixteen_fresh_bytes),
		cmocka_unit_test(test_a_key_is_accepted_as_the_rfc_says),
		cmocka_unit_test(test_the_request_has_what_it_needs),
		cmocka_unit_test(test_a_head_ends_with_its_empty_line),
		cmocka_unit_test(test_an_agreement_is_believed),
		cmocka_unit_test(test_what_is_no_agreement_is_refused),
		cmocka_unit_test(test_what_is_no_http_is_refused),
		cmocka_unit_test(test_a_refusal_is_read_and_not_judged),
	};

	return cmocka_run_group_tests_name("WebSocket handshake", tests, NULL, NULL);
}
