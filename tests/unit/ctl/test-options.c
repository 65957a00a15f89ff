#include "tests/lib/cm.h"

#include "ctl/ctl.h"
#include "tests/unit/ctl/capture.h"

static const char *const choices[] = {"one", "two", NULL};

/* A field of each kind, and one that is in the path alone. */
static const struct api_field fields[] = {
	{"id", API_STRING, API_IN_PATH, .doc = "Never an option"},
	{"text_field", API_STRING, API_IN_BODY, .doc = "A text"},
	{"count", API_INT, API_IN_BODY, .doc = "A number"},
	{"flag", API_BOOL, API_IN_BODY, .doc = "Yes or no"},
	{"choice", API_ENUM, API_IN_QUERY, .choices = choices, .doc = "One of two"},
	{"item", API_STRINGS, API_IN_BODY, .doc = "Several"},
	{"map", API_MAP, API_IN_BODY, .doc = "Pairs"},
	{NULL},
};

static const struct api_row row = {.name = "test", .fields = fields};

static const char *const own[] = {"quick", "depth=", NULL};

struct reading {
	struct ctl ctl;
	struct ctl_options options;
	struct capture said;
	int rc;
};

/* Reads the words up to NULL. */
static void read_words(struct reading *r, bool stop_early, const char *const *words)
{
	int argc = 0;

	memset(&r->ctl, 0, sizeof r->ctl);
	while (words[argc]) {
		argc++;
	}
	capture_start(&r->said, stderr);
	r->rc = ctl_options_read(&r->ctl, &r->options, &row, own, stop_early, argc, (char **)words);
	capture_end(&r->said);
}

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void assert_values(const char *const *words, const char *expected)
{
	struct reading r;

	read_words(&r, false, words);
	assert_string_equal(r.said.text, "");
	assert_int_equal(r.rc, 0);
	assert_string_equal(json_text(r.options.values, NULL), expected);
	ctl_options_fini(&r.options);
}

static void assert_refused(const char *const *words, const char *saying)
{
	struct reading r;

	read_words(&r, false, words);
	assert_int_equal(r.rc, -1);
	if (!strstr(r.said.text, saying)) {
		fail_msg("\"%s\" doesn't say \"%s\"", r.said.text, saying);
	}
	ctl_options_fini(&r.options);
}

static void assert_positionals(bool stop_early, const char *const *words, const char *expected)
{
	struct reading r;
	char joined[256] = "";

	read_words(&r, stop_early, words);
	assert_string_equal(r.said.text, "");
	assert_int_equal(r.rc, 0);
	for (size_t i = 0; i < r.options.positional_count; i++) {
		size_t n = strlen(joined);

		snprintf(joined + n, sizeof joined - n, "[%s]", r.options.positionals[i]);
	}
	assert_string_equal(joined, expected);
	ctl_options_fini(&r.options);
}

/* ---- values ---- */

static void test_each_kind_of_field_has_its_type(void **state)
{
	(void)state;
	assert_values(WORDS("--text-field", "a b"), "{\"text_field\":\"a b\"}");
	assert_values(WORDS("--count", "12"), "{\"count\":12}");
	assert_values(WORDS("--count", "-3"), "{\"count\":-3}");
	assert_values(WORDS("--flag"), "{\"flag\":true}");
	assert_values(WORDS("--choice", "three"), "{\"choice\":\"three\"}");
	assert_values(
		WORDS("--item", "a", "--item", "b", "--item="), "{\"item\":[\"a\",\"b\",\"\"]}");
	assert_values(WORDS("--map", "a=1", "--map=b=c=d", "--map", "e="),
		"{\"map\":{\"a\":\"1\",\"b\":\"c=d\",\"e\":\"\"}}");
}

static void test_a_value_may_follow_an_equals_sign(void **state)
{
	(void)state;
	assert_values(WORDS("--text-field=a=b"), "{\"text_field\":\"a=b\"}");
	assert_values(WORDS("--text-field="), "{\"text_field\":\"\"}");
	assert_values(WORDS("--count=0"), "{\"count\":0}");
}

