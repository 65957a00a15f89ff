#pragma once

/*
 * store_migrate - from any older schema to this one
 *
 * Purpose: applies the numbered migrations that a file hasn't seen; inside store/ and its tests.
 * Owns:    nothing.
 * Thread:  loop.
 * Errors:  ERR_INTERNAL, for the operator; ERR_UNAVAILABLE as store.h.
 * Uses:    base, sqlite3.
 */

#include "base/err.h"

struct store;

/* The SQL of migrations/NNNN-*.sql; generated. The first one makes version 1. */
extern const char *const store_migrations[];
extern const unsigned store_migration_count;

/* Refuses a file that isn't ours, a newer one, and a damaged one. Writes nothing. */
int store_check(struct store *store, unsigned newest, struct err *err);
/* Each in a transaction of its own, after a backup of what was there. */
int store_migrate(
	struct store *store, const char *const *migrations, unsigned count, struct err *err);

/* store_open() with other migrations, for tests. */
struct store *store_open_with(
	const char *path, const char *const *migrations, unsigned count, struct err *err);
