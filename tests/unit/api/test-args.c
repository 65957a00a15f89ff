#include "tests/lib/cm.h"

#include <inttypes.h>
#include <stdlib.h>

#include "api/api_args.h"
#include "base/base64.h"
#include "base/xalloc.h"

/* Values larger than this aren't built: contents are bounded by the body before. */
#define BUILT_MAX (1024 * 1024)

/* ---- one field at a time, for each field of the table that a body can carry ---- */

typedef void (*field_fn)(const struct api_row *row, const struct api_field *field);

static void each_body_field(field_fn fn)
{
	for (enum api_op op = 0; op < API_OP_MAX; op++) {
		const struct api_row *row = api_row(op);

		for (const struct api_field *field = row->fields; field->name; field++) {
			if (field->in & API_IN_BODY) {
				fn(row, field);
			}
		}
	}
}

/* Takes @value. */
static int try_value(const struct api_row *row, const struct api_field *field, json_object *value,
	struct err *err)
{
	_cleanup_api_args_ struct api_args args;
	_cleanup_json_ json_object *body = json_object_new_object();

	*err = ERR_INIT;
	api_args_init(&args, row);
	json_object_object_add(body, field->name, value);
	return api_args_add_body(&args, body, err);
}

static void expect_ok(const struct api_row *row, const struct api_field *field, json_object *value)
{
	struct err err;

	if (try_value(row, field, value, &err) < 0) {
		fail_msg("%s: %s", row->name, err.msg);
	}
}

static void expect_refused(
	const struct api_row *row, const struct api_field *field, json_object *value)
{
	struct err err;

	if (try_value(row, field, value, &err) == 0) {
		fail_msg("%s: \"%s\" was accepted", row->name, field->name);
	}
	assert_int_equal(err.kind, ERR_INVALID);
	assert_err_says(&err, field->name);
}

static json_object *text_of(size_t len, char c)
{
	_cleanup_free_ char *text = xcalloc(len + 1, 1);

	memset(text, c, len);
	return json_object_new_string_len(text, (int)len);
}

/* Text that the field's form allows, of @len bytes as the field counts them. */
static json_object *good_text(const struct api_field *field, size_t len)
{
	if (field->text == API_TEXT_MODE) {
		return text_of(len, '7');
	}
	if (field->text != API_TEXT_BASE64) {
		return text_of(len, 'a');
	}
	size_t size = BASE64_ENCODED_BYTES(len);
	_cleanup_free_ char *bytes = xcalloc(len + 1, 1);
	_cleanup_free_ char *text = xcalloc(size + 1, 1);

	base64_encode(text, bytes, len);
	return json_object_new_string_len(text, (int)size);
}

static json_object *strings_of(int64_t count, int64_t item)
{
	json_object *array = json_object_new_array();

	for (int64_t i = 0; i < count; i++) {
		json_object_array_add(array, text_of((size_t)item, 'a'));
	}
	return array;
}

static json_object *map_of(int64_t count, int64_t item)
{
	json_object *map = json_object_new_object();

	for (int64_t i = 0; i < count; i++) {
		_cleanup_free_ char *key = xasprintf("K%" PRId64, i);

		json_object_object_add(map, key, text_of((size_t)item, 'a'));
	}
	return map;
}

static void check_bounds(const struct api_row *row, const struct api_field *field)
{
	switch (field->type) {
	case API_INT:
		expect_refused(row, field, json_object_new_int64(field->min - 1));
		expect_ok(row, field, json_object_new_int64(field->min));
		expect_ok(row, field, json_object_new_int64(field->max));
		expect_refused(row, field, json_object_new_int64(field->max + 1));
		break;
	case API_STRING:
		expect_ok(row, field, good_text(field, (size_t)field->min));
		if (field->min > 0) {
			expect_refused(row, field, good_text(field, (size_t)field->min - 1));
		}
		if (field->max < BUILT_MAX) {
			expect_ok(row, field, good_text(field, (size_t)field->max));
			expect_refused(row, field, good_text(field, (size_t)field->max + 1));
		}
		break;
	case API_STRINGS:
		expect_ok(row, field, strings_of(field->min, 1));
		expect_ok(row, field, strings_of(field->max, 1));
		expect_refused(row, field, strings_of(field->min - 1, 1));
		expect_refused(row, field, strings_of(field->max + 1, 1));
		expect_ok(row, field, strings_of(1, field->item_max));
		expect_refused(row, field, strings_of(1, field->item_max + 1));
		break;
	case API_MAP:
		expect_ok(row, field, map_of(0, 0));
		expect_ok(row, field, map_of(field->max, 1));
		expect_refused(row, field, map_of(field->max + 1, 1));
		expect_ok(row, field, map_of(1, field->item_max));
		expect_refused(row, field, map_of(1, field->item_max + 1));
		break;
	case API_ENUM:
		for (const char *const *choice = field->choices; *choice; choice++) {
			expect_ok(row, field, json_object_new_string(*choice));
		}
		expect_refused(row, field, json_object_new_string("no-such-choice"));
		expect_refused(row, field, json_object_new_string(""));
		break;
	case API_BOOL:
		expect_ok(row, field, json_object_new_boolean(true));
		expect_ok(row, field, json_object_new_boolean(false));
		break;
	}
}

