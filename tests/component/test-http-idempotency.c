/* The header Idempotency-Key: who asks twice gets one sandbox, and the same one. */
#include "tests/lib/http_fixture.h"

#include <stdlib.h>

#include "base/xalloc.h"

static struct answer *create_as(const char *api_key, const char *key, const char *body)
{
	_cleanup_free_ char *header = xasprintf("Idempotency-Key: %s\r\n", key);

	return http_request(h, "POST", "/v1/sandboxes", api_key, header, "application/json", body,
		strlen(body));
}

static struct answer *create(const char *key, const char *body)
{
	return create_as(h->key, key, body);
}

/* Sends the request and doesn't wait for an answer. */
static struct client *ask(const char *key, const char *body)
{
	struct client *c = client_new(h);
	_cleanup_free_ char *header = xasprintf("Idempotency-Key: %s\r\n", key);

	client_request(
		c, "POST", "/v1/sandboxes", h->key, header, "application/json", body, strlen(body));
	return c;
}

static void expect_client(struct client *c, int status, char id[ID_BYTES])
{
	struct answer *a = client_answer(c, false);

	assert_int_equal(a->status, status);
	snprintf(id, ID_BYTES, "%s", answer_text(a, status < 300 ? "id" : "error.type"));
	answer_free(a);
	client_free(c);
}

static void hold_op(enum fake_hv_op op)
{
	fake_hv_script(h->w->hv, op, &(struct fake_script){.mode = FAKE_HOLD});
}

static void break_op(enum fake_hv_op op)
{
	fake_hv_script(
		h->w->hv, op, &(struct fake_script){.mode = FAKE_FAIL, .kind = ERR_UNAVAILABLE});
}

/* ---- at the same time ---- */

static void test_two_at_once_make_one_and_both_get_it(void **state)
{
	char first[ID_BYTES];
	char second[ID_BYTES];

	(void)state;
	hold_op(FAKE_HV_START);
	struct client *one = ask("k", "{}");
	struct client *two = ask("k", "{}");

	WORLD_UNTIL(h->w, http_server_pending(h->server) == 2);
	assert_int_equal(sandboxes_count(h->w->all), 1);
	WORLD_UNTIL(h->w, fake_hv_held(h->w->hv, FAKE_HV_START) == 1);
	fake_hv_release(h->w->hv, FAKE_HV_START);
	expect_client(one, 201, first);
	expect_client(two, 200, second);
	assert_string_equal(first, second);
	assert_int_equal(fake_hv_calls(h->w->hv, FAKE_HV_START), 1);
}

static void test_who_does_not_wait_is_told_of_the_one_that_starts(void **state)
{
	char first[ID_BYTES];

	(void)state;
	hold_op(FAKE_HV_START);
	struct client *one = ask("k", "{\"wait\":true}");

	WORLD_UNTIL(h->w, http_server_pending(h->server) == 1);
	struct answer *a = create("k", "{\"wait\":false}");

	assert_int_equal(a->status, 202);
	assert_string_equal(answer_text(a, "status"), "provisioning");
	fake_hv_release(h->w->hv, FAKE_HV_START);
	expect_client(one, 201, first);
	assert_string_equal(answer_text(a, "id"), first);
}

static void test_one_that_leaves_takes_nothing_from_the_other(void **state)
{
	char id[ID_BYTES];

	(void)state;
	hold_op(FAKE_HV_START);
	struct client *one = ask("k", "{}");

	WORLD_UNTIL(h->w, http_server_pending(h->server) == 1);
	struct client *two = ask("k", "{}");

	WORLD_UNTIL(h->w, http_server_pending(h->server) == 2);
	client_reset(one);
	WORLD_UNTIL(h->w, http_server_pending(h->server) == 1);
	fake_hv_release(h->w->hv, FAKE_HV_START);
	expect_client(two, 200, id);
	assert_int_equal(sandboxes_count(h->w->all), 1);
	/* The one that left asks again. */
	struct answer *a = create("k", "{}");

	assert_int_equal(a->status, 200);
	assert_string_equal(answer_text(a, "id"), id);
}

static void test_a_failure_is_told_to_all_that_wait(void **state)
{
	char type[ID_BYTES];

	(void)state;
	hold_op(FAKE_HV_DISK_CREATE);
	break_op(FAKE_HV_START);
	struct client *one = ask("k", "{}");
	struct client *two = ask("k", "{}");

	WORLD_UNTIL(h->w, http_server_pending(h->server) == 2);
	WORLD_UNTIL(h->w, fake_hv_held(h->w->hv, FAKE_HV_DISK_CREATE) == 1);
	fake_hv_release(h->w->hv, FAKE_HV_DISK_CREATE);
	expect_client(one, 503, type);
	assert_string_equal(type, "unavailable");
	expect_client(two, 503, type);
	assert_string_equal(type, "unavailable");
}

