#pragma once

/*
 * loop - the one event loop
 *
 * Purpose: owns the event base; knows which thread is the loop's; defers calls.
 * Owns:    the event_base.
 * Thread:  the one that runs it. Everything in the program belongs to this thread, save what a
 *          worker job carries (worker.h).
 * Errors:  ERR_INTERNAL.
 * Uses:    base, libevent_core. Socket events are libevent's own, on loop_base().
 */

#include <event2/event.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"

struct loop;

/* The calling thread becomes the loop's thread. Ignores SIGPIPE for the process. */
struct loop *loop_new(struct err *err);
/* Runs the calls that are still deferred, then frees. */
void loop_free(struct loop *loop);
DEFINE_CLEANUP(struct loop *, loop_free)

struct event_base *loop_base(struct loop *loop);

/* Until loop_stop(). */
void loop_run(struct loop *loop);
void loop_stop(struct loop *loop);
/* One turn: waits for an event, @ms at most. For tests, which turn until a condition holds. */
void loop_turn_for(struct loop *loop, unsigned ms);

/* Calls @fn when it fires; it isn't set yet. The caller frees it with event_free(). */
struct event *loop_timer_new(struct loop *loop, event_callback_fn fn, void *arg);
/* Lets it fire once, @ms from now, whatever it was set to before. */
void loop_timer_set(struct event *timer, uint64_t ms);

/*
 * Calls @fn once, from the loop, not from within this call. The object behind @arg must outlive it
 * or cancel it: loop_cancel_deferred() drops all calls with that @fn and @arg.
 */
void loop_defer(struct loop *loop, void (*fn)(void *arg), void *arg);
void loop_cancel_deferred(struct loop *loop, void (*fn)(void *arg), void *arg);

/* True in the thread of the process's loop, and anywhere while there is none. */
bool loop_is_current(void);
#define loop_assert() ASSERT(loop_is_current())
