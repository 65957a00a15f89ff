#include "http/router.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/macros.h"
#include "base/parse.h"
#include "base/xalloc.h"

/* ---- decoding ---- */

long url_decode(const char *text, size_t len, bool plus_is_space, char *out)
{
	size_t n = 0;

	for (size_t i = 0; i < len; i++) {
		char c = text[i];

		if (c == '%') {
			int high = i + 2 < len ? parse_hex_digit(text[i + 1]) : -1;
			int low = high < 0 ? -1 : parse_hex_digit(text[i + 2]);

			if (low < 0) {
				return -1;
			}
			c = (char)(high << 4 | low);
			i += 2;
		} else if (c == '+' && plus_is_space) {
			c = ' ';
		}
		out[n++] = c;
	}
	out[n] = '\0';
	return (long)n;
}

static int query_pair(const char *pair, size_t len, query_fn fn, void *arg, struct err *err)
{
	const char *equals = memchr(pair, '=', len);
	size_t name_len = equals ? (size_t)(equals - pair) : len;
	const char *value = equals ? equals + 1 : pair + len;
	_cleanup_free_ char *decoded = xcalloc(len + 2, 1);
	char *value_out = decoded + name_len + 1;
	long name_n = url_decode(pair, name_len, true, decoded);
	long value_n = url_decode(value, len - (size_t)(value - pair), true, value_out);

	if (name_n < 0) {
		return err_set(err, ERR_INVALID,
			"the query has a \"%%\" that two hexadecimal digits don't follow");
	}
	if (value_n < 0) {
		return err_set(err, ERR_INVALID,
			"\"%.64s\" in the query has a \"%%\" that two hexadecimal digits don't "
			"follow",
			decoded);
	}
	if (strlen(decoded) != (size_t)name_n) {
		return err_set(err, ERR_INVALID, "the query has a name with a NUL in it");
	}
	return fn(arg, decoded, value_out, (size_t)value_n, err);
}

int query_each(const char *query, query_fn fn, void *arg, struct err *err)
{
	while (query && *query) {
		size_t len = strcspn(query, "&");

		if (len > 0 && query_pair(query, len, fn, arg, err) < 0) {
			return -1;
		}
		query += len + (query[len] == '&');
	}
	return 0;
}

/* ---- targets ---- */

/* Length of "http://" or "https://" at the start of @text, or 0. */
static size_t scheme_length(const char *text)
{
	static const char *const schemes[] = {"http://", "https://"};

	for (size_t i = 0; i < ARRAY_SIZE(schemes); i++) {
		if (strncasecmp(text, schemes[i], strlen(schemes[i])) == 0) {
			return strlen(schemes[i]);
		}
	}
	return 0;
}

int target_parse(const char *text, struct target *ret, struct err *err)
{
	size_t scheme = scheme_length(text);
	const char *path = text + scheme + (scheme ? strcspn(text + scheme, "/?#") : 0);
	size_t authority_len = (size_t)(path - text) - scheme;

	if (*path != '/' || strchr(path, '#')) {
		return err_set(err, ERR_INVALID,
			"the request's target must be a path, with a query or without");
	}
	size_t path_size = strlen(path) + 1;

	/* Path and query first, since free() takes the path; the authority behind them. */
	ret->path = xcalloc(path_size + authority_len + 1, 1);
	memcpy(ret->path, path, path_size);
	memcpy(ret->path + path_size, text + scheme, authority_len);
	ret->authority = scheme ? ret->path + path_size : NULL;

	char *mark = strchr(ret->path, '?');

	ret->query = mark ? mark + 1 : NULL;
	if (mark) {
		*mark = '\0';
	}
	return 0;
}

void target_fini(struct target *target)
{
	free(target->path);
	*target = (struct target){NULL};
}

/* ---- matching ---- */

#define BASE      "/v1"
#define BASES_MAX 2

static bool has_base(const char *path)
{
	size_t len = strlen(BASE);

	return strncmp(path, BASE, len) == 0 && path[len] == '/';
}

/* @path from the last "/" on that still belongs to a base URL; see the header. */
static const char *skip_base(const char *path)
{
	for (int bases = 0;; bases++) {
		while (path[0] == '/' && path[1] == '/') {
			path++;
		}
		if (bases == BASES_MAX || !has_base(path)) {
			return path;
		}
		path += strlen(BASE);
	}
}

static int take_param(struct route *route, size_t at, const char *text, size_t len, struct err *err)
{
	const char *name = route->params[at].name;
	char *value = route->params[at].value;

	if (len >= ROUTE_VALUE_BYTES) {
		return err_set(err, ERR_INVALID,
			"\"%s\" in the path must have at most %d bytes, not %zu", name,
			ROUTE_VALUE_BYTES - 1, len);
	}
	long n = url_decode(text, len, false, value);

	if (n < 0 || strlen(value) != (size_t)n) {
		return err_set(err, ERR_INVALID,
			"\"%s\" in the path has an escape that is not allowed", name);
	}
	return 0;
}

/* One path against one template, segment by segment. 1: matches; 0: doesn't; -1: @err. */
static int match(const char *template, const char *path, struct route *route, struct err *err)
{
	route->param_count = 0;
	while (*template == '/' && *path == '/') {
		size_t want = strcspn(++template, "/");
		size_t have = strcspn(++path, "/");

		if (template[0] == '{') {
			size_t at = route->param_count++;

			ASSERT(at < ROUTE_PARAMS_MAX && want - 2 < sizeof route->params[at].name);
			if (have == 0) {
				return 0;
			}
			memcpy(route->params[at].name, template + 1, want - 2);
			route->params[at].name[want - 2] = '\0';
			if (take_param(route, at, path, have, err) < 0) {
				return -1;
			}
		} else if (want != have || memcmp(template, path, want) != 0) {
			return 0;
		}
		template += want;
		path += have;
	}
	return *template == '\0' && *path == '\0';
}

static void allow(struct route *route, enum api_method method)
{
	size_t used = strlen(route->allowed);

	snprintf(route->allowed + used, sizeof route->allowed - used, "%s%s%s", used ? ", " : "",
		api_method_name(method), method == API_GET ? ", HEAD" : "");
}

int route_find(
	const char *method, const char *path, bool is_admin, struct route *ret, struct err *err)
{
	const char *wanted = strcmp(method, "HEAD") == 0 ? "GET" : method;

	path = skip_base(path);
	ret->row = NULL;
	ret->allowed[0] = '\0';
	for (enum api_op op = 0; op < API_OP_MAX; op++) {
		const struct api_row *row = api_row(op);

		if ((row->flags & API_ADMIN_SOCKET) && !is_admin) {
			continue;
		}
		int matches = match(skip_base(row->path), path, ret, err);

		if (matches < 0) {
			return -1;
		}
		if (matches && strcmp(api_method_name(row->method), wanted) == 0) {
			ret->row = row;
			return 0;
		}
		if (matches) {
			allow(ret, row->method);
		}
	}
	return 0;
}
