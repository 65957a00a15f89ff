#include "tests/lib/cm.h"

#include <stdlib.h>

#include "ops/output_tail.h"
#include "ops/signals.h"

/* "abc" (stdout), "DE" (stderr), "fgh" (stdout): the last eight of twenty bytes. */
static struct store_exec tail(void)
{
	static unsigned char runs[] = {6, 0, 0, 0, 5, 0, 0, 0, 6, 0, 0, 0};

	return (struct store_exec){.id = "ex_1",
		.out = {.total = 15, .bytes = (char *)"abcfgh", .len = 6},
		.err_out = {.total = 5, .bytes = (char *)"DE", .len = 2},
		.runs = runs,
		.runs_len = sizeof runs};
}

static void expect_piece(const struct store_exec *row, uint64_t offset, size_t max, uint64_t begin,
	const char *out, const char *err_out)
{
	struct output_piece piece;
	struct err err;

	assert_ok(output_tail_read(row, offset, max, &piece, &err), &err);
	assert_int_equal(piece.offset, begin);
	assert_int_equal(evbuffer_get_length(piece.out), strlen(out));
	assert_int_equal(evbuffer_get_length(piece.err_out), strlen(err_out));
	if (out[0]) {
		assert_memory_equal(evbuffer_pullup(piece.out, -1), out, strlen(out));
	}
	if (err_out[0]) {
		assert_memory_equal(evbuffer_pullup(piece.err_out, -1), err_out, strlen(err_out));
	}
	assert_int_equal(output_piece_next(&piece), begin + strlen(out) + strlen(err_out));
	output_piece_fini(&piece);
}

static void test_a_tail_is_read_from_any_offset_in_order(void **state)
{
	struct store_exec row = tail();

	(void)state;
	expect_piece(&row, 0, 100, 12, "abcfgh", "DE");
	expect_piece(&row, 12, 4, 12, "abc", "D");
	expect_piece(&row, 14, 3, 14, "c", "DE");
	expect_piece(&row, 16, 100, 16, "fgh", "E");
	expect_piece(&row, 19, 1, 19, "h", "");
	expect_piece(&row, 20, 1, 20, "", "");
}

static void test_without_an_order_stdout_goes_first(void **state)
{
	struct store_exec row = tail();

	(void)state;
	row.runs = NULL;
	row.runs_len = 0;
	expect_piece(&row, 0, 100, 12, "abcfgh", "DE");
	expect_piece(&row, 17, 100, 17, "h", "DE");
}

static void test_an_offset_beyond_the_end_is_refused(void **state)
{
	struct store_exec row = tail();
	struct output_piece piece;
	struct err err;

	(void)state;
	assert_err(output_tail_read(&row, 21, 1, &piece, &err), &err, ERR_INVALID);
	assert_err_says(&err, "at most 20");
}

/* A database may have been tampered with: nothing beyond the tails is read. */
static void test_runs_that_lie_are_cut(void **state)
{
	static unsigned char lies[] = {0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 6, 0, 0};
	struct store_exec row = tail();

	(void)state;
	row.runs = lies;
	row.runs_len = sizeof lies;
	expect_piece(&row, 0, 100, 12, "abcfgh", "DE");
	row.out.total = 0;
	row.err_out.total = 0;
	expect_piece(&row, 0, 100, 0, "abcfgh", "DE");
}

static void expect_trimmed(const char *out, const char *err_out, bool is_out_last, size_t left)
{
	struct output_piece piece;

	output_piece_init(&piece);
	if (is_out_last) {
		output_piece_add(&piece, 2, err_out, strlen(err_out));
		output_piece_add(&piece, 1, out, strlen(out));
	} else {
		output_piece_add(&piece, 1, out, strlen(out));
		output_piece_add(&piece, 2, err_out, strlen(err_out));
	}
	output_piece_trim(&piece);
	assert_int_equal(output_piece_bytes(&piece), left);
	output_piece_fini(&piece);
}

static void test_a_piece_ends_with_a_whole_character(void **state)
{
	(void)state;
	expect_trimmed("ab\xc3", "", true, 2);
	expect_trimmed("ab\xe2\x82", "x", true, 3);
	expect_trimmed("ab", "x\xf0\x9f\x98", false, 3);
	expect_trimmed("ab\xe2\x82\xac", "", true, 5);
	/* What isn't last can't be completed by what follows: it stays. */
	expect_trimmed("ab\xc3", "x", false, 4);
	/* So does what is alone. */
	expect_trimmed("\xc3", "", true, 1);
	expect_trimmed("", "", true, 0);
}

static void test_signals_have_names_and_numbers(void **state)
{
	static const struct {
		const char *text;
		int number;
	} good[] = {{"TERM", 15}, {"SIGTERM", 15}, {"sigint", 2}, {"Hup", 1}, {"USR1", 10},
		{"SYS", 31}, {"9", 9}, {"64", 64}};
	static const char *const bad[] = {"", "SIG", "0", "65", "-1", "9 ", "TERMINATE", "SIG9"};
	struct err err;
	int number;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		assert_ok(signal_parse(good[i].text, &number, &err), &err);
		assert_int_equal(number, good[i].number);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_err(signal_parse(bad[i], &number, &err), &err, ERR_INVALID);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_tail_is_read_from_any_offset_in_order),
		cmocka_unit_test(test_without_an_order_stdout_goes_first),
		cmocka_unit_test(test_an_offset_beyond_the_end_is_refused),
		cmocka_unit_test(test_runs_that_lie_are_cut),
		cmocka_unit_test(test_a_piece_ends_with_a_whole_character),
		cmocka_unit_test(test_signals_have_names_and_numbers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
