#include "tests/lib/cm.h"

#include <stdlib.h>

#include "agent/clock_policy.h"

#define NOW_US INT64_C(1800000000000000)

/* A look that took @took_us at a clock that is @ahead_us ahead and was read when @part per cent of
 * that were over. */
static struct clock_look look_at(int64_t ahead_us, uint64_t took_us, unsigned part)
{
	int64_t since_us = (int64_t)took_us * (100 - part) / 100;

	return (struct clock_look){
		.guest_us = NOW_US - since_us + ahead_us, .wall_us = NOW_US, .took_us = took_us};
}

static struct clock_advice judge(int64_t ahead_us, uint64_t took_us, unsigned part)
{
	struct clock_policy policy = {0};
	struct clock_look look = look_at(ahead_us, took_us, part);

	return clock_policy_judge(&policy, &look);
}

static void test_a_clock_that_is_right_is_left_alone(void **state)
{
	(void)state;
	for (unsigned part = 0; part <= 100; part += 25) {
		for (uint64_t took = 100; took <= 10000000; took *= 10) {
			assert_int_equal(judge(0, took, part).shift_us, 0);
			assert_int_equal(judge(CLOCK_FINE_US - 1, took, part / 2).shift_us, 0);
		}
	}
	assert_int_equal(judge(0, 400, 50).again_ms, CLOCK_LOOK_MS);
}

static void test_a_clock_that_is_wrong_is_moved_by_what_it_is_off(void **state)
{
	const int64_t errors[] = {-3600000000, -70000, -20000, 20000, 70000, 3600000000};

	(void)state;
	for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
		for (unsigned part = 0; part <= 100; part += 50) {
			struct clock_advice advice = judge(errors[i], 400, part);

			/* To half the time that the look took. */
			assert_in_range(advice.shift_us + errors[i] + 200, 0, 400);
		}
	}
}

/* However long a look takes: what it advises makes no clock worse. */
static void test_no_look_makes_a_clock_worse(void **state)
{
	(void)state;
	for (int64_t error = -500000; error <= 500000; error += 12345) {
		for (uint64_t took = 100; took <= 1000000; took *= 3) {
			for (unsigned part = 0; part <= 100; part += 10) {
				int64_t left = error + judge(error, took, part).shift_us;

				assert_true(llabs(left) <= llabs(error));
			}
		}
	}
}

static void test_after_a_jump_one_looks_again_soon(void **state)
{
	(void)state;
	assert_int_equal(judge(60000, 400, 50).again_ms, CLOCK_SOON_MS);
	assert_int_equal(judge(20000, 400, 50).again_ms, CLOCK_LOOK_MS);
}

static void test_vague_looks_are_repeated_with_growing_pauses(void **state)
{
	struct clock_policy policy = {0};
	struct clock_look vague = look_at(0, CLOCK_VAGUE_US + 1, 50);
	struct clock_look good = look_at(0, 400, 50);
	uint32_t waited = 0;

	(void)state;
	for (unsigned i = 0; i < 100; i++) {
		uint32_t wait = clock_policy_judge(&policy, &vague).again_ms;

		assert_true(wait >= waited && wait <= CLOCK_LOOK_MS);
		waited = wait;
	}
	assert_int_equal(waited, CLOCK_LOOK_MS);
	assert_int_equal(clock_policy_judge(&policy, &good).again_ms, CLOCK_LOOK_MS);
	assert_int_equal(clock_policy_judge(&policy, &vague).again_ms, CLOCK_SOON_MS);
}

static void test_nonsense_is_no_trouble(void **state)
{
	struct clock_policy policy = {0};
	struct clock_look zero = {.guest_us = 0, .wall_us = NOW_US, .took_us = 1};
	struct clock_look far = {
		.guest_us = INT64_C(18446744073709551), .wall_us = NOW_US, .took_us = 1};

	(void)state;
	assert_int_equal(clock_policy_judge(&policy, &zero).shift_us, NOW_US);
	assert_true(clock_policy_judge(&policy, &far).shift_us < 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_clock_that_is_right_is_left_alone),
		cmocka_unit_test(test_a_clock_that_is_wrong_is_moved_by_what_it_is_off),
		cmocka_unit_test(test_no_look_makes_a_clock_worse),
		cmocka_unit_test(test_after_a_jump_one_looks_again_soon),
		cmocka_unit_test(test_vague_looks_are_repeated_with_growing_pauses),
		cmocka_unit_test(test_nonsense_is_no_trouble),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
