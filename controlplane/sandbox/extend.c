#include "base/clock.h"
#include "base/log.h"
#include "base/xalloc.h"
#include "sandbox/sandbox_priv.h"

/*
 * Theory of operation
 *
 * The guest first: were the row first and the guest silent, the guest would power itself off before
 * the promised time. Requests queue, one at a time, each on top of what the one before it made of
 * the expiry. The first has EXTEND_WAIT_MS from its turn on, in which the channel may even come
 * back. When the guest's word doesn't come in time the row stays as it is, and since the guest may
 * have taken the longer time all the same, its settings are sent again (channel_sync).
 *
 * The reaper wins by making the state DELETING, which ends all requests; before that, an extension
 * that has reached the row wins.
 */

#define EXTEND_WAIT_MS 2000

struct extend_request {
	TAILQ_ENTRY(extend_request) link; /* sandbox.extends */
	struct sandbox *sb;
	unsigned minutes;
	char request[ID_BYTES]; /* for LOG_REQUEST() */
	int64_t expires_at_ms;
	bool is_sent;
	sandbox_extend_fn fn;
	void *arg;
};

static void on_turn(void *arg)
{
	extend_kick(arg);
}

/* Answers the first. */
static void finish(struct sandbox *sb, const struct err *err)
{
	struct extend_request *request = TAILQ_FIRST(&sb->extends);

	TAILQ_REMOVE(&sb->extends, request, link);
	sb->extend_count--;
	evtimer_del(sb->extend_timer);
	extend_kick_later(sb);
	request->fn(request->arg, sb, err);
	free(request);
}

static int new_expiry(const struct sandbox *sb, unsigned minutes, int64_t *ret, struct err *err)
{
	unsigned most = sb->all->config.max_lifetime_minutes;
	int64_t now = clock_wall_ms();
	int64_t at = sb->row->expires_at_ms + (int64_t)minutes * MS_PER_MINUTE;

	if (sandbox_check_running(sb, err) != 0) {
		return -1;
	}
	if (at > now + (int64_t)most * MS_PER_MINUTE) {
		return err_set(err, ERR_INVALID,
			"\"minutes\": the sandbox would expire more than %u minutes from now, "
			"which is the "
			"limit "
			"(limits.max_lifetime)",
			most);
	}
	*ret = at;
	return 0;
}

void extend_kick_later(struct sandbox *sb)
{
	if (!TAILQ_EMPTY(&sb->extends)) {
		loop_defer(sb->all->loop, on_turn, sb);
	}
}

void extend_kick(struct sandbox *sb)
{
	struct extend_request *request = TAILQ_FIRST(&sb->extends);
	struct err err;

	if (!request || request->is_sent) {
		return;
	}
	if (!evtimer_pending(sb->extend_timer, NULL)) {
		loop_timer_set(sb->extend_timer, EXTEND_WAIT_MS);
	}
	if (sb->config_call || !channel_is_ready(sb)) {
		return;
	}
	if (new_expiry(sb, request->minutes, &request->expires_at_ms, &err) != 0) {
		finish(sb, &err);
		return;
	}
	const struct guest_config config = {.has_deadline = true,
		.deadline_ms = channel_deadline_ms(sb, request->expires_at_ms)};

	if (channel_configure(sb, CONFIG_EXTEND, &config, &err) != 0) {
		finish(sb, &err);
		return;
	}
	request->is_sent = true;
}

void extend_configured(struct sandbox *sb, const struct err *guest_err)
{
	struct extend_request *request = TAILQ_FIRST(&sb->extends);
	struct err err;

	ASSERT(request && request->is_sent);
	if (guest_err) {
		sb->is_sync_due = true;
		finish(sb, guest_err);
		return;
	}
	if (store_sandbox_set_expiry(sb->all->store, sb->row->id, request->expires_at_ms, &err) !=
		0) {
		sb->is_sync_due = true;
		finish(sb, &err);
		return;
	}
	int64_t old = sb->row->expires_at_ms;

	sb->row->expires_at_ms = request->expires_at_ms;
	LOG_REQUEST(request->request);
	log_info("sandbox extended", "sb=%s minutes=%u", sb->row->id, request->minutes);
	extend_fix_metadata(sb, old);
	reaper_kick(sb->all);
	finish(sb, NULL);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct sandbox *sb = arg;
	struct extend_request *request = TAILQ_FIRST(&sb->extends);
	struct err err;

	(void)fd;
	(void)what;
	if (request->is_sent) {
		channel_disown_config(sb);
		sb->is_sync_due = true;
	}
	err_set(&err, ERR_TIMEOUT,
		"the guest didn't confirm the new deadline within %d seconds; the old expiry "
		"stands",
		EXTEND_WAIT_MS / 1000);
	finish(sb, &err);
}

void extend_end_all(struct sandbox *sb, const struct err *err)
{
	if (sb->config_owner == CONFIG_EXTEND) {
		channel_disown_config(sb);
	}
	while (!TAILQ_EMPTY(&sb->extends)) {
		finish(sb, err);
	}
}

void extend_init(struct sandbox *sb)
{
	TAILQ_INIT(&sb->extends);
	sb->extend_timer = loop_timer_new(sb->all->loop, on_timer, sb);
}

void extend_fini(struct sandbox *sb)
{
	loop_cancel_deferred(sb->all->loop, on_turn, sb);
	event_free(sb->extend_timer);
}

int sandbox_extend(
	struct sandbox *sb, unsigned minutes, sandbox_extend_fn fn, void *arg, struct err *err)
{
	int64_t at;

	loop_assert();
	if (sb->row->expires_at_ms == 0) {
		return err_set(err, ERR_INVALID, "sandbox %s has no expiry", sb->row->id);
	}
	if (minutes == 0) {
		return err_set(err, ERR_INVALID, "\"minutes\" must be above 0");
	}
	if (new_expiry(sb, minutes, &at, err) != 0) {
		return -1;
	}
	if (sb->extend_count >= SANDBOX_EXTENDS_MAX) {
		return err_set(err, ERR_RATE, "%d extensions of this sandbox are waiting already",
			SANDBOX_EXTENDS_MAX);
	}
	struct extend_request *request = xnew(struct extend_request);

	request->sb = sb;
	request->minutes = minutes;
	snprintf(request->request, sizeof request->request, "%s", log_request());
	request->fn = fn;
	request->arg = arg;
	TAILQ_INSERT_TAIL(&sb->extends, request, link);
	sb->extend_count++;
	loop_defer(sb->all->loop, on_turn, sb);
	return 0;
}

/* ---- the domain's metadata ---- */

static void on_expiry_set(void *arg, const struct err *err)
{
	struct sandbox *sb = arg;

	sb->is_expiry_call_due = false;
	if (err) {
		/* Reconcile compares, and comes here again. */
		log_failure(LOG_LEVEL_WARN, "expiry not in the domain's metadata, will retry", err,
			"sb=%s", sb->row->id);
	} else {
		extend_fix_metadata(sb, sb->expiry_sent_ms);
	}
	sandbox_release(sb);
}

void extend_fix_metadata(struct sandbox *sb, int64_t expires_at_ms)
{
	struct hv *hv = sb->all->hv;

	if (sb->row->expires_at_ms == expires_at_ms || sb->is_expiry_call_due || !sb->has_domain) {
		return;
	}
	sandbox_hold(sb);
	sb->is_expiry_call_due = true;
	sb->expiry_sent_ms = sb->row->expires_at_ms;
	hv->ops->set_expiry(hv, sb->row->id, sb->row->expires_at_ms, on_expiry_set, sb);
}
