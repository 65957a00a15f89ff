#include "tests/lib/cm.h"
#include "netfilter/ruleset.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "netfilter/ranges.h"

/* Usage: test-ruleset GOLDEN_DIR. With PADDOCK_GOLDEN_WRITE=1 the files are written anew. */
static const char *golden_dir;

static void assert_golden(const char *name, const char *text)
{
	_cleanup_free_ char *expected = NULL;
	const char *write = getenv("PADDOCK_GOLDEN_WRITE");
	char path[512];
	struct err err;

	snprintf(path, sizeof path, "%s/%s", golden_dir, name);
	if (write && strcmp(write, "1") == 0) {
		assert_ok(fs_write_atomic(path, text, strlen(text), 0644, &err), &err);
	}
	assert_ok(fs_read(path, 65536, &expected, NULL, &err), &err);
	assert_string_equal(text, expected);
}

static char *text_of(const char *resolv_conf, char **allow_private)
{
	static const struct exceptions_bounds no_bounds;
	struct resolvers resolvers;
	struct exceptions exceptions;
	char table[RULESET_TABLE_BYTES];
	struct err err;

	resolvers_parse(resolv_conf, &resolvers);
	assert_ok(exceptions_parse(allow_private, &no_bounds, &exceptions, &err), &err);
	const struct ruleset ruleset = {
		.table = ruleset_table_name("0123456789abcdef", table),
		.uid_first = 300000,
		.uid_count = 1000,
		.resolvers = &resolvers,
		.exceptions = &exceptions,
	};
	return ruleset_text(&ruleset);
}

static void test_ruleset_without_resolvers_and_exceptions(void **state)
{
	_cleanup_free_ char *text = text_of("", NULL);

	(void)state;
	assert_golden("plain.nft", text);
}

static void test_ruleset_with_resolvers_and_exceptions(void **state)
{
	char *allow_private[] = {"10.1.2.0/24:8081", "[fd12:3::/32]:443", NULL};
	_cleanup_free_ char *text = text_of("nameserver 127.0.0.53\nnameserver 10.0.0.1\n"
					    "nameserver 2001:db8::53\nnameserver fe80::1%eth0\n",
		allow_private);

	(void)state;
	assert_golden("full.nft", text);
}

static void test_ruleset_covers_one_uid(void **state)
{
	static const struct resolvers no_resolvers;
	static const struct exceptions no_exceptions;
	const struct ruleset ruleset = {.table = "paddock_00",
		.uid_first = 4294967294,
		.uid_count = 1,
		.resolvers = &no_resolvers,
		.exceptions = &no_exceptions};
	_cleanup_free_ char *text = ruleset_text(&ruleset);

	(void)state;
	assert_non_null(strstr(text, "meta skuid 4294967294-4294967294 goto guests"));
}

static void test_ruleset_never_opens_before_it_refuses(void **state)
{
	char *allow_private[] = {"10.0.0.0/8:80", NULL};
	_cleanup_free_ char *text = text_of("nameserver 10.0.0.1\n", allow_private);
	const char *resolver = strstr(text, "ip daddr 10.0.0.1 ");
	const char *local = strstr(text, "fib daddr type");
	const char *never = strstr(text, "169.254.0.0/16");
	const char *exception = strstr(text, "tcp dport 80 accept");
	const char *private = strstr(text, "192.168.0.0/16");

	(void)state;
	assert_true(resolver && resolver < local && local < never && never < exception &&
		    exception < private);
}

/* nft refuses a set with overlaps, and a table that doesn't load protects nobody. */
static void test_ranges_of_one_class_do_not_overlap(void **state)
{
	(void)state;
	for (size_t i = 0; i < ranges_count; i++) {
		struct ip_prefix a = range_prefix(&ranges[i]);

		for (size_t k = i + 1; k < ranges_count; k++) {
			struct ip_prefix b = range_prefix(&ranges[k]);

			if (ranges[i].class == ranges[k].class && ip_overlap(&a, &b)) {
				fail_msg("%s and %s", ranges[i].prefix, ranges[k].prefix);
			}
		}
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ruleset_without_resolvers_and_exceptions),
		cmocka_unit_test(test_ruleset_with_resolvers_and_exceptions),
		cmocka_unit_test(test_ruleset_covers_one_uid),
		cmocka_unit_test(test_ruleset_never_opens_before_it_refuses),
		cmocka_unit_test(test_ranges_of_one_class_do_not_overlap),
	};

	golden_dir = argc > 1 ? argv[1] : "golden";
	return cmocka_run_group_tests(tests, NULL, NULL);
}
