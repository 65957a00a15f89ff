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
		/* After the last step there is none under way. */
		plan->at = MIN(plan->at, plan->count - 1);
		turn_round(plan, NULL);
	} else if (plan->at == plan->count) {
		plan->phase = PLAN_DONE;
		plan->hooks->on_done(plan->arg);
	} else {
		plan->is_answer_due = true;
		plan->steps[plan->at].run(plan->arg);
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
	plan->is_answer_due = true;
	plan->steps[plan->at].undo(plan->arg);
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

static void on_retry(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	undo_step(arg);
}

void plan_init(struct plan *plan, struct loop *loop, const struct plan_step *steps, size_t count,
	const struct plan_hooks *hooks, void *arg)
{
	ASSERT(count > 0);
	*plan = (struct plan){
		.loop = loop, .steps = steps, .count = count, .hooks = hooks, .arg = arg};
	plan->retry = evtimer_new(loop_base(loop), on_retry, plan);
	ASSERT(plan->retry != NULL);
}

void plan_fini(struct plan *plan)
{
	loop_cancel_deferred(plan->loop, on_turn, plan);
	event_free(plan->retry);
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

void plan_unwind(struct plan *plan, const struct err *why)
{
	if (plan->phase == PLAN_UNWINDING || plan->phase == PLAN_UNWOUND || plan->is_stopping) {
		return;
	}
	plan->why = *why;
	if (plan->phase == PLAN_RUNNING) {
		plan->is_stopping = true;
		if (plan->is_answer_due && plan->steps[plan->at].stop) {
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
	unsigned ms = MIN(PLAN_RETRY_FIRST_MS << shift, PLAN_RETRY_LAST_MS);
	struct timeval tv = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};

	plan->tries++;
	evtimer_add(plan->retry, &tv);
	plan->hooks->on_retry(plan->arg, name, err, plan->tries);
}

void plan_answer(struct plan *plan, const struct err *err)
{
	ASSERT(plan->is_answer_due);
	plan->is_answer_due = false;
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
	} else {
		plan->at++;
		next_turn(plan);
	}
}

void plan_retry_now(struct plan *plan)
{
	struct timeval now = {0};

	if (evtimer_pending(plan->retry, NULL)) {
		evtimer_add(plan->retry, &now);
	}
}

const char *plan_current(const struct plan *plan)
{
	return plan->is_answer_due ? plan->steps[plan->at].name : NULL;
}
