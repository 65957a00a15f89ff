#include "sandbox/sandbox.h"

#include <string.h>

#include "base/log.h"
#include "base/xalloc.h"
#include "sandbox/exec_records.h"
#include "sandbox/held_uids.h"
#include "sandbox/job.h"
#include "sandbox/paths.h"
#include "sandbox/sandbox_priv.h"

/*
 * Theory of operation
 *
 * The registry is a list: a host runs tens or hundreds of virtual machines, and walking that many
 * entries costs less than anything that is done with one afterwards.
 *
 * Waits are answered from a deferred call, so nobody is called from within what he called. An ended
 * sandbox lingers in `ended` until that has happened and the last hold is gone.
 */

enum wait_kind { WAIT_READY, WAIT_GONE };

struct sandbox_wait {
	TAILQ_ENTRY(sandbox_wait) link; /* sandbox.waits */
	struct sandbox *sb;
	enum wait_kind kind;
	struct err failure; /* what is to be told, whatever the state; kind NONE: nothing */
	sandbox_wait_fn fn;
	void *arg;
};

/* ---- waits ---- */

/* Whether the present state answers @wait. *ret: kind NONE: fine. */
static bool is_answered(const struct sandbox_wait *wait, struct err *ret)
{
	const struct sandbox *sb = wait->sb;
	const char *reason = sb->row->reason ? sb->row->reason : "";

	*ret = ERR_INIT;
	if (wait->kind == WAIT_GONE) {
		return sandbox_state_is_final(sb->state);
	}
	if (wait->failure.kind != ERR_NONE) {
		*ret = wait->failure;
		return true;
	}
	if (sb->state == SANDBOX_RUNNING) {
		return true;
	}
	if (sb->state == SANDBOX_PROVISIONING && sb->task != TASK_NONE) {
		return false;
	}
	if (sb->state == SANDBOX_PROVISIONING || sb->state == SANDBOX_FAILED) {
		*ret = sb->failure;
		return sb->failure.kind != ERR_NONE;
	}
	if (sb->state == SANDBOX_STOPPED) {
		err_set(ret, ERR_CONFLICT, "sandbox %s is stopped: %s", sb->row->id, reason);
		return true;
	}
	err_set(ret, ERR_ENDED, "sandbox %s ended: %s", sb->row->id, reason);
	return true;
}

static void sandbox_free(struct sandbox *sb);

static void free_if_over(struct sandbox *sb)
{
	if (sandbox_state_is_final(sb->state) && sb->holds == 0 && !sb->is_telling &&
		TAILQ_EMPTY(&sb->waits)) {
		sandbox_free(sb);
	}
}

static void wait_free(struct sandbox_wait *wait)
{
	TAILQ_REMOVE(&wait->sb->waits, wait, link);
	free(wait);
}

static void on_tell_waits(void *arg)
{
	struct sandbox *sb = arg;
	struct sandbox_wait *wait = TAILQ_FIRST(&sb->waits);

	while (wait) {
		struct err err;

		if (!is_answered(wait, &err)) {
			wait = TAILQ_NEXT(wait, link);
			continue;
		}
		sandbox_wait_fn fn = wait->fn;
		void *fn_arg = wait->arg;

		wait_free(wait);
		fn(fn_arg, sb, err.kind == ERR_NONE ? NULL : &err);
		/* It may have cancelled any other. */
		wait = TAILQ_FIRST(&sb->waits);
	}
	sb->is_telling = false;
	free_if_over(sb);
}

void sandbox_tell_waits(struct sandbox *sb)
{
	if (!sb->is_telling) {
		sb->is_telling = true;
		loop_defer(sb->all->loop, on_tell_waits, sb);
	}
}

void sandbox_fail_waits(struct sandbox *sb, const struct err *err)
{
	struct sandbox_wait *wait;

	TAILQ_FOREACH (wait, &sb->waits, link) {
		wait->failure = *err;
	}
	sandbox_tell_waits(sb);
}

static struct sandbox_wait *wait_new(
	struct sandbox *sb, enum wait_kind kind, sandbox_wait_fn fn, void *arg)
{
	struct sandbox_wait *wait = xnew(struct sandbox_wait);

	loop_assert();
	wait->sb = sb;
	wait->kind = kind;
	wait->fn = fn;
	wait->arg = arg;
	TAILQ_INSERT_TAIL(&sb->waits, wait, link);
	sandbox_tell_waits(sb);
	return wait;
}

