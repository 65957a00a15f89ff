/* Background commands over HTTP: start, list, output by offset, input, signals, waiting. */
#include "tests/lib/http_fixture.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/base64.h"
#include "base/xalloc.h"

static const char *sandbox_id;

static void new_sandbox(void)
{
	h->w->config.results_count = 5;
	h->w->config.result_bytes = 64;
	http_world_restart(h);
	sandbox_id = http_running(h, NULL);
}

/* A path below the sandbox's commands; the caller frees. */
static char *path_of(const char *eid, const char *rest)
{
	return xasprintf("/v1/sandboxes/%s/exec/%s%s", sandbox_id, eid, rest);
}

static struct answer *get(const char *eid, const char *rest)
{
	_cleanup_free_ char *path = path_of(eid, rest);

	return http_get(h, h->key, path);
}

static struct answer *post(const char *eid, const char *rest, const char *body)
{
	_cleanup_free_ char *path = path_of(eid, rest);

	return http_json(h, "POST", path, h->key, body);
}

/* Starts one; the caller frees its id. */
static char *start(const char *command, const char *more)
{
	_cleanup_free_ char *body = xasprintf(
		"{\"command\":\"%s\",\"background\":true%s}", command, more);
	struct answer *a = http_json(h, "POST", http_at(sandbox_id, "/exec"), h->key, body);

	if (a->status != 202) {
		fail_msg("%s: %d %s", command, a->status, a->body);
	}
	assert_string_equal(answer_text(a, "status"), "running");
	return xstrdup(answer_text(a, "id"));
}

static void expect_text(struct answer *a, const char *path, const char *expected)
{
	const char *text = answer_text(a, path);

	if (!text || strcmp(text, expected) != 0) {
		fail_msg("%s is %s, not %s: %d %s", path, text ? text : "null", expected, a->status,
			a->body);
	}
}

static void test_a_background_command_is_answered_at_once_and_waited_for(void **state)
{
	(void)state;
	new_sandbox();
	_cleanup_free_ char *eid = start("sleep 200", "");
	struct answer *a = get(eid, "");

	expect_text(a, "status", "running");
	expect_text(a, "background", "true");
	expect_text(a, "command", "sleep 200");
	assert_null(answer_text(a, "exit_code"));
	assert_null(answer_text(a, "ended_at"));
	a = get(eid, "?wait_ms=1");
	expect_text(a, "status", "running");
	a = get(eid, "?wait_ms=60000");
	expect_text(a, "status", "exited");
	expect_text(a, "exit_code", "0");
	assert_non_null(answer_text(a, "ended_at"));
	expect_text(http_get(h, h->key, http_at(sandbox_id, "/exec")), "data.0.id", eid);
}

/* By turns, as it comes. */
static bool talk(void *arg, struct guest_call *call, const struct fake_exec *exec)
{
	(void)arg;
	if (strcmp(exec->command, "talk") != 0) {
		return false;
	}
	fake_exec_output(call, 1, "h\xc3\xa9llo ", 7);
	fake_exec_output(call, 2, "wor", 3);
	fake_exec_output(call, 1, "ld", 2);
	fake_exec_exit(call, 3);
	return true;
}

static void test_output_is_read_from_any_offset(void **state)
{
	(void)state;
	new_sandbox();
	fake_guest_set_program(h->w->guests, talk, NULL);
	_cleanup_free_ char *eid = start("talk", "");
	struct answer *a = get(eid, "?wait_ms=60000");

	expect_text(a, "exit_code", "3");
	a = get(eid, "/output");
	expect_text(a, "stdout", "h\xc3\xa9llo ld");
	expect_text(a, "stderr", "wor");
	expect_text(a, "offset", "0");
	expect_text(a, "next_offset", "12");
	expect_text(a, "dropped_bytes", "0");
	expect_text(a, "is_end", "true");
	expect_text(a, "status", "exited");
	a = get(eid, "/output?offset=7&limit=4");
	expect_text(a, "stdout", "l");
	expect_text(a, "stderr", "wor");
	expect_text(a, "next_offset", "11");
	expect_text(a, "is_end", "false");
	/* A piece doesn't end within a character … */
	a = get(eid, "/output?limit=2");
	expect_text(a, "stdout", "h");
	expect_text(a, "next_offset", "1");
	/* … but where there is nothing else. */
	a = get(eid, "/output?offset=1&limit=1");
	expect_text(a, "stdout_base64", "ww==");
	expect_text(a, "next_offset", "2");
	a = get(eid, "/output?offset=12");
	expect_text(a, "stdout", "");
	expect_text(a, "is_end", "true");
	assert_int_equal(get(eid, "/output?offset=13")->status, 400);
}

