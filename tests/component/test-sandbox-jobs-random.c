/*
 * Random histories of background commands, checked against a model: starts that work and fail,
 * ends, signals, lost channels, restarts of the service and of the sandbox. Whenever things have
 * settled, each record says what the model does, and record and guest agree.
 *
 * TEST_SEED repeats a history, TEST_ROUNDS makes it longer.
 */
#include "tests/lib/world.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/rand.h"
#include "store/store_exec.h"

#define JOBS_MAX 4096
#define KEPT     32 /* ended ones, as in exec_records.c */

enum fate { RUNS, EXITS, KILLED, LOST, FAILED };

struct job {
	char id[ID_BYTES];
	enum fate fate;
	int code;         /* EXITS: the exit code; KILLED: the signal */
	bool is_told;     /* its start has been answered */
	bool may_be_lost; /* the machine went before its end was heard of */
};

static struct world *w;
static const char *sandbox_id;
static struct job jobs[JOBS_MAX];
static size_t job_count;
static unsigned random_state;

static unsigned roll(unsigned below)
{
	random_state = random_state * 1664525 + 1013904223;
	return (random_state >> 8) % below;
}

static struct sandbox *sandbox(void)
{
	struct sandbox *sb = world_find(w, sandbox_id);

	assert_non_null(sb);
	return sb;
}

static struct job *model_of(const char *id)
{
	for (size_t i = 0; i < job_count; i++) {
		if (strcmp(jobs[i].id, id) == 0) {
			return &jobs[i];
		}
	}
	return NULL;
}

/* ---- what happens ---- */

static void on_started(
	void *arg, const char *exec_id, const struct guest_status *status, const struct err *err)
{
	struct job *job = arg;

	(void)status;
	job->is_told = true;
	snprintf(job->id, sizeof job->id, "%s", exec_id);
	if (err) {
		job->fate = FAILED;
	}
}

static unsigned count_running(void)
{
	unsigned count = 0;

	for (size_t i = 0; i < job_count; i++) {
		count += jobs[i].fate == RUNS;
	}
	return count;
}

static void start(void)
{
	struct job *job = &jobs[job_count];
	char command[32] = "hang";
	const struct guest_job_spec spec = {.exec = {.command = command}};
	struct err err;

	assert_true(job_count < JOBS_MAX);
	*job = (struct job){.fate = RUNS};
	if (roll(2)) {
		job->fate = EXITS;
		job->code = (int)roll(100);
		snprintf(command, sizeof command, "exit %d", job->code);
	}
	if (sandbox_job_start(sandbox(), &spec, on_started, job, &err)) {
		job_count++;
		WORLD_UNTIL(w, job->is_told);
		return;
	}
	/* The agent isn't there yet, or there are enough. */
	assert_true(err.kind == ERR_UNAVAILABLE ||
		    (err.kind == ERR_RATE && count_running() >= KEPT / 2));
}

static void start_and_fail(void)
{
	static const enum err_kind kinds[] = {ERR_GUEST, ERR_TIMEOUT, ERR_UNAVAILABLE};
	const struct fake_script script = {.mode = roll(2) ? FAKE_FAIL : FAKE_EFFECT_FAIL,
		.kind = kinds[roll(ARRAY_SIZE(kinds))],
		.times = 1};
	const struct fake_script fine = {.mode = FAKE_OK};

	fake_guest_script(w->guests, FAKE_GUEST_JOB_START, &script);
	start();
	fake_guest_script(w->guests, FAKE_GUEST_JOB_START, &fine);
}

static void kill_one(void)
{
	struct world_answer answer = {0};
	struct err err;

	for (size_t i = 0; i < job_count; i++) {
		struct job *job = &jobs[i];
		int signal = 1 + (int)roll(15);

		if (job->fate != RUNS || roll(3) > 0) {
			continue;
		}
		if (sandbox_exec_signal(sandbox(), job->id, signal, world_on_done, &answer, &err)) {
			WORLD_UNTIL(w, answer.count == 1);
			assert_int_equal(answer.kind, ERR_NONE);
			job->fate = KILLED;
			job->code = signal;
		}
		return;
	}
}

static void drop_channel(void)
{
	fake_guest_drop(w->guests, sandbox_id, (int)roll(30));
}

static void restart_service(void)
{
	world_stop(w);
	world_run(w, roll(20));
	world_start(w);
}

