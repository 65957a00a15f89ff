#include "tests/lib/cm.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/xalloc.h"
#include "client/rest_client.h"
#include "tests/lib/tmpdir.h"

#define KEY "pdk_secret"

/*
 * Theory of operation. A server in a thread of its own reads one request after the other, keeps
 * what it saw of the last one, and sends the scripted bytes. A test may look at the record once its
 * call has been answered; after one that was cut short it stops the server first.
 */

struct server {
	int listener;
	unsigned port;
	char *socket;
	pthread_t thread;
	pthread_mutex_t lock;

	/* the script */
	char answer[4096];
	bool closes;     /* after the answer */
	bool skips_body; /* answers once the head is there */

	/* what was seen */
	unsigned connections;
	unsigned requests;
	char head[16384];
	char body[65536];
	size_t body_len;
};

static struct server server;

/* ---- the server's side ---- */

static size_t read_some(int fd, char *out, size_t size)
{
	ssize_t n = recv(fd, out, size, 0);

	return n > 0 ? (size_t)n : 0;
}

/* One line, CR LF included; false: the peer has gone. */
static bool read_line(int fd, char *out, size_t size)
{
	for (size_t n = 0; n + 1 < size; n++) {
		if (read_some(fd, out + n, 1) == 0) {
			return false;
		}
		if (out[n] == '\n') {
			out[n + 1] = '\0';
			return true;
		}
	}
	return false;
}

static bool read_bytes(int fd, size_t len)
{
	while (len > 0 && server.body_len < sizeof server.body) {
		size_t room = MIN(len, sizeof server.body - server.body_len);
		size_t n = read_some(fd, server.body + server.body_len, room);

		if (n == 0) {
			return false;
		}
		server.body_len += n;
		len -= n;
	}
	return len == 0;
}

static bool read_chunks(int fd)
{
	char line[64];

	for (;;) {
		size_t len = read_line(fd, line, sizeof line) ? strtoul(line, NULL, 16) : 0;

		if (!read_bytes(fd, len) || !read_line(fd, line, sizeof line)) {
			return false;
		}
		if (len == 0) {
			return true;
		}
	}
}

static bool read_request(int fd)
{
	char line[8192];
	size_t used = 0;

	server.head[0] = '\0';
	server.body_len = 0;
	do {
		if (!read_line(fd, line, sizeof line) ||
			used + strlen(line) >= sizeof server.head) {
			return false;
		}
		strcpy(server.head + used, line);
		used += strlen(line);
	} while (strcmp(line, "\r\n") != 0);
	if (server.skips_body) {
		return true;
	}
	const char *length = strstr(server.head, "\r\nContent-Length: ");

	if (strstr(server.head, "\r\nTransfer-Encoding: chunked\r\n")) {
		return read_chunks(fd);
	}
	return !length || read_bytes(fd, strtoul(length + 18, NULL, 10));
}

/* A whole request at a time: a client that is killed leaves a half one, which isn't counted. */
static void serve(int fd)
{
	char byte;

	while (recv(fd, &byte, 1, MSG_PEEK) == 1) {
		pthread_mutex_lock(&server.lock);
		bool is_whole = read_request(fd);

		server.requests += is_whole;
		bool goes_on = is_whole &&
			       send(fd, server.answer, strlen(server.answer), MSG_NOSIGNAL) > 0 &&
			       !server.closes;
		if (!goes_on) {
			shutdown(fd, SHUT_WR);
		}
		pthread_mutex_unlock(&server.lock);
		if (!goes_on) {
			char rest[4096];

			while (read_some(fd, rest, sizeof rest) > 0) {
			}
			return;
		}
	}
}

static void *server_main(void *arg)
{
	const struct timeval limit = {.tv_sec = 20};

	(void)arg;
	for (;;) {
		int fd = accept(server.listener, NULL, NULL);

		if (fd < 0) {
			return NULL;
		}
		setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
		pthread_mutex_lock(&server.lock);
		server.connections++;
		pthread_mutex_unlock(&server.lock);
		serve(fd);
		close(fd);
	}
}

