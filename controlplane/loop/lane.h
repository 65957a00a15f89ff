#pragma once

/*
 * lane - one job at a time for each sandbox
 *
 * Purpose: keeps the hypervisor jobs of one sandbox in order without parking a thread: a stuck
 *          domain occupies one thread, not the pool.
 * Owns:    the jobs that wait in a lane.
 * Thread:  loop.
 * Errors:  ERR_UNAVAILABLE as worker_submit(), or when the lane holds LANE_JOBS_MAX.
 * Uses:    base, loop.
 *
 * A job that is abandoned (see worker.h) frees its lane: the next one, typically a destroy, must
 * not wait for a call that may never return. Its deadline counts from the moment it leaves the
 * lane.
 */

#include "loop/worker.h"

#define LANE_JOBS_MAX 16

struct lane_job {
	struct worker_job job; /* run, done, late, deadline_ms: set by the submitter */

	/* The lane's. */
	STAILQ_ENTRY(lane_job) link; /* lane.waiting */
	struct lane *lane;
	void (*done)(struct worker_job *job, const struct err *err);
};

struct lanes;

struct lanes *lanes_new(struct loop *loop, struct worker_pool *pool);
/* After worker_pool_free() has returned true: every job is done by then. */
void lanes_free(struct lanes *lanes);
DEFINE_CLEANUP(struct lanes *, lanes_free)

/* Takes @job on success only. @key is copied. Never calls back from here. */
int lane_submit(struct lanes *lanes, const char *key, struct lane_job *job, struct err *err);
