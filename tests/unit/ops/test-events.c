#include "tests/lib/cm.h"

#include <stdlib.h>

#include "base/clock.h"
#include "ops/events.h"
#include "tests/lib/event_text.h"

/* ---- a reader ---- */

struct fixture {
	struct loop *loop;
	struct pipe *pipe; /* reader's end */
	struct events *events;
	struct evbuffer *came;
	bool is_full;
	unsigned changes;
};

static void on_flow(void *arg, bool is_full)
{
	struct fixture *f = arg;

	assert_true(is_full != f->is_full);
	f->is_full = is_full;
	f->changes++;
}

static void setup(struct fixture *f, size_t capacity)
{
	struct err err;

	*f = (struct fixture){.loop = loop_new(&err), .came = evbuffer_new()};
	f->pipe = pipe_new(f->loop, capacity);
	f->events = events_new(f->loop, f->pipe, 60000, on_flow, f);
}

static void teardown(struct fixture *f)
{
	events_free(f->events);
	pipe_reader_free(f->pipe);
	evbuffer_free(f->came);
	loop_free(f->loop);
}

/* Reads until nothing more comes. */
static void read_all(struct fixture *f)
{
	do {
		loop_turn_for(f->loop, 0);
	} while (pipe_read_buffer(f->pipe, f->came, SIZE_MAX) > 0);
}

/* The next record, without the empty line; NULL: none is whole. Freed by the caller. */
static char *next_record(struct fixture *f)
{
	struct evbuffer_ptr end = evbuffer_search(f->came, "\n\n", 2, NULL);

	if (end.pos < 0) {
		return NULL;
	}
	char *record = calloc(1, (size_t)end.pos + 1);

	evbuffer_remove(f->came, record, (size_t)end.pos);
	evbuffer_drain(f->came, 2);
	return record;
}

static void expect_record(struct fixture *f, const char *expected)
{
	char *record = next_record(f);

	assert_non_null(record);
	assert_string_equal(record, expected);
	free(record);
}

/* Puts the bytes of all events of output together. */
static void collect(struct fixture *f, struct evbuffer *outputs[2], size_t *ret_binary)
{
	struct event event;

	while (event_take(f->came, &event)) {
		assert_non_null(event.bytes);
		evbuffer_add(outputs[strcmp(event.name, "stderr") == 0], event.bytes, event.len);
		*ret_binary += !event.is_text;
		event_fini(&event);
	}
	assert_int_equal(evbuffer_get_length(f->came), 0);
}

/* ---- records ---- */

static void test_a_record_has_a_name_and_a_line_of_json(void **state)
{
	struct fixture f;
	json_object *data = json_object_new_object();

	(void)state;
	setup(&f, 1000);
	json_object_object_add(data, "id", json_object_new_string("two\nlines"));
	events_add(f.events, "start", data);
	events_output(f.events, 1, "a \"b\" \\ \t\x01\n", 11);
	events_output(f.events, 2, "\xff\x00", 2);
	events_end(f.events);
	read_all(&f);
	expect_record(&f, "event: start\ndata: {\"id\":\"two\\nlines\"}");
	expect_record(&f, "event: stdout\ndata: {\"text\":\"a \\\"b\\\" \\\\ \\t\\u0001\\n\"}");
	expect_record(&f, "event: stderr\ndata: {\"base64\":\"/wA=\"}");
	assert_null(next_record(&f));
	assert_true(pipe_is_end(f.pipe));
	teardown(&f);
}

static void test_a_character_in_parts_waits_for_its_rest(void **state)
{
	struct fixture f;

	(void)state;
	setup(&f, 1000);
	events_output(f.events, 1, "a\xe2", 2);
	events_output(f.events, 2, "\xf0\x9f", 2);
	events_output(f.events, 1, "\x82", 1);
	events_output(f.events, 1, "\xac", 1);
	events_output(f.events, 2, "\x90\xa7", 2);
	read_all(&f);
	expect_record(&f, "event: stdout\ndata: {\"text\":\"a\"}");
	expect_record(&f, "event: stdout\ndata: {\"text\":\"€\"}");
	expect_record(&f, "event: stderr\ndata: {\"text\":\"🐧\"}");
	assert_null(next_record(&f));
	teardown(&f);
}

