#include "tests/lib/cm.h"

#include "sandbox/reconcile_table.h"

/* Each cell once more: who changes the table has to change his mind twice. */
static const char letters[] = {
	[RECONCILE_KEEP] = 'k',
	[RECONCILE_WAIT] = 'w',
	[RECONCILE_ATTACH] = 'a',
	[RECONCILE_DISKLESS] = 'd',
	[RECONCILE_ENDED] = 'e',
	[RECONCILE_LOST] = 'l',
	[RECONCILE_UNDO] = 'u',
	[RECONCILE_REDO] = 'R',
	[RECONCILE_FINISH] = 'f',
	[RECONCILE_END] = 'x',
};

static const struct {
	enum reconcile_row row;
	const char *without_disk; /* absent, active, paused, shut off, unsettled */
	const char *with_disk;
} rows[RECONCILE_ROW_MAX] = {
	{RECONCILE_CREATING, "uuuuw", "uuuuw"},
	{RECONCILE_RESTARTING, "lddlw", "RRRRw"},
	{RECONCILE_RESETTING, "RRRRw", "RRRRw"},
	{RECONCILE_RUNNING, "lddlw", "eaaew"},
	{RECONCILE_STOPPED, "lxxlw", "kxxkw"},
	{RECONCILE_DELETING, "ffffw", "ffffw"},
};

static void test_each_cell(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		for (unsigned domain = 0; domain < RECONCILE_DOMAIN_MAX; domain++) {
			char without =
				letters[reconcile_decide(rows[i].row, domain, RECONCILE_NO_DISK)];
			char with = letters[reconcile_decide(rows[i].row, domain, RECONCILE_DISK)];

			if (without != rows[i].without_disk[domain] ||
				with != rows[i].with_disk[domain]) {
				fail_msg("row %d, domain %u", (int)rows[i].row, domain);
			}
		}
	}
}

static void test_facts_become_columns(void **state)
{
	struct hv_facts facts = {.state = HV_DOMAIN_RUNNING};

	(void)state;
	assert_int_equal(reconcile_domain_of(NULL), RECONCILE_ABSENT);
	assert_int_equal(reconcile_domain_of(&facts), RECONCILE_ACTIVE);
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
		cmocka_unit_test(test_facts_become_columns),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
