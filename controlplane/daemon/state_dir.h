#pragma once

/*
 * state_dir - the state directory
 *
 * Purpose: makes it, locks it, and checks that QEMU's users can pass through it.
 * Owns:    the lock's descriptor. The lock goes with the process.
 * Thread:  start-up.
 * Errors:  ERR_CONFLICT: another daemon holds it. ERR_INVALID: it can't be traversed, or a path
 * gets too long for a Unix socket; the message says what to do. Uses:    base.
 */

#include "base/cleanup.h"
#include "base/err.h"

struct state_dir;

/* Makes @path (0711) and @run_dir (0711) where they are missing, and takes the lock. */
struct state_dir *state_dir_open(const char *path, const char *run_dir, struct err *err);
void state_dir_close(struct state_dir *dir);
DEFINE_CLEANUP(struct state_dir *, state_dir_close)

/*
 * Marks a @run_dir outside of the state directory as @instance's. ERR_INVALID: it is another's,
 * whose sockets would be taken for strays.
 */
int state_dir_claim_run(
	const char *path, const char *run_dir, const char *instance, struct err *err);

/* Every directory from / to @path lets others pass (mode x); ERR_INVALID names the first that
 * doesn't. */
int state_dir_check_traversal(const char *path, struct err *err);
