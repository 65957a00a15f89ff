/* What the log says, how much of it, and what it never says. */
#include "tests/lib/http_fixture.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "base/xalloc.h"
#include "tests/lib/http_events.h"

static int saved_stderr;
static int log_fd;

static int set_up(void **state)
{
	char name[] = "/tmp/paddock-log-XXXXXX";

	(void)state;
	h = http_world_new(NULL);
	log_fd = mkostemp(name, O_CLOEXEC);
	saved_stderr = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
	if (log_fd < 0 || saved_stderr < 0 || unlink(name) < 0) {
		return -1;
	}
	log_set_level(LOG_LEVEL_DEBUG);
	return dup2(log_fd, STDERR_FILENO) < 0 ? -1 : 0;
}

static int tear_down(void **state)
{
	(void)state;
	http_world_free(h);
	dup2(saved_stderr, STDERR_FILENO);
	close(saved_stderr);
	close(log_fd);
	return 0;
}

/* All that was written since the test began; the caller frees. */
static char *read_log(void)
{
	off_t size = lseek(log_fd, 0, SEEK_END);
	char *text = xcalloc((size_t)size + 1, 1);

	assert_int_equal(pread(log_fd, text, (size_t)size, 0), size);
	return text;
}

static unsigned count_lines(const char *text, const char *with)
{
	unsigned count = 0;

	for (const char *line = strstr(text, with); line; line = strstr(line + 1, with)) {
		count++;
	}
	return count;
}

/* A copy of the only line with @with. */
static char *only_line(const char *with)
{
	_cleanup_free_ char *text = read_log();
	const char *found = strstr(text, with);

	if (!found || strstr(found + 1, with)) {
		dup2(saved_stderr, STDERR_FILENO);
		fail_msg("not just one line with %s in:\n%s", with, text);
		return NULL;
	}
	while (found > text && found[-1] != '\n') {
		found--;
	}
	return xasprintf("%.*s", (int)strcspn(found, "\n"), found);
}

static void expect_fields(const char *line, const char *const *fields)
{
	for (; *fields; fields++) {
		if (!strstr(line, *fields)) {
			dup2(saved_stderr, STDERR_FILENO);
			fail_msg("no %s in: %s", *fields, line);
		}
	}
}

/* ---- one line for each operation ---- */

static void test_an_operation_is_one_line_that_says_all(void **state)
{
	(void)state;
	struct answer *a = http_json(h, "POST", "/v1/sandboxes", h->key, "{\"name\":\"web\"}");
	_cleanup_free_ char *id = xstrdup(answer_text(a, "id"));
	_cleanup_free_ char *account = xasprintf(" account=%s ", h->account);
	_cleanup_free_ char *by = xasprintf(" by=%s ", h->key_id);
	_cleanup_free_ char *sb = xasprintf(" sb=%s ", id);
	_cleanup_free_ char *rq = xasprintf(" rq=%s ", answer_header(a, "X-Request-Id"));
	_cleanup_free_ char *created = only_line("op=sandbox.create ");

	expect_fields(created, (const char *const[]){"<6>call ", account, by, sb, rq,
				       " status=201 ", " error=- ", " ms=", " bytes=", NULL});
	/* By its name, and refused. */
	a = http_json(h, "POST", http_at("web", "/extend"), h->key, "{\"minutes\":5}");
	assert_int_equal(a->status, 200);
	_cleanup_free_ char *extended = only_line("op=sandbox.extend ");

	expect_fields(extended, (const char *const[]){account, sb, " status=200 ", NULL});
	http_json(h, "DELETE", http_at(id, ""), h->key, NULL);
	http_json(h, "POST", http_at(id, "/exec"), h->key, "{\"command\":\"true\"}");
	_cleanup_free_ char *refused = only_line("op=exec ");

	expect_fields(refused,
		(const char *const[]){account, sb, " status=409 ", " error=sandbox_ended ", NULL});
	/* Nobody learns from the log that another account's sandbox exists. */
	http_get(h, h->other_key, http_at(id, "/exec"));
	_cleanup_free_ char *hidden = only_line("op=exec.list ");

	expect_fields(hidden, (const char *const[]){" sb=- ", " status=404 ", NULL});
}

