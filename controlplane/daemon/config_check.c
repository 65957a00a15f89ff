#include "daemon/config_check.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/id.h"
#include "base/parse.h"
#include "base/xalloc.h"
#include "netfilter/exceptions.h"

/* ---- addresses ---- */

/* Is @host a numeric address, and one of the loopback? */
static bool parse_address(const char *host, bool is_bracketed, bool *ret_is_loopback)
{
	struct in_addr v4;
	struct in6_addr v6;

	if (!is_bracketed && inet_pton(AF_INET, host, &v4) == 1) {
		*ret_is_loopback = (ntohl(v4.s_addr) >> 24) == 127;
		return true;
	}
	if (is_bracketed && inet_pton(AF_INET6, host, &v6) == 1) {
		*ret_is_loopback = IN6_IS_ADDR_LOOPBACK(&v6);
		return true;
	}
	return false;
}

int config_parse_listen(const char *text, char **ret_host, uint16_t *ret_port,
	bool *ret_is_loopback, struct err *err)
{
	const char *colon = strrchr(text, ':');
	bool is_bracketed = text[0] == '[' && colon && colon > text + 1 && colon[-1] == ']';
	size_t skip = is_bracketed ? 1 : 0;
	int64_t port;

	if (!colon || colon == text || parse_int(colon + 1, 0, 65535, &port, err) != 0) {
		return err_set(err, ERR_INVALID,
			"must look like 127.0.0.1:8470 or [::1]:8470, the port from 0 to 65535");
	}
	_cleanup_free_ char *host = xasprintf(
		"%.*s", (int)((size_t)(colon - text) - 2 * skip), text + skip);

	if (!parse_address(host, is_bracketed, ret_is_loopback)) {
		return err_set(err, ERR_INVALID,
			"the address must be numeric, such as 127.0.0.1 or [::1]");
	}
	*ret_host = steal_ptr(&host);
	*ret_port = (uint16_t)port;
	return 0;
}

int config_check_listen(const char *value, struct err *err)
{
	_cleanup_free_ char *host = NULL;
	uint16_t port;
	bool is_loopback;

	return config_parse_listen(value, &host, &port, &is_loopback, err);
}

#define HOST_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_"

int config_check_host(const char *value, struct err *err)
{
	size_t len = strlen(value);
	bool is_bracketed = len > 2 && value[0] == '[' && value[len - 1] == ']';
	_cleanup_free_ char *inner = xasprintf(
		"%.*s", is_bracketed ? (int)len - 2 : 0, value + (len > 0));
	bool is_name = len > 0 && value[strspn(value, HOST_CHARS)] == '\0';
	bool ignored;

	if (!is_name && !(is_bracketed && parse_address(inner, true, &ignored))) {
		return err_set(err, ERR_INVALID,
			"\"%.64s\" must be a name or an address alone, without scheme and port",
			value);
	}
	return 0;
}

int config_check_origin(const char *value, struct err *err)
{
	size_t scheme = strncmp(value, "https://", 8) == 0  ? 8
			: strncmp(value, "http://", 7) == 0 ? 7
							    : 0;

	if (scheme == 0 || value[scheme] == '\0' ||
		value[scheme + strspn(value + scheme, HOST_CHARS ":[]")] != '\0') {
		return err_set(err, ERR_INVALID,
			"\"%.64s\" must look like https://example.org or http://localhost:3000, "
			"without a path",
			value);
	}
	return 0;
}

int config_check_private(const char *value, struct err *err)
{
	/* The addresses of this host are looked at when the service starts. */
	const struct exceptions_bounds bounds = {0};
	char *entries[] = {(char *)value, NULL};
	struct exceptions ignored;

	static const char prefix[] = "network.allow_private: ";

	if (exceptions_parse(entries, &bounds, &ignored, err) == 0) {
		return 0;
	}
	if (strncmp(err->msg, prefix, strlen(prefix)) == 0) {
		memmove(err->msg, err->msg + strlen(prefix), strlen(err->msg + strlen(prefix)) + 1);
	}
	return -1;
}

/* ---- names and paths ---- */

int config_check_path(const char *value, struct err *err)
{
	if (value[0] != '/') {
		return err_set(err, ERR_INVALID, "must be an absolute path");
	}
	return 0;
}

int config_check_optional_path(const char *value, struct err *err)
{
	return value[0] == '\0' ? 0 : config_check_path(value, err);
}

int config_check_uri(const char *value, struct err *err)
{
	if (strcmp(value, "embed") != 0 && (!strstr(value, "://") || strpbrk(value, " \t"))) {
		return err_set(err, ERR_INVALID,
			"must be embed or a URI of libvirt's such as qemu:///system");
	}
	return 0;
}

int config_check_group(const char *value, struct err *err)
{
	if (value[0] == '\0' || value[strspn(value, HOST_CHARS)] != '\0') {
		return err_set(err, ERR_INVALID, "must be the name of a group");
	}
	return 0;
}

int config_check_name(const char *value, struct err *err)
{
	if (!name_is_valid(value)) {
		return err_set(err, ERR_INVALID,
			"must be 1 to %d of the characters a-z, 0-9 and -, and neither begin nor "
			"end with -",
			NAME_MAX_BYTES);
	}
	return 0;
}

/* ---- others ---- */

int config_parse_uid(const char *text, int64_t *ret, struct err *err)
{
	*ret = 0;
	if (strcmp(text, "auto") == 0 || parse_int(text, 1000, INT32_MAX, ret, err) == 0) {
		return 0;
	}
	return err_set(
		err, ERR_INVALID, "must be auto or a whole number from 1000 to %d", INT32_MAX);
}

int config_check_uid(const char *value, struct err *err)
{
	int64_t ignored;

	return config_parse_uid(value, &ignored, err);
}

int config_check_env(const char *value, struct err *err)
{
	size_t n = strspn(value, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789");

	if (n == 0 || value[n] != '=' || (value[0] >= '0' && value[0] <= '9')) {
		return err_set(err, ERR_INVALID,
			"must be NAME=VALUE with letters, digits and _ in the name");
	}
	return 0;
}