static void test_each_field_holds_its_bounds(void **state)
{
	(void)state;
	each_body_field(check_bounds);
}

static void check_null(const struct api_row *row, const struct api_field *field)
{
	if (field->is_nullable) {
		expect_ok(row, field, NULL);
	} else {
		expect_refused(row, field, NULL);
	}
}

static void test_null_is_refused_unless_documented(void **state)
{
	(void)state;
	each_body_field(check_null);
}

static void check_types(const struct api_row *row, const struct api_field *field)
{
	enum api_type type = field->type;

	if (type != API_INT) {
		expect_refused(row, field, json_object_new_int(1));
	}
	if (type != API_BOOL) {
		expect_refused(row, field, json_object_new_boolean(true));
	}
	if (type != API_STRING && type != API_ENUM) {
		expect_refused(row, field, json_object_new_string("1"));
	}
	if (type != API_STRINGS) {
		expect_refused(row, field, json_object_new_array());
	}
	if (type != API_MAP) {
		expect_refused(row, field, json_object_new_object());
	}
	expect_refused(row, field, json_object_new_double(1.5));
}

static void test_wrong_types_are_refused(void **state)
{
	(void)state;
	each_body_field(check_types);
}

/* ---- single cases ---- */

static int add_json(struct api_args *args, enum api_op op, const char *json, struct err *err)
{
	_cleanup_json_ json_object *body = json_parse(json, strlen(json), err);

	*err = ERR_INIT;
	api_args_init(args, api_row(op));
	assert_non_null(body);
	return api_args_add_body(args, body, err);
}

static void expect_message(enum api_op op, const char *json, const char *message)
{
	_cleanup_api_args_ struct api_args args;
	struct err err;

	assert_int_equal(add_json(&args, op, json, &err), -1);
	assert_string_equal(err.msg, message);
}

static void test_messages_name_field_problem_and_limit(void **state)
{
	(void)state;
	expect_message(API_SANDBOX_CREATE, "{\"timeout_minutes\":0}",
		"\"timeout_minutes\" must be between 1 and 525600, not 0");
	expect_message(API_SANDBOX_CREATE, "{\"timeout_minutes\":1.5}",
		"\"timeout_minutes\" must be a whole number, not a number with a fraction");
	expect_message(API_SANDBOX_CREATE, "{\"timeout_minutes\":18446744073709551616}",
		"\"timeout_minutes\" must be between 1 and 525600, not 18446744073709551615");
	expect_message(
		API_SANDBOX_CREATE, "{\"wait\":null}", "\"wait\" must be true or false, not null");
	expect_message(API_SANDBOX_CREATE, "{\"network\":\"all\"}",
		"\"network\" must be one of none, egress");
	expect_message(API_SANDBOX_CREATE, "{\"name\":\"\"}", "\"name\" must not be empty");
	expect_message(API_SANDBOX_CREATE, "{\"env\":{\"A\":1}}",
		"\"env.A\" must be a string, not a whole number");
	expect_message(API_SANDBOX_CREATE, "{\"env\":{\"1A\":\"\"}}",
		"names in \"env\" must consist of letters, digits and \"_\" and not start with a "
		"digit");
	expect_message(
		API_EXEC, "{\"args\":[\"ls\",null]}", "\"args\"[1] must be a string, not null");
	expect_message(API_EXEC, "{\"command\":\"a\\u0000b\"}",
		"\"command\" must not contain a NUL character");
	expect_message(API_EXEC, "{\"stdin_base64\":\"YQ\"}",
		"\"stdin_base64\" must be base64 with padding");
	expect_message(API_FILE_WRITE, "{\"mode\":\"0888\"}",
		"\"mode\" must be an octal number in quotes, such as \"0644\"");
}

