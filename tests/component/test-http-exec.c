#include "tests/lib/http_fixture.h"

#include <stdlib.h>

#include "base/base64.h"
#include "base/xalloc.h"

/* Commands that are waited for: what they are given arrives, what they say comes back. */

static const char *id;

/* With room for outputs up to the service's limit, and with records. */
static int set_up(void **state)
{
	http_set_up(state);
	h->w->config.exec_output_max = h->ops_config.exec_output_max_bytes;
	h->w->config.results_count = 3;
	h->w->config.result_bytes = 100;
	http_world_restart(h);
	id = http_running(h, NULL);
	return 0;
}

static struct answer *run(const char *json)
{
	return http_json(h, "POST", http_at(id, "/exec"), h->key, json);
}

static struct answer *run_well(const char *json)
{
	struct answer *a = run(json);

	if (a->status != 200) {
		fail_msg("%d: %s", a->status, a->body);
	}
	return a;
}

static void expect_refusal(const char *json, int status, const char *says)
{
	struct answer *a = run(json);

	assert_int_equal(a->status, status);
	if (!strstr(answer_text(a, "error.message"), says)) {
		fail_msg("\"%s\" doesn't say \"%s\"", answer_text(a, "error.message"), says);
	}
}

static void assert_field(const struct answer *a, const char *name, const char *expected)
{
	const char *value = answer_text(a, name);

	if (!value || strcmp(value, expected) != 0) {
		fail_msg("%s: %s, not %s", name, value ? value : "(null)", expected);
	}
}

/* ---- outputs ---- */

/* What the program writes: its output's bytes in steps. */
struct script {
	const char *out;
	size_t len;
	size_t step;
	int fd;
	bool goes_on; /* after writing, until something ends it */
};

static bool play(void *arg, struct guest_call *call, const struct fake_exec *exec)
{
	const struct script *script = arg;

	(void)exec;
	for (size_t i = 0; i < script->len; i += script->step) {
		fake_exec_output(
			call, script->fd, script->out + i, MIN(script->step, script->len - i));
	}
	if (!script->goes_on) {
		fake_exec_exit(call, 0);
	}
	return true;
}

static struct answer *run_script(const struct script *script, const char *json)
{
	fake_guest_set_program(h->w->guests, play, (void *)script);
	struct answer *a = run_well(json);

	fake_guest_set_program(h->w->guests, NULL, NULL);
	return a;
}

static void test_text_is_text_however_it_was_written(void **state)
{
	static const char text[] = "naïve – 10 €, 🐧🐧 und жизнь\n";

	(void)state;
	for (size_t step = 1; step <= 4; step++) {
		for (int fd = 1; fd <= 2; fd++) {
			const struct script script = {text, sizeof text - 1, step, fd, false};
			struct answer *a = run_script(&script, "{\"command\":\"x\"}");

			assert_field(a, fd == 1 ? "stdout" : "stderr", text);
			assert_field(a, fd == 1 ? "stderr" : "stdout", "");
			assert_null(answer_text(a, "stdout_base64"));
			assert_null(answer_text(a, "stderr_base64"));
			assert_null(answer_text(a, "stdout_omitted_bytes"));
			assert_field(a, "truncated", "false");
		}
	}
}

static void test_nul_and_long_lines_come_whole(void **state)
{
	const size_t len = 1 << 20;
	_cleanup_free_ char *bytes = xcalloc(1, len);
	const struct script script = {bytes, len, 65536, 1, false};
	const char *json = "{\"command\":\"x\",\"output_limit_bytes\":1048576}";
	json_object *out;

	(void)state;
	/* NUL is a character like any other. */
	struct answer *a = run_script(&script, json);

	json_object_object_get_ex(a->json, "stdout", &out);
	assert_int_equal(json_object_get_string_len(out), len);
	assert_memory_equal(json_object_get_string(out), bytes, len);
	assert_null(answer_text(a, "stdout_base64"));
	memset(bytes, 'x', len);
	a = run_script(&script, json);
	assert_int_equal(strlen(answer_text(a, "stdout")), len);
	assert_field(a, "truncated", "false");
	assert_field(a, "stdout_bytes", "1048576");
}

static void test_of_a_long_output_both_ends_are_kept(void **state)
{
	char text[30];
	const struct script script = {text, sizeof text, 7, 1, false};

	(void)state;
	for (size_t i = 0; i < sizeof text; i++) {
		text[i] = (char)('a' + i % 26);
	}
	struct answer *a = run_script(&script, "{\"command\":\"x\",\"output_limit_bytes\":10}");

	assert_field(a, "stdout", "abcde\n[20 bytes of output left out here]\nzabcd");
	assert_field(a, "stdout_omitted_bytes", "20");
	assert_field(a, "stdout_omitted_at", "5");
	assert_field(a, "stdout_bytes", "30");
	assert_field(a, "stderr_bytes", "0");
	assert_field(a, "truncated", "true");
	assert_null(answer_text(a, "stderr_omitted_bytes"));
	assert_null(answer_text(a, "stdout_base64"));
}