static void server_start(int family)
{
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	struct sockaddr_un un = {.sun_family = AF_UNIX};
	socklen_t len = sizeof in;

	server.listener = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(server.listener >= 0);
	if (family == AF_UNIX) {
		server.socket = tmpdir_path("sock");
		snprintf(un.sun_path, sizeof un.sun_path, "%s", server.socket);
		assert_int_equal(bind(server.listener, (struct sockaddr *)&un, sizeof un), 0);
	} else {
		assert_int_equal(bind(server.listener, (struct sockaddr *)&in, sizeof in), 0);
		getsockname(server.listener, (struct sockaddr *)&in, &len);
		server.port = ntohs(in.sin_port);
	}
	assert_int_equal(listen(server.listener, 8), 0);
	assert_int_equal(pthread_create(&server.thread, NULL, server_main, NULL), 0);
}

static int set_up(void **state)
{
	memset(&server, 0, sizeof server);
	pthread_mutex_init(&server.lock, NULL);
	return tmpdir_make(state);
}

/* Once the clients have gone, whose last connections it still reads to their end. */
static void server_stop(void)
{
	if (server.thread) {
		shutdown(server.listener, SHUT_RDWR);
		pthread_join(server.thread, NULL);
		close(server.listener);
		server.thread = 0;
	}
}

static int tear_down(void **state)
{
	server_stop();
	free(server.socket);
	pthread_mutex_destroy(&server.lock);
	return tmpdir_drop(state);
}

/* ---- the tests' side ---- */

/* @headers: whole lines, or "". */
static void script(int status, const char *headers, const char *body)
{
	pthread_mutex_lock(&server.lock);
	snprintf(server.answer, sizeof server.answer,
		"HTTP/1.1 %d Whatever\r\nContent-Length: %zu\r\n%s\r\n%s", status, strlen(body),
		headers, body);
	pthread_mutex_unlock(&server.lock);
}

static void script_raw(const char *bytes, bool closes)
{
	pthread_mutex_lock(&server.lock);
	snprintf(server.answer, sizeof server.answer, "%s", bytes);
	server.closes = closes;
	pthread_mutex_unlock(&server.lock);
}

/* A client of the TCP server; @suffix goes behind its origin. */
static struct rest_client *new_client(const char *suffix)
{
	_cleanup_free_ char *url = xasprintf("http://127.0.0.1:%u%s", server.port, suffix);
	struct rest_config config = {.url = url, .key = KEY};
	struct err err = ERR_INIT;
	struct rest_client *client = rest_client_new(&config, &err);

	assert_non_null(client);
	return client;
}

#define _cleanup_client_ _cleanup_(rest_client_free_p)

static void assert_head_has(const char *text)
{
	if (!strstr(server.head, text)) {
		fail_msg("\"%s\" is not in:\n%s", text, server.head);
	}
}

static void assert_head_lacks(const char *text)
{
	if (strcasestr(server.head, text)) {
		fail_msg("\"%s\" is in:\n%s", text, server.head);
	}
}

/* Calls @op with @id and @query, which it takes; the answer isn't looked at. */
static void call_simply(
	struct rest_client *client, enum api_op op, const char *id, const char *query)
{
	_cleanup_json_ json_object *values = query ? json_tokener_parse(query) : NULL;
	_cleanup_rest_response_ struct rest_response response = REST_RESPONSE_INIT;
	struct rest_request request = {.row = api_row(op), .id = id, .query = values};
	struct err err;

	assert_ok(rest_call(client, &request, &response, &err), &err);
}

/* A source of @len bytes, and a sink. */
struct bytes {
	const char *data;
	size_t len;
	size_t used;
	bool fails;
	char got[256];
	size_t got_len;
};

static long give(void *arg, void *out, size_t size)
{
	struct bytes *b = arg;
	size_t n = MIN(size, b->len - b->used);

	if (b->fails) {
		return -1;
	}
	memcpy(out, b->data + b->used, n);
	b->used += n;
	return (long)n;
}

static int take(void *arg, const void *data, size_t len)
{
	struct bytes *b = arg;

	if (b->fails || len > sizeof b->got - b->got_len) {
		return -1;
	}
	memcpy(b->got + b->got_len, data, len);
	b->got_len += len;
	return 0;
}

/* ---- URLs ---- */

