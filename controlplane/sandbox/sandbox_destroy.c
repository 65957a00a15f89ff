#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/xalloc.h"
#include "sandbox/held_uids.h"
#include "sandbox/job.h"
#include "sandbox/paths.h"
#include "sandbox/sandbox_priv.h"

/*
 * Theory of operation
 *
 * Removal is the undoing of the plan of creation, from wherever that has got to: the row says
 * "deleting", then channel, domain and disk go, each tried until it succeeds, then the row says
 * "deleted" and the quota is given back. A creation that fails goes the same way without
 * "deleting", and ends as "failed".
 *
 * When a row can't be written, a timer tries that again: first the intent, in the end the result.
 * The intent isn't waited for without end. A full disk may be full of overlays, and then nothing
 * can be written before something is removed; and a machine that is due must go, whatever became of
 * the database. After INTENT_TRIES the removal begins without it. Should the daemon be killed
 * meanwhile, the row is a live one without a domain, which reconcile ends.
 */

#define ROW_RETRY_MS 1000
#define DESTROY      "destroy" /* what the plan's unwinding is called */
#define INTENT_TRIES 5

void sandbox_retry_row(struct sandbox *sb, const struct err *err)
{
	LOG_REQUEST(sb->request);

	unsigned suppressed;

	/* All of them fail for one cause. */
	if (log_limit_allows(&sb->all->row_log, clock_monotonic_ms(), &suppressed)) {
		log_failure(LOG_LEVEL_ERR, "sandbox row not written, will retry", err,
			"sb=%s suppressed=%u", sb->row->id, suppressed);
	}
	loop_timer_set(sb->retry_timer, ROW_RETRY_MS);
}

static void begin_end(struct sandbox *sb)
{
	struct err err;

	if (sandbox_set_state(sb, SANDBOX_DELETING, sb->end_reason, &err) != 0) {
		if (++sb->intent_tries < INTENT_TRIES) {
			sandbox_retry_row(sb, &err);
			return;
		}
		sandbox_assume_state(sb, SANDBOX_DELETING, sb->end_reason);
	}
	(void)sandbox_check_running(sb, &err);
	extend_end_all(sb, &err);
	if (sb->plan.phase == PLAN_UNWOUND) {
		/* Its end is all that is left to write, but not from here. */
		loop_timer_set(sb->retry_timer, 0);
	}
	plan_unwind(&sb->plan, DESTROY, &err);
}

/* A creation that failed after its row said running ends as a removal. */
static bool is_intent_written(struct sandbox *sb, struct err *err)
{
	return sb->state == SANDBOX_PROVISIONING || sb->state == SANDBOX_DELETING ||
	       sandbox_set_state(sb, SANDBOX_DELETING, sb->failure.msg, err) == 0;
}

static void finish_end(struct sandbox *sb)
{
	bool has_failed = sb->state == SANDBOX_PROVISIONING;
	const char *reason = sb->end_reason; /* the intent may have been lost */
	struct err err;

	if (has_failed) {
		reason = sb->failure.kind == ERR_INTERNAL ? "internal error" : sb->failure.msg;
	}
	if (!is_intent_written(sb, &err) ||
		sandbox_set_state(
			sb, has_failed ? SANDBOX_FAILED : SANDBOX_DELETED, reason, &err) != 0) {
		sandbox_retry_row(sb, &err);
		return;
	}
	if (sb->holds_uid) {
		held_uids_add(sb->all, sb->row->id);
	}
	quota_refund(&sb->charge);
	sandbox_retire(sb);
}

/* Nothing is left of what the plan had made. */
static void unwound(struct sandbox *sb)
{
	if (sb->task == TASK_NONE) {
		finish_end(sb);
	} else if (sb->state != SANDBOX_DELETING) {
		restart_unwound(sb);
	} else {
		/* What was there before the task goes as well. */
		struct err why = sb->plan.why;

		sb->task = TASK_NONE;
		sandbox_use_create_plan(sb);
		plan_adopt(&sb->plan);
		plan_unwind(&sb->plan, DESTROY, &why);
	}
}

static void on_retry_timer(evutil_socket_t fd, short what, void *arg)
{
	struct sandbox *sb = arg;

	(void)fd;
	(void)what;
	if (sb->plan.phase == PLAN_UNWOUND && (sb->state == SANDBOX_DELETING || !sb->end_reason)) {
		unwound(sb);
	} else if (sb->state != SANDBOX_DELETING) {
		begin_end(sb);
	}
}

void sandbox_destroy(struct sandbox *sb, const char *reason)
{
	loop_assert();
	/* One that is "deleting" from before goes on with the first reconciliation. */
	if (sandbox_is_going(sb)) {
		return;
	}
	sb->end_reason = xstrdup(reason);
	snprintf(sb->request, sizeof sb->request, "%s", log_request());
	begin_end(sb);
}

