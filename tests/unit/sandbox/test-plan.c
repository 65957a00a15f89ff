#include "tests/lib/cm.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "sandbox/plan.h"

/* Steps a, b, c write what happens to them into `log`; `fails`, `holds` steer them. */
struct bench {
	struct loop *loop;
	struct plan plan;
	char log[256];
	char fails;     /* run of this step fails */
	char holds;     /* run of this step doesn't answer by itself */
	int undo_fails; /* so often the undo of b fails */
	unsigned retries;
	bool is_injected; /* failures are faults' */
	bool is_done;
	bool is_unwound;
};

static void note(struct bench *bench, const char *text, char step)
{
	size_t len = strlen(bench->log);

	snprintf(bench->log + len, sizeof bench->log - len, "%s%c ", text, step);
}

static void run(struct bench *bench, char step)
{
	struct err err;

	note(bench, "+", step);
	if (bench->holds == step) {
		return;
	}
	err_set(&err, ERR_UNAVAILABLE, "no %c", step);
	plan_answer(&bench->plan, bench->fails == step ? &err : NULL);
}

static void undo(struct bench *bench, char step)
{
	struct err err;

	note(bench, "-", step);
	err_set(&err, ERR_INTERNAL, "stuck");
	plan_answer(&bench->plan, step == 'b' && bench->undo_fails-- > 0 ? &err : NULL);
}

static void run_a(void *arg)
{
	run(arg, 'a');
}

static void run_b(void *arg)
{
	run(arg, 'b');
}

static void run_c(void *arg)
{
	run(arg, 'c');
}

static void stop_b(void *arg)
{
	struct bench *bench = arg;
	struct err err;

	note(bench, "!", 'b');
	err_set(&err, ERR_CANCELLED, "stopped");
	plan_answer(&bench->plan, &err);
}

static void undo_a(void *arg)
{
	undo(arg, 'a');
}

static void undo_b(void *arg)
{
	undo(arg, 'b');
}

static const struct plan_step steps[] = {
	{"a", run_a, NULL, undo_a},
	{"b", run_b, stop_b, undo_b},
	{"c", run_c, NULL, NULL},
};

static void on_done(void *arg)
{
	((struct bench *)arg)->is_done = true;
}

static void on_unwinding(void *arg, const char *step, const struct err *why)
{
	note(arg, "<", step ? step[0] : '-');
	assert_int_not_equal(why->kind, ERR_NONE);
}

static void on_retry(void *arg, const char *step, const struct err *err, unsigned tries)
{
	struct bench *bench = arg;

	assert_string_equal(step, "b");
	assert_string_equal(err->msg, bench->is_injected ? "a fault was injected" : "stuck");
	assert_int_equal(tries, ++bench->retries);
}

static void on_unwound(void *arg)
{
	((struct bench *)arg)->is_unwound = true;
}

static const struct plan_hooks hooks = {on_done, on_unwinding, on_retry, on_unwound};

static int setup(void **state)
{
	static struct bench bench;
	struct err err;

	bench = (struct bench){0};
	bench.loop = loop_new(&err);
	plan_init(&bench.plan, bench.loop, &hooks, &bench);
	plan_use(&bench.plan, "make", steps, ARRAY_SIZE(steps));
	*state = &bench;
	return 0;
}

static int teardown(void **state)
{
	struct bench *bench = *state;

	plan_fini(&bench->plan);
	loop_free(bench->loop);
	return 0;
}

static void unwind(struct bench *bench)
{
	struct err err;

	err_set(&err, ERR_ENDED, "enough");
	plan_unwind(&bench->plan, NULL, &err);
}

static void test_steps_run_in_order_and_never_from_within(void **state)
{
	struct bench *bench = *state;

	plan_run(&bench->plan);
	assert_string_equal(bench->log, "");
	await(bench->loop, bench->is_done, 5000);
	assert_string_equal(bench->log, "+a +b +c ");
	unwind(bench);
	unwind(bench);
	assert_false(bench->is_unwound);
	await(bench->loop, bench->is_unwound, 5000);
	assert_string_equal(bench->log, "+a +b +c <- -b -a ");
}

static void test_the_step_that_failed_is_undone_too(void **state)
{
	struct bench *bench = *state;

	bench->fails = 'b';
	plan_run(&bench->plan);
	await(bench->loop, bench->is_unwound, 5000);
	assert_string_equal(bench->log, "+a +b <b -b -a ");
	assert_false(bench->is_done);
	assert_string_equal(bench->plan.why.msg, "no b");
}

static void test_unwinding_stops_the_step_that_runs(void **state)
{
	struct bench *bench = *state;

	bench->holds = 'b';
	plan_run(&bench->plan);
	await(bench->loop, plan_current(&bench->plan) && *plan_current(&bench->plan) == 'b', 5000);
	unwind(bench);
	await(bench->loop, bench->is_unwound, 5000);
	assert_string_equal(bench->log, "+a +b !b <- -b -a ");
	assert_string_equal(bench->plan.why.msg, "enough");
}

