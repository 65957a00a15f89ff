#include "tests/lib/http_world.h"

#include <stdlib.h>

#include "base/xalloc.h"

/* The routes over a real socket: create, get, list, exec, delete, and who may. */

static struct http_world *h;

static int set_up(void **state)
{
	(void)state;
	h = http_world_new(NULL);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	http_world_free(h);
	return 0;
}

static char path[512];

static const char *at(const char *id, const char *rest)
{
	snprintf(path, sizeof path, "/v1/sandboxes/%s%s", id, rest);
	return path;
}

static void test_create_exec_delete(void **state)
{
	struct answer *a = http_json(h, "POST", "/v1/sandboxes", h->key,
		"{\"size\":\"tiny\",\"timeout_minutes\":30,\"metadata\":{\"team\":\"blue\"}}");

	(void)state;
	assert_int_equal(a->status, 201);
	assert_string_equal(answer_text(a, "status"), "running");
	assert_string_equal(answer_text(a, "size"), "tiny");
	assert_string_equal(answer_text(a, "memory_mb"), "256");
	assert_string_equal(answer_text(a, "network"), "none");
	assert_string_equal(answer_text(a, "metadata.team"), "blue");
	assert_non_null(answer_text(a, "ready_at"));
	assert_null(answer_text(a, "ended_at"));
	assert_null(answer_text(a, "account"));
	assert_non_null(answer_header(a, "X-Request-Id"));
	const char *id = answer_text(a, "id");

	a = http_get(h, h->key, at(id, ""));
	assert_int_equal(a->status, 200);
	assert_string_equal(answer_text(a, "id"), id);

	a = http_json(h, "POST", at(id, "/exec"), h->key, "{\"command\":\"echo hello\"}");
	assert_int_equal(a->status, 200);
	assert_string_equal(answer_text(a, "stdout"), "hello\n");
	assert_string_equal(answer_text(a, "exit_code"), "0");
	assert_string_equal(answer_text(a, "timed_out"), "false");
	assert_null(answer_text(a, "signal"));

	a = http_json(h, "DELETE", at(id, ""), h->key, NULL);
	assert_int_equal(a->status, 200);
	assert_string_equal(answer_text(a, "status"), "deleted");
	assert_string_equal(answer_text(a, "reason"), "deleted");
	assert_non_null(answer_text(a, "ended_at"));
	a = http_json(h, "DELETE", at(id, ""), h->key, NULL);
	assert_int_equal(a->status, 200);
	a = http_get(h, h->key, at(id, ""));
	assert_int_equal(a->status, 200);
	assert_string_equal(answer_text(a, "status"), "deleted");
	a = http_json(h, "POST", at(id, "/exec"), h->key, "{\"command\":\"true\"}");
	assert_int_equal(a->status, 409);
	assert_string_equal(answer_text(a, "error.type"), "sandbox_ended");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_create_exec_delete, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
