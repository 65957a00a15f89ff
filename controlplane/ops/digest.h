#pragma once

/*
 * digest - what was asked for, as a number
 *
 * Purpose: SHA-256 over named values, so that two requests can be told apart or found the same
 *          however they were written: the members of objects count in the order of their names.
 * Thread:  any.
 * Uses:    base, libcrypto.
 *
 *	struct digest *digest = digest_new();
 *
 *	digest_add(digest, "name", value);
 *	digest_end(digest, text); (frees it)
 */

#include <stddef.h>

#include "base/json.h"

struct digest;

#define DIGEST_TEXT_BYTES 65

struct digest *digest_new(void);
void digest_add_text(struct digest *digest, const char *name, const char *text); /* NULL: none */
void digest_add(struct digest *digest, const char *name, json_object *value);
/* Hexadecimal; frees @digest. */
void digest_end(struct digest *digest, char out[DIGEST_TEXT_BYTES]);
