#include "tests/lib/cm.h"

#include <stdlib.h>

#include "base/xalloc.h"
#include "sandbox/env.h"

static void test_nothing_packs_to_nothing(void **state)
{
	char *none[] = {NULL};
	size_t len = 7;

	(void)state;
	assert_null(env_pack(NULL, &len));
	assert_int_equal(len, 0);
	assert_null(env_pack(none, &len));
	assert_int_equal(len, 0);
	char **all = env_merge(NULL, NULL, 0);

	assert_int_equal(strv_length(all), 0);
	strv_free(all);
}

static void test_own_variables_win_over_the_operators(void **state)
{
	char *operators[] = {
		(char *)"HTTP_PROXY=http://mirror", (char *)"A=1", (char *)"AB=keep", NULL};
	char *own[] = {(char *)"A=2", (char *)"EMPTY=", NULL};
	size_t len;
	char *packed = env_pack(own, &len);

	(void)state;
	assert_int_equal(len, strlen("A=2") + 1 + strlen("EMPTY=") + 1);
	char **all = env_merge(operators, packed, len);

	assert_int_equal(strv_length(all), 4);
	assert_string_equal(all[0], "HTTP_PROXY=http://mirror");
	assert_string_equal(all[1], "AB=keep");
	assert_string_equal(all[2], "A=2");
	assert_string_equal(all[3], "EMPTY=");
	strv_free(all);
	free(packed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nothing_packs_to_nothing),
		cmocka_unit_test(test_own_variables_win_over_the_operators),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
