#include "tests/lib/cm.h"

#include "base/cleanup.h"
#include "base/macros.h"
#include "base/xalloc.h"
#include "ctl/detach.h"

#define P "\x10"
#define Q "\x11"

/* What goes on of @typed, however it is cut; "!" at the end: it leaves. */
static void assert_typed(const char *typed, const char *expected)
{
	size_t len = strlen(typed);

	for (size_t piece = 1; piece <= len; piece++) {
		struct detach detach = {.is_held = false};
		char got[64] = "";
		size_t got_len = 0;
		bool has_left = false;

		for (size_t at = 0; at < len && !has_left; at += piece) {
			size_t n = MIN(piece, len - at);
			_cleanup_free_ char *in = xmemdup(typed + at, n);
			_cleanup_free_ char *out = xcalloc(1, n + 1);
			size_t out_len;

			has_left = detach_filter(&detach, in, n, out, &out_len);
			memcpy(got + got_len, out, out_len);
			got_len += out_len;
		}
		if (has_left) {
			got[got_len++] = '!';
		} else if (detach_release(&detach)) {
			got[got_len++] = DETACH_FIRST;
		}
		got[got_len] = '\0';
		assert_string_equal(got, expected);
	}
}

static void test_other_keys_go_on(void **state)
{
	(void)state;
	assert_typed("ls\r\x03\x1b[A\xff", "ls\r\x03\x1b[A\xff");
	assert_typed(Q, Q);
	assert_typed(Q P, Q P);
}

static void test_the_key_leaves(void **state)
{
	(void)state;
	assert_typed(P Q, "!");
	assert_typed("ab" P Q "cd", "ab!");
	assert_typed(P P Q, P "!");
}

static void test_half_of_it_goes_on(void **state)
{
	(void)state;
	assert_typed(P, P);
	assert_typed(P "a" Q, P "a" Q);
	assert_typed(P P P "x", P P P "x");
}

static void test_what_was_released_is_no_half_any_more(void **state)
{
	struct detach detach = {.is_held = false};
	char out[2];
	size_t len;

	(void)state;
	assert_false(detach_filter(&detach, P, 1, out, &len));
	assert_int_equal(len, 0);
	assert_true(detach_release(&detach));
	assert_false(detach_release(&detach));
	assert_false(detach_filter(&detach, Q, 1, out, &len));
	assert_int_equal(len, 1);
	assert_memory_equal(out, Q, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_other_keys_go_on),
		cmocka_unit_test(test_the_key_leaves),
		cmocka_unit_test(test_half_of_it_goes_on),
		cmocka_unit_test(test_what_was_released_is_no_half_any_more),
	};

	return cmocka_run_group_tests_name("detach key", tests, NULL, NULL);
}
