#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "src/ring.h"

/* All that was ever appended, with the stream of each byte. */
#define MODEL_BYTES 400000u
struct model {
	uint8_t bytes[MODEL_BYTES];
	uint8_t streams[MODEL_BYTES];
	size_t len;
};

static void append(struct ring *r, struct model *m, unsigned stream, size_t len)
{
	assert_true(len <= MODEL_BYTES - m->len);
	for (size_t i = 0; i < len; i++) {
		m->bytes[m->len + i] = (uint8_t)((m->len + i) * 7 + (m->len + i) / 251);
		m->streams[m->len + i] = (uint8_t)stream;
	}
	ring_append(r, stream, m->bytes + m->len, len);
	m->len += len;
}

static void assert_same(const struct ring *r, const struct model *m)
{
	assert_int_equal(r->end, m->len);
	assert_true(r->first <= r->end);
	for (uint64_t at = r->first; at < r->end;) {
		unsigned stream;
		const uint8_t *data;
		size_t n = ring_peek(r, at, &stream, &data);

		assert_true(n > 0 && at + n <= r->end);
		assert_memory_equal(data, m->bytes + at, n);
		for (size_t i = 0; i < n; i++) {
			assert_int_equal(m->streams[at + i], stream);
		}
		at += n;
	}
}

static void test_bytes_come_back_in_order_and_by_stream(void **state)
{
	struct ring r;
	struct model *m = calloc(1, sizeof *m);
	unsigned stream;
	const uint8_t *data;

	(void)state;
	ring_init(&r, 1000, 10);
	append(&r, m, 0, 3);
	append(&r, m, 0, 4);
	append(&r, m, 1, 5);
	append(&r, m, 0, 0);
	append(&r, m, 1, 1);
	assert_same(&r, m);
	assert_int_equal(ring_peek(&r, 0, &stream, &data), 7);
	assert_int_equal(ring_peek(&r, 6, &stream, &data), 1);
	assert_int_equal(ring_peek(&r, 7, &stream, &data), 6);
	assert_int_equal(stream, 1);
	ring_fini(&r);
	free(m);
}

static void test_a_full_ring_drops_its_oldest(void **state)
{
	struct ring r;
	struct model *m = calloc(1, sizeof *m);

	(void)state;
	ring_init(&r, 1000, 10);
	append(&r, m, 0, 1000);
	assert_int_equal(r.first, 0);
	append(&r, m, 1, 1);
	assert_int_equal(r.first, 1);
	append(&r, m, 1, 5000);
	assert_int_equal(r.end - r.first, 1000);
	assert_same(&r, m);
	ring_fini(&r);
	free(m);
}

static void test_single_bytes_in_turns_are_bounded_by_the_number_of_runs(void **state)
{
	struct ring r;
	struct model *m = calloc(1, sizeof *m);

	(void)state;
	ring_init(&r, 100000, 100);
	for (unsigned i = 0; i < 50000; i++) {
		append(&r, m, i % 2, 1);
	}
	assert_int_equal(r.end - r.first, 100);
	assert_true(ring_held(&r) < 4096 * 2 + 100 * sizeof(uint64_t));
	assert_same(&r, m);
	ring_fini(&r);
	free(m);
}

static void test_room_is_what_fits_without_dropping_what_is_kept(void **state)
{
	struct ring r;
	struct model *m = calloc(1, sizeof *m);

	(void)state;
	ring_init(&r, 1000, 3);
	assert_int_equal(ring_room(&r, 0, UINT64_MAX), 1000);
	assert_int_equal(ring_room(&r, 0, 0), 1000);
	append(&r, m, 0, 400);
	assert_int_equal(ring_room(&r, 0, 0), 600);
	assert_int_equal(ring_room(&r, 0, 100), 700);
	assert_int_equal(ring_room(&r, 1, 400), 1000);
	append(&r, m, 1, 10);
	append(&r, m, 0, 10);
	/* A fourth run would push out the first. */
	assert_int_equal(ring_room(&r, 1, 399), 0);
	assert_int_equal(ring_room(&r, 0, 399), 1000 - 21);
	assert_int_equal(ring_room(&r, 1, 400), 1000 - 20);
	append(&r, m, 1, ring_room(&r, 1, 400));
	assert_int_equal(r.first, 400);
	assert_same(&r, m);
	ring_fini(&r);
	free(m);
}

