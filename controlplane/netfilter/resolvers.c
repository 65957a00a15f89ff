#include "netfilter/resolvers.h"

#include <arpa/inet.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/xalloc.h"

#define BLANKS " \t\r\f\v"

static bool same(const struct resolver *a, const struct resolver *b)
{
	return ip_equal(&a->address, &b->address) && strcmp(a->interface, b->interface) == 0;
}

/* The name ends up in the text of the rules, so only plain ones are taken. */
static bool interface_is_plain(const char *name)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
				    "_-.";
	size_t len = strlen(name);

	return len > 0 && len < sizeof((struct resolver *)0)->interface &&
	       strspn(name, plain) == len;
}

/* The C library and the kernel take "any" for the loopback. */
static void replace_any(struct ip_prefix *address)
{
	static const uint8_t any[16];

	if (memcmp(address->addr, any, sizeof any) != 0) {
		return;
	}
	struct err err;
	int rc = ip_parse(address->family == AF_INET ? "127.0.0.1" : "::1", address, &err);

	ASSERT(rc == 0);
}

static bool parse_one(char *text, struct resolver *ret)
{
	char *percent = strchr(text, '%');
	struct err err;

	memset(ret, 0, sizeof *ret);
	if (percent) {
		*percent = '\0';
		if (!interface_is_plain(percent + 1)) {
			return false;
		}
		strcpy(ret->interface, percent + 1);
	}
	if (strchr(text, '/') || ip_parse(text, &ret->address, &err) < 0) {
		return false;
	}
	replace_any(&ret->address);
	return true;
}

void resolvers_parse(const char *text, struct resolvers *ret)
{
	_cleanup_free_ char *copy = xstrdup(text);
	char *rest = copy;
	char *line;

	memset(ret, 0, sizeof *ret);
	while ((line = strsep(&rest, "\n")) && ret->count < RESOLVERS_MAX) {
		char *word = strtok_r(line, BLANKS, &line);
		struct resolver resolver;
		bool is_known = false;

		if (!word || strcmp(word, "nameserver") != 0) {
			continue;
		}
		word = strtok_r(NULL, BLANKS, &line);
		if (!word || !parse_one(word, &resolver)) {
			continue;
		}
		for (size_t i = 0; i < ret->count; i++) {
			is_known = is_known || same(&ret->list[i], &resolver);
		}
		if (!is_known) {
			ret->list[ret->count++] = resolver;
		}
	}
}

bool resolvers_equal(const struct resolvers *a, const struct resolvers *b)
{
	if (a->count != b->count) {
		return false;
	}
	for (size_t i = 0; i < a->count; i++) {
		if (!same(&a->list[i], &b->list[i])) {
			return false;
		}
	}
	return true;
}
