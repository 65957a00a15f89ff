#include "sandbox/strays.h"

#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/xalloc.h"
#include "sandbox/held_uids.h"
#include "sandbox/paths.h"
#include "sandbox/sandbox_priv.h"
#include "sandbox/stray_judge.h"

/*
 * Theory of operation
 *
 * A call surveys, judges and, where it is to, removes; calls are done one after the other, so that
 * no two of them remove the same thing. The daemon's own pass is such a call. It leaves out live
 * records: those are reconcile.c's and reaper.c's, and both act at once.
 *
 * A domain or a process takes its files along, and while one is there its files aren't strays of
 * their own: nothing is taken from under a QEMU that runs. Live records end through their sandbox,
 * as they always do.
 *
 * What was judged may have changed by the time it is its turn, so a live record is looked for once
 * more before anything is done. Nothing without one can get one: ids are never used twice.
 */

#define PERIOD_MS     30000
#define SOONEST_MS    100
#define AT_ONCE       4     /* removals; more only gets slower */
#define CALLS_MAX     8     /* waiting */
#define END_WITHIN_MS 60000 /* of a sandbox; it goes on afterwards */

struct strays_call {
	TAILQ_ENTRY(strays_call) link; /* sandboxes.strays_calls */
	struct sandboxes *all;
	struct strays_request request;
	bool is_pass;  /* the daemon's own */
	bool is_again; /* another one was wished meanwhile */
	strays_fn fn;  /* NULL: the caller is gone */
	void *arg;
	struct event *ready_timer;
	bool is_begun;
	uint64_t seq;
	struct stray_list list;
	size_t next; /* to be removed */
	unsigned running;
	TAILQ_HEAD(, removal) removals; /* `running` of them */
};

struct removal {
	TAILQ_ENTRY(removal) link; /* strays_call.removals */
	struct strays_call *call;
	struct stray *stray;
	struct hv_paths paths;
	struct sandbox_wait *wait;
	struct event *timer; /* of the wait */
};

static void begin_first(struct sandboxes *all);
static void on_turn_of_call(void *arg);

/* ---- a call's end ---- */

static void call_free(struct strays_call *call)
{
	TAILQ_REMOVE(&call->all->strays_calls, call, link);
	loop_cancel_deferred(call->all->loop, on_turn_of_call, call);
	event_free(call->ready_timer);
	stray_list_fini(&call->list);
	free(call);
}

static void pass_done(struct strays_call *call, const struct err *err)
{
	int64_t next = MIN(call->list.next_ms, (int64_t)PERIOD_MS);

	if (err) {
		log_failure(LOG_LEVEL_WARN, "can't look for strays, will retry", err, "live=%zu",
			call->all->count);
		next = PERIOD_MS;
	}
	if (call->is_again && !err) {
		next = 0;
	}
	strays_soon(call->all, (unsigned)MAX(next, (int64_t)SOONEST_MS));
}

static void finish(struct strays_call *call, const struct err *err)
{
	struct sandboxes *all = call->all;
	const struct strays_report report = {
		.strays = call->list.items, .count = call->list.count, .young = call->list.young};

	if (call->is_pass) {
		pass_done(call, err);
	} else if (call->fn) {
		call->fn(call->arg, err ? NULL : &report, err);
	}
	call_free(call);
	begin_first(all);
}

/* ---- removing one ---- */

static void go_on(struct strays_call *call);

static void removal_free(struct removal *removal)
{
	TAILQ_REMOVE(&removal->call->removals, removal, link);
	removal->call->running--;
	if (removal->wait) {
		sandbox_wait_cancel(removal->wait);
	}
	if (removal->timer) {
		event_free(removal->timer);
	}
	paths_fini(&removal->paths);
	free(removal);
}

static void removal_done(struct removal *removal, const struct err *err)
{
	struct strays_call *call = removal->call;
	struct stray *stray = removal->stray;
	char what[HV_RESIDUE_NAME_BYTES * 2];

	log_quote(what, sizeof what, stray->what, strlen(stray->what));
	if (err) {
		stray->result = STRAY_FAILED;
		stray->err = *err;
		log_failure(LOG_LEVEL_WARN, "stray not removed", err, "kind=%s what=%s",
			stray_kind_name(stray->kind), what);
	} else {
		stray->result = STRAY_REAPED;
		log_warn("stray removed", "kind=%s what=%s reason=\"%s\"",
			stray_kind_name(stray->kind), what, stray->reason);
	}
	removal_free(removal);
	go_on(call);
}

static void on_removed(void *arg, const struct err *err)
{
	removal_done(arg, err);
}

static void on_files_removed(void *arg, const struct err *err)
{
	struct removal *removal = arg;
	struct err home_err;

	if (!err && paths_remove_home(removal->call->all->config.state_dir, removal->stray->id,
			    &home_err) != 0) {
		err = &home_err;
	}
	removal_done(removal, err);
}

static void remove_files(struct removal *removal)
{
	struct sandboxes *all = removal->call->all;
	const char *id = removal->stray->id;

	all->hv->ops->disk_remove(all->hv, id, &removal->paths, on_files_removed, removal);
}