static void test_pieces_of_any_size_make_the_whole(void **state)
{
	(void)state;
	new_sandbox();
	fake_guest_set_program(h->w->guests, talk, NULL);
	_cleanup_free_ char *eid = start("talk", "");

	get(eid, "?wait_ms=60000");
	for (int ended = 0; ended < 2; ended++) {
		for (int limit = 1; limit < 14; limit++) {
			char out[64] = "";
			long offset = 0;
			struct answer *a;

			do {
				_cleanup_free_ char *rest = xasprintf(
					"/output?offset=%ld&limit=%d", offset, limit);

				a = get(eid, rest);
				assert_int_equal(a->status, 200);
				const char *in_base64 = answer_text(a, "stdout_base64");
				const char *text = answer_text(a, "stdout");
				char raw[8] = "";
				size_t len = strlen(text);

				if (in_base64) {
					struct err err;
					size_t chars = strlen(in_base64);

					len = base64_decoded_bytes(in_base64, chars);
					assert_ok(base64_decode(raw, in_base64, chars, &err), &err);
					text = raw;
				}
				strncat(out, text, len);
				assert_true(atol(answer_text(a, "next_offset")) > offset);
				offset = atol(answer_text(a, "next_offset"));
			} while (strcmp(answer_text(a, "is_end"), "true") != 0);
			assert_string_equal(out, "h\xc3\xa9llo ld");
			assert_int_equal(offset, 12);
		}
		/* The same once it comes from the record alone. */
		http_json(h, "DELETE", http_at(sandbox_id, ""), h->key, NULL);
	}
}

static void test_the_record_answers_after_the_end_of_the_sandbox(void **state)
{
	(void)state;
	new_sandbox();
	_cleanup_free_ char *eid = start("bytes 100", "");
	_cleanup_free_ char *running = start("hang", "");

	get(eid, "?wait_ms=60000");
	struct answer *a = get(eid, "/output");

	expect_text(a, "next_offset", "100");
	expect_text(a, "dropped_bytes", "0");
	http_json(h, "DELETE", http_at(sandbox_id, ""), h->key, NULL);
	a = get(eid, "/output?offset=10");
	expect_text(a, "offset", "36");
	expect_text(a, "dropped_bytes", "26");
	expect_text(a, "next_offset", "100");
	expect_text(a, "is_end", "true");
	assert_int_equal(strlen(answer_text(a, "stdout")), 64);
	expect_text(get(eid, ""), "status", "exited");
	a = get(running, "/output");
	expect_text(a, "status", "lost");
	expect_text(a, "is_end", "true");
	assert_non_null(strstr(answer_text(a, "error"), "has ended"));
	assert_int_equal(post(running, "/kill", "{}")->status, 409);
	assert_int_equal(post(running, "/stdin", "{\"close\":true}")->status, 409);
}

static void test_output_of_a_running_command_is_waited_for(void **state)
{
	(void)state;
	new_sandbox();
	_cleanup_free_ char *eid = start("cat", ",\"keep_stdin\":true");
	struct answer *a = get(eid, "/output?wait_ms=20");

	expect_text(a, "stdout", "");
	expect_text(a, "is_end", "false");
	expect_text(a, "status", "running");
	a = post(eid, "/stdin", "{\"data\":\"one \"}");
	expect_text(a, "closed", "false");
	a = get(eid, "/output?wait_ms=60000");
	expect_text(a, "stdout", "one ");
	_cleanup_free_ char *path = path_of(eid, "/stdin?close=true");

	a = http_request(h, "POST", path, h->key, NULL, "application/octet-stream", "\0two", 4);
	expect_text(a, "closed", "true");
	a = get(eid, "?wait_ms=60000");
	expect_text(a, "status", "exited");
	expect_text(get(eid, "/output?offset=4"), "next_offset", "8");
	/* It has ended: no more input. */
	assert_int_equal(post(eid, "/stdin", "{\"data\":\"x\"}")->status, 409);
}