static void test_a_value_may_look_like_an_option(void **state)
{
	(void)state;
	assert_values(WORDS("--text-field", "--flag"), "{\"text_field\":\"--flag\"}");
	assert_values(WORDS("--text-field", "--"), "{\"text_field\":\"--\"}");
	assert_values(WORDS("--text-field", "--json"), "{\"text_field\":\"--json\"}");
}

static void test_the_last_of_equal_options_counts(void **state)
{
	(void)state;
	assert_values(WORDS("--count", "1", "--count", "2"), "{\"count\":2}");
	assert_values(WORDS("--flag", "--no-flag"), "{\"flag\":false}");
	assert_values(WORDS("--map", "a=1", "--map", "a=2"), "{\"map\":{\"a\":\"2\"}}");
}

static void test_a_flag_has_a_no_and_may_be_spelled_out(void **state)
{
	(void)state;
	assert_values(WORDS("--no-flag"), "{\"flag\":false}");
	assert_values(WORDS("--flag=no"), "{\"flag\":false}");
	assert_values(WORDS("--flag=on"), "{\"flag\":true}");
	assert_refused(WORDS("--flag=maybe"), "--flag: ");
	assert_refused(WORDS("--no-flag=yes"), "--no-flag takes no value");
	assert_refused(WORDS("--no-count"), "no option --no-count");
	/* It takes no word away. */
	assert_positionals(false, WORDS("--flag", "no"), "[no]");
}

static void test_what_is_wrong_is_named_as_it_was_written(void **state)
{
	(void)state;
	assert_refused(WORDS("--count", "x"), "--count: must be a whole number");
	assert_refused(WORDS("--count="), "--count: ");
	assert_refused(WORDS("--count", "1.5"), "--count: ");
	assert_refused(WORDS("--count", "99999999999999999999"), "--count: ");
	assert_refused(WORDS("--map", "a"), "--map: must look like NAME=VALUE");
	assert_refused(WORDS("--map", "=a"), "--map: ");
	assert_refused(WORDS("--text-field"), "--text-field needs a value");
	assert_refused(WORDS("--nonsense=1"), "there is no option --nonsense\n");
	assert_refused(WORDS("--=1"), "there is no option --\n");
	assert_refused(WORDS("--text_field", "a"), "there is no option --text_field");
	assert_refused(WORDS("--text", "a"), "there is no option --text\n");
	/* The path has it. */
	assert_refused(WORDS("--id", "a"), "there is no option --id");
}

static void test_a_verbs_own_options_stand_apart(void **state)
{
	struct reading r;

	(void)state;
	read_words(&r, false, WORDS("--quick", "x", "--depth", "3"));
	assert_int_equal(r.rc, 0);
	assert_string_equal(r.options.own[0], "");
	assert_string_equal(r.options.own[1], "3");
	assert_string_equal(json_text(r.options.values, NULL), "{}");
	assert_string_equal(r.options.positionals[0], "x");
	ctl_options_fini(&r.options);
	read_words(&r, false, WORDS("--depth=4"));
	assert_null(r.options.own[0]);
	assert_string_equal(r.options.own[1], "4");
	ctl_options_fini(&r.options);
	assert_refused(WORDS("--depth"), "--depth needs a value");
	assert_refused(WORDS("--quick=1"), "--quick takes no value");
}

/* ---- positional arguments ---- */

static void test_options_and_arguments_mix(void **state)
{
	(void)state;
	assert_positionals(false, WORDS("a", "--flag", "b", "--count", "1", "c"), "[a][b][c]");
	assert_positionals(false, WORDS("-", "-x", ""), "[-][-x][]");
	assert_positionals(false, WORDS("a", "--", "--flag", "--", "b"), "[a][--flag][--][b]");
}

static void test_a_command_keeps_its_options(void **state)
{
	(void)state;
	assert_positionals(true, WORDS("sb", "ls", "--flag", "--json", "--", "-l"),
		"[sb][ls][--flag][--json][--][-l]");
	assert_positionals(true, WORDS("--flag", "sb", "--count", "1", "ls", "--nonsense"),
		"[sb][ls][--nonsense]");
	assert_positionals(true, WORDS("sb", "--", "--flag", "--", "x"), "[sb][--flag][--][x]");
	assert_positionals(true, WORDS("sb", "-x", "--json"), "[sb][-x][--json]");
}

