#include "tests/lib/cm.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "auth/quota.h"

static const struct quota_host no_host_limit = {0};
static const struct quota_amounts tiny = {
	.sandboxes = 1, .vcpus = 1, .memory_mb = 256, .disk_gb = 2};

/* ---- the account's limits ---- */

static void test_limit_of_sandboxes_is_reached_exactly(void **state)
{
	struct quota_amounts limits = QUOTA_DEFAULT_LIMITS;
	struct quota_charge charges[5] = {0};
	struct quota_charge one_more = {0};
	struct err err;

	(void)state;
	limits.sandboxes = 5;
	_cleanup_(quotas_free_p) struct quotas *quotas = quotas_new(&limits, &no_host_limit);

	for (size_t i = 0; i < ARRAY_SIZE(charges); i++) {
		assert_ok(quota_charge(quotas, "ac_a", &tiny, &charges[i], &err), &err);
	}
	for (int i = 0; i < 15; i++) {
		assert_err(quota_charge(quotas, "ac_a", &tiny, &one_more, &err), &err, ERR_QUOTA);
	}
	assert_string_equal(err.msg,
		"the account may have at most 5 sandboxes at a time (limit sandboxes); "
		"destroy a sandbox or wait until one expires");
	assert_null(one_more.quotas);

	/* Another account has limits of its own, and a refund makes room for exactly one. */
	assert_ok(quota_charge(quotas, "ac_b", &tiny, &one_more, &err), &err);
	quota_refund(&one_more);
	quota_refund(&charges[2]);
	assert_ok(quota_charge(quotas, "ac_a", &tiny, &charges[2], &err), &err);
	assert_err(quota_charge(quotas, "ac_a", &tiny, &one_more, &err), &err, ERR_QUOTA);
	for (size_t i = 0; i < ARRAY_SIZE(charges); i++) {
		quota_refund(&charges[i]);
	}
}

static void test_each_amount_has_its_limit_and_names_it(void **state)
{
	static const struct quota_amounts limits = {
		.sandboxes = 10, .vcpus = 4, .memory_mb = 1000, .disk_gb = 8};
	static const struct {
		struct quota_amounts at_limit;
		struct quota_amounts beyond;
		const char *says;
	} cases[] = {
		{{1, 4, 1, 1}, {1, 5, 1, 1}, "4 vCPUs at a time (limit vcpus)"},
		{{1, 1, 1000, 1}, {1, 1, 1001, 1},
			"1000 MiB of memory at a time (limit memory_mb)"},
		{{1, 1, 1, 8}, {1, 1, 1, 9}, "8 GB of disk at a time (limit disk_gb)"},
	};
	_cleanup_(quotas_free_p) struct quotas *quotas = quotas_new(&limits, &no_host_limit);
	struct err err;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct quota_charge charge = {0};
		struct quota_charge second = {0};

		assert_err(quota_charge(quotas, "ac_a", &cases[i].beyond, &charge, &err), &err,
			ERR_QUOTA);
		assert_err_says(&err, cases[i].says);
		assert_err_says(&err, "ask for less");
		assert_ok(quota_charge(quotas, "ac_a", &cases[i].at_limit, &charge, &err), &err);
		assert_err(quota_charge(quotas, "ac_a", &cases[i].at_limit, &second, &err), &err,
			ERR_QUOTA);
		assert_err_says(&err, "wait until one expires");
		quota_refund(&charge);
	}
}

static void test_refused_charge_changes_nothing(void **state)
{
	static const struct quota_amounts limits = {
		.sandboxes = 10, .vcpus = 4, .memory_mb = 1000, .disk_gb = 8};
	static const struct quota_amounts last_is_too_much = {1, 1, 1, 9};
	_cleanup_(quotas_free_p) struct quotas *quotas = quotas_new(&limits, &no_host_limit);
	struct quota_charge charge = {0};
	struct quota_amounts used;
	struct err err;

	(void)state;
	assert_err(quota_charge(quotas, "ac_a", &last_is_too_much, &charge, &err), &err, ERR_QUOTA);
	quotas_used(quotas, "ac_a", &used);
	assert_int_equal(used.sandboxes, 0);
	assert_int_equal(used.vcpus, 0);
}

static void test_enormous_wants_dont_wrap_round(void **state)
{
	static const struct quota_amounts limits = {
		.sandboxes = 10, .vcpus = 4, .memory_mb = 1000, .disk_gb = 8};
	static const struct quota_amounts huge = {1, 1, UINT64_MAX, 1};
	_cleanup_(quotas_free_p) struct quotas *quotas = quotas_new(&limits, &no_host_limit);
	struct quota_charge first = {0};
	struct quota_charge charge = {0};
	struct err err;

	(void)state;
	assert_ok(quota_charge(quotas, "ac_a", &tiny, &first, &err), &err);
	assert_err(quota_charge(quotas, "ac_a", &huge, &charge, &err), &err, ERR_QUOTA);
	quota_refund(&first);
}

