#pragma once

/*
 * router - from method and path to an operation
 *
 * Purpose: takes a request's target apart, matches the templates of the operation table, decodes
 *          paths and queries.
 * Owns:    nothing.
 * Thread:  any.
 * Errors:  ERR_INVALID: a target that is none, an escape that is none. What has no route: see the
 *          status.
 * Uses:    base, api.
 *
 * Clients are given a base URL and append paths to it. Some are given "http://host:8470", some
 * "http://host:8470/v1", with a "/" at the end or without, and some append "/v1/sandboxes", some
 * "/sandboxes". All of them mean the same: leading slashes and up to two "/v1" don't count.
 */

#include <stdbool.h>
#include <stddef.h>

#include "api/api.h"
#include "base/err.h"

#define ROUTE_PARAMS_MAX   2
#define ROUTE_VALUE_BYTES  128
#define ROUTE_METHODS_TEXT 64

struct route {
	const struct api_row *row; /* NULL: none */
	size_t param_count;
	struct {
		char name[16];
		char value[ROUTE_VALUE_BYTES]; /* decoded */
	} params[ROUTE_PARAMS_MAX];
	char allowed[ROUTE_METHODS_TEXT]; /* without a row: what the path has, for Allow; "":
					     nothing */
};

struct target {
	char *path;            /* starts with "/", still encoded; target_fini() */
	const char *query;     /* within path's allocation; NULL: none */
	const char *authority; /* of "http://authority/path", likewise; NULL: none */
};

/* "/path?query", or the same with a scheme and a host before it. */
int target_parse(const char *text, struct target *ret, struct err *err);
void target_fini(struct target *target);
#define _cleanup_target_ _cleanup_(target_fini)

/*
 * @method is a request's, "HEAD" counts as "GET". Rows of the admin socket are only seen with
 * @is_admin. Without a match ret->row is NULL and that is no error.
 */
int route_find(
	const char *method, const char *path, bool is_admin, struct route *ret, struct err *err);

/*
 * Decodes @len bytes at @text into @out, which has room for as many and a terminator; returns the
 * length, which may be shorter and the bytes may hold NUL, or -1: a "%" without two hex digits.
 * @plus_is_space: in queries.
 */
long url_decode(const char *text, size_t len, bool plus_is_space, char *out);

/* Calls @fn with each name and value of @query, decoded; stops when it returns -1. */
typedef int (*query_fn)(
	void *arg, const char *name, const char *value, size_t len, struct err *err);
int query_each(const char *query, query_fn fn, void *arg, struct err *err);