/* ---- secrets ---- */

#define MARK "TOPSECRET"

static void ask(const char *method, const char *target, const char *key, const char *more,
	const char *type, const char *body)
{
	/* So that no line of a refusal hides behind the limit. */
	clock_test_advance(1001, 0);
	http_request(h, method, target, key, more, type, body, body ? strlen(body) : 0);
}

static void json(const char *method, const char *target, const char *body)
{
	ask(method, target, h->key, NULL, "application/json", body);
}

static void create(const char *more, const char *body)
{
	ask("POST", "/v1/sandboxes", h->key, more, "application/json", body);
}

static void use_secrets_well(const char *id)
{
	create("Idempotency-Key: " MARK "-1\r\n",
		"{\"env\":{\"A\":\"" MARK "\"},\"metadata\":{\"m\":\"" MARK "\"}}");
	create("Idempotency-Key: " MARK "-1\r\n", "{\"name\":\"x\"}");
	json("POST", http_at(id, "/exec"),
		"{\"command\":\"echo " MARK "\",\"env\":{\"A\":\"" MARK "\"},\"stdin\":\"" MARK
		"\"}");
	json("POST", http_at(id, "/exec"),
		"{\"command\":\"warn " MARK "\",\"stdin_base64\":\"" MARK "===\"}");
	json("POST", http_at(id, "/exec"), "{\"args\":[\"" MARK "\"]}");
	ask("POST", http_at(id, "/exec?command=cat&env.A=" MARK), h->key, NULL,
		"application/octet-stream", MARK);
	json("PUT", http_at(id, "/files?path=a"), "{\"path\":\"a\",\"content\":\"" MARK "\"}");
	ask("PUT", http_at(id, "/files?path=b"), h->key, NULL, "application/octet-stream", MARK);
	http_get(h, h->key, http_at(id, "/files?path=b"));
	http_get(h, h->key, "/v1/sandboxes?metadata.m=" MARK);
	http_get(h, h->key, http_at(id, "/exec"));
}

/* In places and forms where they don't belong: a message may not quote them. */
static void use_secrets_badly(const char *id)
{
	static const char *const bodies[] = {
		"{\"env\":\"" MARK "\"}",
		"{\"env\":[\"" MARK "\"]}",
		"{\"env\":{\"A\":[\"" MARK "\"]}}",
		"{\"env\":{\"A\":\"" MARK "\\u0000\"}}",
		"{\"env\":{\"A\":\"" MARK "\"",
		"{\"metadata\":{\"m\":{\"n\":\"" MARK "\"}}}",
		"{\"name\":\"" MARK "\"}",
		"{\"size\":\"" MARK "\\n\"}",
		"{\"network\":\"" MARK "\"}",
		"{\"timeout_minutes\":\"" MARK "\"}",
		"{\"wait\":\"" MARK "\"}",
		"{\"command\":\"" MARK "\",\"args\":[\"" MARK "\"]}",
		"{\"stdin\":\"" MARK "\",\"stdin_base64\":\"" MARK "\",\"command\":\"x\"}",
		"{\"command\":\"x\",\"stdin_base64\":\"!" MARK "\"}",
		"{\"content\":{\"a\":\"" MARK "\"}}",
		MARK,
	};

	for (size_t i = 0; i < ARRAY_SIZE(bodies); i++) {
		json("POST", "/v1/sandboxes", bodies[i]);
		json("POST", http_at(id, "/exec"), bodies[i]);
		json("PUT", http_at(id, "/files?path=x"), bodies[i]);
		ask("POST", "/v1/sandboxes", h->key, NULL, MARK, bodies[i]);
	}
	create("Idempotency-Key: " MARK "\x01\r\n", "{}");
	/* Keys that are none, are too long, and stand elsewhere. */
	ask("GET", "/v1/sandboxes", "pdk_" MARK, NULL, NULL, NULL);
	ask("GET", "/v1/sandboxes", NULL, "Authorization: Basic " MARK "\r\n", NULL, NULL);
	ask("GET", "/v1/sandboxes", NULL, "x-api-key: " MARK "\r\n", NULL, NULL);
	ask("GET", "/v1/sandboxes", h->key, "x-api-key: pdk_" MARK "\r\n", NULL, NULL);
	ask("GET", "/v1/sandboxes?cursor=" MARK, h->key, NULL, NULL, NULL);
	ask("GET", "/v1/sandboxes?limit=" MARK, h->key, NULL, NULL, NULL);
	ask("GET", "/v1/sandboxes?status=" MARK, h->key, NULL, NULL, NULL);
	ask("GET", "/v1/sandboxes/pdk_" MARK, h->key, NULL, NULL, NULL);
	ask("GET", "/v1/" MARK, h->key, NULL, NULL, NULL);
	/* A key where a name should be: that is quoted, but no key is. */
	ask("GET", "/v1/sandboxes?pdk_" MARK "=1", NULL, NULL, NULL, NULL);
	ask("GET", "/v1/sandboxes?pdk_" MARK "=1", h->key, NULL, NULL, NULL);
	ask("GET", "/v1/sandboxes?pdk%5f" MARK, h->key, NULL, NULL, NULL);
	ask("GET", "/v1/sandboxes?metadata.pdk_" MARK "=1&metadata.pdk_" MARK "=2", h->key, NULL,
		NULL, NULL);
	json("POST", "/v1/sandboxes", "{\"pdk_" MARK "\":1}");
	json("POST", "/v1/sandboxes", "{\"\\u0070dk_" MARK "\":1}");
	json("POST", "/v1/sandboxes", "{\"env\":{\"pdk_" MARK "\":1}}");
	json("POST", "/v1/sandboxes", "{\"metadata\":{\"pdk_" MARK "\":1}}");
	ask("pdk_" MARK, "/v1/sandboxes", h->key, NULL, NULL, NULL);
}