/* ---- one after the other ---- */

static void test_a_failed_try_frees_its_key(void **state)
{
	(void)state;
	break_op(FAKE_HV_START);
	assert_int_equal(create("k", "{\"name\":\"a\"}")->status, 503);
	fake_hv_script(h->w->hv, FAKE_HV_START, NULL);
	WORLD_UNTIL(h->w, sandboxes_count(h->w->all) == 0);
	/* For any request: nothing was made that another one could be mistaken for. */
	struct answer *a = create("k", "{\"name\":\"a\",\"metadata\":{\"try\":\"2\"}}");

	assert_int_equal(a->status, 201);
	struct answer *again = create("k", "{\"name\":\"a\",\"metadata\":{\"try\":\"2\"}}");

	assert_int_equal(again->status, 200);
	assert_string_equal(answer_text(a, "id"), answer_text(again, "id"));
	/* The record of the failure stays. */
	a = http_get(h, h->key, "/v1/sandboxes?status=failed");
	assert_non_null(answer_text(a, "data.0.id"));
}

static void test_a_failed_try_frees_its_key_while_it_is_taken_back(void **state)
{
	(void)state;
	break_op(FAKE_HV_START);
	hold_op(FAKE_HV_DISK_REMOVE);
	assert_int_equal(create("k", "{\"name\":\"a\"}")->status, 503);
	fake_hv_script(h->w->hv, FAKE_HV_START, NULL);
	WORLD_UNTIL(h->w, fake_hv_held(h->w->hv, FAKE_HV_DISK_REMOVE) == 1);
	/* Its name isn't free yet. */
	struct answer *a = create("k", "{\"name\":\"a\"}");

	assert_int_equal(a->status, 503);
	assert_non_null(answer_header(a, "Retry-After"));
	assert_non_null(strstr(answer_text(a, "error.message"), "is being removed"));
	assert_int_equal(create("k", "{}")->status, 201);
	fake_hv_release(h->w->hv, FAKE_HV_DISK_REMOVE);
	WORLD_UNTIL(h->w, sandboxes_count(h->w->all) == 1);
	assert_int_equal(create("other", "{\"name\":\"a\"}")->status, 201);
}

static void test_a_key_holds_over_a_restart(void **state)
{
	(void)state;
	_cleanup_free_ char *id = xstrdup(answer_text(create("k", "{}"), "id"));

	break_op(FAKE_HV_START);
	assert_int_equal(create("failed", "{}")->status, 503);
	fake_hv_script(h->w->hv, FAKE_HV_START, NULL);
	WORLD_UNTIL(h->w, sandboxes_count(h->w->all) == 1);
	http_world_restart(h);
	struct answer *a = create("k", "{}");

	assert_int_equal(a->status, 200);
	assert_string_equal(answer_text(a, "id"), id);
	assert_int_equal(create("k", "{\"name\":\"b\"}")->status, 409);
	assert_int_equal(create("failed", "{}")->status, 201);
}

static void test_a_creation_that_a_crash_broke_off_frees_its_key(void **state)
{
	(void)state;
	hold_op(FAKE_HV_START);
	_cleanup_free_ char *id = xstrdup(answer_text(create("k", "{\"wait\":false}"), "id"));

	WORLD_UNTIL(h->w, fake_hv_held(h->w->hv, FAKE_HV_START) == 1);
	http_world_restart(h);
	fake_hv_script(h->w->hv, FAKE_HV_START, NULL);
	WORLD_UNTIL(h->w, sandboxes_count(h->w->all) == 0);
	struct answer *a = create("k", "{}");

	assert_int_equal(a->status, 201);
	assert_string_not_equal(answer_text(a, "id"), id);
}

static void test_a_key_whose_sandbox_is_over_says_so(void **state)
{
	struct answer *a = create("k", "{}");
	const char *id = answer_text(a, "id");
	_cleanup_free_ char *path = xasprintf("/v1/sandboxes/%s", id);
	struct client *c = client_new(h);

	(void)state;
	hold_op(FAKE_HV_DESTROY);
	client_request(c, "DELETE", path, h->key, NULL, NULL, NULL, 0);
	WORLD_UNTIL(h->w, fake_hv_held(h->w->hv, FAKE_HV_DESTROY) == 1);
	a = create("k", "{}");
	assert_int_equal(a->status, 409);
	assert_string_equal(answer_text(a, "error.type"), "sandbox_ended");
	fake_hv_release(h->w->hv, FAKE_HV_DESTROY);
	answer_free(client_answer(c, false));
	client_free(c);
	a = create("k", "{}");
	assert_int_equal(a->status, 409);
	assert_string_equal(answer_text(a, "error.type"), "sandbox_ended");
	assert_non_null(strstr(answer_text(a, "error.message"), id));
	/* The name is another matter. */
	assert_int_equal(create("k2", "{\"name\":\"a\"}")->status, 201);
}

