#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/xalloc.h"
#include "sandbox/sandbox_priv.h"

/*
 * Theory of operation
 *
 * QEMU pauses a domain whose disk can't be written, as when the host's is full; the guest notices
 * nothing. It is resumed again and again, with growing pauses. QEMU then repeats the write, and
 * where that fails once more the domain is paused anew at once. So one that was resumed counts as
 * running only after it has been left alone for a moment:
 *
 *	NONE --paused--> STANDS --resumed--> GOES --SETTLE_MS--> NONE
 *	                 STANDS <--paused--- GOES
 *
 * Events say when it stands and when it goes; should one be lost, the next reconciliation finds
 * out.
 *
 * Meanwhile the record says so, and while it stands calls are refused: it can't answer. Where the
 * row can't be written, which is likely on a full disk, the record still says it as long as this
 * process lives.
 */

#define RESUME_FIRST_MS 500
#define RESUME_LAST_MS  5000
#define SETTLE_MS       1000

static const char pause_reason[] =
	"paused: its disk can't be written on the host, which may be full; goes on by itself";

static void set_reason(struct sandbox *sb, const char *reason)
{
	struct err err;

	if (sandbox_note_reason(sb, reason, &err) != 0) {
		log_failure(LOG_LEVEL_WARN, "sandbox row not written, will retry", &err, "sb=%s",
			sb->row->id);
		sandbox_assume_reason(sb, reason);
	}
}

/* Never in place of another one. */
static void note(struct sandbox *sb)
{
	if (sb->state == SANDBOX_RUNNING && !sb->row->reason) {
		set_reason(sb, pause_reason);
	}
}

static void unnote(struct sandbox *sb)
{
	if (sb->state == SANDBOX_RUNNING && sb->row->reason &&
		strcmp(sb->row->reason, pause_reason) == 0) {
		set_reason(sb, "");
	}
}

static void resume_later(struct sandbox *sb)
{
	unsigned shift = MIN(sb->pause_tries, 8U);

	if (!sb->is_resume_call_due) {
		loop_timer_set(sb->pause_timer, MIN(RESUME_FIRST_MS << shift, RESUME_LAST_MS));
	}
}

static void on_resumed(void *arg, const struct err *err)
{
	struct sandbox *sb = arg;

	sb->is_resume_call_due = false;
	if (err && sb->pause == PAUSE_STANDS) {
		log_failure(LOG_LEVEL_WARN, "sandbox is paused, will retry to resume it", err,
			"sb=%s tries=%u", sb->row->id, sb->pause_tries);
		/* It may run already, or have ended. */
		reconcile_soon(sb->all, 0);
	}
	if (sb->pause == PAUSE_STANDS) {
		/* Its event may still come. */
		resume_later(sb);
	}
	sandbox_release(sb);
}

static void resume(struct sandbox *sb)
{
	struct hv *hv = sb->all->hv;

	sb->pause_tries++;
	sb->is_resume_call_due = true;
	sandbox_hold(sb);
	hv->ops->resume(hv, sb->row->id, on_resumed, sb);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct sandbox *sb = arg;

	(void)fd;
	(void)what;
	if (sb->pause == PAUSE_STANDS) {
		note(sb);
		resume(sb);
		return;
	}
	log_info("sandbox goes on after a pause", "sb=%s tries=%u", sb->row->id, sb->pause_tries);
	pause_forget(sb);
	unnote(sb);
}

void pause_begun(struct sandbox *sb)
{
	unsigned suppressed;

	if (sb->pause == PAUSE_STANDS ||
		(sb->state != SANDBOX_RUNNING && sb->state != SANDBOX_PROVISIONING)) {
		return;
	}
	if (sb->pause == PAUSE_NONE &&
		log_limit_allows(&sb->log_limit, clock_monotonic_ms(), &suppressed)) {
		log_warn("sandbox is paused by the host", "sb=%s suppressed=%u", sb->row->id,
			suppressed);
	}
	sb->pause = PAUSE_STANDS;
	note(sb);
	resume_later(sb);
}

void pause_over(struct sandbox *sb)
{
	if (sb->pause == PAUSE_STANDS) {
		sb->pause = PAUSE_GOES;
		loop_timer_set(sb->pause_timer, SETTLE_MS);
	} else if (sb->pause == PAUSE_NONE) {
		/* The row may have it from before a restart. */
		unnote(sb);
	}
}

void pause_forget(struct sandbox *sb)
{
	sb->pause = PAUSE_NONE;
	sb->pause_tries = 0;
	evtimer_del(sb->pause_timer);
}

int pause_check(const struct sandbox *sb, struct err *err)
{
	if (sb->pause != PAUSE_STANDS) {
		return 0;
	}
	return err_set(err, ERR_UNAVAILABLE,
		"sandbox %s is paused, since its disk can't be written on the host; it goes on by "
		"itself once there is room",
		sb->row->id);
}

void pause_init(struct sandbox *sb)
{
	sb->pause_timer = loop_timer_new(sb->all->loop, on_timer, sb);
}

void pause_fini(struct sandbox *sb)
{
	event_free(sb->pause_timer);
}
