/* Background commands whose machine ends: what is known of them then, and what they had said. */
#include "tests/lib/job_world.h"

#include <string.h>

static void test_the_end_of_the_sandbox_is_that_of_its_commands(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);
	const char *eid = job_start(w, id, "hang");
	unsigned told = 0;

	(void)state;
	assert_non_null(sandbox_exec_wait(world_find(w, id), eid, job_count_up, &told));
	sandbox_destroy(world_find(w, id), "deleted");
	WORLD_UNTIL(w, !world_find(w, id));
	assert_int_equal(told, 1);
	job_expect_error(w, id, eid, STORE_EXEC_LOST, "has ended: deleted");
	/* That is in the store by then. */
	world_stop(w);
	world_start(w);
	job_expect_error(w, id, eid, STORE_EXEC_LOST, "has ended: deleted");
	world_free(w);
}

/* By turns, and then it goes on. */
static bool chatter(void *arg, struct guest_call *call, const struct fake_exec *exec)
{
	(void)arg;
	if (strcmp(exec->command, "chatter") != 0) {
		return false;
	}
	fake_exec_output(call, 1, "one ", 4);
	fake_exec_output(call, 2, "two ", 4);
	fake_exec_output(call, 1, "three", 5);
	return true;
}

static void expect_chatter(struct world *w, const char *id, const char *eid)
{
	struct store_exec row = job_record(w, id, eid);

	assert_int_equal(row.state, STORE_EXEC_LOST);
	/* The last ten bytes of thirteen. */
	assert_int_equal(row.out.len, 6);
	assert_memory_equal(row.out.bytes, " three", 6);
	assert_int_equal(row.err_out.len, 4);
	assert_memory_equal(row.err_out.bytes, "two ", 4);
	assert_int_equal(row.out.total + row.err_out.total, 13);
	assert_int_equal(row.runs_len, 12);
	store_exec_fini(&row);
}

static void test_what_was_said_before_the_end_is_kept(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);
	struct world_answer answer = {0};
	struct err err;

	(void)state;
	job_keep_results(w, 5, 10);
	fake_guest_set_program(w->guests, chatter, NULL);
	const char *first = job_start(w, id, "chatter");

	assert_ok(sandbox_restart(world_find(w, id), &err), &err);
	assert_non_null(sandbox_wait_ready(world_find(w, id), world_on_wait, &answer));
	WORLD_UNTIL(w, answer.count == 1);
	expect_chatter(w, id, first);
	const char *second = job_start(w, id, "chatter");

	sandbox_destroy(world_find(w, id), "deleted");
	WORLD_UNTIL(w, !world_find(w, id));
	expect_chatter(w, id, first);
	expect_chatter(w, id, second);
	world_free(w);
}

static void test_a_guest_that_is_silent_delays_its_end_by_little(void **state)
{
	static const enum fake_guest_op ops[] = {FAKE_GUEST_JOB_LIST, FAKE_GUEST_JOB_READ};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
		struct world *w = world_new(NULL);
		const char *id = world_running(w, NULL);

		job_keep_results(w, 5, 10);
		fake_guest_set_program(w->guests, chatter, NULL);
		const char *eid = job_start(w, id, "chatter");

		fake_guest_script(w->guests, ops[i], &(struct fake_script){.mode = FAKE_HOLD});
		uint64_t begun_ms = real_ms();

		sandbox_destroy(world_find(w, id), "deleted");
		WORLD_UNTIL(w, !world_find(w, id));
		assert_true(real_ms() - begun_ms >= 400);
		assert_true(job_is(w, id, eid, STORE_EXEC_LOST));
		world_free(w);
	}
}

static void test_the_service_may_stop_while_tails_are_read(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);

	(void)state;
	job_keep_results(w, 5, 10);
	fake_guest_set_program(w->guests, chatter, NULL);
	job_start(w, id, "chatter");
	fake_guest_script(w->guests, FAKE_GUEST_JOB_READ, &(struct fake_script){.mode = FAKE_HOLD});
	sandbox_destroy(world_find(w, id), "deleted");
	WORLD_UNTIL(w, fake_guest_calls(w->guests, FAKE_GUEST_JOB_READ) > 0);
	world_stop(w);
	world_start(w);
	WORLD_UNTIL(w, !world_find(w, id));
	world_free(w);
}

static void test_a_restart_of_the_sandbox_loses_them(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);
	const char *eid = job_start(w, id, "hang");
	struct world_answer answer = {0};
	struct err err;

	(void)state;
	assert_ok(sandbox_restart(world_find(w, id), &err), &err);
	assert_non_null(sandbox_wait_ready(world_find(w, id), world_on_wait, &answer));
	WORLD_UNTIL(w, answer.count == 1);
	assert_int_equal(answer.kind, ERR_NONE);
	job_expect_error(w, id, eid, STORE_EXEC_LOST, "is being restarted");
	/* The new machine takes new ones. */
	assert_true(job_is(w, id, job_start(w, id, "hang"), STORE_EXEC_RUNNING));
	world_free(w);
}

