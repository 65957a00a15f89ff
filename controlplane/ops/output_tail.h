#pragma once

/*
 * output_tail - pieces of a background command's output
 *
 * Purpose: a piece as it comes from the guest or from a record's tails, with the two outputs apart
 *          and one offset for both.
 * Owns:    a piece's bytes.
 * Thread:  loop.
 * Errors:  ERR_INVALID: an offset beyond the end.
 * Uses:    base, store.
 */

#include <event2/buffer.h>
#include <stdint.h>

#include "base/err.h"
#include "store/store_exec.h"

struct output_piece {
	uint64_t offset; /* of its first byte */
	struct evbuffer *out;
	struct evbuffer *err_out;
	int last_fd; /* whose bytes came last, 0: none */
	size_t last_len;
};

void output_piece_init(struct output_piece *piece);
void output_piece_fini(struct output_piece *piece);
void output_piece_add(struct output_piece *piece, int fd, const void *data, size_t len);
/* Leaves out a character that the last bytes only begin, unless that is all there is. */
void output_piece_trim(struct output_piece *piece);
size_t output_piece_bytes(const struct output_piece *piece);
/* The offset of what follows it. */
uint64_t output_piece_next(const struct output_piece *piece);

/* Of a record's tails: the first byte that is there, from @offset on. */
int output_tail_begin(
	const struct store_exec *row, uint64_t offset, uint64_t *ret_offset, struct err *err);
/* Gives each run from @offset on to @fn, in order, until that returns false. */
typedef bool (*output_run_fn)(void *arg, int fd, const char *data, size_t len);
void output_tail_each(const struct store_exec *row, uint64_t offset, output_run_fn fn, void *arg);
/* At most @max bytes. @ret is the caller's to end. */
int output_tail_read(const struct store_exec *row, uint64_t offset, size_t max,
	struct output_piece *ret, struct err *err);
