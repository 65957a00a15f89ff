#pragma once

/*
 * nft - the kernel's tables, through libnftables
 *
 * Purpose: replaces, lists and removes one table.
 * Thread:  a worker: each call waits for the kernel. One at a time, whoever calls: the library has
 *          globals, so a mutex keeps others waiting.
 * Errors:  ERR_FORBIDDEN: no CAP_NET_ADMIN. ERR_UNAVAILABLE: the kernel doesn't take it.
 *          ERR_NOT_FOUND: no such table to list. ERR_INTERNAL else.
 * Uses:    base, libnftables, libmnl.
 */

#include <stdint.h>

#include "base/err.h"

/* @text: of ruleset_text(). */
int nft_apply_blocking(const char *text, struct err *err);
/* Everything in the table as text without counters and handles. The caller frees. */
char *nft_list_blocking(const char *table, struct err *err);
/* Only this table. One that isn't there is fine. */
int nft_remove_blocking(const char *table, struct err *err);
