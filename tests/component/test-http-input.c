#include "tests/lib/http_check.h"
#include "tests/lib/http_trial.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/xalloc.h"

/*
 * Bad input, made from the operation table: every field of every operation in every place where it
 * may be. A row or a field that is added is trial_tried without a line here, unless an operation
 * needs more than its required fields to be complete: see extras in http_trial.c.
 */

/* Longer values aren't built: what bounds them is the body's length. */
#define BUILT_MAX (1024 * 1024)

static struct http_world *h;
static const char *sandbox;

static int set_up(void **state)
{
	(void)state;
	h = http_world_new(NULL);
	sandbox = http_running(h, NULL);
	trial_tried = 0;
	trial_failed = 0;
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	http_world_free(h);
	return 0;
}

/* ---- trials that are common to bodies, queries, paths and headers ---- */

static char *member(const struct trial *t, const char *value)
{
	switch (t->place) {
	case API_IN_BODY:
		return xasprintf("\"%s\":%s", t->field->name, value);
	case API_IN_QUERY:
	case API_IN_RAW_QUERY:
		return xasprintf("%s=%s", t->field->name, value);
	case API_IN_HEADER:
		return xasprintf("%s: %s\r\n", t->field->header, value);
	case API_IN_PATH:
	default:
		return xstrdup(value);
	}
}

static void refused(struct trial *t, const char *what, const char *value, const char *says)
{
	_cleanup_free_ char *text = member(t, value);

	t->what = what;
	trial_expect_refused(t, text, says);
}

static void taken(struct trial *t, const char *what, const char *value)
{
	_cleanup_free_ char *text = member(t, value);

	t->what = what;
	trial_expect_taken(t, text);
}

static void try_int(struct trial *t)
{
	const int64_t bounds[] = {t->field->min, t->field->max};

	for (int i = 0; i < 2; i++) {
		_cleanup_free_ char *limit = xasprintf("%" PRId64, bounds[i]);
		_cleanup_free_ char *beyond = xasprintf("%" PRId64, bounds[i] + (i ? 1 : -1));

		taken(t, "at the bound", limit);
		refused(t, "beyond the bound", beyond, limit);
	}
	refused(t, "a fraction", "1.5", NULL);
	refused(t, "as a float", "1.0", NULL);
	refused(t, "with an exponent", "1e1", NULL);
	refused(t, "beyond 64 bits", "99999999999999999999", NULL);
	refused(t, "below 64 bits", "-99999999999999999999", NULL);
}

static void try_string(struct trial *t)
{
	const struct api_field *field = t->field;
	bool is_body = t->place == API_IN_BODY;
	_cleanup_free_ char *shortest = trial_text(field, field->min);
	_cleanup_free_ char *shortest_json = xasprintf("\"%s\"", shortest);

	taken(t, "shortest", is_body ? shortest_json : shortest);
	if (field->min > 0 && t->place != API_IN_PATH) {
		_cleanup_free_ char *text = trial_text(field, field->min - 1);
		_cleanup_free_ char *json = xasprintf("\"%s\"", text);

		refused(t, "too short", is_body ? json : text, NULL);
	}
	/* A longer request line is the protocol's business. */
	if (field->max < (is_body ? BUILT_MAX : 8192)) {
		_cleanup_free_ char *longest = trial_text(field, field->max);
		_cleanup_free_ char *longest_json = xasprintf("\"%s\"", longest);
		_cleanup_free_ char *beyond = trial_text(field, field->max + 1);
		_cleanup_free_ char *beyond_json = xasprintf("\"%s\"", beyond);
		_cleanup_free_ char *limit = xasprintf("%" PRId64, field->max);

		taken(t, "longest", is_body ? longest_json : longest);
		refused(t, "too long", is_body ? beyond_json : beyond,
			field->text == API_TEXT_MODE ? NULL : limit);
	}
}

static void try_enum(struct trial *t)
{
	bool is_body = t->place == API_IN_BODY;

	for (const char *const *choice = t->field->choices; *choice; choice++) {
		_cleanup_free_ char *json = xasprintf("\"%s\"", *choice);

		taken(t, "a choice", is_body ? json : *choice);
		refused(t, "no choice", is_body ? "\"no-such\"" : "no-such", *choice);
	}
	refused(t, "empty", is_body ? "\"\"" : "", t->field->choices[0]);
}

/* ---- bodies ---- */

