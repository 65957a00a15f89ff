#include "tests/lib/cm.h"

#include "sandbox/reconcile_table.h"

/* Each cell once more, in words: who changes the table has to change his mind twice. */
static const struct {
	enum sandbox_state row;
	enum reconcile_domain domain;
	enum reconcile_action action;
} cells[] = {
	/* A creation that nobody works on any more is taken back, whatever it had got to. */
	{SANDBOX_PROVISIONING, RECONCILE_ABSENT, RECONCILE_UNDO},
	{SANDBOX_PROVISIONING, RECONCILE_RUNNING, RECONCILE_UNDO},
	{SANDBOX_PROVISIONING, RECONCILE_PAUSED, RECONCILE_UNDO},
	{SANDBOX_PROVISIONING, RECONCILE_SHUTOFF, RECONCILE_UNDO},
	{SANDBOX_PROVISIONING, RECONCILE_UNSETTLED, RECONCILE_WAIT},

	{SANDBOX_RUNNING, RECONCILE_ABSENT, RECONCILE_ENDED},
	{SANDBOX_RUNNING, RECONCILE_RUNNING, RECONCILE_ATTACH},
	{SANDBOX_RUNNING, RECONCILE_PAUSED, RECONCILE_RESUME},
	{SANDBOX_RUNNING, RECONCILE_SHUTOFF, RECONCILE_ENDED},
	{SANDBOX_RUNNING, RECONCILE_UNSETTLED, RECONCILE_WAIT},

	/* Stopped means that there is no domain. */
	{SANDBOX_STOPPED, RECONCILE_ABSENT, RECONCILE_ENDED},
	{SANDBOX_STOPPED, RECONCILE_RUNNING, RECONCILE_REAP},
	{SANDBOX_STOPPED, RECONCILE_PAUSED, RECONCILE_REAP},
	{SANDBOX_STOPPED, RECONCILE_SHUTOFF, RECONCILE_REAP},
	{SANDBOX_STOPPED, RECONCILE_UNSETTLED, RECONCILE_WAIT},

	{SANDBOX_DELETING, RECONCILE_ABSENT, RECONCILE_FINISH},
	{SANDBOX_DELETING, RECONCILE_RUNNING, RECONCILE_FINISH},
	{SANDBOX_DELETING, RECONCILE_PAUSED, RECONCILE_FINISH},
	{SANDBOX_DELETING, RECONCILE_SHUTOFF, RECONCILE_FINISH},
	{SANDBOX_DELETING, RECONCILE_UNSETTLED, RECONCILE_WAIT},

	{SANDBOX_DELETED, RECONCILE_ABSENT, RECONCILE_KEEP},
	{SANDBOX_DELETED, RECONCILE_RUNNING, RECONCILE_REAP},
	{SANDBOX_DELETED, RECONCILE_PAUSED, RECONCILE_REAP},
	{SANDBOX_DELETED, RECONCILE_SHUTOFF, RECONCILE_REAP},
	{SANDBOX_DELETED, RECONCILE_UNSETTLED, RECONCILE_WAIT},

	{SANDBOX_FAILED, RECONCILE_ABSENT, RECONCILE_KEEP},
	{SANDBOX_FAILED, RECONCILE_RUNNING, RECONCILE_REAP},
	{SANDBOX_FAILED, RECONCILE_PAUSED, RECONCILE_REAP},
	{SANDBOX_FAILED, RECONCILE_SHUTOFF, RECONCILE_REAP},
	{SANDBOX_FAILED, RECONCILE_UNSETTLED, RECONCILE_WAIT},
};
_Static_assert(ARRAY_SIZE(cells) == (size_t)SANDBOX_STATE_MAX * RECONCILE_DOMAIN_MAX,
	"every cell is here");

static void test_each_cell(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cells); i++) {
		if (reconcile_decide(cells[i].row, cells[i].domain) != cells[i].action) {
			fail_msg("%s, domain %d", sandbox_state_name(cells[i].row),
				(int)cells[i].domain);
		}
	}
}

static void test_nothing_that_cannot_be_told_is_touched(void **state)
{
	(void)state;
	for (unsigned row = 0; row < SANDBOX_STATE_MAX; row++) {
		assert_int_equal(reconcile_decide(row, RECONCILE_UNSETTLED), RECONCILE_WAIT);
	}
}

static void test_facts_become_columns(void **state)
{
	struct hv_facts facts = {.state = HV_DOMAIN_RUNNING};

	(void)state;
	assert_int_equal(reconcile_domain_of(NULL), RECONCILE_ABSENT);
	assert_int_equal(reconcile_domain_of(&facts), RECONCILE_RUNNING);
	facts.state = HV_DOMAIN_PAUSED;
	assert_int_equal(reconcile_domain_of(&facts), RECONCILE_PAUSED);
	facts.state = HV_DOMAIN_SHUTOFF;
	assert_int_equal(reconcile_domain_of(&facts), RECONCILE_SHUTOFF);
	facts.state = HV_DOMAIN_UNSETTLED;
	assert_int_equal(reconcile_domain_of(&facts), RECONCILE_UNSETTLED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_cell),
		cmocka_unit_test(test_nothing_that_cannot_be_told_is_touched),
		cmocka_unit_test(test_facts_become_columns),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
