#pragma once

/*
 * reconcile_table - what to do about a row and a domain
 *
 * Purpose: the decision of reconciliation as a table, so that each cell can be looked at.
 * Thread:  any: it is pure.
 * Uses:    base, hv.h, sandbox_state.h.
 *
 * It judges sandboxes that nobody is working on: no plan of this process runs, and nothing about
 * them changed since the facts were gathered. What is there without a live row is strays.c's.
 */

#include "hv/hv.h"
#include "sandbox/sandbox_state.h"

/* A state, and a task that was under way when the daemon ended. */
enum reconcile_row {
	RECONCILE_CREATING,
	RECONCILE_RESTARTING,
	RECONCILE_RESETTING,
	RECONCILE_RUNNING,
	RECONCILE_STOPPED,
	RECONCILE_DELETING,
	RECONCILE_ROW_MAX
};

enum reconcile_domain {
	RECONCILE_ABSENT,
	RECONCILE_ACTIVE,
	RECONCILE_PAUSED,
	RECONCILE_SHUTOFF,
	RECONCILE_UNSETTLED,
	RECONCILE_DOMAIN_MAX
};

enum reconcile_disk { RECONCILE_NO_DISK, RECONCILE_DISK, RECONCILE_DISK_MAX };

enum reconcile_action {
	RECONCILE_KEEP = 1, /* as it should be */
	RECONCILE_WAIT,     /* can't be told yet: look again soon */
	RECONCILE_ATTACH,   /* hold the channel; put deadline, expiry and link right; resume it */
	RECONCILE_DISKLESS, /* it runs on a disk whose file was removed: attach, and say so */
	RECONCILE_ENDED,    /* its domain is gone: remove a temporary one, stop another */
	RECONCILE_LOST,     /* its disk is gone, too: remove it */
	RECONCILE_UNDO,     /* its creation was interrupted: take everything back */
	RECONCILE_REDO,     /* its restart or reset was interrupted: once more */
	RECONCILE_FINISH,   /* its removal was interrupted: go on with it */
	RECONCILE_END,      /* a domain that should not be: end it */
};

enum reconcile_domain reconcile_domain_of(const struct hv_facts *facts); /* NULL: absent */
enum reconcile_action reconcile_decide(
	enum reconcile_row row, enum reconcile_domain domain, enum reconcile_disk disk);