void sandbox_resume_end(struct sandbox *sb, const char *interrupted)
{
	struct err err;

	err_set(&err, ERR_ENDED, "%s", interrupted);
	if (sb->state == SANDBOX_DELETING && !sb->end_reason) {
		sb->end_reason = xstrdup(sb->row->reason ? sb->row->reason : interrupted);
	}
	if (sb->state == SANDBOX_PROVISIONING) {
		sb->failure = err;
	}
	plan_unwind(&sb->plan, sb->state == SANDBOX_DELETING ? DESTROY : NULL, &err);
}

void sandbox_domain_ended(struct sandbox *sb, const char *reason)
{
	const char *why = sandbox_is_due(sb, clock_wall_ms()) ? "expired" : reason;
	struct err err;

	if (sb->state == SANDBOX_PROVISIONING) {
		restart_domain_ended(sb);
		boot_domain_ended(sb);
		return;
	}
	if (sb->end_reason || sb->state == SANDBOX_DELETING) {
		return;
	}
	if (sb->row->is_temporary || strcmp(why, "expired") == 0) {
		sandbox_destroy(sb, why);
		return;
	}
	if (sb->state != SANDBOX_RUNNING) {
		return;
	}
	if (sandbox_set_state(sb, SANDBOX_STOPPED, why, &err) != 0) {
		/* Reconcile comes to the same result. */
		log_failure(LOG_LEVEL_ERR, "sandbox row not written, will retry", &err, "sb=%s",
			sb->row->id);
		return;
	}
	sb->has_domain = false;
	pause_forget(sb);
	(void)sandbox_check_running(sb, &err);
	extend_end_all(sb, &err);
	channel_close(sb);
}

/* ---- undoing the plan ---- */

static void on_tails_taken(struct sandbox *sb)
{
	channel_close(sb);
	plan_answer(&sb->plan, NULL);
}

void sandbox_undo_channel(void *arg)
{
	struct sandbox *sb = arg;

	evtimer_del(sb->boot_timer);
	jobs_take_tails(sb, on_tails_taken);
}

void sandbox_step_answered(void *arg, const struct err *err)
{
	struct sandbox *sb = arg;

	plan_answer(&sb->plan, err);
}

void sandbox_end_domain(struct sandbox *sb, hv_done_fn done)
{
	struct hv *hv = sb->all->hv;

	sb->has_domain = false;
	pause_forget(sb);
	hv->ops->destroy(hv, sb->row->id, done, sb);
}

void sandbox_undo_domain(void *arg)
{
	sandbox_end_domain(arg, sandbox_step_answered);
}

static void on_disk_undone(void *arg, const struct err *err)
{
	struct sandbox *sb = arg;
	struct err home_err;

	if (!err && paths_remove_home(sb->all->config.state_dir, sb->row->id, &home_err) != 0) {
		err = &home_err;
	}
	sandbox_step_answered(sb, err);
}

void sandbox_undo_disk(void *arg)
{
	struct sandbox *sb = arg;
	struct hv *hv = sb->all->hv;

	hv->ops->disk_remove(hv, sb->row->id, &sb->paths, on_disk_undone, sb);
}

/* ---- the plan's hooks ---- */

static void on_done(void *arg)
{
	struct sandbox *sb = arg;

	if (sb->task != TASK_NONE) {
		restart_done(sb);
	}
	/* The channel may have been lost since it was configured. */
	channel_sync(sb);
}

static void on_unwinding(void *arg, const char *step, const struct err *why)
{
	struct sandbox *sb = arg;
	LOG_REQUEST(sb->request);

	if (!step) {
		return;
	}
	sb->failure = *why;
	if (why->kind == ERR_INTERNAL) {
		err_wrap(&sb->failure, "start %s (%s)", sb->row->id, step);
	}
	log_failure(LOG_LEVEL_WARN, "sandbox plan failed", why, "sb=%s plan=%s step=%s",
		sb->row->id, sb->plan.name, step);
	sandbox_tell_waits(sb);
}

static void on_retry(void *arg, const char *step, const struct err *err, unsigned tries)
{
	const struct sandbox *sb = arg;
	LOG_REQUEST(sb->request);

	log_failure(LOG_LEVEL_WARN, "sandbox not taken back yet, will retry", err,
		"sb=%s step=%s tries=%u", sb->row->id, step, tries);
}

static void on_unwound(void *arg)
{
	unwound(arg);
}

void sandbox_plan_init(struct sandbox *sb)
{
	static const struct plan_hooks hooks = {
		.on_done = on_done,
		.on_unwinding = on_unwinding,
		.on_retry = on_retry,
		.on_unwound = on_unwound,
	};

	plan_init(&sb->plan, sb->all->loop, &hooks, sb);
	sandbox_use_create_plan(sb);
	sb->retry_timer = loop_timer_new(sb->all->loop, on_retry_timer, sb);
}

void sandbox_plan_fini(struct sandbox *sb)
{
	plan_fini(&sb->plan);
	event_free(sb->retry_timer);
}
