#include "tests/lib/http_events.h"
#include "tests/lib/http_fixture.h"

#include <malloc.h>
#include <stdlib.h>

#include "base/xalloc.h"

/* Commands whose output comes as it is written. */

static const char *id;

static int set_up(void **state)
{
	http_set_up(state);
	id = http_running(h, NULL);
	return 0;
}

/* Silence is 50 ms. */
static int set_up_nervous(void **state)
{
	http_set_up(state);
	h->ops_config.events_heartbeat_ms = 50;
	http_world_restart(h);
	id = http_running(h, NULL);
	return 0;
}

static struct event_stream *ask(const char *json)
{
	return event_stream_new(h, "POST", http_at(id, "/exec"), h->key, json);
}

static void assert_field(const struct event *event, const char *name, const char *expected)
{
	const char *value = event_field(event, name);

	if (!value || strcmp(value, expected) != 0) {
		fail_msg("%s: %s, not %s", name, value ? value : "(null)", expected);
	}
}

/* ---- what comes ---- */

static void test_a_stream_has_a_start_the_outputs_and_an_exit(void **state)
{
	struct event_stream *s = ask("{\"command\":\"echo hello\"}");
	struct event event;
	char exec_id[64];

	(void)state;
	assert_non_null(strstr(s->headers, "X-Request-Id: rq_"));
	assert_null(strstr(s->headers, "X-File-"));
	event_stream_expect(s, "start", &event);
	snprintf(exec_id, sizeof exec_id, "%s", event_field(&event, "id"));
	assert_int_equal(strncmp(exec_id, "ex_", 3), 0);
	event_fini(&event);
	_cleanup_free_ char *said = NULL;

	while (event_stream_next(s, &event) && event.bytes) {
		char *longer = xasprintf("%s%s", said ? said : "", event.bytes);

		free(said);
		said = longer;
		assert_string_equal(event.name, "stdout");
		event_fini(&event);
	}
	assert_string_equal(said, "hello\n");
	assert_string_equal(event.name, "exit");
	assert_field(&event, "id", exec_id);
	assert_field(&event, "exit_code", "0");
	assert_field(&event, "stdout_bytes", "6");
	assert_field(&event, "truncated", "false");
	assert_null(event_field(&event, "signal"));
	assert_null(event_field(&event, "stdout"));
	event_fini(&event);
	assert_false(event_stream_next(s, &event));
	assert_true(s->is_end);
	event_stream_free(s);
}

static void test_what_fails_before_the_start_is_an_ordinary_error(void **state)
{
	static const struct {
		const char *json;
		int status;
	} cases[] = {{"{}", 400}, {"{\"command\":\"x\",\"timeout_ms\":0}", 400}};
	const struct fake_script fails = {.mode = FAKE_FAIL, .times = 1};
	const struct fake_script hangs = {.mode = FAKE_TIMEOUT, .times = 1};
	struct event_stream *s;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		s = ask(cases[i].json);
		assert_int_equal(s->refusal->status, cases[i].status);
		event_stream_free(s);
	}
	fake_guest_script(h->w->guests, FAKE_GUEST_EXEC, &fails);
	s = ask("{\"command\":\"true\"}");
	assert_true(s->refusal->status >= 400);
	assert_non_null(answer_text(s->refusal, "error.message"));
	event_stream_free(s);
	fake_guest_script(h->w->guests, FAKE_GUEST_EXEC, &hangs);
	s = ask("{\"command\":\"true\"}");
	assert_int_equal(s->refusal->status, 504);
	event_stream_free(s);
	http_json(h, "DELETE", http_at(id, ""), h->key, NULL);
	s = ask("{\"command\":\"true\"}");
	assert_int_equal(s->refusal->status, 409);
	event_stream_free(s);
}

static bool whisper(void *arg, struct guest_call *call, const struct fake_exec *exec)
{
	const char *text = arg;

	(void)exec;
	for (size_t i = 0; text[i]; i++) {
		fake_exec_output(call, 1, text + i, 1);
		fake_exec_output(call, 2, text + i, 1);
	}
	fake_exec_exit(call, 3);
	return true;
}

