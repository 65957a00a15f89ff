#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "sandbox/job.h"
#include "sandbox/sandbox_priv.h"

/*
 * Theory of operation
 *
 * A pass asks the hypervisor for all domains of this instance and compares them with the live rows.
 * What has no live row is strays.c's affair, which has a pass of its own after it. It runs once the
 * hypervisor is ready, every PERIOD_MS after that, and when something suggests it (a call that came
 * back late). What to do about a row and a domain is a table (reconcile_table.c); this file gathers
 * and acts.
 *
 * The list is a little old when it arrives. So only sandboxes that nobody works on and whose state
 * hasn't changed since the list was asked for are judged.
 *
 * The first pass opens the service. A domain that can't be told yet holds it back, but not for
 * ever.
 */

#define PERIOD_MS         30000
#define UNSETTLED_MS      300
#define FAILED_MS         2000
#define FIRST_PATIENCE_MS 15000

bool sandbox_is_busy(const struct sandbox *sb)
{
	return sb->plan.phase != PLAN_DONE || sb->end_reason;
}

/* ---- acting on a live row ---- */

static void attach(struct sandbox *sb, const struct hv_facts *facts)
{
	sb->has_domain = true;
	channel_open(sb);
	channel_sync(sb);
	jobs_sync(sb);
	extend_fix_metadata(sb, facts->expires_at_ms);
	egress_update(sb);
	if (facts->state == HV_DOMAIN_PAUSED) {
		pause_begun(sb);
	} else {
		pause_over(sb);
	}
}

static void on_reaped(void *arg, const struct err *err)
{
	struct sandbox *sb = arg;

	if (err) {
		log_failure(LOG_LEVEL_WARN, "domain of a stopped sandbox not removed, will retry",
			err, "sb=%s", sb->row->id);
	}
	sandbox_release(sb);
}

/* It should not be: the row says that there is none. */
static void reap_domain(struct sandbox *sb)
{
	struct hv *hv = sb->all->hv;

	log_warn("domain of a stopped sandbox", "sb=%s", sb->row->id);
	sandbox_hold(sb);
	hv->ops->destroy(hv, sb->row->id, on_reaped, sb);
}

/* Once: the record says it from then on. */
static void note_diskless(struct sandbox *sb)
{
	static const char reason[] = "its disk was removed on the host: save what is needed";
	struct err err;

	if (sb->row->reason && strcmp(sb->row->reason, reason) == 0) {
		return;
	}
	log_err("sandbox runs without its disk's file", "sb=%s", sb->row->id);
	if (sandbox_note_reason(sb, reason, &err) != 0) {
		log_failure(LOG_LEVEL_WARN, "sandbox row not written, will retry", &err, "sb=%s",
			sb->row->id);
	}
}

/* One whose restart was interrupted runs on as it is. */
static void keep_diskless(struct sandbox *sb, const struct hv_facts *facts)
{
	struct err err;

	if (sb->state == SANDBOX_PROVISIONING &&
		sandbox_set_state(sb, SANDBOX_RUNNING, NULL, &err) != 0) {
		log_failure(LOG_LEVEL_WARN, "sandbox row not written, will retry", &err, "sb=%s",
			sb->row->id);
		return;
	}
	sb->task = TASK_NONE;
	note_diskless(sb);
	attach(sb, facts);
}

static void act_on_row(
	struct sandbox *sb, enum reconcile_action action, const struct hv_facts *facts)
{
	switch (action) {
	case RECONCILE_ATTACH:
		attach(sb, facts);
		break;
	case RECONCILE_DISKLESS:
		keep_diskless(sb, facts);
		break;
	case RECONCILE_ENDED:
		sandbox_domain_ended(sb, "lost");
		break;
	case RECONCILE_LOST:
		sandbox_destroy(sb, RECONCILE_LOST_REASON);
		break;
	case RECONCILE_REDO:
		restart_redo(sb, facts && facts->state != HV_DOMAIN_SHUTOFF);
		break;
	case RECONCILE_UNDO:
	case RECONCILE_FINISH:
		sandbox_resume_end(sb, "interrupted");
		break;
	case RECONCILE_END:
		reap_domain(sb);
		break;
	case RECONCILE_KEEP:
	case RECONCILE_WAIT:
	default:
		break;
	}
}

/* ---- a pass ---- */

static const struct hv_facts *find_facts(const struct hv_facts *facts, size_t count, const char *id)
{
	for (size_t i = 0; i < count; i++) {
		if (strcmp(facts[i].id, id) == 0) {
			return &facts[i];
		}
	}
	return NULL;
}

