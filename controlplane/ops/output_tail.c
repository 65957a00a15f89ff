#include "ops/output_tail.h"

#include <inttypes.h>
#include <string.h>

#include "base/parse.h"

/*
 * Theory of operation. A record has the last bytes of both outputs and, of a background command,
 * how they follow each other. Without that (a foreground command's two outputs travel apart) stdout
 * goes first. What is missing is before all that is there, so that offsets of what is there count
 * back from the end.
 */

void output_piece_init(struct output_piece *piece)
{
	*piece = (struct output_piece){.out = evbuffer_new(), .err_out = evbuffer_new()};
	ASSERT(piece->out && piece->err_out);
}

void output_piece_fini(struct output_piece *piece)
{
	evbuffer_free(piece->out);
	evbuffer_free(piece->err_out);
}

void output_piece_add(struct output_piece *piece, int fd, const void *data, size_t len)
{
	piece->last_len = (piece->last_fd == fd ? piece->last_len : 0) + len;
	piece->last_fd = fd;
	ASSERT(evbuffer_add(fd == 1 ? piece->out : piece->err_out, data, len) == 0);
}

size_t output_piece_bytes(const struct output_piece *piece)
{
	return evbuffer_get_length(piece->out) + evbuffer_get_length(piece->err_out);
}

uint64_t output_piece_next(const struct output_piece *piece)
{
	return piece->offset + output_piece_bytes(piece);
}

void output_piece_trim(struct output_piece *piece)
{
	struct evbuffer *last = piece->last_fd == 1 ? piece->out : piece->err_out;
	size_t len = evbuffer_get_length(last);
	size_t split = len > 0 ? utf8_split_end((const char *)evbuffer_pullup(last, -1), len) : 0;

	if (split == 0 || split > piece->last_len || split == output_piece_bytes(piece)) {
		return;
	}
	struct evbuffer *kept = evbuffer_new();

	ASSERT(kept && evbuffer_remove_buffer(last, kept, len - split) >= 0);
	evbuffer_drain(last, split);
	ASSERT(evbuffer_add_buffer(last, kept) == 0);
	evbuffer_free(kept);
	piece->last_len -= split;
}

/* ---- tails ---- */

struct cursor {
	const struct store_exec *row;
	size_t out_at;
	size_t err_at;
	uint64_t offset; /* of the next byte */
};

/* The next run; false: there is none, or the record is damaged. */
static bool next_run(const struct cursor *cursor, size_t at, int *ret_fd, size_t *ret_len)
{
	const struct store_exec *row = cursor->row;
	size_t out_left = row->out.len - cursor->out_at;
	size_t err_left = row->err_out.len - cursor->err_at;

	if (!row->runs) {
		*ret_fd = out_left > 0 ? 1 : 2;
		*ret_len = out_left > 0 ? out_left : err_left;
	} else if (at + 4 <= row->runs_len) {
		const unsigned char *word = row->runs + at;
		uint32_t run = word[0] | word[1] << 8 | word[2] << 16 | (uint32_t)word[3] << 24;

		*ret_fd = run & 1 ? 2 : 1;
		*ret_len = MIN(run >> 1, *ret_fd == 1 ? out_left : err_left);
	} else {
		return false;
	}
	return *ret_len > 0;
}

static const char *take_run(struct cursor *cursor, int fd, size_t len)
{
	const struct store_tail *tail = fd == 1 ? &cursor->row->out : &cursor->row->err_out;
	size_t *at = fd == 1 ? &cursor->out_at : &cursor->err_at;
	const char *data = tail->bytes + *at;

	*at += len;
	cursor->offset += len;
	return data;
}

static uint64_t first_offset(const struct store_exec *row)
{
	uint64_t total = row->out.total + row->err_out.total;

	return total - MIN((uint64_t)(row->out.len + row->err_out.len), total);
}

int output_tail_begin(
	const struct store_exec *row, uint64_t offset, uint64_t *ret_offset, struct err *err)
{
	uint64_t total = row->out.total + row->err_out.total;

	if (offset > total) {
		return err_set(err, ERR_INVALID,
			"\"offset\" must be at most %" PRIu64 ", where the output ends, not "
			"%" PRIu64,
			total, offset);
	}
	*ret_offset = MAX(offset, first_offset(row));
	return 0;
}

void output_tail_each(const struct store_exec *row, uint64_t offset, output_run_fn fn, void *arg)
{
	struct cursor cursor = {.row = row, .offset = first_offset(row)};
	size_t len;
	int fd;

	for (size_t at = 0; next_run(&cursor, at, &fd, &len); at += 4) {
		uint64_t begin = cursor.offset;
		const char *data = take_run(&cursor, fd, len);
		size_t skip = (size_t)MIN(offset > begin ? offset - begin : 0, len);

		if (skip < len && !fn(arg, fd, data + skip, len - skip)) {
			break;
		}
	}
}

struct filling {
	struct output_piece *piece;
	size_t left;
};

static bool fill(void *arg, int fd, const char *data, size_t len)
{
	struct filling *filling = arg;
	size_t take = MIN(len, filling->left);

	output_piece_add(filling->piece, fd, data, take);
	filling->left -= take;
	return filling->left > 0;
}

int output_tail_read(const struct store_exec *row, uint64_t offset, size_t max,
	struct output_piece *ret, struct err *err)
{
	struct filling filling = {.piece = ret, .left = max};

	uint64_t begin;

	if (output_tail_begin(row, offset, &begin, err) != 0) {
		return -1;
	}
	output_piece_init(ret);
	ret->offset = begin;
	output_tail_each(row, begin, fill, &filling);
	return 0;
}
