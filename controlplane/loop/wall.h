#pragma once

/*
 * wall - notices that the host's wall clock was set
 *
 * Purpose: tells when the wall clock has jumped against the monotonic one: somebody set it, or the
 *          host has slept.
 * Owns:    a timer that never fires.
 * Thread:  loop.
 * Errors:  none; where the kernel gives no such timer nothing is told.
 * Uses:    base, loop.
 */

#include "loop/loop.h"

struct wall_watch;

struct wall_watch *wall_watch_new(struct loop *loop, void (*on_set)(void *arg), void *arg);
void wall_watch_free(struct wall_watch *watch);
DEFINE_CLEANUP(struct wall_watch *, wall_watch_free)
