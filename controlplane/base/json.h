#pragma once

/*
 * json - the only entry to the JSON parser
 *
 * Purpose: strict reading of what clients send. json-c alone lets the last of two equal keys win
 *          and is lenient in other ways; this isn't.
 * Owns:    nothing; the caller owns the returned object (json_object_put).
 * Errors:  ERR_INVALID; ERR_TOO_LARGE beyond 2 GiB; ERR_UNAVAILABLE without memory.
 */

#include <json-c/json.h>
#include <stddef.h>

#include "base/cleanup.h"
#include "base/err.h"

#define JSON_DEPTH_MAX  16
#define JSON_VALUES_MAX 16384
/* A service's lists are longer than what a client may send: 10000 entries of 8 values, say. */
#define JSON_ANSWER_VALUES_MAX (1024 * 1024)

static inline void json_put(json_object *obj)
{
	json_object_put(obj);
}
DEFINE_CLEANUP(json_object *, json_put)
#define _cleanup_json_ _cleanup_(json_put_p)

/*
 * Exactly one JSON value, UTF-8, at most JSON_DEPTH_MAX deep and JSON_VALUES_MAX values in all, no
 * key twice in an object, nothing after it but white space. The value null is NULL without an
 * error: where it matters, set @err to ERR_INIT first.
 */
json_object *json_parse(const char *text, size_t len, struct err *err);

/* The same for an answer of a service: at most JSON_ANSWER_VALUES_MAX values. */
json_object *json_parse_answer(const char *text, size_t len, struct err *err);

/* Text of a JSON number, string …, for error messages: "a string", "null", "an object". */
const char *json_kind(json_object *obj);

/* Compact text; owned by @obj, valid until it changes. Slashes aren't escaped. */
const char *json_text(json_object *obj, size_t *ret_len);