static void test_input_is_refused_by_what_has_none(void **state)
{
	(void)state;
	new_sandbox();
	_cleanup_free_ char *eid = start("hang", "");

	assert_int_equal(post(eid, "/stdin", "{\"data\":\"x\"}")->status, 400);
	assert_int_equal(post(eid, "/stdin", "{}")->status, 400);
	assert_int_equal(http_json(h, "POST", http_at(sandbox_id, "/exec"), h->key,
				 "{\"command\":\"cat\",\"background\":true,\"stdin\":\"x\"}")
				 ->status,
		400);
	assert_int_equal(http_json(h, "POST", http_at(sandbox_id, "/exec"), h->key,
				 "{\"command\":\"cat\",\"keep_stdin\":true}")
				 ->status,
		400);
}

static void test_signals_reach_commands_by_name_and_by_number(void **state)
{
	static const struct {
		const char *body;
		int number;
	} cases[] = {{"{\"signal\":\"TERM\"}", 15}, {"{\"signal\":\"sigint\"}", 2},
		{"{\"signal\":\"1\"}", 1}, {"{}", 9}};

	(void)state;
	new_sandbox();
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_free_ char *eid = start("hang", "");
		_cleanup_free_ char *number = xasprintf("%d", cases[i].number);
		_cleanup_free_ char *code = xasprintf("%d", 128 + cases[i].number);

		expect_text(post(eid, "/kill", cases[i].body), "signal", number);
		struct answer *a = get(eid, "?wait_ms=60000");

		expect_text(a, "signal", number);
		expect_text(a, "exit_code", code);
		assert_int_equal(post(eid, "/kill", "{}")->status, 409);
	}
	_cleanup_free_ char *eid = start("hang", "");

	assert_int_equal(post(eid, "/kill", "{\"signal\":\"NONE\"}")->status, 400);
	assert_int_equal(post(eid, "/kill", "{\"signal\":\"65\"}")->status, 400);
	assert_int_equal(post(eid, "/kill", "{\"signal\":\"0\"}")->status, 400);
}

/* The guest says so before the record does. */
static void test_a_signal_to_what_has_just_ended_is_a_conflict(void **state)
{
	const struct fake_script held = {.mode = FAKE_HOLD};

	(void)state;
	new_sandbox();
	fake_guest_script(h->w->guests, FAKE_GUEST_JOB_WAIT, &held);
	_cleanup_free_ char *eid = start("exit 3", "");

	WORLD_UNTIL(h->w, !fake_guest_job(h->w->guests, sandbox_id, eid)->is_running);
	struct answer *a = post(eid, "/kill", "{}");

	assert_int_equal(a->status, 409);
	assert_non_null(strstr(answer_text(a, "error.message"), "has ended"));
	fake_guest_release(h->w->guests, FAKE_GUEST_JOB_WAIT);
	expect_text(get(eid, "?wait_ms=60000"), "exit_code", "3");
}

static void kill_foreground(unsigned results_count)
{
	static const char body[] = "{\"command\":\"hang\"}";

	h->w->config.results_count = results_count;
	http_world_restart(h);
	sandbox_id = http_running(h, NULL);
	struct client *c = client_new(h);

	client_request(c, "POST", http_at(sandbox_id, "/exec"), h->key, NULL, "application/json",
		body, sizeof body - 1);
	WORLD_UNTIL(h->w, fake_guest_call_count(h->w->guests) == 1);
	struct answer *a = http_get(h, h->key, http_at(sandbox_id, "/exec"));

	expect_text(a, "data.0.status", "running");
	expect_text(a, "data.0.background", "false");
	_cleanup_free_ char *eid = xstrdup(answer_text(a, "data.0.id"));

	/* Its output is its client's. */
	assert_int_equal(get(eid, "/output")->status, 409);
	assert_int_equal(post(eid, "/stdin", "{\"data\":\"x\"}")->status, 409);
	expect_text(post(eid, "/kill", "{}"), "signal", "9");
	a = client_answer(c, false);
	expect_text(a, "exit_code", "137");
	answer_free(a);
	client_free(c);
	a = get(eid, "/output");
	if (results_count > 0) {
		expect_text(a, "status", "exited");
	} else {
		assert_int_equal(a->status, 404);
	}
}