/* The guest is silent when it is asked for tails, and would be when it is asked to power off. */
static void test_a_removal_while_tails_are_read_waits_for_no_power_off(void **state)
{
	const struct fake_script held = {.mode = FAKE_HOLD};
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);
	struct err err;

	(void)state;
	job_keep_results(w, 5, 10);
	job_start(w, id, "hang");
	unsigned lists = fake_guest_calls(w->guests, FAKE_GUEST_JOB_LIST);

	fake_guest_script(w->guests, FAKE_GUEST_JOB_LIST, &held);
	fake_guest_script(w->guests, FAKE_GUEST_SHUTDOWN, &held);
	assert_ok(sandbox_restart(world_find(w, id), &err), &err);
	WORLD_UNTIL(w, fake_guest_calls(w->guests, FAKE_GUEST_JOB_LIST) > lists);
	sandbox_destroy(world_find(w, id), "deleted");
	WORLD_UNTIL(w, !world_find(w, id));
	assert_int_equal(fake_guest_calls(w->guests, FAKE_GUEST_SHUTDOWN), 0);
	world_free(w);
}

static void test_what_was_heard_of_an_end_outlives_the_agent(void **state)
{
	const struct fake_script held = {.mode = FAKE_HOLD, .times = 1};
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);

	(void)state;
	job_keep_results(w, 5, 10);
	fake_guest_script(w->guests, FAKE_GUEST_JOB_READ, &held);
	const char *eid = job_start(w, id, "warn told");

	/* Its end is known, and its tail is being read. */
	WORLD_UNTIL(w, fake_guest_calls(w->guests, FAKE_GUEST_JOB_READ) == 1);
	fake_guest_restart_agent(w->guests, id);
	WORLD_UNTIL(w, !job_is(w, id, eid, STORE_EXEC_RUNNING));
	assert_true(job_is(w, id, eid, STORE_EXEC_EXITED));
	struct store_exec row = job_record(w, id, eid);

	assert_int_equal(row.err_out.total, 5);
	assert_int_equal(row.err_out.len, 0);
	store_exec_fini(&row);
	world_free(w);
}

static void test_a_machine_that_stops_loses_them(void **state)
{
	struct world *w = world_new(NULL);
	struct sandbox_create_spec spec = world_spec(w, NULL);

	(void)state;
	spec.is_temporary = false;
	const char *id = world_create_spec(w, &spec);

	WORLD_UNTIL(w, world_is_state(w, id, "running"));
	const char *eid = job_start(w, id, "hang");

	fake_hv_stop_domain(w->hv, id, true);
	WORLD_UNTIL(w, world_is_state(w, id, "stopped"));
	job_expect_error(w, id, eid, STORE_EXEC_LOST, "is stopped");
	world_free(w);
}

/* The daemon was killed after the row said "stopped" and before those of its commands did. */
static void test_rows_of_a_stopped_sandbox_are_settled_at_the_start(void **state)
{
	static const char eid[] = "ex_00000000000000000001";
	struct world *w = world_new(NULL);
	struct sandbox_create_spec spec = world_spec(w, NULL);

	(void)state;
	spec.is_temporary = false;
	const char *id = world_create_spec(w, &spec);

	WORLD_UNTIL(w, world_is_state(w, id, "running"));
	fake_hv_stop_domain(w->hv, id, true);
	WORLD_UNTIL(w, world_is_state(w, id, "stopped"));
	job_put_row(w, id, eid, true, STORE_EXEC_RUNNING);
	world_stop(w);
	world_start(w);
	job_expect_error(w, id, eid, STORE_EXEC_LOST, "the sandbox stopped while it ran");
	world_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_end_of_the_sandbox_is_that_of_its_commands),
		cmocka_unit_test(test_what_was_said_before_the_end_is_kept),
		cmocka_unit_test(test_a_guest_that_is_silent_delays_its_end_by_little),
		cmocka_unit_test(test_the_service_may_stop_while_tails_are_read),
		cmocka_unit_test(test_a_restart_of_the_sandbox_loses_them),
		cmocka_unit_test(test_a_removal_while_tails_are_read_waits_for_no_power_off),
		cmocka_unit_test(test_what_was_heard_of_an_end_outlives_the_agent),
		cmocka_unit_test(test_a_machine_that_stops_loses_them),
		cmocka_unit_test(test_rows_of_a_stopped_sandbox_are_settled_at_the_start),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