static void restart_sandbox(void)
{
	_cleanup_store_exec_list_ struct store_exec_list list = {0};
	struct world_answer answer = {0};
	struct err err;

	assert_ok(sandbox_execs(w->all, sandbox_id, &list, &err), &err);
	if (sandbox_restart(sandbox(), &err) != 0) {
		return;
	}
	for (size_t i = 0; i < list.count; i++) {
		if (list.rows[i].state == STORE_EXEC_RUNNING) {
			model_of(list.rows[i].id)->may_be_lost = true;
		}
	}
	assert_non_null(sandbox_wait_ready(sandbox(), world_on_wait, &answer));
	WORLD_UNTIL(w, answer.count == 1);
	assert_int_equal(answer.kind, ERR_NONE);
	for (size_t i = 0; i < job_count; i++) {
		if (jobs[i].fate == RUNS) {
			jobs[i].fate = LOST;
		}
	}
}

/* ---- what must be then ---- */

static bool is_as_modelled(const struct store_exec *row)
{
	const struct job *job = model_of(row->id);
	const struct fake_job_view *view = fake_guest_job(w->guests, sandbox_id, row->id);
	bool runs = view && view->is_running;

	if (!job) {
		fail_msg("a record of what was never started: %s", row->id);
	}
	if (job->may_be_lost && !runs && row->state == STORE_EXEC_LOST) {
		return true;
	}
	switch (job->fate) {
	case RUNS:
		return row->state == STORE_EXEC_RUNNING && runs;
	case EXITS:
		return !runs && row->state == STORE_EXEC_EXITED && row->exit_code == job->code;
	case KILLED:
		return !runs && row->state == STORE_EXEC_EXITED && row->signal == job->code;
	case LOST:
		return !runs && row->state == STORE_EXEC_LOST;
	case FAILED:
	default:
		return !runs && row->state == STORE_EXEC_FAILED;
	}
}

static char why[160]; /* it isn't settled */

static bool is_settled(void)
{
	_cleanup_store_exec_list_ struct store_exec_list list = {0};
	unsigned running = 0;
	struct err err;

	assert_ok(sandbox_execs(w->all, sandbox_id, &list, &err), &err);
	for (size_t i = 0; i < list.count; i++) {
		if (!is_as_modelled(&list.rows[i])) {
			const struct job *job = model_of(list.rows[i].id);

			snprintf(why, sizeof why, "%s is %s (%d, %s), not %d (%d)", job->id,
				store_exec_state_name(list.rows[i].state), list.rows[i].exit_code,
				list.rows[i].error, job->fate, job->code);
			return false;
		}
		running += list.rows[i].state == STORE_EXEC_RUNNING;
	}
	/* None that runs is missing, and the guest keeps no more than the records do. */
	snprintf(why, sizeof why, "%u of %u run, of %zu; the guest has %zu", running,
		count_running(), list.count, fake_guest_job_count(w->guests, sandbox_id));
	return running == count_running() && list.count <= running + KEPT &&
	       fake_guest_job_count(w->guests, sandbox_id) <= list.count;
}

static void settle(void)
{
	uint64_t until_ms = real_ms() + WORLD_PATIENCE_MS;

	while (!is_settled()) {
		if (real_ms() > until_ms) {
			fail_msg("not settled: %s", why);
		}
		world_turn(w);
	}
}

static void test_records_tell_the_truth_whatever_happens(void **state)
{
	static void (*const steps[])(void) = {start, start, start, start, start_and_fail, kill_one,
		kill_one, drop_channel, restart_service, restart_sandbox};
	static const unsigned weights[] = {4, 4, 4, 4, 2, 4, 4, 2, 2, 1};
	const char *seed = getenv("TEST_SEED");
	const char *rounds = getenv("TEST_ROUNDS");
	unsigned count = rounds ? (unsigned)strtoul(rounds, NULL, 10) : 400;

	(void)state;
	rand_bytes(&random_state, sizeof random_state);
	random_state = seed ? (unsigned)strtoul(seed, NULL, 10) : random_state;
	print_message("TEST_SEED=%u\n", random_state);
	w = world_new(NULL);
	struct sandbox_create_spec spec = world_spec(w, NULL);

	spec.is_temporary = false;
	sandbox_id = world_create_spec(w, &spec);
	WORLD_UNTIL(w, world_is_state(w, sandbox_id, "running"));
	job_count = 0;
	for (unsigned i = 0; i < count && job_count + 1 < JOBS_MAX; i++) {
		unsigned step = roll(ARRAY_SIZE(steps));

		if (roll(4) < weights[step]) {
			steps[step]();
		}
		if (roll(8) == 0) {
			settle();
		}
	}
	settle();
	world_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_records_tell_the_truth_whatever_happens),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