static void test_unknown_fields_are_refused_by_name(void **state)
{
	(void)state;
	expect_message(API_EXEC, "{\"command\":\"ls\",\"detach\":true}",
		"exec does not take the field \"detach\"");
	expect_message(API_SANDBOX_CREATE, "{\"id\":\"sb_1\"}",
		"sandbox.create does not take the field \"id\"");
	/* What stands in the path has no place in the body. */
	expect_message(API_EXEC, "{\"id\":\"x\"}", "exec does not take the field \"id\"");
	expect_message(
		API_EXEC, "{\"<b>\xc3\xa4 x\":1}", "exec does not take the field \"<b>???x\"");
}

static void test_body_must_be_an_object(void **state)
{
	(void)state;
	expect_message(API_EXEC, "[1]", "the body must be a JSON object, not an array");
	expect_message(API_EXEC, "7", "the body must be a JSON object, not a whole number");
}

static int add_query(
	struct api_args *args, const char *name, const char *value, bool is_raw, struct err *err)
{
	return api_args_add_query(args, name, value, strlen(value), is_raw, err);
}

static void test_query_repeats_lists_and_dots_objects(void **state)
{
	_cleanup_api_args_ struct api_args args;
	struct err err;

	(void)state;
	api_args_init(&args, api_row(API_EXEC));
	assert_ok(add_query(&args, "args", "ls", true, &err), &err);
	assert_ok(add_query(&args, "args", "-l", true, &err), &err);
	assert_ok(add_query(&args, "env.PATH", "/bin", true, &err), &err);
	assert_ok(add_query(&args, "timeout_ms", "5", true, &err), &err);
	assert_ok(api_args_add_path(&args, "id", "sb_1", &err), &err);
	assert_ok(api_args_finish(&args, &err), &err);

	char **list = api_args_strv(&args, "args");
	char **env = api_args_strv(&args, "env");

	assert_string_equal(list[0], "ls");
	assert_string_equal(list[1], "-l");
	assert_null(list[2]);
	assert_string_equal(env[0], "PATH=/bin");
	assert_null(env[1]);
	assert_int_equal(api_args_int(&args, "timeout_ms"), 5);
	strv_free(list);
	strv_free(env);
}

