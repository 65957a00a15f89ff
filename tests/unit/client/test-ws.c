#include "ws_server.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/xalloc.h"

#define TEXT   0x81
#define BINARY 0x82
#define CLOSE  0x88
#define PING   0x89

static const struct api_row row = {.name = "test",
	.method = API_GET,
	.path = "/v1/sandboxes/{id}/pty",
	.subprotocol = "test.v1"};

/* One end of a conversation, and what it heard: "text:…;binary:…;". */
struct end {
	struct rest_client *client;
	struct ws *ws;
	struct rest_response response;
	struct buffer heard;
	size_t messages;
	size_t bytes;
	bool gives_up;
};

static int on_message(void *arg, bool is_text, const char *data, size_t len)
{
	struct end *end = arg;

	end->messages++;
	end->bytes += len;
	if (len < 1000) {
		buffer_add_text(&end->heard, is_text ? "text:" : "binary:");
		buffer_add(&end->heard, data, len);
		buffer_add_text(&end->heard, ";");
	}
	return end->gives_up ? -1 : 0;
}

static struct ws *end_open(struct end *end, struct err *err)
{
	_cleanup_json_ json_object *query = json_tokener_parse("{\"rows\":24,\"command\":\"a b\"}");
	struct rest_request request = {.row = &row, .id = "a/b", .query = query};

	memset(end, 0, sizeof *end);
	*err = ERR_INIT;
	end->client = ws_server_client();
	end->ws = ws_open(end->client, &request, on_message, end, &end->response, err);
	return end->ws;
}

static void end_close(struct end *end)
{
	ws_free(end->ws);
	end->ws = NULL;
	rest_client_free(end->client);
	rest_response_fini(&end->response);
	buffer_fini(&end->heard);
	ws_server_stop();
}

/* Turns until @messages were heard, 0: until it fails. */
static int end_turn(struct end *end, size_t messages, struct err *err)
{
	uint64_t until = clock_monotonic_ms() + 20000;

	*err = ERR_INIT;
	while (messages == 0 || end->messages < messages) {
		struct pollfd fd;
		int timeout = -1;

		if (ws_turn(end->ws, err) != 0) {
			return -1;
		}
		ws_poll(end->ws, &fd, &timeout);
		assert_true(clock_monotonic_ms() < until);
		if (messages == 0 || end->messages < messages) {
			poll(&fd, 1, MIN(timeout, 1000));
		}
	}
	return 0;
}

static void test_messages_go_both_ways(void **state)
{
	static const int families[] = {AF_INET, AF_UNIX};
	struct end end;
	struct err err;

	for (size_t i = 0; i < ARRAY_SIZE(families); i++) {
		ws_server_sends(TEXT, "{\"start\":1}", 11);
		ws_server_sends(BINARY, "\0\xff", 2);
		ws_server_start(families[i]);
		assert_non_null(end_open(&end, &err));
		assert_ok(end_turn(&end, 2, &err), &err);
		assert_int_equal(end.heard.len, strlen("text:{\"start\":1};binary:??;"));
		assert_memory_equal(
			end.heard.data, "text:{\"start\":1};binary:\0\xff;", end.heard.len);
		ws_send(end.ws, true, "hello", 5);
		ws_send(end.ws, false, "", 0);
		ws_close(end.ws, 20000);
		end_close(&end);
		assert_string_equal(peer.frames.data, "text:hello;binary:;close:\x03\xe8;");
		assert_false(peer.has_unmasked);
		assert_non_null(strstr(peer.head.data,
			"GET /v1/sandboxes/a%2Fb/pty?rows=24&command=a%20b HTTP/1.1\r\n"));
		assert_true(!strstr(peer.head.data, "pdk_secret") == (families[i] == AF_UNIX));
		ws_server_tear_down(state);
		ws_server_set_up(state);
	}
}

static void test_the_host_is_named_with_its_port(void **state)
{
	struct end end;
	struct err err;

	(void)state;
	ws_server_start(AF_INET);
	assert_non_null(end_open(&end, &err));
	end_close(&end);
	_cleanup_free_ char *host = xasprintf("\r\nHost: 127.0.0.1:%u\r\n", peer.port);
	assert_non_null(strstr(peer.head.data, host));
}

static void test_pieces_of_a_message_are_put_together(void **state)
{
	struct end end;
	struct err err;

	(void)state;
	ws_server_sends(0x02, "ab", 2);
	ws_server_sends(PING, "now", 3); /* may stand between */
	ws_server_sends(0x00, "cd", 2);
	ws_server_sends(0x80, "ef", 2);
	ws_server_start(AF_INET);
	assert_non_null(end_open(&end, &err));
	assert_ok(end_turn(&end, 1, &err), &err);
	assert_string_equal(end.heard.data, "binary:abcdef;");
	ws_close(end.ws, 20000);
	end_close(&end);
	assert_string_equal(peer.frames.data, "pong:now;close:\x03\xe8;");
}