static void test_keys_are_an_accounts_own(void **state)
{
	struct answer *a = create("k", "{\"name\":\"a\"}");
	struct answer *b = create_as(h->other_key, "k", "{\"name\":\"b\"}");

	(void)state;
	assert_int_equal(a->status, 201);
	assert_int_equal(b->status, 201);
	assert_string_not_equal(answer_text(a, "id"), answer_text(b, "id"));
}

static void test_a_refused_request_binds_no_key(void **state)
{
	(void)state;
	assert_int_equal(create("k", "{\"size\":\"huge\"}")->status, 400);
	assert_int_equal(create("k", "{\"timeout_minutes\":100000}")->status, 400);
	create("other", "{\"name\":\"a\"}");
	assert_int_equal(create("k", "{\"name\":\"a\"}")->status, 409);
	assert_int_equal(create("k", "{}")->status, 201);
}

/* ---- what is the same request ---- */

static void test_every_field_but_wait_makes_another_request(void **state)
{
	static const char *const others[] = {"{\"size\":\"tiny\"}", "{\"name\":\"a\"}",
		"{\"timeout_minutes\":16}", "{\"temporary\":false}", "{\"image\":\"minimal\"}",
		"{\"network\":\"none\"}", "{\"env\":{\"A\":\"1\"}}", "{\"env\":{\"A\":\"2\"}}",
		"{\"env\":{}}", "{\"metadata\":{\"A\":\"1\"}}", "{\"metadata\":{}}",
		"{\"vcpus\":1,\"memory_mb\":256,\"disk_gb\":2}",
		"{\"vcpus\":1,\"memory_mb\":256,\"disk_gb\":3}",
		"{\"vcpus\":1,\"memory_mb\":512,\"disk_gb\":2}",
		"{\"vcpus\":2,\"memory_mb\":256,\"disk_gb\":2}"};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
		_cleanup_free_ char *key = xasprintf("k%zu", i);
		struct answer *a = create(key, others[i]);

		if (a->status != 201) {
			fail_msg("%s: %d", others[i], a->status);
		}
		for (size_t k = 0; k <= ARRAY_SIZE(others); k++) {
			const char *body = k == ARRAY_SIZE(others) ? "{}" : others[k];
			struct answer *b = create(key, body);

			if (b->status != (k == i ? 200 : 409)) {
				fail_msg("%s after %s: %d", body, others[i], b->status);
			}
		}
		_cleanup_free_ char *path = xasprintf("/v1/sandboxes/%s", answer_text(a, "id"));

		assert_int_equal(http_json(h, "DELETE", path, h->key, NULL)->status, 200);
	}
}

static void test_how_a_request_is_written_does_not_matter(void **state)
{
	static const char *const same[] = {
		"{ \"metadata\":{\"b\":\"\\u00e4\",\"a\":\"1\"},\n\"env\":{\"X\":\"\"}, "
		"\"name\":\"a\"}",
		"{\"name\":\"\\u0061\",\"env\":{\"X\":\"\"},\"metadata\":{\"a\":\"1\",\"b\":\"ä\"},"
		"\"wait\":false}",
		/* A default that stands in the table, said. */
		"{\"temporary\":true,\"name\":\"a\",\"env\":{\"X\":\"\"},\"metadata\":{\"a\":\"1\","
		"\"b\":\"ä\"}}",
		/* null is as good as leaving it out. */
		"{\"image\":null,\"name\":\"a\",\"env\":{\"X\":\"\"},\"metadata\":{\"a\":\"1\","
		"\"b\":\"ä\"}}"};
	const char *id = NULL;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(same); i++) {
		struct answer *a = create("k", same[i]);

		assert_int_equal(a->status, i ? 200 : 201);
		if (id) {
			assert_string_equal(answer_text(a, "id"), id);
		}
		id = answer_text(a, "id");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, http_set_up, http_tear_down)
		T(test_two_at_once_make_one_and_both_get_it),
		T(test_who_does_not_wait_is_told_of_the_one_that_starts),
		T(test_one_that_leaves_takes_nothing_from_the_other),
		T(test_a_failure_is_told_to_all_that_wait),
		T(test_a_failed_try_frees_its_key),
		T(test_a_failed_try_frees_its_key_while_it_is_taken_back),
		T(test_a_key_holds_over_a_restart),
		T(test_a_creation_that_a_crash_broke_off_frees_its_key),
		T(test_a_key_whose_sandbox_is_over_says_so),
		T(test_keys_are_an_accounts_own),
		T(test_a_refused_request_binds_no_key),
		T(test_every_field_but_wait_makes_another_request),
		T(test_how_a_request_is_written_does_not_matter),
#undef T
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