static void test_a_stream_that_fails_says_so_in_its_line(void **state)
{
	(void)state;
	_cleanup_free_ char *id = xstrdup(http_running(h, NULL));
	struct event_stream *s = event_stream_new(
		h, "POST", http_at(id, "/exec"), h->key, "{\"command\":\"hang\"}");
	struct event event;

	event_stream_expect(s, "start", &event);
	event_fini(&event);
	fake_guest_drop(h->w->guests, id, 10);
	event_stream_expect(s, "error", &event);
	event_fini(&event);
	assert_false(event_stream_next(s, &event));
	event_stream_free(s);
	_cleanup_free_ char *line = only_line("op=exec ");

	expect_fields(line, (const char *const[]){" status=200 ", " error=unavailable ", NULL});
}

static void test_secrets_never_reach_the_log(void **state)
{
	(void)state;
	h->w->config.results_count = 3;
	h->w->config.result_bytes = 100;
	http_world_restart(h);
	_cleanup_free_ char *id = xstrdup(http_running(h, NULL));

	use_secrets_well(id);
	use_secrets_badly(id);
	json("DELETE", http_at(id, ""), NULL);
	_cleanup_free_ char *text = read_log();
	const char *leak = strstr(text, MARK);

	assert_null(strstr(text, h->key + 4));
	assert_true(count_lines(text, "<6>call ") > 10);
	assert_true(count_lines(text, "request refused") > 50);
	if (leak) {
		dup2(saved_stderr, STDERR_FILENO);
		fail_msg("%.*s", 300, leak - MIN(leak - text, 150));
	}
}

static void test_what_comes_from_outside_is_quoted(void **state)
{
	(void)state;
	http_get(h, h->key, "/v1/sandboxes?a%0a%3c3%3eforged%1b%5b2J=1");
	_cleanup_free_ char *line = only_line("request refused");

	expect_fields(
		line, (const char *const[]){"<6>request refused ", " rq=rq_", " why=\"", NULL});
	assert_null(strchr(line, 0x1b));
	_cleanup_free_ char *text = read_log();

	assert_null(strstr(text, "\n<3>forged"));
}

/* ---- refusals ---- */

