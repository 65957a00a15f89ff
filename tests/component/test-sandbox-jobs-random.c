/*
 * Random histories of commands, checked against a model: starts that work and fail, ends, signals,
 * readers, waits and clients that leave, lost channels, agents that are started anew, restarts of
 * the service and of the sandbox. Whenever things have settled, each record says what the model
 * does, record and guest agree, and whoever asked was told once.
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
#define RESULTS  64 /* the same of foreground ones, as configured */
#define SIDE_MAX 8  /* readers, and waits */

enum fate { RUNS, EXITS, KILLED, LOST, FAILED };

struct job {
	char id[ID_BYTES];
	enum fate fate;
	int code;         /* EXITS: the exit code; KILLED: the signal */
	bool is_told;     /* its start has been answered */
	bool may_be_lost; /* the machine went before its end was heard of */
};

/* In the foreground: what its client was told must be what the record says. */
struct foreground {
	char id[ID_BYTES]; /* "": not told yet */
	struct sandbox_call *call;
	unsigned told;
	bool has_left;
	enum err_kind kind;
	int exit_code;
	int signal;
};

struct reader {
	struct sandbox_call *call; /* NULL: none */
	bool is_paused;
};

struct wait {
	struct sandbox_exec_wait *wait; /* NULL: none */
	char id[ID_BYTES];
};

static struct world *w;
static const char *sandbox_id;
static struct foreground foregrounds[JOBS_MAX];
static size_t foreground_count;
static struct reader readers[SIDE_MAX];
static struct wait waits[SIDE_MAX];
static bool is_stopping;
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

static bool is_open(const struct foreground *fg)
{
	return fg->told == 0 && !fg->has_left;
}

