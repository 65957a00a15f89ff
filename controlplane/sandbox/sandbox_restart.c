#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "sandbox/job.h"
#include "sandbox/sandbox_priv.h"

/*
 * Theory of operation
 *
 * A restart keeps the disk, a reset makes a fresh one; both keep id, name and expiry. The row goes
 * back to "provisioning" and has the task's name before anything is done, and the plan follows:
 *
 *	prepare    (reset) a fresh disk beside the old    undone by removing it
 *	stop       the guest, then the domain             undone by making sure of that
 *	swap       (reset) the fresh disk for the old
 *	domain, channel, configure, record                as in a creation (boot.c)
 *
 * A failure before "stop" leaves the sandbox as it was, one after it STOPPED, with the reason; who
 * waits is told once that is written. A daemon that died in between does all of it once more: each
 * step is fine with having been done before, and nobody has been told anything yet.
 *
 * What commands have said last is read for their records before that. A guest that is asked to
 * power off has STOP_GRACE_MS for it, which is for its disk's sake; in a reset it isn't asked.
 */

#define STOP_GRACE_MS  10000
#define IMAGE_RETRY_MS 1000

/* ---- the steps ---- */

static void run_prepare(void *arg)
{
	struct sandbox *sb = arg;
	struct hv *hv = sb->all->hv;
	struct hv_spec spec;

	boot_fill_spec(sb, &spec);
	hv->ops->disk_prepare(hv, &spec, boot_made, sb);
}

static void undo_prepare(void *arg)
{
	struct sandbox *sb = arg;
	struct hv *hv = sb->all->hv;

	hv->ops->disk_discard(hv, sb->row->id, &sb->paths, sandbox_step_answered, sb);
}

static void run_swap(void *arg)
{
	struct sandbox *sb = arg;
	struct hv *hv = sb->all->hv;

	hv->ops->disk_swap(hv, sb->row->id, &sb->paths, sandbox_step_answered, sb);
}

static void on_stopped(void *arg, const struct err *err)
{
	struct sandbox *sb = arg;

	sb->stop_phase = STOP_IDLE;
	sandbox_step_answered(sb, err);
}

static void kill_domain(struct sandbox *sb)
{
	sb->stop_phase = STOP_KILLING;
	evtimer_del(sb->stop_timer);
	channel_close(sb);
	sandbox_end_domain(sb, on_stopped);
}

static void on_shutdown(void *arg, const struct guest_status *status, const struct err *err)
{
	struct sandbox *sb = arg;

	(void)status;
	/* Once it is said, the domain's end is what counts. */
	if (err && sb->stop_phase == STOP_ASKED) {
		loop_timer_set(sb->stop_timer, 0);
	}
}

static void on_stop_timer(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	kill_domain(arg);
}

static void stop_domain(struct sandbox *sb)
{
	struct err err;

	/* Its removal may have been asked for while tails were read. */
	if (sb->task == TASK_RESTART && !sandbox_is_going(sb) && channel_is_ready(sb) &&
		sb->guest->ops->shutdown(sb->guest, on_shutdown, sb, &err)) {
		sb->stop_phase = STOP_ASKED;
		loop_timer_set(sb->stop_timer, STOP_GRACE_MS);
	} else {
		kill_domain(sb);
	}
}

static void run_stop(void *arg)
{
	struct sandbox *sb = arg;

	sb->has_stopped = true;
	jobs_take_tails(sb, stop_domain);
}

static void stop_stop(void *arg)
{
	restart_domain_ended(arg);
}

static void undo_stop(void *arg)
{
	struct sandbox *sb = arg;

	channel_close(sb);
	sandbox_undo_domain(sb);
}

void restart_domain_ended(struct sandbox *sb)
{
	if (sb->stop_phase == STOP_ASKED) {
		kill_domain(sb);
	}
}

#define BOOT_STEPS                                                                                 \
	{"domain", boot_run_domain, NULL, sandbox_undo_domain},                                    \
		{"channel", boot_run_channel, boot_stop, sandbox_undo_channel},                    \
		{"configure", boot_run_configure, boot_stop, NULL},                                \
	{                                                                                          \
		"record", boot_run_record, NULL, NULL                                              \
	}

static const struct plan_step restart_steps[] = {
	{"stop", run_stop, stop_stop, undo_stop},
	BOOT_STEPS,
};

static const struct plan_step reset_steps[] = {
	{"prepare", run_prepare, NULL, undo_prepare},
	{"stop", run_stop, stop_stop, undo_stop},
	{"swap", run_swap, NULL, NULL},
	BOOT_STEPS,
};

/* ---- the task ---- */

static const char *const task_names[] = {[TASK_RESTART] = "restart", [TASK_RESET] = "reset"};

const char *restart_task_name(enum sandbox_task task)
{
	return task_names[task];
}

enum sandbox_task restart_parse_task(const char *name)
{
	for (size_t i = TASK_RESTART; name && i < ARRAY_SIZE(task_names); i++) {
		if (strcmp(task_names[i], name) == 0) {
			return (enum sandbox_task)i;
		}
	}
	return TASK_NONE;
}

