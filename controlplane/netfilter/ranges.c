#include "netfilter/ranges.h"

/*
 * IANA's special-purpose registries, and the metadata services of clouds that don't answer on a
 * link-local address. Documentation ranges (TEST-NET, 2001:db8::/32) are nobody's and are treated
 * as public. No two entries of one class and family may overlap: nft refuses such a set.
 */
const struct range ranges[] = {
	{"0.0.0.0/8", RANGE_NEVER, "an unspecified address"},
	{"100.100.100.200", RANGE_NEVER, "a cloud's metadata service"},
	{"127.0.0.0/8", RANGE_NEVER, "the host's loopback"},
	{"168.63.129.16", RANGE_NEVER, "a cloud's metadata service"},
	{"169.254.0.0/16", RANGE_NEVER, "link-local, where metadata services are"},
	{"192.0.0.192", RANGE_NEVER, "a cloud's metadata service"},
	{"224.0.0.0/4", RANGE_NEVER, "multicast"},
	{"240.0.0.0/4", RANGE_NEVER, "reserved or broadcast"},

	{"10.0.0.0/8", RANGE_PRIVATE, "private"},
	{"100.64.0.0/10", RANGE_PRIVATE, "shared by carriers"},
	{"172.16.0.0/12", RANGE_PRIVATE, "private"},
	{"192.0.0.0/24", RANGE_PRIVATE, "reserved for protocols"},
	{"192.88.99.0/24", RANGE_PRIVATE, "reserved for 6to4 relays"},
	{"192.168.0.0/16", RANGE_PRIVATE, "private"},
	{"198.18.0.0/15", RANGE_PRIVATE, "reserved for benchmarks"},

	{"::/96", RANGE_NEVER, "loopback, unspecified or an embedded IPv4 address"},
	{"::ffff:0:0/96", RANGE_NEVER, "an IPv4 address in disguise"},
	{"2001::/32", RANGE_NEVER, "Teredo, which embeds IPv4 addresses"},
	{"2002::/16", RANGE_NEVER, "6to4, which embeds IPv4 addresses"},
	{"fd00:ec2::/32", RANGE_NEVER, "a cloud's metadata service"},
	{"fd20:ce::/32", RANGE_NEVER, "a cloud's metadata service"},
	{"fe80::/10", RANGE_NEVER, "link-local"},
	{"ff00::/8", RANGE_NEVER, "multicast"},

	{"2001:2::/48", RANGE_PRIVATE, "reserved for benchmarks"},
	{"fc00::/7", RANGE_PRIVATE, "private"},
};
const size_t ranges_count = ARRAY_SIZE(ranges);

struct ip_prefix range_prefix(const struct range *range)
{
	struct ip_prefix prefix;
	struct err err;
	int rc = ip_parse(range->prefix, &prefix, &err);

	ASSERT(rc == 0);
	return prefix;
}
