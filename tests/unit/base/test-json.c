#include "tests/lib/cm.h"

#include <stdio.h>

#include "base/json.h"
#include "base/xalloc.h"

static void refuse(const char *text, size_t len, const char *says)
{
	struct err err = ERR_INIT;
	_cleanup_json_ json_object *obj = json_parse(text, len, &err);

	if (obj || err.kind != ERR_INVALID) {
		fail_msg("accepted: %.*s", (int)len, text);
	}
	assert_err_says(&err, says);
}

static void test_values_of_every_kind_are_read(void **state)
{
	static const struct {
		const char *text;
		const char *kind;
	} values[] = {{"{\"a\":[1,\"x\",null,true,1.5]}", "an object"}, {"[]", "an array"},
		{"12", "a whole number"}, {" 1.5 ", "a number with a fraction"},
		{"\"s\"", "a string"}, {"true", "a boolean"}, {"\n{}\n", "an object"}};
	struct err err;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
		_cleanup_json_ json_object *obj = json_parse(
			values[i].text, strlen(values[i].text), &err);

		assert_non_null(obj);
		assert_string_equal(json_kind(obj), values[i].kind);
	}
}

static void test_equal_keys_are_refused_by_name(void **state)
{
	static const char *const bad[] = {"{\"a\":1,\"a\":2}", "{\"b\":{\"a\":1,\"a\":2}}",
		"[{\"x\":1},{\"a\":1,\"b\":2,\"a\":3}]", "{\"a\":{\"c\":1},\"d\":1,\"a\" :2}"};
	struct err err;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		refuse(bad[i], strlen(bad[i]), "field \"a\" twice");
	}
	/* The same key in different objects, or as a value, is fine. */
	static const char good[] = "{\"a\":{\"a\":\"a\"},\"b\":[{\"a\":1},{\"a\":\"a\"}]}";
	_cleanup_json_ json_object *obj = json_parse(good, strlen(good), &err);
	assert_non_null(obj);
}

static void test_values_are_counted(void **state)
{
	_cleanup_free_ char *text = xcalloc(4 * JSON_VALUES_MAX, 1);
	struct err err = ERR_INIT;

	(void)state;
	/* [1,1,…]: the bracket counts for one, each comma for another. */
	text[0] = '[';
	for (size_t i = 0; i < JSON_VALUES_MAX; i++) {
		memcpy(text + 1 + 2 * i, "1,", 2);
	}
	text[2 * JSON_VALUES_MAX] = ']';

	_cleanup_json_ json_object *obj = json_parse(text, strlen(text), &err);

	assert_non_null(obj);
	text[2 * JSON_VALUES_MAX] = ',';
	memcpy(text + 2 * JSON_VALUES_MAX + 1, "1]", 2);
	refuse(text, strlen(text), "more than 16384 values");
	/* A service's lists may be longer. */
	_cleanup_json_ json_object *answer = json_parse_answer(text, strlen(text), &err);

	assert_non_null(answer);
	assert_int_equal(json_object_array_length(answer), JSON_VALUES_MAX + 1);
	for (size_t i = 0; i <= JSON_VALUES_MAX; i++) {
		memcpy(text + 3 * i, "{},", 3);
	}
	text[0] = '[';
	text[1] = ' ';
	refuse(text, 3 * JSON_VALUES_MAX, "more than 16384 values");
}

static void test_an_escaped_key_is_no_way_around(void **state)
{
	static const char text[] = "{\"a\":1,\"\\u0061\":2}";

	(void)state;
	refuse(text, strlen(text), "backslash");
}

static void test_what_follows_the_value_is_refused(void **state)
{
	(void)state;
	refuse("{} x", 4, "not valid JSON");
	refuse("{}{}", 4, "not valid JSON");
	refuse("{}\0", 3, "");
	refuse("", 0, "not valid JSON");
	refuse("{\"a\":", 5, "not valid JSON");
	refuse("   ", 3, "not valid JSON");
}

static void test_lenient_forms_are_refused(void **state)
{
	static const char *const bad[] = {"{'a':1}", "{\"a\":1,}", "[1,]", "{a:1}", "NaN",
		"Infinity", "/* c */ {}", "\"\t\"", "TRUE", "{\"a\" 1}"};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		refuse(bad[i], strlen(bad[i]), "not valid JSON");
	}
}

