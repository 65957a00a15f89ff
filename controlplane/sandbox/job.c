#include "sandbox/job.h"

#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/xalloc.h"
#include "sandbox/exec_records.h"
#include "sandbox/sandbox_call.h"

/*
 * Theory of operation
 *
 * A background command lives in the guest, with its output; here is a record that says so and one
 * call that waits for its end. The record's row is written before the guest is told to start, so
 * that a daemon that is killed at any moment finds out afterwards: every channel that comes up
 * begins with the guest's list, which is compared with the records (job_table.c).
 *
 *	STARTING ──► WAITING ──► TAIL ──► (record ended)
 *	                ▲  │        │
 *	                │  ▼        ▼
 *	                 UNSURE ──────────► (record lost)
 *
 * A start that isn't confirmed has failed: the list shows whether it happened all the same, and it
 * is killed then. Once the end is known the last bytes of the output are read for the record; the
 * guest goes on keeping all it has until the record is removed.
 *
 * Whoever comes before the end of the sandbox is told by the guest; after it the record is all.
 */

#define JOBS_RUNNING_MAX 32 /* as in the guest */

static void job_free(struct sandbox_job *job)
{
	TAILQ_REMOVE(&job->sb->jobs, job, link);
	job->sb->job_count--;
	store_exec_fini(&job->tails);
	free(job);
}

static struct sandbox_job *job_new(
	struct sandbox *sb, struct exec_record *record, enum job_phase phase)
{
	struct sandbox_job *job = xnew(struct sandbox_job);

	job->sb = sb;
	job->record = record;
	job->phase = phase;
	TAILQ_INSERT_TAIL(&sb->jobs, job, link);
	sb->job_count++;
	return job;
}

struct sandbox_job *job_find(struct sandbox *sb, const char *id)
{
	struct sandbox_job *job;

	TAILQ_FOREACH (job, &sb->jobs, link) {
		if (strcmp(job_id(job), id) == 0) {
			return job;
		}
	}
	return NULL;
}

/* ---- ends ---- */

/* With what is known of its output by now. */
static void end(struct sandbox_job *job)
{
	struct exec_record *record = job->record;
	const struct guest_exec_result *result = &job->result;
	struct store_exec row = job->tails;

	job->tails = (struct store_exec){0};
	row.state = STORE_EXEC_EXITED;
	row.exit_code = result->exit_code;
	row.signal = result->signal;
	row.timed_out = result->timed_out;
	row.duration_ms = (int64_t)(result->duration_us / 1000);
	row.out.total = result->stdout_bytes;
	row.err_out.total = result->stderr_bytes;
	job_free(job);
	(void)fault_at("job.end");
	exec_record_end(record, &row);
}

void job_lose(struct sandbox_job *job, const char *why)
{
	struct exec_record *record = job->record;
	struct store_exec row = job->tails;

	if (job->has_result) {
		end(job);
		return;
	}
	job->tails = (struct store_exec){0};
	row.state = STORE_EXEC_LOST;
	row.error = xstrdup(why);
	job_free(job);
	exec_record_end(record, &row);
}

void jobs_lost(struct sandbox *sb)
{
	struct sandbox_job *job;
	struct err why;

	if (sandbox_check_running(sb, &why) == 0) {
		err_set(&why, ERR_ENDED, "the virtual machine of sandbox %s has ended",
			sb->row->id);
	}
	while ((job = TAILQ_FIRST(&sb->jobs))) {
		job_lose(job, why.msg);
	}
}

/* ---- the tail of what it said ---- */

static void on_tail_output(void *arg, int fd, const void *data, size_t len)
{
	struct sandbox_job *job = arg;

	job_tail_add(&job->tails, job->sb->all->config.result_bytes, fd, data, len);
}

static void on_tail_start(void *arg, uint64_t offset)
{
	struct sandbox_job *job = arg;

	(void)offset;
	/* A gap: what was before it isn't the tail. */
	store_exec_fini(&job->tails);
}

/* Else it didn't come to say anything: it is asked again. */
static bool is_guests_word(const struct err *err)
{
	return err->kind == ERR_GUEST;
}

static void become_unsure(struct sandbox_job *job)
{
	job->phase = JOB_UNSURE;
	job->sb->is_job_list_due = true;
}

static void on_tail_done(void *arg, const struct guest_status *status, const struct err *err)
{
	struct sandbox_job *job = arg;

	(void)status;
	if (err) {
		/* Its beginning isn't the tail. */
		store_exec_fini(&job->tails);
	}
	if (!err || is_guests_word(err)) {
		end(job);
	} else {
		become_unsure(job);
	}
}