static void test_an_origin_may_end_in_v1_or_slashes(void **state)
{
	static const char *const suffixes[] = {"", "/", "//", "/v1", "/v1/"};

	(void)state;
	server_start(AF_INET);
	script(200, "", "{}");
	for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++) {
		_cleanup_client_ struct rest_client *client = new_client(suffixes[i]);

		call_simply(client, API_SANDBOX_LIST, NULL, NULL);
		assert_head_has("GET /v1/sandboxes HTTP/1.1\r\n");
	}
}

static void test_queries_are_encoded_as_the_service_reads_them(void **state)
{
	(void)state;
	server_start(AF_INET);
	script(200, "", "{}");
	_cleanup_client_ struct rest_client *client = new_client("");

	call_simply(client, API_SANDBOX_LIST, NULL,
		"{\"status\":\"all\",\"limit\":5,\"metadata\":{\"team\":\"a b\",\"k&=\":\"\"}}");
	assert_head_has("GET /v1/sandboxes?status=all&limit=5&metadata.team=a%20b&"
			"metadata.k%26%3D= HTTP/1.1\r\n");
	call_simply(client, API_SANDBOX_LIST, NULL,
		"{\"args\":[\"ls\",\"-l ~\"],\"list\":true,\"cursor\":null}");
	assert_head_has("GET /v1/sandboxes?args=ls&args=-l%20~&list=true HTTP/1.1\r\n");
	call_simply(client, API_SANDBOX_LIST, NULL, "{\"path\":\"/w/ü?#%+\\n\"}");
	assert_head_has("?path=%2Fw%2F%C3%BC%3F%23%25%2B%0A HTTP/1.1\r\n");
}

static void test_an_id_never_leaves_its_place_in_the_path(void **state)
{
	(void)state;
	server_start(AF_INET);
	script(200, "", "{}");
	_cleanup_client_ struct rest_client *client = new_client("");

	call_simply(client, API_SANDBOX_EXTEND, "a/../b?c#d", NULL);
	assert_head_has("POST /v1/sandboxes/a%2F..%2Fb%3Fc%23d/extend HTTP/1.1\r\n");
	call_simply(client, API_SANDBOX_EXTEND, "..", NULL);
	assert_head_has("POST /v1/sandboxes/../extend HTTP/1.1\r\n");
}

static void test_an_empty_id_is_refused_before_any_call(void **state)
{
	_cleanup_rest_response_ struct rest_response response = REST_RESPONSE_INIT;
	struct rest_request request = {.row = api_row(API_SANDBOX_DELETE), .id = ""};
	struct err err;

	(void)state;
	server_start(AF_INET);
	_cleanup_client_ struct rest_client *client = new_client("");

	assert_err(rest_call(client, &request, &response, &err), &err, ERR_INVALID);
	assert_err_says(&err, "id");
	assert_int_equal(server.connections, 0);
}

