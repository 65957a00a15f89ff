#pragma once

/*
 * plan - steps that are done one after the other, and undone in reverse
 *
 * Purpose: creation, restart and reset as arrays of {run, undo}; removal is creation's undoing.
 * What was begun is always undone, whatever fails: an undo that fails is tried again, with growing
 * pauses. Owns:    the timer between two tries. Thread:  loop. Errors:  a step's error starts the
 * unwinding and is kept as the reason. Uses:    base, loop.
 *
 *                    ┌── a step fails, plan_unwind() ──┐
 *   IDLE ──► RUNNING ┴──► DONE ── plan_unwind() ──► UNWINDING ──► UNWOUND
 *
 * Steps and hooks are called from the loop, never from within a call of this module; save on_done,
 * which comes from within the last step's plan_answer(). Each step, run or undone, is answered with
 * exactly one plan_answer(), from within it, as the last thing that it does, or later. An undo must
 * be fine with nothing being there: the step that failed is undone as well, since it may have taken
 * effect, and so is everything when the plan is taken over from a process that died (plan_adopt).
 *
 * Each step is two fault points (base/fault.h): before it, and once it has succeeded. Those of the
 * plan "create" are create.STEP and create.STEP.done, undone create.undo.STEP and …done; those of
 * an unwinding that has a name of its own, NAME.STEP and NAME.STEP.done. A step that "hangs" is
 * begun, and answered late and with ERR_TIMEOUT.
 */

#include <event2/event.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/fault.h"
#include "loop/loop.h"

#define PLAN_RETRY_FIRST_MS 250
#define PLAN_RETRY_LAST_MS  30000

struct plan_step {
	const char *name;
	void (*run)(void *arg);
	/* The plan is to unwind while this step runs: end it soon. NULL: its own end is awaited. */
	void (*stop)(void *arg);
	void (*undo)(void *arg); /* NULL: nothing to undo */
};

struct plan_hooks {
	void (*on_done)(void *arg); /* every step was run */
	/* The unwinding begins; @step: which one failed, NULL when plan_unwind() was called. */
	void (*on_unwinding)(void *arg, const char *step, const struct err *why);
	void (*on_retry)(void *arg, const char *step, const struct err *err, unsigned tries);
	void (*on_unwound)(void *arg);
};

enum plan_phase { PLAN_IDLE, PLAN_RUNNING, PLAN_DONE, PLAN_UNWINDING, PLAN_UNWOUND };

/* Embedded; the fields are this module's own. */
struct plan {
	struct loop *loop;
	const char *name;
	const struct plan_step *steps;
	size_t count;
	const struct plan_hooks *hooks;
	void *arg;

	enum plan_phase phase;
	size_t at;          /* the step that runs, or that is undone */
	bool is_answer_due; /* a step or an undo is under way */
	bool is_stopping;
	struct err why;
	const char *undo_name; /* NULL: the plan's own */
	unsigned tries;
	struct event *timer; /* to the next try; or, in a fault, until the step begins or ends */
	enum fault_action fault;
	bool is_answered; /* a step that hangs */
};

/* @hooks serve every array of steps that the plan is given. */
void plan_init(struct plan *plan, struct loop *loop, const struct plan_hooks *hooks, void *arg);
/* No call comes any more. */
void plan_fini(struct plan *plan);

/* IDLE, with these steps; nothing may be under way. */
void plan_use(struct plan *plan, const char *name, const struct plan_step *steps, size_t count);
void plan_run(struct plan *plan);
/* As if every step had been run: for what is there already. */
void plan_adopt(struct plan *plan);
/*
 * From any phase; again is fine. @why stays the reason unless there is one. @name: what this
 * unwinding is called, NULL: nothing of its own.
 */
void plan_unwind(struct plan *plan, const char *name, const struct err *why);
/* The step or undo under way has ended; NULL: fine. */
void plan_answer(struct plan *plan, const struct err *err);
/* What waits for its next try is tried now. */
void plan_retry_now(struct plan *plan);

/* Name of the step under way, NULL: none. */
const char *plan_current(const struct plan *plan);
