#include "tests/lib/http_check.h"
#include "tests/lib/http_files.h"

#include <stdlib.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/xalloc.h"
#include "http/server_priv.h"
#include "ops/socket.h"

/*
 * Conversations over a real socket, with the shell of the fake guest at the other end, which echoes
 * what is typed and ends at a Ctrl-D: handshakes, frames that no client may send, and all ways to
 * end.
 */

#define FIN    0x80u
#define TEXT   0x1u
#define BINARY 0x2u
#define CLOSE  0x8u
#define PING   0x9u
#define PONG   0xau

static const char *handshake(void)
{
	static char text[400];
	_cleanup_free_ char *lines = http_handshake(api_row(API_PTY));

	snprintf(text, sizeof text, "%s", lines);
	return text;
}

/* ---- a client's frames ---- */

static void send_frame(struct client *c, unsigned first, const void *payload, size_t len)
{
	unsigned char head[8] = {(unsigned char)first};
	size_t head_len = len < 126 ? 2 : len < 65536 ? 4 : 0;

	/* The mask is all zeros: then nothing has to be masked. */
	if (head_len == 2) {
		head[1] = (unsigned char)(0x80 | len);
	} else if (head_len == 4) {
		head[1] = 0x80 | 126;
		head[2] = (unsigned char)(len >> 8);
		head[3] = (unsigned char)len;
	} else {
		const unsigned char large[10] = {(unsigned char)first, 0x80 | 127, 0, 0, 0, 0, 0,
			(unsigned char)(len >> 16), (unsigned char)(len >> 8), (unsigned char)len};

		client_send(c, large, sizeof large);
	}
	client_send(c, head, head_len);
	client_send(c, "\0\0\0\0", 4);
	client_send(c, payload, len);
}

struct frame {
	unsigned first;
	size_t len;
	char payload[70000];
};

static bool has_frame(struct client *c, size_t *ret_head, size_t *ret_len)
{
	unsigned char head[4];

	client_poll(c);
	if (evbuffer_copyout(c->in, head, sizeof head) < 2) {
		return false;
	}
	assert_int_equal(head[1] & 0x80, 0); /* a server masks nothing */
	assert_int_not_equal(head[1], 127);
	*ret_head = head[1] == 126 ? 4 : 2;
	*ret_len = head[1] == 126 ? (size_t)head[2] << 8 | head[3] : head[1];
	return evbuffer_get_length(c->in) >= *ret_head + *ret_len;
}

/* The next one; fails the test when none comes. Valid until the next call. */
static struct frame *next_frame(struct client *c)
{
	static struct frame frame;
	size_t head_len = 0;
	size_t len = 0;
	unsigned char first = 0;

	WORLD_UNTIL(h->w, has_frame(c, &head_len, &len) || c->is_eof);
	if (!has_frame(c, &head_len, &len)) {
		fail_msg("the connection ended without a frame");
	}
	evbuffer_copyout(c->in, &first, 1);
	evbuffer_drain(c->in, head_len);
	evbuffer_remove(c->in, frame.payload, len);
	frame.payload[len] = '\0';
	frame.first = first;
	frame.len = len;
	return &frame;
}

static void expect_binary(struct client *c, const char *bytes, size_t len)
{
	size_t got = 0;

	while (got < len) {
		struct frame *frame = next_frame(c);

		assert_int_equal(frame->first, FIN | BINARY);
		assert_true(frame->len <= len - got);
		assert_memory_equal(frame->payload, bytes + got, frame->len);
		got += frame->len;
	}
}

static void expect_text(struct client *c, const char *part)
{
	struct frame *frame = next_frame(c);

	assert_int_equal(frame->first, FIN | TEXT);
	if (!strstr(frame->payload, part)) {
		fail_msg("no %s in %s", part, frame->payload);
	}
}

/* A goodbye with @code (0: without one) is the last that comes. */
static void expect_close(struct client *c, unsigned code)
{
	struct frame *frame = next_frame(c);
	unsigned got = frame->len >= 2 ? (unsigned)(unsigned char)frame->payload[0] << 8 |
						 (unsigned char)frame->payload[1]
				       : 0;

	assert_int_equal(frame->first, FIN | CLOSE);
	if (got != code) {
		fail_msg("closed with %u, not %u: %s", got, code, frame->payload + 2);
	}
	WORLD_UNTIL(h->w, (client_poll(c), c->is_eof));
	assert_int_equal(evbuffer_get_length(c->in), 0);
}

