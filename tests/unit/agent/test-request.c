#include "tests/lib/cm.h"

#include <stdlib.h>
#include <string.h>

#include "agent/request.h"
#include "base/xalloc.h"
#include "proto/frame.h"
#include "proto/limits.h"
#include "proto/msg.h"

static void test_fields_can_be_read_back(void **state)
{
	struct request request = REQUEST_INIT;
	struct err err;
	char *args[] = {"ls", "", "-l", NULL};
	struct msg_field f;

	(void)state;
	request_texts(&request, MSG_ARG, "args", args, 10);
	request_text(&request, MSG_CWD, "cwd", NULL, 10);
	request_u64(&request, MSG_TIMEOUT_MS, 5);
	request_u32(&request, MSG_LIMIT, 6);
	assert_int_equal(request_check(&request, &err), 0);
	struct msg_reader r = {.buf = request.buf, .len = request.len};

	for (int i = 0; i < 3; i++) {
		assert_true(msg_next(&r, &f));
		assert_int_equal(f.tag, MSG_ARG);
		assert_int_equal(f.len, strlen(args[i]));
	}
	assert_true(msg_next(&r, &f));
	assert_true(msg_u64(&r, &f) == 5);
	assert_true(msg_next(&r, &f));
	assert_int_equal(msg_u32(&r, &f), 6);
	assert_false(msg_next(&r, &f));
	assert_false(r.bad);
	request_fini(&request);
}

static void test_sum_is_limited_to_the_byte_and_names_the_field(void **state)
{
	_cleanup_free_ char *text = xcalloc(1, PROTO_REQUEST_MAX_BYTES + 1);
	size_t fits = PROTO_REQUEST_MAX_BYTES - MSG_FIELD_HEADER_BYTES;
	struct err err;

	(void)state;
	memset(text, 'a', fits);
	struct request request = REQUEST_INIT;

	request_text(&request, MSG_COMMAND, "command", text, SIZE_MAX);
	assert_int_equal(request_check(&request, &err), 0);
	assert_int_equal(request.len, PROTO_REQUEST_MAX_BYTES);
	request_fini(&request);

	text[fits] = 'a';
	request = REQUEST_INIT;
	request_text(&request, MSG_COMMAND, "command", text, SIZE_MAX);
	assert_int_equal(request_check(&request, &err), -1);
	assert_int_equal(err.kind, ERR_TOO_LARGE);
	assert_non_null(strstr(err.msg, "command"));
	request_fini(&request);
}

static void test_first_error_stays(void **state)
{
	struct request request = REQUEST_INIT;
	char *args[] = {"a", "b", NULL};
	char *env[] = {"NOVALUE", NULL};
	struct err err;

	(void)state;
	request_text(&request, MSG_CWD, "cwd", "/abc", 3);
	request_texts(&request, MSG_ARG, "args", args, 1);
	request_env(&request, env);
	assert_int_equal(request_check(&request, &err), -1);
	assert_int_equal(err.kind, ERR_TOO_LARGE);
	assert_non_null(strstr(err.msg, "cwd"));
	request_fini(&request);
}

static void test_env_needs_a_name(void **state)
{
	static const struct {
		char *entry;
		enum err_kind kind;
	} cases[] = {{"A=b", ERR_NONE}, {"A=", ERR_NONE}, {"A", ERR_INVALID}, {"=b", ERR_INVALID},
		{"", ERR_INVALID}};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct request request = REQUEST_INIT;
		char *env[] = {cases[i].entry, NULL};
		struct err err = ERR_INIT;

		request_env(&request, env);
		request_check(&request, &err);
		assert_int_equal(err.kind, cases[i].kind);
		request_fini(&request);
	}
}

static void test_too_many_entries_are_refused(void **state)
{
	struct request request = REQUEST_INIT;
	char *args[] = {"a", "b", NULL};
	struct err err;

	(void)state;
	request_texts(&request, MSG_ARG, "args", args, 2);
	assert_int_equal(request_check(&request, &err), 0);
	request_texts(&request, MSG_ARG, "args", args, 1);
	assert_int_equal(request_check(&request, &err), -1);
	assert_int_equal(err.kind, ERR_TOO_LARGE);
	assert_non_null(strstr(err.msg, "args"));
	request_fini(&request);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fields_can_be_read_back),
		cmocka_unit_test(test_sum_is_limited_to_the_byte_and_names_the_field),
		cmocka_unit_test(test_first_error_stays),
		cmocka_unit_test(test_env_needs_a_name),
		cmocka_unit_test(test_too_many_entries_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
