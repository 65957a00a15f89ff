#pragma once

/*
 * token - the text of an API key
 *
 * Purpose: mint, recognise and hash `pdk_` and 40 random characters.
 * Owns:    nothing.
 * Thread:  any.
 * Errors:  none, see the functions.
 * Uses:    base, libcrypto.
 *
 * A key holds 200 random bits (32 letters to the power of 40), so there is no dictionary to try and
 * one round of SHA-256 is as good a hash as a slow one: whoever has the hashes gains nothing.
 */

#include <stdbool.h>
#include <stdint.h>

#include "base/log.h"

#define TOKEN_PREFIX       LOG_SECRET_PREFIX
#define TOKEN_RANDOM_CHARS 40
#define TOKEN_LENGTH       (sizeof(TOKEN_PREFIX) - 1 + TOKEN_RANDOM_CHARS)
#define TOKEN_BYTES        (TOKEN_LENGTH + 1)
#define TOKEN_HASH_BYTES   32
#define TOKEN_HINT_BYTES   5 /* the last four characters */

void token_mint(char out[TOKEN_BYTES]);
/* Has the form of a key; says nothing about whether there is one. */
bool token_is_valid(const char *text);
/* @token must be valid. */
void token_hash(const char *token, uint8_t out[TOKEN_HASH_BYTES]);
void token_hint(const char *token, char out[TOKEN_HINT_BYTES]);