static void expect_over(struct client *c)
{
	WORLD_UNTIL(h->w, http_server_pending(h->server) == 0);
	client_free(c);
	WORLD_UNTIL(h->w, h->server->tcp.conn_count == 0);
}

/* With a shell at the other end. */
static struct client *converse(void)
{
	struct client *c = client_new(h);
	struct answer *a;

	client_request(c, "GET", http_files_at("/pty"), h->key, handshake(), NULL, NULL, 0);
	a = client_answer(c, true);
	assert_int_equal(a->status, 101);
	answer_free(a);
	expect_text(c, "\"start\"");
	return c;
}

/* ---- handshakes ---- */

static void test_a_handshake_is_answered(void **state)
{
	struct client *c = client_new(h);
	struct answer *a;

	(void)state;
	client_request(c, "GET", http_files_at("/pty"), h->key, handshake(), NULL, NULL, 0);
	/* What comes right behind it is not lost. */
	send_frame(c, FIN | BINARY, "early", 5);
	a = client_answer(c, true);
	assert_int_equal(a->status, 101);
	/* The example of RFC 6455. */
	assert_string_equal(
		answer_header(a, "Sec-WebSocket-Accept"), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
	assert_string_equal(answer_header(a, "Sec-WebSocket-Protocol"), "paddock.pty.v1");
	assert_string_equal(answer_header(a, "Upgrade"), "websocket");
	assert_string_equal(answer_header(a, "Connection"), "Upgrade");
	assert_null(answer_header(a, "Content-Length"));
	assert_null(answer_header(a, "Transfer-Encoding"));
	answer_free(a);
	expect_text(c, "\"start\"");
	expect_binary(c, "early", 5);
	client_free(c);
}

#define HOST     " HTTP/1.1\r\nHost: localhost\r\n"
#define KEY      "Authorization: Bearer $KEY\r\n"
#define UPGRADE  "Upgrade: websocket\r\n"
#define CONN     "Connection: keep-alive, Upgrade\r\n"
#define VERSION  "Sec-WebSocket-Version: 13\r\n"
#define NONCE    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
#define PROTOCOL "Sec-WebSocket-Protocol: other, paddock.pty.v1\r\n"
#define REST     VERSION NONCE PROTOCOL "\r\n"
#define PTY      "GET /v1/sandboxes/$ID/pty"

static const struct {
	const char *bytes;
	int status;
	const char *says;
} handshakes[] = {
	{PTY HOST KEY UPGRADE CONN REST, 101, NULL},
	{PTY HOST KEY "upgrade: WebSocket\r\nconnection: upgrade\r\n" REST, 101, NULL},
	{PTY HOST KEY "\r\n", 426, "WebSocket"},
	{PTY HOST KEY CONN REST, 426, "WebSocket"},
	{PTY HOST KEY UPGRADE REST, 426, "WebSocket"},
	{PTY HOST KEY UPGRADE "Connection: close\r\n" REST, 426, "WebSocket"},
	{PTY HOST KEY "Upgrade: h2c\r\n" CONN REST, 426, "WebSocket"},
	{PTY HOST KEY UPGRADE UPGRADE CONN REST, 400, "Upgrade is given twice"},
	{PTY " HTTP/1.0\r\nHost: localhost\r\n" KEY UPGRADE CONN REST, 426, "WebSocket"},
	{PTY HOST KEY UPGRADE CONN NONCE PROTOCOL "\r\n", 426, "Version must be 13"},
	{PTY HOST KEY UPGRADE CONN NONCE PROTOCOL "Sec-WebSocket-Version: 8\r\n\r\n", 426,
		"Version must be 13"},
	{PTY HOST KEY UPGRADE CONN VERSION PROTOCOL "\r\n", 400, "16 bytes"},
	{PTY HOST KEY UPGRADE CONN VERSION PROTOCOL "Sec-WebSocket-Key: AAAA\r\n\r\n", 400,
		"16 bytes"},
	{PTY HOST KEY UPGRADE CONN VERSION PROTOCOL
		"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAAAA\r\n\r\n",
		400, "16 bytes"},
	{PTY HOST KEY UPGRADE CONN VERSION PROTOCOL
		"Sec-WebSocket-Key: !AAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
		400, "16 bytes"},
	{PTY HOST KEY UPGRADE CONN VERSION PROTOCOL NONCE NONCE "\r\n", 400, "given twice"},
	{PTY HOST KEY UPGRADE CONN VERSION NONCE "\r\n", 400, "must offer paddock.pty.v1"},
	{PTY HOST KEY UPGRADE CONN VERSION NONCE "Sec-WebSocket-Protocol: paddock.pty.v2\r\n\r\n",
		400, "must offer paddock.pty.v1"},
	{PTY HOST UPGRADE CONN REST, 401, NULL},
	{PTY HOST KEY "Origin: https://evil.example\r\n" UPGRADE CONN REST, 403, "Origin"},
	{PTY " HTTP/1.1\r\nHost: evil.example\r\n" KEY UPGRADE CONN REST, 403, "Host"},
	{PTY "?nonsense=1" HOST KEY UPGRADE CONN REST, 400, "nonsense"},
	{PTY "?exec=ex_none" HOST KEY UPGRADE CONN REST, 404, "ex_none"},
	{"GET /v1/sandboxes/sb_none/pty" HOST KEY UPGRADE CONN REST, 404, "sb_none"},
	{"POST /v1/sandboxes/$ID/pty" HOST KEY UPGRADE CONN REST, 405, "this path takes GET"},
	{PTY HOST KEY UPGRADE CONN "Content-Length: 5\r\n" REST, 400, "takes no body"},
};

static void add_expanded(struct evbuffer *out, const char *text)
{
	while (*text) {
		if (strncmp(text, "$KEY", 4) == 0) {
			evbuffer_add_printf(out, "%s", h->key);
			text += 4;
		} else if (strncmp(text, "$ID", 3) == 0) {
			evbuffer_add_printf(out, "%s", http_files_id);
			text += 3;
		} else {
			evbuffer_add(out, text++, 1);
		}
	}
}

static void test_odd_handshakes_are_refused(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(handshakes); i++) {
		struct client *c = client_new(h);
		struct evbuffer *bytes = evbuffer_new();

		add_expanded(bytes, handshakes[i].bytes);
		client_send(c, evbuffer_pullup(bytes, -1), evbuffer_get_length(bytes));
		evbuffer_free(bytes);
		struct answer *a = client_answer(c, handshakes[i].status == 101);

		if (a->status != handshakes[i].status) {
			fail_msg(
				"%zu: %d, not %d: %s", i, a->status, handshakes[i].status, a->body);
		}
		if (a->status != 101) {
			assert_null(http_check_error(a));
		}
		if (a->status == 426) {
			assert_string_equal(answer_header(a, "Upgrade"), "websocket");
			assert_string_equal(answer_header(a, "Sec-WebSocket-Version"), "13");
		}
		if (handshakes[i].says &&
			!strstr(answer_text(a, "error.message"), handshakes[i].says)) {
			fail_msg("%zu: %s", i, a->body);
		}
		answer_free(a);
		client_free(c);
	}
	WORLD_UNTIL(h->w, TAILQ_EMPTY(&h->server->conns));
}