static void try_members(struct trial *t)
{
	const struct api_field *field = t->field;
	const struct {
		const char *what;
		int64_t count;
		int64_t item;
		int64_t limit;
	} beyond[] = {
		{"too few", field->min - 1, 1, field->min},
		{"too many", field->max + 1, 1, field->max},
		{"too long", 1, field->item_max + 1, field->item_max},
	};
	const int64_t within[][2] = {
		{field->min, 1}, {field->max, 1}, {1, 0}, {1, field->item_max}};

	for (size_t i = 0; i < ARRAY_SIZE(beyond); i++) {
		if (beyond[i].count >= 0) {
			_cleanup_free_ char *text = trial_members(
				field, beyond[i].count, beyond[i].item);
			_cleanup_free_ char *limit = xasprintf("%" PRId64, beyond[i].limit);

			refused(t, beyond[i].what, text, limit);
		}
	}
	for (size_t i = 0; i < ARRAY_SIZE(within); i++) {
		_cleanup_free_ char *text = trial_members(field, within[i][0], within[i][1]);

		taken(t, "within bounds", text);
	}
	static const char *const bad[] = {"1", "null", "true", "[]", "{}", "1.5", "\"a\\u0000b\""};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		_cleanup_free_ char *text = xasprintf(
			field->type == API_MAP ? "{\"K\":%s}" : "[%s]", bad[i]);

		refused(t, "a bad member", text, NULL);
	}
}

static void try_map_keys(struct trial *t)
{
	_cleanup_free_ char *longest = trial_repeat('k', 128);
	_cleanup_free_ char *good = xasprintf("{\"%s\":\"\"}", longest);
	_cleanup_free_ char *beyond = xasprintf("{\"%sk\":\"\"}", longest);

	taken(t, "longest key", good);
	refused(t, "key too long", beyond, "128");
	refused(t, "empty key", "{\"\":\"\"}", NULL);
	refused(t, "key twice", "{\"K\":\"\",\"K\":\"\"}", NULL);
	refused(t, "key with a control character", "{\"a\x7f\":\"\"}", NULL);
	if (t->field->text == API_TEXT_ENV) {
		refused(t, "not a variable", "{\"a-b\":\"\"}", NULL);
		refused(t, "starts with a digit", "{\"1a\":\"\"}", NULL);
		refused(t, "not a variable", "{\"A=B\":\"\"}", NULL);
	}
}

static json_type json_type_of(enum api_type type)
{
	switch (type) {
	case API_INT:
		return json_type_int;
	case API_BOOL:
		return json_type_boolean;
	case API_STRINGS:
		return json_type_array;
	case API_MAP:
		return json_type_object;
	case API_STRING:
	case API_ENUM:
	default:
		return json_type_string;
	}
}

static void try_types(struct trial *t)
{
	static const struct {
		json_type type;
		const char *text;
	} values[] = {
		{json_type_int, "1"},
		{json_type_boolean, "true"},
		{json_type_double, "1.5"},
		{json_type_string, "\"a\""},
		{json_type_array, "[]"},
		{json_type_object, "{}"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
		if (values[i].type != json_type_of(t->field->type)) {
			refused(t, "wrong type", values[i].text, "must be");
		}
	}
	if (t->field->is_nullable) {
		taken(t, "null", "null");
	} else {
		refused(t, "null", "null", "null");
	}
}

/* Text that is no text: in strings of every type, since they all come as one. */
static void try_bad_text(struct trial *t)
{
	static const char *const bad[] = {"\xff", "\xc3", "\xc0\x80", "\xed\xa0\x80",
		"\xf5\x80\x80\x80", "a\x01z", "a\nz", "\\x", "\\u12", "\\ud800", "\\udc00x",
		"\\ud800\\u0041"};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		bool is_list = t->field->type == API_STRINGS;
		bool is_map = t->field->type == API_MAP;
		_cleanup_free_ char *text = xasprintf("%s\"%s\"%s",
			is_map    ? "{\"K\":"
			: is_list ? "["
				  : "",
			bad[i],
			is_map    ? "}"
			: is_list ? "]"
				  : "");

		refused(t, "bad text", text, NULL);
	}
	_cleanup_free_ char *nul = xasprintf("\"%s\":\"a?b\"", t->field->name);

	t->what = "NUL";
	*strchr(nul, '?') = '\0';
	trial_expect_refused_len(t, nul, strlen(t->field->name) + 8, NULL);
	if (t->field->text != API_TEXT_ANY || t->field->type != API_STRING) {
		refused(t, "escaped NUL", "\"a\\u0000b\"", NULL);
	}
}

static void try_names(struct trial *t)
{
	_cleanup_free_ char *value = trial_value(t->field);
	_cleanup_free_ char *twice = xasprintf(
		"\"%s\":%s,\"%s\":%s", t->field->name, value, t->field->name, value);
	_cleanup_free_ char *unknown = xasprintf("\"%s_\":%s", t->field->name, value);
	_cleanup_free_ char *loud = xasprintf(
		"\"%c%s\":%s", t->field->name[0] - 32, t->field->name + 1, value);
	const struct trial row = {h, sandbox, t->row, NULL, API_IN_BODY, "another case"};
	_cleanup_free_ char *name = xasprintf("%c%s\"", t->field->name[0] - 32, t->field->name + 1);

	t->what = "twice";
	trial_expect_refused(t, twice, "twice");
	t->what = "unknown";
	trial_expect_refused(t, unknown, "_\"");
	trial_expect_refused(&row, loud, name);
}

