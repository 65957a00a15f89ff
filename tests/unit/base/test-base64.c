#include "tests/lib/cm.h"

#include "base/base64.h"

static const struct {
	const char *plain;
	const char *text;
} pairs[] = {
	{"", ""},
	{"f", "Zg=="},
	{"fo", "Zm8="},
	{"foo", "Zm9v"},
	{"foobar", "Zm9vYmFy"},
	{"\xff\xfe\xfd", "//79"},
	{"\xfb\xff", "+/8="},
};

static void test_base64_goes_both_ways(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(pairs); i++) {
		size_t len = strlen(pairs[i].plain);
		size_t text_len = strlen(pairs[i].text);
		char text[32] = "";
		char plain[32] = "";
		struct err err;

		assert_int_equal(BASE64_ENCODED_BYTES(len), text_len);
		base64_encode(text, pairs[i].plain, len);
		assert_string_equal(text, pairs[i].text);
		assert_true(base64_is_valid(text, text_len));
		assert_int_equal(base64_decoded_bytes(text, text_len), len);
		assert_ok(base64_decode(plain, text, text_len, &err), &err);
		assert_memory_equal(plain, pairs[i].plain, len);
	}
}

static void test_base64_refuses_what_it_would_not_write(void **state)
{
	static const char *const wrong[] = {"Z", "Zg", "Zg=", "Zg===", "Zh==", "Zm9=", "Zm9v\n",
		" Zm9", "Zm-_", "====", "=m9v", "Z=9v", "Zg==Zg=="};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		char plain[32];
		struct err err;

		assert_false(base64_is_valid(wrong[i], strlen(wrong[i])));
		assert_err(
			base64_decode(plain, wrong[i], strlen(wrong[i]), &err), &err, ERR_INVALID);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_base64_goes_both_ways),
		cmocka_unit_test(test_base64_refuses_what_it_would_not_write),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
