#include "src/ring.h"

#include <stdlib.h>
#include <string.h>

#include "src/util.h"

#define FIRST_BYTES 4096u
#define FIRST_RUNS  16u

void ring_init(struct ring *r, size_t max_bytes, size_t max_runs)
{
	*r = (struct ring){.max_bytes = max_bytes, .max_runs = max_runs};
}

void ring_fini(struct ring *r)
{
	free(r->bytes);
	free(r->runs);
	r->bytes = NULL;
	r->runs = NULL;
	r->size = r->runs_size = r->runs_count = 0;
	r->first = r->end;
}

/* ---- runs ----------------------------------------------------------------------------------- */

static uint64_t run_at(const struct ring *r, size_t i)
{
	return r->runs[(r->runs_head + i) % r->runs_size];
}

static uint64_t run_start(const struct ring *r, size_t i)
{
	return run_at(r, i) >> 1;
}

static uint64_t run_end(const struct ring *r, size_t i)
{
	return i + 1 < r->runs_count ? run_start(r, i + 1) : r->end;
}

static bool is_last_run_of(const struct ring *r, unsigned stream)
{
	return r->runs_count > 0 && (run_at(r, r->runs_count - 1) & 1) == stream;
}

static void drop_before(struct ring *r, uint64_t offset)
{
	r->first = offset;
	while (r->runs_count > 0 && run_end(r, 0) <= offset) {
		r->runs_head = (r->runs_head + 1) % r->runs_size;
		r->runs_count--;
	}
}

/* ---- memory --------------------------------------------------------------------------------- */

/* Copies the bytes from offset @from on to where they lie in a circle of another size. */
static void copy_bytes(const struct ring *r, uint8_t *to, size_t to_size)
{
	for (uint64_t at = r->first; at < r->end;) {
		size_t here = (size_t)(at % r->size);
		size_t there = (size_t)(at % to_size);
		size_t n = (size_t)MIN(r->end - at, (uint64_t)MIN(r->size - here, to_size - there));

		memcpy(to + there, r->bytes + here, n);
		at += n;
	}
}

static bool resize_bytes(struct ring *r, size_t size)
{
	uint8_t *bytes = malloc(size);

	if (bytes == NULL) {
		return false;
	}
	copy_bytes(r, bytes, size);
	free(r->bytes);
	r->bytes = bytes;
	r->size = size;
	return true;
}

static bool resize_runs(struct ring *r, size_t size)
{
	uint64_t *runs = malloc(size * sizeof *runs);

	if (runs == NULL) {
		return false;
	}
	for (size_t i = 0; i < r->runs_count; i++) {
		runs[i] = run_at(r, i);
	}
	free(r->runs);
	r->runs = runs;
	r->runs_size = size;
	r->runs_head = 0;
	return true;
}

/* Room for @wanted bytes, or for as many as there is memory. */
static void grow_bytes(struct ring *r, size_t wanted)
{
	size_t size = MAX(r->size, (size_t)FIRST_BYTES);

	while (size < wanted) {
		size *= 2;
	}
	size = MIN(size, r->max_bytes);
	if (size > r->size) {
		resize_bytes(r, size);
	}
}

/* False: no memory for a single one. */
static bool begin_run(struct ring *r, unsigned stream)
{
	if (is_last_run_of(r, stream)) {
		return true;
	}
	if (r->runs_count == r->runs_size && r->runs_size < r->max_runs) {
		resize_runs(r, MIN(MAX(r->runs_size * 2, (size_t)FIRST_RUNS), r->max_runs));
	}
	if (r->runs_size == 0) {
		return false;
	}
	if (r->runs_count == r->runs_size) {
		drop_before(r, run_end(r, 0));
	}
	r->runs[(r->runs_head + r->runs_count++) % r->runs_size] = r->end << 1 | stream;
	return true;
}

/* ---- use ------------------------------------------------------------------------------------ */

size_t ring_room(const struct ring *r, unsigned stream, uint64_t keep)
{
	bool needs_run = !is_last_run_of(r, stream) && r->runs_count == r->max_runs;
	uint64_t from = MAX(keep, r->first);

	if (from >= r->end) {
		return r->max_bytes;
	}
	return needs_run && run_end(r, 0) > from ? 0 : r->max_bytes - (size_t)(r->end - from);
}

void ring_append(struct ring *r, unsigned stream, const void *data, size_t len)
{
	const uint8_t *from = data;

	if (len == 0) {
		return;
	}
	grow_bytes(r, (size_t)MIN((r->end - r->first) + len, (uint64_t)r->max_bytes));
	if (len > r->size) {
		size_t skipped = len - r->size;

		from += skipped;
		len = r->size;
		r->end += skipped;
		drop_before(r, r->end);
	}
	if (r->end + len - r->first > r->size) {
		drop_before(r, r->end + len - r->size);
	}
	if (len == 0 || !begin_run(r, stream)) {
		r->end += len;
		drop_before(r, r->end);
		return;
	}
	while (len > 0) {
		size_t at = (size_t)(r->end % r->size);
		size_t n = MIN(len, r->size - at);

		memcpy(r->bytes + at, from, n);
		r->end += n;
		from += n;
		len -= n;
	}
}

/* The run that holds the byte at @offset. */
static size_t find_run(const struct ring *r, uint64_t offset)
{
	size_t low = 0;
	size_t high = r->runs_count;

	while (high - low > 1) {
		size_t middle = low + (high - low) / 2;

		if (run_start(r, middle) <= offset) {
			low = middle;
		} else {
			high = middle;
		}
	}
	return low;
}

size_t ring_peek(
	const struct ring *r, uint64_t offset, unsigned *ret_stream, const uint8_t **ret_data)
{
	size_t run = find_run(r, offset);
	size_t at = (size_t)(offset % r->size);

	*ret_stream = (unsigned)(run_at(r, run) & 1);
	*ret_data = r->bytes + at;
	return (size_t)MIN(run_end(r, run) - offset, (uint64_t)(r->size - at));
}

void ring_raise(struct ring *r, size_t more)
{
	r->max_bytes += more;
}

void ring_shrink(struct ring *r, size_t max_bytes, size_t max_runs)
{
	if (r->runs_count > max_runs) {
		drop_before(r, run_start(r, r->runs_count - max_runs));
	}
	if (r->end - r->first > max_bytes) {
		drop_before(r, r->end - max_bytes);
	}
	r->max_bytes = max_bytes;
	r->max_runs = max_runs;

	size_t bytes = MAX((size_t)(r->end - r->first), (size_t)1);
	size_t runs = MAX(r->runs_count, (size_t)1);

	if (bytes < r->size) {
		resize_bytes(r, bytes);
	}
	if (runs < r->runs_size) {
		resize_runs(r, runs);
	}
}

size_t ring_held(const struct ring *r)
{
	return r->size + r->runs_size * sizeof *r->runs;
}