static void test_shrinking_keeps_the_end_and_gives_memory_back(void **state)
{
	struct ring r;
	struct model *m = calloc(1, sizeof *m);

	(void)state;
	ring_init(&r, 100000, 1000);
	append(&r, m, 0, 90000);
	append(&r, m, 1, 20000);
	ring_shrink(&r, 30000, 1000);
	assert_int_equal(r.end - r.first, 30000);
	assert_true(ring_held(&r) <= 30000 + 16 * sizeof(uint64_t));
	assert_same(&r, m);
	ring_raise(&r, 5000);
	append(&r, m, 0, 5000);
	assert_int_equal(r.end - r.first, 35000);
	assert_same(&r, m);
	ring_shrink(&r, 35000, 1);
	assert_int_equal(r.end - r.first, 5000);
	assert_same(&r, m);
	ring_shrink(&r, 0, 0);
	assert_int_equal(r.first, r.end);
	ring_fini(&r);
	free(m);
}

static void test_a_ring_for_nothing_counts(void **state)
{
	struct ring r;
	struct model *m = calloc(1, sizeof *m);

	(void)state;
	ring_init(&r, 0, 1);
	append(&r, m, 0, 70000);
	assert_int_equal(r.first, 70000);
	assert_int_equal(ring_held(&r), 0);
	assert_same(&r, m);
	ring_fini(&r);
	free(m);
}

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

static void test_whatever_is_done_the_ring_is_the_end_of_what_came(void **state)
{
	struct model *m = malloc(sizeof *m);

	(void)state;
	srand(7);
	for (unsigned round = 0; round < 300; round++) {
		struct ring r;
		size_t max_bytes = 1 + (size_t)rand() % 20000;
		size_t max_runs = 1 + (size_t)rand() % 50;
		uint64_t keep = 0;

		m->len = 0;
		ring_init(&r, max_bytes, max_runs);
		for (unsigned step = 0; step < 100; step++) {
			unsigned stream = (unsigned)rand() % 2;
			size_t room = ring_room(&r, stream, keep);
			uint64_t first = r.first;

			assert_true(room <= max_bytes);
			append(&r, m, stream, least(room, (size_t)rand() % 3000));
			/* What was to be kept is there. */
			assert_true(r.first <= (first > keep ? first : keep));
			if (rand() % 3 == 0) {
				keep = r.end - (uint64_t)rand() % (r.end - r.first + 1);
			}
			if (rand() % 20 == 0) {
				append(&r, m, stream, (size_t)rand() % 3000);
				keep = keep > r.first ? keep : r.first;
			}
			assert_true(r.end - r.first <= max_bytes);
			assert_true(r.runs_count <= max_runs);
		}
		assert_same(&r, m);
		ring_shrink(&r, max_bytes / 2, max_runs / 2);
		assert_same(&r, m);
		ring_fini(&r);
	}
	free(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bytes_come_back_in_order_and_by_stream),
		cmocka_unit_test(test_a_full_ring_drops_its_oldest),
		cmocka_unit_test(test_single_bytes_in_turns_are_bounded_by_the_number_of_runs),
		cmocka_unit_test(test_room_is_what_fits_without_dropping_what_is_kept),
		cmocka_unit_test(test_shrinking_keeps_the_end_and_gives_memory_back),
		cmocka_unit_test(test_a_ring_for_nothing_counts),
		cmocka_unit_test(test_whatever_is_done_the_ring_is_the_end_of_what_came),
	};

	return cmocka_run_group_tests_name("ring", tests, NULL, NULL);
}
