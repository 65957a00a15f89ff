#pragma once

/*
 * store - the database
 *
 * Purpose: opens, checks and migrates the sqlite file; transactions; the meta table. The tables are
 *          in store_sandbox.h, store_account.h and store_key.h.
 * Owns:    the connection and its prepared statements.
 * Thread:  the one that opened it: the loop. Calls are synchronous, a write costs about one fsync.
 * Errors:  ERR_UNAVAILABLE: the file is locked by somebody else, the disk is full, or the file has
 *          turned out to be damaged: nothing was written, try later. ERR_CONFLICT: something with
 *          that name or key exists already. ERR_NOT_FOUND: no such row. ERR_INTERNAL: anything
 *          else.
 * Uses:    base, sqlite3.
 *
 * Only one process has the file open for writing: the state directory's lock sees to that. What the
 * caller reads in one turn of the loop therefore stays true until the turn ends.
 *
 * Calls wait for a lock that somebody else holds for 100 ms in a second, all together: however many
 * there are, the loop goes on.
 */

#include <stdbool.h>

#include "base/cleanup.h"
#include "base/err.h"

struct store;

#define STORE_INSTANCE_BYTES 17 /* 16 hex digits and a terminator */

/*
 * Makes the file (0600) where there is none. One that a newer release wrote, one that is damaged
 * and one that isn't ours are refused; such an ERR_INTERNAL is for the operator and names the
 * newest backup. Before a migration the old content is kept beside it as PATH.backup-<version>.
 */
struct store *store_open(const char *path, struct err *err);
void store_close(struct store *store); /* NULL is fine */
DEFINE_CLEANUP(struct store *, store_close)

/*
 * False once a read or a write has met damage: from then on nothing is written, what can be read is
 * read, and only a start with a good file ends that.
 */
bool store_is_good(const struct store *store, struct err *ret_why);

/* The random id of this state directory, made with the database. Valid while the store is open. */
const char *store_instance(const struct store *store);

/* ---- transactions ---- */

/*
 * Several writes, all or none. A single call below is atomic without it.
 *
 *	_cleanup_store_tx_ struct store_tx tx = STORE_TX_INIT;
 *
 *	if (store_begin(store, &tx, err) < 0 || store_…(…) < 0) {
 *		return -1;
 *	}
 *	return store_commit(&tx, err);
 *
 * They don't nest.
 */
struct store_tx {
	struct store *store; /* NULL: not open */
};

#define STORE_TX_INIT      ((struct store_tx){NULL})
#define _cleanup_store_tx_ _cleanup_(store_rollback)

int store_begin(struct store *store, struct store_tx *tx, struct err *err);
/* When it fails, everything is rolled back. */
int store_commit(struct store_tx *tx, struct err *err);
/* Nothing after a commit. */
void store_rollback(struct store_tx *tx);

/* ---- meta ---- */

/* The caller frees. ERR_NOT_FOUND when the key isn't there. */
char *store_meta_get(struct store *store, const char *key, struct err *err);
int store_meta_set(struct store *store, const char *key, const char *value, struct err *err);