static void use_plan(struct sandbox *sb)
{
	if (sb->task == TASK_RESTART) {
		plan_use(&sb->plan, "restart", restart_steps, ARRAY_SIZE(restart_steps));
	} else {
		plan_use(&sb->plan, "reset", reset_steps, ARRAY_SIZE(reset_steps));
	}
}

static void run(struct sandbox *sb)
{
	sb->has_stopped = false;
	sb->failure = ERR_INIT;
	sb->begun_ms = clock_monotonic_ms();
	use_plan(sb);
	plan_run(&sb->plan);
}

/* What the sandbox has is what its creation made, whichever plan was the last. */
static void end(struct sandbox *sb)
{
	sb->task = TASK_NONE;
	image_unref(sb->image);
	sb->image = NULL;
	sandbox_use_create_plan(sb);
	plan_adopt(&sb->plan);
}

void restart_done(struct sandbox *sb)
{
	end(sb);
	/* The domain has been made with the expiry of then. */
	reaper_kick(sb->all);
}

void restart_unwound(struct sandbox *sb)
{
	const char *name = restart_task_name(sb->task);
	struct err failure = sb->failure;
	struct err err;

	if (failure.kind == ERR_INTERNAL) {
		err_set(&failure, ERR_INTERNAL, "internal error");
	}
	err_wrap(&failure, "%s", name);
	bool is_as_before = !sb->has_stopped && sb->task_from == SANDBOX_RUNNING;

	if (sandbox_set_state(sb, is_as_before ? SANDBOX_RUNNING : SANDBOX_STOPPED,
		    is_as_before ? NULL : failure.msg, &err) != 0) {
		sandbox_retry_row(sb, &err);
		return;
	}
	end(sb);
	/* An internal error's text is for the log; on_unwinding() has written it. */
	sandbox_fail_waits(sb, &failure);
	sb->failure = ERR_INIT;
	channel_sync(sb);
	/* It may have ended meanwhile. */
	reconcile_soon(sb->all, 0);
}

static int check_disk(const struct sandbox *sb, struct err *err)
{
	if (access(sb->paths.overlay, F_OK) == 0 || errno != ENOENT) {
		return 0;
	}
	return err_set(err, ERR_CONFLICT,
		"the disk of sandbox %s is gone: it can be reset, but not restarted", sb->row->id);
}

static int check(const struct sandbox *sb, enum sandbox_task task, struct err *err)
{
	bool is_stopped = sb->state == SANDBOX_STOPPED && !sb->end_reason;

	if (!sandboxes_is_ready(sb->all, err) ||
		(!is_stopped && sandbox_check_running(sb, err) != 0)) {
		return -1;
	}
	if (sb->plan.phase != PLAN_DONE) {
		return err_set(err, ERR_CONFLICT, "sandbox %s is still starting", sb->row->id);
	}
	return task == TASK_RESTART ? check_disk(sb, err) : 0;
}

static int begin(struct sandbox *sb, enum sandbox_task task, struct err *err)
{
	struct image *image;

	loop_assert();
	if (check(sb, task, err) != 0) {
		return -1;
	}
	image = image_get(sb->all->images, sb->row->image, sb->row->image_version, err);
	if (!image) {
		return -1;
	}
	sb->task = task;
	sb->task_from = sb->state;
	snprintf(sb->request, sizeof sb->request, "%s", log_request());
	if (sandbox_set_state(sb, SANDBOX_PROVISIONING, "", err) != 0) {
		sb->task = TASK_NONE;
		sb->request[0] = '\0';
		image_unref(image);
		return -1;
	}
	sb->image = image;
	struct err why;

	(void)sandbox_check_running(sb, &why);
	extend_end_all(sb, &why);
	run(sb);
	return 0;
}

int sandbox_restart(struct sandbox *sb, struct err *err)
{
	return begin(sb, TASK_RESTART, err);
}

int sandbox_reset(struct sandbox *sb, struct err *err)
{
	return begin(sb, TASK_RESET, err);
}

void restart_redo(struct sandbox *sb, bool has_domain)
{
	struct err err;

	ASSERT(sb->task != TASK_NONE && sb->plan.phase == PLAN_DONE);
	sb->image = image_get(sb->all->images, sb->row->image, sb->row->image_version, &err);
	if (!sb->image && err.kind == ERR_UNAVAILABLE) {
		/* It is being verified, say, as after each start of the daemon. */
		log_failure(LOG_LEVEL_WARN, "sandbox task not resumed yet, will retry", &err,
			"sb=%s task=%s", sb->row->id, restart_task_name(sb->task));
		reconcile_soon(sb->all, IMAGE_RETRY_MS);
		return;
	}
	sb->has_domain = has_domain;
	sb->task_from = has_domain ? SANDBOX_RUNNING : SANDBOX_STOPPED;
	if (sb->image) {
		run(sb);
	} else {
		sb->failure = err;
		sb->has_stopped = true;
		use_plan(sb);
		plan_adopt(&sb->plan);
		plan_unwind(&sb->plan, NULL, &err);
	}
}

void restart_init(struct sandbox *sb)
{
	sb->stop_timer = loop_timer_new(sb->all->loop, on_stop_timer, sb);
}

void restart_fini(struct sandbox *sb)
{
	event_free(sb->stop_timer);
}