static void test_what_is_no_url_or_key_is_refused(void **state)
{
	static const struct rest_config wrong[] = {
		{.url = "", .key = KEY},
		{.url = "127.0.0.1:8470", .key = KEY},
		{.url = "ftp://127.0.0.1", .key = KEY},
		{.url = "http://127.0.0.1", .key = "pdk\r\nX-Evil: 1"},
		{.url = "http://127.0.0.1", .key = "pdk\n"},
		{.url = "http://127.0.0.1", .key = "p\xc3\xbc"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		struct err err = ERR_INIT;

		assert_null(rest_client_new(&wrong[i], &err));
		assert_int_equal(err.kind, ERR_INVALID);
	}
}

/* ---- headers and bodies ---- */

static void test_the_key_and_the_json_body_are_sent(void **state)
{
	_cleanup_json_ json_object *body = json_tokener_parse("{\"name\":\"ü\",\"vcpus\":2}");
	_cleanup_rest_response_ struct rest_response response = REST_RESPONSE_INIT;
	struct rest_request request = {
		.row = api_row(API_SANDBOX_CREATE), .body = body, .idempotency_key = "once"};
	struct err err;

	(void)state;
	server_start(AF_INET);
	script(201, "X-Request-Id: rq_12ab\r\n", "{\"id\":\"sb_1\"}");
	_cleanup_client_ struct rest_client *client = new_client("");

	assert_ok(rest_call(client, &request, &response, &err), &err);
	assert_head_has("POST /v1/sandboxes HTTP/1.1\r\n");
	assert_head_has("\r\nAuthorization: Bearer " KEY "\r\n");
	assert_head_has("\r\nContent-Type: application/json\r\n");
	assert_head_has("\r\nIdempotency-Key: once\r\n");
	assert_head_lacks("\r\nExpect:");
	assert_int_equal(server.body_len, strlen("{\"name\":\"ü\",\"vcpus\":2}"));
	assert_memory_equal(server.body, "{\"name\":\"ü\",\"vcpus\":2}", server.body_len);
	assert_int_equal(response.status, 201);
	assert_string_equal(response.request_id, "rq_12ab");
	assert_string_equal(
		json_object_get_string(json_object_object_get(response.json, "id")), "sb_1");
}

static void test_methods_without_a_body_say_so(void **state)
{
	(void)state;
	server_start(AF_INET);
	script(200, "", "{}");
	_cleanup_client_ struct rest_client *client = new_client("");

	call_simply(client, API_SANDBOX_EXTEND, "sb_1", NULL);
	assert_head_has("\r\nContent-Length: 0\r\n");
	assert_head_lacks("\r\nContent-Type:");
	call_simply(client, API_SANDBOX_DELETE, "sb_1", NULL);
	assert_head_has("DELETE /v1/sandboxes/sb_1 HTTP/1.1\r\n");
	call_simply(client, API_SANDBOX_GET, "sb_1", NULL);
	assert_head_has("GET /v1/sandboxes/sb_1 HTTP/1.1\r\n");
	assert_head_lacks("\r\nContent-Length:");
}

static void test_a_connection_is_used_again(void **state)
{
	(void)state;
	server_start(AF_INET);
	script(200, "", "{}");
	_cleanup_client_ struct rest_client *client = new_client("");

	for (int i = 0; i < 3; i++) {
		call_simply(client, API_SANDBOX_LIST, NULL, NULL);
	}
	assert_int_equal(server.requests, 3);
	assert_int_equal(server.connections, 1);
}

static void test_the_admin_socket_gets_no_key_and_no_proxy(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	server_start(AF_UNIX);
	script(200, "", "{}");
	setenv("http_proxy", "http://127.0.0.1:1", 1);
	struct rest_config config = {.url = "http://x", .key = KEY, .socket = server.socket};
	_cleanup_client_ struct rest_client *client = rest_client_new(&config, &err);

	assert_non_null(client);
	call_simply(client, API_IMAGE_LIST, NULL, NULL);
	unsetenv("http_proxy");
	assert_head_has("GET /v1/admin/images HTTP/1.1\r\n");
	assert_head_lacks("Authorization");
	assert_head_lacks(KEY);
}

/* ---- failures ---- */

static void test_errors_keep_their_kind_message_and_request(void **state)
{
	static const struct {
		int status;
		const char *type;
		enum err_kind kind;
	} rows[] = {
		{400, "invalid_request", ERR_INVALID},
		{401, "unauthenticated", ERR_UNAUTHENTICATED},
		{404, "not_found", ERR_NOT_FOUND},
		{409, "sandbox_ended", ERR_ENDED},
		{429, "quota_exceeded", ERR_QUOTA},
		{429, "rate_limited", ERR_RATE},
		{500, "internal", ERR_INTERNAL},
		{503, "unavailable", ERR_UNAVAILABLE},
		{504, "timeout", ERR_TIMEOUT},
		{418, "unheard_of", ERR_INTERNAL},
	};

	(void)state;
	server_start(AF_INET);
	_cleanup_client_ struct rest_client *client = new_client("");

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		_cleanup_rest_response_ struct rest_response response = REST_RESPONSE_INIT;
		struct rest_request request = {.row = api_row(API_SANDBOX_LIST)};
		char body[256];
		struct err err;

		snprintf(body, sizeof body,
			"{\"error\":{\"type\":\"%s\",\"message\":\"words %%s of %zu\"}}",
			rows[i].type, i);
		script(rows[i].status, "x-request-id: rq_7\r\n", body);
		assert_err(rest_call(client, &request, &response, &err), &err, rows[i].kind);
		assert_err_says(&err, "words %s of");
		assert_int_equal(response.status, rows[i].status);
		assert_string_equal(response.request_id, "rq_7");
		assert_non_null(response.json);
	}
}

