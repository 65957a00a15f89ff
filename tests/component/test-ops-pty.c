/* Terminals, spoken to as a transport does: a socket of the test's own in place of a WebSocket. */
#include "tests/lib/http_fixture.h"

#include <stdio.h>

#include "base/xalloc.h"
#include "ops/socket.h"

/* A conversation, with all that the service said. */
struct talk {
	struct op_socket socket;
	struct op_call *call;
	const struct op_socket_hooks *hooks;
	unsigned answers;
	int status; /* of a refusal */
	char refusal[320];
	size_t room; /* what the client has room for; SIZE_MAX: all */
	bool is_paused;
	bool is_closed;
	enum op_socket_code code;
	char reason[256];
	struct evbuffer *bytes;
	char words[4096]; /* the text messages, a line each */
};

static size_t on_room_asked(const struct op_socket *socket)
{
	return ((const struct talk *)socket)->room;
}

static void on_send(struct op_socket *socket, bool is_text, const void *data, size_t len)
{
	struct talk *talk = (struct talk *)socket;

	if (talk->is_closed) {
		return;
	}
	if (is_text) {
		size_t used = strlen(talk->words);

		snprintf(talk->words + used, sizeof talk->words - used, "%.*s\n", (int)len,
			(const char *)data);
		return;
	}
	assert_true(len <= talk->room);
	talk->room -= talk->room == SIZE_MAX ? 0 : len;
	evbuffer_add(talk->bytes, data, len);
}

static void on_pause(struct op_socket *socket, bool is_paused)
{
	((struct talk *)socket)->is_paused = is_paused;
}

static void on_close(struct op_socket *socket, enum op_socket_code code, const char *reason)
{
	struct talk *talk = (struct talk *)socket;

	if (!talk->is_closed) {
		talk->is_closed = true;
		talk->code = code;
		snprintf(talk->reason, sizeof talk->reason, "%s", reason);
	}
}

static const struct op_socket_class class = {
	.room = on_room_asked, .send = on_send, .pause = on_pause, .close = on_close};

static void on_answer(void *arg, struct op_call *call)
{
	struct talk *talk = arg;
	struct op_answer *answer = op_answer(call);

	talk->answers++;
	talk->status = answer->status;
	talk->hooks = answer->socket;
	if (answer->json) {
		json_object *error = json_object_object_get(answer->json, "error");

		snprintf(talk->refusal, sizeof talk->refusal, "%s",
			json_object_get_string(json_object_object_get(error, "message")));
	}
}

/* As it came in a query: "rows=3&exec=ex_…". Open, or refused, when this returns. */
static struct talk *talk_new(const char *id, const char *query)
{
	struct talk *talk = xnew(struct talk);
	_cleanup_free_ char *copy = xstrdup(query);
	struct principal principal = {.scopes = AUTH_SCOPE_USER};
	struct api_args args;
	struct err err;

	snprintf(principal.account_id, sizeof principal.account_id, "%s", h->account);
	api_args_init(&args, api_row(API_PTY));
	assert_ok(api_args_add_path(&args, "id", id, &err), &err);
	for (char *save, *pair = strtok_r(copy, "&", &save); pair;
		pair = strtok_r(NULL, "&", &save)) {
		char *value = strchr(pair, '=');

		*value++ = '\0';
		assert_ok(api_args_add_query(&args, pair, value, strlen(value), false, &err), &err);
	}
	assert_ok(api_args_finish(&args, &err), &err);
	talk->socket.class = &class;
	talk->room = SIZE_MAX;
	talk->bytes = evbuffer_new();
	const struct op_request request = {
		.id = "rq_00000000000000000000", .principal = &principal, .args = &args};

	talk->call = op_call_new(h->ops, api_row(API_PTY), &request);
	if (op_start(talk->call, on_answer, talk) == OP_DONE) {
		on_answer(talk, talk->call);
	}
	WORLD_UNTIL(h->w, talk->answers == 1);
	if (talk->hooks) {
		talk->hooks->on_open(talk->call, &talk->socket);
	}
	return talk;
}

/* The client closes or leaves. */
static void talk_free(struct talk *talk)
{
	op_call_free(talk->call, 0);
	evbuffer_free(talk->bytes);
	free(talk);
}