static void test_unwinding_awaits_a_step_that_cannot_stop(void **state)
{
	struct bench *bench = *state;

	bench->holds = 'a';
	plan_run(&bench->plan);
	await(bench->loop, plan_current(&bench->plan), 5000);
	unwind(bench);
	for (int i = 0; i < 5; i++) {
		loop_turn_for(bench->loop, 1);
	}
	assert_string_equal(bench->log, "+a ");
	/* Even a success turns round now. */
	plan_answer(&bench->plan, NULL);
	await(bench->loop, bench->is_unwound, 5000);
	assert_string_equal(bench->log, "+a <- -a ");
}

static void test_unwinding_between_two_steps_runs_no_other(void **state)
{
	struct bench *bench = *state;

	plan_run(&bench->plan);
	unwind(bench);
	await(bench->loop, bench->is_unwound, 5000);
	assert_string_equal(bench->log, "<- -a ");
}

static void test_unwinding_right_after_the_last_step_undoes_all(void **state)
{
	struct bench *bench = *state;

	bench->holds = 'c';
	plan_run(&bench->plan);
	await(bench->loop, plan_current(&bench->plan) && *plan_current(&bench->plan) == 'c', 5000);
	plan_answer(&bench->plan, NULL);
	unwind(bench);
	await(bench->loop, bench->is_unwound, 5000);
	assert_string_equal(bench->log, "+a +b +c <- -b -a ");
	assert_true(bench->is_done);
}

static void test_a_failing_undo_is_tried_until_it_succeeds(void **state)
{
	struct bench *bench = *state;

	bench->undo_fails = 2;
	plan_adopt(&bench->plan);
	unwind(bench);
	await(bench->loop, bench->is_unwound, 20000);
	assert_string_equal(bench->log, "<- -b -b -b -a ");
	assert_int_equal(bench->retries, 2);
}

static void test_a_retry_can_be_hurried(void **state)
{
	struct bench *bench = *state;

	bench->undo_fails = 6; /* would take 16 s */
	plan_adopt(&bench->plan);
	unwind(bench);
	for (unsigned i = 1; i <= 6; i++) {
		await(bench->loop, bench->retries == i, 10000);
		plan_retry_now(&bench->plan);
	}
	await(bench->loop, bench->is_unwound, 5000);
}

static void test_a_plan_that_never_ran_has_nothing_to_undo(void **state)
{
	struct bench *bench = *state;

	unwind(bench);
	await(bench->loop, bench->is_unwound, 5000);
	assert_string_equal(bench->log, "<- ");
}

#ifdef PADDOCK_TEST_HOOKS
/* In order of the points that are passed. */
static void watch(void *arg, const char *point)
{
	char *points = arg;
	size_t len = strlen(points);

	snprintf(points + len, 512 - len, "%s ", point);
}

static void test_each_step_is_two_points_forwards_and_back(void **state)
{
	struct bench *bench = *state;
	char points[512] = "";

	fault_watch(watch, points);
	plan_run(&bench->plan);
	await(bench->loop, bench->is_done, 5000);
	assert_string_equal(points, "make.a make.a.done make.b make.b.done make.c make.c.done ");
	points[0] = '\0';
	unwind(bench);
	await(bench->loop, bench->is_unwound, 5000);
	assert_string_equal(points, "make.undo.b make.undo.b.done make.undo.a make.undo.a.done ");
	fault_watch(NULL, NULL);
}

static void test_faults_fail_hang_and_delay_steps(void **state)
{
	static const struct {
		const char *faults;
		const char *log;
	} cases[] = {
		{"make.b:fail", "+a <b -b -a "},
		{"make.b.done:fail", "+a +b <b -b -a "},
		{"make.b:hang", "+a +b <b -b -a "},
		{"make.b:delay", "+a +b +c "},
		{"make.c:fail,make.undo.b:fail:2,make.undo.a:delay", "+a +b <c -b -a "},
	};
	struct bench *bench = *state;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		bench->log[0] = '\0';
		bench->is_done = bench->is_unwound = false;
		bench->retries = 0;
		plan_use(&bench->plan, "make", steps, ARRAY_SIZE(steps));
		fault_set(cases[i].faults);
		bench->is_injected = true;
		plan_run(&bench->plan);
		await(bench->loop, bench->is_done || bench->is_unwound, 20000);
		assert_string_equal(bench->log, cases[i].log);
	}
	fault_set(NULL);
}
#endif

int main(void)
{
#define BENCH(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
	const struct CMUnitTest tests[] = {
		BENCH(test_steps_run_in_order_and_never_from_within),
		BENCH(test_the_step_that_failed_is_undone_too),
		BENCH(test_unwinding_stops_the_step_that_runs),
		BENCH(test_unwinding_awaits_a_step_that_cannot_stop),
		BENCH(test_unwinding_between_two_steps_runs_no_other),
		BENCH(test_unwinding_right_after_the_last_step_undoes_all),
		BENCH(test_a_failing_undo_is_tried_until_it_succeeds),
		BENCH(test_a_retry_can_be_hurried),
		BENCH(test_a_plan_that_never_ran_has_nothing_to_undo),
#ifdef PADDOCK_TEST_HOOKS
		BENCH(test_each_step_is_two_points_forwards_and_back),
		BENCH(test_faults_fail_hang_and_delay_steps),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
