#include "tests/lib/http_fixture.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/xalloc.h"
#include "ops/op.h"

/* Clients that leave, hurry, send too much or something odd. */

/* An exec that goes on until it is cancelled, and has reached the guest. */
static struct client *start_exec(const char *id)
{
	static const char body[] = "{\"command\":\"sleep 100000\"}";
	struct client *c = client_new(h);
	unsigned before = fake_guest_calls(h->w->guests, FAKE_GUEST_EXEC);

	client_request(c, "POST", http_at(id, "/exec"), h->key, NULL, "application/json", body,
		sizeof body - 1);
	WORLD_UNTIL(h->w, fake_guest_calls(h->w->guests, FAKE_GUEST_EXEC) == before + 1);
	assert_int_equal(http_server_pending(h->server), 1);
	return c;
}

static double cpu_seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* ---- clients that leave ---- */

static void test_leaving_stops_the_command(void **state)
{
	const char *id = http_running(h, NULL);
	struct client *c = start_exec(id);

	(void)state;
	client_free(c);
	WORLD_UNTIL(h->w, fake_guest_call_count(h->w->guests) == 0);
	WORLD_UNTIL(h->w, http_server_pending(h->server) == 0);
}

static void test_shutting_the_sending_side_counts_as_leaving(void **state)
{
	const char *id = http_running(h, NULL);
	struct client *c = start_exec(id);

	(void)state;
	shutdown(c->fd, SHUT_WR);
	WORLD_UNTIL(h->w, fake_guest_call_count(h->w->guests) == 0);
	WORLD_UNTIL(h->w, (client_poll(c), c->is_eof));
	client_free(c);
}

/* A reset shows otherwise than an orderly end; libevent drops it where only EV_CLOSED is wanted. */
static void test_a_reset_stops_the_command(void **state)
{
	const char *id = http_running(h, NULL);
	struct client *c = start_exec(id);

	(void)state;
	client_reset(c);
	WORLD_UNTIL(h->w, fake_guest_call_count(h->w->guests) == 0);
	WORLD_UNTIL(h->w, http_server_pending(h->server) == 0);
}

/* Also one that resets while the server's side of it waits for something that can't be stopped. */
static void test_a_reset_does_not_spin(void **state)
{
	static const char body[] = "{}";
	struct client *c = client_new(h);

	(void)state;
	fake_hv_script(h->w->hv, FAKE_HV_START, &(struct fake_script){.mode = FAKE_HOLD});
	client_request(c, "POST", "/v1/sandboxes", h->key, NULL, "application/json", body,
		sizeof body - 1);
	WORLD_UNTIL(h->w, fake_hv_held(h->w->hv, FAKE_HV_START) == 1);
	client_reset(c);

	double before = cpu_seconds();

	world_run(h->w, 500);
	assert_true(cpu_seconds() - before < 0.4);
	assert_int_equal(http_server_pending(h->server), 0);
	fake_hv_release(h->w->hv, FAKE_HV_START);
}

static void test_creation_goes_on_without_its_client(void **state)
{
	static const char body[] = "{\"name\":\"orphan\"}";
	struct client *c = client_new(h);

	(void)state;
	fake_hv_script(h->w->hv, FAKE_HV_START, &(struct fake_script){.mode = FAKE_HOLD});
	client_request(c, "POST", "/v1/sandboxes", h->key, NULL, "application/json", body,
		sizeof body - 1);
	WORLD_UNTIL(h->w, fake_hv_held(h->w->hv, FAKE_HV_START) == 1);
	client_free(c);
	WORLD_UNTIL(h->w, http_server_pending(h->server) == 0);
	fake_hv_release(h->w->hv, FAKE_HV_START);
	WORLD_UNTIL(h->w, strcmp(answer_text(http_get(h, h->key, http_at("orphan", "")), "status"),
				  "running") == 0);
}