static void test_a_part_whose_rest_never_comes_is_told_before_the_end(void **state)
{
	struct fixture f;

	(void)state;
	setup(&f, 1000);
	events_output(f.events, 1, "\xe2\x82", 2);
	events_add(f.events, "exit", json_object_new_object());
	events_end(f.events);
	read_all(&f);
	expect_record(&f, "event: stdout\ndata: {\"base64\":\"4oI=\"}");
	expect_record(&f, "event: exit\ndata: {}");
	teardown(&f);
}

static void test_text_stays_text_however_it_is_cut(void **state)
{
	static const char text[] = "naïve – 10 €, 🐧🐧 und ein\nlanger Satz: жизнь\t\"\\\x1b[0m";

	(void)state;
	for (size_t step = 1; step < sizeof text; step++) {
		struct fixture f;
		struct evbuffer *outputs[2] = {evbuffer_new(), evbuffer_new()};
		size_t binary = 0;

		setup(&f, 64);
		for (size_t i = 0; i < sizeof text - 1; i += step) {
			events_output(f.events, 1, text + i, MIN(step, sizeof text - 1 - i));
		}
		events_end(f.events);
		read_all(&f);
		collect(&f, outputs, &binary);
		assert_int_equal(binary, 0);
		assert_int_equal(evbuffer_get_length(outputs[0]), sizeof text - 1);
		assert_memory_equal(evbuffer_pullup(outputs[0], -1), text, sizeof text - 1);
		evbuffer_free(outputs[0]);
		evbuffer_free(outputs[1]);
		teardown(&f);
	}
}

static void test_any_bytes_arrive_in_any_pieces(void **state)
{
	static char bytes[200000];
	unsigned seed = 3;

	(void)state;
	for (size_t i = 0; i < sizeof bytes; i++) {
		/* Long stretches of text, of zeros and of noise. */
		bytes[i] = i / 5000 % 3 == 0 ? 'x' : i / 5000 % 3 == 1 ? '\0' : (char)rand_r(&seed);
	}
	for (int round = 0; round < 20; round++) {
		struct fixture f;
		struct evbuffer *sent[2] = {evbuffer_new(), evbuffer_new()};
		struct evbuffer *got[2] = {evbuffer_new(), evbuffer_new()};
		size_t binary = 0;

		setup(&f, 1 + (size_t)rand_r(&seed) % 100000);
		for (size_t i = 0, n; i < sizeof bytes; i += n) {
			int fd = 1 + rand_r(&seed) % 2;

			n = MIN(1 + (size_t)rand_r(&seed) % 70000, sizeof bytes - i);
			events_output(f.events, fd, bytes + i, n);
			evbuffer_add(sent[fd - 1], bytes + i, n);
			if (rand_r(&seed) % 2) {
				read_all(&f);
			}
		}
		events_end(f.events);
		read_all(&f);
		assert_true(pipe_is_end(f.pipe));
		collect(&f, got, &binary);
		for (int i = 0; i < 2; i++) {
			size_t len = evbuffer_get_length(sent[i]);

			assert_int_equal(evbuffer_get_length(got[i]), len);
			assert_memory_equal(
				evbuffer_pullup(got[i], -1), evbuffer_pullup(sent[i], -1), len);
			evbuffer_free(sent[i]);
			evbuffer_free(got[i]);
		}
		teardown(&f);
	}
}

/* ---- places ---- */

static void test_an_id_is_where_to_go_on_without_missing_a_byte(void **state)
{
	struct fixture f;
	json_object *data = json_object_new_object();

	(void)state;
	setup(&f, 1000);
	events_locate(f.events, 100);
	events_output(f.events, 1, "ab\xe2", 3); /* 100 to 102 */
	events_output(f.events, 2, "x", 1);      /* 103 */
	events_output(f.events, 1, "\x82\xac", 2);
	events_output(f.events, 1, "c\xc3", 2); /* 106, 107 */
	events_locate(f.events, 500);
	json_object_object_add(data, "dropped_bytes", json_object_new_int(392));
	events_add(f.events, "gap", data);
	events_output(f.events, 1, "d", 1);
	read_all(&f);
	expect_record(&f, "event: stdout\nid: 102\ndata: {\"text\":\"ab\"}");
	/* Half a character of stdout is still to come. */
	expect_record(&f, "event: stderr\nid: 102\ndata: {\"text\":\"x\"}");
	expect_record(&f, "event: stdout\nid: 106\ndata: {\"text\":\"€\"}");
	expect_record(&f, "event: stdout\nid: 107\ndata: {\"text\":\"c\"}");
	expect_record(&f, "event: stdout\nid: 108\ndata: {\"base64\":\"ww==\"}");
	expect_record(&f, "event: gap\nid: 500\ndata: {\"dropped_bytes\":392}");
	expect_record(&f, "event: stdout\nid: 501\ndata: {\"text\":\"d\"}");
	teardown(&f);
}