static void test_query_is_checked_like_a_body(void **state)
{
	static const struct {
		enum api_op op;
		const char *name;
		const char *value;
		const char *says;
	} cases[] = {
		{API_SANDBOX_LIST, "limit", "0", "between 1 and 1000"},
		{API_SANDBOX_LIST, "limit", "1001", "between 1 and 1000"},
		{API_SANDBOX_LIST, "limit", "", "between 1 and 1000"},
		{API_SANDBOX_LIST, "limit", "+5", "between 1 and 1000"},
		{API_SANDBOX_LIST, "limit", "5x", "between 1 and 1000"},
		{API_SANDBOX_LIST, "limit", "99999999999999999999", "between 1 and 1000"},
		{API_SANDBOX_LIST, "status", "gone", "one of provisioning"},
		{API_SANDBOX_LIST, "nonsense", "1", "query parameter \"nonsense\""},
		{API_SANDBOX_LIST, "metadata", "1", "query parameter \"metadata\""},
		{API_SANDBOX_CREATE, "size", "tiny", "query parameter \"size\""},
		{API_FILE_READ, "list", "maybe", "true or false"},
		{API_FILE_READ, "offset", "-1", "between 0"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_api_args_ struct api_args args;
		struct err err;

		api_args_init(&args, api_row(cases[i].op));
		assert_err(add_query(&args, cases[i].name, cases[i].value, false, &err), &err,
			ERR_INVALID);
		assert_err_says(&err, cases[i].says);
	}
}

static void test_raw_query_fields_need_a_raw_body(void **state)
{
	_cleanup_api_args_ struct api_args args;
	struct err err;

	(void)state;
	api_args_init(&args, api_row(API_EXEC));
	assert_err(add_query(&args, "command", "ls", false, &err), &err, ERR_INVALID);
	assert_ok(add_query(&args, "command", "ls", true, &err), &err);
}

static void test_a_value_given_twice_is_refused(void **state)
{
	_cleanup_api_args_ struct api_args args;
	struct err err;

	(void)state;
	assert_ok(add_json(&args, API_FILE_WRITE, "{\"path\":\"a\"}", &err), &err);
	assert_err(add_query(&args, "path", "b", false, &err), &err, ERR_INVALID);
	assert_err_says(&err, "\"path\" is given twice");

	_cleanup_api_args_ struct api_args list;

	api_args_init(&list, api_row(API_SANDBOX_LIST));
	assert_ok(add_query(&list, "metadata.a", "1", false, &err), &err);
	assert_err(add_query(&list, "metadata.a", "1", false, &err), &err, ERR_INVALID);
	assert_err_says(&err, "\"metadata.a\" is given twice");
}

static void test_repeated_parameters_stop_at_the_limit(void **state)
{
	_cleanup_api_args_ struct api_args args;
	struct err err = ERR_INIT;
	unsigned taken = 0;

	(void)state;
	api_args_init(&args, api_row(API_EXEC));
	while (taken < 2 * API_ARGS_MAX && add_query(&args, "args", "x", true, &err) == 0) {
		taken++;
	}
	assert_int_equal(taken, API_ARGS_MAX);
	assert_err_says(&err, "between 1 and 1024 members, not 1025");
}

static void test_finish_misses_what_is_required_and_adds_defaults(void **state)
{
	_cleanup_api_args_ struct api_args args;
	_cleanup_api_args_ struct api_args list;
	struct err err;

	(void)state;
	api_args_init(&args, api_row(API_SANDBOX_EXTEND));
	assert_ok(api_args_add_path(&args, "id", "x", &err), &err);
	assert_err(api_args_finish(&args, &err), &err, ERR_INVALID);
	assert_string_equal(err.msg, "\"minutes\" is missing");

	api_args_init(&list, api_row(API_SANDBOX_LIST));
	assert_ok(api_args_finish(&list, &err), &err);
	assert_int_equal(api_args_int(&list, "limit"), 100);
	assert_string_equal(api_args_text(&list, "status"), "live");
	assert_false(api_args_has(&list, "cursor"));
}

static void test_header_stands_in_for_a_missing_value_only(void **state)
{
	_cleanup_api_args_ struct api_args args;
	const struct api_field *field = api_row_field(api_row(API_FILE_READ), "path");
	struct err err;

	(void)state;
	api_args_init(&args, api_row(API_FILE_READ));
	assert_ok(add_query(&args, "path", "query", false, &err), &err);
	assert_ok(api_args_add_header(&args, field, "header", &err), &err);
	assert_string_equal(api_args_text(&args, "path"), "query");

	_cleanup_api_args_ struct api_args other;

	api_args_init(&other, api_row(API_FILE_READ));
	assert_ok(api_args_add_header(&other, field, "header", &err), &err);
	assert_string_equal(api_args_text(&other, "path"), "header");
}

static void test_text_with_nul_keeps_its_length(void **state)
{
	_cleanup_api_args_ struct api_args args;
	struct err err;
	size_t len;

	(void)state;
	assert_ok(add_json(&args, API_FILE_WRITE, "{\"content\":\"a\\u0000b\"}", &err), &err);
	assert_memory_equal(api_args_bytes(&args, "content", &len), "a\0b", 3);
	assert_int_equal(len, 3);
}

static void test_paths_may_hold_any_byte_but_nul(void **state)
{
	_cleanup_api_args_ struct api_args args;
	_cleanup_api_args_ struct api_args other;
	struct err err;

	(void)state;
	api_args_init(&args, api_row(API_FILE_READ));
	assert_ok(api_args_add_query(&args, "path", "\xff\xfe", 2, false, &err), &err);
	api_args_init(&other, api_row(API_FILE_READ));
	assert_err(api_args_add_query(&other, "path", "a\0b", 3, false, &err), &err, ERR_INVALID);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_field_holds_its_bounds),
		cmocka_unit_test(test_null_is_refused_unless_documented),
		cmocka_unit_test(test_wrong_types_are_refused),
		cmocka_unit_test(test_messages_name_field_problem_and_limit),
		cmocka_unit_test(test_unknown_fields_are_refused_by_name),
		cmocka_unit_test(test_body_must_be_an_object),
		cmocka_unit_test(test_query_repeats_lists_and_dots_objects),
		cmocka_unit_test(test_query_is_checked_like_a_body),
		cmocka_unit_test(test_raw_query_fields_need_a_raw_body),
		cmocka_unit_test(test_a_value_given_twice_is_refused),
		cmocka_unit_test(test_repeated_parameters_stop_at_the_limit),
		cmocka_unit_test(test_finish_misses_what_is_required_and_adds_defaults),
		cmocka_unit_test(test_header_stands_in_for_a_missing_value_only),
		cmocka_unit_test(test_text_with_nul_keeps_its_length),
		cmocka_unit_test(test_paths_may_hold_any_byte_but_nul),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