static void on_user_ended(void *arg, const struct err *err)
{
	struct removal *removal = arg;
	const struct stray *stray = removal->stray;

	/* A live one keeps its files: it is only stopped. */
	if (err || !stray->id[0] || sandbox_find_id(removal->call->all, stray->id)) {
		removal_done(removal, err);
		return;
	}
	remove_files(removal);
}

/* ---- removing one that has a live record ---- */

static void on_gone(void *arg, struct sandbox *sb, const struct err *err)
{
	struct removal *removal = arg;

	(void)sb;
	removal->wait = NULL;
	removal_done(removal, err);
}

static void on_wait_timeout(evutil_socket_t fd, short what, void *arg)
{
	struct err err;

	(void)fd;
	(void)what;
	err_set(&err, ERR_TIMEOUT, "not done after %d s; it goes on while a daemon runs",
		END_WITHIN_MS / MS_PER_SECOND);
	removal_done(arg, &err);
}

static void await_end(struct removal *removal, struct sandbox *sb)
{
	removal->wait = sandbox_wait_gone(sb, on_gone, removal);
	removal->timer = loop_timer_new(sb->all->loop, on_wait_timeout, removal);
	loop_timer_set(removal->timer, END_WITHIN_MS);
}

static void end_sandbox(struct removal *removal, struct sandbox *sb)
{
	struct strays_call *call = removal->call;

	/* Somebody has begun something with it meanwhile: no stray any more, or soon gone. */
	if (sandbox_is_busy(sb) || sb->changed_seq > call->seq) {
		removal_done(removal, NULL);
		return;
	}
	if (removal->stray->kind == STRAY_DOMAIN && !sandbox_is_due(sb, clock_wall_ms())) {
		struct hv *hv = call->all->hv;

		hv->ops->destroy(hv, sb->row->id, on_user_ended, removal);
		return;
	}
	if (sandbox_is_due(sb, clock_wall_ms())) {
		sandbox_destroy(sb, "expired");
		/* "Deleting" from before a restart: destroying it is a matter of going on. */
		if (!sb->end_reason) {
			sandbox_resume_end(sb, "interrupted");
		}
	} else if (removal->stray->is_lost) {
		sandbox_destroy(sb, RECONCILE_LOST_REASON);
	} else if (sb->state == SANDBOX_RUNNING) {
		sandbox_domain_ended(sb, "lost");
	} else {
		sandbox_resume_end(sb, "interrupted");
	}
	if (sb->state == SANDBOX_STOPPED) {
		removal_done(removal, NULL);
		return;
	}
	await_end(removal, sb);
}

/* ---- a call's removals ---- */

static void begin_removal(struct strays_call *call, struct stray *stray)
{
	struct sandboxes *all = call->all;
	struct hv *hv = all->hv;
	struct removal *removal = xnew(struct removal);
	struct sandbox *sb = stray->id[0] ? sandbox_find_id(all, stray->id) : NULL;

	removal->call = call;
	removal->stray = stray;
	TAILQ_INSERT_TAIL(&call->removals, removal, link);
	call->running++;
	if (stray->id[0]) {
		paths_init(&removal->paths, all->config.state_dir, all->config.run_dir, stray->id);
	}
	switch (stray->kind) {
	case STRAY_DOMAIN:
	case STRAY_RECORD:
		if (sb) {
			end_sandbox(removal, sb);
		} else {
			hv->ops->destroy(hv, stray->id, on_user_ended, removal);
		}
		break;
	case STRAY_PROCESS:
		hv->ops->residue_remove(hv, &stray->residue, on_user_ended, removal);
		break;
	case STRAY_DISK:
	case STRAY_SOCKETS:
		remove_files(removal);
		break;
	case STRAY_LOG:
	case STRAY_LEFTOVER:
	case STRAY_KIND_MAX:
	default:
		hv->ops->residue_remove(hv, &stray->residue, on_removed, removal);
		break;
	}
}

static void on_turn_of_call(void *arg)
{
	struct strays_call *call = arg;
	bool is_on = call->request.is_reap && (call->fn || call->is_pass);

	while (is_on && call->running < AT_ONCE && call->next < call->list.count) {
		struct stray *stray = &call->list.items[call->next++];

		if (!stray->instance[0]) {
			begin_removal(call, stray);
		}
	}
	if (call->running == 0) {
		finish(call, NULL);
	}
}

/* From the loop, since removals may end at once. */
static void go_on(struct strays_call *call)
{
	loop_cancel_deferred(call->all->loop, on_turn_of_call, call);
	loop_defer(call->all->loop, on_turn_of_call, call);
}

/* ---- a call's look ---- */

static int judge(struct strays_call *call, const struct hv_survey *survey, struct err *err)
{
	struct sandboxes *all = call->all;
	const struct stray_scope scope = {.has_rows = !call->is_pass,
		.has_others = call->request.wants_others,
		.seq = call->seq};
	_cleanup_(paths_list_fini) struct paths_list files = {0};

	if (paths_list(all->config.state_dir, all->config.run_dir, &files, err) != 0 ||
		stray_judge(all, survey, &files, &scope, &call->list, err) != 0) {
		return -1;
	}
	return call->is_pass ? held_uids_release(all, survey, &files, err) : 0;
}

