#include "tests/lib/http_check.h"
#include "tests/lib/http_fixture.h"
#include "tests/lib/http_trial.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "base/xalloc.h"
#include "ops/op.h"

/* Faults of ours: what a client gets to read of them, and how they are found in the log. */

/* ---- nothing of our inside is told ---- */

static const char *cause; /* for messages */

/* An error as it should be; a record without a word of the fault. */
static void check(const struct answer *a)
{
	const char *problem = a->status >= 400 ? http_check_error(a) : NULL;
	const char *message = answer_text(a, "error.message");

	if (problem) {
		fail_msg("%s: %s: %d %s", cause, problem, a->status, a->body);
	}
	if (strstr(a->body, "/var/lib") || strstr(a->body, "libvirt:") ||
		strstr(a->body, "Permission denied") || strstr(a->body, "no such table")) {
		fail_msg("%s: %s", cause, a->body);
	}
	if (a->status == 500 && strcmp(message, "internal error") != 0) {
		fail_msg("%s: %s", cause, a->body);
	}
}

static void check_reasons(void)
{
	struct answer *a = http_get(h, h->key, "/v1/sandboxes?status=all");

	check(a);
	assert_int_equal(a->status, 200);
	json_object *data = json_object_object_get(a->json, "data");

	for (size_t i = 0; i < json_object_array_length(data); i++) {
		const char *reason = json_object_get_string(
			json_object_object_get(json_object_array_get_idx(data, i), "reason"));
		const char *inner = reason ? http_check_text(reason) : NULL;

		if (inner) {
			fail_msg("%s: a record's reason: %s", cause, reason);
		}
	}
}

static void do_everything(void)
{
	struct answer *a = http_json(h, "POST", "/v1/sandboxes", h->key, "{\"name\":\"one\"}");
	_cleanup_free_ char *id = xstrdup(answer_text(a, "id") ? answer_text(a, "id") : "one");

	check(a);
	check(http_get(h, h->key, http_at(id, "")));
	check(http_json(h, "POST", http_at(id, "/exec"), h->key, "{\"command\":\"true\"}"));
	check(http_json(
		h, "PUT", http_at(id, "/files"), h->key, "{\"path\":\"/x\",\"content\":\"y\"}"));
	check(http_get(h, h->key, http_at(id, "/files?path=/x")));
	check(http_get(h, h->key, http_at(id, "/files?path=/&list=true")));
	check(http_request(h, "GET", http_at(id, "/files?path=/x"), h->key,
		"Accept: application/octet-stream\r\n", NULL, NULL, 0));
	check(http_json(h, "POST", http_at(id, "/extend"), h->key, "{\"minutes\":1}"));
	check(http_json(h, "POST", http_at(id, "/restart"), h->key, NULL));
	check(http_json(h, "POST", http_at(id, "/reset"), h->key, NULL));
	check(http_json(h, "DELETE", http_at(id, ""), h->key, NULL));
	check(http_get(h, h->key, http_at(id, "")));
	check(http_get(h, NULL, "/v1/service"));
	check(http_get(h, NULL, "/readyz"));
	check_reasons();
}

static void settle(void)
{
	WORLD_UNTIL(h->w, sandboxes_count(h->w->all) == 0);
	do_everything();
}

static void test_a_fault_of_the_hypervisor_is_not_told(void **state)
{
	static const enum err_kind kinds[] = {
		ERR_INTERNAL, ERR_UNAVAILABLE, ERR_TIMEOUT, ERR_CONFLICT};
	static const enum fake_mode modes[] = {FAKE_FAIL, FAKE_EFFECT_FAIL};

	(void)state;
	h->ops->config.delete_wait_ms = 100;
	h->ops->config.again_wait_ms = 100;
	for (enum fake_hv_op op = 0; op < FAKE_HV_OP_MAX; op++) {
		for (size_t k = 0; k < ARRAY_SIZE(kinds) * ARRAY_SIZE(modes); k++) {
			const struct fake_script script = {
				.mode = modes[k % 2], .kind = kinds[k / 2]};
			_cleanup_free_ char *text = xasprintf(
				"hypervisor call %d, kind %d, mode %d", op, script.kind,
				script.mode);

			cause = text;
			fake_hv_script(h->w->hv, op, &script);
			do_everything();
			fake_hv_script(h->w->hv, op, NULL);
			settle();
		}
	}
}

