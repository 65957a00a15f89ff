#include "tests/lib/cm.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/log.h"

static const char *quote(const char *text, size_t size)
{
	static char out[64];

	return log_quote(out, size, text, strlen(text));
}

static void test_quote_escapes_what_could_drive_a_terminal_or_a_parser(void **state)
{
	(void)state;
	assert_string_equal(quote("plain", 64), "\"plain\"");
	assert_string_equal(quote("a\"b\\c", 64), "\"a\\\"b\\\\c\"");
	assert_string_equal(quote("\x1b[2J\n", 64), "\"\\x1b[2J\\x0a\"");
	assert_string_equal(quote("gr\xc3\xbc\xc3\x9f", 64), "\"gr\xc3\xbc\xc3\x9f\"");
	assert_string_equal(quote("\xc2\x9b", 64), "\"\\xc2\\x9b\"");
	assert_string_equal(quote("\xff\xc3", 64), "\"\\xff\\xc3\"");
	assert_string_equal(quote("\xed\xa0\x80", 64), "\"\\xed\\xa0\\x80\"");
}

static void test_quote_shortens_within_its_size(void **state)
{
	(void)state;
	for (size_t size = 9; size < 20; size++) {
		const char *out = quote("0123456789012345678901234567890", size);

		assert_true(strlen(out) < size);
		assert_non_null(strstr(out, "\u2026\""));
	}
}

static void test_printable_keeps_quotes_and_stops_before_what_does_not_fit(void **state)
{
	char out[12];

	(void)state;
	assert_int_equal(log_printable(out, sizeof out, "a\"\\\x1b[m", 6), 6);
	assert_string_equal(out, "a\"\\\\x1b[m");
	assert_int_equal(log_printable(out, sizeof out, "0123456789\xc3\xa4", 12), 10);
	assert_string_equal(out, "0123456789");
	assert_int_equal(log_printable(out, sizeof out, "", 0), 0);
	assert_string_equal(out, "");
}

static void test_limit_lets_a_burst_through_and_counts_the_rest(void **state)
{
	struct log_limit limit = {0};
	unsigned suppressed = 99;
	int written = 0;

	(void)state;
	for (int i = 0; i < 100; i++) {
		written += log_limit_allows(&limit, 5000, &suppressed);
	}
	assert_int_equal(written, LOG_LIMIT_PER_SECOND);
	assert_true(log_limit_allows(&limit, 6000, &suppressed));
	assert_int_equal(suppressed, 100 - LOG_LIMIT_PER_SECOND);
}

/* What the call wrote to stderr. */
static const char *captured(void (*call)(void))
{
	static char text[4096];
	int fds[2];
	int old = dup(STDERR_FILENO);

	assert_int_equal(pipe(fds), 0);
	dup2(fds[1], STDERR_FILENO);
	call();
	dup2(old, STDERR_FILENO);
	close(old);
	close(fds[1]);
	ssize_t n = read(fds[0], text, sizeof text - 1);
	close(fds[0]);
	text[n > 0 ? n : 0] = '\0';
	return text;
}

static void log_three(void)
{
	struct err err;

	err_set(&err, ERR_QUOTA, "too \"many\"");
	log_info("sandbox started", "sb=%s ms=%d", "sb_1", 41);
	log_debug("not shown", "x=%d", 1);
	log_failure(LOG_LEVEL_WARN, "create failed", &err, "sb=%s", "sb\n2");
}

static void test_a_line_has_priority_message_and_fields(void **state)
{
	const char *text = captured(log_three);

	(void)state;
	assert_non_null(strstr(text, "<6>sandbox started sb=sb_1 ms=41\n"));
	assert_null(strstr(text, "not shown"));
	assert_non_null(strstr(text, "<4>create failed sb=sb 2 kind=quota at="));
	assert_non_null(strstr(text, "error=\"too \\\"many\\\"\"\n"));
}

static void log_inner_request(const char *id)
{
	LOG_REQUEST(id);

	log_info("c", "x=%d", 1);
	log_info("d", "rq=%s x=1", "rq_own");
}

static void log_requests(void)
{
	log_info("a", "x=%d", 1);
	{
		LOG_REQUEST("rq_outer");

		log_info("b", "x=%d", 1);
		log_inner_request("rq_inner");
		log_inner_request(log_request());
		log_info("e", "x=%d", 1);
	}
	assert_string_equal(log_request(), "");
	log_info("f", "x=%d", 1);
}

static void test_lines_carry_the_request_that_is_worked_on(void **state)
{
	(void)state;
	assert_string_equal(captured(log_requests), "<6>a x=1\n<6>b rq=rq_outer x=1\n"
						    "<6>c rq=rq_inner x=1\n<6>d rq=rq_own x=1\n"
						    "<6>c rq=rq_outer x=1\n<6>d rq=rq_own x=1\n"
						    "<6>e rq=rq_outer x=1\n<6>f x=1\n");
}

#define SECRET "0123456789abcdefghijklmnopqrstuvABCDEFGH"

static void log_keys(void)
{
	struct err err;
	char quoted[32];

	err_set(&err, ERR_INVALID, "there is no parameter \"pdk_" SECRET "\", \"xpdk_" SECRET "\"");
	log_failure(LOG_LEVEL_WARN, "refused pdk_" SECRET, &err, "key=pdk_%s", SECRET);
	log_info("again", "pdk_%s=pdk_%s,pdk_ pdk_pdk_%s", SECRET, SECRET, SECRET);
	log_info("cut", "x=%s", log_quote(quoted, sizeof quoted, "pdk_" SECRET, 44));
	log_info("hint", "why=use \"Bearer pdk_\u2026\" or pdk_ alone");
}

static void test_keys_are_hidden_wherever_they_stand(void **state)
{
	const char *text = captured(log_keys);

	(void)state;
	assert_null(strstr(text, "012"));
	assert_null(strstr(text, "FGH"));
	assert_non_null(strstr(text, "<4>refused pdk_* key=pdk_* kind=invalid at="));
	assert_non_null(strstr(text, "parameter \\\"pdk_*\\\", \\\"xpdk_*\\\"\"\n"));
	assert_non_null(strstr(text, "<6>again pdk_*=pdk_*,pdk_ pdk_*\n"));
	assert_non_null(strstr(text, "<6>cut x=\"pdk_*\u2026\"\n"));
	assert_non_null(strstr(text, "why=use \"Bearer pdk_\u2026\" or pdk_ alone\n"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_quote_escapes_what_could_drive_a_terminal_or_a_parser),
		cmocka_unit_test(test_quote_shortens_within_its_size),
		cmocka_unit_test(test_printable_keeps_quotes_and_stops_before_what_does_not_fit),
		cmocka_unit_test(test_limit_lets_a_burst_through_and_counts_the_rest),
		cmocka_unit_test(test_a_line_has_priority_message_and_fields),
		cmocka_unit_test(test_lines_carry_the_request_that_is_worked_on),
		cmocka_unit_test(test_keys_are_hidden_wherever_they_stand),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
