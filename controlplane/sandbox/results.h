#pragma once

/*
 * results - how a sandbox's last commands ended
 *
 * Purpose: keeps exit code and the tails of both outputs of the last commands, for who asks after
 *          the sandbox, or the connection that waited, is gone.
 * Owns:    what hasn't been written yet; the rest is in store_result.h.
 * Thread:  loop.
 * Errors:  as store.h.
 * Uses:    sandbox_priv.h.
 */

#include "sandbox/sandbox_priv.h"

void results_init(struct sandboxes *all);
void results_fini(struct sandboxes *all);

/* The last bytes of what is added. */
struct result_tail {
	char *ring; /* NULL: nothing yet */
	size_t len; /* of the ring that are used */
	size_t end; /* where the next byte goes */
	uint64_t total;
};

void result_tail_add(struct result_tail *tail, size_t cap, const void *data, size_t len);
/* As bytes in a row; the tail is empty afterwards. @cap as before. */
void result_tail_take(struct result_tail *tail, size_t cap, struct store_tail *ret);
void result_tail_fini(struct result_tail *tail);

/* Takes what @result holds. It is written within a second, or with the sandbox's end. */
void results_add(struct sandbox *sb, struct store_result *result);

/* Writes what waits, within the caller's transaction; results_written() once that is committed. */
int results_write(struct sandbox *sb, struct err *err);
/* Forgets what waits. */
void results_written(struct sandbox *sb);
