#include "tests/lib/http_fixture.h"

#include <stdlib.h>

#include "base/xalloc.h"

/*
 * Clients of the hosted service, which change two variables and nothing else: each form of the base
 * URL, each place of the key, each thing that they do. tests/system/test_hosted.py says the same to
 * a real machine.
 */

#define OCTETS "application/octet-stream"
#define JSON   "application/json"

/* AAS_BASE_URL behind the origin, and what the client appends to it. */
static const char *const bases[] = {
	"/v1",    /* an origin, and "/v1/sandboxes"; or ".../v1", and "/sandboxes" */
	"",       /* an origin, and "/sandboxes" */
	"/v1/v1", /* ".../v1", and "/v1/sandboxes" */
	"/",      /* the same three with a "/" at the variable's end */
	"//v1",
	"/v1/",
	"/v1//v1",
};

enum key_place { BEARER, X_API_KEY, BOTH, KEY_PLACE_MAX };

static struct {
	const char *base;
	enum key_place auth;
} variant;

static struct answer *call(const char *method, const char *target, const char *more,
	const char *type, const char *body)
{
	_cleanup_free_ char *url = xasprintf("%s%s", variant.base, target);
	_cleanup_free_ char *key = variant.auth == BEARER ? xstrdup("")
							  : xasprintf("x-api-key: %s\r\n", h->key);
	_cleanup_free_ char *headers = xasprintf("User-Agent: aas/1\r\n%s%s%s", key,
		more ? more : "",
		more && strstr(more, "Accept:") ? "" : "Accept: application/json\r\n");

	return http_request(h, method, url, variant.auth == X_API_KEY ? NULL : h->key, headers,
		type, body, body ? strlen(body) : 0);
}

static struct answer *send_json(const char *method, const char *target, const char *body)
{
	return call(method, target, NULL, JSON, body);
}

static struct answer *get(const char *target)
{
	return call("GET", target, NULL, NULL, NULL);
}

static void expect(const struct answer *a, int status)
{
	if (a->status != status) {
		fail_msg("base \"%s\", auth %d: %d instead of %d: %s", variant.base, variant.auth,
			a->status, status, a->body);
	}
}

static void expect_record(struct answer *a, int status)
{
	static const char *const fields[] = {"id", "status", "size", "created_at", "expires_at"};

	expect(a, status);
	for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
		if (!answer_text(a, fields[i])) {
			fail_msg("the record has no %s: %s", fields[i], a->body);
		}
	}
}

static char target[256];

static const char *of(const char *id, const char *rest)
{
	snprintf(target, sizeof target, "/sandboxes/%s%s", id, rest);
	return target;
}

/* ---- what they do ---- */

static const char *create(void)
{
	struct answer *a = send_json(
		"POST", "/sandboxes", "{\"size\":\"small\",\"timeout_minutes\":15}");

	expect_record(a, 201);
	assert_string_equal(answer_text(a, "status"), "running");
	assert_string_equal(answer_text(a, "size"), "small");
	return answer_text(a, "id");
}

static void look(const char *id)
{
	struct answer *a = get("/sandboxes?limit=100");

	expect(a, 200);
	assert_string_equal(answer_text(a, "data.0.id"), id);
	assert_string_equal(answer_text(a, "data.0.size"), "small");
	a = get(of(id, ""));
	expect_record(a, 200);
	assert_string_equal(answer_text(a, "id"), id);
}

static void run_commands(const char *id)
{
	static const char *const fields[] = {
		"id", "stdout", "stderr", "exit_code", "truncated", "duration_ms"};
	static const int codes[] = {0, 7};
	struct answer *a;

	for (size_t i = 0; i < ARRAY_SIZE(codes); i++) {
		_cleanup_free_ char *body = xasprintf(
			"{\"command\":\"exit %d\",\"cwd\":\"/workspace\",\"env\":{\"A\":\"b\"},"
			"\"timeout_ms\":%d}",
			codes[i], i ? 600000 : 1000);

		a = send_json("POST", of(id, "/exec"), body);
		expect(a, 200);
		for (size_t f = 0; f < ARRAY_SIZE(fields); f++) {
			assert_non_null(answer_text(a, fields[f]));
		}
		assert_int_equal(atoi(answer_text(a, "exit_code")), codes[i]);
		assert_string_equal(answer_text(a, "truncated"), "false");
	}
	a = send_json("POST", of(id, "/exec"), "{\"command\":\"env A\",\"env\":{\"A\":\"b\"}}");
	assert_string_equal(answer_text(a, "stdout"), "b");
	a = send_json("POST", of(id, "/exec"), "{\"command\":\"warn oh\"}");
	assert_string_equal(answer_text(a, "stderr"), "oh\n");
}

