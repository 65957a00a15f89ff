#include "tests/lib/http_files.h"

#include <stdlib.h>

#include "base/xalloc.h"
#include "ops/op.h"

/* Bodies both ways: files as bytes and as JSON, and their limits. */

/* ---- what comes back is what went in ---- */

static void test_raw_files_come_back_equal(void **state)
{
	static const size_t lengths[] = {0, 1, 65536, 3 * 1000 * 1000 + 7};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		_cleanup_free_ char *bytes = http_files_random(lengths[i]);
		struct answer *a = http_files_put("/files?path=/tmp/a%20b", bytes, lengths[i]);

		assert_int_equal(a->status, 200);
		assert_int_equal(atol(answer_text(a, "size_bytes")), lengths[i]);
		assert_string_equal(answer_text(a, "path"), "/tmp/a b");
		a = http_files_get("/files?path=/tmp/a%20b");
		assert_int_equal(a->status, 200);
		assert_string_equal(answer_header(a, "Content-Type"), HTTP_OCTETS);
		assert_int_equal(atol(answer_header(a, "X-File-Size")), lengths[i]);
		assert_int_equal(a->len, lengths[i]);
		assert_memory_equal(a->body, bytes, lengths[i]);
	}
}

static void test_the_path_may_come_in_a_header(void **state)
{
	struct answer *a = http_request(h, "PUT", http_files_at("/files"), h->key,
		"X-File-Path: /tmp/from header\r\n", HTTP_OCTETS, "abc", 3);

	(void)state;
	assert_int_equal(a->status, 200);
	a = http_request(h, "GET", http_files_at("/files"), h->key,
		"X-File-Path: /tmp/from header\r\n", NULL, NULL, 0);
	assert_string_equal(answer_text(a, "content"), "abc");
	assert_int_equal(http_get(h, h->key, http_files_at("/files"))->status, 400);
}

static void test_json_files(void **state)
{
	struct answer *a = http_json(h, "PUT", http_files_at("/files"), h->key,
		"{\"path\":\"/tmp/t\",\"content\":\"gr\\u00fc\\u00df\\u0000x\"}");

	(void)state;
	assert_int_equal(a->status, 200);
	assert_string_equal(answer_text(a, "size_bytes"), "8");
	a = http_get(h, h->key, http_files_at("/files?path=/tmp/t"));
	assert_int_equal(a->status, 200);
	assert_non_null(strstr(a->body, "\"content\":\"gr\xc3\xbc\xc3\x9f\\u0000x\""));
	assert_null(answer_text(a, "content_base64"));

	a = http_json(h, "PUT", http_files_at("/files"), h->key,
		"{\"path\":\"/tmp/b\",\"content_base64\":\"/wABgA==\"}");
	assert_string_equal(answer_text(a, "size_bytes"), "4");
	a = http_get(h, h->key, http_files_at("/files?path=/tmp/b"));
	assert_string_equal(answer_text(a, "content_base64"), "/wABgA==");
	assert_null(answer_text(a, "content"));
	a = http_get(h, h->key, http_files_at("/files?path=/tmp/t&offset=2&length=2"));
	assert_string_equal(answer_text(a, "content"), "\xc3\xbc");
}

static void test_writes_need_one_content(void **state)
{
	static const char *const bodies[] = {"{\"path\":\"/tmp/x\"}", "{\"content\":\"x\"}",
		"{\"path\":\"/tmp/x\",\"content\":\"x\",\"content_base64\":\"eA==\"}",
		"{\"path\":\"\",\"content\":\"x\"}", "{\"path\":\"/a\\u0000b\",\"content\":\"x\"}"};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bodies); i++) {
		struct answer *a = http_json(h, "PUT", http_files_at("/files"), h->key, bodies[i]);

		assert_int_equal(a->status, 400);
	}
	assert_int_equal(fake_guest_calls(h->w->guests, FAKE_GUEST_PUT), 0);
}

static void test_what_the_guest_refuses_has_its_word(void **state)
{
	struct answer *a = http_get(h, h->key, http_files_at("/files?path=/tmp/none"));

	(void)state;
	assert_int_equal(a->status, 404);
	assert_string_equal(answer_text(a, "error.type"), "not_found");
	assert_string_equal(answer_text(a, "error.code"), "not_found");
	a = http_files_get("/files?path=/tmp/none");
	assert_int_equal(a->status, 404);
	assert_string_equal(answer_text(a, "error.code"), "not_found");
}