static void try_body(struct trial *t)
{
	t->place = API_IN_BODY;
	if (t->field->is_required && !(t->field->in & API_IN_HEADER)) {
		t->what = "missing";
		trial_expect_refused(t, "", "missing");
	}
	try_types(t);
	try_bad_text(t);
	try_names(t);
	switch (t->field->type) {
	case API_INT:
		try_int(t);
		break;
	case API_ENUM:
		try_enum(t);
		break;
	case API_MAP:
		try_members(t);
		try_map_keys(t);
		break;
	case API_STRINGS:
		try_members(t);
		break;
	case API_BOOL:
		taken(t, "true", "true");
		taken(t, "false", "false");
		break;
	case API_STRING:
	default:
		try_string(t);
	}
}

/* ---- queries ---- */

/* Of a STRINGS or MAP field, in a query. */
static char *many(const struct api_field *field, int64_t count)
{
	struct evbuffer *out = evbuffer_new();

	for (int64_t i = 0; i < count; i++) {
		if (field->type == API_MAP) {
			evbuffer_add_printf(out, "&%s.K%" PRId64 "=a", field->name, i);
		} else {
			evbuffer_add_printf(out, "&%s=a", field->name);
		}
	}
	evbuffer_add(out, "", 1);
	char *text = xstrdup((char *)evbuffer_pullup(out, -1));

	evbuffer_free(out);
	return text;
}

static void try_query_members(struct trial *t)
{
	const struct api_field *field = t->field;
	bool is_map = field->type == API_MAP;
	_cleanup_free_ char *full = many(field, MIN(field->max, (int64_t)1000));
	_cleanup_free_ char *beyond = many(field, field->max + 1);
	_cleanup_free_ char *limit = xasprintf("%" PRId64, field->max);
	static const char *const bad[] = {"%ff", "%00", "a%00b"};

	t->what = "as many as there may be";
	trial_expect_taken(t, full);
	t->what = "too many";
	trial_expect_refused(t, beyond, limit);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		_cleanup_free_ char *text = xasprintf(
			"%s%s=%s", field->name, is_map ? ".K" : "", bad[i]);

		t->what = "bad text";
		trial_expect_refused(t, text, NULL);
	}
	if (is_map) {
		static const char *const keys[] = {"", ".", ".%ff", ".%01"};
		_cleanup_free_ char *twice = xasprintf("%s.K=a&%s.K=a", field->name, field->name);

		t->what = "twice";
		trial_expect_refused(t, twice, "twice");
		for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
			_cleanup_free_ char *text = xasprintf("%s%s=a", field->name, keys[i]);

			t->what = "a bad key";
			trial_expect_refused(t, text, NULL);
		}
	}
}

static void try_query_text(struct trial *t)
{
	bool is_path = t->field->text == API_TEXT_PATH;
	_cleanup_free_ char *value = trial_value(t->field);
	size_t quotes = value[0] == '"';
	_cleanup_free_ char *plain = xasprintf(
		"%.*s", (int)(strlen(value) - 2 * quotes), value + quotes);
	_cleanup_free_ char *twice = xasprintf(
		"%s=%s&%s=%s", t->field->name, plain, t->field->name, plain);

	t->what = "twice";
	trial_expect_refused(t, twice, "twice");
	refused(t, "NUL", "a%00", NULL);
	refused(t, "a broken escape", "a%4", NULL);
	refused(t, "a broken escape", "%zz", NULL);
	if (is_path) {
		taken(t, "any byte", "%ff%01%7f");
	} else {
		refused(t, "wrong UTF-8", "%ff", NULL);
		refused(t, "wrong UTF-8", "%ed%a0%80", NULL);
	}
}

static void try_query(struct trial *t, enum api_in place)
{
	const struct trial row = {h, sandbox, t->row, NULL, place, "another case"};
	_cleanup_free_ char *loud = xasprintf("%c%s=1", t->field->name[0] - 32, t->field->name + 1);
	_cleanup_free_ char *name = xasprintf("%c%s\"", t->field->name[0] - 32, t->field->name + 1);

	t->place = place;
	trial_expect_refused(&row, loud, name);
	if (t->field->is_required) {
		t->what = "missing";
		trial_expect_refused(t, "", "missing");
	}
	if (t->field->type == API_MAP || t->field->type == API_STRINGS) {
		try_query_members(t);
		return;
	}
	try_query_text(t);
	switch (t->field->type) {
	case API_INT:
		try_int(t);
		refused(t, "empty", "", NULL);
		refused(t, "a word", "x", NULL);
		refused(t, "with a unit", "1s", NULL);
		refused(t, "with a plus", "%2B1", NULL);
		refused(t, "with a blank", "+1", NULL);
		refused(t, "hexadecimal", "0x1", NULL);
		break;
	case API_BOOL:
		taken(t, "true", "true");
		taken(t, "false", "false");
		refused(t, "empty", "", "true or false");
		refused(t, "a word", "maybe", "true or false");
		refused(t, "another case", "TRUE", "true or false");
		break;
	case API_ENUM:
		try_enum(t);
		break;
	case API_STRING:
	case API_STRINGS:
	case API_MAP:
	default:
		try_string(t);
	}
}

