#include "tests/lib/cm.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/xalloc.h"
#include "netfilter/netfilter.h"
#include "netfilter/nft.h"

/*
 * The state machine against the kernel's real tables, in a network namespace of this process's own.
 * What the rules let through is the system test's matter.
 */

#define INSTANCE "0123456789abcdef"
#define TABLE    "paddock_" INSTANCE
#define PATIENCE 20000

struct fixture {
	struct loop *loop;
	struct netfilter *nf;
	enum filter_state state;
	unsigned changes;
	unsigned breaks;
	uint64_t broken_at_ms;
	char resolv_conf[64];
	char obstacle[64]; /* PADDOCK_TEST_FILTER_FAIL_FILE */
};

static void on_state(void *arg, enum filter_state state, const char *reason)
{
	struct fixture *f = arg;

	assert_int_equal(reason[0] == '\0', state == FILTER_ACTIVE);
	f->state = state;
	f->changes++;
	if (state == FILTER_BROKEN) {
		f->breaks++;
		f->broken_at_ms = clock_monotonic_ms();
	}
}

static void put_resolv_conf(struct fixture *f, const char *text)
{
	struct err err;

	assert_ok(fs_write_atomic(f->resolv_conf, text, strlen(text), 0644, &err), &err);
}

static void start(struct fixture *f)
{
	const struct netfilter_settings settings = {.instance = INSTANCE,
		.uid_first = 300000,
		.uid_count = 1000,
		.resolv_conf = f->resolv_conf};
	const struct netfilter_hooks hooks = {.on_state = on_state, .arg = f};
	struct err err;

	f->nf = netfilter_new(f->loop, &settings, &hooks, &err);
	assert_non_null(f->nf);
}

static int setup(void **state)
{
	struct fixture *f = xnew(struct fixture);
	struct err err;

	f->loop = loop_new(&err);
	snprintf(f->resolv_conf, sizeof f->resolv_conf, "/tmp/paddock-resolv-%d", (int)getpid());
	snprintf(f->obstacle, sizeof f->obstacle, "/tmp/paddock-obstacle-%d", (int)getpid());
	put_resolv_conf(f, "nameserver 10.0.0.1\n");
	*state = f;
	return f->loop ? 0 : -1;
}

static int teardown(void **state)
{
	struct fixture *f = *state;
	struct err err;

	netfilter_free(f->nf);
	loop_free(f->loop);
	unlink(f->resolv_conf);
	unlink(f->obstacle);
	free(f);
	unsetenv("PADDOCK_TEST_NO_FILTER");
	unsetenv("PADDOCK_TEST_FILTER_FAIL_FILE");
	return netfilter_remove_blocking(INSTANCE, &err);
}

static void nft(const char *command)
{
	struct err err;

	assert_ok(nft_apply_blocking(command, &err), &err);
}

static bool table_has(const char *text)
{
	struct err err;
	_cleanup_free_ char *listing = nft_list_blocking(TABLE, &err);

	return listing && strstr(listing, text);
}

static void await_active(struct fixture *f)
{
	await(f->loop, f->state == FILTER_ACTIVE, PATIENCE);
}

static void test_the_table_is_installed_and_then_active(void **state)
{
	struct fixture *f = *state;
	struct netfilter_status status;

	start(f);
	netfilter_status(f->nf, &status);
	assert_int_equal(status.state, FILTER_STARTING);
	assert_int_equal(f->changes, 0);
	await_active(f);
	assert_true(table_has("ip daddr 10.0.0.1 meta l4proto"));
	netfilter_status(f->nf, &status);
	assert_int_equal(status.state, FILTER_ACTIVE);
	assert_string_equal(status.table, TABLE);
	assert_string_equal(status.reason, "");
	assert_string_equal(status.fix, "");
}

static void test_a_breach_is_told_within_a_second_and_repaired(void **state)
{
	static const char *const breaches[] = {"delete table inet " TABLE,
		"flush table inet " TABLE, "flush chain inet " TABLE " refuse",
		"insert rule inet " TABLE " guests accept",
		"add table inet " TABLE " { flags dormant; }"};
	struct fixture *f = *state;

	start(f);
	await_active(f);
	for (unsigned i = 0; i < ARRAY_SIZE(breaches); i++) {
		nft(breaches[i]);
		/* How long a busy kernel takes for it is not ours. */
		uint64_t start_ms = clock_monotonic_ms();

		await(f->loop, f->breaks == i + 1, PATIENCE);
		assert_in_range(f->broken_at_ms - start_ms, 0, 1000);
		await_active(f);
		assert_true(table_has("reject with tcp reset"));
		assert_true(table_has("goto guests"));
		assert_false(table_has("dormant"));
	}
	struct netfilter_status status;

	netfilter_status(f->nf, &status);
	assert_int_equal(status.breaches, ARRAY_SIZE(breaches));
}

static void test_a_steady_table_changes_no_state(void **state)
{
	struct fixture *f = *state;

	start(f);
	await_active(f);
	for (uint64_t end = clock_monotonic_ms() + 1500; clock_monotonic_ms() < end;) {
		nft("add table inet other\ndelete table inet other");
		loop_turn_for(f->loop, 100);
	}
	assert_int_equal(f->changes, 1);
}