struct sandbox_wait *sandbox_wait_ready(struct sandbox *sb, sandbox_wait_fn fn, void *arg)
{
	return wait_new(sb, WAIT_READY, fn, arg);
}

struct sandbox_wait *sandbox_wait_gone(struct sandbox *sb, sandbox_wait_fn fn, void *arg)
{
	return wait_new(sb, WAIT_GONE, fn, arg);
}

void sandbox_wait_cancel(struct sandbox_wait *wait)
{
	struct sandbox *sb = wait->sb;

	wait_free(wait);
	/* It may have been what kept an ended one. */
	if (sandbox_state_is_final(sb->state)) {
		sandbox_tell_waits(sb);
	}
}

/* ---- the object ---- */

struct sandbox *sandbox_new(
	struct sandboxes *all, struct store_sandbox *row, enum sandbox_state state)
{
	struct sandbox *sb = xnew(struct sandbox);

	sb->all = all;
	sb->row = row;
	sb->state = state;
	sb->changed_seq = ++all->seq;
	TAILQ_INIT(&sb->waits);
	TAILQ_INIT(&sb->calls);
	TAILQ_INIT(&sb->records);
	TAILQ_INIT(&sb->exec_waits);
	jobs_init(sb);
	extend_init(sb);
	egress_init(sb);
	paths_init(&sb->paths, all->config.state_dir, all->config.run_dir, row->id);
	boot_init(sb);
	restart_init(sb);
	pause_init(sb);
	sandbox_plan_init(sb);
	TAILQ_INSERT_TAIL(&all->live, sb, link);
	all->count++;
	return sb;
}

/* Out of whichever list it is in. */
static void sandbox_free(struct sandbox *sb)
{
	struct sandboxes *all = sb->all;

	TAILQ_REMOVE(sandbox_state_is_final(sb->state) ? &all->ended : &all->live, sb, link);
	loop_cancel_deferred(all->loop, on_tell_waits, sb);
	egress_fini(sb);
	extend_fini(sb);
	sandbox_plan_fini(sb);
	pause_fini(sb);
	restart_fini(sb);
	boot_fini(sb);
	ASSERT(TAILQ_EMPTY(&sb->calls) && TAILQ_EMPTY(&sb->waits) && TAILQ_EMPTY(&sb->extends));
	jobs_fini(sb);
	exec_records_free(sb);
	quota_refund(&sb->charge);
	image_unref(sb->image);
	paths_fini(&sb->paths);
	store_sandbox_free(sb->row);
	free(sb->end_reason);
	free(sb);
}

void sandbox_hold(struct sandbox *sb)
{
	sb->holds++;
}

void sandbox_release(struct sandbox *sb)
{
	ASSERT(sb->holds > 0);
	sb->holds--;
	free_if_over(sb);
}

void sandbox_retire(struct sandbox *sb)
{
	ASSERT(sandbox_state_is_final(sb->state));
	TAILQ_REMOVE(&sb->all->live, sb, link);
	TAILQ_INSERT_TAIL(&sb->all->ended, sb, link);
	sb->all->count--;
	/* Frees it, too. */
	sandbox_tell_waits(sb);
}

const struct store_sandbox *sandbox_row(const struct sandbox *sb)
{
	return sb->row;
}

enum sandbox_state sandbox_state(const struct sandbox *sb)
{
	return sb->state;
}

bool sandbox_has_network(const struct sandbox *sb)
{
	return strcmp(sb->row->network, SANDBOX_NETWORK_NAME_EGRESS) == 0;
}

bool sandbox_is_due(const struct sandbox *sb, int64_t now_ms)
{
	return sb->row->expires_at_ms > 0 && sb->row->expires_at_ms <= now_ms;
}

bool sandbox_is_going(const struct sandbox *sb)
{
	return sb->end_reason || sb->state == SANDBOX_DELETING || sandbox_state_is_final(sb->state);
}