static void test_a_foreground_command_can_be_killed_by_somebody_else(void **state)
{
	(void)state;
	kill_foreground(5);
	/* Also where nothing is kept of what has ended. */
	kill_foreground(0);
}

static void test_a_service_that_stops_loses_foreground_commands(void **state)
{
	static const char body[] = "{\"command\":\"hang\"}";

	(void)state;
	new_sandbox();
	struct client *c = client_new(h);

	client_request(c, "POST", http_at(sandbox_id, "/exec"), h->key, NULL, "application/json",
		body, sizeof body - 1);
	WORLD_UNTIL(h->w, fake_guest_call_count(h->w->guests) == 1);
	http_world_restart(h);
	client_free(c);
	struct answer *a = http_get(h, h->key, http_at(sandbox_id, "/exec"));

	expect_text(a, "data.0.status", "lost");
	expect_text(a, "data.0.error", "the service stopped while it ran");
}

/* As by a program that looks at the database and forgets to leave. */
static sqlite3 *lock_database(void)
{
	_cleanup_free_ char *path = xasprintf("%s/paddock.db", h->w->dir);
	sqlite3 *db;

	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
	return db;
}

static void test_a_command_is_shown_and_killed_while_nothing_can_be_written(void **state)
{
	static const char body[] = "{\"command\":\"hang\"}";

	(void)state;
	new_sandbox();
	struct client *c = client_new(h);

	client_request(c, "POST", http_at(sandbox_id, "/exec"), h->key, NULL, "application/json",
		body, sizeof body - 1);
	WORLD_UNTIL(h->w, fake_guest_call_count(h->w->guests) == 1);
	struct answer *a = http_get(h, h->key, http_at(sandbox_id, "/exec"));
	_cleanup_free_ char *eid = xstrdup(answer_text(a, "data.0.id"));
	_cleanup_free_ char *job = start("hang", "");
	sqlite3 *db = lock_database();

	expect_text(post(eid, "/kill", "{}"), "signal", "9");
	expect_text(post(job, "/kill", "{}"), "signal", "9");
	expect_text(get(job, "?wait_ms=60000"), "exit_code", "137");
	a = client_answer(c, false);
	expect_text(a, "exit_code", "137");
	answer_free(a);
	client_free(c);
	expect_text(get(eid, ""), "status", "exited");
	sqlite3_close(db);
	a = http_get(h, h->key, http_at(sandbox_id, "/exec"));
	expect_text(a, "data.0.exit_code", "137");
	expect_text(a, "data.1.exit_code", "137");
}

static void test_commands_are_found_in_their_sandbox_alone(void **state)
{
	(void)state;
	new_sandbox();
	_cleanup_free_ char *eid = start("hang", "");
	const char *mine = sandbox_id;

	assert_int_equal(get("ex_00000000000000000000", "")->status, 404);
	assert_int_equal(get("nonsense", "")->status, 404);
	_cleanup_free_ char *path = path_of(eid, "/output");

	assert_int_equal(http_get(h, h->other_key, path)->status, 404);
	sandbox_id = http_running(h, NULL);
	assert_int_equal(get(eid, "")->status, 404);
	assert_int_equal(get(eid, "/output")->status, 404);
	assert_int_equal(post(eid, "/kill", "{}")->status, 404);
	sandbox_id = mine;
	expect_text(get(eid, ""), "status", "running");
}

/* As many bytes as fit into the ring and ten more. */
static bool overflow(void *arg, struct guest_call *call, const struct fake_exec *exec)
{
	char block[110];

	(void)arg;
	if (strcmp(exec->command, "overflow") != 0) {
		return false;
	}
	memset(block, 'a', 10);
	memset(block + 10, 'b', 100);
	fake_exec_output(call, 1, block, sizeof block);
	return true;
}

