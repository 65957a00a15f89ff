#include "tests/lib/cm.h"

#include "ctl/ctl.h"
#include "tests/unit/ctl/capture.h"

static struct capture out;

static const char *text_of(const char *text, size_t len)
{
	capture_start(&out, stdout);
	ctl_print_text(text, len, stdout);
	return capture_end(&out);
}

static const char *table_of(const char *json, const struct ctl_column *columns, size_t count)
{
	_cleanup_json_ json_object *array = json_tokener_parse(json);

	assert_non_null(array);
	capture_start(&out, stdout);
	ctl_print_table(array, columns, count);
	return capture_end(&out);
}

static const char *record_of(const char *json)
{
	_cleanup_json_ json_object *object = json_tokener_parse(json);

	assert_non_null(object);
	capture_start(&out, stdout);
	ctl_print_record(object);
	return capture_end(&out);
}

static void test_text_keeps_what_can_be_printed(void **state)
{
	static const char text[] = "plain \"quoted\" \\ ü 漢字 \xf0\x9f\x98\x80";

	(void)state;
	assert_string_equal(text_of(text, strlen(text)), text);
	assert_string_equal(text_of("", 0), "");
}

static void test_nothing_that_drives_a_terminal_gets_out(void **state)
{
	(void)state;
	assert_string_equal(text_of("a\x1b[2Jb", 6), "a\\x1b[2Jb");
	assert_string_equal(text_of("\r\n\t\a\b\0\x7f", 7), "\\x0d\\x0a\\x09\\x07\\x08\\x00\\x7f");
	/* C1 controls: in UTF-8, and as bare bytes. */
	assert_string_equal(text_of("\xc2\x9b"
				    "2J",
				    4),
		"\\xc2\\x9b2J");
	assert_string_equal(text_of("\x9b"
				    "2J",
				    3),
		"\\x9b2J");
	assert_string_equal(text_of("\xff\xc3", 2), "\\xff\\xc3");
}

static void test_long_text_is_whole_wherever_it_is_split(void **state)
{
	char text[4096];
	char expected[3 * sizeof text];

	(void)state;
	for (size_t shift = 0; shift < 4; shift++) {
		size_t n = 0;
		size_t m = shift;

		memset(text, 'a', shift);
		memset(expected, 'a', shift);
		for (n = shift; n + 4 <= 3000; n += 4, m += 7) {
			memcpy(text + n, "\xe6\xbc\xa2\x1b", 4);
			memcpy(expected + m, "\xe6\xbc\xa2\\x1b", 7);
		}
		expected[m] = '\0';
		assert_string_equal(text_of(text, n), expected);
	}
}

static void test_a_table_fits_its_content(void **state)
{
	static const struct ctl_column columns[] = {{"ID", "id"}, {"NAME", "name"}, {"X", "x"}};

	(void)state;
	assert_string_equal(table_of("[]", columns, 3), "ID  NAME  X\n");
	assert_string_equal(table_of("[{\"id\":\"sb_1\",\"name\":\"a\",\"x\":true},"
				     "{\"id\":\"s\",\"name\":\"longer\",\"x\":12}]",
				    columns, 3),
		"ID    NAME    X\n"
		"sb_1  a       true\n"
		"s     longer  12\n");
}

static void test_a_table_shows_what_is_missing(void **state)
{
	static const struct ctl_column columns[] = {{"ID", "id"}, {"X", "x"}};

	(void)state;
	assert_string_equal(
		table_of("[{\"id\":null},{\"id\":\"\",\"x\":\"y\"},{},null,3]", columns, 2),
		"ID  X\n-   -\n-   y\n-   -\n-   -\n-   -\n");
}

static void test_columns_count_characters_and_not_bytes(void **state)
{
	static const struct ctl_column columns[] = {{"N", "n"}, {"X", "x"}};

	(void)state;
	assert_string_equal(
		table_of("[{\"n\":\"äöü\",\"x\":1},{\"n\":\"abc\",\"x\":2}]", columns, 2),
		"N    X\näöü  1\nabc  2\n");
}

static void test_a_table_escapes_and_makes_room_for_it(void **state)
{
	static const struct ctl_column columns[] = {{"N", "n"}, {"X", "x"}};

	(void)state;
	assert_string_equal(
		table_of("[{\"n\":\"\\u001b[m\",\"x\":1},{\"n\":\"a\\nb\",\"x\":2}]", columns, 2),
		"N       X\n\\x1b[m  1\na\\x0ab  2\n");
}

static void test_a_record_is_a_line_a_field(void **state)
{
	(void)state;
	assert_string_equal(
		record_of(
			"{\"id\":\"sb_1\",\"name\":null,\"metadata\":{\"a\":\"b\"},\"on\":false}"),
		"id:       sb_1\n"
		"name:     -\n"
		"metadata: { \"a\": \"b\" }\n"
		"on:       false\n");
	assert_string_equal(record_of("{\"a\":\"x\\u001b]0;y\\u0007\\nb: z\"}"),
		"a: x\\x1b]0;y\\x07\\x0ab: z\n");
	assert_string_equal(record_of("{}"), "");
}

static void test_json_is_one_line(void **state)
{
	_cleanup_json_ json_object *object = json_tokener_parse(
		"{ \"path\": \"/a/b\",\n \"x\": \"a\\nb\" }");

	(void)state;
	capture_start(&out, stdout);
	ctl_print_json(object);
	assert_string_equal(capture_end(&out), "{\"path\":\"/a/b\",\"x\":\"a\\nb\"}\n");
}

static void test_members_are_never_null(void **state)
{
	_cleanup_json_ json_object *object = json_tokener_parse("{\"a\":\"b\",\"n\":null,\"i\":3}");

	(void)state;
	assert_string_equal(ctl_member(object, "a"), "b");
	assert_string_equal(ctl_member(object, "n"), "");
	assert_string_equal(ctl_member(object, "i"), "3");
	assert_string_equal(ctl_member(object, "none"), "");
	assert_string_equal(ctl_member(NULL, "a"), "");
}

static void test_an_answer_without_its_list_is_told(void **state)
{
	static const char *const wrong[] = {"{}", "{\"data\":null}", "{\"data\":{}}", "[]",
		"{\"data\":[1]}", "{\"data\":[{},null]}"};
	_cleanup_json_ json_object *good = json_tokener_parse("{\"data\":[{}]}");

	(void)state;
	assert_non_null(ctl_array(good, "data"));
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		_cleanup_json_ json_object *object = json_tokener_parse(wrong[i]);

		capture_start(&out, stderr);
		json_object *array = ctl_array(object, "data");
		capture_end(&out);
		assert_null(array);
		assert_non_null(strstr(out.text, "\"data\""));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_text_keeps_what_can_be_printed),
		cmocka_unit_test(test_nothing_that_drives_a_terminal_gets_out),
		cmocka_unit_test(test_long_text_is_whole_wherever_it_is_split),
		cmocka_unit_test(test_a_table_fits_its_content),
		cmocka_unit_test(test_a_table_shows_what_is_missing),
		cmocka_unit_test(test_columns_count_characters_and_not_bytes),
		cmocka_unit_test(test_a_table_escapes_and_makes_room_for_it),
		cmocka_unit_test(test_a_record_is_a_line_a_field),
		cmocka_unit_test(test_json_is_one_line),
		cmocka_unit_test(test_members_are_never_null),
		cmocka_unit_test(test_an_answer_without_its_list_is_told),
	};

	return cmocka_run_group_tests_name("ctl output", tests, NULL, NULL);
}