static void test_characters_that_come_byte_by_byte_are_whole(void **state)
{
	static char text[] = "naïve – 10 €, 🐧🐧 und жизнь\n";
	struct evbuffer *outputs[2] = {evbuffer_new(), evbuffer_new()};

	(void)state;
	fake_guest_set_program(h->w->guests, whisper, text);
	struct event_stream *s = ask("{\"command\":\"x\"}");
	struct event event;

	while (event_stream_next(s, &event) && strcmp(event.name, "exit") != 0) {
		assert_true(!event.bytes || event.is_text);
		if (event.bytes) {
			evbuffer_add(
				outputs[strcmp(event.name, "stderr") == 0], event.bytes, event.len);
		}
		event_fini(&event);
	}
	assert_field(&event, "exit_code", "3");
	event_fini(&event);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(evbuffer_get_length(outputs[i]), strlen(text));
		assert_memory_equal(evbuffer_pullup(outputs[i], -1), text, strlen(text));
		evbuffer_free(outputs[i]);
	}
	event_stream_free(s);
}

static void test_a_silent_command_has_started_all_the_same(void **state)
{
	struct event_stream *s = ask("{\"command\":\"hang\"}");
	struct event event;

	(void)state;
	event_stream_expect(s, "start", &event);
	event_fini(&event);
	event_stream_free(s);
	WORLD_UNTIL(h->w, fake_guest_call_count(h->w->guests) == 0);
}

static void test_a_body_of_bytes_is_the_commands_input(void **state)
{
	static const char bytes[] = "a\0b\xff\n";
	struct evbuffer *outputs[2] = {evbuffer_new(), evbuffer_new()};
	_cleanup_free_ char *target = xasprintf("/v1/sandboxes/%s/exec?command=cat", id);
	struct event_stream *s = event_stream_new_raw(
		h, "POST", target, h->key, "application/octet-stream", bytes, sizeof bytes - 1);
	struct event last;

	(void)state;
	event_stream_drain(s, outputs, &last);
	assert_string_equal(last.name, "exit");
	assert_int_equal(evbuffer_get_length(outputs[0]), sizeof bytes - 1);
	assert_memory_equal(evbuffer_pullup(outputs[0], -1), bytes, sizeof bytes - 1);
	event_fini(&last);
	evbuffer_free(outputs[0]);
	evbuffer_free(outputs[1]);
	event_stream_free(s);
}