static void type(struct talk *talk, const char *text)
{
	WORLD_UNTIL(h->w, !talk->is_paused);
	talk->hooks->on_message(talk->call, false, text, strlen(text));
}

static void tell(struct talk *talk, const char *json)
{
	WORLD_UNTIL(h->w, !talk->is_paused);
	talk->hooks->on_message(talk->call, true, json, strlen(json));
}

static bool has_shown(const struct talk *talk, const char *text)
{
	return evbuffer_search(talk->bytes, text, strlen(text), NULL).pos >= 0;
}

static bool has_said(const struct talk *talk, const char *text)
{
	return strstr(talk->words, text) != NULL;
}

/* Which command it is about. The caller frees. */
static char *exec_of(const struct talk *talk)
{
	const char *at = strstr(talk->words, "\"id\":\"");

	assert_non_null(at);
	return xasprintf("%.*s", ID_RANDOM_DIGITS + 3, at + 6);
}

static void expect_refusal(const char *id, const char *query, int status, const char *text)
{
	struct talk *talk = talk_new(id, query);

	if (talk->status != status || !strstr(talk->refusal, text)) {
		fail_msg("%s: %d %s", query, talk->status, talk->refusal);
	}
	assert_null(talk->hooks);
	talk_free(talk);
}

/* ---- a conversation ---- */

static void test_a_shell_echoes_and_its_exit_is_told(void **state)
{
	const char *id = http_running(h, NULL);
	struct talk *talk = talk_new(id, "rows=30&cols=100");

	(void)state;
	WORLD_UNTIL(h->w, has_said(talk, "{\"start\":{\"id\":\"ex_"));
	assert_true(has_said(talk, "\"offset\":0}}"));
	_cleanup_free_ char *eid = exec_of(talk);
	const struct fake_job_view *view = fake_guest_job(h->w->guests, id, eid);

	assert_int_equal(view->rows, 30);
	assert_int_equal(view->cols, 100);
	type(talk, "hello\n");
	WORLD_UNTIL(h->w, has_shown(talk, "hello"));
	assert_false(talk->is_closed);
	type(talk, "\x04");
	WORLD_UNTIL(h->w, talk->is_closed);
	assert_true(has_said(talk, "{\"exit\":{"));
	assert_true(has_said(talk, "\"exit_code\":0"));
	assert_int_equal(talk->code, OP_SOCKET_NORMAL);
	talk_free(talk);
}

static void test_resizes_and_signals_arrive_in_their_place(void **state)
{
	const char *id = http_running(h, NULL);
	struct talk *talk = talk_new(id, "command=winsize");

	(void)state;
	WORLD_UNTIL(h->w, has_shown(talk, "24"));
	tell(talk, "{\"resize\":{\"rows\":50,\"cols\":132}}");
	WORLD_UNTIL(h->w, has_shown(talk, "132"));
	tell(talk, "{\"signal\":\"INT\"}");
	WORLD_UNTIL(h->w, talk->is_closed);
	assert_true(has_said(talk, "\"signal\":2"));
	talk_free(talk);
}

static void test_a_message_that_is_not_understood_ends_it(void **state)
{
	static const char *const bad[] = {"{", "[]", "{}", "{\"resize\":1}",
		"{\"resize\":{\"rows\":0,\"cols\":1}}", "{\"resize\":{\"rows\":1001,\"cols\":1}}",
		"{\"resize\":{\"rows\":\"1\",\"cols\":1}}", "{\"signal\":\"NONE\"}",
		"{\"signal\":9}"};
	const char *id = http_running(h, NULL);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct talk *talk = talk_new(id, "command=hang");

		tell(talk, bad[i]);
		if (!talk->is_closed || talk->code != OP_SOCKET_POLICY || !talk->reason[0]) {
			fail_msg("taken: %s", bad[i]);
		}
		talk_free(talk);
	}
}

/* ---- detach and attach ---- */

