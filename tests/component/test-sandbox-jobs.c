/* Background commands: their records, and that these tell the truth whatever happens in between. */
#include "tests/lib/job_world.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/log.h"
#include "sandbox/job_table.h"

/* ---- a life without trouble ---- */

static void test_a_record_is_there_before_the_answer_and_ends_with_the_command(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);

	(void)state;
	const char *eid = job_start(w, id, "sleep 200");
	struct store_exec row;
	struct err err;

	/* From the store alone: what a daemon that is killed now leaves. */
	assert_ok(store_exec_get(w->store, id, eid, &row, &err), &err);
	assert_int_equal(row.state, STORE_EXEC_RUNNING);
	assert_true(row.is_background);
	assert_string_equal(row.command, "sleep 200");
	assert_true(row.started_at_ms > 0);
	assert_int_equal(row.ended_at_ms, 0);
	store_exec_fini(&row);
	WORLD_UNTIL(w, job_is(w, id, eid, STORE_EXEC_EXITED));
	row = job_record(w, id, eid);
	assert_int_equal(row.exit_code, 0);
	assert_true(row.ended_at_ms >= row.started_at_ms);
	store_exec_fini(&row);
	/* The guest goes on keeping it. */
	assert_non_null(fake_guest_job(w->guests, id, eid));
	world_free(w);
}

/* stdout and stderr by turns. */
static bool talk(void *arg, struct guest_call *call, const struct fake_exec *exec)
{
	(void)arg;
	if (strcmp(exec->command, "talk") != 0) {
		return false;
	}
	fake_exec_output(call, 1, "one ", 4);
	fake_exec_output(call, 2, "two ", 4);
	fake_exec_output(call, 1, "three ", 6);
	fake_exec_output(call, 2, "four", 4);
	fake_exec_exit(call, 3);
	return true;
}

static void test_the_tail_of_a_record_has_both_outputs_in_order(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);

	(void)state;
	fake_guest_set_program(w->guests, talk, NULL);
	job_keep_results(w, 5, 12);
	const char *eid = job_start(w, id, "talk");

	WORLD_UNTIL(w, job_is(w, id, eid, STORE_EXEC_EXITED));
	struct store_exec row = job_record(w, id, eid);

	assert_int_equal(row.exit_code, 3);
	assert_int_equal(row.out.total, 10);
	assert_int_equal(row.err_out.total, 8);
	/* The last twelve of "one two three four". */
	assert_int_equal(row.out.len, 6);
	assert_memory_equal(row.out.bytes, "three ", 6);
	assert_int_equal(row.err_out.len, 6);
	assert_memory_equal(row.err_out.bytes, "o four", 6);
	static const unsigned char runs[] = {5, 0, 0, 0, 12, 0, 0, 0, 9, 0, 0, 0};

	assert_int_equal(row.runs_len, sizeof runs);
	assert_memory_equal(row.runs, runs, sizeof runs);
	store_exec_fini(&row);
	world_free(w);
}

static void test_waits_are_told_once_and_not_when_cancelled(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);
	const char *eid = job_start(w, id, "sleep 100");
	unsigned told[3] = {0};
	struct sandbox *sb = world_find(w, id);

	(void)state;
	assert_non_null(sandbox_exec_wait(sb, eid, job_count_up, &told[0]));
	struct sandbox_exec_wait *cancelled = sandbox_exec_wait(sb, eid, job_count_up, &told[1]);

	assert_non_null(sandbox_exec_wait(sb, eid, job_count_up, &told[2]));
	sandbox_exec_wait_cancel(cancelled);
	assert_null(sandbox_exec_wait(sb, "ex_00000000000000000000", job_count_up, &told[1]));
	WORLD_UNTIL(w, told[0] && told[2]);
	world_run(w, 20);
	assert_int_equal(told[0], 1);
	assert_int_equal(told[1], 0);
	assert_int_equal(told[2], 1);
	assert_null(sandbox_exec_wait(world_find(w, id), eid, job_count_up, &told[1]));
	world_free(w);
}

static void test_a_starter_that_leaves_does_not_stop_it(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);
	struct started started;
	struct err err;

	(void)state;
	sandbox_job_leave(job_begin(w, id, "sleep 60000", &started, &err));
	WORLD_UNTIL(w, fake_guest_job_count(w->guests, id) == 1);
	world_run(w, 20);
	assert_int_equal(started.count, 0);
	struct store_exec_list list;

	assert_ok(sandbox_execs(w->all, id, &list, &err), &err);
	assert_int_equal(list.count, 1);
	assert_int_equal(list.rows[0].state, STORE_EXEC_RUNNING);
	store_exec_list_fini(&list);
	world_free(w);
}

