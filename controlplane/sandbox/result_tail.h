#pragma once

/*
 * result_tail - the last bytes of an output
 *
 * Purpose: what exec.c keeps of an output for the record while the command runs.
 * Owns:    a ring, made with the first byte.
 * Thread:  loop.
 * Uses:    base, store (the form in a row).
 */

#include "store/store_exec.h"

struct result_tail {
	char *ring; /* NULL: nothing yet */
	size_t len; /* of the ring that are used */
	size_t end; /* where the next byte goes */
	uint64_t total;
};

/* @cap: how many bytes are kept, the same in every call. */
void result_tail_add(struct result_tail *tail, size_t cap, const void *data, size_t len);
/* As bytes in a row; the tail is empty afterwards. */
void result_tail_take(struct result_tail *tail, size_t cap, struct store_tail *ret);
void result_tail_fini(struct result_tail *tail);
