#pragma once

/*
 * exceptions - the operator's setting network.allow_private
 *
 * Purpose: reads the list of CIDR:port that sandboxes may reach although it is private: package
 *          mirrors and proxies of the site. Pure but for exceptions_own_addresses().
 * Thread:  any.
 * Errors:  ERR_INVALID with the setting, the entry and what is wrong with it.
 *
 * An entry is ADDRESS[/LENGTH]:PORT, IPv6 in brackets: 10.1.2.0/24:8081, [fd12::5]:3128. It opens
 * that TCP port.
 */

#include <stddef.h>
#include <stdint.h>

#include "netfilter/ip.h"

#define EXCEPTIONS_MAX 64

struct exception {
	struct ip_prefix prefix;
	uint16_t port;
};

struct exceptions {
	struct exception list[EXCEPTIONS_MAX];
	size_t count;
};

/* What no entry may name, beside the ranges that nothing opens (ranges.h). */
struct exceptions_bounds {
	const struct ip_prefix *own; /* addresses of this host */
	size_t own_count;
	const uint16_t *ports; /* that paddockd listens on */
	size_t port_count;
};

/* @entries: NULL-terminated; NULL gives none. */
int exceptions_parse(char *const *entries, const struct exceptions_bounds *bounds,
	struct exceptions *ret, struct err *err);

/*
 * This host's addresses as of now, for a message at start. (The rules ask the kernel for each
 * packet, so an address that comes later is out of reach, too.) The caller frees.
 */
struct ip_prefix *exceptions_own_addresses(size_t *ret_count, struct err *err);