/* A page of another site can't ask with the browser's cookies: there are none, and its Origin is
 * refused. A listed one may. */
static void test_a_listed_origin_may_converse(void **state)
{
	char *origins[] = {(char *)"https://tools.example", NULL};
	const struct http_config config = {.allowed_origins = origins};
	struct client *c;
	_cleanup_free_ char *more = xasprintf("%sOrigin: https://tools.example\r\n", handshake());

	(void)state;
	http_world_free(h);
	h = http_world_new(&config);
	http_files_id = http_running(h, NULL);
	c = client_new(h);
	client_request(c, "GET", http_files_at("/pty"), h->key, more, NULL, NULL, 0);
	struct answer *a = client_answer(c, true);

	assert_int_equal(a->status, 101);
	answer_free(a);
	client_free(c);
}

/* ---- messages ---- */

static void test_messages_go_both_ways(void **state)
{
	struct client *c = converse();
	static char large[OP_SOCKET_MESSAGE_MAX_BYTES];

	(void)state;
	send_frame(c, FIN | BINARY, "hello", 5);
	expect_binary(c, "hello", 5);
	/* In fragments, with a ping between. */
	send_frame(c, BINARY, "fr", 2);
	send_frame(c, FIN | PING, "?", 1);
	send_frame(c, FIN, "ag", 2);
	assert_int_equal(next_frame(c)->first, FIN | PONG);
	expect_binary(c, "frag", 4);
	memset(large, 'x', sizeof large);
	send_frame(c, FIN | BINARY, large, sizeof large);
	expect_binary(c, large, sizeof large);
	send_frame(c, FIN | BINARY, "\4", 1);
	expect_text(c, "\"exit\"");
	expect_close(c, 1000);
	expect_over(c);
}

