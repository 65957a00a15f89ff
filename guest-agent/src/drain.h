#pragma once

/*
 * drain - output that nobody reads any more
 *
 * Purpose: a command has ended but something that it started still holds its stdout or stderr. The
 *          read end stays open and is read into nothing, so that a server left running isn't
 *          killed by SIGPIPE and doesn't block.
 * Owns:    at most DRAIN_MAX descriptors; the oldest is closed for a new one.
 * Thread:  the agent has one.
 * Uses:    loop.h.
 */

#include "src/loop.h"

#define DRAIN_MAX 256u

/* Takes *fd, which has been watched before, and sets it to -1. */
void drain_take(int *fd);
void drain_on_event(struct loop_ref ref);
