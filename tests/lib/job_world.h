#pragma once

/*
 * job_world - background commands in a world
 *
 * Purpose: starting them and looking at their records, for component tests of the domain layer.
 * Owns:    nothing.
 * Thread:  loop.
 * Uses:    world.h.
 */

#include "tests/lib/world.h"

#include "store/store_exec.h"

/* How a start was answered. */
struct started {
	unsigned count;
	char id[ID_BYTES];
	enum err_kind kind;
	char msg[320];
};

/* As sandbox_job_start(). */
struct sandbox_job *job_begin(
	struct world *w, const char *id, const char *command, struct started *ret, struct err *err);
/* Starts one; the test fails when it can't. Its id; valid until the fourth call after this. */
const char *job_start(struct world *w, const char *id, const char *command);
/* The daemon goes and comes back, and has asked the guest. */
void job_reopen(struct world *w);
/* The same, and from then on so many results are kept, with tails of so many bytes. */
void job_keep_results(struct world *w, unsigned count, size_t bytes);

/* The caller ends it. */
struct store_exec job_record(struct world *w, const char *id, const char *eid);
bool job_is(struct world *w, const char *id, const char *eid, enum store_exec_state state);
void job_expect_error(struct world *w, const char *id, const char *eid, enum store_exec_state state,
	const char *text);
/* A row past the domain, as a daemon of before may have left it. */
void job_put_row(struct world *w, const char *id, const char *eid, bool is_background,
	enum store_exec_state state);

/* As sandbox_exec_wait_fn: @arg is an unsigned. */
void job_count_up(void *arg);
