#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/xalloc.h"
#include "sandbox/sandbox_priv.h"

/*
 * Theory of operation
 *
 * What a link should be follows from one flag: is the host's filter in place. What it is, is known
 * from the last call that succeeded, and unknown after one that failed or came back late. Whenever
 * the two differ and no call is under way, one is made; a failure is tried again after a pause, so
 * it ends only in agreement or with the domain.
 */

#define LINK_RETRY_FIRST_MS 200
#define LINK_RETRY_LAST_MS  3200

static void on_link_set(void *arg, const struct err *err)
{
	struct sandbox *sb = arg;
	unsigned shift = MIN(sb->link_tries, 8U);
	unsigned ms = MIN(LINK_RETRY_FIRST_MS << shift, LINK_RETRY_LAST_MS);
	bool is_overtaken = sb->is_link_overtaken;

	sb->is_link_call_due = false;
	sb->is_link_overtaken = false;
	sb->link_tries = err ? sb->link_tries + 1 : 0;
	if (err && sb->has_domain) {
		log_failure(LOG_LEVEL_WARN, "network link not set, will retry", err, "sb=%s up=%d",
			sb->row->id, sb->link_sent == LINK_UP);
		sb->link_is = LINK_UNKNOWN;
		loop_timer_set(sb->link_timer, ms);
	} else {
		sb->link_is = err || is_overtaken ? LINK_UNKNOWN : sb->link_sent;
		egress_update(sb);
	}
	sandbox_release(sb);
}

static void on_link_timer(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	egress_update(arg);
}

void egress_lost_track(struct sandbox *sb)
{
	sb->is_link_overtaken = sb->is_link_call_due;
	sb->link_is = LINK_UNKNOWN;
	egress_update(sb);
}

void egress_update(struct sandbox *sb)
{
	struct hv *hv = sb->all->hv;
	enum link_state wanted = sb->all->has_egress ? LINK_UP : LINK_DOWN;

	if (!sb->has_domain || !sandbox_has_network(sb) || sb->is_link_call_due ||
		sb->link_is == wanted) {
		return;
	}
	sandbox_hold(sb);
	sb->is_link_call_due = true;
	sb->link_sent = wanted;
	hv->ops->set_link(hv, sb->row->id, wanted == LINK_UP, on_link_set, sb);
}

void egress_init(struct sandbox *sb)
{
	sb->link_timer = loop_timer_new(sb->all->loop, on_link_timer, sb);
}

void egress_fini(struct sandbox *sb)
{
	event_free(sb->link_timer);
}

void sandboxes_set_egress(struct sandboxes *all, bool is_available, const char *why)
{
	struct sandbox *sb;
	char *copy = xstrdup(why ? why : "");

	loop_assert();
	if (is_available != all->has_egress) {
		char quoted[256];

		log_info("egress", "available=%d why=%s", is_available,
			log_quote(quoted, sizeof quoted, copy, strlen(copy)));
	}
	free(all->egress_why);
	all->egress_why = copy;
	all->has_egress = is_available;
	TAILQ_FOREACH (sb, &all->live, link) {
		egress_update(sb);
	}
}

bool sandboxes_has_egress(const struct sandboxes *all, const char **ret_why)
{
	if (ret_why) {
		*ret_why = all->egress_why;
	}
	return all->has_egress;
}
