#include "tests/lib/cm.h"

#include "base/parse.h"

static void test_integers_within_their_range(void **state)
{
	int64_t value = -1;
	struct err err;

	(void)state;
	assert_ok(parse_int("1", 1, 1440, &value, &err), &err);
	assert_int_equal(value, 1);
	assert_ok(parse_int("1440", 1, 1440, &value, &err), &err);
	assert_int_equal(value, 1440);
	assert_ok(parse_int("-5", -5, 5, &value, &err), &err);
	assert_int_equal(value, -5);
}

static void test_integers_outside_or_malformed_are_refused(void **state)
{
	static const char *const bad[] = {"", "0", "1441", "-1", "+1", " 1", "1 ", "1x", "0x1",
		"1.0", "99999999999999999999999"};
	int64_t value = 77;
	struct err err;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_err(parse_int(bad[i], 1, 1440, &value, &err), &err, ERR_INVALID);
		assert_err_says(&err, "from 1 to 1440");
	}
	assert_int_equal(value, 77);
}

static void test_booleans(void **state)
{
	bool value = false;
	struct err err;

	(void)state;
	assert_ok(parse_bool("yes", &value, &err), &err);
	assert_true(value);
	assert_ok(parse_bool("0", &value, &err), &err);
	assert_false(value);
	assert_err(parse_bool("maybe", &value, &err), &err, ERR_INVALID);
	assert_err(parse_bool("", &value, &err), &err, ERR_INVALID);
}

static void test_utf8(void **state)
{
	static const struct {
		const char *text;
		bool is_valid;
	} cases[] = {{"", true}, {"abc", true}, {"\xc3\xa4", true}, {"\xe2\x82\xac", true},
		{"\xf0\x9f\x90\xa7", true}, {"\x80", false}, {"\xc3", false}, {"\xc0\xaf", false},
		{"\xe0\x80\xaf", false}, {"\xed\xa0\x80", false}, {"\xf4\x90\x80\x80", false},
		{"\xf8\x88\x80\x80\x80", false}, {"a\xff", false}};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_int_equal(
			utf8_is_valid(cases[i].text, strlen(cases[i].text)), cases[i].is_valid);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_integers_within_their_range),
		cmocka_unit_test(test_integers_outside_or_malformed_are_refused),
		cmocka_unit_test(test_booleans),
		cmocka_unit_test(test_utf8),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
