#include "tests/lib/cm.h"

#include <sys/resource.h>

#include "base/macros.h"
#include "daemon/files_limit.h"

static struct rlimit before;

static int set_up(void **state)
{
	(void)state;
	return getrlimit(RLIMIT_NOFILE, &before);
}

static int tear_down(void **state)
{
	(void)state;
	return setrlimit(RLIMIT_NOFILE, &before);
}

static rlim_t soft_limit(void)
{
	struct rlimit now;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &now), 0);
	return now.rlim_cur;
}

static void set_soft(rlim_t soft)
{
	const struct rlimit wanted = {.rlim_cur = soft, .rlim_max = before.rlim_max};

	assert_int_equal(setrlimit(RLIMIT_NOFILE, &wanted), 0);
}

static void test_a_low_soft_limit_is_raised_as_far_as_the_hard_one_allows(void **state)
{
	(void)state;
	set_soft(256);
	assert_true(before.rlim_max > 256);
	rlim_t expected = MIN(before.rlim_max, (rlim_t)FILES_LIMIT);

	assert_int_equal(files_limit_raise(), expected);
	assert_int_equal(soft_limit(), expected);
}

static void test_a_higher_limit_is_left_alone(void **state)
{
	(void)state;
	if (before.rlim_max <= FILES_LIMIT) {
		return; /* raised to the hard limit: the test above */
	}
	set_soft(FILES_LIMIT + 1);
	assert_int_equal(files_limit_raise(), FILES_LIMIT + 1);
	assert_int_equal(soft_limit(), FILES_LIMIT + 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
		T(test_a_low_soft_limit_is_raised_as_far_as_the_hard_one_allows),
		T(test_a_higher_limit_is_left_alone),
#undef T
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