static void test_directories_are_listed(void **state)
{
	struct answer *a;

	(void)state;
	http_files_put("/files?path=/d/one", "1", 1);
	http_files_put("/files?path=/d/two%FF", "22", 2);
	a = http_get(h, h->key, http_files_at("/files?path=/d&list=true"));
	assert_int_equal(a->status, 200);
	assert_string_equal(answer_text(a, "truncated"), "false");
	assert_string_equal(answer_text(a, "entries.0.name"), "one");
	assert_string_equal(answer_text(a, "entries.0.type"), "file");
	assert_string_equal(answer_text(a, "entries.1.name"), "two\xef\xbf\xbd");
	assert_string_equal(answer_text(a, "entries.1.name_base64"), "dHdv/w==");
	a = http_get(h, h->key, http_files_at("/files?path=/d&list=true&limit=1"));
	assert_string_equal(answer_text(a, "truncated"), "true");
	assert_null(answer_text(a, "entries.1"));
	a = http_get(h, h->key, http_files_at("/files?path=/d/two%ff"));
	assert_string_equal(answer_text(a, "content"), "22");
}

static void test_head_of_a_file_sends_none_of_it(void **state)
{
	struct answer *a;

	(void)state;
	http_files_put("/files?path=/tmp/h", "12345", 5);
	a = http_request(h, "HEAD", http_files_at("/files?path=/tmp/h"), h->key, HTTP_ACCEPT_OCTETS,
		NULL, NULL, 0);
	assert_int_equal(a->status, 200);
	assert_string_equal(answer_header(a, "X-File-Size"), "5");
	WORLD_UNTIL(h->w, fake_guest_call_count(h->w->guests) == 0);
}

/* ---- stdin ---- */

static void test_stdin_reaches_the_command(void **state)
{
	struct answer *a = http_json(h, "POST", http_files_at("/exec"), h->key,
		"{\"args\":[\"cat\"],\"stdin\":\"text\"}");

	(void)state;
	assert_string_equal(answer_text(a, "stdout"), "text");
	a = http_json(h, "POST", http_files_at("/exec"), h->key,
		"{\"command\":\"cat\",\"stdin_base64\":\"/w==\"}");
	assert_string_equal(answer_text(a, "stdout"), "\xef\xbf\xbd");
	assert_string_equal(answer_text(a, "stdout_base64"), "/w==");
	a = http_request(h, "POST", http_files_at("/exec?args=cat&timeout_ms=60000&env.A=b"),
		h->key, NULL, HTTP_OCTETS, "raw", 3);
	assert_string_equal(answer_text(a, "stdout"), "raw");
	a = http_request(h, "POST", http_files_at("/exec?args=echo&args=a%26b&args=c"), h->key,
		NULL, HTTP_OCTETS, "", 0);
	assert_string_equal(answer_text(a, "stdout"), "a&b c\n");
	a = http_json(h, "POST", http_files_at("/exec"), h->key,
		"{\"command\":\"cat\",\"stdin\":\"\",\"stdin_base64\":\"\"}");
	assert_int_equal(a->status, 400);
	assert_int_equal(http_json(h, "POST", http_files_at("/exec"), h->key,
				 "{\"command\":\"true\",\"args\":[\"true\"]}")
				 ->status,
		400);
	assert_int_equal(http_json(h, "POST", http_files_at("/exec"), h->key, "{}")->status, 400);
	assert_int_equal(http_json(h, "POST", http_files_at("/exec"), h->key,
				 "{\"command\":\"true\",\"timeout_ms\":3600001}")
				 ->status,
		400);
}

