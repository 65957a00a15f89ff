#pragma once

/*
 * api_args - from what a client sent to checked arguments
 *
 * Purpose: takes values from path, query, headers and a JSON body, checks each against its field
 *          and keeps them under the field's name. Handlers read them without a further check.
 * Owns:    the values.
 * Thread:  any, one at a time.
 * Errors:  ERR_INVALID: the first thing that is wrong, with field, problem and limit:
 *          `"timeout_minutes" must be between 1 and 525600, not 0`.
 * Uses:    base, api.
 *
 * Headers come behind body, query and path, since these go before them; then api_args_finish(),
 * which looks for what is missing and puts the defaults in.
 */

#include "api/api.h"
#include "base/json.h"

struct api_args {
	const struct api_row *row;
	json_object *values; /* by field name: string, int64, boolean, array, object */
};

#define API_ARGS_INIT ((struct api_args){NULL})

void api_args_init(struct api_args *args, const struct api_row *row);
void api_args_fini(struct api_args *args);
#define _cleanup_api_args_ _cleanup_(api_args_fini)

/* The whole body; not an object: ERR_INVALID. */
int api_args_add_body(struct api_args *args, json_object *body, struct err *err);
/* One parameter, decoded. @len: it may hold NUL. @has_raw_body lets IN_RAW_QUERY fields in. */
int api_args_add_query(struct api_args *args, const char *name, const char *value, size_t len,
	bool has_raw_body, struct err *err);
int api_args_add_path(struct api_args *args, const char *name, const char *value, struct err *err);
/* The value of @field->header. */
int api_args_add_header(
	struct api_args *args, const struct api_field *field, const char *value, struct err *err);
int api_args_finish(struct api_args *args, struct err *err);

/* Values by name; an unknown name is a programming error. What isn't there: NULL, 0, false. */
bool api_args_has(const struct api_args *args, const char *name);
const char *api_args_text(const struct api_args *args, const char *name);
/* With its length, for what may hold NUL. */
const char *api_args_bytes(const struct api_args *args, const char *name, size_t *ret_len);
int64_t api_args_int(const struct api_args *args, const char *name);
bool api_args_bool(const struct api_args *args, const char *name);
/* An array of strings or an object of strings; NULL: not there. Borrowed. */
json_object *api_args_object(const struct api_args *args, const char *name);
/* STRINGS as an array, MAP as "KEY=VALUE" entries; NULL-terminated; NULL: not there. strv_free().
 */
char **api_args_strv(const struct api_args *args, const char *name);