static void test_a_fault_of_the_channel_is_not_told(void **state)
{
	static const enum err_kind kinds[] = {
		ERR_INTERNAL, ERR_UNAVAILABLE, ERR_TIMEOUT, ERR_GUEST};

	(void)state;
	h->ops->config.delete_wait_ms = 100;
	h->ops->config.again_wait_ms = 100;
	for (enum fake_guest_op op = 0; op < FAKE_GUEST_OP_MAX; op++) {
		/* A machine that can't be told its settings isn't given up at once. */
		if (op == FAKE_GUEST_CONFIGURE) {
			continue;
		}
		for (size_t k = 0; k < ARRAY_SIZE(kinds); k++) {
			const struct fake_script script = {.mode = FAKE_FAIL, .kind = kinds[k]};
			_cleanup_free_ char *text = xasprintf(
				"guest call %d, kind %d", op, kinds[k]);

			cause = text;
			fake_guest_script(h->w->guests, op, &script);
			do_everything();
			fake_guest_script(h->w->guests, op, NULL);
			settle();
		}
	}
}

/* Every operation there is, without a table that it needs. */
static void test_a_fault_of_the_database_is_not_told(void **state)
{
	static const char *const statements[] = {"PRAGMA foreign_keys = OFF; DROP TABLE sandbox",
		"PRAGMA foreign_keys = OFF; DROP TABLE api_key",
		"PRAGMA foreign_keys = OFF; DROP TABLE account"};
	size_t faults = 0;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(statements); i++) {
		const char *id = http_running(h, NULL);
		_cleanup_free_ char *file = xasprintf("%s/paddock.db", h->w->dir);
		sqlite3 *db;

		cause = statements[i];
		assert_int_equal(sqlite3_open(file, &db), SQLITE_OK);
		assert_int_equal(sqlite3_exec(db, statements[i], NULL, NULL, NULL), SQLITE_OK);
		sqlite3_close(db);
		h->ops->config.delete_wait_ms = 50;
		h->ops->config.again_wait_ms = 50;
		for (enum api_op op = 0; op < API_OP_MAX; op++) {
			const struct trial t = {h, id, api_row(op), NULL, API_IN_BODY, "a fault"};
			struct answer *a = trial_ask(&t, "", 0);

			check(a);
			faults += a->status == 500;
			answer_free(a);
		}
		/* Nothing can be written any more: start over. */
		http_world_free(h);
		h = http_world_new(NULL);
	}
	assert_true(faults >= 10);
}

static void test_the_filters_word_is_ours(void **state)
{
	struct answer *a;

	(void)state;
	cause = "the filter";
	a = http_get(h, NULL, "/v1/service");
	assert_null(http_check_text(answer_text(a, "network_reason")));
	a = http_json(h, "POST", "/v1/sandboxes", h->key, "{\"network\":\"egress\"}");
	assert_int_equal(a->status, 503);
	check(a);
}

/* It is tried again for ever; whoever asked is told. */
static void test_a_restart_that_cannot_stop_is_told(void **state)
{
	static const char *const again[] = {"/restart", "/reset"};

	(void)state;
	h->ops->config.again_wait_ms = 50;
	for (size_t i = 0; i < ARRAY_SIZE(again); i++) {
		const char *id = http_running(h, NULL);
		struct answer *a;

		fake_hv_script(h->w->hv, FAKE_HV_DESTROY, &(struct fake_script){.mode = FAKE_FAIL});
		a = http_json(h, "POST", http_at(id, again[i]), h->key, NULL);
		assert_int_equal(a->status, 504);
		assert_null(http_check_error(a));
		assert_non_null(strstr(answer_text(a, "error.message"), again[i] + 1));
		fake_hv_script(h->w->hv, FAKE_HV_DESTROY, NULL);
		assert_int_equal(
			http_json(h, "DELETE", http_at(id, ""), h->key, NULL)->status, 200);
	}
}

/* ---- a request is found in the log by its id ---- */

static FILE *captured;
static int saved_stderr;
static enum log_level saved_level;

static void capture(void)
{
	captured = tmpfile();
	saved_stderr = dup(STDERR_FILENO);
	saved_level = log_level();
	assert_non_null(captured);
	log_set_level(LOG_LEVEL_INFO);
	dup2(fileno(captured), STDERR_FILENO);
}

/* What was written meanwhile; the caller frees it. */
static char *capture_end(void)
{
	char *text = xcalloc(65536, 1);

	dup2(saved_stderr, STDERR_FILENO);
	close(saved_stderr);
	log_set_level(saved_level);
	rewind(captured);
	assert_true(fread(text, 1, 65535, captured) > 0);
	fclose(captured);
	return text;
}

