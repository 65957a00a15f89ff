#include "netfilter/ruleset.h"

#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/xalloc.h"
#include "netfilter/ranges.h"

/*
 * Theory of operation
 *
 * Two base chains see every packet that a local socket sends: one before anything that may rewrite
 * the destination (raw, -300), one behind all of that (300), so that neither what a guest asked for
 * nor what the host's NAT made of it is out of bounds. Both send the packets of our uids to the
 * same chain, which decides in this order:
 *
 *   1. resolvers on port 53: accepted, wherever they are
 *   2. what nothing opens: the host itself (by the kernel's own table of local addresses, so always
 *      as of now), broadcast, multicast, loopback, link-local, metadata services
 *   3. exceptions of the operator: accepted
 *   4. private ranges, and IPv6 beyond the public 2000::/3
 *   5. the rest: accepted
 *
 * An accept ends only this base chain. Chains of others still apply, and a drop is final whoever
 * says it, so no other table can open what this one refuses.
 *
 * IPv4 addresses embedded in 64:ff9b::/96 are checked like themselves, for hosts whose only way to
 * IPv4 is a NAT64.
 */

#define NAT64 "64:ff9b::/96"

static void put_ranges(FILE *out, enum range_class class, int family, bool is_nat64)
{
	const char *separator = "";

	fprintf(out, "\t\t%s daddr { ", family == AF_INET ? "ip" : "ip6");
	for (size_t i = 0; i < ranges_count; i++) {
		struct ip_prefix prefix = range_prefix(&ranges[i]);
		char text[IP_TEXT_BYTES];

		if (ranges[i].class != class) {
			continue;
		}
		if (is_nat64 && prefix.family == AF_INET) {
			prefix = ip_nat64(&prefix);
		} else if (is_nat64 || prefix.family != family) {
			continue;
		}
		fprintf(out, "%s%s", separator, ip_format(&prefix, text));
		separator = ", ";
	}
	fputs(" } goto refuse\n", out);
}

static void put_class(FILE *out, enum range_class class)
{
	put_ranges(out, class, AF_INET, false);
	put_ranges(out, class, AF_INET6, false);
	put_ranges(out, class, AF_INET6, true);
}

static const char *match_name(const struct ip_prefix *prefix)
{
	return prefix->family == AF_INET ? "ip" : "ip6";
}

static void put_resolvers(FILE *out, const struct resolvers *resolvers)
{
	for (size_t i = 0; i < resolvers->count; i++) {
		const struct resolver *resolver = &resolvers->list[i];
		char text[IP_TEXT_BYTES];

		fprintf(out, "\t\t%s daddr %s ", match_name(&resolver->address),
			ip_format(&resolver->address, text));
		if (resolver->interface[0] != '\0') {
			fprintf(out, "oifname \"%s\" ", resolver->interface);
		}
		fputs("meta l4proto { tcp, udp } th dport 53 accept\n", out);
	}
}

static void put_exceptions(FILE *out, const struct exceptions *exceptions)
{
	for (size_t i = 0; i < exceptions->count; i++) {
		const struct exception *exception = &exceptions->list[i];
		char text[IP_TEXT_BYTES];

		fprintf(out, "\t\t%s daddr %s tcp dport %u accept\n",
			match_name(&exception->prefix), ip_format(&exception->prefix, text),
			exception->port);
	}
}

static void put_hook(FILE *out, const struct ruleset *ruleset, const char *name, int priority)
{
	fprintf(out,
		"\tchain %s {\n"
		"\t\ttype filter hook output priority %d; policy accept;\n"
		"\t\tmeta skuid %ju-%ju goto guests\n"
		"\t}\n",
		name, priority, (uintmax_t)ruleset->uid_first,
		(uintmax_t)ruleset->uid_first + ruleset->uid_count - 1);
}

static void put_guests(FILE *out, const struct ruleset *ruleset)
{
	fputs("\tchain guests {\n", out);
	put_resolvers(out, ruleset->resolvers);
	fputs("\t\tfib daddr type { local, broadcast, multicast, anycast } goto refuse\n"
	      "\t\toifname \"lo\" goto refuse\n",
		out);
	put_class(out, RANGE_NEVER);
	put_exceptions(out, ruleset->exceptions);
	put_class(out, RANGE_PRIVATE);
	fputs("\t\tip6 daddr " NAT64 " accept\n"
	      "\t\tip6 daddr != 2000::/3 goto refuse\n"
	      "\t}\n",
		out);
}

const char *ruleset_table_name(const char *instance, char out[RULESET_TABLE_BYTES])
{
	int n = snprintf(out, RULESET_TABLE_BYTES, "paddock_%s", instance);

	ASSERT(n > 0 && n < RULESET_TABLE_BYTES);
	ASSERT(instance[0] != '\0' && strspn(instance, "0123456789abcdef") == strlen(instance));
	return out;
}

char *ruleset_text(const struct ruleset *ruleset)
{
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	ASSERT(out != NULL && ruleset->uid_first > 0 && ruleset->uid_count > 0);
	fprintf(out,
		"add table inet %s\n"
		"delete table inet %s\n"
		"table inet %s {\n"
		"\tchain refuse {\n"
		"\t\tmeta l4proto tcp reject with tcp reset\n"
		"\t\treject with icmpx admin-prohibited\n"
		"\t}\n",
		ruleset->table, ruleset->table, ruleset->table);
	put_guests(out, ruleset);
	put_hook(out, ruleset, "asked", -300);
	put_hook(out, ruleset, "rewritten", 300);
	fputs("}\n", out);
	int rc = fclose(out);

	ASSERT(rc == 0);
	return text;
}
