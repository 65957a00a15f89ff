#pragma once

/*
 * netfilter - the host's filter on what guests reach
 *
 * Purpose: keeps this instance's nftables table in place: installs it, watches it, installs it
 *          again, and says at each moment whether it is there.
 * Owns:    the table inet paddock_<instance>, and nothing else of the host's rules.
 * Thread:  loop; libnftables runs on a worker of its own.
 * Errors:  none after the start: the state says it all.
 * Uses:    base, loop.
 *
 *   STARTING ──► ACTIVE ◄──► BROKEN
 *       └──► UNAVAILABLE ──► ACTIVE      (tried again every few seconds)
 *
 * No guest may have a network card while the state is STARTING or UNAVAILABLE, and no link may be
 * up while it is BROKEN. The table outlives the daemon, as the sandboxes do.
 */

#include <stdbool.h>
#include <sys/types.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "loop/loop.h"
#include "netfilter/exceptions.h"

/* X(NAME, "name") */
#define FILTER_STATES(X)                                                                           \
	X(STARTING, "starting")       /* nobody knows yet */                                       \
	X(ACTIVE, "active")           /* in place, and seen to be */                               \
	X(BROKEN, "broken")           /* was in place; being put back */                           \
	X(UNAVAILABLE, "unavailable") /* can't be installed here */

enum filter_state {
#define X(id, name) FILTER_##id,
	FILTER_STATES(X)
#undef X
};

const char *filter_state_name(enum filter_state state);

struct netfilter_settings {
	const char *instance;
	uid_t uid_first;
	unsigned uid_count;
	struct exceptions exceptions;
	const char *resolv_conf; /* NULL: /etc/resolv.conf */
};

struct netfilter_hooks {
	/* After each change. @reason: for people, "" when active; valid during the call. */
	void (*on_state)(void *arg, enum filter_state state, const char *reason);
	void *arg;
};

struct netfilter;

/* Begins to install. on_state() tells the outcome, never from within this call. */
struct netfilter *netfilter_new(struct loop *loop, const struct netfilter_settings *settings,
	const struct netfilter_hooks *hooks, struct err *err);
/* Leaves the table where it is: sandboxes may live on. */
void netfilter_free(struct netfilter *nf);
DEFINE_CLEANUP(struct netfilter *, netfilter_free)

/* For people: doctor, readiness, the refusal of `egress`. Valid until the next turn. */
struct netfilter_status {
	enum filter_state state;
	const char *table;
	const char *reason; /* why it isn't active; "" when it is */
	const char *fix;    /* what to do about it; "" when there is nothing to do */
	unsigned breaches;  /* how often it was found gone or changed */
};

void netfilter_status(const struct netfilter *nf, struct netfilter_status *ret);

/* What to do about a failure of that kind. */
const char *netfilter_fix(enum err_kind kind);

/* ---- without a running filter; each waits for the kernel ---- */

/* Removes the table of @instance; none there is fine. For when its last sandbox is gone. */
int netfilter_remove_blocking(const char *instance, struct err *err);
/* Whether this kernel takes our rules and lets us install them: a table comes and goes at once. */
int netfilter_probe_blocking(struct err *err);
