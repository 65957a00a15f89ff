#pragma once

/*
 * store_internal - the store as its own files see it
 *
 * Purpose: the connection and the statement cache; inside store/ only.
 * Owns:    see store.h.
 * Thread:  loop.
 * Errors:  none.
 * Uses:    sqlite3.
 */

#include <pthread.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

#include "store/store.h"

/* Every statement that the program has: each is prepared at most once. */
#define STORE_STATEMENTS_MAX 64

struct store_cached {
	const char *sql;
	sqlite3_stmt *handle;
};

struct store {
	sqlite3 *db;
	char *path;
	pthread_t thread;
	bool is_in_tx;
	bool is_open;    /* in use: a damage that shows is news */
	bool is_damaged; /* no write is tried any more */
	/* What calls have waited for others' locks since busy_since_ms. */
	uint64_t busy_since_ms;
	unsigned busy_ms;
	char instance[STORE_INSTANCE_BYTES];
	struct store_cached cached[STORE_STATEMENTS_MAX];
	unsigned cached_count;
};

#define store_assert_thread(store) ASSERT(pthread_equal((store)->thread, pthread_self()))