static void test_a_gap_in_bytes_is_in_the_numbers_alone(void **state)
{
	const struct script script = {"\xff\xfe\xfd\xfc\xff\xfe\xfd\xfc", 8, 8, 2, false};
	char bytes[8];
	struct err err;

	(void)state;
	struct answer *a = run_script(&script, "{\"command\":\"x\",\"output_limit_bytes\":4}");
	const char *base64 = answer_text(a, "stderr_base64");

	assert_int_equal(base64_decoded_bytes(base64, strlen(base64)), 4);
	assert_ok(base64_decode(bytes, base64, strlen(base64), &err), &err);
	assert_memory_equal(bytes, "\xff\xfe\xfd\xfc", 4);
	assert_field(a, "stderr",
		"\xef\xbf\xbd\xef\xbf\xbd\n[4 bytes of output left out here]\n"
		"\xef\xbf\xbd\xef\xbf\xbd");
	assert_field(a, "stderr_omitted_at", "2");
}

static void test_a_gap_between_characters_leaves_text(void **state)
{
	const struct script script = {"€€€€€€", 18, 1, 1, false};

	(void)state;
	for (int limit = 1; limit < 18; limit++) {
		_cleanup_free_ char *json = xasprintf(
			"{\"command\":\"x\",\"output_limit_bytes\":%d}", limit);
		struct answer *a = run_script(&script, json);
		int omitted = atoi(answer_text(a, "stdout_omitted_bytes"));

		assert_null(answer_text(a, "stdout_base64"));
		assert_null(strstr(answer_text(a, "stdout"), "\xef\xbf\xbd"));
		assert_true(omitted % 3 == 0 && omitted >= 18 - limit);
		assert_int_equal(atoi(answer_text(a, "stdout_omitted_at")) % 3, 0);
	}
}

static void test_the_limit_is_the_callers_within_the_services(void **state)
{
	(void)state;
	expect_refusal("{\"command\":\"true\",\"output_limit_bytes\":0}", 400,
		"\"output_limit_bytes\" must be between 1");
	expect_refusal("{\"command\":\"true\",\"output_limit_bytes\":1048577}", 400,
		"\"output_limit_bytes\" must be between 1 and 1048576, not 1048577");
	expect_refusal("{\"command\":\"true\",\"output_limit_bytes\":10,\"background\":true}", 400,
		"\"output_limit_bytes\"");
	struct answer *a = run_well("{\"command\":\"bytes 1\",\"output_limit_bytes\":1}");

	assert_field(a, "stdout", "x");
	assert_field(a, "truncated", "false");
	/* The service's default is another one. */
	a = run_well("{\"command\":\"bytes 2049\"}");
	assert_field(a, "truncated", "true");
	a = run_well("{\"command\":\"bytes 2049\",\"output_limit_bytes\":1048576}");
	assert_field(a, "truncated", "false");
}

/* ---- ends ---- */

static void test_a_time_out_is_124_with_what_was_said_before(void **state)
{
	(void)state;
	struct answer *a = run_well("{\"command\":\"sleep 60000\",\"timeout_ms\":20}");

	assert_field(a, "exit_code", "124");
	assert_field(a, "timed_out", "true");
	a = http_get(h, h->key, http_at(id, "/exec"));
	assert_string_equal(answer_text(a, "data.0.exit_code"), "124");
	assert_string_equal(answer_text(a, "data.0.timed_out"), "true");
}

static void test_counts_in_the_record_are_what_was_written(void **state)
{
	(void)state;
	run_well("{\"command\":\"bytes 5000\"}");
	struct answer *a = http_get(h, h->key, http_at(id, "/exec"));

	assert_string_equal(answer_text(a, "data.0.stdout_bytes"), "5000");
	assert_string_equal(answer_text(a, "data.0.truncated"), "true");
}

/* ---- what a command is given ---- */

static bool note_shell(void *arg, struct guest_call *call, const struct fake_exec *exec)
{
	char *shell = arg;

	snprintf(shell, 64, "%s", exec->shell ? exec->shell : "(none)");
	fake_exec_exit(call, 0);
	return true;
}

static void test_the_shell_is_the_callers_for_a_command(void **state)
{
	char shell[64];

	(void)state;
	fake_guest_set_program(h->w->guests, note_shell, shell);
	run_well("{\"command\":\"x\",\"shell\":\"/bin/dash\"}");
	assert_string_equal(shell, "/bin/dash");
	run_well("{\"command\":\"x\"}");
	assert_string_equal(shell, "(none)");
	fake_guest_set_program(h->w->guests, NULL, NULL);
	expect_refusal("{\"args\":[\"x\"],\"shell\":\"sh\"}", 400, "\"shell\"");
	expect_refusal("{\"command\":\"x\",\"shell\":\"\"}", 400, "\"shell\"");
}

