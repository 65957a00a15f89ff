#include "tests/lib/cm.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/parse.h"
#include "base/xalloc.h"
#include "daemon/config.h"
#include "daemon/config_table.h"

static char path[] = "/tmp/paddock-config-XXXXXX";

static int make_file(void **state)
{
	(void)state;
	int fd = mkstemp(path);
	return fd < 0 ? -1 : close(fd);
}

static int drop_file(void **state)
{
	(void)state;
	return unlink(path);
}

static int read_text(struct config *config, const char *text, struct err *err)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	fputs(text, f);
	fclose(f);
	return config_read_file(config, path, err);
}

/* Reading @text fails, and the message says all of @says (comma-separated). */
static void refuse(const char *text, const char *says)
{
	struct config config;
	struct err err;

	config_init(&config);
	assert_err(read_text(&config, text, &err), &err, ERR_INVALID);
	_cleanup_free_ char *words = xstrdup(says);
	for (char *word = strtok(words, ","); word; word = strtok(NULL, ",")) {
		assert_err_says(&err, word);
	}
	config_fini(&config);
}

static void test_the_defaults_are_complete_and_fit_together(void **state)
{
	struct config config;
	struct err err;

	(void)state;
	config_init(&config);
	assert_ok(config_finish(&config, &err), &err);
	assert_string_equal(config.listen, "127.0.0.1:8470");
	assert_string_equal(config.admin_socket, "/var/lib/paddock/admin.sock");
	assert_string_equal(config.run_dir, "/var/lib/paddock/run");
	assert_int_equal(config.sandboxes, 20);
	assert_int_equal(config.default_network, CONFIG_NETWORK_EGRESS);
	const struct config_size *small = config_find_size(&config, "small");
	assert_non_null(small);
	assert_int_equal(small->vcpus, 2);
	assert_int_equal(small->memory_mb, 4096);
	assert_int_equal(small->disk_gb, 40);
	assert_null(config_find_size(&config, "tiny"));
	config_fini(&config);
}

static void test_nothing_goes_on_with_the_next_line(void **state)
{
	struct config config;
	struct err err;
	char text[400];

	(void)state;
	config_init(&config);
	snprintf(text, sizeof text, "[server]\nallowed_hosts = a %0*d b\n", 300, 0);
	assert_ok(read_text(&config, text, &err), &err);
	assert_int_equal(strv_length(config.allowed_hosts), 3);
	assert_int_equal(strlen(config.allowed_hosts[1]), 300);
	assert_ok(read_text(&config, "\n  \r\n[server]\n  # c\n\t; c\nallowed_hosts = a\n", &err),
		&err);
	config_fini(&config);
	refuse("[server]\nallowed_hosts = a\n\tb\n", ":3:,key = value");
}

static void test_a_file_overrides_and_later_sources_override_it(void **state)
{
	char *environment[] = {
		(char *)"PADDOCK_LIMITS_SANDBOXES=6", (char *)"PADDOCK_OTHER=x", NULL};
	struct config config;
	struct err err;

	(void)state;
	config_init(&config);
	assert_ok(read_text(&config,
			  "[limits]\nsandboxes = 5\ndisk_gb = 7 ; a comment\n"
			  "[sizes]\ntiny = 1/256/2\nsmall = 1/512/3\n",
			  &err),
		&err);
	assert_int_equal(config.sandboxes, 5);
	assert_int_equal(config.disk_gb, 7);
	assert_int_equal(config_find_size(&config, "tiny")->memory_mb, 256);
	assert_int_equal(config_find_size(&config, "small")->memory_mb, 512);
	assert_ok(config_read_environment(&config, environment, &err), &err);
	assert_int_equal(config.sandboxes, 6);
	assert_ok(config_set(&config, "limits.sandboxes=7", &err), &err);
	assert_int_equal(config.sandboxes, 7);
	config_fini(&config);
}

static void test_lists_split_and_lines_add_up(void **state)
{
	struct config config;
	struct err err;

	(void)state;
	config_init(&config);
	assert_ok(read_text(&config,
			  "[network]\nallow_private = 10.0.0.0/8:80, 10.1.0.1/32:443\n"
			  "[guest]\nenv = A=1, 2 and 3\nenv = B=x=y\n",
			  &err),
		&err);
	assert_int_equal(strv_length(config.allow_private), 2);
	assert_string_equal(config.allow_private[1], "10.1.0.1/32:443");
	assert_int_equal(strv_length(config.guest_env), 2);
	assert_string_equal(config.guest_env[0], "A=1, 2 and 3");
	assert_string_equal(config.guest_env[1], "B=x=y");
	/* A later source replaces the lines of an earlier one. */
	assert_ok(config_set(&config, "guest.env=C=3", &err), &err);
	assert_int_equal(strv_length(config.guest_env), 1);
	assert_ok(config_finish(&config, &err), &err);
	config_fini(&config);
}

