#pragma once

/*
 * store_account - the table of accounts
 *
 * Purpose: whom sandboxes and keys belong to.
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

struct store;

struct store_account {
	char id[ID_BYTES];
	char name[NAME_MAX_BYTES + 1]; /* name_is_valid(), unique */
	int64_t created_at_ms;
	bool is_disabled; /* its keys are refused */
};

/* Makes the id. ERR_INVALID: not a name; ERR_CONFLICT: taken. */
int store_account_insert(struct store *store, const char *name, int64_t created_at_ms,
	struct store_account *ret, struct err *err);
int store_account_get(
	struct store *store, const char *id, struct store_account *ret, struct err *err);
int store_account_get_by_name(
	struct store *store, const char *name, struct store_account *ret, struct err *err);
int store_account_set_disabled(
	struct store *store, const char *id, bool is_disabled, struct err *err);
/* The id that follows @id, which it replaces; empty: the first one. 1: found, 0: there is none. */
int store_account_next(struct store *store, char id[ID_BYTES], struct err *err);
/* By name; the caller frees *ret. */
int store_account_list(
	struct store *store, struct store_account **ret, size_t *ret_count, struct err *err);
