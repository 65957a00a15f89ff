#include "tests/lib/cm.h"

#include <stdio.h>

#include "auth/token.h"

static void test_minted_tokens_are_valid_and_differ(void **state)
{
	char a[TOKEN_BYTES];
	char b[TOKEN_BYTES];

	(void)state;
	token_mint(a);
	token_mint(b);
	assert_true(token_is_valid(a));
	assert_true(token_is_valid(b));
	assert_string_not_equal(a, b);
	assert_int_equal(strlen(a), 44);
	assert_int_equal(strncmp(a, "pdk_", 4), 0);
}

static void test_every_letter_turns_up(void **state)
{
	char seen[256] = {0};
	unsigned letters = 0;

	(void)state;
	for (int i = 0; i < 200; i++) {
		char token[TOKEN_BYTES];

		token_mint(token);
		for (size_t k = 4; k < TOKEN_LENGTH; k++) {
			seen[(unsigned char)token[k]] = 1;
		}
	}
	for (size_t i = 0; i < sizeof(seen); i++) {
		letters += (unsigned)seen[i];
	}
	assert_int_equal(letters, 32);
}

static void test_other_texts_are_no_tokens(void **state)
{
	static const char *const wrong[] = {
		"",
		"pdk_",
		"pdk_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",   /* 39 */
		"pdk_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", /* 41 */
		"pdk_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa1",
		"pdk_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaA",
		"pdk_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa ",
		"PDK_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
		"pdkaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
	};

	(void)state;
	assert_true(token_is_valid("pdk_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa7"));
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
		if (token_is_valid(wrong[i])) {
			fail_msg("\"%s\" passes", wrong[i]);
		}
	}
}

static void test_hash_is_sha256_of_the_whole_text(void **state)
{
	uint8_t hash[TOKEN_HASH_BYTES];
	char hex[2 * TOKEN_HASH_BYTES + 1];

	(void)state;
	token_hash("pdk_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", hash);
	for (size_t i = 0; i < sizeof(hash); i++) {
		snprintf(hex + 2 * i, 3, "%02x", hash[i]);
	}
	assert_string_equal(
		hex, "e1d5a3bedf1aac00add06a7305ef606c1fcec908704e380d5582f36a31261bae");
}

static void test_hint_is_the_end_of_the_text(void **state)
{
	char hint[TOKEN_HINT_BYTES];

	(void)state;
	token_hint("pdk_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaabcd2", hint);
	assert_string_equal(hint, "bcd2");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_minted_tokens_are_valid_and_differ),
		cmocka_unit_test(test_every_letter_turns_up),
		cmocka_unit_test(test_other_texts_are_no_tokens),
		cmocka_unit_test(test_hash_is_sha256_of_the_whole_text),
		cmocka_unit_test(test_hint_is_the_end_of_the_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
