#include "tests/lib/cm.h"

#include <stdlib.h>

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
		{"\xf8\x88\x80\x80\x80", false}, {"a\xff", false},
		/* Where eight bytes are looked at at a time. */
		{"12345678", true}, {"1234567\xc3\xa4", true},
		{"12345678\xc3\xa4"
		 "12345678",
			true},
		{"12345678\xc3", false},
		{"1234567\xff"
		 "12345678",
			false}};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_int_equal(
			utf8_is_valid(cases[i].text, strlen(cases[i].text)), cases[i].is_valid);
	}
}

/* Proper beginnings of characters, found by writing all characters down. */
struct beginnings {
	bool one[1 << 8];
	bool two[1 << 16];
	bool three[1 << 24];
};

static void note_beginnings(struct beginnings *all, uint32_t code)
{
	unsigned b[4];
	size_t n = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;

	for (size_t i = n - 1; i > 0; i--, code >>= 6) {
		b[i] = 0x80 | (code & 0x3f);
	}
	b[0] = (n == 2 ? 0xc0u : n == 3 ? 0xe0u : 0xf0u) | code;
	all->one[b[0]] = true;
	if (n > 2) {
		all->two[b[0] << 8 | b[1]] = true;
	}
	if (n > 3) {
		all->three[b[0] << 16 | b[1] << 8 | b[2]] = true;
	}
}

static void test_a_split_end_is_the_beginning_of_a_character(void **state)
{
	struct beginnings *all = calloc(1, sizeof *all);

	(void)state;
	for (uint32_t code = 0x80; code <= 0x10ffff; code++) {
		if (code < 0xd800 || code > 0xdfff) {
			note_beginnings(all, code);
		}
	}
	/* All texts of three bytes whose last one isn't ASCII. */
	for (unsigned bytes = 0; bytes < 1 << 24; bytes++) {
		const char text[] = {(char)(bytes >> 16), (char)(bytes >> 8), (char)bytes};
		size_t expected = all->one[bytes & 0xff]     ? 1
				  : all->two[bytes & 0xffff] ? 2
				  : all->three[bytes]        ? 3
							     : 0;

		if ((bytes & 0x80) && utf8_split_end(text, 3) != expected) {
			fail_msg("%06x: %zu, not %zu", bytes, utf8_split_end(text, 3), expected);
		}
	}
	assert_int_equal(utf8_split_end("", 0), 0);
	assert_int_equal(utf8_split_end("abc", 3), 0);
	assert_int_equal(utf8_split_end("\xf0", 1), 1);
	free(all);
}

static void test_a_split_start_is_the_end_of_a_character(void **state)
{
	(void)state;
	assert_int_equal(utf8_split_start("", 0), 0);
	assert_int_equal(utf8_split_start("a\x80", 2), 0);
	assert_int_equal(utf8_split_start("\x80", 1), 1);
	assert_int_equal(utf8_split_start("\x82\xac"
					  "a",
				 3),
		2);
	assert_int_equal(utf8_split_start("\x80\x80\x80\x80", 4), 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_integers_within_their_range),
		cmocka_unit_test(test_integers_outside_or_malformed_are_refused),
		cmocka_unit_test(test_booleans),
		cmocka_unit_test(test_utf8),
		cmocka_unit_test(test_a_split_end_is_the_beginning_of_a_character),
		cmocka_unit_test(test_a_split_start_is_the_end_of_a_character),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
