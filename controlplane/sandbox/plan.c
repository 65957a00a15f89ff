#include "sandbox/plan.h"

#include <string.h>

#include "base/macros.h"

/*
 * Theory of operation
 *
 * `at` is the step under way. Going forward it counts up to `count`; unwinding it counts down and
 * ends below zero, which is UNWOUND. Each move is a deferred call, so that a step that answers at
 * once doesn't recurse and nobody is called from within his own call. plan_unwind() while a step
 * runs only sets is_stopping: the answer, early if the step can stop, turns the plan round.
 */

static void on_turn(void *arg);

/* ---- faults ---- */

static enum fault_action fault(const struct plan *plan, const char *suffix)
{
	const char *step = plan->steps[plan->at].name;

	if (plan->phase == PLAN_RUNNING || plan->undo_name) {
		return fault_at("%s.%s%s",
			plan->phase == PLAN_RUNNING ? plan->name : plan->undo_name, step, suffix);
	}
	return fault_at("%s.undo.%s%s", plan->name, step, suffix);
}

/* ---- forwards and back ---- */

static void call_step(struct plan *plan)
{
	const struct plan_step *step = &plan->steps[plan->at];

	(plan->phase == PLAN_RUNNING ? step->run : step->undo)(plan->arg);
}

static void begin_step(struct plan *plan)
{
	struct err err;

	plan->is_answer_due = true;
	plan->is_answered = false;
	plan->fault = fault(plan, "");
	switch (plan->fault) {
	case FAULT_FAIL:
		plan->fault = FAULT_NONE;
		(void)fault_fail(&err, ERR_INTERNAL);
		plan_answer(plan, &err);
		break;
	case FAULT_DELAY:
		loop_timer_set(plan->timer, FAULT_DELAY_MS);
		break;
	case FAULT_HANG:
		loop_timer_set(plan->timer, FAULT_HANG_MS);
		call_step(plan);
		break;
	case FAULT_NONE:
	default:
		call_step(plan);
		break;
	}
}

static void next_turn(struct plan *plan)
{
	loop_defer(plan->loop, on_turn, plan);
}

static void turn_round(struct plan *plan, const char *step)
{
	plan->phase = PLAN_UNWINDING;
	plan->is_stopping = false;
	plan->tries = 0;
	plan->hooks->on_unwinding(plan->arg, step, &plan->why);
	next_turn(plan);
}

static void run_step(struct plan *plan)
{
	if (plan->is_stopping) {
		turn_round(plan, NULL);
	} else {
		begin_step(plan);
	}
}

static void undo_step(struct plan *plan)
{
	while (plan->at < plan->count && !plan->steps[plan->at].undo) {
		plan->at--; /* below zero it is larger than count */
	}
	if (plan->at >= plan->count) {
		plan->phase = PLAN_UNWOUND;
		plan->hooks->on_unwound(plan->arg);
		return;
	}
	begin_step(plan);
}

static void on_turn(void *arg)
{
	struct plan *plan = arg;

	if (plan->phase == PLAN_RUNNING) {
		run_step(plan);
	} else {
		undo_step(plan);
	}
}

static void end_step(struct plan *plan, const struct err *err);

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct plan *plan = arg;
	struct err err;

	(void)fd;
	(void)what;
	if (plan->fault == FAULT_DELAY && plan->is_stopping) {
		(void)fault_fail(&err, ERR_CANCELLED);
		end_step(plan, &err);
	} else if (plan->fault == FAULT_DELAY) {
		plan->fault = FAULT_NONE;
		call_step(plan);
	} else if (plan->fault == FAULT_NONE) {
		undo_step(plan);
	} else if (plan->is_answered) {
		(void)fault_fail(&err, ERR_TIMEOUT);
		end_step(plan, &err);
	}
}

void plan_init(struct plan *plan, struct loop *loop, const struct plan_hooks *hooks, void *arg)
{
	*plan = (struct plan){.loop = loop, .hooks = hooks, .arg = arg};
	plan->timer = loop_timer_new(loop, on_timer, plan);
}

