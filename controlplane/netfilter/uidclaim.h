#pragma once

/*
 * uidclaim - the files that uidrange keeps, and who else uses uids
 *
 * Purpose: reads and writes claims; looks for users of a range in /proc and /etc.
 * Thread:  any; reads files.
 * Errors:  ERR_NOT_FOUND: no such claim. ERR_INTERNAL: it can't be read, or isn't one; names the
 *          path.
 */

#include <limits.h>
#include <stdbool.h>

#include "netfilter/uidrange.h"

#define UIDCLAIM_INSTANCE_BYTES 24

struct uidclaim {
	char instance[UIDCLAIM_INSTANCE_BYTES];
	struct uidrange range;
	char state_dir[PATH_MAX];
};

int uidclaim_read(const char *path, struct uidclaim *ret, struct err *err);
int uidclaim_write(const char *path, const struct uidclaim *claim, struct err *err);

bool uidrange_overlap(const struct uidrange *a, const struct uidrange *b);

/*
 * Sets *ret to whether a process has a uid in @range; those in @except don't count (NULL: none).
 * A process that ends meanwhile is none.
 */
int uiduse_find_process(const char *proc_dir, const struct uidrange *range,
	const struct uidrange *except, bool *ret, struct err *err);
/* Sets *ret to whether passwd has a user in @range, or subuid lends a part of it. */
int uiduse_find_account(
	const char *etc_dir, const struct uidrange *range, bool *ret, struct err *err);
/* Whether uids of @range exist in this user namespace at all (/proc/self/uid_map). */
int uiduse_is_mapped(
	const char *proc_dir, const struct uidrange *range, bool *ret, struct err *err);
