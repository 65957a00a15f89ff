#include "tests/lib/http_check.h"
#include "tests/lib/http_files.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/xalloc.h"

/* Senders that stop, or that take their time: each ends with a time-out of ours, and leaves
 * nothing. */

static int set_up(void **state)
{
	const struct http_config config = {.idle_timeout_s = 1, .stall_timeout_s = 4};

	(void)state;
	h = http_world_new(&config);
	http_files_id = http_running(h, NULL);
	return 0;
}

/* @text with the key for $KEY and the sandbox for $ID. */
static char *expand(const char *text)
{
	struct evbuffer *out = evbuffer_new();
	char *ret;

	while (*text) {
		bool is_key = strncmp(text, "$KEY", 4) == 0;
		bool is_id = strncmp(text, "$ID", 3) == 0;

		if (is_key || is_id) {
			evbuffer_add_printf(out, "%s", is_key ? h->key : http_files_id);
			text += is_key ? 4 : 3;
		} else {
			evbuffer_add(out, text++, 1);
		}
	}
	evbuffer_add(out, "", 1);
	ret = xstrdup((const char *)evbuffer_pullup(out, -1));
	evbuffer_free(out);
	return ret;
}

static struct client *client_with(const char *text)
{
	struct client *c = client_new(h);
	_cleanup_free_ char *bytes = expand(text);

	client_send(c, bytes, strlen(bytes));
	return c;
}

static void expect_timeout(struct client *c)
{
	struct answer *a = client_answer(c, false);

	assert_int_equal(a->status, 504);
	assert_string_equal(answer_text(a, "error.type"), "timeout");
	assert_null(http_check_error(a));
	answer_free(a);
	WORLD_UNTIL(h->w, (client_poll(c), c->is_eof));
	client_free(c);
}

#define POST                                                                                       \
	"POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer $KEY\r\n"         \
	"Content-Type: application/json\r\n"
#define PUT                                                                                        \
	"PUT /v1/sandboxes/$ID/files?path=/x HTTP/1.1\r\nHost: localhost\r\n"                      \
	"Authorization: Bearer $KEY\r\nContent-Type: application/octet-stream\r\n"
#define EXEC                                                                                       \
	"POST /v1/sandboxes/$ID/exec?command=cat HTTP/1.1\r\nHost: localhost\r\n"                  \
	"Authorization: Bearer $KEY\r\nContent-Type: application/octet-stream\r\n"                 \
	"Accept: text/event-stream\r\n"
#define CHUNKED "Transfer-Encoding: chunked\r\n\r\n"

static void test_senders_that_stop_are_left(void **state)
{
	static const char *const parts[] = {
		"",
		"P",
		"POST /v1/sandboxes HTTP/1.1",
		"POST /v1/sandboxes HTTP/1.1\r\nHo",
		POST "Content-Length: 10\r\n",
		POST "Content-Length: 10\r\n\r\n",
		POST "Content-Length: 10\r\n\r\n{\"wait\"",
		POST CHUNKED,
		POST CHUNKED "a\r\n{",
		POST CHUNKED "7ffffffffffffff\r\n{}",
		POST CHUNKED "2\r\n{}\r\n",
		POST CHUNKED "2\r\n{}\r\n0\r\nX-A",
		PUT "Content-Length: 1000000000000\r\n\r\nabc",
		PUT CHUNKED "3\r\nabc\r\n",
		PUT CHUNKED "3\r\nabc\r\n0\r\n",
	};
	struct client *clients[ARRAY_SIZE(parts)];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		clients[i] = client_with(parts[i]);
	}
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		struct client *c = clients[i];

		WORLD_UNTIL(h->w, (client_poll(c), c->is_eof));
		assert_int_equal(evbuffer_get_length(c->in), 0);
		client_free(c);
	}
	assert_int_equal(http_server_pending(h->server), 0);
	WORLD_UNTIL(h->w, fake_guest_call_count(h->w->guests) == 0);
	assert_int_equal(http_get(h, NULL, "/healthz")->status, 200);
	assert_int_equal(sandboxes_count(h->w->all), 1);
	/* None was taken for whole. */
	assert_int_equal(http_files_get("/files?path=/x")->status, 404);
}

/* ---- less than the idle time between two bytes, and no end in sight ---- */

static void test_drops_of_a_head_do_not_keep_a_connection(void **state)
{
	struct client *c = client_with("GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-A: ");

	(void)state;
	world_run(h->w, 50);
	clock_test_advance(21 * 1000, 0);
	client_send(c, "a", 1);
	expect_timeout(c);
}