/* ---- the daemon goes and comes back ---- */

static void test_a_command_goes_on_over_a_restart_of_the_service(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);
	const char *eid = job_start(w, id, "hang");

	(void)state;
	world_stop(w);
	world_start(w);
	assert_true(job_is(w, id, eid, STORE_EXEC_RUNNING));
	WORLD_UNTIL(w, fake_guest_calls(w->guests, FAKE_GUEST_JOB_WAIT) == 2);
	assert_int_equal(fake_guest_job_count(w->guests, id), 1);
	struct world_answer answer = {0};
	struct err err;

	assert_non_null(
		sandbox_exec_signal(world_find(w, id), eid, 15, world_on_done, &answer, &err));
	WORLD_UNTIL(w, job_is(w, id, eid, STORE_EXEC_EXITED));
	struct store_exec row = job_record(w, id, eid);

	assert_int_equal(row.signal, 15);
	store_exec_fini(&row);
	world_free(w);
}

static void test_what_ended_meanwhile_is_found_with_its_tail(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);

	(void)state;
	job_keep_results(w, 5, 100);
	const char *eid = job_start(w, id, "sleep 50");

	world_stop(w);
	WORLD_UNTIL(w, !fake_guest_job(w->guests, id, eid)->is_running);
	world_start(w);
	WORLD_UNTIL(w, job_is(w, id, eid, STORE_EXEC_EXITED));
	world_free(w);
}

static void test_a_lost_channel_ends_no_command(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);
	const char *eid = job_start(w, id, "sleep 100");
	const char *other = job_start(w, id, "hang");

	(void)state;
	fake_guest_drop(w->guests, id, 200);
	WORLD_UNTIL(w, !fake_guest_job(w->guests, id, eid)->is_running);
	assert_true(job_is(w, id, eid, STORE_EXEC_RUNNING));
	WORLD_UNTIL(w, job_is(w, id, eid, STORE_EXEC_EXITED));
	assert_true(job_is(w, id, other, STORE_EXEC_RUNNING));
	world_free(w);
}

/* It says nothing of the command: the next list does. */
static void test_a_guest_that_is_busy_loses_no_command(void **state)
{
	static const enum err_kind kinds[] = {ERR_RATE, ERR_TIMEOUT, ERR_UNAVAILABLE};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		struct world *w = world_new(NULL);
		const char *id = world_running(w, NULL);
		const struct fake_script script = {.mode = FAKE_FAIL, .kind = kinds[i], .times = 1};

		fake_guest_script(w->guests, FAKE_GUEST_JOB_WAIT, &script);
		const char *eid = job_start(w, id, "exit 3");

		world_run(w, 20);
		assert_true(job_is(w, id, eid, STORE_EXEC_RUNNING));
		world_reconcile(w);
		WORLD_UNTIL(w, job_is(w, id, eid, STORE_EXEC_EXITED));
		world_free(w);
	}
}

/* ---- every cell of the table ---- */

static void drop_row(struct world *w, const char *id)
{
	struct store_exec_list gone = {0};
	struct err err;

	assert_ok(store_exec_prune(w->store, id, true, 0, &gone, &err), &err);
	store_exec_list_fini(&gone);
}

struct cell {
	enum job_row row;
	enum job_word word;
	enum job_action action; /* what the table says, seen by what happens */
};

/* A job of that state in the guest, ended or running; with a row as the cell has it. */
static const char *make_cell(struct world *w, const char *id, const struct cell *cell)
{
	static char unknown[ID_BYTES];
	const char *eid = unknown;

	id_make(unknown, ID_EXEC);
	if (cell->word != JOB_WORD_UNKNOWN) {
		eid = job_start(w, id, cell->word == JOB_WORD_RUNNING ? "hang" : "exit 4");
	}
	if (cell->word == JOB_WORD_ENDED) {
		WORLD_UNTIL(w, job_is(w, id, eid, STORE_EXEC_EXITED));
	}
	/* What the restart finds is what counts. */
	if (cell->row == JOB_ROW_UNSURE) {
		job_put_row(w, id, eid, true, STORE_EXEC_RUNNING);
	} else if (cell->row == JOB_ROW_ENDED) {
		job_put_row(w, id, eid, true, STORE_EXEC_FAILED);
	} else {
		job_put_row(w, id, eid, true, STORE_EXEC_FAILED);
		drop_row(w, id);
	}
	return eid;
}

