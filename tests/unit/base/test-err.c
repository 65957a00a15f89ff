#include "tests/lib/cm.h"

#include <errno.h>

static int open_image(struct err *err)
{
	return err_sys(err, ENOENT, "open %s", "image");
}

static void test_set_keeps_kind_origin_and_message(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(err_set(&err, ERR_QUOTA, "at most %d", 5), -1);
	assert_int_equal(err.kind, ERR_QUOTA);
	assert_string_equal(err.msg, "at most 5");
	assert_non_null(strstr(err.file, "test-err.c"));
	assert_int_equal(err.sys, 0);
}

static void test_sys_names_the_system_error(void **state)
{
	struct err err;

	(void)state;
	assert_err(open_image(&err), &err, ERR_INTERNAL);
	assert_int_equal(err.sys, ENOENT);
	assert_string_equal(err.msg, "open image: No such file or directory");
}

static void test_wrap_puts_context_in_front(void **state)
{
	struct err err;

	(void)state;
	open_image(&err);
	assert_int_equal(err_wrap(&err, "create %s", "sb_1"), -1);
	assert_int_equal(err.kind, ERR_INTERNAL);
	assert_string_equal(err.msg, "create sb_1: open image: No such file or directory");
}

static void test_overlong_messages_are_cut_and_terminated(void **state)
{
	char text[1000];
	struct err err;

	(void)state;
	memset(text, 'x', sizeof text - 1);
	text[sizeof text - 1] = '\0';
	err_set(&err, ERR_INVALID, "%s", text);
	assert_int_equal(strlen(err.msg), sizeof err.msg - 1);
	err_wrap(&err, "%s", text);
	assert_int_equal(strlen(err.msg), sizeof err.msg - 1);
}

static void test_every_kind_has_a_name_of_its_own(void **state)
{
	(void)state;
	for (int i = 0; i < ERR_KIND_MAX; i++) {
		assert_non_null(err_kind_name((enum err_kind)i));
		for (int k = 0; k < i; k++) {
			assert_string_not_equal(
				err_kind_name((enum err_kind)i), err_kind_name((enum err_kind)k));
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_set_keeps_kind_origin_and_message),
		cmocka_unit_test(test_sys_names_the_system_error),
		cmocka_unit_test(test_wrap_puts_context_in_front),
		cmocka_unit_test(test_overlong_messages_are_cut_and_terminated),
		cmocka_unit_test(test_every_kind_has_a_name_of_its_own),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