static void test_a_call_that_was_never_answered_is_logged_without_a_status(void **state)
{
	static const char body[] = "{}";
	struct client *c = client_new(h);
	FILE *log = tmpfile();
	int saved = dup(STDERR_FILENO);
	enum log_level level = log_level();
	char text[4096] = "";

	(void)state;
	fake_hv_script(h->w->hv, FAKE_HV_START, &(struct fake_script){.mode = FAKE_HOLD});
	client_request(c, "POST", "/v1/sandboxes", h->key, NULL, "application/json", body,
		sizeof body - 1);
	WORLD_UNTIL(h->w, fake_hv_held(h->w->hv, FAKE_HV_START) == 1);
	log_set_level(LOG_LEVEL_INFO);
	dup2(fileno(log), STDERR_FILENO);
	client_free(c);
	WORLD_UNTIL(h->w, http_server_pending(h->server) == 0);
	dup2(saved, STDERR_FILENO);
	log_set_level(level);
	close(saved);
	rewind(log);
	assert_true(fread(text, 1, sizeof text - 1, log) > 0);
	fclose(log);
	assert_non_null(strstr(text, "op=sandbox.create"));
	assert_non_null(strstr(text, " status=0 "));
	assert_null(strstr(text, " status=201 "));
	fake_hv_release(h->w->hv, FAKE_HV_START);
}

static void test_removal_goes_on_without_its_client(void **state)
{
	const char *id = http_running(h, NULL);
	struct client *c = client_new(h);

	(void)state;
	fake_hv_script(h->w->hv, FAKE_HV_DESTROY, &(struct fake_script){.mode = FAKE_HOLD});
	client_request(c, "DELETE", http_at(id, ""), h->key, NULL, NULL, NULL, 0);
	WORLD_UNTIL(h->w, fake_hv_held(h->w->hv, FAKE_HV_DESTROY) == 1);
	client_reset(c);
	WORLD_UNTIL(h->w, http_server_pending(h->server) == 0);
	fake_hv_release(h->w->hv, FAKE_HV_DESTROY);
	WORLD_UNTIL(h->w, world_is_clean(h->w, id));
}

static void test_the_server_goes_while_clients_wait(void **state)
{
	const char *id = http_running(h, NULL);
	struct client *waits = start_exec(id);
	struct client *idle = client_new(h);
	struct client *half = client_new(h);

	(void)state;
	client_send(half, "GET /v1/sand", 12);
	world_run(h->w, 20);
	http_server_stop(h->server);
	WORLD_UNTIL(h->w, (client_poll(idle), idle->is_eof));
	client_free(waits);
	client_free(idle);
	client_free(half);
	/* http_tear_down() frees the server with what is left. */
}

/* ---- clients that hurry ---- */

static void test_connections_are_kept(void **state)
{
	struct client *c = client_new(h);

	(void)state;
	for (int i = 0; i < 50; i++) {
		client_request(c, "GET", i % 2 ? "/v1/sandboxes" : "/v1/nonsense", h->key, NULL,
			NULL, NULL, 0);
		struct answer *a = client_answer(c, false);

		assert_int_equal(a->status, i % 2 ? 200 : 404);
		answer_free(a);
	}
	client_free(c);
}

static void test_pipelined_requests_are_answered_in_order(void **state)
{
	const char *id = http_running(h, NULL);
	static const char body[] = "{\"command\":\"sleep 100\"}";
	struct client *c = client_new(h);
	_cleanup_free_ char *exec = xstrdup(http_at(id, "/exec"));

	(void)state;
	client_request(c, "POST", exec, h->key, NULL, "application/json", body, sizeof body - 1);
	client_request(c, "GET", "/healthz", NULL, NULL, NULL, NULL, 0);
	client_request(c, "GET", "/v1/nonsense", NULL, NULL, NULL, NULL, 0);
	client_request(c, "POST", exec, h->key, NULL, "application/json", body, sizeof body - 1);
	static const int statuses[] = {200, 200, 404, 200};

	for (size_t i = 0; i < ARRAY_SIZE(statuses); i++) {
		struct answer *a = client_answer(c, false);

		assert_int_equal(a->status, statuses[i]);
		answer_free(a);
	}
	client_free(c);
}

static void test_many_at_once(void **state)
{
	const char *id = http_running(h, NULL);
	struct client *clients[40];
	static const char body[] = "{\"command\":\"sleep 20\"}";

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(clients); i++) {
		clients[i] = client_new(h);
		client_request(clients[i], "POST", http_at(id, "/exec"), h->key, NULL,
			"application/json", body, sizeof body - 1);
	}
	for (size_t i = 0; i < ARRAY_SIZE(clients); i++) {
		struct answer *a = client_answer(clients[i], false);

		assert_int_equal(a->status, 200);
		answer_free(a);
		client_free(clients[i]);
	}
	WORLD_UNTIL(h->w, http_server_pending(h->server) == 0);
}

