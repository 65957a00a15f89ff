#pragma once

/*
 * reconcile_table - what to do about a row and a domain
 *
 * Purpose: the decision of reconciliation as a table, so that each cell can be looked at.
 * Thread:  any: it is pure.
 * Uses:    base, hv.h, sandbox_state.h.
 *
 * It judges sandboxes that nobody is working on: no plan of this process runs, and nothing about
 * them changed since the facts were gathered.
 */

#include "hv/hv.h"
#include "sandbox/sandbox_state.h"

/* No row at all counts as one that ended. */
#define RECONCILE_NO_ROW SANDBOX_DELETED

enum reconcile_domain {
	RECONCILE_ABSENT,
	RECONCILE_RUNNING,
	RECONCILE_PAUSED,
	RECONCILE_SHUTOFF,
	RECONCILE_UNSETTLED,
	RECONCILE_DOMAIN_MAX
};

enum reconcile_action {
	RECONCILE_KEEP = 1, /* as it should be */
	RECONCILE_WAIT,     /* can't be told yet: look again soon */
	RECONCILE_ATTACH,   /* hold the channel; put deadline, expiry and link right */
	RECONCILE_RESUME,   /* attach, and let it run on */
	RECONCILE_ENDED,    /* its domain is gone: remove a temporary one, stop another */
	RECONCILE_UNDO,     /* its creation was interrupted: take everything back */
	RECONCILE_FINISH,   /* its removal was interrupted: go on with it */
	RECONCILE_REAP,     /* a domain that should not be */
};

enum reconcile_domain reconcile_domain_of(const struct hv_facts *facts); /* NULL: absent */
enum reconcile_action reconcile_decide(enum sandbox_state row, enum reconcile_domain domain);