static void test_errors_name_file_line_key_and_limit(void **state)
{
	(void)state;
	refuse("[limits]\nsandboxes = 0\n",
		"/tmp/paddock-config-,:2,limits.sandboxes,from 1 to 100000");
	refuse("[limits]\n\nsandboxes = many\n", ":3,limits.sandboxes,whole number");
	refuse("[limits]\nsandbox = 1\n", ":2,limits.sandbox,no such setting");
	refuse("[nothing]\nx = 1\n", "nothing.x,no such setting");
	refuse("[hypervisor]\nacceleration = fast\n", "hypervisor.acceleration,auto,kvm,tcg");
	refuse("[server]\nallow_insecure = perhaps\n", "server.allow_insecure,yes or no");
	refuse("[sizes]\ntiny = 1/100/2\n", "sizes.tiny,128-16777216");
	refuse("[sizes]\nTiny = 1/256/2\n", "sizes.Tiny,lower-case");
	refuse("[sizes]\ntiny = 1/256/2/3\n", "sizes.tiny");
	refuse("just words\n", ":1,neither a [section]");
	refuse("[limits\n", ":1,[name]");
	refuse("sandboxes = 1\n", ":1,\"sandboxes\",before any [section]");
	refuse("[limits]\n= 1\n", ":2,key = value");
	refuse("[limits]\nsandboxes = 1\n\nsandboxes = 1\n", ":4,limits.sandboxes,given twice");
	refuse("[sizes]\ntiny = 1/256/2\ntiny = 1/256/2\n", ":3,sizes.tiny,given twice");
	refuse("[network]\nallow_private = 10.0.0.0/8:80 10.0.0.0:x\n",
		":2,network.allow_private,10.0.0.0:x");
	/* Not a continuation of the line before. */
	refuse("[limits]\nsandboxes = 5\n  [log]\nsandboxes = 5\n", ":4,log.sandboxes");
	refuse("[log]\nlevel = \xff\n", "UTF-8");
}

static void test_only_the_first_fault_is_told(void **state)
{
	(void)state;
	refuse("[limits]\nsandboxes = 0\ndisk_gb = 0\n", ":2,limits.sandboxes");
}

static void test_bounds_are_inclusive(void **state)
{
	struct config config;
	struct err err;

	(void)state;
	config_init(&config);
	for (size_t i = 0; i < config_row_count; i++) {
		const struct config_row *row = &config_rows[i];

		if (row->type != CONFIG_INT) {
			continue;
		}
		for (int side = 0; side < 2; side++) {
			int64_t bound = side ? row->max : row->min;
			_cleanup_free_ char *good = xasprintf(
				"%s.%s=%lld", row->section, row->key, (long long)bound);
			_cleanup_free_ char *bad = xasprintf("%s.%s=%lld", row->section, row->key,
				(long long)bound + (side ? 1 : -1));

			assert_ok(config_set(&config, good, &err), &err);
			assert_err(config_set(&config, bad, &err), &err, ERR_INVALID);
			assert_err_says(&err, row->key);
		}
	}
	config_fini(&config);
}

/* ---- every key ---- */

#define MANY 8

/* What each check refuses; NULL-terminated. A row with a check that isn't here fails the test. */
static const struct {
	config_check_fn check;
	const char *bad[MANY];
} bad_texts[] = {
	{config_check_listen,
		{"", "8470", ":8470", "127.0.0.1:", "127.0.0.1:65536", "localhost:80", "::1:80"}},
	{config_check_host, {"https://a", "a:80", "a/b", "[::1", "[a]", "ä"}},
	{config_check_origin, {"a", "ftp://a", "https://", "https://a/", "null"}},
	{config_check_path, {"", "relative", "./a", "~/a"}},
	{config_check_optional_path, {"relative", "./a", "~/a"}},
	{config_check_uri, {"", "qemu", "qemu: //system", "Embed"}},
	{config_check_group, {"", "a b", "a/b"}},
	{config_check_name, {"", "A", "-a", "a-", "a_b", "a/b"}},
	{config_check_private, {"10.0.0.0", "10.0.0.0/8", "10.0.0.0/33:80", "a:80", "127.0.0.1:80",
				       "169.254.169.254:80", "10.0.0.1:0"}},
	{config_check_uid, {"", "0", "999", "2147483648", "AUTO", "1000.0"}},
	{config_check_env, {"novalue", "=x", "1A=x", "A-B=x", "A B=x"}},
};