static void move_raw_files(const char *id)
{
	struct answer *a = call(
		"PUT", of(id, "/files?path=/workspace/a%2Fone%20file"), NULL, OCTETS, "\xff raw");

	expect(a, 200);
	a = call("PUT", of(id, "/files"), "X-File-Path: /workspace/a/two\r\n", OCTETS, "2");
	expect(a, 200);
	a = call("PUT", of(id, "/files?path=/workspace/a/three"),
		"X-File-Path: /workspace/a/three\r\n", OCTETS, "3");
	expect(a, 200);
	a = call("GET", of(id, "/files?path=%2Fworkspace%2Fa%2Fone+file"),
		"Accept: application/octet-stream\r\n", NULL, NULL);
	expect(a, 200);
	assert_string_equal(answer_header(a, "Content-Type"), OCTETS);
	assert_string_equal(a->body, "\xff raw");
	a = call("GET", of(id, "/files"),
		"X-File-Path: /workspace/a/two\r\nAccept: application/octet-stream\r\n", NULL,
		NULL);
	expect(a, 200);
	assert_string_equal(a->body, "2");
}

static void move_json_files(const char *id)
{
	struct answer *a = send_json("PUT", of(id, "/files"),
		"{\"path\":\"/workspace/a/text\",\"content\":\"gr\\u00fcn\"}");

	expect(a, 200);
	a = send_json("PUT", of(id, "/files"),
		"{\"path\":\"/workspace/a/bytes\",\"content_base64\":\"AP8=\"}");
	expect(a, 200);
	a = get(of(id, "/files?path=/workspace/a/text"));
	expect(a, 200);
	assert_string_equal(answer_text(a, "content"), "gr\xc3\xbcn");
	a = get(of(id, "/files?path=/workspace/a/bytes"));
	expect(a, 200);
	assert_string_equal(answer_text(a, "content_base64"), "AP8=");
}

static void list_files(const char *id)
{
	static const char *const queries[] = {
		"&list=true", "&list=true&recursive=true", "&list=true&recursive=false"};

	for (size_t i = 0; i < ARRAY_SIZE(queries); i++) {
		_cleanup_free_ char *rest = xasprintf("/files?path=/workspace/a%s", queries[i]);
		struct answer *a = get(of(id, rest));

		expect(a, 200);
		assert_int_equal(
			json_object_array_length(json_object_object_get(a->json, "entries")), 5);
		assert_non_null(answer_text(a, "entries.0.name"));
		assert_non_null(answer_text(a, "entries.0.path"));
		assert_string_equal(answer_text(a, "entries.0.type"), "file");
	}
}

static void extend(const char *id)
{
	struct answer *before = get(of(id, ""));
	struct answer *a = send_json("POST", of(id, "/extend"), "{\"minutes\":10}");

	expect_record(a, 200);
	assert_true(strcmp(answer_text(a, "expires_at"), answer_text(before, "expires_at")) > 0);
}

static void destroy_twice(const char *id)
{
	for (int i = 0; i < 2; i++) {
		/* Some send the type of their bodies with every request. */
		struct answer *a = call("DELETE", of(id, ""), NULL, i ? JSON : NULL, NULL);

		expect_record(a, 200);
		assert_string_equal(answer_text(a, "status"), "deleted");
	}
}

static void miss(void)
{
	static const char *const ids[] = {"sb_0123456789abcdefghij", "nobody"};

	for (size_t i = 0; i < ARRAY_SIZE(ids); i++) {
		struct answer *all[] = {
			get(of(ids[i], "")),
			call("DELETE", of(ids[i], ""), NULL, NULL, NULL),
			send_json("POST", of(ids[i], "/exec"), "{\"command\":\"true\"}"),
			send_json("POST", of(ids[i], "/extend"), "{\"minutes\":1}"),
			get(of(ids[i], "/files?path=/x")),
			call("PUT", of(ids[i], "/files?path=/x"), NULL, OCTETS, "x"),
		};

		for (size_t k = 0; k < ARRAY_SIZE(all); k++) {
			expect(all[k], 404);
			assert_string_equal(answer_text(all[k], "error.type"), "not_found");
			assert_non_null(answer_text(all[k], "error.message"));
			assert_non_null(answer_text(all[k], "error.request_id"));
		}
	}
}

static void test_every_variant_does_everything(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bases); i++) {
		for (variant.auth = 0; variant.auth < KEY_PLACE_MAX; variant.auth++) {
			variant.base = bases[i];
			const char *id = create();

			look(id);
			run_commands(id);
			move_raw_files(id);
			move_json_files(id);
			list_files(id);
			extend(id);
			destroy_twice(id);
			miss();
		}
	}
}

static void test_a_bad_key_is_told_in_every_variant(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bases); i++) {
		_cleanup_free_ char *url = xasprintf("%s/sandboxes?limit=100", bases[i]);
		struct answer *all[] = {
			http_get(h, NULL, url),
			http_get(h, "aas_something", url),
			http_request(h, "GET", url, NULL, "x-api-key: aas_x\r\n", NULL, NULL, 0),
		};

		for (size_t k = 0; k < ARRAY_SIZE(all); k++) {
			assert_int_equal(all[k]->status, 401);
			assert_string_equal(answer_text(all[k], "error.type"), "unauthenticated");
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, http_set_up, http_tear_down)
		T(test_every_variant_does_everything),
		T(test_a_bad_key_is_told_in_every_variant),
#undef T
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
