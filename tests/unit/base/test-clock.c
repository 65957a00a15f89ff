#include "tests/lib/cm.h"

#include "base/clock.h"

static void test_format_is_rfc3339_with_milliseconds(void **state)
{
	char text[CLOCK_TEXT_BYTES];

	(void)state;
	assert_string_equal(clock_format(0, text), "1970-01-01T00:00:00.000Z");
	assert_string_equal(clock_format(1769860800250, text), "2026-01-31T12:00:00.250Z");
	assert_string_equal(clock_format(-1, text), "1969-12-31T23:59:59.999Z");
}

static void test_advance_moves_the_clocks_apart(void **state)
{
	uint64_t monotonic = clock_monotonic_ms();
	int64_t wall = clock_wall_ms();

	(void)state;
	clock_test_advance(1000000, -5000000);
	assert_true(clock_monotonic_ms() - monotonic >= 1000000);
	assert_true(clock_wall_ms() < wall - 4000000);
	clock_test_advance(-1000000, 5000000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_format_is_rfc3339_with_milliseconds),
		cmocka_unit_test(test_advance_moves_the_clocks_apart),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