static void test_outputs_are_capped_and_codes_kept(void **state)
{
	struct answer *a = http_json(
		h, "POST", http_files_at("/exec"), h->key, "{\"command\":\"bytes 5000\"}");

	(void)state;
	assert_int_equal(a->status, 200);
	assert_string_equal(answer_text(a, "truncated"), "true");
	assert_string_equal(answer_text(a, "stdout_bytes"), "5000");
	assert_int_equal(strlen(answer_text(a, "stdout")),
		h->w->config.exec_output_cap + strlen("\n[2952 bytes of output left out here]\n"));
	a = http_json(h, "POST", http_files_at("/exec"), h->key, "{\"command\":\"exit 7\"}");
	assert_string_equal(answer_text(a, "exit_code"), "7");
	a = http_json(h, "POST", http_files_at("/exec"), h->key, "{\"command\":\"kill 9\"}");
	assert_string_equal(answer_text(a, "exit_code"), "137");
	assert_string_equal(answer_text(a, "signal"), "9");
}
/* ---- limits ---- */

static void test_a_body_over_the_limit_is_413(void **state)
{
	const size_t max = 1 << 20;
	_cleanup_free_ char *bytes = http_files_random(4 * max);
	struct answer *a = http_files_put("/files?path=/tmp/x", bytes, max);

	(void)state;
	assert_int_equal(a->status, 200);
	a = http_files_put("/files?path=/tmp/x", bytes, max + 1);
	assert_int_equal(a->status, 413);
	assert_string_equal(answer_text(a, "error.type"), "too_large");
	assert_non_null(strstr(answer_text(a, "error.message"), "1048576"));
	a = http_files_put("/files?path=/tmp/x", bytes, 4 * max);
	assert_int_equal(a->status, 413);
	assert_string_equal(answer_text(a, "error.type"), "too_large");
}

/* Of JSON, which is held until it is whole. */
static void test_bodies_together_are_bounded(void **state)
{
	struct client *clients[8];
	const size_t len = 1000 * 1000;
	_cleanup_free_ char *bytes = xcalloc(len + 1, 1);
	unsigned refused = 0;

	(void)state;
	memset(bytes, ' ', len);
	memcpy(bytes, "{\"content\":\"x\"", 14);
	bytes[len - 1] = '}';
	/* Each all but complete. */
	for (size_t i = 0; i < ARRAY_SIZE(clients); i++) {
		_cleanup_free_ char *length = xasprintf("Content-Length: %zu\r\n", len);

		clients[i] = client_new(h);
		client_request(clients[i], "PUT", http_files_at("/files?path=/tmp/x"), h->key,
			length, "application/json", NULL, 0);
		client_send(clients[i], bytes, len - 1);
		world_run(h->w, 20);
	}
	for (size_t i = 0; i < ARRAY_SIZE(clients); i++) {
		client_poll(clients[i]);
		if (evbuffer_get_length(clients[i]->in) > 0) {
			struct answer *a = client_answer(clients[i], false);

			assert_int_equal(a->status, 503);
			assert_string_equal(answer_text(a, "error.type"), "unavailable");
			assert_non_null(answer_header(a, "Retry-After"));
			answer_free(a);
			refused++;
		} else {
			client_send(clients[i], bytes + len - 1, 1);
			struct answer *a = client_answer(clients[i], false);

			assert_int_equal(a->status, 200);
			answer_free(a);
		}
		client_free(clients[i]);
	}
	assert_in_range(refused, 3, 5);
	/* Nothing of it is held any more. */
	assert_int_equal(http_files_put("/files?path=/tmp/x", bytes, len)->status, 200);
}

/* Those that leave in the middle of a body give back what they held. */
static void test_unfinished_bodies_are_given_back(void **state)
{
	const size_t len = 1000 * 1000;
	_cleanup_free_ char *bytes = http_files_random(len);

	(void)state;
	for (int i = 0; i < 20; i++) {
		struct client *c = client_new(h);

		client_request(c, "PUT", http_files_at("/files?path=/tmp/x"), h->key,
			"Content-Length: 1000000\r\n", HTTP_OCTETS, NULL, 0);
		client_send(c, bytes, len - 1);
		world_run(h->w, 10);
		client_free(c);
		world_run(h->w, 10);
	}
	assert_int_equal(http_files_put("/files?path=/tmp/x", bytes, len)->status, 200);
}

static void test_large_files_do_not_fit_into_json(void **state)
{
	struct answer *a;

	(void)state;
	http_files_put_large(2u << 20);
	a = http_get(h, h->key, http_files_at("/files?path=/tmp/large"));
	assert_int_equal(a->status, 413);
	assert_non_null(strstr(answer_text(a, "error.message"), "octet-stream"));
	a = http_get(h, h->key, http_files_at("/files?path=/tmp/large&length=500000"));
	assert_int_equal(a->status, 200);
	WORLD_UNTIL(h->w, fake_guest_call_count(h->w->guests) == 0);
}

