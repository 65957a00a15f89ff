#include "netfilter/ip.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "base/parse.h"

unsigned ip_bits_max(int family)
{
	return family == AF_INET ? 32 : 128;
}

static bool bit(const struct ip_prefix *prefix, unsigned i)
{
	return prefix->addr[i / 8] >> (7 - i % 8) & 1;
}

static bool equal_bits(const struct ip_prefix *a, const struct ip_prefix *b, unsigned bits)
{
	if (a->family != b->family || memcmp(a->addr, b->addr, bits / 8) != 0) {
		return false;
	}
	for (unsigned i = bits / 8 * 8; i < bits; i++) {
		if (bit(a, i) != bit(b, i)) {
			return false;
		}
	}
	return true;
}

int ip_parse(const char *text, struct ip_prefix *ret, struct err *err)
{
	char address[INET6_ADDRSTRLEN];
	const char *slash = strchr(text, '/');
	size_t len = slash ? (size_t)(slash - text) : strlen(text);
	struct ip_prefix prefix = {.family = memchr(text, ':', len) ? AF_INET6 : AF_INET};

	if (len >= sizeof address) {
		return err_set(err, ERR_INVALID, "not an IP address");
	}
	memcpy(address, text, len);
	address[len] = '\0';
	if (inet_pton(prefix.family, address, prefix.addr) != 1) {
		return err_set(err, ERR_INVALID, "not an IP address");
	}
	prefix.bits = ip_bits_max(prefix.family);
	if (slash) {
		int64_t bits;

		if (parse_int(slash + 1, 0, prefix.bits, &bits, err) < 0) {
			return err_wrap(err, "the prefix length");
		}
		prefix.bits = (unsigned)bits;
	}
	for (unsigned i = prefix.bits; i < ip_bits_max(prefix.family); i++) {
		if (bit(&prefix, i)) {
			return err_set(err, ERR_INVALID,
				"the address has bits set beyond the prefix length %u",
				prefix.bits);
		}
	}
	*ret = prefix;
	return 0;
}

const char *ip_format(const struct ip_prefix *prefix, char out[IP_TEXT_BYTES])
{
	char address[INET6_ADDRSTRLEN];

	ASSERT(inet_ntop(prefix->family, prefix->addr, address, sizeof address) != NULL);
	if (ip_is_address(prefix)) {
		snprintf(out, IP_TEXT_BYTES, "%s", address);
	} else {
		snprintf(out, IP_TEXT_BYTES, "%s/%u", address, prefix->bits);
	}
	return out;
}

bool ip_is_address(const struct ip_prefix *prefix)
{
	return prefix->bits == ip_bits_max(prefix->family);
}

bool ip_equal(const struct ip_prefix *a, const struct ip_prefix *b)
{
	return a->bits == b->bits && equal_bits(a, b, a->bits);
}

bool ip_contains(const struct ip_prefix *outer, const struct ip_prefix *inner)
{
	return outer->bits <= inner->bits && equal_bits(outer, inner, outer->bits);
}

bool ip_overlap(const struct ip_prefix *a, const struct ip_prefix *b)
{
	return equal_bits(a, b, MIN(a->bits, b->bits));
}

struct ip_prefix ip_nat64(const struct ip_prefix *v4)
{
	struct ip_prefix prefix = {
		.family = AF_INET6, .addr = {0x00, 0x64, 0xff, 0x9b}, .bits = 96 + v4->bits};

	ASSERT(v4->family == AF_INET);
	memcpy(prefix.addr + 12, v4->addr, 4);
	return prefix;
}
