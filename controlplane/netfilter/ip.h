#pragma once

/*
 * ip - addresses and prefixes
 *
 * Purpose: parse, print and compare IPv4 and IPv6 prefixes. Pure.
 * Thread:  any.
 * Errors:  ERR_INVALID, without the name of the field: the caller wraps.
 */

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct ip_prefix {
	int family; /* AF_INET or AF_INET6 */
	uint8_t addr[16];
	unsigned bits;
};

#define IP_TEXT_BYTES 64 /* any prefix in text, with its terminator */

unsigned ip_bits_max(int family);
/* "10.1.2.3", "10.0.0.0/8", "fd00::/8". A bit set beyond the prefix is refused. */
int ip_parse(const char *text, struct ip_prefix *ret, struct err *err);
/* The length is left out where the prefix is one address. Returns @out. */
const char *ip_format(const struct ip_prefix *prefix, char out[IP_TEXT_BYTES]);

bool ip_is_address(const struct ip_prefix *prefix);
bool ip_equal(const struct ip_prefix *a, const struct ip_prefix *b);
/* All of @inner lies in @outer. */
bool ip_contains(const struct ip_prefix *outer, const struct ip_prefix *inner);
bool ip_overlap(const struct ip_prefix *a, const struct ip_prefix *b);
/* The IPv4 prefix as 64:ff9b::/96 (RFC 6052) embeds it. */
struct ip_prefix ip_nat64(const struct ip_prefix *v4);