static void test_a_stream_has_no_limit_unless_it_is_asked_for(void **state)
{
	static const struct {
		const char *json;
		size_t expected;
		const char *truncated;
	} cases[] = {
		{"{\"command\":\"bytes 3000000\"}", 3000000, "false"},
		{"{\"command\":\"bytes 3000000\",\"output_limit_bytes\":1000}", 1000, "true"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct evbuffer *outputs[2] = {evbuffer_new(), evbuffer_new()};
		struct event_stream *s = ask(cases[i].json);
		struct event last;

		event_stream_drain(s, outputs, &last);
		assert_string_equal(last.name, "exit");
		assert_field(&last, "truncated", cases[i].truncated);
		assert_field(&last, "stdout_bytes", "3000000");
		assert_int_equal(evbuffer_get_length(outputs[0]), cases[i].expected);
		event_fini(&last);
		evbuffer_free(outputs[0]);
		evbuffer_free(outputs[1]);
		event_stream_free(s);
	}
}

static void test_a_time_out_is_124(void **state)
{
	struct event_stream *s = ask("{\"command\":\"sleep 60000\",\"timeout_ms\":20}");
	struct event event;

	(void)state;
	event_stream_expect(s, "start", &event);
	event_fini(&event);
	event_stream_expect(s, "exit", &event);
	assert_field(&event, "exit_code", "124");
	assert_field(&event, "timed_out", "true");
	event_fini(&event);
	event_stream_free(s);
}

static void test_silence_has_comments(void **state)
{
	struct event_stream *s = ask("{\"command\":\"hang\"}");
	struct event event;
	size_t comments = 0;

	(void)state;
	event_stream_expect(s, "start", &event);
	event_fini(&event);
	while (comments < 3) {
		WORLD_UNTIL(h->w, (client_poll(s->c), evbuffer_get_length(s->c->in) > 0));
		assert_false(s->c->is_eof);
		comments += evbuffer_search(s->c->in, ":\n\n", 3, NULL).pos >= 0;
		evbuffer_drain(s->c->in, SIZE_MAX);
	}
	event_stream_free(s);
}

/* ---- how it ends otherwise ---- */

static void expect_error(struct event_stream *s, const char *type)
{
	struct event event;

	event_stream_expect(s, "error", &event);
	assert_field(&event, "error.type", type);
	assert_non_null(event_field(&event, "error.message"));
	assert_non_null(event_field(&event, "error.request_id"));
	event_fini(&event);
	/* In order, and never with an exit behind it. */
	assert_false(event_stream_next(s, &event));
	assert_true(s->is_end);
	event_stream_free(s);
}

static struct event_stream *ask_started(const char *json)
{
	struct event_stream *s = ask(json);
	struct event event;

	event_stream_expect(s, "start", &event);
	event_fini(&event);
	return s;
}

static void test_a_guest_that_is_lost_is_an_error_and_no_exit(void **state)
{
	struct event_stream *s = ask_started("{\"command\":\"hang\"}");

	(void)state;
	fake_guest_drop(h->w->guests, id, 10);
	expect_error(s, "unavailable");
}

static void test_a_sandbox_that_ends_is_an_error_and_no_exit(void **state)
{
	struct event_stream *s = ask_started("{\"command\":\"hang\"}");

	(void)state;
	http_json(h, "DELETE", http_at(id, ""), h->key, NULL);
	expect_error(s, "sandbox_ended");
}

static bool speak_and_stay(void *arg, struct guest_call *call, const struct fake_exec *exec)
{
	static const char block[100000];

	(void)arg;
	(void)exec;
	fake_exec_output(call, 1, block, sizeof block);
	return true;
}

static void test_what_was_said_before_the_loss_arrives(void **state)
{
	struct evbuffer *outputs[2] = {evbuffer_new(), evbuffer_new()};
	struct event last;

	(void)state;
	fake_guest_set_program(h->w->guests, speak_and_stay, NULL);
	struct event_stream *s = ask_started("{\"command\":\"x\"}");

	fake_guest_drop(h->w->guests, id, 10);
	event_stream_drain(s, outputs, &last);
	assert_string_equal(last.name, "error");
	assert_int_equal(evbuffer_get_length(outputs[0]), 100000);
	event_fini(&last);
	event_stream_free(s);
	evbuffer_free(outputs[0]);
	evbuffer_free(outputs[1]);
}

static void test_a_service_that_stops_cuts_its_streams(void **state)
{
	struct event_stream *s = ask_started("{\"command\":\"hang\"}");
	struct event event;

	(void)state;
	http_server_free(steal_ptr(&h->server));
	assert_false(event_stream_next(s, &event));
	assert_true(s->is_cut);
	event_stream_free(s);
	WORLD_UNTIL(h->w, fake_guest_call_count(h->w->guests) == 0);
}

static void test_who_leaves_stops_the_command(void **state)
{
	(void)state;
	for (int is_reset = 0; is_reset < 2; is_reset++) {
		struct event_stream *s = ask_started("{\"command\":\"hang\"}");
		uint64_t left_ms = real_ms();

		assert_int_equal(fake_guest_call_count(h->w->guests), 1);
		if (is_reset) {
			client_reset(s->c);
			s->c = client_new(h);
		}
		event_stream_free(s);
		WORLD_UNTIL(h->w, fake_guest_call_count(h->w->guests) == 0);
		assert_true(real_ms() - left_ms < 2000);
	}
	assert_int_equal(http_server_pending(h->server), 0);
}

/* ---- pace ---- */

#define YES_BLOCK 32768

/* Writes until its reader is behind, and goes on when told to. */
struct yes {
	struct guest_call *call;
	uint64_t written;
};

static bool begin_yes(void *arg, struct guest_call *call, const struct fake_exec *exec)
{
	struct yes *yes = arg;

	(void)exec;
	yes->call = call;
	return true;
}

/* What a turn brings; false: it is blocked. */
static bool write_yes(struct yes *yes)
{
	static char block[YES_BLOCK];

	for (size_t i = 0; i < sizeof block; i += 2) {
		memcpy(block + i, "y\n", 2);
	}
	if (fake_exec_is_paused(yes->call)) {
		return false;
	}
	fake_exec_output(yes->call, 1, block, sizeof block);
	yes->written += sizeof block;
	return true;
}

/* Until it has been blocked for so long that it won't go on by itself. */
static void write_until_blocked(struct yes *yes)
{
	uint64_t written_ms = real_ms();

	/* Turns, too: a process that isn't let run for so long isn't blocked. */
	for (unsigned turns = 0; real_ms() < written_ms + 300 || turns < 20; turns++) {
		if (write_yes(yes)) {
			written_ms = real_ms();
			turns = 0;
		}
		world_turn(h->w);
	}
}

static void test_a_reader_that_stops_stops_the_command(void **state)
{
	struct yes yes = {NULL};
	struct event event;

	(void)state;
	fake_guest_set_program(h->w->guests, begin_yes, &yes);
	struct event_stream *s = ask("{\"command\":\"yes\"}");

	event_stream_expect(s, "start", &event);
	event_fini(&event);
	/* Sockets, the server's mark and the pipe take so much, and no more. */
	write_until_blocked(&yes);
	uint64_t first = yes.written;
	size_t held = mallinfo2().uordblks;

	assert_true(first < 16 << 20);
	write_until_blocked(&yes);
	assert_int_equal(yes.written, first);
	/* Reading makes it go on, and what is held stays the same. */
	for (uint64_t read = 0; read < 5 * first;) {
		client_poll(s->c);
		read += evbuffer_get_length(s->c->in);
		evbuffer_drain(s->c->in, SIZE_MAX);
		write_yes(&yes);
		world_turn(h->w);
	}
	write_until_blocked(&yes);
	assert_true(yes.written > 2 * first);
	assert_true(mallinfo2().uordblks < held + (1 << 20));
	event_stream_free(s);
	WORLD_UNTIL(h->w, fake_guest_call_count(h->w->guests) == 0);
}

static void test_a_slow_reader_gets_all_of_it(void **state)
{
	struct yes yes = {NULL};
	struct evbuffer *outputs[2] = {evbuffer_new(), evbuffer_new()};
	struct event last;

	(void)state;
	fake_guest_set_program(h->w->guests, begin_yes, &yes);
	struct event_stream *s = ask("{\"command\":\"yes\"}");

	WORLD_UNTIL(h->w, yes.call);
	write_until_blocked(&yes);
	fake_exec_exit(yes.call, 0);
	world_run(h->w, 50);
	event_stream_drain(s, outputs, &last);
	assert_string_equal(last.name, "exit");
	assert_int_equal(evbuffer_get_length(outputs[0]), yes.written);
	event_fini(&last);
	evbuffer_free(outputs[0]);
	evbuffer_free(outputs[1]);
	event_stream_free(s);
}

static void test_streams_at_a_time_are_limited(void **state)
{
	struct event_stream *streams[48];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(streams); i++) {
		streams[i] = ask("{\"command\":\"hang\"}");
		assert_null(streams[i]->refusal);
	}
	struct event_stream *s = ask("{\"command\":\"hang\"}");

	assert_int_equal(s->refusal->status, 429);
	assert_non_null(strstr(answer_text(s->refusal, "error.message"), "wait for one to end"));
	event_stream_free(s);
	for (size_t i = 0; i < ARRAY_SIZE(streams); i++) {
		event_stream_free(streams[i]);
	}
	WORLD_UNTIL(h->w, fake_guest_call_count(h->w->guests) == 0);
	s = ask("{\"command\":\"true\"}");
	assert_null(s->refusal);
	event_stream_free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(test) cmocka_unit_test_setup_teardown(test, set_up, http_tear_down)
		T(test_a_stream_has_a_start_the_outputs_and_an_exit),
		T(test_what_fails_before_the_start_is_an_ordinary_error),
		T(test_characters_that_come_byte_by_byte_are_whole),
		T(test_a_silent_command_has_started_all_the_same),
		T(test_a_body_of_bytes_is_the_commands_input),
		T(test_a_stream_has_no_limit_unless_it_is_asked_for),
		T(test_a_time_out_is_124),
		T(test_a_guest_that_is_lost_is_an_error_and_no_exit),
		T(test_a_sandbox_that_ends_is_an_error_and_no_exit),
		T(test_what_was_said_before_the_loss_arrives),
		T(test_a_service_that_stops_cuts_its_streams),
		T(test_who_leaves_stops_the_command),
		T(test_a_reader_that_stops_stops_the_command),
		T(test_a_slow_reader_gets_all_of_it),
		T(test_streams_at_a_time_are_limited),
#undef T
		cmocka_unit_test_setup_teardown(
			test_silence_has_comments, set_up_nervous, http_tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