static bool measure(void *arg, struct guest_call *call, const struct fake_exec *exec)
{
	size_t *lengths = arg;

	lengths[0] = strlen(exec->command);
	lengths[1] = 0;
	for (char *const *entry = exec->env; entry && *entry; entry++) {
		lengths[1]++;
	}
	fake_exec_exit(call, 0);
	return true;
}

static char *with_command(size_t len)
{
	_cleanup_free_ char *command = xcalloc(1, len + 1);

	memset(command, 'x', len);
	return xasprintf("{\"command\":\"%s\"}", command);
}

static char *with_env(size_t count)
{
	struct evbuffer *json = evbuffer_new();
	char *text;

	evbuffer_add_printf(json, "{\"command\":\"true\",\"env\":{");
	for (size_t i = 0; i < count; i++) {
		evbuffer_add_printf(json, "%s\"N%zu\":\"v%zu\"", i ? "," : "", i, i);
	}
	evbuffer_add_printf(json, "}}");
	text = xcalloc(1, evbuffer_get_length(json) + 1);
	evbuffer_remove(json, text, evbuffer_get_length(json));
	evbuffer_free(json);
	return text;
}

static void test_long_commands_and_many_variables_arrive_or_are_refused_by_name(void **state)
{
	size_t lengths[2];
	_cleanup_free_ char *long_command = with_command(256 * 1024);
	_cleanup_free_ char *longer = with_command(256 * 1024 + 1);
	_cleanup_free_ char *many = with_env(1024);
	_cleanup_free_ char *more = with_env(1025);

	(void)state;
	fake_guest_set_program(h->w->guests, measure, lengths);
	run_well(long_command);
	assert_int_equal(lengths[0], 256 * 1024);
	run_well(many);
	assert_int_equal(lengths[1], 1024);
	expect_refusal(longer, 400, "\"command\"");
	expect_refusal(more, 400, "\"env\"");
	fake_guest_set_program(h->w->guests, NULL, NULL);
}

/* ---- many ---- */

static void test_each_of_many_commands_has_its_own_output(void **state)
{
	enum { AT_A_TIME = 8, ROUNDS = 25 };
	struct client *clients[AT_A_TIME];

	(void)state;
	for (int i = 0; i < AT_A_TIME; i++) {
		clients[i] = client_new(h);
	}
	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < AT_A_TIME; i++) {
			_cleanup_free_ char *json = xasprintf(
				"{\"command\":\"echo %d-%d\"}", round, i);

			client_request(clients[i], "POST", http_at(id, "/exec"), h->key, NULL,
				"application/json", json, strlen(json));
		}
		for (int i = 0; i < AT_A_TIME; i++) {
			_cleanup_free_ char *expected = xasprintf("%d-%d\n", round, i);
			struct answer *a = client_answer(clients[i], false);

			assert_int_equal(a->status, 200);
			assert_string_equal(answer_text(a, "stdout"), expected);
			answer_free(a);
		}
	}
	for (int i = 0; i < AT_A_TIME; i++) {
		client_free(clients[i]);
	}
}

static void test_one_too_many_is_told_what_to_do(void **state)
{
	static const char json[] = "{\"command\":\"hang\"}";
	struct client *clients[48];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(clients); i++) {
		clients[i] = client_new(h);
		client_request(clients[i], "POST", http_at(id, "/exec"), h->key, NULL,
			"application/json", json, sizeof json - 1);
	}
	WORLD_UNTIL(h->w, fake_guest_call_count(h->w->guests) == ARRAY_SIZE(clients));
	struct answer *a = run(json);

	assert_int_equal(a->status, 429);
	assert_string_equal(answer_text(a, "error.type"), "rate_limited");
	assert_non_null(strstr(answer_text(a, "error.message"), "wait for one to end, or kill"));
	for (size_t i = 0; i < ARRAY_SIZE(clients); i++) {
		client_free(clients[i]);
	}
	WORLD_UNTIL(h->w, fake_guest_call_count(h->w->guests) == 0);
	run_well("{\"command\":\"true\"}");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(test) cmocka_unit_test_setup_teardown(test, set_up, http_tear_down)
		T(test_text_is_text_however_it_was_written),
		T(test_nul_and_long_lines_come_whole),
		T(test_of_a_long_output_both_ends_are_kept),
		T(test_a_gap_in_bytes_is_in_the_numbers_alone),
		T(test_a_gap_between_characters_leaves_text),
		T(test_the_limit_is_the_callers_within_the_services),
		T(test_a_time_out_is_124_with_what_was_said_before),
		T(test_counts_in_the_record_are_what_was_written),
		T(test_the_shell_is_the_callers_for_a_command),
		T(test_long_commands_and_many_variables_arrive_or_are_refused_by_name),
		T(test_each_of_many_commands_has_its_own_output),
		T(test_one_too_many_is_told_what_to_do),
#undef T
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