static void expect_cell(struct world *w, const char *id, const char *eid, const struct cell *cell)
{
	switch (cell->action) {
	case JOB_WAIT:
		WORLD_UNTIL(w, fake_guest_calls(w->guests, FAKE_GUEST_JOB_WAIT) > 0);
		if (cell->word == JOB_WORD_ENDED) {
			WORLD_UNTIL(w, job_is(w, id, eid, STORE_EXEC_EXITED));
			struct store_exec row = job_record(w, id, eid);

			assert_int_equal(row.exit_code, 4);
			store_exec_fini(&row);
		}
		break;
	case JOB_LOSE:
		WORLD_UNTIL(w, job_is(w, id, eid, STORE_EXEC_LOST));
		job_expect_error(w, id, eid, STORE_EXEC_LOST, "the guest doesn't know it");
		break;
	case JOB_KILL:
		WORLD_UNTIL(w, !fake_guest_job(w->guests, id, eid)->is_running);
		assert_int_equal(fake_guest_job(w->guests, id, eid)->signal, 9);
		break;
	case JOB_FORGET:
		WORLD_UNTIL(w, !fake_guest_job(w->guests, id, eid));
		break;
	case JOB_NOTHING:
	default:
		world_run(w, 50);
		if (cell->word != JOB_WORD_UNKNOWN) {
			assert_non_null(fake_guest_job(w->guests, id, eid));
		}
		break;
	}
}

static void test_each_row_and_each_word_of_the_guest_come_to_one_truth(void **state)
{
	static const struct cell cells[] = {
		{JOB_ROW_NONE, JOB_WORD_RUNNING, JOB_KILL},
		{JOB_ROW_NONE, JOB_WORD_ENDED, JOB_FORGET},
		{JOB_ROW_ENDED, JOB_WORD_UNKNOWN, JOB_NOTHING},
		{JOB_ROW_ENDED, JOB_WORD_RUNNING, JOB_KILL},
		{JOB_ROW_ENDED, JOB_WORD_ENDED, JOB_NOTHING},
		{JOB_ROW_UNSURE, JOB_WORD_UNKNOWN, JOB_LOSE},
		{JOB_ROW_UNSURE, JOB_WORD_RUNNING, JOB_WAIT},
		{JOB_ROW_UNSURE, JOB_WORD_ENDED, JOB_WAIT},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cells); i++) {
		const struct cell *cell = &cells[i];
		struct world *w = world_new(NULL);
		const char *id = world_running(w, NULL);
		const char *eid = make_cell(w, id, cell);

		assert_int_equal(job_decide(cell->row, cell->word), cell->action);
		/* As by kill -9: nothing is written on the way down that would settle it. */
		job_reopen(w);
		expect_cell(w, id, eid, cell);
		world_free(w);
	}
}

static void test_a_guest_does_not_fill_the_log_with_commands_of_its_own(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);
	char name[] = "/tmp/paddock-log-XXXXXX";
	int saved = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
	int fd = mkostemp(name, O_CLOEXEC);
	static char text[65536];
	unsigned lines = 0;

	(void)state;
	assert_true(saved >= 0 && fd >= 0 && unlink(name) == 0);
	for (unsigned i = 0; i < 20; i++) {
		job_put_row(w, id, job_start(w, id, "hang"), true, STORE_EXEC_FAILED);
	}
	log_set_level(LOG_LEVEL_INFO);
	dup2(fd, STDERR_FILENO);
	job_reopen(w);
	WORLD_UNTIL(w, fake_guest_calls(w->guests, FAKE_GUEST_SIGNAL) == 20);
	dup2(saved, STDERR_FILENO);
	log_set_level(LOG_LEVEL_ERR);
	assert_true(pread(fd, text, sizeof text - 1, 0) > 0);
	for (const char *at = text; (at = strstr(at, "without a record")); at++) {
		lines++;
	}
	assert_in_range(lines, 1, 2 * LOG_LIMIT_PER_SECOND);
	close(saved);
	close(fd);
	world_free(w);
}

