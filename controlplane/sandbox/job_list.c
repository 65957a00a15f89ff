#include <signal.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/xalloc.h"
#include "sandbox/exec_records.h"
#include "sandbox/job.h"
#include "sandbox/job_table.h"

/*
 * Theory of operation
 *
 * Every channel that comes up begins with the guest's list of background commands, which is
 * compared with the records; what to do about each is a table (job_table.c). A list that fails is
 * asked for again with the next hello, or the next reconciliation. Commands that began after it was
 * asked for have a call under way, which tells more than it does.
 */

#define LISTED_MAX 256 /* a guest that lists more isn't listened to */

/* A guest can cause these as often as it likes. */
static void log_job(struct sandbox *sb, const char *message, const struct err *err)
{
	unsigned suppressed;

	if (log_limit_allows(&sb->log_limit, clock_monotonic_ms(), &suppressed)) {
		log_failure(LOG_LEVEL_WARN, message, err, "sb=%s suppressed=%u", sb->row->id,
			suppressed);
	}
}

struct listing {
	struct sandbox *sb;
	size_t count;
};

static void ignore_done(void *arg, const struct guest_status *status, const struct err *err)
{
	(void)arg;
	(void)status;
	(void)err;
}

/* Of one that isn't in sandbox.jobs. -1: the row can't be read. */
static int row_of(struct sandbox *sb, const char *id, enum job_row *ret)
{
	_cleanup_store_exec_ struct store_exec row = {0};
	struct err err;

	if (exec_record_find(sb, id)) {
		*ret = JOB_ROW_OURS; /* a foreground command: no job has its id */
		return 0;
	}
	if (sandbox_exec_get(sb->all, sb->row->id, id, &row, &err) != 0) {
		*ret = JOB_ROW_NONE;
		return err.kind == ERR_NOT_FOUND ? 0 : -1;
	}
	*ret = JOB_ROW_ENDED;
	return 0;
}

static void act_on_stranger(struct sandbox *sb, const char *id, enum job_action action)
{
	struct guest *guest = sb->guest;
	unsigned suppressed;
	struct err err;

	if (action == JOB_KILL) {
		/* A guest can list as many as it likes. */
		if (log_limit_allows(&sb->log_limit, clock_monotonic_ms(), &suppressed)) {
			log_info("command without a record killed", "sb=%s suppressed=%u",
				sb->row->id, suppressed);
		}
		(void)guest->ops->signal(guest, id, SIGKILL, ignore_done, NULL, &err);
	} else if (action == JOB_FORGET) {
		(void)guest->ops->job_forget(guest, id, ignore_done, NULL, &err);
	}
}

static void on_listed(void *arg, const struct guest_job *listed)
{
	struct listing *listing = arg;
	struct sandbox *sb = listing->sb;
	enum job_word word = listed->is_running ? JOB_WORD_RUNNING : JOB_WORD_ENDED;
	struct sandbox_job *job = job_find(sb, listed->id);
	enum job_row row;

	if (listing->count++ >= LISTED_MAX || !sb->guest || !id_is_valid(listed->id, ID_EXEC)) {
		return;
	}
	if (!job) {
		if (row_of(sb, listed->id, &row) == 0) {
			act_on_stranger(sb, listed->id, job_decide(row, word));
		}
		return;
	}
	job->is_listed = true;
	row = job->phase == JOB_UNSURE ? JOB_ROW_UNSURE : JOB_ROW_OURS;
	if (job_decide(row, word) == JOB_WAIT) {
		job_wait_for_end(job);
	}
}

/* The guest has told all it has. */
static void lose_unlisted(struct sandbox *sb)
{
	struct sandbox_job *job = TAILQ_FIRST(&sb->jobs);

	while (job) {
		struct sandbox_job *next = TAILQ_NEXT(job, link);

		if (job->phase == JOB_UNSURE && !job->is_listed &&
			job_decide(JOB_ROW_UNSURE, JOB_WORD_UNKNOWN) == JOB_LOSE) {
			job_lose(job,
				"the guest doesn't know it: it never began, or the guest's agent "
				"was started anew");
			/* Whoever was told may have done anything. */
			next = TAILQ_FIRST(&sb->jobs);
		}
		job = next;
	}
}

static void on_list_done(void *arg, const struct guest_status *status, const struct err *err)
{
	struct listing *listing = arg;
	struct sandbox *sb = listing->sb;

	free(listing);
	(void)status;
	sb->is_job_list_going = false;
	if (err) {
		/* With the next hello, or the next reconciliation. */
		if (sb->guest) {
			log_job(sb, "background commands not listed, will retry", err);
		}
		sb->is_job_list_due = true;
		return;
	}
	lose_unlisted(sb);
	jobs_sync(sb);
}

/* ERR_CONFLICT: the agent is of before there were any. */
static void not_asked(struct sandbox *sb, const struct err *err)
{
	if (err->kind == ERR_CONFLICT) {
		sb->is_job_list_due = false;
		lose_unlisted(sb);
	} else {
		log_job(sb, "background commands not listed, will retry", err);
	}
}

void jobs_sync_due(struct sandbox *sb)
{
	sb->is_job_list_due = true;
	jobs_sync(sb);
}

void jobs_sync(struct sandbox *sb)
{
	struct sandbox_job *job;
	struct err err;

	if (!sb->is_job_list_due || sb->is_job_list_going || sb->state != SANDBOX_RUNNING ||
		!channel_is_ready(sb)) {
		return;
	}
	struct listing *listing = xnew(struct listing);
	const struct guest_job_hooks hooks = {
		.on_job = on_listed, .on_done = on_list_done, .arg = listing};

	listing->sb = sb;
	TAILQ_FOREACH (job, &sb->jobs, link) {
		job->is_listed = false;
	}
	if (!sb->guest->ops->job_list(sb->guest, &hooks, &err)) {
		free(listing);
		not_asked(sb, &err);
		return;
	}
	sb->is_job_list_due = false;
	sb->is_job_list_going = true;
}

void jobs_forget(struct sandbox *sb, const struct store_exec_list *gone)
{
	struct err err;

	for (size_t i = 0; i < gone->count; i++) {
		if (!gone->rows[i].is_background || !channel_is_ready(sb)) {
			continue;
		}
		/* What isn't done now is done with the next list. */
		(void)sb->guest->ops->job_forget(
			sb->guest, gone->rows[i].id, ignore_done, NULL, &err);
	}
}
