#include "tests/lib/http_world.h"

#include <stdlib.h>
#include <sys/socket.h>

#include "base/xalloc.h"

/* What connections may cost: their number, their silence, the length of their headers. */

static struct http_world *h;
static char path[512];

static const char *at(const char *id, const char *rest)
{
	snprintf(path, sizeof path, "/v1/sandboxes/%s%s", id, rest);
	return path;
}

/* Each test has limits of its own. */
static void set_up(const struct http_config *config)
{
	h = http_world_new(config);
}

static int tear_down(void **state)
{
	(void)state;
	http_world_free(h);
	return 0;
}

static void test_connections_are_capped(void **state)
{
	const struct http_config config = {.connections_max = 3};
	struct client *clients[4];

	(void)state;
	set_up(&config);
	for (size_t i = 0; i < ARRAY_SIZE(clients); i++) {
		clients[i] = client_new(h);
	}
	for (size_t i = 0; i < ARRAY_SIZE(clients); i++) {
		client_request(clients[i], "GET", "/healthz", NULL, NULL, NULL, NULL, 0);
		struct answer *a = client_answer(clients[i], false);

		assert_int_equal(a->status, i < 3 ? 200 : 503);
		answer_free(a);
	}
	for (size_t i = 0; i < ARRAY_SIZE(clients); i++) {
		client_free(clients[i]);
	}
	world_run(h->w, 50);
	assert_int_equal(http_get(h, NULL, "/healthz")->status, 200);
}

static void test_silent_connections_end(void **state)
{
	const struct http_config config = {.idle_timeout_s = 1};

	(void)state;
	set_up(&config);
	struct client *silent = client_new(h);
	struct client *half = client_new(h);

	client_send(half, "POST /v1/sandboxes HTTP/1.1\r\n", 29);
	WORLD_UNTIL(h->w, (client_poll(silent), silent->is_eof));
	WORLD_UNTIL(h->w, (client_poll(half), half->is_eof));
	client_free(silent);
	client_free(half);
}

/* While a call waits nobody has anything to say: that is not silence. */
static void test_waiting_for_an_answer_is_not_silence(void **state)
{
	const struct http_config config = {.idle_timeout_s = 1};

	(void)state;
	set_up(&config);
	struct answer *a = http_json(h, "POST", at(http_running(h, NULL), "/exec"), h->key,
		"{\"command\":\"sleep 1500\"}");

	assert_int_equal(a->status, 200);
	assert_string_equal(answer_text(a, "exit_code"), "0");
}

/* While an answer is sent it is the client's turn to read: that it says nothing is no silence
 * either, however long it takes. */
static void test_a_long_answer_is_not_silence(void **state)
{
	static const char *const accepted[] = {
		"Accept: application/octet-stream\r\n", "Accept: application/json\r\n"};
	const struct http_config config = {.idle_timeout_s = 1};
	const size_t len = 15u << 20;
	_cleanup_free_ char *bytes = xcalloc(len, 1);

	(void)state;
	set_up(&config);
	const char *id = http_running(h, NULL);

	memset(bytes, 'x', len);
	http_request(h, "PUT", at(id, "/files?path=/tmp/large"), h->key, NULL,
		"application/octet-stream", bytes, len);
	for (size_t i = 0; i < ARRAY_SIZE(accepted); i++) {
		struct client *c = client_new(h);
		uint64_t until = real_ms() + 2500;

		client_request(c, "GET", at(id, "/files?path=/tmp/large"), h->key, accepted[i],
			NULL, NULL, 0);
		while (real_ms() < until) {
			ssize_t n = recv(c->fd, bytes, 200000, 0);

			evbuffer_add(c->in, bytes, n > 0 ? (size_t)n : 0);
			world_run(h->w, 100);
		}
		assert_int_equal(http_server_pending(h->server), 1);
		struct answer *a = client_answer(c, false);

		assert_false(a->is_cut);
		assert_true(a->len >= len);
		answer_free(a);
		/* Afterwards it is its turn to speak again. */
		WORLD_UNTIL(h->w, (client_poll(c), c->is_eof));
		client_free(c);
	}
}

static void test_long_headers_are_refused(void **state)
{
	(void)state;
	set_up(NULL);
	struct client *c = client_new(h);
	_cleanup_free_ char *line = xasprintf("X-Long: %040000d\r\n", 1);

	client_request(c, "GET", "/healthz", NULL, line, NULL, NULL, 0);
	struct answer *a = client_answer(c, false);

	assert_int_equal(a->status, 400);
	answer_free(a);
	WORLD_UNTIL(h->w, (client_poll(c), c->is_eof));
	client_free(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_teardown(name, tear_down)
		T(test_connections_are_capped),
		T(test_silent_connections_end),
		T(test_waiting_for_an_answer_is_not_silence),
		T(test_a_long_answer_is_not_silence),
		T(test_long_headers_are_refused),
#undef T
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