static void test_a_refusal_says_which_operation_and_whose(void **state)
{
	_cleanup_free_ char *account = xasprintf(" account=%s ", h->account);
	_cleanup_free_ char *by = xasprintf(" by=%s ", h->key_id);

	(void)state;
	http_json(h, "POST", "/v1/sandboxes", h->key, "{\"vcpus\":0}");
	_cleanup_free_ char *field = only_line("op=sandbox.create ");

	expect_fields(field, (const char *const[]){"<6>request refused ", account, by,
				     " status=400 ", " error=invalid_request ", " why=\"", NULL});
	http_get(h, NULL, "/v1/sandboxes/web");
	_cleanup_free_ char *keyless = only_line("op=sandbox.get ");

	expect_fields(keyless, (const char *const[]){" account=- by=- ", " status=401 ",
				       " error=unauthenticated ", NULL});
	http_admin(h, "POST", "/v1/admin/accounts", "{\"nonsense\":1}");
	_cleanup_free_ char *admin = only_line("op=account.create ");

	expect_fields(admin, (const char *const[]){" account=- by=admin ", " status=400 ", NULL});
	http_get(h, h->key, "/nothing");
	_cleanup_free_ char *nowhere = only_line("op=- ");

	expect_fields(nowhere, (const char *const[]){" account=- by=- ", " status=404 ", NULL});
}

static void test_refusals_with_a_key_are_all_logged(void **state)
{
	(void)state;
	for (int i = 0; i < 100; i++) {
		http_get(h, h->key, "/v1/sandboxes?nonsense=1");
	}
	_cleanup_free_ char *text = read_log();

	assert_int_equal(count_lines(text, "request refused"), 100);
}

/* ---- limits ---- */

static void test_clients_without_a_key_can_not_flood_the_log(void **state)
{
	(void)state;
	for (int i = 0; i < 100; i++) {
		http_get(h, NULL, "/v1/service");
		http_get(h, NULL, "/openapi.json");
		http_get(h, NULL, "/v1/sandboxes");
		http_get(h, NULL, "/nothing");
	}
	_cleanup_free_ char *text = read_log();

	/* Some a second, and this takes a few at the most. */
	assert_in_range(count_lines(text, "op=service"), 1, 60);
	assert_in_range(count_lines(text, "request refused"), 1, 60);
	/* What was held back is counted with the next one. */
	clock_test_advance(2000, 0);
	http_get(h, NULL, "/v1/service");
	_cleanup_free_ char *more = read_log();

	assert_non_null(strstr(more + strlen(text), "op=service.info"));
	assert_non_null(strstr(more, " held_back="));
}

static void test_calls_with_a_key_are_all_logged(void **state)
{
	(void)state;
	for (int i = 0; i < 100; i++) {
		http_get(h, h->key, "/v1/sandboxes");
	}
	_cleanup_free_ char *text = read_log();

	assert_int_equal(count_lines(text, "op=sandbox.list"), 100);
}

/* A guest that breaks its channel, and one that takes no settings, again and again. */
static void test_a_guest_can_not_flood_the_log(void **state)
{
	const char *id = http_running(h, NULL);

	(void)state;
	fake_guest_script(h->w->guests, FAKE_GUEST_CONFIGURE,
		&(struct fake_script){.mode = FAKE_FAIL, .kind = ERR_GUEST});
	for (int i = 0; i < 50; i++) {
		unsigned before = fake_guest_calls(h->w->guests, FAKE_GUEST_CONFIGURE);

		fake_guest_drop(h->w->guests, id, 0);
		WORLD_UNTIL(h->w, fake_guest_calls(h->w->guests, FAKE_GUEST_CONFIGURE) > before);
	}
	_cleanup_free_ char *text = read_log();

	assert_in_range(
		count_lines(text, "guest channel lost") + count_lines(text, "guest not configured"),
		1, 60);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
		T(test_an_operation_is_one_line_that_says_all),
		T(test_a_stream_that_fails_says_so_in_its_line),
		T(test_secrets_never_reach_the_log),
		T(test_what_comes_from_outside_is_quoted),
		T(test_a_refusal_says_which_operation_and_whose),
		T(test_refusals_with_a_key_are_all_logged),
		T(test_clients_without_a_key_can_not_flood_the_log),
		T(test_calls_with_a_key_are_all_logged),
		T(test_a_guest_can_not_flood_the_log),
#undef T
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