static enum reconcile_row row_of(const struct sandbox *sb)
{
	static const enum reconcile_row rows[SANDBOX_STATE_MAX] = {
		[SANDBOX_PROVISIONING] = RECONCILE_CREATING,
		[SANDBOX_RUNNING] = RECONCILE_RUNNING,
		[SANDBOX_STOPPED] = RECONCILE_STOPPED,
		[SANDBOX_DELETING] = RECONCILE_DELETING,
	};
	static const enum reconcile_row tasks[] = {
		[TASK_RESTART] = RECONCILE_RESTARTING, [TASK_RESET] = RECONCILE_RESETTING};

	ASSERT(!sandbox_state_is_final(sb->state));
	return sb->task != TASK_NONE ? tasks[sb->task] : rows[sb->state];
}

/* Only where it surely isn't there: what can't be looked at counts as there. */
static enum reconcile_disk disk_of(const struct sandbox *sb)
{
	return access(sb->paths.overlay, F_OK) != 0 && errno == ENOENT ? RECONCILE_NO_DISK
								       : RECONCILE_DISK;
}

enum reconcile_action reconcile_judge(const struct sandbox *sb, const struct hv_facts *own)
{
	return reconcile_decide(row_of(sb), reconcile_domain_of(own), disk_of(sb));
}

/* How many can't be told yet. */
static size_t judge_rows(struct sandboxes *all, const struct hv_facts *facts, size_t count)
{
	size_t unsettled = 0;
	struct sandbox *sb;

	TAILQ_FOREACH (sb, &all->live, link) {
		if (sandbox_is_busy(sb) || sb->changed_seq > all->reconcile_seq) {
			continue;
		}
		const struct hv_facts *own = find_facts(facts, count, sb->row->id);
		enum reconcile_action action = reconcile_judge(sb, own);

		unsettled += action == RECONCILE_WAIT;
		act_on_row(sb, action, own);
	}
	return unsettled;
}

/* Domains without a live row that can't be told yet. */
static size_t count_unsettled(struct sandboxes *all, const struct hv_facts *facts, size_t count)
{
	size_t unsettled = 0;

	for (size_t i = 0; i < count; i++) {
		unsettled += facts[i].state == HV_DOMAIN_UNSETTLED &&
			     !sandbox_find_id(all, facts[i].id);
	}
	return unsettled;
}

static void first_pass_done(struct sandboxes *all)
{
	all->is_reconciled = true;
	log_info("sandboxes from before are checked", "live=%zu", all->count);
	reaper_kick(all);
}

static void on_list(void *arg, const struct hv_facts *facts, size_t count, const struct err *err)
{
	struct sandboxes *all = arg;

	all->is_reconciling = false;
	if (err) {
		log_failure(LOG_LEVEL_WARN, "can't list domains, will retry", err, "live=%zu",
			all->count);
		reconcile_soon(all, FAILED_MS);
		return;
	}
	size_t unsettled = judge_rows(all, facts, count) + count_unsettled(all, facts, count);

	if (!all->is_reconciled &&
		(unsettled == 0 ||
			clock_monotonic_ms() - all->reconcile_since_ms >= FIRST_PATIENCE_MS)) {
		first_pass_done(all);
	}
	/* Its survey costs more than a list: not with each short look again. */
	strays_soon(all, unsettled == 0 ? 0 : PERIOD_MS);
	reconcile_soon(all, all->is_reconcile_wanted ? 0
			    : unsettled > 0          ? UNSETTLED_MS
						     : PERIOD_MS);
}

static void on_turn(evutil_socket_t fd, short what, void *arg)
{
	struct sandboxes *all = arg;

	(void)fd;
	(void)what;
	if (!all->is_hv_ready || all->config.is_inspection) {
		/* on_ready sets the timer again. */
		return;
	}
	if (all->is_reconciling) {
		/* Its list may be from before what there is to see now. */
		all->is_reconcile_wanted = true;
		return;
	}
	if (all->reconcile_since_ms == 0) {
		all->reconcile_since_ms = clock_monotonic_ms();
	}
	all->is_reconciling = true;
	all->is_reconcile_wanted = false;
	all->reconcile_seq = all->seq;
	all->hv->ops->list(all->hv, on_list, all);
}

void reconcile_soon(struct sandboxes *all, unsigned ms)
{
	uint64_t at = clock_monotonic_ms() + ms;

	/* Never later than what is set already. */
	if (!evtimer_pending(all->reconcile_timer, NULL) || at < all->reconcile_at_ms) {
		all->reconcile_at_ms = at;
		loop_timer_set(all->reconcile_timer, ms);
	}
}

void reconcile_init(struct sandboxes *all)
{
	all->reconcile_timer = loop_timer_new(all->loop, on_turn, all);
}

void reconcile_fini(struct sandboxes *all)
{
	event_free(all->reconcile_timer);
}