int sandbox_check_running(const struct sandbox *sb, struct err *err)
{
	const char *id = sb->row->id;

	if (sb->all->is_closing) {
		return err_set(err, ERR_CANCELLED, "the service is shutting down");
	}
	if (sb->state == SANDBOX_RUNNING && !sb->end_reason) {
		return 0;
	}
	if (sb->state == SANDBOX_PROVISIONING && !sb->end_reason && sb->task != TASK_NONE) {
		return err_set(err, ERR_CONFLICT, "sandbox %s is being %s", id,
			sb->task == TASK_RESTART ? "restarted" : "reset");
	}
	if (sb->state == SANDBOX_PROVISIONING && !sb->end_reason && sb->failure.kind == ERR_NONE) {
		return err_set(err, ERR_CONFLICT, "sandbox %s is still starting", id);
	}
	if (sb->state == SANDBOX_STOPPED) {
		return err_set(err, ERR_CONFLICT, "sandbox %s is stopped", id);
	}
	const char *reason = sb->row->reason ? sb->row->reason : sb->end_reason;

	return err_set(err, ERR_ENDED, "sandbox %s has ended: %s", id, reason ? reason : "failed");
}

/* ---- the registry ---- */

struct sandbox *sandbox_find_id(struct sandboxes *all, const char *id)
{
	struct sandbox *sb;

	TAILQ_FOREACH (sb, &all->live, link) {
		if (strcmp(sb->row->id, id) == 0) {
			return sb;
		}
	}
	return NULL;
}

struct sandbox *sandbox_find(struct sandboxes *all, const char *account, const char *id_or_name)
{
	struct sandbox *sb;

	loop_assert();
	TAILQ_FOREACH (sb, &all->live, link) {
		const struct store_sandbox *row = sb->row;

		if ((!account || strcmp(row->account, account) == 0) &&
			(strcmp(row->id, id_or_name) == 0 ||
				(account && row->name && strcmp(row->name, id_or_name) == 0))) {
			return sb;
		}
	}
	return NULL;
}

size_t sandboxes_count(const struct sandboxes *all)
{
	return all->count;
}

struct sandboxes *sandboxes_new(struct loop *loop, const struct sandboxes_config *config,
	struct store *store, struct quotas *quotas, struct images *images, struct hv *hv,
	struct guest_driver *guests, struct err *err)
{
	loop_assert();
	ASSERT(config->boot_timeout_ms > 0 && config->max_lifetime_minutes > 0);
	if (paths_prepare(config->state_dir, config->run_dir, err) != 0) {
		return NULL;
	}
	struct sandboxes *all = xnew(struct sandboxes);

	all->loop = loop;
	all->config = *config;
	all->config.state_dir = xstrdup(config->state_dir);
	all->config.run_dir = xstrdup(config->run_dir);
	all->config.guest_env = strv_dup(config->guest_env);
	all->config.guest_ca_pem = xstrdup(config->guest_ca_pem);
	all->outputs_cap = MAX(SANDBOX_OUTPUT_CAPS * config->exec_output_cap,
		SANDBOX_OUTPUT_LARGE_CAPS * config->exec_output_max);
	all->store = store;
	all->quotas = quotas;
	all->images = images;
	all->hv = hv;
	all->guests = guests;
	TAILQ_INIT(&all->live);
	TAILQ_INIT(&all->ended);
	err_set(&all->hv_why, ERR_UNAVAILABLE, "the hypervisor is being connected");
	all->egress_why = xstrdup("the host filter has not been set up");
	reaper_init(all);
	held_uids_init(all);
	reconcile_init(all);
	strays_init(all);
	records_init(all);
	exec_records_init(all);
	return all;
}

/* Their results are the last that can be kept. */
static void end_calls(struct sandboxes *all)
{
	struct sandbox *sb;

	TAILQ_FOREACH (sb, &all->live, link) {
		channel_close(sb);
	}
}

static void drop_all(struct sandbox_list *list)
{
	struct err err;
	struct sandbox *sb;

	err_set(&err, ERR_CANCELLED, "the service is shutting down");
	while ((sb = TAILQ_FIRST(list))) {
		struct sandbox_wait *wait;

		channel_close(sb);
		extend_end_all(sb, &err);
		while ((wait = TAILQ_FIRST(&sb->waits))) {
			sandbox_wait_fn fn = wait->fn;
			void *arg = wait->arg;

			wait_free(wait);
			fn(arg, sb, &err);
		}
		sandbox_free(sb);
	}
}

void sandboxes_free(struct sandboxes *all)
{
	if (!all) {
		return;
	}
	loop_assert();
	all->is_closing = true;
	if (all->is_hv_open) {
		all->hv->ops->close(all->hv);
	}
	reaper_fini(all);
	held_uids_fini(all);
	reconcile_fini(all);
	strays_fini(all);
	end_calls(all);
	exec_records_fini(all);
	records_fini(all);
	drop_all(&all->live);
	drop_all(&all->ended);
	free((char *)all->config.state_dir);
	free((char *)all->config.run_dir);
	strv_free((char **)all->config.guest_env);
	free((char *)all->config.guest_ca_pem);
	free(all->egress_why);
	free(all);
}

