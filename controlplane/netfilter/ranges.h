#pragma once

/*
 * ranges - what a guest may not reach
 *
 * Purpose: the one table of forbidden address ranges, for the rules and for checking the
 *          operator's exceptions. Pure.
 * Thread:  any.
 *
 * IPv6 is the other way round where it can be: what lies outside 2000::/3, the only part that is
 * routed on the public Internet, is refused without being listed.
 */

#include <stddef.h>

#include "netfilter/ip.h"

enum range_class {
	RANGE_NEVER,   /* no setting opens it */
	RANGE_PRIVATE, /* network.allow_private may open parts of it */
};

struct range {
	const char *prefix;
	enum range_class class;
	const char *what; /* "the host's loopback": for messages */
};

extern const struct range ranges[];
extern const size_t ranges_count;

/* The parsed prefix of ranges[i]. */
struct ip_prefix range_prefix(const struct range *range);