/* ---- requests that are odd ---- */

static void expect(int status, const char *type, const char *method, const char *target,
	const char *more, const char *content_type, const char *body)
{
	struct answer *a = http_request(
		h, method, target, h->key, more, content_type, body, body ? strlen(body) : 0);

	if (a->status != status) {
		fail_msg("%s %s: %d: %s", method, target, a->status, a->body);
	}
	if (type) {
		assert_string_equal(answer_text(a, "error.type"), type);
		assert_non_null(answer_text(a, "error.request_id"));
	}
}

static void test_bad_bodies(void **state)
{
	const char *json = "application/json";
	const char *to = "/v1/sandboxes";

	(void)state;
	expect(400, "invalid_request", "POST", to, NULL, json, "{");
	expect(400, "invalid_request", "POST", to, NULL, json, "{}x");
	expect(400, "invalid_request", "POST", to, NULL, json, "null");
	expect(400, "invalid_request", "POST", to, NULL, json, "[]");
	expect(400, "invalid_request", "POST", to, NULL, json, "{\"wait\":true,\"wait\":true}");
	expect(400, "invalid_request", "POST", to, NULL, json, "{\"name\":\"\xff\"}");
	expect(400, "invalid_request", "POST", to, NULL, json, "{\"nonsense\":1}");
	expect(400, "invalid_request", "POST", to, NULL, "text/plain", "{}");
	expect(400, "invalid_request", "POST", to, NULL, NULL, "{}");
	expect(400, "invalid_request", "POST", to, NULL, "application/octet-stream", "{}");
	expect(202, NULL, "POST", to, NULL, "application/json; charset=utf-8", "{\"wait\":false}");
	expect(400, "invalid_request", "GET", "/v1/sandboxes?x=1", NULL, NULL, NULL);
	expect(400, "invalid_request", "GET", "/v1/sandboxes?limit=%zz", NULL, NULL, NULL);
}

static void test_methods(void **state)
{
	struct answer *a = http_request(h, "PUT", "/v1/sandboxes", h->key, NULL, NULL, "", 0);

	(void)state;
	assert_int_equal(a->status, 405);
	assert_string_equal(answer_header(a, "Allow"), "POST, GET, HEAD");
	assert_string_equal(answer_text(a, "error.type"), "invalid_request");
	assert_int_equal(
		http_request(h, "OPTIONS", "/v1/sandboxes", NULL, NULL, NULL, NULL, 0)->status,
		405);
	assert_int_equal(
		http_request(h, "PATCH", "/v1/sandboxes", NULL, NULL, NULL, "", 0)->status, 405);
	a = http_request(h, "HEAD", "/v1/service", NULL, NULL, NULL, NULL, 0);
	assert_int_equal(a->status, 200);
	assert_true(atoi(answer_header(a, "Content-Length")) > 100);
	a = http_request(h, "HEAD", "/v1/sandboxes", NULL, NULL, NULL, NULL, 0);
	assert_int_equal(a->status, 401);
}

static void test_head_keeps_the_connection_usable(void **state)
{
	struct client *c = client_new(h);

	(void)state;
	client_request(c, "HEAD", "/v1/service", NULL, NULL, NULL, NULL, 0);
	answer_free(client_answer(c, true));
	client_request(c, "GET", "/healthz", NULL, NULL, NULL, NULL, 0);
	struct answer *a = client_answer(c, false);

	assert_string_equal(answer_text(a, "status"), "ok");
	answer_free(a);
	client_free(c);
}

/* What follows a GET or a DELETE with a body would be read as the next request. */
static void test_a_body_where_none_is_read_ends_the_connection(void **state)
{
	static const char *const methods[] = {"GET", "DELETE", "HEAD"};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(methods); i++) {
		struct client *c = client_new(h);
		static const char smuggled[] = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";

		client_request(c, methods[i], "/v1/sandboxes/x", h->key, NULL, NULL, smuggled,
			sizeof smuggled - 1);
		struct answer *a = client_answer(c, i == 2);

		assert_int_equal(a->status, 400);
		answer_free(a);
		WORLD_UNTIL(h->w, (client_poll(c), c->is_eof));
		assert_int_equal(evbuffer_get_length(c->in), 0);
		client_free(c);
	}
	expect(400, "invalid_request", "POST", "/v1/sandboxes", "Transfer-Encoding: chunked\r\n",
		"application/json", "2\r\n{}\r\n0\r\n\r\n");
}