static void test_calls_under_way_know_better_than_the_list(void **state)
{
	(void)state;
	for (enum job_word word = 0; word < JOB_WORD_MAX; word++) {
		assert_int_equal(job_decide(JOB_ROW_OURS, word), JOB_NOTHING);
	}
	/* A list that was asked for before the start: its silence is no news. */
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);

	fake_guest_script(w->guests, FAKE_GUEST_JOB_LIST,
		&(struct fake_script){.mode = FAKE_OK, .delay_ms = 100, .times = 1});
	fake_guest_drop(w->guests, id, 0);
	WORLD_UNTIL(w, fake_guest_calls(w->guests, FAKE_GUEST_JOB_LIST) > 0);
	const char *eid = job_start(w, id, "hang");

	world_run(w, 200);
	assert_true(job_is(w, id, eid, STORE_EXEC_RUNNING));
	world_free(w);
}

static void test_foreground_commands_of_before_are_lost(void **state)
{
	static const char eid[] = "ex_00000000000000000001";
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);

	(void)state;
	w->config.results_count = 5;
	job_put_row(w, id, eid, false, STORE_EXEC_RUNNING);
	world_stop(w);
	world_start(w);
	job_expect_error(w, id, eid, STORE_EXEC_LOST, "the service was restarted while it ran");
	world_free(w);
}

/* ---- refusals and failures ---- */

static void test_no_more_run_at_a_time_than_the_limit(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);
	struct started refused;
	struct err err;

	(void)state;
	const char *last = NULL;

	for (int i = 0; i < 32; i++) {
		last = job_start(w, id, "hang");
	}
	assert_null(job_begin(w, id, "hang", &refused, &err));
	assert_int_equal(err.kind, ERR_RATE);
	assert_err_says(&err, "wait for one to end, or kill one");
	/* What is refused leaves nothing, and other operations go on, as many as there is room for.
	 */
	struct store_exec_list list;

	assert_ok(sandbox_execs(w->all, id, &list, &err), &err);
	assert_int_equal(list.count, 32);
	store_exec_list_fini(&list);
	static struct world_answer answers[24];
	struct world_answer answer;

	for (size_t i = 0; i < ARRAY_SIZE(answers); i++) {
		world_exec_start(w, id, "hang", &answers[i]);
	}
	/* One more would have no stream. */
	const struct sandbox_exec_spec spec = {.command = "true"};

	assert_null(sandbox_exec(world_find(w, id), &spec, world_on_exec, &answer, &err));
	assert_int_equal(err.kind, ERR_RATE);
	assert_err_says(&err, "24 operations");
	/* But to end one is possible. */
	struct world_answer killed = {0};

	assert_non_null(
		sandbox_exec_signal(world_find(w, id), last, 9, world_on_done, &killed, &err));
	WORLD_UNTIL(w, killed.count == 1 && job_is(w, id, last, STORE_EXEC_EXITED));
	assert_int_equal(killed.kind, ERR_NONE);
	world_free(w);
}

static void test_a_start_that_the_guest_refuses_is_a_failure_on_record(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);
	struct started started;
	struct err err;

	(void)state;
	fake_guest_script(w->guests, FAKE_GUEST_JOB_START,
		&(struct fake_script){.mode = FAKE_FAIL, .kind = ERR_GUEST, .times = 1});
	assert_non_null(job_begin(w, id, "hang", &started, &err));
	WORLD_UNTIL(w, started.count == 1);
	assert_int_equal(started.kind, ERR_GUEST);
	job_expect_error(w, id, started.id, STORE_EXEC_FAILED, "scripted failure");
	assert_int_equal(fake_guest_job_count(w->guests, id), 0);
	world_free(w);
}

/* It was answered with a failure: so it may not run on. */
static void test_a_start_that_is_not_confirmed_is_undone(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);
	struct started started;
	struct err err;

	(void)state;
	fake_guest_script(w->guests, FAKE_GUEST_JOB_START,
		&(struct fake_script){.mode = FAKE_EFFECT_FAIL, .kind = ERR_TIMEOUT, .times = 1});
	assert_non_null(job_begin(w, id, "hang", &started, &err));
	WORLD_UNTIL(w, started.count == 1);
	assert_int_equal(started.kind, ERR_TIMEOUT);
	assert_true(job_is(w, id, started.id, STORE_EXEC_FAILED));
	WORLD_UNTIL(w, !fake_guest_job(w->guests, id, started.id)->is_running);
	assert_int_equal(fake_guest_job(w->guests, id, started.id)->signal, 9);
	world_free(w);
}