/* ---- pace ---- */

static void test_a_reader_that_is_behind_is_told_of_once(void **state)
{
	struct fixture f;
	char block[1000];

	(void)state;
	memset(block, 'x', sizeof block);
	setup(&f, 2000);
	events_output(f.events, 1, block, sizeof block);
	assert_false(f.is_full);
	events_output(f.events, 1, block, sizeof block);
	assert_true(f.is_full);
	events_output(f.events, 2, block, sizeof block);
	assert_int_equal(f.changes, 1);
	read_all(&f);
	assert_false(f.is_full);
	assert_int_equal(f.changes, 2);
	teardown(&f);
}

static void test_the_order_is_kept_while_the_reader_is_behind(void **state)
{
	struct fixture f;

	(void)state;
	setup(&f, 1);
	for (int i = 0; i < 100; i++) {
		events_output(f.events, 1 + i % 2, "x", 1);
	}
	events_add(f.events, "exit", json_object_new_object());
	events_end(f.events);
	read_all(&f);
	for (int i = 0; i < 100; i++) {
		expect_record(&f, i % 2 == 0 ? "event: stdout\ndata: {\"text\":\"x\"}"
					     : "event: stderr\ndata: {\"text\":\"x\"}");
	}
	expect_record(&f, "event: exit\ndata: {}");
	assert_true(pipe_is_end(f.pipe));
	teardown(&f);
}

static void test_what_was_given_before_the_end_arrives_before_it(void **state)
{
	struct fixture f;
	static char block[300000];
	struct evbuffer *outputs[2] = {evbuffer_new(), evbuffer_new()};
	size_t binary = 0;

	(void)state;
	setup(&f, 100);
	events_output(f.events, 1, block, sizeof block);
	events_end(f.events);
	assert_false(pipe_is_end(f.pipe));
	read_all(&f);
	assert_true(pipe_is_end(f.pipe));
	collect(&f, outputs, &binary);
	assert_int_equal(evbuffer_get_length(outputs[0]), sizeof block);
	evbuffer_free(outputs[0]);
	evbuffer_free(outputs[1]);
	teardown(&f);
}

static void test_an_end_that_never_came_fails_the_pipe(void **state)
{
	struct fixture f;

	(void)state;
	setup(&f, 100);
	events_output(f.events, 1, "x", 1);
	events_free(steal_ptr(&f.events));
	assert_false(pipe_is_end(f.pipe));
	assert_non_null(pipe_failure(f.pipe));
	teardown(&f);
}

static void test_silence_is_filled_with_comments(void **state)
{
	struct fixture f;
	struct pipe *pipe;

	(void)state;
	setup(&f, 100);
	events_free(f.events);
	pipe_reader_free(f.pipe);
	f.pipe = pipe = pipe_new(f.loop, 100);
	f.events = events_new(f.loop, pipe, 30, on_flow, &f);
	await(f.loop, pipe_available(pipe) >= 6, 5000);
	read_all(&f);
	expect_record(&f, ":");
	expect_record(&f, ":");
	/* Not into a pipe that nobody reads. */
	await(f.loop, pipe_room(pipe) < 3, 20000);
	loop_turn_for(f.loop, 100);
	assert_false(f.is_full);
	events_end(f.events);
	read_all(&f);
	assert_true(pipe_is_end(pipe));
	teardown(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_record_has_a_name_and_a_line_of_json),
		cmocka_unit_test(test_a_character_in_parts_waits_for_its_rest),
		cmocka_unit_test(test_a_part_whose_rest_never_comes_is_told_before_the_end),
		cmocka_unit_test(test_text_stays_text_however_it_is_cut),
		cmocka_unit_test(test_any_bytes_arrive_in_any_pieces),
		cmocka_unit_test(test_an_id_is_where_to_go_on_without_missing_a_byte),
		cmocka_unit_test(test_a_reader_that_is_behind_is_told_of_once),
		cmocka_unit_test(test_the_order_is_kept_while_the_reader_is_behind),
		cmocka_unit_test(test_what_was_given_before_the_end_arrives_before_it),
		cmocka_unit_test(test_an_end_that_never_came_fails_the_pipe),
		cmocka_unit_test(test_silence_is_filled_with_comments),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