static void test_what_the_ring_dropped_is_counted(void **state)
{
	(void)state;
	new_sandbox();
	fake_guest_set_program(h->w->guests, overflow, NULL);
	fake_guest_set_ring(h->w->guests, 100);
	_cleanup_free_ char *eid = start("overflow", "");
	struct answer *a = get(eid, "/output");

	expect_text(a, "offset", "10");
	expect_text(a, "dropped_bytes", "10");
	expect_text(a, "next_offset", "110");
	expect_text(a, "is_end", "false");
	a = get(eid, "/output?offset=50");
	expect_text(a, "offset", "50");
	expect_text(a, "dropped_bytes", "0");
}

/* ---- streams ---- */

static struct answer *follow(const char *eid, const char *rest, const char *headers)
{
	_cleanup_free_ char *path = path_of(eid, rest);
	_cleanup_free_ char *all = xasprintf("Accept: text/event-stream\r\n%s", headers);

	return http_request(h, "GET", path, h->key, all, NULL, NULL, 0);
}

static void expect_stream(struct answer *a, const char *text)
{
	if (!strstr(a->body, text)) {
		fail_msg("no \"%s\" in: %d %s", text, a->status, a->body);
	}
}

static void test_a_stream_follows_to_the_end(void **state)
{
	(void)state;
	new_sandbox();
	fake_guest_set_program(h->w->guests, talk, NULL);
	_cleanup_free_ char *eid = start("talk", "");
	struct answer *a = follow(eid, "/output", "");

	expect_stream(a, "event: stdout\nid: 7\ndata: {\"text\":\"h\xc3\xa9llo \"}");
	expect_stream(a, "event: stderr\nid: 10\n");
	expect_stream(a, "event: exit\n");
	expect_stream(a, "\"exit_code\":3");
	/* Where it broke off it goes on. */
	a = follow(eid, "/output", "Last-Event-ID: 10\r\n");
	assert_null(strstr(a->body, "stderr\n"));
	expect_stream(a, "data: {\"text\":\"ld\"}");
	http_json(h, "DELETE", http_at(sandbox_id, ""), h->key, NULL);
	a = follow(eid, "/output?offset=7", "");
	expect_stream(a, "data: {\"text\":\"wor\"}");
	expect_stream(a, "event: exit\n");
	assert_int_equal(follow(eid, "/output?offset=13", "")->status, 400);
}

static void test_a_stream_tells_gaps_and_losses(void **state)
{
	(void)state;
	new_sandbox();
	fake_guest_set_program(h->w->guests, overflow, NULL);
	fake_guest_set_ring(h->w->guests, 100);
	_cleanup_free_ char *eid = start("overflow", "");
	_cleanup_free_ char *path = path_of(eid, "/output");
	struct client *c = client_new(h);

	client_request(c, "GET", path, h->key, "Accept: text/event-stream\r\n", NULL, NULL, 0);
	WORLD_UNTIL(h->w, fake_guest_calls(h->w->guests, FAKE_GUEST_JOB_READ) == 1);
	world_run(h->w, 50);
	http_json(h, "DELETE", http_at(sandbox_id, ""), h->key, NULL);
	struct answer *a = client_answer(c, false);

	expect_stream(a, "event: gap\ndata: {\"dropped_bytes\":10}");
	expect_stream(a, "event: error\n");
	assert_null(strstr(a->body, "event: exit"));
	answer_free(a);
	client_free(c);
}

static void test_who_follows_and_leaves_stops_nothing(void **state)
{
	(void)state;
	new_sandbox();
	_cleanup_free_ char *eid = start("hang", "");
	_cleanup_free_ char *path = path_of(eid, "/output");
	struct client *c = client_new(h);

	client_request(c, "GET", path, h->key, "Accept: text/event-stream\r\n", NULL, NULL, 0);
	WORLD_UNTIL(h->w, fake_guest_calls(h->w->guests, FAKE_GUEST_JOB_READ) == 1);
	world_run(h->w, 20);
	client_free(c);
	/* The wait for its end is all that is left. */
	WORLD_UNTIL(h->w, fake_guest_call_count(h->w->guests) == 1);
	expect_text(get(eid, ""), "status", "running");
}