static void test_json_bodies_are_smaller_than_raw_ones(void **state)
{
	static const char json[] = "{\"path\":\"/tmp/x\",\"content\":\"\"}";
	const size_t len = API_JSON_MAX_BYTES + 1;
	_cleanup_free_ char *body = xcalloc(len + 1, 1);
	struct answer *a;

	(void)state;
	memset(body, ' ', len);
	memcpy(body, json, sizeof json - 1);
	a = http_request(
		h, "PUT", http_files_at("/files"), h->key, NULL, "application/json", body, len);
	assert_int_equal(a->status, 413);
	assert_non_null(strstr(answer_text(a, "error.message"), "octet-stream"));
	a = http_request(
		h, "PUT", http_files_at("/files"), h->key, NULL, "application/json", body, len - 1);
	assert_int_equal(a->status, 200);
	assert_int_equal(http_files_put("/files?path=/tmp/x", body, len)->status, 200);
}

/* Files on their way into JSON are held as well. */
static void test_collected_files_are_bounded_together(void **state)
{
	struct client *clients[8];
	unsigned refused = 0;

	(void)state;
	http_files_put_large(1u << 20);
	h->ops->config.bodies_total_bytes = 4 << 20;
	for (size_t i = 0; i < ARRAY_SIZE(clients); i++) {
		clients[i] = client_new(h);
		client_request(clients[i], "GET", http_files_at("/files?path=/tmp/large"), h->key,
			NULL, NULL, NULL, 0);
	}
	for (size_t i = 0; i < ARRAY_SIZE(clients); i++) {
		struct answer *a = client_answer(clients[i], false);

		assert_true(a->status == 200 || a->status == 503);
		refused += a->status == 503;
		answer_free(a);
		client_free(clients[i]);
	}
	assert_in_range(refused, 1, 7);
	WORLD_UNTIL(h->w, fake_guest_call_count(h->w->guests) == 0);
	assert_int_equal(h->ops->collected_bytes, 0);
}

/* A guest that sends on after it has been told to stop takes nothing of what is for all accounts.
 */
static void test_what_is_thrown_away_is_not_counted(void **state)
{
	struct client *c = client_new(h);
	uint64_t most = 0;

	(void)state;
	http_files_put_large(15u << 20);
	fake_guest_ignore_cancel(h->w->guests);
	client_request(
		c, "GET", http_files_at("/files?path=/tmp/large"), h->key, NULL, NULL, NULL, 0);
	WORLD_UNTIL(h->w, fake_guest_call_count(h->w->guests) == 1);
	WORLD_UNTIL(h->w, (most = MAX(most, h->ops->collected_bytes),
				  fake_guest_call_count(h->w->guests) == 0));
	/* The limit, and what was on its way when it was reached. */
	assert_in_range(most, 1, 3u << 20);
	struct answer *a = client_answer(c, false);

	assert_int_equal(a->status, 413);
	assert_int_equal(h->ops->collected_bytes, 0);
	answer_free(a);
	client_free(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, http_files_set_up, http_tear_down)
#define S(name) cmocka_unit_test_setup_teardown(name, http_files_set_up_small, http_tear_down)
		T(test_raw_files_come_back_equal),
		T(test_the_path_may_come_in_a_header),
		T(test_json_files),
		T(test_writes_need_one_content),
		T(test_what_the_guest_refuses_has_its_word),
		T(test_directories_are_listed),
		T(test_head_of_a_file_sends_none_of_it),
		T(test_stdin_reaches_the_command),
		T(test_outputs_are_capped_and_codes_kept),
		S(test_a_body_over_the_limit_is_413),
		S(test_bodies_together_are_bounded),
		S(test_unfinished_bodies_are_given_back),
		S(test_large_files_do_not_fit_into_json),
		T(test_json_bodies_are_smaller_than_raw_ones),
		S(test_collected_files_are_bounded_together),
		S(test_what_is_thrown_away_is_not_counted),
#undef T
#undef S
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