static void test_errors_in_other_words_are_told_by_status(void **state)
{
	static const char *const bodies[] = {"<html>bad gateway</html>", "", "[]", "{}",
		"{\"error\":null}", "{\"error\":{\"type\":null,\"message\":null}}",
		"{\"error\":{\"type\":3,\"message\":\"x\"}}", "{\"error\":\"x\"}"};

	(void)state;
	server_start(AF_INET);
	_cleanup_client_ struct rest_client *client = new_client("");

	for (size_t i = 0; i < ARRAY_SIZE(bodies); i++) {
		_cleanup_rest_response_ struct rest_response response = REST_RESPONSE_INIT;
		struct rest_request request = {.row = api_row(API_SANDBOX_LIST)};
		struct err err;

		script(502, "", bodies[i]);
		assert_err(rest_call(client, &request, &response, &err), &err, ERR_INTERNAL);
		assert_err_says(&err, "502");
		assert_int_equal(response.status, 502);
	}
}

static void test_a_success_must_be_a_json_object(void **state)
{
	static const char *const bodies[] = {"<html>", "", "[]", "null", "1", "{} {}", "{\"a\":"};

	(void)state;
	server_start(AF_INET);
	_cleanup_client_ struct rest_client *client = new_client("");

	for (size_t i = 0; i < ARRAY_SIZE(bodies); i++) {
		_cleanup_rest_response_ struct rest_response response = REST_RESPONSE_INIT;
		struct rest_request request = {.row = api_row(API_SANDBOX_LIST)};
		struct err err;

		script(200, "", bodies[i]);
		assert_err(rest_call(client, &request, &response, &err), &err, ERR_INTERNAL);
		assert_err_says(&err, "JSON");
		assert_err_says(&err, "http://127.0.0.1:");
	}
}

static void test_a_redirection_is_not_followed(void **state)
{
	_cleanup_rest_response_ struct rest_response response = REST_RESPONSE_INIT;
	struct rest_request request = {.row = api_row(API_SANDBOX_LIST)};
	struct err err;

	(void)state;
	server_start(AF_INET);
	script(302, "Location: /elsewhere\r\n", "{}");
	_cleanup_client_ struct rest_client *client = new_client("");

	assert_err(rest_call(client, &request, &response, &err), &err, ERR_INTERNAL);
	assert_int_equal(server.requests, 1);
}

static void test_a_refused_connection_names_the_url(void **state)
{
	_cleanup_rest_response_ struct rest_response response = REST_RESPONSE_INIT;
	struct rest_request request = {.row = api_row(API_SANDBOX_LIST)};
	struct rest_config config = {.url = "http://127.0.0.1:1/v1/", .key = KEY};
	struct err err = ERR_INIT;

	(void)state;
	_cleanup_client_ struct rest_client *client = rest_client_new(&config, &err);

	assert_err(rest_call(client, &request, &response, &err), &err, ERR_UNAVAILABLE);
	assert_err_says(&err, "http://127.0.0.1:1:");
	assert_err_says(&err, "PADDOCK_URL");
	assert_null(strstr(err.msg, KEY));
	assert_int_equal(response.status, 0);
}

static void test_a_socket_that_is_not_there_is_named(void **state)
{
	_cleanup_rest_response_ struct rest_response response = REST_RESPONSE_INIT;
	struct rest_request request = {.row = api_row(API_IMAGE_LIST)};
	struct rest_config config = {.socket = "/nonexistent/admin.sock"};
	struct err err = ERR_INIT;

	(void)state;
	_cleanup_client_ struct rest_client *client = rest_client_new(&config, &err);

	assert_err(rest_call(client, &request, &response, &err), &err, ERR_UNAVAILABLE);
	assert_err_says(&err, "/nonexistent/admin.sock");
}

static void test_an_answer_that_breaks_off_is_no_success(void **state)
{
	_cleanup_rest_response_ struct rest_response response = REST_RESPONSE_INIT;
	struct rest_request request = {.row = api_row(API_SANDBOX_LIST)};
	struct err err;

	(void)state;
	server_start(AF_INET);
	script_raw("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", true);
	_cleanup_client_ struct rest_client *client = new_client("");

	assert_err(rest_call(client, &request, &response, &err), &err, ERR_UNAVAILABLE);
	assert_err_says(&err, "broke off");
	assert_null(response.json);
}