static void expect_head(const char *eid)
{
	_cleanup_free_ char *path = path_of(eid, "/output");
	struct client *c = client_new(h);

	client_request(c, "HEAD", path, h->key, "Accept: text/event-stream\r\n", NULL, NULL, 0);
	struct answer *a = client_answer(c, true);

	assert_int_equal(a->status, 200);
	assert_string_equal(answer_header(a, "Content-Type"), "text/event-stream");
	answer_free(a);
	client_free(c);
}

static bool is_exited(const char *eid)
{
	const char *status = answer_text(get(eid, ""), "status");

	return status && strcmp(status, "exited") == 0;
}

static void test_the_head_of_a_stream_is_all_that_head_asks_for(void **state)
{
	(void)state;
	new_sandbox();
	fake_guest_set_program(h->w->guests, talk, NULL);
	_cleanup_free_ char *running = start("hang", "");
	_cleanup_free_ char *eid = start("talk", "");

	expect_head(running);
	WORLD_UNTIL(h->w, is_exited(eid));
	expect_head(eid);
	/* The guest no longer has it: by the record. */
	assert_int_equal(
		http_json(h, "POST", http_at(sandbox_id, "/restart"), h->key, NULL)->status, 200);
	expect_head(eid);
	http_json(h, "DELETE", http_at(sandbox_id, ""), h->key, NULL);
	expect_head(eid);
}

static void test_while_its_sandbox_restarts_output_is_refused_for_that(void **state)
{
	const struct fake_script held = {.mode = FAKE_HOLD};

	(void)state;
	new_sandbox();
	_cleanup_free_ char *eid = start("hang", "");
	struct client *c = client_new(h);
	const char *target = http_at(sandbox_id, "/restart");

	fake_guest_script(h->w->guests, FAKE_GUEST_SHUTDOWN, &held);
	client_request(c, "POST", target, h->key, NULL, NULL, NULL, 0);
	WORLD_UNTIL(h->w, fake_guest_calls(h->w->guests, FAKE_GUEST_SHUTDOWN) == 1);
	struct answer *a = get(eid, "/output?offset=1");

	expect_text(a, "error.type", "conflict");
	assert_non_null(strstr(a->body, "is being restarted"));
	a = follow(eid, "/output", "");
	expect_text(a, "error.type", "conflict");
	assert_non_null(strstr(a->body, "is being restarted"));
	fake_guest_release(h->w->guests, FAKE_GUEST_SHUTDOWN);
	client_free(c);
	WORLD_UNTIL(h->w, world_is_state(h->w, sandbox_id, "running"));
	expect_text(get(eid, "/output"), "status", "lost");
}

/* Far more than lies between a command and a client that doesn't read. */
static bool flood(void *arg, struct guest_call *call, const struct fake_exec *exec)
{
	static char block[64 * 1024];

	(void)arg;
	if (strcmp(exec->command, "flood") != 0) {
		return false;
	}
	memset(block, '#', sizeof block);
	for (int i = 0; i < 256; i++) {
		fake_exec_output(call, 1, block, sizeof block);
	}
	return true;
}

static size_t count_bytes(struct evbuffer *buffer, char wanted)
{
	size_t len = evbuffer_get_length(buffer);
	const char *bytes = len ? (const char *)evbuffer_pullup(buffer, -1) : "";
	size_t count = 0;

	for (size_t i = 0; i < len; i++) {
		count += bytes[i] == wanted;
	}
	return count;
}