static void test_drops_of_json_do_not_keep_a_connection(void **state)
{
	struct client *c = client_with(POST "Content-Length: 100\r\n\r\n{");

	(void)state;
	world_run(h->w, 50);
	clock_test_advance(601 * 1000, 0);
	client_send(c, " ", 1);
	expect_timeout(c);
}

static void test_drops_of_a_file_do_not_keep_a_connection(void **state)
{
	struct client *c = client_with(PUT "Content-Length: 100000\r\n\r\nabc");

	(void)state;
	WORLD_UNTIL(h->w, fake_guest_call_count(h->w->guests) == 1);
	world_run(h->w, 50);
	clock_test_advance(121 * 1000, 0);
	client_send(c, "d", 1);
	expect_timeout(c);
	WORLD_UNTIL(h->w, fake_guest_call_count(h->w->guests) == 0);
	assert_int_equal(http_files_get("/files?path=/x")->status, 404);
}

/* What somebody types while the command writes: there is no saying how fast that comes. */
static void test_drops_of_a_streaming_commands_input_are_input(void **state)
{
	const struct http_config usual = {.idle_timeout_s = 0};
	static const char line[] = "5\r\nline\n\r\n";
	struct client *c;
	struct answer *a;

	(void)state;
	h->config = usual;
	http_world_restart(h);
	c = client_with(EXEC CHUNKED);
	for (int i = 0; i < 10; i++) {
		world_run(h->w, 20);
		clock_test_advance(50 * 1000, 0);
		world_run(h->w, 20);
		client_poll(c);
		client_send(c, line, sizeof line - 1);
	}
	client_send(c, "0\r\n\r\n", 5);
	a = client_answer(c, false);
	assert_int_equal(a->status, 200);
	assert_false(a->is_cut);
	assert_non_null(strstr(a->body, "event: exit"));
	answer_free(a);
	client_free(c);
}

/* Who pages through a stream reads nothing for a while; who has gone to sleep over it is cut. */
static void test_a_stream_waits_for_its_reader(void **state)
{
	static const char command[] =
		"POST /v1/sandboxes/$ID/exec HTTP/1.1\r\nHost: localhost\r\nx-api-key: $KEY\r\n"
		"Content-Type: application/json\r\nAccept: text/event-stream\r\n"
		"Content-Length: 28\r\n\r\n{\"command\":\"bytes 30000000\"}";
	struct client *patient = client_with(command);
	struct client *asleep = client_with(command);
	struct answer *a;

	(void)state;
	world_run(h->w, 2000); /* beyond the idle time-out, within the other */
	a = client_answer(patient, false);
	assert_int_equal(a->status, 200);
	assert_false(a->is_cut);
	assert_non_null(strstr(a->body, "event: exit"));
	answer_free(a);
	client_free(patient);
	WORLD_UNTIL(h->w, fake_guest_call_count(h->w->guests) == 0);
	a = client_answer(asleep, false);
	assert_true(a->is_cut);
	assert_null(strstr(a->body, "event: exit"));
	answer_free(a);
	client_free(asleep);
}

/* A line that is merely slow: some KiB a minute are a body like any other. */
static void test_a_slow_line_is_enough(void **state)
{
	struct client *c = client_with(PUT "Content-Length: 20000\r\n\r\n");
	char bytes[1000] = "";
	struct answer *a;

	(void)state;
	for (int i = 0; i < 20; i++) {
		world_run(h->w, 20);
		clock_test_advance(55 * 1000, 0);
		client_send(c, bytes, sizeof bytes);
	}
	a = client_answer(c, false);
	assert_int_equal(a->status, 200);
	answer_free(a);
	client_free(c);
}

/* One byte a piece, but steadily: it is a request like any other. */
static void test_single_bytes_make_a_request(void **state)
{
	static const char *const requests[] = {
		POST "Content-Length: 10\r\n\r\n{\"wait\":1}",
		POST CHUNKED "a\r\n{\"wait\":1}\r\n0\r\n\r\n",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(requests); i++) {
		_cleanup_free_ char *text = expand(requests[i]);
		struct client *c = client_new(h);
		struct answer *a;

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
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, http_tear_down)
		T(test_senders_that_stop_are_left),
		T(test_drops_of_a_head_do_not_keep_a_connection),
		T(test_drops_of_json_do_not_keep_a_connection),
		T(test_drops_of_a_file_do_not_keep_a_connection),
		T(test_drops_of_a_streaming_commands_input_are_input),
		T(test_a_stream_waits_for_its_reader),
		T(test_a_slow_line_is_enough),
		T(test_single_bytes_make_a_request),
#undef T
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