static const char *const bad_numbers[] = {
	"", "x", "1x", "1.5", "0x10", "+1", "1e3", "-", "99999999999999999999", NULL};
static const char *const bad_bools[] = {"", "2", "maybe", "y", "YES PLEASE", NULL};
static const char *const bad_words[] = {"", "nonsense", "0", NULL};
/* For every type. */
static const char *const bad_anywhere[] = {"a\tb\x01", "\x7f", "/\xff", "/a ; b", NULL};

static const char *const *bad_of(const struct config_row *row)
{
	switch (row->type) {
	case CONFIG_INT:
		return bad_numbers;
	case CONFIG_BOOL:
		return bad_bools;
	case CONFIG_ENUM:
		return bad_words;
	case CONFIG_STRING:
	case CONFIG_LIST:
	case CONFIG_LINES:
	default:
		break;
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad_texts); i++) {
		if (row->check == bad_texts[i].check) {
			return bad_texts[i].bad;
		}
	}
	fail_msg("%s.%s: nothing is known to be bad for it", row->section, row->key);
	return NULL;
}

static char *variable_of(const struct config_row *row, const char *value)
{
	char *text = xasprintf("PADDOCK_%s_%s=%s", row->section, row->key, value);

	for (char *c = text; *c != '='; c++) {
		*c = (char)(*c >= 'a' && *c <= 'z' ? *c - 'a' + 'A' : *c);
	}
	return text;
}

/* By --set, environment and file, each naming its place and the key. */
static void refuse_everywhere(const struct config_row *row, const char *value)
{
	_cleanup_free_ char *key = xasprintf("%s.%s: ", row->section, row->key);
	_cleanup_free_ char *flag = xasprintf("%s.%s=%s", row->section, row->key, value);
	_cleanup_free_ char *variable = variable_of(row, value);
	_cleanup_free_ char *file = xasprintf("# \n[%s]\n%s = %s\n", row->section, row->key, value);
	char *environment[] = {variable, NULL};
	struct config config;
	struct err err = ERR_INIT;

	config_init(&config);
	if (config_set(&config, flag, &err) == 0) {
		fail_msg("--set %s is taken", flag);
	}
	assert_int_equal(err.kind, ERR_INVALID);
	assert_err_says(&err, key);
	assert_err(config_read_environment(&config, environment, &err), &err, ERR_INVALID);
	assert_err_says(&err, key);
	*strchr(variable, '=') = '\0';
	assert_err_says(&err, variable);
	/* In a file a blank at an end is none, and a comment no value. */
	if (!strstr(value, " ;")) {
		assert_err(read_text(&config, file, &err), &err, ERR_INVALID);
		assert_err_says(&err, path);
		if (utf8_is_valid(value, strlen(value))) {
			assert_err_says(&err, key);
			assert_err_says(&err, ":3: ");
		}
	}
	config_fini(&config);
}

static void test_bad_values_of_every_key_are_refused_with_their_place(void **state)
{
	_cleanup_free_ char *longest = xcalloc(1, 4098);

	(void)state;
	memset(longest, '1', 4097);
	for (size_t i = 0; i < config_row_count; i++) {
		const struct config_row *row = &config_rows[i];

		for (const char *const *bad = bad_of(row); *bad; bad++) {
			refuse_everywhere(row, *bad);
		}
		for (const char *const *bad = bad_anywhere; *bad; bad++) {
			refuse_everywhere(row, *bad);
		}
		refuse_everywhere(row, longest);
	}
}

static void test_unknown_keys_are_refused_everywhere(void **state)
{
	static const char *const sections[] = {"limits", "server", "nothing"};
	struct config config;
	struct err err;

	(void)state;
	config_init(&config);
	for (size_t i = 0; i < ARRAY_SIZE(sections); i++) {
		struct config_row row = {.section = sections[i], .key = "sandbox"};
		_cleanup_free_ char *flag = xasprintf("%s.sandbox=1", sections[i]);
		_cleanup_free_ char *variable = variable_of(&row, "1");
		char *environment[] = {variable, NULL};

		assert_err(config_set(&config, flag, &err), &err, ERR_INVALID);
		assert_err_says(&err, "there is no such setting");
		/* PADDOCK_NOTHING_SANDBOX may be anybody's. */
		if (strcmp(sections[i], "nothing") != 0) {
			assert_err(config_read_environment(&config, environment, &err), &err,
				ERR_INVALID);
			assert_err_says(&err, "_SANDBOX");
		} else {
			assert_ok(config_read_environment(&config, environment, &err), &err);
		}
	}
	config_fini(&config);
}