static void test_numbers_are_those_of_json(void **state)
{
	static const char *const good[] = {
		"0", "-0", "10", "-1.50", "0.5", "1e5", "1E+05", "[1,-2]", "{\"a\":1.0e-1}"};
	static const char *const bad[] = {"01", "00", "-01", "-", "+1", "1.", "-1.e5", ".5", "-.5",
		"01.5", "1e", "1e+", "1.5.5", "1-1", "--1", "[1.]", "[1 2]", "{\"a\":-01}", "e5",
		"-Infinity", "1true"};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		struct err err;
		_cleanup_json_ json_object *obj = json_parse(good[i], strlen(good[i]), &err);

		if (!obj) {
			fail_msg("refused: %s", good[i]);
		}
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		refuse(bad[i], strlen(bad[i]), "not valid JSON");
	}
}

static void test_bad_utf8_is_refused(void **state)
{
	static const char *const bad[] = {
		"\"\xff\"", "\"\xc0\x80\"", "\"\xed\xa0\x80\"", "\"\xc3\""};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		refuse(bad[i], strlen(bad[i]), "UTF-8");
	}
}

static char *nested(size_t depth)
{
	char *text = xcalloc(1, 2 * depth + 1);

	memset(text, '[', depth);
	memset(text + depth, ']', depth);
	return text;
}

static void test_half_a_surrogate_pair_is_refused(void **state)
{
	static const char *const bad[] = {"[\"\\ud800\"]", "[\"\\udc00\"]", "[\"\\uD83Dx\"]",
		"[\"\\ud83d\\u0041\"]", "[\"\\ud83d\\ud83d\\ude00\"]", "[\"\\ude00\\ud83d\"]"};
	static const char *const good[] = {
		"[\"\\ud83d\\ude00\\uD83D\\uDE00\"]", "[\"\\\\ud800\"]", "[\"\\ud7ff\\ue000\"]"};
	struct err err;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		refuse(bad[i], strlen(bad[i]), "surrogate");
	}
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		_cleanup_json_ json_object *obj = json_parse(good[i], strlen(good[i]), &err);

		assert_non_null(obj);
	}
}

static void test_what_is_wrong_is_placed_in_its_field(void **state)
{
	static const struct {
		const char *text;
		const char *says;
	} bad[] = {
		{"{\"a\":1,\"b\" : \"\xff\"}", "UTF-8 at byte 14, in \"b\""},
		{"{\"a\":\"\\\"}\\\\\",\"b\":[{\"c\":\"\x01\"}]}", ", in \"b\""},
		{"{\"a\":{\"k\":1,\"k\":2}}", "\"k\" twice, in \"a\""},
		{"{\"a\":tru}", ", in \"a\""},
		{"{\"a\":\"\\x\"}", ", in \"a\""},
	};
	static const char *const none[] = {"{\"a\":1,\"a\":2}", "[\"\xff\"]", "{\"\xff\":1}",
		"\xff", "{\"a\":1}}", "{\"a\":1}x"};
	struct err err;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		refuse(bad[i].text, strlen(bad[i].text), bad[i].says);
	}
	for (size_t i = 0; i < ARRAY_SIZE(none); i++) {
		assert_null(json_parse(none[i], strlen(none[i]), &err));
		assert_null(strstr(err.msg, ", in"));
	}
}

static void test_depth_is_bounded(void **state)
{
	_cleanup_free_ char *fits = nested(JSON_DEPTH_MAX);
	_cleanup_free_ char *deep = nested(JSON_DEPTH_MAX + 1);
	struct err err;

	(void)state;
	_cleanup_json_ json_object *obj = json_parse(fits, strlen(fits), &err);
	assert_non_null(obj);
	refuse(deep, strlen(deep), "nested more than 16");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_values_of_every_kind_are_read),
		cmocka_unit_test(test_equal_keys_are_refused_by_name),
		cmocka_unit_test(test_values_are_counted),
		cmocka_unit_test(test_an_escaped_key_is_no_way_around),
		cmocka_unit_test(test_what_follows_the_value_is_refused),
		cmocka_unit_test(test_lenient_forms_are_refused),
		cmocka_unit_test(test_numbers_are_those_of_json),
		cmocka_unit_test(test_bad_utf8_is_refused),
		cmocka_unit_test(test_half_a_surrogate_pair_is_refused),
		cmocka_unit_test(test_what_is_wrong_is_placed_in_its_field),
		cmocka_unit_test(test_depth_is_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