/* ---- raw bodies ---- */

static int upload(struct bytes *bytes, uint64_t promised, struct err *err)
{
	_cleanup_rest_response_ struct rest_response response = REST_RESPONSE_INIT;
	struct rest_request request = {
		.row = api_row(API_FILE_WRITE),
		.id = "sb_1",
		.read = give,
		.read_arg = bytes,
		.read_bytes = promised,
	};
	_cleanup_client_ struct rest_client *client = new_client("");

	return rest_call(client, &request, &response, err);
}

static void test_an_upload_of_known_length_names_it(void **state)
{
	struct bytes bytes = {.data = "\0\xff data", .len = 7};
	struct err err;

	(void)state;
	server_start(AF_INET);
	script(200, "", "{}");
	assert_ok(upload(&bytes, 7, &err), &err);
	assert_head_has("PUT /v1/sandboxes/sb_1/files HTTP/1.1\r\n");
	assert_head_has("\r\nContent-Length: 7\r\n");
	assert_head_has("\r\nContent-Type: application/octet-stream\r\n");
	assert_int_equal(server.body_len, 7);
	assert_memory_equal(server.body, "\0\xff data", 7);
}

static void test_an_upload_of_unknown_length_is_chunked(void **state)
{
	struct bytes bytes = {.data = "\0\xff data", .len = 7};
	struct err err;

	(void)state;
	server_start(AF_INET);
	script(200, "", "{}");
	assert_ok(upload(&bytes, UINT64_MAX, &err), &err);
	assert_head_has("\r\nTransfer-Encoding: chunked\r\n");
	assert_int_equal(server.body_len, 7);
	assert_memory_equal(server.body, "\0\xff data", 7);
}

static void test_an_empty_upload_is_an_empty_body(void **state)
{
	struct bytes bytes = {.data = "", .len = 0};
	struct err err;

	(void)state;
	server_start(AF_INET);
	script(200, "", "{}");
	assert_ok(upload(&bytes, 0, &err), &err);
	assert_head_has("\r\nContent-Length: 0\r\n");
	assert_ok(upload(&bytes, UINT64_MAX, &err), &err);
	assert_int_equal(server.body_len, 0);
}

static void test_a_source_that_grew_is_cut_at_what_was_promised(void **state)
{
	struct bytes bytes = {.data = "0123456789", .len = 10};
	struct err err;

	(void)state;
	server_start(AF_INET);
	script(200, "", "{}");
	assert_ok(upload(&bytes, 4, &err), &err);
	assert_head_has("\r\nContent-Length: 4\r\n");
	assert_int_equal(server.body_len, 4);
	assert_int_equal(bytes.used, 4);
	assert_int_equal(server.requests, 1);
}

static void test_a_source_that_shrank_is_an_error(void **state)
{
	struct bytes bytes = {.data = "0123", .len = 4};
	struct err err;

	(void)state;
	server_start(AF_INET);
	script(200, "", "{}");
	assert_err(upload(&bytes, 10, &err), &err, ERR_INVALID);
	assert_err_says(&err, "4 of 10 bytes");
	server_stop();
	assert_int_equal(server.requests, 0);
}

static void test_a_source_that_fails_ends_the_upload(void **state)
{
	struct bytes bytes = {.fails = true};
	struct err err;

	(void)state;
	server_start(AF_INET);
	script(200, "", "{}");
	assert_err(upload(&bytes, UINT64_MAX, &err), &err, ERR_CANCELLED);
	server_stop();
	assert_int_equal(server.requests, 0);
}

static void test_an_early_refusal_of_an_upload_is_heard(void **state)
{
	static char large[4 * 1024 * 1024];
	struct bytes bytes = {.data = large, .len = sizeof large};
	struct err err;

	(void)state;
	server.closes = true;
	server.skips_body = true;
	server_start(AF_INET);
	script(413, "Connection: close\r\n",
		"{\"error\":{\"type\":\"too_large\",\"message\":\"at most 64\"}}");
	assert_err(upload(&bytes, sizeof large, &err), &err, ERR_TOO_LARGE);
	assert_err_says(&err, "at most 64");
}