static void test_single_bytes_make_messages(void **state)
{
	struct client *c = converse();
	static const char frames[] = "\x82\x83\0\0\0\0abc\x82\x81\0\0\0\0d";

	(void)state;
	for (size_t i = 0; i < sizeof frames - 1; i++) {
		client_send(c, frames + i, 1);
		world_turn(h->w);
	}
	expect_binary(c, "abcd", 4);
	client_free(c);
}

/* ---- ends ---- */

static void test_a_goodbye_is_answered(void **state)
{
	static const struct {
		const char *payload;
		size_t len;
		unsigned code;
	} goodbyes[] = {{"\x03\xe8", 2, 1000}, {"", 0, 0}, {"\x0f\xa0own", 5, 4000}};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(goodbyes); i++) {
		struct client *c = converse();

		send_frame(c, FIN | CLOSE, goodbyes[i].payload, goodbyes[i].len);
		/* What follows a goodbye means nothing. */
		send_frame(c, FIN | BINARY, "\4", 1);
		expect_close(c, goodbyes[i].code);
		expect_over(c);
	}
}

#define HOSTILE(bytes, code)                                                                       \
	{                                                                                          \
		bytes, sizeof(bytes) - 1, code                                                     \
	}
static const struct {
	const char *bytes;
	size_t len;
	unsigned code;
} hostile[] = {
	HOSTILE("\x82\x03"
		"abc",
		1002),                      /* no mask */
	HOSTILE("\xc2\x81\0\0\0\0a", 1002), /* reserved bits */
	HOSTILE("\xa2\x81\0\0\0\0a", 1002),
	HOSTILE("\x92\x81\0\0\0\0a", 1002),
	HOSTILE("\x83\x81\0\0\0\0a", 1002), /* unknown kinds */
	HOSTILE("\x8b\x81\0\0\0\0a", 1002),
	HOSTILE("\x80\x81\0\0\0\0a", 1002),                  /* goes on with nothing */
	HOSTILE("\x02\x81\0\0\0\0a\x81\x81\0\0\0\0b", 1002), /* one within another */
	HOSTILE("\x09\x81\0\0\0\0a", 1002),                  /* a ping in fragments */
	HOSTILE("\x88\x81\0\0\0\0a", 1002),                  /* half a code */
	HOSTILE("\x88\x82\0\0\0\0\x03\xed", 1002),           /* a code that nobody sends */
	HOSTILE("\x88\x83\0\0\0\0\x03\xe8\xff", 1007),       /* a reason that is no text */
	HOSTILE("\x81\x82\0\0\0\0a\xff", 1007),              /* text that is none */
	HOSTILE("\x81\x83\0\0\0\0\xed\xa0\x80", 1007),
	HOSTILE("\x82\xff\0\0\0\0\0\1\0\1\0\0\0\0a", 1009), /* 64 KiB and one */
	HOSTILE("\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff\0\0\0\0a", 1009),
	HOSTILE("\x82\xfe\0\1\0\0\0\0a", 1002), /* a length in a longer form */
	HOSTILE("\x81\x81\0\0\0\0{", 1008),     /* words that the shell has not */
	HOSTILE("GET / HTTP/1.1\r\n\r\n", 1002),
};

