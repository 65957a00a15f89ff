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
		"/v1/v1/v1/sandboxes", "/v1sandboxes", "/v2/sandboxes", "/v1/./sandboxes",
		"/v1/sandboxes//exec", "/v1/sandboxes/a/exec/", "/V1/sandboxes",
		"/v1/sandboxes/a/b/c", "/v1/%73andboxes", "v1/sandboxes",
		"/v1/sandboxes/a/../b/exec", "/healthz/"};
	struct route route;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		assert_null(find("GET", paths[i], true, &route));
		assert_string_equal(route.allowed, "");
	}
}

/* Base URLs with and without "/v1" and "/", times clients that append it and that don't. */
static void test_every_form_of_the_base_url_is_understood(void **state)
{
	static const char *const bases[] = {
		"", "/", "//", "/v1", "/v1/", "//v1", "//v1//", "/v1/v1", "//v1//v1//"};
	char path[128];
	struct route route;

	(void)state;
	for (size_t i = 0; i < sizeof bases / sizeof bases[0]; i++) {
		snprintf(path, sizeof path, "%s/sandboxes/v1/exec", bases[i]);
		assert_int_equal(find("POST", path, false, &route)->op, API_EXEC);
		assert_string_equal(route.params[0].value, "v1");
		snprintf(path, sizeof path, "%s/healthz", bases[i]);
		assert_int_equal(find("GET", path, false, &route)->op, API_HEALTHZ);
		snprintf(path, sizeof path, "%s/admin/accounts", bases[i]);
		assert_null(find("GET", path, false, &route));
	}
}

static void test_targets_are_taken_apart(void **state)
{
	static const struct {
		const char *text;
		const char *path;
		const char *query;
		const char *authority;
	} good[] = {
		{"/", "/", NULL, NULL},
		{"/a?", "/a", "", NULL},
		{"/a?b?c", "/a", "b?c", NULL},
		{"//a/b?http://c", "//a/b", "http://c", NULL},
		{"HTTP://h:1/a?b", "/a", "b", "h:1"},
		{"https://u@h/", "/", NULL, "u@h"},
	};
	static const char *const bad[] = {"", "*", "a", "?a", "h:80", "http://h", "http://h?a",
		"http:/a", "ftp://h/a", "/a#b", "/a?b#c", "http://h#/a"};
	struct target target;
	struct err err;

	(void)state;
	for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
		assert_ok(target_parse(good[i].text, &target, &err), &err);
		assert_string_equal(target.path, good[i].path);
		assert_string_equal(
			target.query ? target.query : "-", good[i].query ? good[i].query : "-");
		assert_string_equal(target.authority ? target.authority : "-",
			good[i].authority ? good[i].authority : "-");
		target_fini(&target);
	}
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		assert_err(target_parse(bad[i], &target, &err), &err, ERR_INVALID);
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

static void test_long_parameters_are_refused(void **state)
{
	char path[ROUTE_VALUE_BYTES + 64];
	struct route route;
	struct err err;

	(void)state;
	snprintf(path, sizeof path, "/v1/sandboxes/%0*d", ROUTE_VALUE_BYTES - 1, 1);
	assert_non_null(find("GET", path, false, &route));
	snprintf(path, sizeof path, "/v1/sandboxes/%0*d", ROUTE_VALUE_BYTES, 1);
	assert_err(route_find("GET", path, false, &route, &err), &err, ERR_INVALID);
	assert_err_says(&err, "\"id\"");
	assert_err_says(&err, "at most 127 bytes");
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
		cmocka_unit_test(test_every_form_of_the_base_url_is_understood),
		cmocka_unit_test(test_targets_are_taken_apart),
		cmocka_unit_test(test_bad_escapes_in_a_path_are_refused),
		cmocka_unit_test(test_long_parameters_are_refused),
		cmocka_unit_test(test_other_methods_learn_what_is_allowed),
		cmocka_unit_test(test_admin_routes_are_unknown_elsewhere),
		cmocka_unit_test(test_queries_are_decoded),
		cmocka_unit_test(test_bad_escapes_in_a_query_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
