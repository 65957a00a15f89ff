#include "netfilter/exceptions.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "base/parse.h"
#include "base/xalloc.h"
#include "netfilter/ranges.h"

#define SETTING "network.allow_private"

/* Splits "10.0.0.0/8:80" or "[fd00::/8]:80" in place. */
static int split(char *entry, char **ret_prefix, char **ret_port, struct err *err)
{
	char *end = entry[0] == '[' ? strchr(entry, ']') : strrchr(entry, ':');

	if (!end || (entry[0] == '[' && end[1] != ':')) {
		return err_set(err, ERR_INVALID,
			"must be ADDRESS[/LENGTH]:PORT, an IPv6 address in brackets");
	}
	if (entry[0] == '[') {
		*ret_prefix = entry + 1;
		*ret_port = end + 2;
	} else {
		*ret_prefix = entry;
		*ret_port = end + 1;
		if (memchr(entry, ':', (size_t)(end - entry))) {
			return err_set(err, ERR_INVALID,
				"an IPv6 address must be in brackets: [ADDRESS/LENGTH]:PORT");
		}
	}
	*end = '\0';
	return 0;
}

static int check_ranges(const struct ip_prefix *prefix, struct err *err)
{
	struct ip_prefix all_nat64;
	struct err ignored;

	for (size_t i = 0; i < ranges_count; i++) {
		struct ip_prefix never = range_prefix(&ranges[i]);

		/* A wide prefix may hold one such address: the rules leave that one out. */
		bool is_left_out = ip_is_address(&never) && !ip_is_address(prefix);

		if (ranges[i].class == RANGE_NEVER && ip_overlap(prefix, &never) && !is_left_out) {
			return err_set(err, ERR_INVALID, "%s is %s, which sandboxes never reach",
				ranges[i].prefix, ranges[i].what);
		}
	}
	int rc = ip_parse("64:ff9b::/32", &all_nat64, &ignored);

	ASSERT(rc == 0);
	if (ip_overlap(prefix, &all_nat64)) {
		return err_set(err, ERR_INVALID,
			"addresses of 64:ff9b::/32 stand for IPv4 ones; name the IPv4 address");
	}
	return 0;
}

static int check_host(
	const struct exception *exception, const struct exceptions_bounds *bounds, struct err *err)
{
	for (size_t i = 0; i < bounds->port_count; i++) {
		if (exception->port == bounds->ports[i]) {
			return err_set(err, ERR_INVALID,
				"port %u is paddockd's own, which sandboxes never reach",
				exception->port);
		}
	}
	/* A wider prefix may hold an address of the host: the rules leave that one out. */
	for (size_t i = 0; i < bounds->own_count; i++) {
		if (ip_equal(&exception->prefix, &bounds->own[i])) {
			return err_set(err, ERR_INVALID,
				"it is an address of this host, which sandboxes never reach");
		}
	}
	return 0;
}

static int parse_one(
	char *entry, const struct exceptions_bounds *bounds, struct exception *ret, struct err *err)
{
	char *prefix = NULL;
	char *port = NULL;
	int64_t number;

	if (split(entry, &prefix, &port, err) < 0 || ip_parse(prefix, &ret->prefix, err) < 0) {
		return -1;
	}
	if (parse_int(port, 1, 65535, &number, err) < 0) {
		return err_wrap(err, "the port");
	}
	ret->port = (uint16_t)number;
	if (check_ranges(&ret->prefix, err) < 0) {
		return -1;
	}
	return check_host(ret, bounds, err);
}

int exceptions_parse(char *const *entries, const struct exceptions_bounds *bounds,
	struct exceptions *ret, struct err *err)
{
	memset(ret, 0, sizeof *ret);
	for (size_t i = 0; i < strv_length(entries); i++) {
		_cleanup_free_ char *copy = xstrdup(entries[i]);
		char quoted[80];

		if (ret->count == EXCEPTIONS_MAX) {
			return err_set(
				err, ERR_INVALID, SETTING ": at most %d entries", EXCEPTIONS_MAX);
		}
		log_quote(quoted, sizeof quoted, entries[i], strlen(entries[i]));
		if (parse_one(copy, bounds, &ret->list[ret->count], err) < 0) {
			return err_wrap(err, SETTING ": %s", quoted);
		}
		ret->count++;
	}
	return 0;
}

struct ip_prefix *exceptions_own_addresses(size_t *ret_count, struct err *err)
{
	struct ifaddrs *all;
	size_t count = 0;

	if (getifaddrs(&all) != 0) {
		err_sys(err, errno, "list this host's addresses");
		return NULL;
	}
	for (struct ifaddrs *one = all; one; one = one->ifa_next) {
		count++;
	}
	struct ip_prefix *own = xcalloc(count + 1, sizeof *own);

	count = 0;
	for (struct ifaddrs *one = all; one; one = one->ifa_next) {
		struct ip_prefix *next = &own[count];
		int family = one->ifa_addr ? one->ifa_addr->sa_family : AF_UNSPEC;

		if (family == AF_INET) {
			memcpy(next->addr, &((struct sockaddr_in *)one->ifa_addr)->sin_addr, 4);
		} else if (family == AF_INET6) {
			memcpy(next->addr, &((struct sockaddr_in6 *)one->ifa_addr)->sin6_addr, 16);
		} else {
			continue;
		}
		next->family = family;
		next->bits = ip_bits_max(family);
		count++;
	}
	freeifaddrs(all);
	*ret_count = count;
	return own;
}