static void test_a_reader_that_is_behind_holds_the_command_up(void **state)
{
	(void)state;
	new_sandbox();
	fake_guest_set_program(h->w->guests, flood, NULL);
	fake_guest_set_ring(h->w->guests, 100 * 1024);
	_cleanup_free_ char *slow = start("cat", ",\"keep_stdin\":true");
	struct client *c = client_new(h);
	_cleanup_free_ char *path = path_of(slow, "/output");

	/* It follows before there is anything. */
	client_request(c, "GET", path, h->key, "Accept: text/event-stream\r\n", NULL, NULL, 0);
	WORLD_UNTIL(h->w, fake_guest_calls(h->w->guests, FAKE_GUEST_JOB_READ) == 1);
	world_run(h->w, 20);
	static char block[64 * 1024];
	unsigned sent = 0;

	memset(block, '#', sizeof block);
	_cleanup_free_ char *input = path_of(slow, "/stdin");

	/* cat gives back what it gets, as far as that is taken from it. */
	for (; sent < 512 && fake_guest_job(h->w->guests, sandbox_id, slow)->held == 0; sent++) {
		http_request(h, "POST", input, h->key, NULL, "application/octet-stream", block,
			sizeof block);
	}
	assert_true(sent < 512);
	size_t held = fake_guest_job(h->w->guests, sandbox_id, slow)->held;

	world_run(h->w, 50);
	assert_int_equal(fake_guest_job(h->w->guests, sandbox_id, slow)->held, held);
	/* Now it reads: all comes, and nothing is missing. */
	size_t count = 0;

	while (count < sent * sizeof block) {
		client_poll(c);
		world_turn(h->w);
		count = count_bytes(c->in, '#');
	}
	assert_int_equal(count, sent * sizeof block);
	assert_true(evbuffer_search(c->in, "event: gap", 10, NULL).pos < 0);
	assert_int_equal(fake_guest_job(h->w->guests, sandbox_id, slow)->held, 0);
	client_free(c);
	/* Without a reader nothing waits: the ring drops, and says so. */
	_cleanup_free_ char *free_one = start("flood", "");

	assert_int_equal(fake_guest_job(h->w->guests, sandbox_id, free_one)->held, 0);
	struct answer *a = get(free_one, "/output?limit=1");

	expect_text(a, "dropped_bytes", "16674816");
}

static void test_readers_that_wait_leave_room_for_others(void **state)
{
	struct client *clients[16];

	(void)state;
	new_sandbox();
	_cleanup_free_ char *eid = start("hang", "");
	_cleanup_free_ char *path = path_of(eid, "/output");

	for (size_t i = 0; i < ARRAY_SIZE(clients); i++) {
		clients[i] = client_new(h);
		client_request(clients[i], "GET", path, h->key, "Accept: text/event-stream\r\n",
			NULL, NULL, 0);
		WORLD_UNTIL(h->w,
			fake_guest_calls(h->w->guests, FAKE_GUEST_JOB_READ) == (unsigned)i + 1);
	}
	struct answer *a = get(eid, "/output?wait_ms=1000");

	assert_int_equal(a->status, 429);
	expect_text(a, "error.type", "rate_limited");
	assert_non_null(strstr(answer_text(a, "error.message"), "read without waiting"));
	assert_int_equal(get(eid, "/output")->status, 200);
	assert_int_equal(
		http_json(h, "POST", http_at(sandbox_id, "/exec"), h->key, "{\"command\":\"true\"}")
			->status,
		200);
	for (size_t i = 0; i < ARRAY_SIZE(clients); i++) {
		client_free(clients[i]);
	}
	WORLD_UNTIL(h->w, fake_guest_call_count(h->w->guests) == 1);
	assert_int_equal(get(eid, "/output?wait_ms=1")->status, 200);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, http_set_up, http_tear_down)
		T(test_a_background_command_is_answered_at_once_and_waited_for),
		T(test_output_is_read_from_any_offset),
		T(test_pieces_of_any_size_make_the_whole),
		T(test_the_record_answers_after_the_end_of_the_sandbox),
		T(test_output_of_a_running_command_is_waited_for),
		T(test_input_is_refused_by_what_has_none),
		T(test_signals_reach_commands_by_name_and_by_number),
		T(test_a_signal_to_what_has_just_ended_is_a_conflict),
		T(test_a_foreground_command_can_be_killed_by_somebody_else),
		T(test_a_service_that_stops_loses_foreground_commands),
		T(test_a_command_is_shown_and_killed_while_nothing_can_be_written),
		T(test_commands_are_found_in_their_sandbox_alone),
		T(test_what_the_ring_dropped_is_counted),
		T(test_a_stream_follows_to_the_end),
		T(test_a_stream_tells_gaps_and_losses),
		T(test_who_follows_and_leaves_stops_nothing),
		T(test_the_head_of_a_stream_is_all_that_head_asks_for),
		T(test_while_its_sandbox_restarts_output_is_refused_for_that),
		T(test_a_reader_that_is_behind_holds_the_command_up),
		T(test_readers_that_wait_leave_room_for_others),
#undef T
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
