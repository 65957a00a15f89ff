#pragma once

/*
 * store_key - the table of API keys
 *
 * Purpose: what of a key is kept: its hash, and enough to recognise it in a list. auth/ makes and
 *          checks keys; nothing else writes here.
 * Owns:    nothing; rows are copies, plain values.
 * Thread:  loop.
 * Errors:  as store.h.
 * Uses:    base, store.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/id.h"
#include "store/store_account.h"

struct store;

#define STORE_KEY_HASH_BYTES 32
#define STORE_KEY_HINT_BYTES 5 /* the last four characters of the key */

struct store_key {
	char id[ID_BYTES];
	char account[ID_BYTES];
	char name[NAME_MAX_BYTES + 1]; /* a label, not unique; may be empty */
	uint8_t hash[STORE_KEY_HASH_BYTES];
	char hint[STORE_KEY_HINT_BYTES];
	int64_t created_at_ms;
	int64_t revoked_at_ms;   /* 0: good */
	int64_t last_used_at_ms; /* 0: never */
};

/* ERR_NOT_FOUND: no such account. */
int store_key_insert(struct store *store, const struct store_key *key, struct err *err);
int store_key_get(struct store *store, const char *id, struct store_key *ret, struct err *err);
/* The key and its account, whether good or not. */
int store_key_get_by_hash(struct store *store, const uint8_t hash[STORE_KEY_HASH_BYTES],
	struct store_key *ret, struct store_account *ret_account, struct err *err);
/* Keeps the first time of revocation. */
int store_key_revoke(struct store *store, const char *id, int64_t revoked_at_ms, struct err *err);
int store_key_touch(struct store *store, const char *id, int64_t used_at_ms, struct err *err);
/* Oldest first, of one account or (NULL) of all; the caller frees *ret. */
int store_key_list(struct store *store, const char *account, struct store_key **ret,
	size_t *ret_count, struct err *err);