/* ---- paths and headers ---- */

static void try_path(struct trial *t)
{
	static const char *const bad[] = {"%00", "a%00b", "%ff", "%", "%4", "%zz", "%2e%2e", "..",
		".", "a%2fb", "%2f", "a%20b", "a;b", "~", "%c3%a4", "a%5cb", "a%0d%0ab"};

	t->place = API_IN_PATH;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		refused(t, bad[i], bad[i], NULL);
	}
	_cleanup_free_ char *huge = trial_repeat('a', 5000);

	refused(t, "over-long", huge, NULL);
	try_string(t);
}

static void try_header(struct trial *t)
{
	t->place = API_IN_HEADER;
	t->what = "missing";
	if (t->field->is_required) {
		trial_expect_refused(t, "", "missing");
	}
	try_string(t);
	if (t->field->text == API_TEXT_PATH) {
		taken(t, "any byte", "\xff\xc3");
	}
}

/* ---- the tests ---- */

static void each_field(unsigned places, void (*fn)(struct trial *t, unsigned place))
{
	for (enum api_op op = 0; op < API_OP_MAX; op++) {
		const struct api_row *row = api_row(op);

		for (const struct api_field *field = row->fields; field->name; field++) {
			for (unsigned place = 1; place <= API_IN_HEADER; place <<= 1) {
				struct trial t = {h, sandbox, row, field, place, ""};

				if (field->in & place & places) {
					fn(&t, place);
				}
			}
		}
	}
	assert_true(trial_tried > 0);
	print_message("%zu requests\n", trial_tried);
	assert_int_equal(trial_failed, 0);
}

static void try_one(struct trial *t, unsigned place)
{
	switch (place) {
	case API_IN_BODY:
		try_body(t);
		break;
	case API_IN_PATH:
		try_path(t);
		break;
	case API_IN_HEADER:
		try_header(t);
		break;
	default:
		try_query(t, place);
	}
}

static void test_every_field_in_a_body(void **state)
{
	(void)state;
	each_field(API_IN_BODY, try_one);
}

static void test_every_field_in_a_query(void **state)
{
	(void)state;
	each_field(API_IN_QUERY | API_IN_RAW_QUERY, try_one);
}

static void test_every_field_in_a_path_or_a_header(void **state)
{
	(void)state;
	each_field(API_IN_PATH | API_IN_HEADER, try_one);
}

static void test_idempotency_keys(void **state)
{
	_cleanup_free_ char *longest = trial_repeat('k', API_IDEMPOTENCY_MAX_BYTES);
	_cleanup_free_ char *beyond = trial_repeat('k', API_IDEMPOTENCY_MAX_BYTES + 1);
	const char *const bad[] = {"", "a\xc3\xa4", beyond};

	(void)state;
	for (enum api_op op = 0; op < API_OP_MAX; op++) {
		struct trial t = {h, sandbox, api_row(op), NULL, API_IN_HEADER, "Idempotency-Key"};

		if (!(t.row->flags & API_IDEMPOTENCY_KEY)) {
			continue;
		}
		for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
			_cleanup_free_ char *line = xasprintf("Idempotency-Key: %s\r\n", bad[i]);
			struct answer *a = trial_ask(&t, line, strlen(line));
			const char *problem = a->status == 400 ? http_check_error(a) : "not 400";

			if (problem || !strstr(a->body, "Idempotency-Key must")) {
				trial_fail(&t, a, problem ? problem : "it isn't named");
			}
			answer_free(a);
		}
		_cleanup_free_ char *line = xasprintf("Idempotency-Key: %s\r\n", longest);
		struct answer *a = trial_ask(&t, line, strlen(line));

		if (a->status >= 300) {
			trial_fail(&t, a, "it is within the documented bounds");
		}
		answer_free(a);
	}
	assert_int_equal(trial_failed, 0);
	assert_true(trial_tried > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
		T(test_every_field_in_a_body),
		T(test_every_field_in_a_query),
		T(test_every_field_in_a_path_or_a_header),
		T(test_idempotency_keys),
#undef T
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