static int download(struct bytes *sink, struct rest_response *response, struct err *err)
{
	struct rest_request request = {
		.row = api_row(API_FILE_READ), .id = "sb_1", .write = take, .write_arg = sink};
	_cleanup_client_ struct rest_client *client = new_client("");

	return rest_call(client, &request, response, err);
}

static void test_a_download_goes_to_the_sink_alone(void **state)
{
	_cleanup_rest_response_ struct rest_response response = REST_RESPONSE_INIT;
	struct bytes sink = {0};
	struct err err;

	(void)state;
	server_start(AF_INET);
	script(200, "", "{\"content\"");
	assert_ok(download(&sink, &response, &err), &err);
	assert_head_has("\r\nAccept: application/octet-stream\r\n");
	assert_int_equal(sink.got_len, 10);
	assert_memory_equal(sink.got, "{\"content\"", 10);
	assert_null(response.json);
}

static void test_an_error_never_reaches_the_sink(void **state)
{
	_cleanup_rest_response_ struct rest_response response = REST_RESPONSE_INIT;
	struct bytes sink = {0};
	struct err err;

	(void)state;
	server_start(AF_INET);
	script(404, "", "{\"error\":{\"type\":\"not_found\",\"message\":\"no such file\"}}");
	assert_err(download(&sink, &response, &err), &err, ERR_NOT_FOUND);
	assert_err_says(&err, "no such file");
	assert_int_equal(sink.got_len, 0);
}

static void test_a_download_that_breaks_off_is_an_error(void **state)
{
	static const char *const answers[] = {
		"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
		"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhalf",
		"HTTP/1.1 200 OK\r\nContent-Le",
		"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n",
		"HTTP/1.1 200 OK\r\n\r\nhalf",
	};

	(void)state;
	server_start(AF_INET);
	for (size_t i = 0; i < ARRAY_SIZE(answers); i++) {
		_cleanup_rest_response_ struct rest_response response = REST_RESPONSE_INIT;
		struct bytes sink = {0};
		struct err err;

		script_raw(answers[i], true);
		assert_err(download(&sink, &response, &err), &err, ERR_UNAVAILABLE);
	}
}

static void test_a_sink_that_fails_ends_the_download(void **state)
{
	_cleanup_rest_response_ struct rest_response response = REST_RESPONSE_INIT;
	struct bytes sink = {.fails = true};
	struct err err;

	(void)state;
	server_start(AF_INET);
	script(200, "", "content");
	assert_err(download(&sink, &response, &err), &err, ERR_CANCELLED);
	assert_int_equal(response.status, 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_an_origin_may_end_in_v1_or_slashes),
		T(test_queries_are_encoded_as_the_service_reads_them),
		T(test_an_id_never_leaves_its_place_in_the_path),
		T(test_an_empty_id_is_refused_before_any_call),
		T(test_what_is_no_url_or_key_is_refused),
		T(test_the_key_and_the_json_body_are_sent),
		T(test_methods_without_a_body_say_so),
		T(test_a_connection_is_used_again),
		T(test_the_admin_socket_gets_no_key_and_no_proxy),
		T(test_errors_keep_their_kind_message_and_request),
		T(test_errors_in_other_words_are_told_by_status),
		T(test_a_success_must_be_a_json_object),
		T(test_a_redirection_is_not_followed),
		T(test_a_refused_connection_names_the_url),
		T(test_a_socket_that_is_not_there_is_named),
		T(test_an_answer_that_breaks_off_is_no_success),
		T(test_an_upload_of_known_length_names_it),
		T(test_an_upload_of_unknown_length_is_chunked),
		T(test_an_empty_upload_is_an_empty_body),
		T(test_a_source_that_grew_is_cut_at_what_was_promised),
		T(test_a_source_that_shrank_is_an_error),
		T(test_a_source_that_fails_ends_the_upload),
		T(test_an_early_refusal_of_an_upload_is_heard),
		T(test_a_download_goes_to_the_sink_alone),
		T(test_an_error_never_reaches_the_sink),
		T(test_a_download_that_breaks_off_is_an_error),
		T(test_a_sink_that_fails_ends_the_download),
	};

	return cmocka_run_group_tests_name("rest_client", tests, NULL, NULL);
}
