#pragma once

/*
 * store_result - the table of last results
 *
 * Purpose: how a sandbox's last commands ended, and the tails of what they said. Goes with the
 *          sandbox's row.
 * Owns:    nothing; rows are copies.
 * Thread:  loop.
 * Errors:  as store.h.
 * Uses:    base, store.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "base/id.h"

struct store;

struct store_tail {
	uint64_t total; /* bytes that came; @bytes holds the last @len of them */
	char *bytes;
	size_t len;
};

struct store_result {
	char id[ID_BYTES]; /* ex_… */
	int64_t ended_at_ms;
	char *error; /* NULL: it ran to its end, and what follows is so */
	int exit_code;
	int signal; /* 0: none */
	bool timed_out;
	bool truncated;
	int64_t duration_ms;
	struct store_tail out;
	struct store_tail err_out;
};

void store_result_fini(struct store_result *result);

/*
 * The newest of its sandbox; all but the last @keep go. Two statements: from within a transaction.
 */
int store_result_add(struct store *store, const char *sandbox_id, const struct store_result *result,
	unsigned keep, struct err *err);

struct store_result_list {
	struct store_result *rows;
	size_t count;
};
void store_result_list_fini(struct store_result_list *list);
#define _cleanup_store_result_list_ _cleanup_(store_result_list_fini)

/* Newest first. Empty where there is none, or no such sandbox. */
int store_result_list(struct store *store, const char *sandbox_id, struct store_result_list *ret,
	struct err *err);
