#pragma once

/*
 * job - background commands
 *
 * Purpose: starts them, waits for their ends, and after a lost channel or a restart of the daemon
 *          finds out what has become of them.
 * Owns:    struct sandbox_job for each background command that runs.
 * Thread:  loop.
 * Errors:  as sandbox.h says for guest operations.
 * Uses:    sandbox_priv.h.
 */

#include "sandbox/exec_records.h"
#include "sandbox/sandbox_priv.h"

enum job_phase {
	JOB_STARTING, /* job_start() is under way */
	JOB_UNSURE,   /* the list will tell */
	JOB_WAITING,  /* job_wait() is under way */
	JOB_TAIL,     /* job_read() is under way */
};

struct sandbox_job {
	TAILQ_ENTRY(sandbox_job) link; /* sandbox.jobs */
	struct sandbox *sb;
	struct exec_record *record;
	enum job_phase phase;
	bool is_listed; /* by the list that comes in */
	bool has_result;
	struct guest_exec_result result;
	struct store_exec tails; /* of its output, as far as they have been read */
	sandbox_job_fn fn;       /* who started it; NULL: has been told, or left */
	void *arg;
};

static inline const char *job_id(const struct sandbox_job *job)
{
	return job->record->row.id;
}

void jobs_init(struct sandbox *sb);
void jobs_fini(struct sandbox *sb);

/* One that runs, says its row of before the daemon's restart. */
void job_adopt(struct exec_record *record);
struct sandbox_job *job_find(struct sandbox *sb, const char *id);
/* Waits for its end, from now on; fine where that has been. */
void job_wait_for_end(struct sandbox_job *job);
/* Its record ends as lost, unless how it ended has been heard; it is freed. */
void job_lose(struct sandbox_job *job, const char *why);
/* The machine ends, or has ended: so have they. */
void jobs_lost(struct sandbox *sb);

/* ---- job_tail.c ---- */

void job_tails_init(struct sandbox *sb);
void job_tails_fini(struct sandbox *sb);
/* More of the tails, in order; what is beyond @cap bytes in all is left out. */
void job_tail_add(struct store_exec *tails, size_t cap, int fd, const void *data, size_t len);
/* The machine is about to end: reads for the records what commands have said last. @done comes
 * from here where there is nothing to read, and soon in any case. */
void jobs_take_tails(struct sandbox *sb, jobs_taken_fn done);

/* ---- job_list.c ---- */

/* The channel may have been lost: asks the guest what it has, as soon as that is possible. */
void jobs_sync_due(struct sandbox *sb);
void jobs_sync(struct sandbox *sb);
/* Their records are gone: the guest needn't keep them either. */
void jobs_forget(struct sandbox *sb, const struct store_exec_list *gone);
