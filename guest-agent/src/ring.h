#pragma once

/*
 * ring - the last bytes of a command's output
 *
 * Purpose: keeps bytes of two streams in the order they came, counts all that ever came, and drops
 *          the oldest when it is full. Pure: no I/O.
 * Owns:    the bytes and the list of runs; both grow as they are needed, up to a maximum.
 * Thread:  any; no state outside the arguments.
 * Errors:  none: without memory it holds less.
 * Uses:    libc.
 *
 * A byte has an offset: how many came before it. [first, end) is what is there. A run is what came
 * of one stream without a byte of the other between.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ring {
	uint64_t first;
	uint64_t end;
	size_t max_bytes;
	size_t max_runs;
	uint8_t *bytes; /* the byte at an offset lies at offset % size */
	size_t size;
	uint64_t *runs; /* offset of the first byte << 1 | stream; in a circle as well */
	size_t runs_size;
	size_t runs_head;
	size_t runs_count;
};

/* Takes no memory yet. */
void ring_init(struct ring *r, size_t max_bytes, size_t max_runs);
void ring_fini(struct ring *r);

/* How many bytes of @stream (0 or 1) fit without dropping any from offset @keep on. */
size_t ring_room(const struct ring *r, unsigned stream, uint64_t keep);
/* Drops the oldest for them where there is no room. */
void ring_append(struct ring *r, unsigned stream, const void *data, size_t len);
/* The bytes at @offset, which is in [first, end), as far as they lie together and are of one
 * stream. Valid until the ring changes. */
size_t ring_peek(
	const struct ring *r, uint64_t offset, unsigned *ret_stream, const uint8_t **ret_data);

/* From now on it holds so much more. */
void ring_raise(struct ring *r, size_t more);
/* Cut down to its last @max_bytes in at most @max_runs, and to the memory that they need. */
void ring_shrink(struct ring *r, size_t max_bytes, size_t max_runs);
/* Memory it has taken. */
size_t ring_held(const struct ring *r);
