#pragma once

/*
 * id - identifiers
 *
 * Purpose: make and check ids. They have a prefix that tells their kind and 20 hex digits of
 *          randomness (80 bits: unguessable, though never used as a secret), so an id can't be
 *          taken for a name, which has no underscore.
 * Thread:  any.
 */

#include <stdbool.h>

#define ID_RANDOM_DIGITS 20
#define ID_BYTES         32 /* any id with its terminator */

#define ID_SANDBOX "sb_"
#define ID_EXEC    "ex_"
#define ID_REQUEST "rq_"
#define ID_ACCOUNT "ac_"
#define ID_KEY     "ky_"

void id_make(char out[ID_BYTES], const char *prefix);
bool id_is_valid(const char *text, const char *prefix);

#define NAME_MAX_BYTES 63
/* ^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$ */
bool name_is_valid(const char *text);
