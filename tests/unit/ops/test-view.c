#include "tests/lib/cm.h"

#include "api/api.h"
#include "ops/view.h"
#include "sandbox/sandbox_state.h"

static const char *text_at(json_object *obj, const char *key)
{
	return json_object_get_string(json_object_object_get(obj, key));
}

static void test_bytes_that_are_text_stand_alone(void **state)
{
	_cleanup_json_ json_object *obj = json_object_new_object();

	(void)state;
	view_set_bytes(obj, "stdout", "gr\xc3\xbc\xc3\x9f\n", 7);
	assert_string_equal(text_at(obj, "stdout"), "gr\xc3\xbc\xc3\x9f\n");
	assert_null(json_object_object_get(obj, "stdout_base64"));
}

static void test_other_bytes_come_lossy_and_whole(void **state)
{
	static const struct {
		const char *bytes;
		size_t len;
		const char *text;
		const char *base64;
	} cases[] = {
		{"a\xff"
		 "b",
			3,
			"a\xef\xbf\xbd"
			"b",
			"Yf9i"},
		{"\xc3", 1, "\xef\xbf\xbd", "ww=="},                   /* ends too early */
		{"\xe2\x82x", 3, "\xef\xbf\xbd\xef\xbf\xbdx", "4oJ4"}, /* breaks off */
		{"\xed\xa0\x80", 3, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd", "7aCA"}, /* surrogate */
		{"\xff\xe2\x82\xac", 4, "\xef\xbf\xbd\xe2\x82\xac", "/+KCrA=="},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_json_ json_object *obj = json_object_new_object();

		view_set_bytes(obj, "x", cases[i].bytes, cases[i].len);
		assert_string_equal(text_at(obj, "x"), cases[i].text);
		assert_string_equal(text_at(obj, "x_base64"), cases[i].base64);
	}
}

static void test_internal_errors_keep_their_text(void **state)
{
	struct err err;

	(void)state;
	err_set(&err, ERR_INTERNAL, "open /var/lib/secret: no such file");
	_cleanup_json_ json_object *obj = view_error(&err, NULL, "rq_1");
	json_object *error = json_object_object_get(obj, "error");

	assert_string_equal(text_at(error, "type"), "internal");
	assert_string_equal(text_at(error, "message"), "internal error");
	assert_string_equal(text_at(error, "request_id"), "rq_1");
	assert_null(json_object_object_get(error, "code"));
}

static void test_messages_of_a_guest_become_text(void **state)
{
	struct err err;

	(void)state;
	err_set(&err, ERR_NOT_FOUND, "no \xff here");
	_cleanup_json_ json_object *obj = view_error(&err, "not_found", "rq_1");
	json_object *error = json_object_object_get(obj, "error");

	assert_string_equal(text_at(error, "message"), "no \xef\xbf\xbd here");
	assert_string_equal(text_at(error, "code"), "not_found");
}

static void test_entries_have_name_and_path(void **state)
{
	static const char path[] = "a/b/c.txt";
	const struct guest_entry entry = {.name = path,
		.name_len = sizeof path - 1,
		.type = 'f',
		.size = 7,
		.mode = 0100644,
		.mtime_ms = 1000};

	(void)state;
	_cleanup_json_ json_object *obj = view_entry("/workspace", 10, &entry);
	_cleanup_json_ json_object *below = view_entry("/", 1, &entry);

	assert_string_equal(text_at(obj, "name"), "c.txt");
	assert_string_equal(text_at(obj, "path"), "/workspace/a/b/c.txt");
	assert_string_equal(text_at(below, "path"), "/a/b/c.txt");
	assert_string_equal(text_at(obj, "type"), "file");
	assert_string_equal(text_at(obj, "mode"), "0644");
	assert_string_equal(text_at(obj, "modified_at"), "1970-01-01T00:00:01.000Z");
}

/* Reproducible images have files of that time; in a record it means "not yet". */
static void test_the_epoch_is_a_time_of_files(void **state)
{
	const struct guest_entry entry = {.name = "a", .name_len = 1, .type = 'f'};
	const struct guest_file_info info = {.mode = 0100644, .mtime_ms = -1500};
	struct evbuffer *content = evbuffer_new();
	const struct store_sandbox row = {.created_at_ms = 1};

	(void)state;
	_cleanup_json_ json_object *listed = view_entry("/", 1, &entry);
	_cleanup_json_ json_object *read = view_file("/a", 2, &info, content);
	_cleanup_json_ json_object *record = view_sandbox(&row, false);

	assert_string_equal(text_at(listed, "modified_at"), "1970-01-01T00:00:00.000Z");
	assert_string_equal(text_at(read, "modified_at"), "1969-12-31T23:59:58.500Z");
	assert_null(json_object_object_get(record, "ended_at"));
	evbuffer_free(content);
}

static void test_timed_out_commands_end_with_124(void **state)
{
	struct evbuffer *out = evbuffer_new();
	const struct sandbox_exec_result result = {.id = "ex_1",
		.out.bytes = out,
		.err_out.bytes = out,
		.guest = {.exit_code = 137, .signal = 9, .timed_out = true, .duration_us = 1999}};

	(void)state;
	_cleanup_json_ json_object *obj = view_exec(&result);

	assert_int_equal(json_object_get_int(json_object_object_get(obj, "exit_code")), 124);
	assert_int_equal(json_object_get_int(json_object_object_get(obj, "signal")), 9);
	assert_int_equal(json_object_get_int(json_object_object_get(obj, "duration_ms")), 1);
	evbuffer_free(out);
}

/* The table can't include the domain; this holds the two lists together. */
static void test_list_filter_knows_every_state(void **state)
{
	const struct api_field *field = api_row_field(api_row(API_SANDBOX_LIST), "status");
	size_t count = 0;

	(void)state;
	for (const char *const *choice = field->choices; *choice; choice++) {
		enum sandbox_state parsed;

		count += sandbox_state_parse(*choice, &parsed);
	}
	assert_int_equal(count, SANDBOX_STATE_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bytes_that_are_text_stand_alone),
		cmocka_unit_test(test_other_bytes_come_lossy_and_whole),
		cmocka_unit_test(test_internal_errors_keep_their_text),
		cmocka_unit_test(test_messages_of_a_guest_become_text),
		cmocka_unit_test(test_entries_have_name_and_path),
		cmocka_unit_test(test_the_epoch_is_a_time_of_files),
		cmocka_unit_test(test_timed_out_commands_end_with_124),
		cmocka_unit_test(test_list_filter_knows_every_state),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
