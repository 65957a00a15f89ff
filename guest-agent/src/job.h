#pragma once

/*
 * job - commands that belong to no session
 *
 * Purpose: runs them, keeps the last of their output in a ring each, and their results once they
 *          have ended. PROTOCOL.md section "Jobs" is the contract; job-call.c is how it is asked.
 * Owns:    the table of jobs with their pipes and rings.
 * Thread:  the agent has one.
 * Uses:    command.h, ring.h.
 *
 *   free ──job_start──► running ──its command is over, pipes empty──► ended ──job_forget──► free
 *                                                                       └──place needed──► free
 */

#include "src/command.h"
#include "src/loop.h"
#include "src/ring.h"

#define JOBS_MAX (PROTO_JOBS_RUNNING_MAX + PROTO_JOBS_ENDED_MAX)

/* Somebody who reads a job's ring. */
struct job_reader {
	struct job_reader *next;
	uint64_t offset; /* of the next byte it gets */
	bool is_followed;
};

struct job {
	uint32_t generation;
	bool is_used;
	bool has_ended;
	struct command command;
	uint64_t number; /* rises with each start */
	bool has_tty;
	int in_fd;         /* -1: no stdin, or no longer */
	struct output out; /* for a terminal the only one */
	struct output err;
	struct ring ring;
	struct job_reader *readers;
};

/* Outlives the job that it names. */
struct job_ref {
	unsigned slot;
	uint32_t generation;
};

/* NULL: @s has been ended with the reason. */
struct job *job_start(struct stream *s, struct exec_request *q);
/* NULL: there is none of that id. */
struct job *job_find(const char *id);
struct job_ref job_ref(const struct job *job);
/* NULL: it has been forgotten. */
struct job *job_get(struct job_ref ref);
/* In the order of their starts, from NULL to NULL. */
const struct job *job_next(const struct job *job);
/* Drops an ended one. */
void job_forget(struct job *job);

void job_add_reader(struct job *job, struct job_reader *reader);
void job_remove_reader(struct job *job, struct job_reader *reader);
/* A reader's offset has risen: there may be room in the ring. */
void job_reader_moved(const struct job *job);

void job_on_event(struct loop_ref ref);
/* True when @pid was a job's. */
bool job_child_exited(pid_t pid, int wait_status);
/* Each running one: deadlines, then output. */
void job_run_all(void);
