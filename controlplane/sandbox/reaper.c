#include "base/clock.h"
#include "sandbox/sandbox_priv.h"

/*
 * Theory of operation
 *
 * Expiries are points of the wall clock, timers count on another: the wall clock may be set, and
 * the host may sleep. So the timer never runs for longer than TICK_MS while anything has an expiry;
 * then everything that is due goes. A tick walks the list and costs microseconds.
 */

#define TICK_MS 1000

/* Destroys what is due. The next expiry, 0: none. */
static int64_t reap(struct sandboxes *all, int64_t now)
{
	struct sandbox *sb;
	int64_t next = 0;

	TAILQ_FOREACH (sb, &all->live, link) {
		int64_t at = sb->row->expires_at_ms;

		if (at == 0 || sb->end_reason || sb->state == SANDBOX_DELETING) {
			continue;
		}
		if (at <= now) {
			sandbox_destroy(sb, "expired");
		} else if (next == 0 || at < next) {
			next = at;
		}
	}
	return next;
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
	struct sandboxes *all = arg;
	int64_t now = clock_wall_ms();

	(void)fd;
	(void)what;
	/* What is from before is judged together with its domain first. */
	if (!all->is_reconciled) {
		return;
	}
	int64_t next = reap(all, now);

	if (next > 0) {
		loop_timer_set(all->reaper_timer, (uint64_t)MIN(next - now, TICK_MS));
	}
}

void reaper_init(struct sandboxes *all)
{
	all->reaper_timer = loop_timer_new(all->loop, on_tick, all);
}

void reaper_kick(struct sandboxes *all)
{
	loop_timer_set(all->reaper_timer, 0);
}

void reaper_fini(struct sandboxes *all)
{
	event_free(all->reaper_timer);
}