static void read_tail(struct sandbox_job *job)
{
	struct sandbox *sb = job->sb;
	size_t cap = sb->all->config.result_bytes;
	uint64_t total = job->result.stdout_bytes + job->result.stderr_bytes;
	const struct guest_read_spec spec = {
		.id = job_id(job), .offset = total - MIN(total, cap), .max = cap};
	const struct guest_job_hooks hooks = {.on_start = on_tail_start,
		.on_output = on_tail_output,
		.on_done = on_tail_done,
		.arg = job};
	struct err err;

	job->phase = JOB_TAIL;
	store_exec_fini(&job->tails);
	if (cap == 0 || total == 0 || sb->all->config.results_count == 0) {
		end(job);
	} else if (!sb->guest || !sb->guest->ops->job_read(sb->guest, &spec, &hooks, &err)) {
		become_unsure(job);
	}
}

/* ---- its end ---- */

static void on_wait_done(void *arg, const struct guest_exec_result *result, const struct err *err)
{
	struct sandbox_job *job = arg;

	if (!err) {
		job->has_result = true;
		job->result = *result;
		read_tail(job);
	} else if (is_guests_word(err)) {
		job_lose(job, err->msg);
	} else {
		become_unsure(job);
	}
}

void job_wait_for_end(struct sandbox_job *job)
{
	struct sandbox *sb = job->sb;
	const struct guest_exec_hooks hooks = {.on_done = on_wait_done, .arg = job};
	struct err err;

	job->phase = JOB_WAITING;
	if (!sb->guest || !sb->guest->ops->job_wait(sb->guest, job_id(job), &hooks, &err)) {
		become_unsure(job);
	}
}

/* ---- start ---- */

static void tell_starter(struct sandbox_job *job)
{
	sandbox_job_fn fn = job->fn;

	job->fn = NULL;
	if (fn) {
		fn(job->arg, job_id(job), NULL, NULL);
	}
}

static void fail_start(struct exec_record *record, const struct err *err)
{
	exec_record_fail(
		record, STORE_EXEC_FAILED, err->kind == ERR_INTERNAL ? "internal error" : err->msg);
}

static void on_started(void *arg, const struct guest_status *status, const struct err *err)
{
	struct sandbox_job *job = arg;
	struct exec_record *record = job->record;
	sandbox_job_fn fn = job->fn;
	struct err better;

	if (!err) {
		(void)fault_at("job.start.done");
		job_wait_for_end(job);
		tell_starter(job);
		return;
	}
	err = call_error(job->sb, err, &better);
	/* It may run all the same. */
	jobs_sync_due(job->sb);
	void *fn_arg = job->arg;
	char id[ID_BYTES];

	memcpy(id, record->row.id, sizeof id);
	job_free(job);
	fail_start(record, err);
	if (fn) {
		fn(fn_arg, id, status, err);
	}
}

static int check_start(struct sandbox *sb, struct err *err)
{
	if (call_check(sb, err) != 0) {
		return -1;
	}
	if (sb->job_count >= JOBS_RUNNING_MAX) {
		return err_set(err, ERR_RATE,
			"%d background commands run in this sandbox, which is the limit: wait for "
			"one to end, or kill one",
			JOBS_RUNNING_MAX);
	}
	return 0;
}

/* The row, before the guest hears of it. */
static struct exec_record *intend(
	struct sandbox *sb, const struct guest_job_spec *spec, char id[ID_BYTES], struct err *err)
{
	struct exec_record *record;

	id_make(id, ID_EXEC);
	record = exec_record_begin(sb, id, spec->exec.args, spec->exec.command, true);
	record->row.has_tty = spec->has_tty;
	if (fault_at("job.row") == FAULT_FAIL) {
		(void)fault_fail(err, ERR_UNAVAILABLE);
	} else if (exec_record_write(record, err) == 0) {
		(void)fault_at("job.row.done");
		return record;
	}
	exec_record_drop(record);
	return NULL;
}

struct sandbox_job *sandbox_job_start(struct sandbox *sb, const struct guest_job_spec *spec,
	sandbox_job_fn fn, void *arg, struct err *err)
{
	struct guest_job_spec guest_spec = *spec;
	char id[ID_BYTES];

	if (check_start(sb, err) != 0) {
		return NULL;
	}
	struct exec_record *record = intend(sb, spec, id, err);

	if (!record) {
		return NULL;
	}
	struct sandbox_job *job = job_new(sb, record, JOB_STARTING);

	guest_spec.exec.id = id;
	job->fn = fn;
	job->arg = arg;
	if (!sb->guest->ops->job_start(sb->guest, &guest_spec, on_started, job, err)) {
		job_free(job);
		fail_start(record, err);
		return NULL;
	}
	return job;
}

void sandbox_job_leave(struct sandbox_job *job)
{
	job->fn = NULL;
}

/* ---- life ---- */

void job_adopt(struct exec_record *record)
{
	become_unsure(job_new(record->sb, record, JOB_UNSURE));
}

void jobs_init(struct sandbox *sb)
{
	TAILQ_INIT(&sb->jobs);
	job_tails_init(sb);
}

void jobs_fini(struct sandbox *sb)
{
	struct sandbox_job *job;

	while ((job = TAILQ_FIRST(&sb->jobs))) {
		ASSERT(job->phase == JOB_UNSURE);
		job_free(job);
	}
	job_tails_fini(sb);
}