static void test_what_no_client_may_send_ends_it(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(hostile); i++) {
		struct client *c = converse();

		client_send(c, hostile[i].bytes, hostile[i].len);
		expect_close(c, hostile[i].code);
		expect_over(c);
	}
}

static void test_clients_that_leave_are_seen(void **state)
{
	(void)state;
	for (int i = 0; i < 3; i++) {
		struct client *c = converse();

		if (i == 0) {
			client_free(c);
		} else if (i == 1) {
			client_reset(c);
		} else {
			shutdown(c->fd, SHUT_WR);
			WORLD_UNTIL(h->w, (client_poll(c), c->is_eof));
			client_free(c);
		}
		WORLD_UNTIL(h->w, http_server_pending(h->server) == 0);
		WORLD_UNTIL(h->w, TAILQ_EMPTY(&h->server->conns));
	}
}

/* The clock is moved, and the server looks at it with its next turn. */
static void advance(unsigned seconds)
{
	clock_test_advance(seconds * MS_PER_SECOND, 0);
	http_conn_turn(TAILQ_FIRST(&h->server->conns));
}

static void test_a_silent_client_is_pinged_and_left(void **state)
{
	struct client *c = converse();

	(void)state;
	world_run(h->w, 20);
	for (int i = 0; i < 3; i++) {
		advance(31);
		assert_int_equal(next_frame(c)->first, FIN | PING);
		send_frame(c, FIN | PONG, "", 0);
		world_run(h->w, 20);
	}
	advance(29);
	world_run(h->w, 20);
	client_poll(c);
	assert_int_equal(evbuffer_get_length(c->in), 0);
	advance(2);
	assert_int_equal(next_frame(c)->first, FIN | PING);
	advance(31);
	WORLD_UNTIL(h->w, (client_poll(c), c->is_eof));
	expect_over(c);
}

static void test_the_service_says_goodbye_when_it_stops(void **state)
{
	struct client *c = converse();

	(void)state;
	http_server_stop(h->server);
	expect_close(c, 1001);
	expect_over(c);
}

/* ---- a client that doesn't read ---- */

static void test_what_is_unsent_is_bounded(void **state)
{
	static char block[60000];
	struct client *c;
	size_t sent = 0;

	(void)state;
	WORLD_UNTIL(h->w, TAILQ_EMPTY(&h->server->conns));
	c = converse();
	memset(block, 'x', sizeof block);
	struct http_conn *conn = TAILQ_FIRST(&h->server->conns);

	/* Each is echoed; nobody reads that. */
	for (unsigned idle = 0; idle < 100 && sent < 64u << 20; idle++) {
		static const char head[] = "\x82\xfe\xea\x60\0\0\0\0";
		static struct evbuffer *out;

		out = out ? out : evbuffer_new();
		if (evbuffer_get_length(out) == 0) {
			evbuffer_add(out, head, sizeof head - 1);
			evbuffer_add(out, block, sizeof block);
		}
		int n = evbuffer_write(out, c->fd);

		if (n > 0) {
			sent += (size_t)n;
			idle = 0;
		}
		world_turn(h->w);
		assert_in_range(evbuffer_get_length(conn->link.out), 0, 256 * 1024);
		assert_in_range(evbuffer_get_length(conn->link.in), 0, 64 * 1024);
	}
	client_reset(c);
	WORLD_UNTIL(h->w, TAILQ_EMPTY(&h->server->conns));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, http_files_set_up, http_tear_down)
		T(test_a_handshake_is_answered),
		T(test_odd_handshakes_are_refused),
		T(test_a_listed_origin_may_converse),
		T(test_messages_go_both_ways),
		T(test_single_bytes_make_messages),
		T(test_a_goodbye_is_answered),
		T(test_what_no_client_may_send_ends_it),
		T(test_clients_that_leave_are_seen),
		T(test_a_silent_client_is_pinged_and_left),
		T(test_the_service_says_goodbye_when_it_stops),
		T(test_what_is_unsent_is_bounded),
#undef T
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