static void on_survey(void *arg, const struct hv_survey *survey, const struct err *err)
{
	struct strays_call *call = arg;
	struct err judge_err;

	if (!err && judge(call, survey, &judge_err) != 0) {
		err = &judge_err;
	}
	if (err) {
		finish(call, err);
		return;
	}
	go_on(call);
}

static bool is_ready(const struct sandboxes *all, struct err *ret_why)
{
	if (all->config.is_inspection && all->is_hv_ready) {
		return true;
	}
	return sandboxes_is_ready(all, ret_why);
}

static void begin(struct strays_call *call)
{
	struct sandboxes *all = call->all;

	call->is_begun = true;
	evtimer_del(call->ready_timer);
	call->seq = all->seq;
	all->hv->ops->survey(all->hv, on_survey, call);
}

static void on_begin(void *arg)
{
	struct sandboxes *all = arg;
	struct strays_call *call = TAILQ_FIRST(&all->strays_calls);
	struct err err;

	if (!call || call->is_begun) {
		return;
	}
	if (!call->is_pass && !call->fn) {
		finish(call, NULL);
	} else if (is_ready(all, &err)) {
		begin(call);
	} else if (call->request.ready_ms == 0) {
		finish(call, &err);
	}
	/* Else strays_kick() or the timer goes on. */
}

static void begin_first(struct sandboxes *all)
{
	loop_cancel_deferred(all->loop, on_begin, all);
	loop_defer(all->loop, on_begin, all);
}

static void on_ready_timeout(evutil_socket_t fd, short what, void *arg)
{
	struct strays_call *call = arg;
	struct err err;

	(void)fd;
	(void)what;
	(void)is_ready(call->all, &err);
	call->request.ready_ms = 0;
	if (call == TAILQ_FIRST(&call->all->strays_calls)) {
		begin_first(call->all);
	}
}

static struct strays_call *call_new(
	struct sandboxes *all, const struct strays_request *request, bool is_pass)
{
	struct strays_call *call = xnew(struct strays_call);

	call->all = all;
	call->request = *request;
	call->is_pass = is_pass;
	TAILQ_INIT(&call->removals);
	call->ready_timer = loop_timer_new(all->loop, on_ready_timeout, call);
	if (request->ready_ms > 0) {
		loop_timer_set(call->ready_timer, request->ready_ms);
	}
	TAILQ_INSERT_TAIL(&all->strays_calls, call, link);
	begin_first(all);
	return call;
}

/* ---- outside ---- */

struct strays_call *strays_find(struct sandboxes *all, const struct strays_request *request,
	strays_fn fn, void *arg, struct err *err)
{
	struct strays_call *call;
	unsigned waiting = 0;

	loop_assert();
	TAILQ_FOREACH (call, &all->strays_calls, link) {
		waiting++;
	}
	if (waiting >= CALLS_MAX) {
		err_set(err, ERR_RATE, "%u are looking for strays already", waiting);
		return NULL;
	}
	call = call_new(all, request, false);
	call->fn = fn;
	call->arg = arg;
	return call;
}

void strays_abandon(struct strays_call *call)
{
	call->fn = NULL;
	if (!call->is_begun) {
		begin_first(call->all);
	}
}

void strays_kick(struct sandboxes *all)
{
	begin_first(all);
}

/* ---- the daemon's own pass ---- */

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	static const struct strays_request request = {.is_reap = true};
	struct sandboxes *all = arg;
	struct strays_call *call;

	(void)fd;
	(void)what;
	TAILQ_FOREACH (call, &all->strays_calls, link) {
		if (call->is_pass) {
			/* Its survey may be from before what there is to see now. */
			call->is_again = true;
			return;
		}
	}
	call_new(all, &request, true);
}

void strays_soon(struct sandboxes *all, unsigned ms)
{
	uint64_t at = clock_monotonic_ms() + ms;

	if (all->config.is_inspection || !all->is_reconciled) {
		return;
	}
	/* Never later than what is set already. */
	if (!evtimer_pending(all->strays_timer, NULL) || at < all->strays_at_ms) {
		all->strays_at_ms = at;
		loop_timer_set(all->strays_timer, ms);
	}
}

void strays_init(struct sandboxes *all)
{
	TAILQ_INIT(&all->strays_calls);
	all->strays_timer = loop_timer_new(all->loop, on_timer, all);
}

void strays_fini(struct sandboxes *all)
{
	struct strays_call *call;
	struct err err;

	loop_cancel_deferred(all->loop, on_begin, all);
	err_set(&err, ERR_CANCELLED, "the service is shutting down");
	while ((call = TAILQ_FIRST(&all->strays_calls))) {
		strays_fn fn = call->fn;
		void *arg = call->arg;

		while (!TAILQ_EMPTY(&call->removals)) {
			removal_free(TAILQ_FIRST(&call->removals));
		}
		call_free(call);
		if (fn) {
			fn(arg, NULL, &err);
		}
	}
	event_free(all->strays_timer);
}