/* ---- the host's ---- */

static void test_host_counts_memory_with_its_overhead(void **state)
{
	static const struct quota_host host = {
		.memory_mb = 2 * (256 + 72), .overcommit_pct = 100, .overhead_mb = 72};
	struct quota_amounts limits = QUOTA_DEFAULT_LIMITS;
	_cleanup_(quotas_free_p) struct quotas *quotas = quotas_new(&limits, &host);
	struct quota_charge charges[3] = {0};
	struct quota_amounts used;
	struct err err;

	(void)state;
	assert_ok(quota_charge(quotas, "ac_a", &tiny, &charges[0], &err), &err);
	assert_ok(quota_charge(quotas, "ac_b", &tiny, &charges[1], &err), &err);
	assert_err(quota_charge(quotas, "ac_c", &tiny, &charges[2], &err), &err, ERR_UNAVAILABLE);
	assert_err_says(&err, "limit host memory");
	quotas_used(quotas, "ac_c", &used);
	assert_int_equal(used.sandboxes, 0);
	quota_refund(&charges[0]);
	assert_ok(quota_charge(quotas, "ac_c", &tiny, &charges[2], &err), &err);
	quota_refund(&charges[1]);
	quota_refund(&charges[2]);
}

static void test_one_mebibyte_less_on_the_host_is_too_little(void **state)
{
	static const struct quota_host host = {
		.memory_mb = 256 + 72 - 1, .overcommit_pct = 100, .overhead_mb = 72};
	struct quota_amounts limits = QUOTA_DEFAULT_LIMITS;
	_cleanup_(quotas_free_p) struct quotas *quotas = quotas_new(&limits, &host);
	struct quota_charge charge = {0};
	struct err err;

	(void)state;
	assert_err(quota_charge(quotas, "ac_a", &tiny, &charge, &err), &err, ERR_UNAVAILABLE);
}

static void test_overcommit_widens_the_host(void **state)
{
	struct quota_host host = {.memory_mb = 256, .overcommit_pct = 150, .overhead_mb = 0};
	struct quota_amounts limits = QUOTA_DEFAULT_LIMITS;
	_cleanup_(quotas_free_p) struct quotas *quotas = quotas_new(&limits, &host);
	struct quota_charge charges[2] = {0};
	struct err err;

	(void)state;
	assert_ok(quota_charge(quotas, "ac_a", &tiny, &charges[0], &err), &err);
	assert_err(quota_charge(quotas, "ac_a", &tiny, &charges[1], &err), &err, ERR_UNAVAILABLE);
	host.overcommit_pct = 200;
	quotas_set_host(quotas, &host);
	assert_ok(quota_charge(quotas, "ac_a", &tiny, &charges[1], &err), &err);
	/* What is known later holds for what runs already. */
	host.overhead_mb = 1;
	quotas_set_host(quotas, &host);
	quota_refund(&charges[1]);
	assert_ok(quota_charge(
			  quotas, "ac_a", &(struct quota_amounts){1, 1, 254, 1}, &charges[1], &err),
		&err);
	quota_refund(&charges[1]);
	quota_refund(&charges[0]);
}

/* ---- restoring ---- */

static void test_restored_charges_count_and_are_never_refused(void **state)
{
	struct quota_amounts limits = QUOTA_DEFAULT_LIMITS;
	struct quota_charge charges[3] = {0};
	struct quota_charge more = {0};
	struct quota_amounts used;
	struct err err;

	(void)state;
	limits.sandboxes = 2;
	_cleanup_(quotas_free_p) struct quotas *quotas = quotas_new(&limits, &no_host_limit);

	for (size_t i = 0; i < ARRAY_SIZE(charges); i++) {
		quota_restore(quotas, "ac_a", &tiny, &charges[i]);
	}
	quotas_used(quotas, "ac_a", &used);
	assert_int_equal(used.sandboxes, 3);
	quota_refund(&charges[0]);
	assert_err(quota_charge(quotas, "ac_a", &tiny, &more, &err), &err, ERR_QUOTA);
	quota_refund(&charges[1]);
	assert_ok(quota_charge(quotas, "ac_a", &tiny, &more, &err), &err);
	quota_refund(&more);
	quota_refund(&charges[2]);
}

static void test_refunding_twice_or_nothing_is_fine(void **state)
{
	struct quota_amounts limits = QUOTA_DEFAULT_LIMITS;
	_cleanup_(quotas_free_p) struct quotas *quotas = quotas_new(&limits, &no_host_limit);
	struct quota_charge a = {0};
	struct quota_charge b = {0};
	struct quota_amounts used;
	struct err err;

	(void)state;
	quota_refund(&a);
	assert_ok(quota_charge(quotas, "ac_a", &tiny, &a, &err), &err);
	assert_ok(quota_charge(quotas, "ac_a", &tiny, &b, &err), &err);
	quota_refund(&a);
	quota_refund(&a);
	quotas_used(quotas, "ac_a", &used);
	assert_int_equal(used.sandboxes, 1);
	assert_int_equal(used.memory_mb, 256);
	quota_refund(&b);
}

