#include "tests/lib/cm.h"

#include "base/id.h"
#include "base/rand.h"

static void test_ids_are_valid_and_differ(void **state)
{
	char a[ID_BYTES];
	char b[ID_BYTES];

	(void)state;
	id_make(a, ID_SANDBOX);
	id_make(b, ID_SANDBOX);
	assert_true(id_is_valid(a, ID_SANDBOX));
	assert_false(id_is_valid(a, ID_EXEC));
	assert_string_not_equal(a, b);
}

static void test_ids_of_another_form_are_refused(void **state)
{
	static const char *const bad[] = {"", "sb_", "sb_0123456789abcdef012",
		"sb_0123456789abcdef01234", "sb_0123456789ABCDEF0123", "sb_0123456789abcdef012/",
		"xb_0123456789abcdef0123"};

	(void)state;
	assert_true(id_is_valid("sb_0123456789abcdef0123", ID_SANDBOX));
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_false(id_is_valid(bad[i], ID_SANDBOX));
	}
}

static void test_names_follow_their_rule(void **state)
{
	char name[66];

	(void)state;
	memset(name, 'a', sizeof name);
	name[63] = '\0';
	assert_true(name_is_valid(name));
	name[63] = 'a';
	name[64] = '\0';
	assert_false(name_is_valid(name));
	assert_true(name_is_valid("a"));
	assert_true(name_is_valid("brave-otter-0f3a"));
	assert_false(name_is_valid(""));
	assert_false(name_is_valid("-a"));
	assert_false(name_is_valid("a-"));
	assert_false(name_is_valid("A"));
	assert_false(name_is_valid("a_b"));
	assert_false(name_is_valid("a.b"));
	assert_false(name_is_valid("\xc3\xa4"));
}

static void test_constant_time_compare_sees_every_byte(void **state)
{
	unsigned char a[32];
	unsigned char b[32];

	(void)state;
	rand_bytes(a, sizeof a);
	memcpy(b, a, sizeof b);
	assert_true(equal_constant_time(a, b, sizeof a));
	for (size_t i = 0; i < sizeof a; i++) {
		b[i] ^= 0x80;
		assert_false(equal_constant_time(a, b, sizeof a));
		b[i] ^= 0x80;
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ids_are_valid_and_differ),
		cmocka_unit_test(test_ids_of_another_form_are_refused),
		cmocka_unit_test(test_names_follow_their_rule),
		cmocka_unit_test(test_constant_time_compare_sees_every_byte),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