static void test_new_resolvers_are_installed_while_active(void **state)
{
	struct fixture *f = *state;

	start(f);
	await_active(f);
	put_resolv_conf(f, "nameserver 10.0.0.2\n");
	await(f->loop, table_has("ip daddr 10.0.0.2 meta l4proto"), PATIENCE);
	assert_false(table_has("10.0.0.1"));
	unlink(f->resolv_conf);
	await(f->loop, !table_has("dport 53"), PATIENCE);
	assert_int_equal(f->changes, 1);
}

static void test_a_table_left_behind_is_replaced(void **state)
{
	struct fixture *f = *state;

	nft("table inet " TABLE " { chain guests { accept; }; chain foreign { }; }");
	start(f);
	await_active(f);
	assert_false(table_has("foreign"));
	assert_true(table_has("reject with tcp reset"));
}

static void test_free_leaves_the_table_and_remove_takes_it(void **state)
{
	struct fixture *f = *state;
	struct err err;

	start(f);
	await_active(f);
	netfilter_free(f->nf);
	f->nf = NULL;
	assert_true(table_has("goto guests"));
	assert_ok(netfilter_remove_blocking(INSTANCE, &err), &err);
	assert_null(nft_list_blocking(TABLE, &err));
	assert_int_equal(err.kind, ERR_NOT_FOUND);
	assert_ok(netfilter_remove_blocking(INSTANCE, &err), &err);
}

static void test_free_at_any_moment_calls_nobody(void **state)
{
	struct fixture *f = *state;

	for (unsigned turns = 0; turns < 6; turns++) {
		f->state = FILTER_STARTING;
		start(f);
		for (unsigned i = 0; i < turns; i++) {
			loop_turn_for(f->loop, 1);
		}
		unsigned before = f->changes;

		netfilter_free(f->nf);
		f->nf = NULL;
		loop_turn_for(f->loop, 1);
		assert_int_equal(f->changes, before);
	}
}

static void test_the_probe_leaves_nothing(void **state)
{
	struct err err;

	(void)state;
	assert_ok(netfilter_probe_blocking(&err), &err);
}

static void test_every_failure_has_a_fix(void **state)
{
	(void)state;
	for (int kind = ERR_INVALID; kind < ERR_KIND_MAX; kind++) {
		assert_true(netfilter_fix((enum err_kind)kind)[0] != '\0');
	}
}

#ifdef PADDOCK_TEST_HOOKS
static void test_pretending_installs_nothing(void **state)
{
	struct fixture *f = *state;
	struct err err;

	setenv("PADDOCK_TEST_NO_FILTER", "1", 1);
	start(f);
	await_active(f);
	assert_null(nft_list_blocking(TABLE, &err));
}

static void test_failing_repairs_stay_broken_until_one_succeeds(void **state)
{
	struct fixture *f = *state;
	struct netfilter_status status;

	setenv("PADDOCK_TEST_FILTER_FAIL_FILE", f->obstacle, 1);
	start(f);
	await_active(f);
	_cleanup_fclose_ FILE *file = fopen(f->obstacle, "w");

	assert_non_null(file);
	nft("delete table inet " TABLE);
	await(f->loop, f->state == FILTER_BROKEN, PATIENCE);
	for (uint64_t end = clock_monotonic_ms() + 1200; clock_monotonic_ms() < end;) {
		loop_turn_for(f->loop, 50);
		assert_int_equal(f->state, FILTER_BROKEN);
	}
	netfilter_status(f->nf, &status);
	assert_string_equal(status.reason, "a test is in the way");
	unlink(f->obstacle);
	await_active(f);
	assert_int_equal(f->breaks, 1);
}

static void test_an_install_that_never_worked_is_unavailable_and_tried_again(void **state)
{
	struct fixture *f = *state;
	struct netfilter_status status;

	setenv("PADDOCK_TEST_FILTER_FAIL_FILE", f->obstacle, 1);
	_cleanup_fclose_ FILE *file = fopen(f->obstacle, "w");

	assert_non_null(file);
	start(f);
	await(f->loop, f->state == FILTER_UNAVAILABLE, PATIENCE);
	netfilter_status(f->nf, &status);
	assert_non_null(strstr(status.fix, "nf_tables"));
	unlink(f->obstacle);
	await_active(f);
}
#endif

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_the_table_is_installed_and_then_active),
		TEST(test_a_breach_is_told_within_a_second_and_repaired),
		TEST(test_a_steady_table_changes_no_state),
		TEST(test_new_resolvers_are_installed_while_active),
		TEST(test_a_table_left_behind_is_replaced),
		TEST(test_free_leaves_the_table_and_remove_takes_it),
		TEST(test_free_at_any_moment_calls_nobody),
		TEST(test_the_probe_leaves_nothing),
		cmocka_unit_test(test_every_failure_has_a_fix),
#ifdef PADDOCK_TEST_HOOKS
		TEST(test_pretending_installs_nothing),
		TEST(test_failing_repairs_stay_broken_until_one_succeeds),
		TEST(test_an_install_that_never_worked_is_unavailable_and_tried_again),
#endif
	};
	struct err err;

	if (unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) {
		fprintf(stderr, "skipped: no network namespace can be made here\n");
		return 77;
	}
	if (netfilter_probe_blocking(&err) != 0) {
		fprintf(stderr, "skipped: %s; %s\n", err.msg, netfilter_fix(err.kind));
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