static void test_who_comes_back_sees_the_recent_past(void **state)
{
	const char *id = http_running(h, NULL);
	struct talk *talk = talk_new(id, "");

	(void)state;
	WORLD_UNTIL(h->w, has_said(talk, "start"));
	_cleanup_free_ char *eid = exec_of(talk);

	type(talk, "before it left");
	WORLD_UNTIL(h->w, has_shown(talk, "before it left"));
	/* What is typed at last still arrives. */
	type(talk, " and after");
	talk_free(talk);
	WORLD_UNTIL(h->w, fake_guest_job(h->w->guests, id, eid)->is_running);
	_cleanup_free_ char *all = xasprintf("exec=%s&rows=11&cols=22", eid);

	talk = talk_new(id, all);
	WORLD_UNTIL(h->w, has_shown(talk, "before it left and after"));
	WORLD_UNTIL(h->w, fake_guest_job(h->w->guests, id, eid)->rows == 11);
	_cleanup_free_ char *some = xasprintf("exec=%s&replay_bytes=5", eid);
	struct talk *other = talk_new(id, some);

	WORLD_UNTIL(h->w, has_shown(other, "after"));
	assert_false(has_shown(other, "and"));
	/* Both see what either types. */
	type(other, "!");
	WORLD_UNTIL(h->w, has_shown(talk, "after!") && has_shown(other, "after!"));
	type(talk, "\x04");
	WORLD_UNTIL(h->w, talk->is_closed && other->is_closed);
	assert_true(has_said(talk, "exit") && has_said(other, "exit"));
	talk_free(talk);
	talk_free(other);
	/* Also what has ended: its past, then its exit. */
	talk = talk_new(id, all);
	WORLD_UNTIL(h->w, talk->is_closed);
	assert_true(has_shown(talk, "before it left and after!"));
	assert_true(has_said(talk, "\"exit_code\":0"));
	talk_free(talk);
}

static void test_a_terminal_outlives_the_service(void **state)
{
	const char *id = http_running(h, NULL);
	struct talk *talk = talk_new(id, "");

	(void)state;
	WORLD_UNTIL(h->w, has_said(talk, "start"));
	_cleanup_free_ char *eid = exec_of(talk);
	_cleanup_free_ char *query = xasprintf("exec=%s", eid);

	type(talk, "kept");
	WORLD_UNTIL(h->w, has_shown(talk, "kept"));
	talk_free(talk);
	unsigned lists = fake_guest_calls(h->w->guests, FAKE_GUEST_JOB_LIST);

	http_world_restart(h);
	WORLD_UNTIL(h->w, fake_guest_calls(h->w->guests, FAKE_GUEST_JOB_LIST) > lists);
	talk = talk_new(id, query);
	WORLD_UNTIL(h->w, has_shown(talk, "kept"));
	talk_free(talk);
}

static void test_attaching_needs_a_terminal(void **state)
{
	const char *id = http_running(h, NULL);

	(void)state;
	struct answer *a = http_json(h, "POST", http_at(id, "/exec"), h->key,
		"{\"command\":\"hang\",\"background\":true}");
	_cleanup_free_ char *plain = xasprintf("exec=%s", answer_text(a, "id"));
	_cleanup_free_ char *both = xasprintf("exec=%s&command=x", answer_text(a, "id"));

	expect_refusal(id, plain, 409, "has no terminal");
	expect_refusal(id, both, 400, "is for a start");
	expect_refusal(id, "exec=ex_00000000000000000000", 404, "no command");
	expect_refusal("sb_00000000000000000000", "", 404, "no sandbox");
}

/* ---- who is slow ---- */

/* A great deal at once. */
static bool flood(void *arg, struct guest_call *call, const struct fake_exec *exec)
{
	char block[64 * 1024];

	(void)arg;
	if (strcmp(exec->command, "flood") != 0) {
		return false;
	}
	for (int i = 0; i < 32; i++) {
		memset(block, 'a' + i % 26, sizeof block);
		fake_exec_output(call, 1, block, sizeof block);
	}
	return true;
}

static void test_a_slow_client_gets_all_of_it_at_its_pace(void **state)
{
	const char *id = http_running(h, NULL);

	(void)state;
	fake_guest_set_program(h->w->guests, flood, NULL);
	fake_guest_set_ring(h->w->guests, 4 * 1024 * 1024);
	struct talk *talk = talk_new(id, "command=flood");

	talk->room = 10;
	WORLD_UNTIL(h->w, evbuffer_get_length(talk->bytes) == 10);
	world_run(h->w, 50);
	assert_int_equal(evbuffer_get_length(talk->bytes), 10);
	assert_false(talk->is_closed);
	while (evbuffer_get_length(talk->bytes) < 32 * 64 * 1024) {
		if (talk->room == 0) {
			talk->room = 100 * 1000;
			talk->hooks->on_room(talk->call);
		}
		world_turn(h->w);
	}
	assert_int_equal(evbuffer_get_length(talk->bytes), 32 * 64 * 1024);
	assert_false(has_said(talk, "gap"));
	talk_free(talk);
}

