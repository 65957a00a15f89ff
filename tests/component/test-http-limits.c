#include "tests/lib/http_fixture.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/xalloc.h"
#include "http/server_priv.h"

/* What connections may cost: their number, their silence, the length of their headers. */

/* Each test has limits of its own. */
static void set_up(const struct http_config *config)
{
	h = http_world_new(config);
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

static void test_connections_beyond_the_cap_are_not_taken_without_end(void **state)
{
	const struct http_config config = {.connections_max = 3};
	struct client *clients[100];

	(void)state;
	set_up(&config);
	for (size_t i = 0; i < ARRAY_SIZE(clients); i++) {
		clients[i] = client_new(h);
		world_turn(h->w);
	}
	world_run(h->w, 50);
	assert_in_range(h->server->tcp.conn_count, 4, 80);
	/* The socket for administration isn't theirs to fill. */
	assert_int_equal(http_admin(h, "GET", "/v1/admin/status", NULL)->status, 200);
	for (size_t i = 0; i < ARRAY_SIZE(clients); i++) {
		client_free(clients[i]);
	}
	WORLD_UNTIL(h->w, h->server->tcp.conn_count == 0);
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
	struct answer *a = http_json(h, "POST", http_at(http_running(h, NULL), "/exec"), h->key,
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
	http_request(h, "PUT", http_at(id, "/files?path=/tmp/large"), h->key, NULL,
		"application/octet-stream", bytes, len);
	for (size_t i = 0; i < ARRAY_SIZE(accepted); i++) {
		struct client *c = client_new(h);
		uint64_t until = real_ms() + 2500;

		client_request(c, "GET", http_at(id, "/files?path=/tmp/large"), h->key, accepted[i],
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

/* Nothing of a body is taken from somebody without a key. */
static void test_a_refused_body_is_not_held(void **state)
{
	const struct http_config config = {.body_bytes = 1 << 20, .bodies_total_bytes = 4 << 20};
	static const char *const types[] = {"application/octet-stream", "application/json"};
	struct client *clients[8];
	_cleanup_free_ char *bytes = xcalloc(1, 3 << 20);

	(void)state;
	set_up(&config);
	for (size_t i = 0; i < ARRAY_SIZE(clients); i++) {
		clients[i] = client_new(h);
		client_request(clients[i], "PUT", http_at("sb_x", "/files?path=/x"), NULL,
			"Content-Length: 1000000\r\n", types[i % 2], NULL, 0);
		struct answer *a = client_answer(clients[i], false);

		assert_int_equal(a->status, 401);
		assert_string_equal(answer_header(a, "Connection"), "close");
		answer_free(a);
		client_send(clients[i], bytes, 900000);
		assert_in_range(h->server->held_bytes, 0, 64 * 1024);
	}
	for (size_t i = 0; i < ARRAY_SIZE(clients); i++) {
		client_free(clients[i]);
	}
	WORLD_UNTIL(h->w, h->server->tcp.conn_count == 0);
	assert_int_equal(h->server->held_bytes, 0);
}

/* The server's side of the only connection. */
static struct http_conn *only_conn(void)
{
	struct http_conn *conn = TAILQ_FIRST(&h->server->conns);

	assert_non_null(conn);
	assert_null(TAILQ_NEXT(conn, entry));
	return conn;
}

/* What comes behind a request stays in the kernel until its answer has left. */
static void test_a_flood_behind_a_request_is_not_read(void **state)
{
	static const char body[] = "{\"command\":\"sleep 100000\"}";
	const size_t len = 64u << 20;
	_cleanup_free_ char *bytes = xcalloc(len, 1);
	size_t sent = 0;

	(void)state;
	set_up(NULL);
	const char *id = http_running(h, NULL);

	WORLD_UNTIL(h->w, h->server->tcp.conn_count == 0);
	struct client *c = client_new(h);

	client_request(c, "POST", http_at(id, "/exec"), h->key, NULL, "application/json", body,
		sizeof body - 1);
	WORLD_UNTIL(h->w, http_server_pending(h->server) == 1);
	for (unsigned idle = 0; idle < 20 && sent < len; idle++) {
		ssize_t n = send(c->fd, bytes + sent, len - sent, MSG_NOSIGNAL);

		if (n > 0) {
			sent += (size_t)n;
			idle = 0;
		}
		world_turn(h->w);
	}
	assert_in_range(sent, 1, len - 1);
	assert_in_range(only_conn()->link.read_bytes, 1, 8192);
	/* And its end is seen all the same. */
	client_reset(c);
	WORLD_UNTIL(h->w, fake_guest_call_count(h->w->guests) == 0);
	WORLD_UNTIL(h->w, h->server->tcp.conn_count == 0);
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

/* ---- descriptors ---- */

#define HOLDERS_MAX 4096

static uint64_t cpu_ms(void)
{
	struct timespec used;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
	return (uint64_t)used.tv_sec * 1000 + (uint64_t)used.tv_nsec / 1000000;
}

/* The next descriptor is refused; returns how many were free. */
static size_t take_all_descriptors(int holders[HOLDERS_MAX])
{
	size_t count = 0;
	int fd;

	while (count < HOLDERS_MAX && (fd = fcntl(0, F_DUPFD_CLOEXEC, 3)) >= 0) {
		holders[count++] = fd;
	}
	assert_in_range(count, 1, HOLDERS_MAX - 1);
	return count;
}

static void test_without_descriptors_the_listener_rests_and_comes_back(void **state)
{
	static int holders[HOLDERS_MAX];
	struct rlimit before;

	(void)state;
	set_up(NULL);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	const struct rlimit few = {.rlim_cur = 256, .rlim_max = before.rlim_max};

	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	struct client *c = client_new(h); /* waits in the kernel until it is accepted */
	size_t count = take_all_descriptors(holders);
	uint64_t used_ms = cpu_ms();

	client_request(c, "GET", "/healthz", NULL, NULL, NULL, NULL, 0);
	world_run(h->w, 1000);
	used_ms = cpu_ms() - used_ms;
	while (count > 0) {
		close(holders[--count]);
	}
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	/* Again and again at once would have taken most of the second. */
	assert_in_range(used_ms, 0, 300);
	struct answer *a = client_answer(c, false);

	assert_int_equal(a->status, 200);
	answer_free(a);
	client_free(c);
}

/* Requests come faster than they are answered: others are served between them. */
static void test_many_requests_at_once_leave_others_their_turn(void **state)
{
	static const char one[] = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
	struct evbuffer *flood = evbuffer_new();
	size_t answers = 0;

	(void)state;
	set_up(NULL);
	struct client *greedy = client_new(h);
	struct client *other = client_new(h);

	world_run(h->w, 50);
	for (int i = 0; i < 3000; i++) {
		evbuffer_add(flood, one, sizeof one - 1);
	}
	client_send(greedy, evbuffer_pullup(flood, -1), evbuffer_get_length(flood));
	client_send(other, one, sizeof one - 1);
	while (evbuffer_get_length(other->in) == 0) {
		world_turn(h->w);
		client_poll(other);
	}
	client_poll(greedy);
	answers = evbuffer_get_length(greedy->in) / evbuffer_get_length(other->in);
	assert_in_range(answers, 0, 200);
	for (int i = 0; i < 3000; i++) {
		answer_free(client_answer(greedy, false));
	}
	evbuffer_free(flood);
	client_free(greedy);
	client_free(other);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_teardown(name, http_tear_down)
		T(test_connections_are_capped),
		T(test_connections_beyond_the_cap_are_not_taken_without_end),
		T(test_silent_connections_end),
		T(test_waiting_for_an_answer_is_not_silence),
		T(test_a_long_answer_is_not_silence),
		T(test_a_refused_body_is_not_held),
		T(test_a_flood_behind_a_request_is_not_read),
		T(test_many_requests_at_once_leave_others_their_turn),
		T(test_long_headers_are_refused),
		T(test_without_descriptors_the_listener_rests_and_comes_back),
#undef T
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
