#include "tests/lib/cm.h"

#include <ctype.h>

#include "api/api.h"
#include "api/api_errors.h"
#include "api/api_schema.h"
#include "base/json.h"

static void test_rows_stand_at_their_place_and_differ(void **state)
{
	(void)state;
	for (enum api_op op = 0; op < API_OP_MAX; op++) {
		const struct api_row *row = api_row(op);

		assert_int_equal(row->op, op);
		assert_ptr_equal(api_row_by_name(row->name), row);
		for (enum api_op other = 0; other < op; other++) {
			assert_false(api_row(other)->method == row->method &&
				     strcmp(api_row(other)->path, row->path) == 0);
		}
	}
	assert_null(api_row_by_name("no.such"));
}

static void test_path_parameters_are_required_fields(void **state)
{
	(void)state;
	for (enum api_op op = 0; op < API_OP_MAX; op++) {
		const struct api_row *row = api_row(op);
		const struct api_field *id = api_row_field(row, "id");
		bool has_id = strstr(row->path, "{id}") != NULL;

		assert_int_equal(has_id, id && (id->in & API_IN_PATH) && id->is_required);
		assert_true(!(row->flags & API_SANDBOX) || has_id);
	}
}

static void test_admin_scope_and_admin_socket_go_together(void **state)
{
	(void)state;
	for (enum api_op op = 0; op < API_OP_MAX; op++) {
		const struct api_row *row = api_row(op);

		assert_int_equal(
			row->scope == API_SCOPE_ADMIN, (row->flags & API_ADMIN_SOCKET) != 0);
		assert_int_equal(
			row->scope == API_SCOPE_ADMIN, strncmp(row->path, "/v1/admin/", 10) == 0);
	}
}

/* A method that takes no body may not have body fields. */
static void test_reading_operations_take_no_body(void **state)
{
	(void)state;
	for (enum api_op op = 0; op < API_OP_MAX; op++) {
		const struct api_row *row = api_row(op);

		if (row->method == API_GET || row->method == API_DELETE) {
			assert_false(api_row_has_body(row));
		}
	}
}

static void test_conversations_have_a_subprotocol_and_are_asked_for_with_get(void **state)
{
	(void)state;
	for (enum api_op op = 0; op < API_OP_MAX; op++) {
		const struct api_row *row = api_row(op);
		bool is_socket = (row->flags & API_SOCKET) != 0;

		assert_int_equal(is_socket, row->subprotocol != NULL);
		assert_true(!is_socket || (row->method == API_GET && row->status == 101));
	}
}

static void test_fields_are_documented_in_one_style(void **state)
{
	(void)state;
	for (enum api_op op = 0; op < API_OP_MAX; op++) {
		for (const struct api_field *field = api_row(op)->fields; field->name; field++) {
			size_t len = strlen(field->doc);

			assert_true(len > 0 && field->doc[len - 1] != '.');
			assert_true(field->in != 0);
			assert_true(!(field->in & API_IN_HEADER) == !field->header);
			assert_true(!(field->type == API_ENUM) == !field->choices);
			for (const char *c = field->name; *c; c++) {
				assert_true(islower((unsigned char)*c) || *c == '_' ||
					    isdigit((unsigned char)*c));
			}
		}
	}
}

static void test_each_kind_of_error_has_a_type_and_status(void **state)
{
	static const struct {
		enum err_kind kind;
		const char *type;
		int status;
	} contract[] = {
		{ERR_INVALID, "invalid_request", 400},
		{ERR_UNAUTHENTICATED, "unauthenticated", 401},
		{ERR_CREDIT, "insufficient_credit", 402},
		{ERR_FORBIDDEN, "forbidden", 403},
		{ERR_NOT_FOUND, "not_found", 404},
		{ERR_CONFLICT, "conflict", 409},
		{ERR_ENDED, "sandbox_ended", 409},
		{ERR_TOO_LARGE, "too_large", 413},
		{ERR_QUOTA, "quota_exceeded", 429},
		{ERR_RATE, "rate_limited", 429},
		{ERR_INTERNAL, "internal", 500},
		{ERR_UNAVAILABLE, "unavailable", 503},
		{ERR_TIMEOUT, "timeout", 504},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(contract); i++) {
		const struct api_error *error = api_error_of(contract[i].kind);

		assert_string_equal(error->type, contract[i].type);
		assert_int_equal(error->status, contract[i].status);
		assert_int_equal(api_error_parse(error->type), contract[i].kind);
	}
	for (enum err_kind kind = ERR_NONE + 1; kind < ERR_KIND_MAX; kind++) {
		assert_true(api_error_of(kind)->status >= 400);
		assert_true(api_error_of(kind)->exit_code > 0);
	}
	assert_int_equal(api_error_parse("no_such_type"), ERR_INTERNAL);
}

static void test_guest_refusals_have_kinds(void **state)
{
	(void)state;
	assert_int_equal(api_error_of_guest("not_found"), ERR_NOT_FOUND);
	assert_int_equal(api_error_of_guest("is_directory"), ERR_INVALID);
	assert_int_equal(api_error_of_guest("permission"), ERR_FORBIDDEN);
	assert_int_equal(api_error_of_guest("unknown"), ERR_INTERNAL);
}

static void test_schema_says_what_the_checks_do(void **state)
{
	const struct api_row *row = api_row(API_SANDBOX_CREATE);
	_cleanup_json_ json_object *schema = api_schema_args(row, API_IN_BODY);
	json_object *properties = json_object_object_get(schema, "properties");
	json_object *minutes = json_object_object_get(properties, "timeout_minutes");

	(void)state;
	assert_false(
		json_object_get_boolean(json_object_object_get(schema, "additionalProperties")));
	assert_int_equal(json_object_get_int(json_object_object_get(minutes, "minimum")), 1);
	assert_int_equal(json_object_get_int(json_object_object_get(minutes, "maximum")),
		API_TIMEOUT_MINUTES_MAX);
	assert_true(json_object_get_boolean(
		json_object_object_get(json_object_object_get(properties, "wait"), "default")));
	for (const struct api_field *field = row->fields; field->name; field++) {
		assert_true(json_object_object_get_ex(properties, field->name, NULL));
	}
}

static void test_openapi_has_what_is_on_the_network(void **state)
{
	_cleanup_json_ json_object *doc = api_openapi("1");
	json_object *paths = json_object_object_get(doc, "paths");
	size_t len;
	struct err err;

	(void)state;
	for (enum api_op op = 0; op < API_OP_MAX; op++) {
		const struct api_row *row = api_row(op);

		assert_int_equal(json_object_object_get_ex(paths, row->path, NULL),
			!(row->flags & API_ADMIN_SOCKET));
	}
	const char *text = json_text(doc, &len);
	_cleanup_json_ json_object *again = json_parse(text, len, &err);

	assert_non_null(again);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rows_stand_at_their_place_and_differ),
		cmocka_unit_test(test_path_parameters_are_required_fields),
		cmocka_unit_test(test_admin_scope_and_admin_socket_go_together),
		cmocka_unit_test(test_reading_operations_take_no_body),
		cmocka_unit_test(test_conversations_have_a_subprotocol_and_are_asked_for_with_get),
		cmocka_unit_test(test_fields_are_documented_in_one_style),
		cmocka_unit_test(test_each_kind_of_error_has_a_type_and_status),
		cmocka_unit_test(test_guest_refusals_have_kinds),
		cmocka_unit_test(test_schema_says_what_the_checks_do),
		cmocka_unit_test(test_openapi_has_what_is_on_the_network),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
