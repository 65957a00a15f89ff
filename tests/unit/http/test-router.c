#include "tests/lib/cm.h"

#include <stdio.h>

#include "http/router.h"

static const struct api_row *find(
	const char *method, const char *path, bool is_admin, struct route *route)
{
	struct err err;

	assert_ok(route_find(method, path, is_admin, route, &err), &err);
	return route->row;
}

static void test_each_row_is_found_by_its_template(void **state)
{
	struct route route;

	(void)state;
	for (enum api_op op = 0; op < API_OP_MAX; op++) {
		const struct api_row *row = api_row(op);

		assert_ptr_equal(
			find(api_method_name(row->method), row->path + 0, true, &route), row);
	}
}

static void test_parameters_are_decoded(void **state)
{
	struct route route;

	(void)state;
	assert_int_equal(find("POST", "/v1/sandboxes/my%2Dbox/exec", false, &route)->op, API_EXEC);
	assert_int_equal(route.param_count, 1);
	assert_string_equal(route.params[0].name, "id");
	assert_string_equal(route.params[0].value, "my-box");
}

static void test_odd_paths_match_nothing(void **state)
{
	static const char *const paths[] = {"", "/", "//", "/v1", "/v1/", "/v1/sandboxes/",
		"/v1//sandboxes", "/v1/sandboxes//exec", "/v1/sandboxes/a/exec/", "/V1/sandboxes",
		"/v1/sandboxes/a/b/c", "/v1/%73andboxes", "v1/sandboxes",
		"/v1/sandboxes/a/../b/exec", "/healthz/"};
	struct route route;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		assert_null(find("GET", paths[i], true, &route));
		assert_string_equal(route.allowed, "");
	}
}

static void test_bad_escapes_in_a_path_are_refused(void **state)
{
	static const char *const paths[] = {
		"/v1/sandboxes/%", "/v1/sandboxes/%4", "/v1/sandboxes/%zz", "/v1/sandboxes/a%00b"};
	struct route route;
	struct err err;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		assert_err(route_find("GET", paths[i], false, &route, &err), &err, ERR_INVALID);
	}
}

static void test_long_parameters_match_nothing(void **state)
{
	char path[ROUTE_VALUE_BYTES + 64];
	struct route route;

	(void)state;
	snprintf(path, sizeof path, "/v1/sandboxes/%0*d", ROUTE_VALUE_BYTES - 1, 1);
	assert_non_null(find("GET", path, false, &route));
	snprintf(path, sizeof path, "/v1/sandboxes/%0*d", ROUTE_VALUE_BYTES, 1);
	assert_null(find("GET", path, false, &route));
}

static void test_other_methods_learn_what_is_allowed(void **state)
{
	struct route route;

	(void)state;
	assert_null(find("PUT", "/v1/sandboxes/a", false, &route));
	assert_string_equal(route.allowed, "GET, HEAD, DELETE");
	assert_null(find("", "/v1/sandboxes", false, &route));
	assert_string_equal(route.allowed, "POST, GET, HEAD");
	assert_non_null(find("HEAD", "/v1/sandboxes", false, &route));
}

static void test_admin_routes_are_unknown_elsewhere(void **state)
{
	struct route route;

	(void)state;
	assert_null(find("GET", "/v1/admin/accounts", false, &route));
	assert_string_equal(route.allowed, "");
	assert_null(find("DELETE", "/v1/admin/accounts", false, &route));
	assert_string_equal(route.allowed, "");
	assert_non_null(find("GET", "/v1/admin/accounts", true, &route));
}

/* ---- queries ---- */

static int collect(void *arg, const char *name, const char *value, size_t len, struct err *err)
{
	char *text = arg;
	size_t used = strlen(text);

	(void)err;
	snprintf(text + used, 200 - used, "[%s=%.*s:%zu]", name, (int)len, value, len);
	return 0;
}

static const char *collected(const char *query)
{
	static char text[200];
	struct err err;

	text[0] = '\0';
	assert_ok(query_each(query, collect, text, &err), &err);
	return text;
}

static void test_queries_are_decoded(void **state)
{
	(void)state;
	assert_string_equal(collected(NULL), "");
	assert_string_equal(collected(""), "");
	assert_string_equal(collected("a=1&b=2"), "[a=1:1][b=2:1]");
	assert_string_equal(collected("a=x+y%2Bz%20%41"), "[a=x y+z A:7]");
	assert_string_equal(collected("a"), "[a=:0]");
	assert_string_equal(collected("&&a=&"), "[a=:0]");
	assert_string_equal(collected("a=b=c"), "[a=b=c:3]");
	assert_string_equal(collected("%61%26=1"), "[a&=1:1]");
	assert_string_equal(collected("a=%00"), "[a=:1]");
}

static void test_bad_escapes_in_a_query_are_refused(void **state)
{
	static const char *const queries[] = {"a=%", "a=%4", "a=1&b=%g1", "%=1", "a%00=1"};
	char text[200] = "";
	struct err err;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(queries); i++) {
		assert_err(query_each(queries[i], collect, text, &err), &err, ERR_INVALID);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_row_is_found_by_its_template),
		cmocka_unit_test(test_parameters_are_decoded),
		cmocka_unit_test(test_odd_paths_match_nothing),
		cmocka_unit_test(test_bad_escapes_in_a_path_are_refused),
		cmocka_unit_test(test_long_parameters_match_nothing),
		cmocka_unit_test(test_other_methods_learn_what_is_allowed),
		cmocka_unit_test(test_admin_routes_are_unknown_elsewhere),
		cmocka_unit_test(test_queries_are_decoded),
		cmocka_unit_test(test_bad_escapes_in_a_query_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
