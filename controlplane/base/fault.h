#pragma once

/*
 * fault - named points at which a test makes things go wrong
 *
 * Purpose: shows that what is begun is finished or taken back, whatever happens at any point of it.
 *          Only builds with -Dtest_hooks=true have it; in others a point costs nothing.
 * Owns:    the list of faults, read from the environment at the first point.
 * Thread:  loop.
 * Errors:  a PADDOCK_FAULTS that can't be read ends the process.
 * Uses:    base.
 *
 *	PADDOCK_FAULTS=POINT[#N]:ACTION[:COUNT][,...]
 *
 * POINT is the name of a point, such as "create.disk" or "destroy.domain.done". ACTION is what
 * happens there: `kill` ends the process on the spot with SIGKILL; `fail`, `hang` and `delay` are
 * up to who owns the point. It happens from the Nth time (1) on that the point is passed, COUNT
 * times (1).
 */

#include "base/err.h"
#include "base/macros.h"

enum fault_action { FAULT_NONE, FAULT_FAIL, FAULT_HANG, FAULT_DELAY };

/* How long a hanging call hangs before it counts as timed out, and how long a slow one takes. */
#define FAULT_HANG_MS  100
#define FAULT_DELAY_MS 50

/* The error of what a fault made fail; returns -1. */
static inline int fault_fail(struct err *err, enum err_kind kind)
{
	return err_set(err, kind, "a fault was injected");
}

#ifdef PADDOCK_TEST_HOOKS
/* What is to happen at the point whose name this makes. */
enum fault_action fault_at(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* In place of the environment. NULL: no faults. */
void fault_set(const char *faults);
/* Hears of every point that is passed; NULL: nobody. */
typedef void (*fault_watch_fn)(void *arg, const char *point);
void fault_watch(fault_watch_fn fn, void *arg);
#else
__attribute__((format(printf, 1, 2))) static inline enum fault_action fault_at(
	const char *format, ...)
{
	(void)format;
	return FAULT_NONE;
}
#endif
