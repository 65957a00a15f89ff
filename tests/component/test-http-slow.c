#include "tests/lib/http_check.h"
#include "tests/lib/http_fixture.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/xalloc.h"

/* Senders that stop, or that take their time: each ends with a time-out of ours, and leaves
 * nothing. */

#define HEAD "POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"

static int set_up(void **state)
{
	const struct http_config config = {.idle_timeout_s = 1};

	(void)state;
	h = http_world_new(&config);
	return 0;
}

static void test_senders_that_stop_are_left(void **state)
{
	static const char *const parts[] = {
		"",
		"P",
		"POST /v1/sandboxes HTTP/1.1",
		"POST /v1/sandboxes HTTP/1.1\r\nHo",
		HEAD "Content-Length: 10\r\n",
		HEAD "Content-Length: 10\r\n\r\n",
		HEAD "Content-Length: 10\r\n\r\n{\"wait\"",
		HEAD "Content-Length: 99999999999999999999\r\n\r\n{}",
		HEAD "Content-Length: 1000000000000\r\n\r\n{}",
		HEAD "Transfer-Encoding: chunked\r\n\r\n",
		HEAD "Transfer-Encoding: chunked\r\n\r\na\r\n{",
		HEAD "Transfer-Encoding: chunked\r\n\r\n7fffffffffffffff\r\n{}",
		HEAD "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n",
		HEAD "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX-A",
		"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-A: b\n c",
	};
	struct client *clients[ARRAY_SIZE(parts)];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		clients[i] = client_new(h);
		client_send(clients[i], parts[i], strlen(parts[i]));
	}
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		struct client *c = clients[i];

		WORLD_UNTIL(h->w, (client_poll(c), c->is_eof));
		assert_int_equal(evbuffer_get_length(c->in), 0);
		client_free(c);
	}
	assert_int_equal(http_server_pending(h->server), 0);
	assert_int_equal(http_get(h, NULL, "/healthz")->status, 200);
	assert_int_equal(sandboxes_count(h->w->all), 0);
}

/* Less than the idle time between two bytes, and no end in sight. */
static void test_drops_do_not_keep_a_connection_for_ever(void **state)
{
	static const char start[] = HEAD "Content-Length: 100\r\n\r\n{";
	struct client *c = client_new(h);
	struct answer *a;

	(void)state;
	client_send(c, start, sizeof start - 1);
	world_run(h->w, 50);
	clock_test_advance(601 * 1000, 0);
	client_send(c, " ", 1);
	a = client_answer(c, false);
	assert_int_equal(a->status, 504);
	assert_string_equal(answer_text(a, "error.type"), "timeout");
	assert_null(http_check_error(a));
	answer_free(a);
	WORLD_UNTIL(h->w, (client_poll(c), c->is_eof));
	client_free(c);
}

/* One byte a piece, but steadily: it is a request like any other. */
static void test_single_bytes_make_a_request(void **state)
{
	_cleanup_free_ char *text = xasprintf(
		"%sAuthorization: Bearer %s\r\nContent-Length: 10\r\n\r\n{\"wait\":1}", HEAD,
		h->key);
	struct client *c = client_new(h);
	struct answer *a;

	(void)state;
	for (const char *byte = text; *byte; byte++) {
		client_send(c, byte, 1);
		world_turn(h->w);
	}
	a = client_answer(c, false);
	assert_int_equal(a->status, 400);
	assert_non_null(strstr(answer_text(a, "error.message"), "\"wait\""));
	answer_free(a);
	client_free(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, http_tear_down)
		T(test_senders_that_stop_are_left),
		T(test_drops_do_not_keep_a_connection_for_ever),
		T(test_single_bytes_make_a_request),
#undef T
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
