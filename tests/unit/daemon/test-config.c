#include "tests/lib/cm.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/fs.h"
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

static void test_lines_are_whole_or_refused(void **state)
{
	struct config config;
	struct err err;
	char text[400];

	(void)state;
	config_init(&config);
	/* As long as a line may be, with and without its end. */
	for (int over = 0; over < 2; over++) {
		snprintf(text, sizeof text, "[server]\nallowed_hosts = a %0*d%s", 180, 0,
			over ? "" : "\n");
		assert_ok(read_text(&config, text, &err), &err);
		assert_int_equal(strlen(config.allowed_hosts[1]), 180);
	}
	config_fini(&config);
	snprintf(text, sizeof text, "[server]\nallowed_hosts = a %0*d\n", 181, 0);
	refuse(text, ":2:,198 bytes,199");
	/* What follows byte 199 would be a list of its own. */
	snprintf(text, sizeof text, "[server]\nallowed_hosts = %0*d b\n", 183, 0);
	refuse(text, ":2:,198 bytes");
	refuse("[server]\nallowed_hosts = a\n\tb\n", ":3:,begin with a blank");
	config_init(&config);
	assert_ok(read_text(&config, "\n  \r\n[server]\n  # c\n\t; c\nallowed_hosts = a\n", &err),
		&err);
	config_fini(&config);
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
	refuse("just words\n", ":1");
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
	finish_refuses("state.dir=relative", "state.dir");
	finish_refuses("guest.env=1A=x", "guest.env");
	finish_refuses("guest.env=A-B=x", "guest.env");
	finish_refuses("guest.env=novalue", "guest.env");
	finish_refuses("guest.ca_file=ca.pem", "guest.ca_file");
	finish_refuses("log.level=loud", "log.level");
	finish_refuses("limits.exec_timeout_max_ms=1000", "exec_timeout_max_ms");
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
		cmocka_unit_test(test_lines_are_whole_or_refused),
		cmocka_unit_test(test_a_file_overrides_and_later_sources_override_it),
		cmocka_unit_test(test_lists_split_and_lines_add_up),
		cmocka_unit_test(test_errors_name_file_line_key_and_limit),
		cmocka_unit_test(test_only_the_first_fault_is_told),
		cmocka_unit_test(test_bounds_are_inclusive),
		cmocka_unit_test(test_settings_must_fit_together),
		cmocka_unit_test(test_what_is_dumped_reads_back_as_the_same),
		cmocka_unit_test(test_assignments_must_look_like_one),
	};

	return cmocka_run_group_tests(tests, make_file, drop_file);
}