static void test_a_refusal_is_the_services_word(void **state)
{
	static const char *const answers[] = {
		"HTTP/1.1 429 x\r\nX-Request-Id: rq_1\r\nContent-Length: 70\r\n\r\n"
		"{\"error\":{\"type\":\"rate_limited\",\"message\":\"too many shells, so wait\"}}"
		"and more",
		"HTTP/1.1 429 x\r\nX-Request-Id: rq_1\r\nConnection: close\r\n\r\n"
		"{\"error\":{\"type\":\"rate_limited\",\"message\":\"too many shells, so wait\"}}",
	};
	struct end end;
	struct err err;

	for (size_t i = 0; i < ARRAY_SIZE(answers); i++) {
		peer.refusal = answers[i];
		peer.leaves = true;
		ws_server_start(AF_INET);
		assert_null(end_open(&end, &err));
		assert_int_equal(err.kind, ERR_RATE);
		assert_string_equal(err.msg, "too many shells, so wait");
		assert_int_equal(end.response.status, 429);
		assert_string_equal(end.response.request_id, "rq_1");
		end_close(&end);
		ws_server_tear_down(state);
		ws_server_set_up(state);
	}
}

static void test_what_answers_otherwise_is_told(void **state)
{
	static const char *const answers[] = {"", "HTTP/1.1 101 x\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", "HTTP/1.1 502 x\r\n\r\n<html>",
		"220 smtp\r\n\r\n",
		"HTTP/1.1 101 x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
		"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"
		"Sec-WebSocket-Protocol: test.v1\r\n\r\n"};
	struct end end;
	struct err err;

	for (size_t i = 0; i < ARRAY_SIZE(answers); i++) {
		peer.refusal = answers[i];
		peer.leaves = true;
		ws_server_start(AF_INET);
		assert_null(end_open(&end, &err));
		assert_true(err.kind == ERR_UNAVAILABLE || err.kind == ERR_INTERNAL);
		end_close(&end);
		ws_server_tear_down(state);
		ws_server_set_up(state);
	}
}

static void test_an_endless_head_is_cut(void **state)
{
	_cleanup_free_ char *head = xcalloc(1, 100000);
	struct end end;
	struct err err;

	(void)state;
	memset(head, 'x', 99999);
	peer.refusal = head;
	peer.leaves = true;
	ws_server_start(AF_INET);
	assert_null(end_open(&end, &err));
	assert_int_equal(err.kind, ERR_UNAVAILABLE);
	end_close(&end);
}

static void test_a_service_that_can_not_be_reached_is_named(void **state)
{
	struct end end;
	struct err err;

	(void)state;
	peer.port = 1;
	assert_null(end_open(&end, &err));
	assert_int_equal(err.kind, ERR_UNAVAILABLE);
	assert_err_says(&err, "http://127.0.0.1:1");
	end_close(&end);
}

static void test_a_cut_is_an_error(void **state)
{
	struct end end;
	struct err err;

	(void)state;
	ws_server_sends(BINARY, "half", 4);
	peer.sends.len--;
	peer.leaves = true;
	ws_server_start(AF_INET);
	assert_non_null(end_open(&end, &err));
	assert_err(end_turn(&end, 0, &err), &err, ERR_UNAVAILABLE);
	assert_err_says(&err, "broke off");
	assert_int_equal(end.messages, 0);
	end_close(&end);
}

static void test_a_goodbye_has_its_reason(void **state)
{
	struct end end;
	struct err err;

	(void)state;
	ws_server_sends(TEXT, "last", 4);
	ws_server_sends(CLOSE,
		"\x03\xe9"
		"the service stops",
		19);
	ws_server_start(AF_INET);
	assert_non_null(end_open(&end, &err));
	assert_err(end_turn(&end, 0, &err), &err, ERR_UNAVAILABLE);
	assert_err_says(&err, "the service stops");
	assert_string_equal(end.heard.data, "text:last;");
	end_close(&end);
	assert_string_equal(peer.frames.data, "close:\x03\xe9"
					      "the service stops;");
}

static void test_what_breaks_the_rules_ends_it(void **state)
{
	static const struct {
		unsigned char first;
		const char *data;
		size_t len;
	} wrong[] = {{0x83, "x", 1}, {0xc2, "x", 1}, {TEXT, "\xff\xff", 2}, {0x80, "x", 1},
		{0x09, "x", 1}};
	struct end end;
	struct err err;

	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		ws_server_sends(wrong[i].first, wrong[i].data, wrong[i].len);
		ws_server_start(AF_INET);
		assert_non_null(end_open(&end, &err));
		assert_err(end_turn(&end, 0, &err), &err, ERR_UNAVAILABLE);
		assert_int_equal(end.messages, 0);
		end_close(&end);
		assert_memory_equal(peer.frames.data, "close:", 6);
		ws_server_tear_down(state);
		ws_server_set_up(state);
	}
}

