#include <inttypes.h>

#include "base/clock.h"
#include "sandbox/sandbox_priv.h"
#include "store/store_account.h"

/*
 * Theory of operation
 *
 * Records of what ended go when they are too old, and the oldest ones of an account that has too
 * many, each account for itself: who makes many sandboxes pushes out nobody else's records. A pass
 * goes through all of it in bites, a few rows in a turn of the loop, with a pause after each; then
 * comes a long one. With a record go its results and what its idempotency key made.
 */

#define PASS_MS  (5 * MS_PER_MINUTE)
#define PAUSE_MS 20
#define BITE     32
#define MS_A_DAY (INT64_C(24) * 60 * MS_PER_MINUTE)

/* By age first, then account by account: all->records_account is whose turn it is. */
static int prune(struct sandboxes *all, unsigned *ret_count, struct err *err)
{
	int64_t before = clock_wall_ms() - (int64_t)all->config.records_days * MS_A_DAY;

	if (!all->records_account[0]) {
		return store_sandbox_prune(all->store, before, BITE, ret_count, err);
	}
	return store_sandbox_prune_account(
		all->store, all->records_account, all->config.records_count, BITE, ret_count, err);
}

/* One bite. 1: the pass goes on. */
static int bite(struct sandboxes *all, struct err *err)
{
	unsigned count;

	if (prune(all, &count, err) != 0) {
		return -1;
	}
	all->records_pruned += count;
	if (count > 0) {
		return 1;
	}
	int has_next = store_account_next(all->store, all->records_account, err);

	if (has_next == 0) {
		all->records_account[0] = '\0';
	}
	return has_next;
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct sandboxes *all = arg;
	struct err err;

	(void)fd;
	(void)what;
	int r = bite(all, &err);

	if (r > 0) {
		loop_timer_set(all->records_timer, PAUSE_MS);
		return;
	}
	if (r < 0) {
		log_failure(LOG_LEVEL_WARN, "old records not removed, will retry", &err, "live=%zu",
			all->count);
	}
	if (all->records_pruned > 0) {
		log_info("old records removed", "count=%" PRIu64, all->records_pruned);
	}
	all->records_pruned = 0;
	loop_timer_set(all->records_timer,
		all->config.records_pass_ms ? all->config.records_pass_ms : PASS_MS);
}

void records_init(struct sandboxes *all)
{
	all->records_timer = loop_timer_new(all->loop, on_timer, all);
}

void records_start(struct sandboxes *all)
{
	if (all->config.records_days > 0) {
		loop_timer_set(all->records_timer, 0);
	}
}

void records_fini(struct sandboxes *all)
{
	event_free(all->records_timer);
}