static void test_long_lines_are_read_whole(void **state)
{
	_cleanup_free_ char *value = xcalloc(1, 4001);
	struct config config;
	struct err err;

	(void)state;
	memset(value, 'x', 4000);
	_cleanup_free_ char *text = xasprintf(
		"[guest]\r\nenv = A=%s\r\n\tenv=B=;c ; comment", value);

	config_init(&config);
	assert_ok(read_text(&config, text, &err), &err);
	assert_int_equal(strlen(config.guest_env[0]), 4002);
	assert_string_equal(config.guest_env[1], "B=;c");
	config_fini(&config);
}

static void test_sizes_come_from_the_environment_too(void **state)
{
	char *environment[] = {(char *)"PADDOCK_SIZES_BIG_ONE=4/512/9", NULL};
	struct config config;
	struct err err;

	(void)state;
	config_init(&config);
	assert_ok(config_read_environment(&config, environment, &err), &err);
	assert_int_equal(config_find_size(&config, "big-one")->disk_gb, 9);
	config_fini(&config);
}

static void finish_refuses(const char *assignment, const char *says)
{
	struct config config;
	struct err err;

	config_init(&config);
	assert_ok(config_set(&config, assignment, &err), &err);
	assert_err(config_finish(&config, &err), &err, ERR_INVALID);
	assert_err_says(&err, says);
	config_fini(&config);
}

static void test_settings_must_fit_together(void **state)
{
	(void)state;
	finish_refuses("server.listen=0.0.0.0:80", "server.allow_insecure");
	finish_refuses("server.listen=[::]:80", "server.allow_insecure");
	finish_refuses("limits.exec_timeout_max_ms=1000", "exec_timeout_max_ms");
	finish_refuses("limits.exec_output_max_bytes=1024", "exec_output_max_bytes");
	finish_refuses("limits.max_lifetime=5", "limits.max_lifetime");
	finish_refuses("limits.bodies_total_bytes=65536", "limits.bodies_total_bytes");
}

static void test_what_is_dumped_reads_back_as_the_same(void **state)
{
	struct config first;
	struct config second;
	struct err err;
	char *text = NULL;
	char *again = NULL;
	size_t len;

	(void)state;
	config_init(&first);
	assert_ok(config_set(&first, "guest.env=A=1", &err), &err);
	assert_ok(config_set(&first, "limits.vcpus=3", &err), &err);
	assert_ok(config_set(&first, "sizes.tiny=1/256/2", &err), &err);
	assert_ok(config_finish(&first, &err), &err);
	FILE *f = open_memstream(&text, &len);
	config_dump(&first, f);
	fclose(f);

	config_init(&second);
	assert_ok(read_text(&second, text, &err), &err);
	assert_ok(config_finish(&second, &err), &err);
	f = open_memstream(&again, &len);
	config_dump(&second, f);
	fclose(f);
	assert_string_equal(text, again);
	free(text);
	free(again);
	config_fini(&first);
	config_fini(&second);
}

static void test_assignments_must_look_like_one(void **state)
{
	static const char *const bad[] = {"", "limits", "limits.sandboxes", "sandboxes=1", "a=b.c"};
	struct config config;
	struct err err;

	(void)state;
	config_init(&config);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		assert_err(config_set(&config, bad[i], &err), &err, ERR_INVALID);
	}
	config_fini(&config);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_defaults_are_complete_and_fit_together),
		cmocka_unit_test(test_nothing_goes_on_with_the_next_line),
		cmocka_unit_test(test_a_file_overrides_and_later_sources_override_it),
		cmocka_unit_test(test_lists_split_and_lines_add_up),
		cmocka_unit_test(test_errors_name_file_line_key_and_limit),
		cmocka_unit_test(test_only_the_first_fault_is_told),
		cmocka_unit_test(test_bounds_are_inclusive),
		cmocka_unit_test(test_bad_values_of_every_key_are_refused_with_their_place),
		cmocka_unit_test(test_unknown_keys_are_refused_everywhere),
		cmocka_unit_test(test_long_lines_are_read_whole),
		cmocka_unit_test(test_sizes_come_from_the_environment_too),
		cmocka_unit_test(test_settings_must_fit_together),
		cmocka_unit_test(test_what_is_dumped_reads_back_as_the_same),
		cmocka_unit_test(test_assignments_must_look_like_one),
	};

	return cmocka_run_group_tests(tests, make_file, drop_file);
}
