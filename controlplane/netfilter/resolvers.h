#pragma once

/*
 * resolvers - the host's name servers
 *
 * Purpose: which addresses a guest's name lookups go to: user-mode networking forwards them to a
 *          name server of /etc/resolv.conf. Pure.
 * Thread:  any.
 */

#include <stdbool.h>
#include <stddef.h>

#include "netfilter/ip.h"

#define RESOLVERS_MAX 8

struct resolver {
	struct ip_prefix address;
	char interface[16]; /* of a link-local address: fe80::1%eth0; else "" */
};

struct resolvers {
	struct resolver list[RESOLVERS_MAX];
	size_t count;
};

/* What isn't understood is passed over, as the C library does; duplicates count once. */
void resolvers_parse(const char *text, struct resolvers *ret);
bool resolvers_equal(const struct resolvers *a, const struct resolvers *b);