/* The lines with @word: all have the request's id, and there are at least @least. */
static void expect_lines(const char *log, const char *word, const struct answer *a, size_t least)
{
	const char *id = answer_header(a, "X-Request-Id");
	size_t found = 0;

	assert_non_null(id);
	for (const char *line = log; *line; line += strcspn(line, "\n") + 1) {
		_cleanup_free_ char *copy = xasprintf("%.*s", (int)strcspn(line, "\n"), line);

		if (strstr(copy, word)) {
			_cleanup_free_ char *wanted = xasprintf("rq=%s", id);

			if (!strstr(copy, wanted)) {
				fail_msg("without %s: %s", wanted, copy);
			}
			found++;
		}
	}
	if (found < least) {
		fail_msg("%zu lines with \"%s\" in:\n%s", found, word, log);
	}
}

static void test_a_request_is_found_in_the_log(void **state)
{
	(void)state;
	capture();
	struct answer *create = http_json(h, "POST", "/v1/sandboxes", h->key, "{}");
	const char *id = answer_text(create, "id");
	struct answer *extend = http_json(
		h, "POST", http_at(id, "/extend"), h->key, "{\"minutes\":1}");
	struct answer *exec = http_json(
		h, "POST", http_at(id, "/exec"), h->key, "{\"command\":\"true\"}");
	struct answer *again = http_json(h, "POST", http_at(id, "/restart"), h->key, NULL);
	struct answer *gone = http_json(h, "DELETE", http_at(id, ""), h->key, NULL);
	struct answer *bad = http_json(h, "POST", "/v1/sandboxes", h->key, "{\"x\":1}");
	_cleanup_free_ char *log = capture_end();
	_cleanup_free_ char *sb = xasprintf("sb=%s", id);

	expect_lines(log, "from=none to=provisioning", create, 1);
	expect_lines(log, "plan=create", create, 1);
	expect_lines(log, "op=sandbox.restart", again, 1);
	expect_lines(log, "plan=restart", again, 1);
	expect_lines(log, "status=201", create, 1);
	expect_lines(log, "sandbox extended", extend, 1);
	expect_lines(log, "op=exec", exec, 1);
	expect_lines(log, "to=deleting", gone, 1);
	expect_lines(log, "to=deleted", gone, 1);
	expect_lines(log, "op=sandbox.delete", gone, 1);
	expect_lines(log, "request refused", bad, 1);
	/* And no line of the sandbox is without one. */
	for (const char *line = log; *line; line += strcspn(line, "\n") + 1) {
		_cleanup_free_ char *copy = xasprintf("%.*s", (int)strcspn(line, "\n"), line);

		if (strstr(copy, sb)) {
			assert_non_null(strstr(copy, "rq=rq_"));
		}
	}
}

static void test_a_fault_is_found_in_the_log(void **state)
{
	(void)state;
	capture();
	fake_hv_script(h->w->hv, FAKE_HV_START, &(struct fake_script){.mode = FAKE_FAIL});
	struct answer *a = http_json(h, "POST", "/v1/sandboxes", h->key, "{}");

	WORLD_UNTIL(h->w, sandboxes_count(h->w->all) == 0);
	_cleanup_free_ char *log = capture_end();

	assert_int_equal(a->status, 500);
	assert_string_equal(answer_text(a, "error.request_id"), answer_header(a, "X-Request-Id"));
	expect_lines(log, "Permission denied", a, 2);
	expect_lines(log, "sandbox plan failed", a, 1);
	expect_lines(log, "to=failed", a, 1);
	expect_lines(log, "call failed", a, 1);
}

/* What nobody asked for has no request, not the last one's. */
static void test_an_expiry_is_nobodys_request(void **state)
{
	const char *id = http_running(h, NULL);

	(void)state;
	capture();
	sandbox_destroy(world_find(h->w, id), "expired");
	WORLD_UNTIL(h->w, sandboxes_count(h->w->all) == 0);
	_cleanup_free_ char *log = capture_end();

	assert_non_null(strstr(log, "to=deleted"));
	assert_null(strstr(log, "rq="));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, http_set_up, http_tear_down)
		T(test_a_fault_of_the_hypervisor_is_not_told),
		T(test_a_fault_of_the_channel_is_not_told),
		T(test_a_fault_of_the_database_is_not_told),
		T(test_the_filters_word_is_ours),
		T(test_a_restart_that_cannot_stop_is_told),
		T(test_a_request_is_found_in_the_log),
		T(test_a_fault_is_found_in_the_log),
		T(test_an_expiry_is_nobodys_request),
#undef T
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