static void test_a_message_has_its_limit(void **state)
{
	static const unsigned char head[] = {0x82, 127, 0, 0, 0, 0, 0, 16, 0, 1, 'x'};
	struct end end;
	struct err err;

	(void)state;
	buffer_add(&peer.sends, head, sizeof head);
	ws_server_start(AF_INET);
	assert_non_null(end_open(&end, &err));
	assert_err(end_turn(&end, 0, &err), &err, ERR_UNAVAILABLE);
	end_close(&end);
	assert_memory_equal(peer.frames.data, "close:\x03\xf1", 8);
}

static void test_a_flood_leaves_the_caller_its_turn(void **state)
{
	struct end end;
	struct err err;
	size_t most = 0;

	(void)state;
	peer.floods = 256;
	ws_server_start(AF_INET);
	assert_non_null(end_open(&end, &err));
	while (end.messages < 256) {
		size_t before = end.bytes;
		struct pollfd fd;
		int timeout = -1;

		assert_ok(ws_turn(end.ws, &err), &err);
		most = MAX(most, end.bytes - before);
		ws_poll(end.ws, &fd, &timeout);
		assert_true(timeout >= 0);
		poll(&fd, 1, timeout);
	}
	assert_int_equal(end.bytes, 256 * 32768);
	assert_true(most <= 128 * 1024);
	ws_close(end.ws, 20000);
	end_close(&end);
}

/* Each ping has to be answered, and it doesn't take the answers. */
static void test_a_peer_that_pings_without_end_is_not_read_on(void **state)
{
	struct end end;
	struct err err;
	struct pollfd fd;
	int timeout = -1;

	(void)state;
	for (int i = 0; i < 1000 * 1000; i++) {
		ws_server_sends(PING, "", 0);
	}
	ws_server_start(AF_UNIX);
	assert_non_null(end_open(&end, &err));
	for (int i = 0; i < 100; i++) {
		assert_ok(ws_turn(end.ws, &err), &err);
	}
	ws_poll(end.ws, &fd, &timeout);
	assert_false(fd.events & POLLIN);
	assert_true(timeout > 0);
	clock_test_advance(WS_SILENCE_MS, 0);
	assert_err(ws_turn(end.ws, &err), &err, ERR_UNAVAILABLE);
	end_close(&end);
}

static void test_a_caller_may_give_up(void **state)
{
	struct end end;
	struct err err;

	(void)state;
	ws_server_sends(TEXT, "one", 3);
	ws_server_sends(TEXT, "two", 3);
	ws_server_start(AF_INET);
	assert_non_null(end_open(&end, &err));
	end.gives_up = true;
	assert_err(end_turn(&end, 0, &err), &err, ERR_CANCELLED);
	assert_string_equal(end.heard.data, "text:one;");
	end_close(&end);
}

static void test_a_goodbye_without_an_answer_has_its_deadline(void **state)
{
	uint64_t begin = clock_monotonic_ms();
	struct end end;
	struct err err;

	(void)state;
	peer.is_deaf = true;
	ws_server_start(AF_INET);
	assert_non_null(end_open(&end, &err));
	ws_close(end.ws, 300);
	assert_true(clock_monotonic_ms() - begin >= 300);
	end_close(&end);
	assert_string_equal(peer.frames.data, "close:\x03\xe8;");
}

static void test_silence_is_asked_about_and_then_believed(void **state)
{
	struct end end;
	struct err err;

	(void)state;
	peer.is_deaf = true;
	ws_server_start(AF_INET);
	assert_non_null(end_open(&end, &err));
	assert_ok(ws_turn(end.ws, &err), &err);
	for (int i = 0; i < 2; i++) {
		clock_test_advance(WS_PING_MS, 0);
		assert_ok(ws_turn(end.ws, &err), &err);
		assert_ok(ws_turn(end.ws, &err), &err);
	}
	clock_test_advance(WS_PING_MS, 0);
	assert_err(ws_turn(end.ws, &err), &err, ERR_UNAVAILABLE);
	assert_err_says(&err, "silent");
	end_close(&end);
	assert_string_equal(peer.frames.data, "ping:;ping:;");
}

#define T(f) cmocka_unit_test_setup_teardown(f, ws_server_set_up, ws_server_tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_messages_go_both_ways),
		T(test_the_host_is_named_with_its_port),
		T(test_pieces_of_a_message_are_put_together),
		T(test_a_refusal_is_the_services_word),
		T(test_what_answers_otherwise_is_told),
		T(test_an_endless_head_is_cut),
		T(test_a_service_that_can_not_be_reached_is_named),
		T(test_a_cut_is_an_error),
		T(test_a_goodbye_has_its_reason),
		T(test_what_breaks_the_rules_ends_it),
		T(test_a_message_has_its_limit),
		T(test_a_flood_leaves_the_caller_its_turn),
		T(test_a_peer_that_pings_without_end_is_not_read_on),
		T(test_a_caller_may_give_up),
		T(test_a_goodbye_without_an_answer_has_its_deadline),
		T(test_silence_is_asked_about_and_then_believed),
	};

	return cmocka_run_group_tests_name("WebSocket", tests, NULL, NULL);
}
