#pragma once

/*
 * api_schema - the table as JSON Schema, OpenAPI and Markdown
 *
 * Purpose: what machines and people read about the operations, made from the same rows that the
 *          checks use.
 * Owns:    nothing: the caller has what is returned.
 * Thread:  any.
 * Uses:    base, api.
 */

#include <stdbool.h>
#include <stdio.h>

#include "api/api.h"
#include "base/json.h"

/* JSON Schema 2020-12 of one field's value. */
json_object *api_schema_field(const struct api_field *field);
/* Of an object with the fields that come from any of the places @in (0: from all). */
json_object *api_schema_args(const struct api_row *row, unsigned in);
/* OpenAPI 3.1 of everything that is on the network. */
json_object *api_openapi(const char *version);
/* docs/api.md. */
void api_write_doc(FILE *out);