static void test_chunked_bodies(void **state)
{
	struct client *c = client_new(h);
	static const char body[] = "7\r\n{\"wait\"\r\n7\r\n:false}\r\n0\r\n\r\n";

	(void)state;
	client_request(c, "POST", "/v1/sandboxes", h->key, "Transfer-Encoding: chunked\r\n",
		"application/json", NULL, 0);
	client_send(c, body, sizeof body - 1);
	struct answer *a = client_answer(c, false);

	assert_int_equal(a->status, 202);
	answer_free(a);
	client_free(c);
}

static struct answer *get_with(const char *host, const char *origin)
{
	struct client *c = client_new(h);
	struct answer *a;
	_cleanup_free_ char *text = xasprintf("GET /healthz HTTP/1.1\r\n%s%s%s%s%s%s\r\n",
		host ? "Host: " : "", host ? host : "", host ? "\r\n" : "",
		origin ? "Origin: " : "", origin ? origin : "", origin ? "\r\n" : "");

	client_send(c, text, strlen(text));
	a = client_answer(c, false);
	client_free(c);
	return a;
}

static void expect_source(int status, const char *host, const char *origin)
{
	struct answer *a = get_with(host, origin);

	if (a->status != status) {
		fail_msg("Host %s, Origin %s: %d", host, origin, a->status);
	}
	answer_free(a);
}

static void test_hosts_and_origins(void **state)
{
	char *hosts[] = {(char *)"paddock.example", NULL};
	char *origins[] = {(char *)"https://tools.example", NULL};
	const struct http_config config = {.allowed_hosts = hosts, .allowed_origins = origins};

	(void)state;
	http_world_free(h);
	h = http_world_new(&config);
	expect_source(200, "localhost", NULL);
	expect_source(200, "LOCALHOST:8470", NULL);
	expect_source(200, "127.0.0.1:1", NULL);
	expect_source(200, "[::1]:8470", NULL);
	expect_source(200, "paddock.example", NULL);
	expect_source(400, NULL, NULL);
	expect_source(403, "evil.example", NULL);
	expect_source(403, "localhost.evil.example", NULL);
	expect_source(403, "127.0.0.1.evil.example:8470", NULL);
	expect_source(403, "", NULL);
	expect_source(403, "[::1", NULL);
	expect_source(200, "localhost", "https://tools.example");
	expect_source(403, "localhost", "http://tools.example");
	expect_source(403, "localhost", "http://localhost");
	expect_source(403, "localhost", "null");
}

static void test_streams_of_events_are_refused_where_there_are_none(void **state)
{
	const char *id = http_running(h, NULL);

	(void)state;
	expect(400, "invalid_request", "GET", http_at(id, ""), "Accept: text/event-stream\r\n",
		NULL, NULL);
	expect(200, NULL, "GET", http_at(id, ""), "Accept: application/json, text/event-stream\r\n",
		NULL, NULL);
	expect(400, "invalid_request", "POST", http_at(id, "/exec"), NULL, "application/json",
		"{\"command\":\"true\",\"detach\":true}");
}

static void test_expect_100_is_answered(void **state)
{
	static const char body[] = "{\"wait\":false}";
	struct client *c = client_new(h);

	(void)state;
	client_request(c, "POST", "/v1/sandboxes", h->key,
		"Expect: 100-continue\r\nContent-Length: 14\r\n", "application/json", NULL, 0);
	struct answer *a = client_answer(c, true);

	assert_int_equal(a->status, 100);
	answer_free(a);
	client_send(c, body, sizeof body - 1);
	a = client_answer(c, false);
	assert_int_equal(a->status, 202);
	answer_free(a);
	client_free(c);
}

static void test_a_removal_that_hangs_is_told(void **state)
{
	const char *id = http_running(h, NULL);
	struct answer *a;

	(void)state;
	h->ops->config.delete_wait_ms = 50;
	fake_hv_script(h->w->hv, FAKE_HV_DESTROY, &(struct fake_script){.mode = FAKE_HOLD});
	a = http_json(h, "DELETE", http_at(id, ""), h->key, NULL);
	assert_int_equal(a->status, 504);
	assert_string_equal(answer_text(a, "error.type"), "timeout");
	a = http_get(h, h->key, http_at(id, ""));
	assert_string_equal(answer_text(a, "status"), "deleting");
	fake_hv_release(h->w->hv, FAKE_HV_DESTROY);
	WORLD_UNTIL(h->w, world_is_clean(h->w, id));
	assert_int_equal(http_json(h, "DELETE", http_at(id, ""), h->key, NULL)->status, 200);
}

