#include "rest_server.h"

#include <string.h>

/* Raw bodies, both ways. */

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

/* ---- uploads ---- */

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
	_cleanup_client_ struct rest_client *client = server_client("");

	return rest_call(client, &request, &response, err);
}

static void test_an_upload_of_known_length_names_it(void **state)
{
	struct bytes bytes = {.data = "\0\xff data", .len = 7};
	struct err err;

	(void)state;
	server_start(AF_INET);
	server_script(200, "", "{}");
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
	server_script(200, "", "{}");
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
	server_script(200, "", "{}");
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
	server_script(200, "", "{}");
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
	server_script(200, "", "{}");
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
	server_script(200, "", "{}");
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
	server_script(413, "Connection: close\r\n",
		"{\"error\":{\"type\":\"too_large\",\"message\":\"at most 64\"}}");
	assert_err(upload(&bytes, sizeof large, &err), &err, ERR_TOO_LARGE);
	assert_err_says(&err, "at most 64");
}

/* ---- downloads ---- */

static int download(struct bytes *sink, struct rest_response *response, struct err *err)
{
	struct rest_request request = {
		.row = api_row(API_FILE_READ), .id = "sb_1", .write = take, .write_arg = sink};
	_cleanup_client_ struct rest_client *client = server_client("");

	return rest_call(client, &request, response, err);
}

static void test_a_download_goes_to_the_sink_alone(void **state)
{
	_cleanup_rest_response_ struct rest_response response = REST_RESPONSE_INIT;
	struct bytes sink = {0};
	struct err err;

	(void)state;
	server_start(AF_INET);
	server_script(200, "", "{\"content\"");
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
	server_script(404, "", "{\"error\":{\"type\":\"not_found\",\"message\":\"no such file\"}}");
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

		server_script_raw(answers[i], true);
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
	server_script(200, "", "content");
	assert_err(download(&sink, &response, &err), &err, ERR_CANCELLED);
	assert_int_equal(response.status, 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, server_set_up, server_tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
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

	return cmocka_run_group_tests_name("rest_transfer", tests, NULL, NULL);
}
