#pragma once

/*
 * ruleset - the text of the nftables table
 *
 * Purpose: (uids, resolvers, exceptions) to what `nft -f` takes. Pure; golden tests hold its form.
 * Thread:  any.
 */

#include <sys/types.h>

#include "netfilter/exceptions.h"
#include "netfilter/resolvers.h"

#define RULESET_TABLE_BYTES 32

struct ruleset {
	const char *table; /* ruleset_table_name() */
	uid_t uid_first;
	unsigned uid_count;
	const struct resolvers *resolvers;
	const struct exceptions *exceptions;
};

/* "paddock_" and the instance id, which is hex digits. Returns @out. */
const char *ruleset_table_name(const char *instance, char out[RULESET_TABLE_BYTES]);

/*
 * One transaction that replaces the table, whether it is there or not, without a moment in between.
 * The caller frees.
 */
char *ruleset_text(const struct ruleset *ruleset) _must_check_;
