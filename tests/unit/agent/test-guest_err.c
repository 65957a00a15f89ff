#include "tests/lib/cm.h"

#include <stdlib.h>
#include <string.h>

#include "agent/guest_err.h"
#include "proto/msg.h"

static void test_text_is_made_safe(void **state)
{
	static const struct {
		const char *in;
		size_t size;
		const char *out;
	} cases[] = {
		{"plain", 64, "plain"},
		{"", 64, ""},
		{"a\nb\tc\x7f", 64, "a?b?c?"},
		{"\x1b[31mred", 64, "?[31mred"},
		{"gr\xc3\xbc\xc3\x9f", 64, "gr\xc3\xbc\xc3\x9f"},
		/* C1 controls */
		{"a\xc2\x9b"
		 "31m",
			64, "a??31m"},
		/* not UTF-8: nothing beyond ASCII is kept */
		{"gr\xc3\xbc\xff", 64, "gr???"},
		/* cut at a character */
		{"abcd", 4, "abc"},
		{"ab\xc3\xbc", 4, "ab"},
		{"ab\xc3\xbc", 5, "ab\xc3\xbc"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char out[64];

		guest_text_copy(out, cases[i].size, cases[i].in, strlen(cases[i].in));
		assert_string_equal(out, cases[i].out);
	}
}

static void test_text_with_nul_does_not_end_early(void **state)
{
	char out[16];

	(void)state;
	guest_text_copy(out, sizeof out, "a\0b", 3);
	assert_string_equal(out, "a?b");
}

static void test_each_status_has_a_kind_and_a_text(void **state)
{
	struct err err;

	(void)state;
	for (uint32_t status = STATUS_OK + 1; status <= STATUS_LIMIT + 5; status++) {
		enum err_kind kind = status == STATUS_CANCELLED ? ERR_CANCELLED
				     : status == STATUS_BUSY    ? ERR_UNAVAILABLE
				     : status == STATUS_LIMIT   ? ERR_RATE
								: ERR_GUEST;

		assert_int_equal(guest_err_set(&err, status, ""), -1);
		assert_int_equal(err.kind, kind);
		assert_string_equal(err.msg, msg_status_name(status));
		guest_err_set(&err, status, "no such file");
		assert_string_equal(err.msg, "no such file");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_text_is_made_safe),
		cmocka_unit_test(test_text_with_nul_does_not_end_early),
		cmocka_unit_test(test_each_status_has_a_kind_and_a_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
