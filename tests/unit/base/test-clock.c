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

static void test_parse_reads_what_format_writes(void **state)
{
	static const int64_t times[] = {0, 1769860800250, 4102444799999};
	char text[CLOCK_TEXT_BYTES];
	struct err err;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(times); i++) {
		int64_t back = -1;

		assert_ok(clock_parse(clock_format(times[i], text), &back, &err), &err);
		assert_int_equal(back, times[i]);
	}
}

static void test_parse_honours_offsets_and_fractions(void **state)
{
	int64_t ms = 0;
	struct err err;

	(void)state;
	assert_ok(clock_parse("2026-01-31T14:00:00+02:00", &ms, &err), &err);
	assert_int_equal(ms, 1769860800000);
	assert_ok(clock_parse("2026-01-31T12:00:00.123456789Z", &ms, &err), &err);
	assert_int_equal(ms, 1769860800123);
	assert_ok(clock_parse("2026-01-31T12:00:00.5Z", &ms, &err), &err);
	assert_int_equal(ms, 1769860800500);
}

static void test_parse_refuses_other_forms(void **state)
{
	static const char *const bad[] = {"", "now", "2026-01-31", "2026-01-31T12:00:00",
		"2026-01-31T12:00:00+2:00", "2026-01-31T12:00:00.Z", "2026-01-31T12:00:00Zx",
		"26-01-31T12:00:00Z", "2026-13-31T12:00:00Z", "2026-01-31T12:00:00+24:00"};
	int64_t ms = 7;
	struct err err;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_err(clock_parse(bad[i], &ms, &err), &err, ERR_INVALID);
	}
	assert_int_equal(ms, 7);
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
		cmocka_unit_test(test_parse_reads_what_format_writes),
		cmocka_unit_test(test_parse_honours_offsets_and_fractions),
		cmocka_unit_test(test_parse_refuses_other_forms),
		cmocka_unit_test(test_advance_moves_the_clocks_apart),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
