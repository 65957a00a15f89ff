#pragma once

/*
 * tree - the processes of a command, wherever they went
 *
 * Purpose: a cgroup for each running command, so that signals reach every process it started, in
 *          whatever session or process group they are.
 * Owns:    the directories under options.cgroup_dir; a pool of empty ones, since a used one costs
 *          two system calls less than a fresh one and its emptiness can be checked after the
 * answer. Thread:  the agent has one. Errors:  no cgroup to be had: tree_take() gives NULL and the
 * functions work with what /proc tells about sessions and parents, which a process can escape by a
 * double fork. Uses:    options.h.
 */

#include <signal.h>

#include "src/util.h"

struct tree;

/* Makes the parent with its limits. True when commands get cgroups. */
bool tree_init(void);

/*
 * Whether all commands together have no more of the processor than the agent, when it wants it.
 */
bool tree_shares_processor(void);

/* An empty cgroup; NULL when there is none. */
struct tree *tree_take(void);
/* Gives it back. It is used again when its last process is gone. */
void tree_release(struct tree *t);
/* Directory of the cgroup to start in, for CLONE_INTO_CGROUP; for NULL that with the limits, or -1.
 */
int tree_fd(const struct tree *t);

/*
 * A command's processes: those in @t or, without one, those that descend from @leader or share its
 * session.
 */
void tree_signal(struct tree *t, pid_t leader, int signal);
/* SIGKILL to all at once; nothing can slip through by forking. */
void tree_kill(struct tree *t, pid_t leader);
/* Whether any is left. @leader itself has been reaped. */
bool tree_is_empty(struct tree *t, pid_t leader);
