#include "base/xalloc.h"
#include "sandbox/exec_records.h"
#include "sandbox/sandbox_call.h"

/*
 * Theory of operation. What can be done with a command that is there: read its output, write its
 * input, send it a signal, resize its terminal. As in files.c nothing is held here: the guest has
 * the output, and input travels through a pipe.
 *
 * Reads that wait may last for as long as the command: they have no more than a part of the calls
 * that a sandbox may have under way, so that the others find room.
 */

#define WAITING_READS_MAX 16

struct job_call {
	struct sandbox_call call;
	struct guest_job_hooks hooks; /* a read's */
	bool is_waiting_read;
	guest_done_fn done;
	void *arg;
};

static struct sandbox_call *begin(
	struct sandbox *sb, struct job_call *job, struct guest_call *guest_call)
{
	if (!guest_call) {
		free(job);
		return NULL;
	}
	call_begin(sb, &job->call, guest_call);
	sb->waiting_reads += job->is_waiting_read;
	return &job->call;
}

static void on_done(void *arg, const struct guest_status *status, const struct err *err)
{
	struct job_call *job = arg;
	struct err better;

	job->call.sb->waiting_reads -= job->is_waiting_read;
	err = call_end(&job->call, err, &better);
	if (!job->call.is_abandoned) {
		job->done(job->arg, status, err);
	}
	free(job);
}

/* ---- reading ---- */

static void on_job(void *arg, const struct guest_job *guest_job)
{
	struct job_call *job = arg;

	if (!job->call.is_abandoned && job->hooks.on_job) {
		job->hooks.on_job(job->hooks.arg, guest_job);
	}
}

static void on_start(void *arg, uint64_t offset)
{
	struct job_call *job = arg;

	if (!job->call.is_abandoned) {
		job->hooks.on_start(job->hooks.arg, offset);
	}
}

static void on_output(void *arg, int fd, const void *data, size_t len)
{
	struct job_call *job = arg;

	if (!job->call.is_abandoned) {
		job->hooks.on_output(job->hooks.arg, fd, data, len);
	}
}

struct sandbox_call *sandbox_job_read(struct sandbox *sb, const struct guest_read_spec *spec,
	const struct guest_job_hooks *hooks, struct err *err)
{
	bool is_waiting = spec->is_followed || spec->wait_ms > 0;

	if (call_check(sb, err) != 0) {
		return NULL;
	}
	if (is_waiting && sb->waiting_reads >= WAITING_READS_MAX) {
		err_set(err, ERR_RATE,
			"%d readers wait for output in this sandbox, which is the limit: end one, "
			"or read without waiting",
			WAITING_READS_MAX);
		return NULL;
	}
	struct job_call *job = xnew(struct job_call);
	const struct guest_job_hooks own = {.on_job = on_job,
		.on_start = on_start,
		.on_output = on_output,
		.on_done = on_done,
		.arg = job};

	job->hooks = *hooks;
	job->done = hooks->on_done;
	job->arg = hooks->arg;
	job->is_waiting_read = is_waiting;
	return begin(sb, job, sb->guest->ops->job_read(sb->guest, spec, &own, err));
}

/* ---- the others ---- */

static int check_runs(struct sandbox *sb, const char *exec_id, struct err *err)
{
	return exec_record_find(sb, exec_id)
		       ? 0
		       : err_set(err, ERR_CONFLICT, "command %s has ended", exec_id);
}

static struct job_call *job_call_new(guest_done_fn done, void *arg)
{
	struct job_call *job = xnew(struct job_call);

	job->done = done;
	job->arg = arg;
	return job;
}

struct sandbox_call *sandbox_job_input(struct sandbox *sb, const char *exec_id, struct pipe *input,
	bool closes, guest_done_fn done, void *arg, struct err *err)
{
	if (call_check(sb, err) != 0 || check_runs(sb, exec_id, err) != 0) {
		return NULL;
	}
	struct job_call *job = job_call_new(done, arg);

	return begin(sb, job,
		sb->guest->ops->job_input(sb->guest, exec_id, input, closes, on_done, job, err));
}

struct sandbox_call *sandbox_job_resize(struct sandbox *sb, const char *exec_id, unsigned rows,
	unsigned cols, guest_done_fn done, void *arg, struct err *err)
{
	if (call_check(sb, err) != 0 || check_runs(sb, exec_id, err) != 0) {
		return NULL;
	}
	struct job_call *job = job_call_new(done, arg);

	return begin(sb, job,
		sb->guest->ops->job_resize(sb->guest, exec_id, rows, cols, on_done, job, err));
}

struct sandbox_call *sandbox_exec_signal(struct sandbox *sb, const char *exec_id, int signal,
	guest_done_fn done, void *arg, struct err *err)
{
	if (call_check_urgent(sb, err) != 0 || check_runs(sb, exec_id, err) != 0) {
		return NULL;
	}
	struct job_call *job = job_call_new(done, arg);

	return begin(
		sb, job, sb->guest->ops->signal(sb->guest, exec_id, signal, on_done, job, err));
}