/* ---- any order of charges and refunds ---- */

#define ACCOUNTS 4
#define SLOTS    64
#define STEPS    20000

struct slot {
	struct quota_charge charge;
	struct quota_amounts amounts;
	int account;
};

static void sum(const struct slot *slots, int account, struct quota_amounts *ret)
{
	*ret = (struct quota_amounts){0};
	for (int i = 0; i < SLOTS; i++) {
		if (slots[i].charge.quotas && (account < 0 || slots[i].account == account)) {
			ret->sandboxes += slots[i].amounts.sandboxes;
			ret->vcpus += slots[i].amounts.vcpus;
			ret->memory_mb += slots[i].amounts.memory_mb;
			ret->disk_gb += slots[i].amounts.disk_gb;
		}
	}
}

static bool within(const struct quota_amounts *limits, const struct quota_amounts *used)
{
	return used->sandboxes <= limits->sandboxes && used->vcpus <= limits->vcpus &&
	       used->memory_mb <= limits->memory_mb && used->disk_gb <= limits->disk_gb;
}

/* What quota_charge() should say, counted from nothing but the slots. */
static enum err_kind expected(const struct slot *slots, const struct slot *slot,
	const struct quota_amounts *limits, const struct quota_host *host)
{
	struct quota_amounts mine;
	struct quota_amounts all;

	sum(slots, slot->account, &mine);
	sum(slots, -1, &all);
	mine.sandboxes += 1;
	mine.vcpus += slot->amounts.vcpus;
	mine.memory_mb += slot->amounts.memory_mb;
	mine.disk_gb += slot->amounts.disk_gb;
	if (!within(limits, &mine)) {
		return ERR_QUOTA;
	}
	all.memory_mb += slot->amounts.memory_mb + (all.sandboxes + 1) * host->overhead_mb;
	return all.memory_mb <= host->memory_mb * host->overcommit_pct / 100 ? ERR_NONE
									     : ERR_UNAVAILABLE;
}

static void test_any_order_agrees_with_a_recount(void **state)
{
	static const char *const names[ACCOUNTS] = {"ac_a", "ac_b", "ac_c", "ac_d"};
	static const struct quota_amounts limits = {
		.sandboxes = 12, .vcpus = 30, .memory_mb = 9000, .disk_gb = 60};
	static const struct quota_host host = {
		.memory_mb = 16000, .overcommit_pct = 130, .overhead_mb = 72};
	_cleanup_(quotas_free_p) struct quotas *quotas = quotas_new(&limits, &host);
	struct slot slots[SLOTS] = {0};
	unsigned outcomes[ERR_KIND_MAX] = {0};
	struct quota_amounts used;
	struct quota_amounts counted;

	(void)state;
	srandom(1); /* the same walk each time */
	for (int step = 0; step < STEPS; step++) {
		struct slot *slot = &slots[random() % SLOTS];
		struct err err = ERR_INIT;

		if (slot->charge.quotas) {
			quota_refund(&slot->charge);
			continue;
		}
		slot->account = (int)(random() % ACCOUNTS);
		slot->amounts = (struct quota_amounts){.sandboxes = 1,
			.vcpus = 1 + (uint64_t)random() % 8,
			.memory_mb = 1 + (uint64_t)random() % 2000,
			.disk_gb = 1 + (uint64_t)random() % 16};
		enum err_kind want = expected(slots, slot, &limits, &host);
		(void)quota_charge(
			quotas, names[slot->account], &slot->amounts, &slot->charge, &err);
		assert_int_equal(err.kind, want);
		assert_int_equal(slot->charge.quotas != NULL, want == ERR_NONE);
		outcomes[want]++;

		sum(slots, slot->account, &counted);
		quotas_used(quotas, names[slot->account], &used);
		assert_memory_equal(&used, &counted, sizeof(used));
	}
	/* The walk went to all three places. */
	assert_true(outcomes[ERR_NONE] > 100);
	assert_true(outcomes[ERR_QUOTA] > 100);
	assert_true(outcomes[ERR_UNAVAILABLE] > 100);
	for (int i = 0; i < SLOTS; i++) {
		quota_refund(&slots[i].charge);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_limit_of_sandboxes_is_reached_exactly),
		cmocka_unit_test(test_each_amount_has_its_limit_and_names_it),
		cmocka_unit_test(test_refused_charge_changes_nothing),
		cmocka_unit_test(test_enormous_wants_dont_wrap_round),
		cmocka_unit_test(test_host_counts_memory_with_its_overhead),
		cmocka_unit_test(test_one_mebibyte_less_on_the_host_is_too_little),
		cmocka_unit_test(test_overcommit_widens_the_host),
		cmocka_unit_test(test_restored_charges_count_and_are_never_refused),
		cmocka_unit_test(test_refunding_twice_or_nothing_is_fine),
		cmocka_unit_test(test_any_order_agrees_with_a_recount),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
