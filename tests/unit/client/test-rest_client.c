#include "rest_server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* URLs, headers, JSON and what becomes of failures. Raw bodies: test-rest_transfer.c. */

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

/* ---- URLs ---- */

static void test_an_origin_may_end_in_v1_or_slashes(void **state)
{
	static const char *const suffixes[] = {"", "/", "//", "/v1", "/v1/"};

	(void)state;
	server_start(AF_INET);
	server_script(200, "", "{}");
	for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++) {
		_cleanup_client_ struct rest_client *client = server_client(suffixes[i]);

		call_simply(client, API_SANDBOX_LIST, NULL, NULL);
		assert_head_has("GET /v1/sandboxes HTTP/1.1\r\n");
	}
}

static void test_queries_are_encoded_as_the_service_reads_them(void **state)
{
	(void)state;
	server_start(AF_INET);
	server_script(200, "", "{}");
	_cleanup_client_ struct rest_client *client = server_client("");

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
	server_script(200, "", "{}");
	_cleanup_client_ struct rest_client *client = server_client("");

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
	_cleanup_client_ struct rest_client *client = server_client("");

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
	server_script(201, "X-Request-Id: rq_12ab\r\n", "{\"id\":\"sb_1\"}");
	_cleanup_client_ struct rest_client *client = server_client("");

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
	server_script(200, "", "{}");
	_cleanup_client_ struct rest_client *client = server_client("");

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
	server_script(200, "", "{}");
	_cleanup_client_ struct rest_client *client = server_client("");

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
	server_script(200, "", "{}");
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
	_cleanup_client_ struct rest_client *client = server_client("");

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		_cleanup_rest_response_ struct rest_response response = REST_RESPONSE_INIT;
		struct rest_request request = {.row = api_row(API_SANDBOX_LIST)};
		char body[256];
		struct err err;

		snprintf(body, sizeof body,
			"{\"error\":{\"type\":\"%s\",\"message\":\"words %%s of %zu\"}}",
			rows[i].type, i);
		server_script(rows[i].status, "x-request-id: rq_7\r\n", body);
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
	_cleanup_client_ struct rest_client *client = server_client("");

	for (size_t i = 0; i < ARRAY_SIZE(bodies); i++) {
		_cleanup_rest_response_ struct rest_response response = REST_RESPONSE_INIT;
		struct rest_request request = {.row = api_row(API_SANDBOX_LIST)};
		struct err err;

		server_script(502, "", bodies[i]);
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
	_cleanup_client_ struct rest_client *client = server_client("");

	for (size_t i = 0; i < ARRAY_SIZE(bodies); i++) {
		_cleanup_rest_response_ struct rest_response response = REST_RESPONSE_INIT;
		struct rest_request request = {.row = api_row(API_SANDBOX_LIST)};
		struct err err;

		server_script(200, "", bodies[i]);
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
	server_script(302, "Location: /elsewhere\r\n", "{}");
	_cleanup_client_ struct rest_client *client = server_client("");

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
	server_script_raw("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", true);
	_cleanup_client_ struct rest_client *client = server_client("");

	assert_err(rest_call(client, &request, &response, &err), &err, ERR_UNAVAILABLE);
	assert_err_says(&err, "broke off");
	assert_null(response.json);
}

#define T(f) cmocka_unit_test_setup_teardown(f, server_set_up, server_tear_down)

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
	};

	return cmocka_run_group_tests_name("rest_client", tests, NULL, NULL);
}
