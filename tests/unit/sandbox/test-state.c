#include "tests/lib/cm.h"

#include "sandbox/sandbox_state.h"

static void test_names_are_unique_and_parse_back(void **state)
{
	(void)state;
	for (unsigned i = 0; i < SANDBOX_STATE_MAX; i++) {
		enum sandbox_state parsed = SANDBOX_STATE_MAX;

		assert_true(sandbox_state_parse(sandbox_state_name(i), &parsed));
		assert_int_equal(parsed, i);
	}
	enum sandbox_state parsed;

	assert_false(sandbox_state_parse("Running", &parsed));
	assert_false(sandbox_state_parse("", &parsed));
}

static void test_only_the_documented_moves_are_legal(void **state)
{
	static const struct {
		enum sandbox_state from, to;
	} legal[] = {
		{SANDBOX_PROVISIONING, SANDBOX_RUNNING},
		{SANDBOX_PROVISIONING, SANDBOX_STOPPED},
		{SANDBOX_PROVISIONING, SANDBOX_DELETING},
		{SANDBOX_PROVISIONING, SANDBOX_FAILED},
		{SANDBOX_RUNNING, SANDBOX_PROVISIONING},
		{SANDBOX_RUNNING, SANDBOX_STOPPED},
		{SANDBOX_RUNNING, SANDBOX_DELETING},
		{SANDBOX_STOPPED, SANDBOX_PROVISIONING},
		{SANDBOX_STOPPED, SANDBOX_DELETING},
		{SANDBOX_DELETING, SANDBOX_DELETED},
	};

	(void)state;
	for (unsigned from = 0; from < SANDBOX_STATE_MAX; from++) {
		for (unsigned to = 0; to < SANDBOX_STATE_MAX; to++) {
			bool expected = false;

			for (size_t i = 0; i < ARRAY_SIZE(legal); i++) {
				expected |= legal[i].from == from && legal[i].to == to;
			}
			assert_int_equal(sandbox_state_can(from, to), expected);
		}
	}
}

static void test_delete_is_possible_from_every_state_that_holds_something(void **state)
{
	(void)state;
	for (unsigned from = 0; from < SANDBOX_STATE_MAX; from++) {
		bool is_over = sandbox_state_is_final(from);

		assert_int_equal(is_over, from == SANDBOX_DELETED || from == SANDBOX_FAILED);
		assert_true(is_over || from == SANDBOX_DELETING ||
			    sandbox_state_can(from, SANDBOX_DELETING));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names_are_unique_and_parse_back),
		cmocka_unit_test(test_only_the_documented_moves_are_legal),
		cmocka_unit_test(test_delete_is_possible_from_every_state_that_holds_something),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