static unsigned count_open(void)
{
	unsigned count = 0;

	for (size_t i = 0; i < foreground_count; i++) {
		count += is_open(&foregrounds[i]);
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
		    (err.kind == ERR_RATE && count_running() + count_open() >= KEPT / 2));
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

/* ---- foreground commands ---- */

static void on_foreground_started(void *arg, const char *id)
{
	struct foreground *fg = arg;

	assert_int_equal(fg->told, 0);
	snprintf(fg->id, sizeof fg->id, "%s", id);
}

static void on_foreground_output(void *arg, int fd, const void *data, size_t len)
{
	const struct foreground *fg = arg;

	(void)fd;
	(void)data;
	assert_true(len > 0 && fg->id[0] && fg->told == 0);
}

static void on_foreground_done(
	void *arg, const struct sandbox_exec_result *result, const struct err *err)
{
	struct foreground *fg = arg;

	assert_true(!fg->has_left && (!result == !!err));
	fg->told++;
	fg->kind = err ? err->kind : ERR_NONE;
	if (result) {
		snprintf(fg->id, sizeof fg->id, "%s", result->id);
		fg->exit_code = result->guest.exit_code;
		fg->signal = result->guest.signal;
	}
}

static void run_foreground(void)
{
	static const char *const commands[] = {"hang", "hang", "exit 3", "echo ready", "sleep 5"};
	struct foreground *fg = &foregrounds[foreground_count];
	const struct sandbox_exec_spec spec = {.command = commands[roll(ARRAY_SIZE(commands))]};
	const struct sandbox_exec_hooks hooks = {.on_started = on_foreground_started,
		.on_output = on_foreground_output,
		.on_done = on_foreground_done,
		.arg = fg};
	struct err err;

	assert_true(foreground_count < JOBS_MAX);
	*fg = (struct foreground){0};
	fg->call = roll(2) ? sandbox_exec_stream(sandbox(), &spec, &hooks, &err)
			   : sandbox_exec(sandbox(), &spec, on_foreground_done, fg, &err);
	foreground_count += fg->call != NULL;
	assert_true(fg->call || err.kind == ERR_UNAVAILABLE || err.kind == ERR_RATE);
}

/* Its client leaves, or it is called off, or it is killed by somebody else. */
static void end_foreground(void)
{
	struct world_answer answer = {0};
	struct err err;

	for (size_t i = 0; i < foreground_count; i++) {
		struct foreground *fg = &foregrounds[i];
		unsigned how = roll(3);

		if (!is_open(fg) || roll(3) > 0) {
			continue;
		}
		if (how == 0) {
			fg->has_left = true;
			sandbox_call_abandon(fg->call);
		} else if (how == 1) {
			sandbox_call_cancel(fg->call);
		} else if (fg->id[0] && sandbox_exec_signal(sandbox(), fg->id, 9, world_on_done,
						&answer, &err)) {
			/* It may have ended by itself. */
			WORLD_UNTIL(w, answer.count == 1);
		}
		return;
	}
}

static void expect_all_told(void)
{
	for (size_t i = 0; i < foreground_count; i++) {
		assert_int_equal(foregrounds[i].told, foregrounds[i].has_left ? 0 : 1);
	}
}

/* ---- readers and waits ---- */

static void on_read_job(void *arg, const struct guest_job *job)
{
	(void)job;
	assert_non_null(((struct reader *)arg)->call);
}

static void on_read_start(void *arg, uint64_t offset)
{
	(void)offset;
	assert_non_null(((struct reader *)arg)->call);
}

static void on_read_output(void *arg, int fd, const void *data, size_t len)
{
	(void)fd;
	(void)data;
	assert_true(((struct reader *)arg)->call && len > 0);
}

static void on_read_done(void *arg, const struct guest_status *status, const struct err *err)
{
	struct reader *reader = arg;

	(void)status;
	(void)err;
	assert_non_null(reader->call);
	reader->call = NULL;
}

/* One of the last; NULL: there is none. */
static const char *some_id(void)
{
	size_t back = 1 + roll(8);

	return back <= job_count ? jobs[job_count - back].id : NULL;
}

/* Begins a reading, pauses it or lets it go on, or leaves. */
static void turn_reader(void)
{
	struct reader *reader = &readers[roll(SIDE_MAX)];
	const char *id = some_id();
	const struct guest_read_spec spec = {.id = id, .max = UINT64_MAX, .is_followed = true};
	const struct guest_job_hooks hooks = {.on_job = on_read_job,
		.on_start = on_read_start,
		.on_output = on_read_output,
		.on_done = on_read_done,
		.arg = reader};
	struct err err;

	if (!reader->call && id) {
		reader->is_paused = false;
		reader->call = sandbox_job_read(sandbox(), &spec, &hooks, &err);
	} else if (reader->call && roll(2)) {
		reader->is_paused = !reader->is_paused;
		sandbox_exec_pause(reader->call, reader->is_paused);
	} else if (reader->call) {
		sandbox_call_abandon(steal_ptr(&reader->call));
	}
}

static void on_waited(void *arg)
{
	_cleanup_store_exec_ struct store_exec row = {0};
	struct wait *wait = arg;
	struct err err;

	assert_non_null(wait->wait);
	wait->wait = NULL;
	if (!is_stopping) {
		assert_ok(sandbox_exec_get(w->all, sandbox_id, wait->id, &row, &err), &err);
		assert_int_not_equal(row.state, STORE_EXEC_RUNNING);
	}
}

static void turn_wait(void)
{
	struct wait *wait = &waits[roll(SIDE_MAX)];
	const char *id = some_id();

	if (wait->wait) {
		sandbox_exec_wait_cancel(steal_ptr(&wait->wait));
	} else if (id) {
		snprintf(wait->id, sizeof wait->id, "%s", id);
		wait->wait = sandbox_exec_wait(sandbox(), id, on_waited, wait);
	}
}

static void expect_no_side(void)
{
	for (size_t i = 0; i < SIDE_MAX; i++) {
		assert_null(readers[i].call);
		assert_null(waits[i].wait);
	}
}

/* ---- what comes from outside ---- */

static void restart_agent(void)
{
	fake_guest_restart_agent(w->guests, sandbox_id);
	for (size_t i = 0; i < job_count; i++) {
		/* Its end may have been heard of. */
		jobs[i].may_be_lost |= jobs[i].fate == EXITS || jobs[i].fate == KILLED;
		if (jobs[i].fate == RUNS) {
			jobs[i].fate = LOST;
		}
	}
}

static void restart_service(void)
{
	is_stopping = true;
	world_stop(w);
	is_stopping = false;
	expect_all_told();
	expect_no_side();
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
		if (list.rows[i].is_background && list.rows[i].state == STORE_EXEC_RUNNING) {
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
	expect_all_told();
	expect_no_side();
}

/* ---- what must be then ---- */

static const struct foreground *foreground_of(const char *id)
{
	for (size_t i = 0; i < foreground_count; i++) {
		if (strcmp(foregrounds[i].id, id) == 0) {
			return &foregrounds[i];
		}
	}
	return NULL;
}

static bool is_as_told(const struct store_exec *row)
{
	const struct foreground *fg = foreground_of(row->id);

	if (!fg) {
		return true; /* they are counted */
	}
	if (fg->has_left) {
		return row->state != STORE_EXEC_RUNNING;
	}
	if (fg->told == 0) {
		return row->state == STORE_EXEC_RUNNING;
	}
	if (fg->kind == ERR_NONE) {
		return row->state == STORE_EXEC_EXITED && row->exit_code == fg->exit_code &&
		       row->signal == fg->signal;
	}
	return row->state == STORE_EXEC_LOST || row->state == STORE_EXEC_FAILED;
}

static bool is_as_modelled(const struct store_exec *row)
{
	if (!row->is_background) {
		return is_as_told(row);
	}
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
	unsigned running[2] = {0};
	unsigned count[2] = {0};
	size_t held = fake_guest_job_count(w->guests, sandbox_id);
	struct err err;

	assert_ok(sandbox_execs(w->all, sandbox_id, &list, &err), &err);
	for (size_t i = 0; i < list.count; i++) {
		const struct store_exec *row = &list.rows[i];

		if (!is_as_modelled(row)) {
			const struct job *job = model_of(row->id);

			snprintf(why, sizeof why, "%s is %s (%d, %s), not %d (%d)", row->id,
				store_exec_state_name(row->state), row->exit_code, row->error,
				job ? (int)job->fate : -1, job ? job->code : 0);
			return false;
		}
		count[row->is_background]++;
		running[row->is_background] += row->state == STORE_EXEC_RUNNING;
	}
	/* None that runs is missing, and the guest keeps no more than the records do. */
	snprintf(why, sizeof why, "%u of %u run, of %u; the guest has %zu; foreground: %u of %u",
		running[1], count_running(), count[1], held, running[0], count_open());
	return running[1] == count_running() && count[1] <= running[1] + KEPT && held <= count[1] &&
	       running[0] == count_open() && count[0] <= running[0] + RESULTS;
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

/* Whoever is still there leaves: then nothing is under way but the waits for what runs. */
static void leave_all(void)
{
	for (size_t i = 0; i < SIDE_MAX; i++) {
		if (readers[i].call) {
			sandbox_call_abandon(steal_ptr(&readers[i].call));
		}
		if (waits[i].wait) {
			sandbox_exec_wait_cancel(steal_ptr(&waits[i].wait));
		}
	}
	for (size_t i = 0; i < foreground_count; i++) {
		if (is_open(&foregrounds[i])) {
			foregrounds[i].has_left = true;
			sandbox_call_abandon(foregrounds[i].call);
		}
	}
	settle();
	WORLD_UNTIL(w, fake_guest_call_count(w->guests) == count_running());
}

static void set_up(void)
{
	const char *seed = getenv("TEST_SEED");

	rand_bytes(&random_state, sizeof random_state);
	random_state = seed ? (unsigned)strtoul(seed, NULL, 10) : random_state;
	print_message("TEST_SEED=%u\n", random_state);
	w = world_new_stopped(NULL);
	w->config.results_count = RESULTS;
	w->config.result_bytes = 16;
	world_start(w);
	struct sandbox_create_spec spec = world_spec(w, NULL);

	spec.is_temporary = false;
	sandbox_id = world_create_spec(w, &spec);
	WORLD_UNTIL(w, world_is_state(w, sandbox_id, "running"));
	job_count = 0;
	foreground_count = 0;
}

static void test_records_tell_the_truth_whatever_happens(void **state)
{
	static const struct {
		void (*fn)(void);
		unsigned weight;
	} steps[] = {{start, 16}, {start_and_fail, 2}, {kill_one, 8}, {run_foreground, 12},
		{end_foreground, 8}, {turn_reader, 6}, {turn_wait, 6}, {drop_channel, 2},
		{restart_agent, 1}, {restart_service, 2}, {restart_sandbox, 1}};
	const char *rounds = getenv("TEST_ROUNDS");
	unsigned count = rounds ? (unsigned)strtoul(rounds, NULL, 10) : 400;
	unsigned total = 0;

	(void)state;
	set_up();
	for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
		total += steps[i].weight;
	}
	for (unsigned i = 0; i < count && job_count + 1 < JOBS_MAX; i++) {
		unsigned left = roll(total);
		size_t step = 0;

		while (left >= steps[step].weight) {
			left -= steps[step++].weight;
		}
		steps[step].fn();
		if (roll(8) == 0) {
			settle();
		}
	}
	leave_all();
	world_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_records_tell_the_truth_whatever_happens),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
