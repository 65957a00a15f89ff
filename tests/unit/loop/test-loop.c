#include "tests/lib/cm.h"

#include <pthread.h>

#include "base/clock.h"
#include "loop/loop.h"

struct trace {
	struct loop *loop;
	char text[32];
};

static void add_a(void *arg)
{
	strcat(((struct trace *)arg)->text, "a");
}

static void add_b_then_defer_a(void *arg)
{
	struct trace *trace = arg;

	strcat(trace->text, "b");
	loop_defer(trace->loop, add_a, trace);
}

static void cancel_a(void *arg)
{
	struct trace *trace = arg;

	strcat(trace->text, "c");
	loop_cancel_deferred(trace->loop, add_a, trace);
}

static void test_deferred_calls_run_in_order_and_later(void **state)
{
	struct err err;
	_cleanup_(loop_free_p) struct loop *loop = loop_new(&err);
	struct trace trace = {.loop = loop};

	(void)state;
	loop_defer(loop, add_b_then_defer_a, &trace);
	loop_defer(loop, add_a, &trace);
	assert_string_equal(trace.text, "");
	await(loop, strlen(trace.text) == 3, 5000);
	assert_string_equal(trace.text, "baa");
}

static void test_a_deferred_call_can_be_cancelled_by_an_earlier_one(void **state)
{
	struct err err;
	_cleanup_(loop_free_p) struct loop *loop = loop_new(&err);
	struct trace trace = {.loop = loop};

	(void)state;
	loop_defer(loop, cancel_a, &trace);
	loop_defer(loop, add_a, &trace);
	loop_defer(loop, add_b_then_defer_a, &trace);
	await(loop, strlen(trace.text) == 3, 5000);
	assert_string_equal(trace.text, "cba");
}

static void test_freeing_runs_what_is_deferred(void **state)
{
	struct err err;
	struct loop *loop = loop_new(&err);
	struct trace trace = {.loop = loop};

	(void)state;
	loop_defer(loop, add_b_then_defer_a, &trace);
	loop_free(loop);
	assert_string_equal(trace.text, "ba");
}

static void *ask_from_thread(void *arg)
{
	*(bool *)arg = loop_is_current();
	return NULL;
}

static void test_only_the_loops_thread_is_current(void **state)
{
	struct err err;
	_cleanup_(loop_free_p) struct loop *loop = loop_new(&err);
	bool is_current = true;
	pthread_t thread;

	(void)state;
	assert_non_null(loop);
	assert_true(loop_is_current());
	assert_int_equal(pthread_create(&thread, NULL, ask_from_thread, &is_current), 0);
	pthread_join(thread, NULL);
	assert_false(is_current);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_deferred_calls_run_in_order_and_later),
		cmocka_unit_test(test_a_deferred_call_can_be_cancelled_by_an_earlier_one),
		cmocka_unit_test(test_freeing_runs_what_is_deferred),
		cmocka_unit_test(test_only_the_loops_thread_is_current),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