static void test_a_channel_lost_during_the_start_undoes_it_too(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);
	struct started started;
	struct err err;

	(void)state;
	fake_guest_script(w->guests, FAKE_GUEST_JOB_START,
		&(struct fake_script){.mode = FAKE_OK, .delay_ms = 500, .times = 1});
	assert_non_null(job_begin(w, id, "hang", &started, &err));
	fake_guest_drop(w->guests, id, 50);
	WORLD_UNTIL(w, started.count == 1);
	assert_int_equal(started.kind, ERR_UNAVAILABLE);
	WORLD_UNTIL(w, fake_guest_job(w->guests, id, started.id) &&
			       !fake_guest_job(w->guests, id, started.id)->is_running);
	assert_true(job_is(w, id, started.id, STORE_EXEC_FAILED));
	world_free(w);
}

#ifdef PADDOCK_TEST_HOOKS
static void test_without_its_row_nothing_is_started(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);
	struct started started;
	struct store_exec_list list;
	struct err err;

	(void)state;
	fault_set("job.row:fail");
	assert_null(job_begin(w, id, "hang", &started, &err));
	fault_set(NULL);
	assert_int_equal(err.kind, ERR_UNAVAILABLE);
	assert_int_equal(fake_guest_calls(w->guests, FAKE_GUEST_JOB_START), 0);
	assert_ok(sandbox_execs(w->all, id, &list, &err), &err);
	assert_int_equal(list.count, 0);
	store_exec_list_fini(&list);
	world_free(w);
}
#endif

/* ---- records go ---- */

static void test_what_has_no_record_is_not_kept_in_the_guest_either(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);
	struct store_exec_list list;
	struct err err;

	(void)state;
	const char *runs = world_keep_id(job_start(w, id, "hang"));

	for (int i = 0; i < 40; i++) {
		const char *eid = job_start(w, id, "true");

		WORLD_UNTIL(w, !job_is(w, id, eid, STORE_EXEC_RUNNING));
	}
	WORLD_UNTIL(w, fake_guest_job_count(w->guests, id) == 33);
	assert_ok(sandbox_execs(w->all, id, &list, &err), &err);
	assert_int_equal(list.count, 33);
	/* Oldest, and there because it runs. */
	assert_string_equal(list.rows[32].id, runs);
	store_exec_list_fini(&list);
	world_free(w);
}

static void test_foreground_results_push_out_no_background_ones(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);
	struct world_answer answer;

	(void)state;
	job_keep_results(w, 2, 100);
	const char *eid = job_start(w, id, "exit 6");

	WORLD_UNTIL(w, job_is(w, id, eid, STORE_EXEC_EXITED));
	for (int i = 0; i < 10; i++) {
		world_exec(w, id, "true", &answer);
	}
	assert_true(job_is(w, id, eid, STORE_EXEC_EXITED));
	world_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			test_a_record_is_there_before_the_answer_and_ends_with_the_command),
		cmocka_unit_test(test_the_tail_of_a_record_has_both_outputs_in_order),
		cmocka_unit_test(test_waits_are_told_once_and_not_when_cancelled),
		cmocka_unit_test(test_a_starter_that_leaves_does_not_stop_it),
		cmocka_unit_test(test_a_command_goes_on_over_a_restart_of_the_service),
		cmocka_unit_test(test_what_ended_meanwhile_is_found_with_its_tail),
		cmocka_unit_test(test_a_lost_channel_ends_no_command),
		cmocka_unit_test(test_a_guest_that_is_busy_loses_no_command),
		cmocka_unit_test(test_each_row_and_each_word_of_the_guest_come_to_one_truth),
		cmocka_unit_test(test_a_guest_does_not_fill_the_log_with_commands_of_its_own),
		cmocka_unit_test(test_calls_under_way_know_better_than_the_list),
		cmocka_unit_test(test_foreground_commands_of_before_are_lost),
		cmocka_unit_test(test_no_more_run_at_a_time_than_the_limit),
		cmocka_unit_test(test_a_start_that_the_guest_refuses_is_a_failure_on_record),
		cmocka_unit_test(test_a_start_that_is_not_confirmed_is_undone),
		cmocka_unit_test(test_a_channel_lost_during_the_start_undoes_it_too),
#ifdef PADDOCK_TEST_HOOKS
		cmocka_unit_test(test_without_its_row_nothing_is_started),
#endif
		cmocka_unit_test(test_what_has_no_record_is_not_kept_in_the_guest_either),
		cmocka_unit_test(test_foreground_results_push_out_no_background_ones),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