static bool wants_json(bool stop_early, const char *const *words)
{
	struct reading r;

	read_words(&r, stop_early, words);
	assert_int_equal(r.rc, 0);
	ctl_options_fini(&r.options);
	return r.ctl.is_json;
}

static void test_json_may_stand_anywhere_before_a_command(void **state)
{
	(void)state;
	assert_true(wants_json(false, WORDS("a", "b", "c", "--json")));
	assert_true(wants_json(false, WORDS("--json", "a")));
	assert_true(wants_json(true, WORDS("sb", "--json", "ls")));
	assert_false(wants_json(true, WORDS("sb", "--quick", "ls", "--json")));
	assert_false(wants_json(true, WORDS("sb", "ls", "--json")));
	assert_false(wants_json(false, WORDS("a", "--", "--json")));
	assert_false(wants_json(false, WORDS("--text-field", "--json")));
	assert_refused(WORDS("--json=1"), "--json takes no value");
	assert_refused(WORDS("--no-json"), "no option");
}

static void test_too_many_arguments_are_refused(void **state)
{
	const char *words[CTL_POSITIONALS_MAX + 2];
	struct reading r;

	(void)state;
	for (size_t i = 0; i < CTL_POSITIONALS_MAX + 1; i++) {
		words[i] = "x";
	}
	words[CTL_POSITIONALS_MAX + 1] = NULL;
	read_words(&r, false, words);
	assert_int_equal(r.rc, -1);
	ctl_options_fini(&r.options);
	words[CTL_POSITIONALS_MAX] = NULL;
	read_words(&r, false, words);
	assert_int_equal(r.rc, 0);
	assert_int_equal(r.options.positional_count, CTL_POSITIONALS_MAX);
	ctl_options_fini(&r.options);
}

static void test_the_number_of_arguments_is_held_to(void **state)
{
	const struct ctl_verb verb = {.noun = "key",
		.name = "create",
		.usage = "ACCOUNT [NAME]",
		.op = API_KEY_CREATE,
		.doc = "Makes a key"};
	struct ctl_options options = {.positional_count = 1};
	struct capture said;

	(void)state;
	assert_int_equal(ctl_expect(&verb, &options, 1, 2), 0);
	assert_int_equal(ctl_expect(&verb, &options, 0, 1), 0);
	capture_start(&said, stderr);
	int too_few = ctl_expect(&verb, &options, 2, 2);
	int too_many = ctl_expect(&verb, &options, 0, 0);
	capture_end(&said);
	assert_int_equal(too_few, -1);
	assert_int_equal(too_many, -1);
	assert_non_null(strstr(said.text,
		"usage: paddockctl key create [OPTIONS] ACCOUNT [NAME]\nMakes a key.\n"));
}

static void test_usage_tells_the_options_and_not_the_path(void **state)
{
	const struct ctl_verb verb = {.name = "extend",
		.usage = "ID MINUTES",
		.op = API_SANDBOX_EXTEND,
		.doc = "Moves it"};
	struct capture said;

	(void)state;
	capture_start(&said, stdout);
	ctl_usage(&verb, stdout);
	capture_end(&said);
	assert_non_null(strstr(said.text, "\n  --minutes "));
	assert_null(strstr(said.text, "--id"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_kind_of_field_has_its_type),
		cmocka_unit_test(test_a_value_may_follow_an_equals_sign),
		cmocka_unit_test(test_a_value_may_look_like_an_option),
		cmocka_unit_test(test_the_last_of_equal_options_counts),
		cmocka_unit_test(test_a_flag_has_a_no_and_may_be_spelled_out),
		cmocka_unit_test(test_what_is_wrong_is_named_as_it_was_written),
		cmocka_unit_test(test_a_verbs_own_options_stand_apart),
		cmocka_unit_test(test_options_and_arguments_mix),
		cmocka_unit_test(test_a_command_keeps_its_options),
		cmocka_unit_test(test_json_may_stand_anywhere_before_a_command),
		cmocka_unit_test(test_too_many_arguments_are_refused),
		cmocka_unit_test(test_the_number_of_arguments_is_held_to),
		cmocka_unit_test(test_usage_tells_the_options_and_not_the_path),
	};

	return cmocka_run_group_tests_name("ctl options", tests, NULL, NULL);
}