static void test_a_command_that_does_not_read_holds_its_client_up(void **state)
{
	const char *id = http_running(h, NULL);
	struct talk *talk = talk_new(id, "command=hang");
	static char block[32 * 1024 + 1];
	unsigned messages = 0;

	(void)state;
	memset(block, 'x', sizeof block - 1);
	WORLD_UNTIL(h->w, has_said(talk, "start"));
	for (int idle = 0; idle < 20; idle++) {
		if (!talk->is_paused) {
			type(talk, block);
			messages++;
			idle = 0;
		}
		assert_true(messages < 64);
		world_turn(h->w);
	}
	/* It can leave all the same, and the end of the command is the end of what waits. */
	_cleanup_free_ char *eid = exec_of(talk);

	talk_free(talk);
	_cleanup_free_ char *rest = xasprintf("/exec/%s/kill", eid);

	http_json(h, "POST", http_at(id, rest), h->key, "{}");
	WORLD_UNTIL(h->w, fake_guest_call_count(h->w->guests) == 0);
}

/* ---- other ends ---- */

static void test_the_end_of_the_sandbox_is_told(void **state)
{
	const char *id = http_running(h, NULL);
	struct talk *talk = talk_new(id, "");

	(void)state;
	WORLD_UNTIL(h->w, has_said(talk, "start"));
	http_json(h, "DELETE", http_at(id, ""), h->key, NULL);
	WORLD_UNTIL(h->w, talk->is_closed);
	assert_true(has_said(talk, "{\"error\":{"));
	assert_true(has_said(talk, "has ended"));
	assert_false(has_said(talk, "exit"));
	assert_int_equal(talk->code, OP_SOCKET_GOING_AWAY);
	talk_free(talk);
}

static void test_a_start_that_fails_is_an_ordinary_error(void **state)
{
	const char *id = http_running(h, NULL);

	(void)state;
	fake_guest_script(h->w->guests, FAKE_GUEST_JOB_START,
		&(struct fake_script){.mode = FAKE_FAIL, .kind = ERR_UNAVAILABLE, .times = 1});
	expect_refusal(id, "", 503, "scripted failure");
	/* A client that leaves while it starts leaves a terminal that can be attached to. */
	struct principal principal = {.scopes = AUTH_SCOPE_USER};
	struct api_args args;
	struct err err;

	snprintf(principal.account_id, sizeof principal.account_id, "%s", h->account);
	api_args_init(&args, api_row(API_PTY));
	assert_ok(api_args_add_path(&args, "id", id, &err), &err);
	assert_ok(api_args_finish(&args, &err), &err);
	const struct op_request request = {
		.id = "rq_00000000000000000000", .principal = &principal, .args = &args};
	struct op_call *call = op_call_new(h->ops, api_row(API_PTY), &request);

	assert_int_equal(op_start(call, on_answer, NULL), OP_WAIT);
	op_call_free(call, 0);
	WORLD_UNTIL(h->w, fake_guest_job_count(h->w->guests, id) == 1);
	struct answer *a = http_get(h, h->key, http_at(id, "/exec"));

	assert_string_equal(answer_text(a, "data.0.status"), "running");
	assert_string_equal(answer_text(a, "data.0.tty"), "true");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, http_set_up, http_tear_down)
		T(test_a_shell_echoes_and_its_exit_is_told),
		T(test_resizes_and_signals_arrive_in_their_place),
		T(test_a_message_that_is_not_understood_ends_it),
		T(test_who_comes_back_sees_the_recent_past),
		T(test_a_terminal_outlives_the_service),
		T(test_attaching_needs_a_terminal),
		T(test_a_slow_client_gets_all_of_it_at_its_pace),
		T(test_a_command_that_does_not_read_holds_its_client_up),
		T(test_the_end_of_the_sandbox_is_told),
		T(test_a_start_that_fails_is_an_ordinary_error),
#undef T
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
