#pragma once

/*
 * guard - a second process that looks after the agent
 *
 * Purpose: the agent has one thread, and a command can hold it in vfork: one that is stopped before
 *          its exec, or whose working directory is on a file system that never answers. The guard
 *          kills such a command, and sees to the deadline if the agent can't.
 * Owns:    a page shared between the two. Nothing else connects them.
 * Thread:  the agent has one; the guard is a process.
 * Errors:  without a guard the agent works all the same.
 * Uses:    options.h.
 */

#include "src/util.h"

/* Starts it, where the agent owns the machine. */
void guard_start(void);
/* Power off at once when this time of the boot-time clock has passed by a grace; 0: never. */
void guard_set_deadline(uint64_t at_ms);

/* Before a clone: where the kernel shall write the child's pid (CLONE_PARENT_SETTID). */
pid_t *guard_spawn_begins(void);
/* The child has called exec or ended. */
void guard_spawn_ends(void);

uint64_t guard_now_ms(void);
