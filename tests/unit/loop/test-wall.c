#include "tests/lib/cm.h"

#include <errno.h>
#include <sys/timex.h>

#include "loop/wall.h"

static void count(void *arg)
{
	(*(unsigned *)arg)++;
}

/* Moves the wall clock by 1 ns. */
static int set_clock(void)
{
	struct timex by_little = {.modes = ADJ_SETOFFSET | ADJ_NANO, .time.tv_usec = 1};

	return adjtimex(&by_little);
}

static void test_setting_the_clock_is_noticed_every_time(void **state)
{
	struct err err;
	struct loop *loop = loop_new(&err);
	unsigned times = 0;

	(void)state;
	assert_non_null(loop);
	struct wall_watch *watch = wall_watch_new(loop, count, &times);

	for (unsigned i = 0; i < 5; i++) {
		loop_turn_for(loop, 1);
	}
	unsigned before = times; /* somebody else's may have come */

	bool may_set = set_clock() >= 0;

	assert_true(may_set || errno == EPERM);
	for (unsigned i = 0; may_set && i < 2; i++) {
		while (times == before) {
			loop_turn_for(loop, 1000);
		}
		before = times;
		assert_true(set_clock() >= 0);
	}
	wall_watch_free(watch);
	loop_free(loop);
	if (!may_set) {
		skip();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_setting_the_clock_is_noticed_every_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