/* ---- doctor: the daemon's answer comes when it comes ---- */

static struct {
	void (*done)(void *done_arg, json_object *findings, const struct err *err);
	void *done_arg;
} examined;

static void examine(void *arg,
	void (*done)(void *done_arg, json_object *findings, const struct err *err), void *done_arg)
{
	(void)arg;
	examined.done = done;
	examined.done_arg = done_arg;
}

static void test_doctor_answers_whoever_is_still_there(void **state)
{
	struct client *stays = client_new_admin(h);
	struct client *leaves = client_new_admin(h);

	(void)state;
	h->ops->config.doctor = examine;
	examined.done = NULL;
	client_request(leaves, "GET", "/v1/admin/doctor", NULL, NULL, NULL, NULL, 0);
	WORLD_UNTIL(h->w, examined.done);
	client_free(leaves);
	WORLD_UNTIL(h->w, http_server_pending(h->server) == 0);
	examined.done(examined.done_arg, json_object_new_array(), NULL);

	examined.done = NULL;
	client_request(stays, "GET", "/v1/admin/doctor", NULL, NULL, NULL, NULL, 0);
	WORLD_UNTIL(h->w, examined.done);
	examined.done(examined.done_arg, json_object_new_array(), NULL);
	struct answer *a = client_answer(stays, false);

	assert_int_equal(a->status, 200);
	assert_string_equal(answer_text(a, "findings"), "[ ]");
	answer_free(a);
	client_free(stays);
}

static void test_the_admin_socket_is_its_owners(void **state)
{
	struct stat st;

	(void)state;
	assert_int_equal(stat(h->admin_path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
}

static void test_the_admin_socket_replaces_nothing_but_a_stale_one(void **state)
{
	struct sockaddr_un at_path = {.sun_family = AF_UNIX};
	struct err err;
	struct stat st;

	(void)state;
	/* Its own: somebody serves it. */
	assert_err(http_server_listen_admin(h->server, h->admin_path, &err), &err, ERR_CONFLICT);
	assert_int_equal(http_admin(h, "GET", "/healthz", NULL)->status, 200);

	snprintf(at_path.sun_path, sizeof at_path.sun_path, "%s/other", h->w->dir);
	int fd = open(at_path.sun_path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	close(fd);
	assert_err(http_server_listen_admin(h->server, at_path.sun_path, &err), &err, ERR_CONFLICT);
	assert_int_equal(stat(at_path.sun_path, &st), 0);
	assert_true(S_ISREG(st.st_mode));

	/* Of a daemon that was killed. */
	unlink(at_path.sun_path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&at_path, sizeof at_path), 0);
	close(fd);
	free(h->admin_path);
	h->admin_path = NULL;
	http_server_free(h->server);
	h->server = http_server_new(h->w->loop, h->ops, h->auth, &(struct http_config){0});
	assert_ok(http_server_listen_admin(h->server, at_path.sun_path, &err), &err);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, http_set_up, http_tear_down)
		T(test_leaving_stops_the_command),
		T(test_shutting_the_sending_side_counts_as_leaving),
		T(test_a_reset_stops_the_command),
		T(test_a_reset_does_not_spin),
		T(test_creation_goes_on_without_its_client),
		T(test_a_call_that_was_never_answered_is_logged_without_a_status),
		T(test_removal_goes_on_without_its_client),
		T(test_the_server_goes_while_clients_wait),
		T(test_connections_are_kept),
		T(test_pipelined_requests_are_answered_in_order),
		T(test_many_at_once),
		T(test_bad_bodies),
		T(test_methods),
		T(test_head_keeps_the_connection_usable),
		T(test_a_body_where_none_is_read_ends_the_connection),
		T(test_chunked_bodies),
		T(test_hosts_and_origins),
		T(test_streams_of_events_are_refused_where_there_are_none),
		T(test_expect_100_is_answered),
		T(test_a_removal_that_hangs_is_told),
		T(test_doctor_answers_whoever_is_still_there),
		T(test_the_admin_socket_is_its_owners),
		T(test_the_admin_socket_replaces_nothing_but_a_stale_one),
#undef T
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