/* ---- start ---- */

static void on_hv_event(void *arg, const char *id, enum hv_event event)
{
	struct sandboxes *all = arg;
	struct sandbox *sb = all->config.is_inspection ? NULL : sandbox_find_id(all, id);

	if (!sb) {
		return;
	}
	switch (event) {
	case HV_EVENT_STOPPED:
		sandbox_domain_ended(sb, "guest_shutdown");
		break;
	case HV_EVENT_LOST:
		sandbox_domain_ended(sb, "lost");
		break;
	case HV_EVENT_PAUSED:
		pause_begun(sb);
		break;
	case HV_EVENT_RESUMED:
		pause_over(sb);
		break;
	}
}

static void on_hv_late(void *arg, const char *id)
{
	struct sandboxes *all = arg;
	struct sandbox *sb = sandbox_find_id(all, id);

	log_warn("hypervisor answered late", "sb=%s", id);
	if (sb && sb->has_domain) {
		egress_lost_track(sb);
	}
	reconcile_soon(all, 0);
}

static void on_hv_ready(void *arg, bool is_ready, const struct err *err)
{
	struct sandboxes *all = arg;
	struct sandbox *sb;

	all->is_hv_ready = is_ready;
	if (!is_ready) {
		if (err) {
			all->hv_why = *err;
		}
		log_failure(LOG_LEVEL_WARN, "hypervisor not available", &all->hv_why, "live=%zu",
			all->count);
		return;
	}
	TAILQ_FOREACH (sb, &all->live, link) {
		plan_retry_now(&sb->plan);
	}
	reconcile_soon(all, 0);
	strays_kick(all);
}

static int load(struct sandboxes *all, struct err *err)
{
	_cleanup_store_sandbox_list_ struct store_sandbox_list list = {0};

	if (store_sandbox_list_owning(all->store, &list, err) != 0) {
		return err_wrap(err, "read the sandboxes");
	}
	for (size_t i = 0; i < list.count; i++) {
		struct store_sandbox *row = list.rows[i];
		enum sandbox_state state;

		if (row->ended_at_ms > 0) {
			held_uids_add(all, row->id);
			continue;
		}
		if (!sandbox_state_parse(row->state, &state) || sandbox_state_is_final(state)) {
			return err_set(err, ERR_INTERNAL, "%s is live and in state \"%s\"", row->id,
				row->state);
		}
		const struct quota_amounts amounts = {.sandboxes = 1,
			.vcpus = row->vcpus,
			.memory_mb = row->memory_mb,
			.disk_gb = row->disk_gb};
		struct sandbox *sb = sandbox_new(all, steal_ptr(&list.rows[i]), state);

		sb->task = restart_parse_task(sb->row->task);
		quota_restore(all->quotas, sb->row->account, &amounts, &sb->charge);
		plan_adopt(&sb->plan);
		if (!all->config.is_inspection && exec_records_load(sb, err) != 0) {
			return err_wrap(err, "read the commands of %s", sb->row->id);
		}
	}
	return 0;
}

int sandboxes_start(struct sandboxes *all, struct err *err)
{
	static const struct hv_hooks hooks = {
		.on_event = on_hv_event, .on_late = on_hv_late, .on_ready = on_hv_ready};
	struct hv_hooks own = hooks;

	loop_assert();
	ASSERT(!all->is_hv_open);
	if (load(all, err) != 0) {
		return -1;
	}
	if (!all->config.is_inspection) {
		records_start(all);
	}
	own.arg = all;
	all->is_hv_open = true;
	all->hv->ops->open(all->hv, &own);
	return 0;
}

bool sandboxes_is_ready(const struct sandboxes *all, struct err *ret_why)
{
	if (!store_is_good(all->store, ret_why)) {
		return false;
	}
	if (!all->is_hv_ready) {
		err_set(ret_why, ERR_UNAVAILABLE, "the hypervisor is not available: %s",
			all->hv_why.kind == ERR_INTERNAL ? "see the log" : all->hv_why.msg);
		return false;
	}
	if (!all->is_reconciled) {
		err_set(ret_why, ERR_UNAVAILABLE, "sandboxes from before are still being checked");
		return false;
	}
	return true;
}
