#pragma once

/*
 * uidrange - the uids that this instance's sandboxes run as
 *
 * Purpose: reserves a range of uids on this host, so that no two instances, and no user of the
 *          host, share one: the filter matches uids, and so do the files of sandboxes.
 * Owns:    a claim, /run/paddock/uid-ranges/<instance>, and a record of it in the state directory.
 * Thread:  any; waits for the disk and for other instances' calls. Meant for the start.
 * Errors:  ERR_CONFLICT: somebody else has it; names the other state directory.
 *          ERR_UNAVAILABLE: no range is free, or the registry stays locked. ERR_INTERNAL else.
 *          All of them are for the operator and name paths.
 *
 * A claim outlives the daemon, since its sandboxes do, and the same instance takes it again. After
 * a reboot the registry is empty; the record in the state directory then leads to the same range,
 * because files on disk belong to its uids.
 */

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"

#define UIDRANGE_REGISTRY   "/run/paddock/uid-ranges"
#define UIDRANGE_AUTO_FIRST 300000
#define UIDRANGE_AUTO_LAST  363999
#define UIDRANGE_COUNT_MAX  65536

struct uidrange {
	uid_t first;
	unsigned count;
};

struct uidrange_settings {
	const char *instance;  /* hex digits */
	const char *state_dir; /* absolute */
	uid_t first;           /* 0: any free one from UIDRANGE_AUTO_FIRST on */
	unsigned count;

	/* NULL: the host's. */
	const char *registry;
	const char *proc_dir;
	const char *etc_dir;
	/* Removes the filter of an instance that is no more; NULL: netfilter_remove_blocking(). */
	int (*remove_filter)(const char *instance, struct err *err);
};

/*
 * Takes the range that this instance has, or else the one it had, or else (with first 0) one which
 * nobody claims, no process runs in and neither passwd nor subuid names. Claims whose state
 * directory is gone or belongs to another instance now are dropped once no process runs in them,
 * and with them the table of that dead instance: it would go on refusing what the new owner of the
 * range may reach.
 *
 * With another first or count than before it is refused while processes run on uids that the new
 * range doesn't hold: the filter wouldn't bound them any more.
 */
int uidrange_claim(const struct uidrange_settings *settings, struct uidrange *ret, struct err *err);

/* Gives claim and record back. ERR_CONFLICT while a process runs in the range. None: fine. */
int uidrange_release(const struct uidrange_settings *settings, struct err *err);
