#pragma once

/*
 * worker - a bounded pool of threads for calls that block
 *
 * Purpose: moves a job to a thread and its result back to the loop.
 * Owns:    the threads; the mailbox, which is the only object that threads share.
 * Thread:  everything is called on the loop, except run().
 * Errors:  ERR_UNAVAILABLE when the queue is full or the pool shuts down.
 * Uses:    base, loop.
 *
 * A job is a struct that embeds struct worker_job. It moves: after worker_submit() succeeded the
 * loop touches nothing of it until done().
 *
 * A blocking call can't be interrupted. A job with a deadline that is still running when it passes
 * is *abandoned*: done() is called with ERR_TIMEOUT while the thread still works on the job, so
 * done() must neither read results from it nor free it; when the call returns at last, late() is
 * called, which sees the results and frees. Meanwhile the pool replaces the thread that hangs, up
 * to a bound.
 *
 * Deadlines are long, and what waits behind calls that hang has nothing to do with them: in a pool
 * with stall_ms a job may start on a spare thread when for that long something has waited and no
 * thread has become free. Only for jobs that may run beside each other in any number.
 *
 *   queued ──► running ──► done(job, err)                          done() frees
 *     │           └──(deadline)──► done(job, TIMEOUT) ──► late(job)   late() frees
 *     └──(deadline, shutdown)──► done(job, TIMEOUT|CANCELLED) done() frees
 *
 * done() knows the cases apart by job->is_abandoned.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "loop/loop.h"

struct worker_job {
	/* Set by the submitter. */
	void (*run)(struct worker_job *job); /* worker: touches only the job */
	void (*done)(
		struct worker_job *job, const struct err *err); /* loop, exactly once; NULL: fine */
	void (*late)(struct worker_job *job); /* loop; needed where deadline_ms is set */
	uint64_t deadline_ms;                 /* from submission; 0: none */

	/* run() leaves its failure here (kind ERR_NONE: fine). */
	struct err err;

	/* Read by done(). */
	bool is_abandoned;

	/* The pool's. */
	TAILQ_ENTRY(worker_job) link; /* worker_pool.todo, .running or .finished */
	struct worker_pool *pool;
	struct event *timer;
	int state;
	bool is_stuck; /* a spare thread may stand in for its own */
};

struct worker_pool;

struct worker_limits {
	unsigned threads;   /* started at once */
	unsigned spares;    /* at most so many more while others hang or are stuck */
	unsigned queue_max; /* jobs waiting */
	uint64_t stall_ms;  /* after how long without movement one is stuck; 0: at its deadline */
};

/* @name: what the threads work with, as messages call it; at most 15 bytes. */
struct worker_pool *worker_pool_new(
	struct loop *loop, const char *name, const struct worker_limits *limits, struct err *err);
/*
 * Cancels what waits, then waits for what runs: at most @grace_ms. True when all threads have
 * ended; else the rest are left behind with their jobs, for a process that is about to exit.
 */
bool worker_pool_free(struct worker_pool *pool, uint64_t grace_ms);

/* Takes @job on success only. Never calls back from here. */
int worker_submit(struct worker_pool *pool, struct worker_job *job, struct err *err);

struct worker_stats {
	unsigned threads;
	unsigned waiting;
	unsigned running;
	unsigned hanging; /* abandoned and not yet back */
};
void worker_pool_stats(const struct worker_pool *pool, struct worker_stats *ret);