void plan_fini(struct plan *plan)
{
	loop_cancel_deferred(plan->loop, on_turn, plan);
	event_free(plan->timer);
}

void plan_use(struct plan *plan, const char *name, const struct plan_step *steps, size_t count)
{
	ASSERT(count > 0);
	ASSERT(plan->phase != PLAN_RUNNING && plan->phase != PLAN_UNWINDING);
	plan->phase = PLAN_IDLE;
	plan->name = name;
	plan->steps = steps;
	plan->count = count;
	plan->at = 0;
	plan->undo_name = NULL;
	plan->why = ERR_INIT;
}

void plan_run(struct plan *plan)
{
	ASSERT(plan->phase == PLAN_IDLE);
	plan->phase = PLAN_RUNNING;
	next_turn(plan);
}

void plan_adopt(struct plan *plan)
{
	ASSERT(plan->phase == PLAN_IDLE);
	plan->phase = PLAN_DONE;
	plan->at = plan->count;
}

void plan_unwind(struct plan *plan, const char *name, const struct err *why)
{
	if (plan->phase == PLAN_UNWINDING || plan->phase == PLAN_UNWOUND || plan->is_stopping) {
		return;
	}
	plan->why = *why;
	plan->undo_name = name;
	if (plan->phase == PLAN_RUNNING) {
		plan->is_stopping = true;
		if (plan->is_answer_due && !plan->is_answered && plan->fault != FAULT_DELAY &&
			plan->steps[plan->at].stop) {
			plan->steps[plan->at].stop(plan->arg);
		}
		return;
	}
	plan->at = plan->phase == PLAN_IDLE ? SIZE_MAX : plan->count - 1;
	turn_round(plan, NULL);
}

static void answer_undo(struct plan *plan, const struct err *err)
{
	const char *name = plan->steps[plan->at].name;

	if (!err) {
		plan->tries = 0;
		plan->at--;
		next_turn(plan);
		return;
	}
	unsigned shift = MIN(plan->tries, 10U);

	plan->tries++;
	loop_timer_set(plan->timer, MIN(PLAN_RETRY_FIRST_MS << shift, PLAN_RETRY_LAST_MS));
	plan->hooks->on_retry(plan->arg, name, err, plan->tries);
}

static void end_step(struct plan *plan, const struct err *err)
{
	struct err injected;

	plan->fault = FAULT_NONE;
	plan->is_answer_due = false;
	if (!err && fault(plan, ".done") == FAULT_FAIL) {
		(void)fault_fail(&injected, ERR_INTERNAL);
		err = &injected;
	}
	if (plan->phase == PLAN_UNWINDING) {
		answer_undo(plan, err);
		return;
	}
	ASSERT(plan->phase == PLAN_RUNNING);
	if (plan->is_stopping) {
		turn_round(plan, NULL);
	} else if (err) {
		plan->why = *err;
		turn_round(plan, plan->steps[plan->at].name);
	} else if (++plan->at < plan->count) {
		next_turn(plan);
	} else {
		/* At once: whoever sees what the last step did finds the plan done. */
		plan->phase = PLAN_DONE;
		plan->hooks->on_done(plan->arg);
	}
}

void plan_answer(struct plan *plan, const struct err *err)
{
	struct err injected;

	ASSERT(plan->is_answer_due && !plan->is_answered);
	if (plan->fault == FAULT_HANG && evtimer_pending(plan->timer, NULL)) {
		plan->is_answered = true;
		return;
	}
	if (plan->fault == FAULT_HANG) {
		(void)fault_fail(&injected, ERR_TIMEOUT);
		err = &injected;
	}
	end_step(plan, err);
}

void plan_retry_now(struct plan *plan)
{
	if (plan->fault == FAULT_NONE && evtimer_pending(plan->timer, NULL)) {
		loop_timer_set(plan->timer, 0);
	}
}

const char *plan_current(const struct plan *plan)
{
	return plan->is_answer_due ? plan->steps[plan->at].name : NULL;
}
