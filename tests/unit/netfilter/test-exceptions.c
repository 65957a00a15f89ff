#include "tests/lib/cm.h"
#include "netfilter/exceptions.h"

#include <stdlib.h>

#include "base/cleanup.h"

static const uint16_t ports[] = {8470};
static struct ip_prefix own[2];
static struct exceptions_bounds bounds = {
	.own = own, .own_count = 2, .ports = ports, .port_count = 1};

static int parse(const char *entry, struct exceptions *ret, struct err *err)
{
	char *entries[] = {(char *)entry, NULL};

	return exceptions_parse(entries, &bounds, ret, err);
}

static void assert_taken(const char *entry, const char *prefix, unsigned port)
{
	struct exceptions exceptions;
	char text[IP_TEXT_BYTES];
	struct err err;

	assert_ok(parse(entry, &exceptions, &err), &err);
	assert_int_equal(exceptions.count, 1);
	assert_string_equal(ip_format(&exceptions.list[0].prefix, text), prefix);
	assert_int_equal(exceptions.list[0].port, port);
}

/* Refused with the setting, the entry and @why in the message. */
static void assert_refused(const char *entry, const char *why)
{
	struct exceptions exceptions;
	struct err err;

	if (parse(entry, &exceptions, &err) == 0) {
		fail_msg("\"%s\" was taken", entry);
	}
	assert_int_equal(err.kind, ERR_INVALID);
	assert_err_says(&err, "network.allow_private: ");
	assert_err_says(&err, entry);
	assert_err_says(&err, why);
}

static void test_exceptions_take_prefix_and_port(void **state)
{
	struct exceptions exceptions;
	struct err err;

	(void)state;
	assert_taken("10.1.2.0/24:8081", "10.1.2.0/24", 8081);
	assert_taken("192.168.7.9:3128", "192.168.7.9", 3128);
	assert_taken("[fd12:3::/32]:443", "fd12:3::/32", 443);
	assert_taken("[fd12:3::5]:65535", "fd12:3::5", 65535);
	assert_ok(exceptions_parse(NULL, &bounds, &exceptions, &err), &err);
	assert_int_equal(exceptions.count, 0);
}

static void test_exceptions_refuse_what_is_no_entry(void **state)
{
	(void)state;
	assert_refused("10.0.0.0/8", "ADDRESS[/LENGTH]:PORT");
	assert_refused("", "ADDRESS[/LENGTH]:PORT");
	assert_refused("[fd00::1", "ADDRESS[/LENGTH]:PORT");
	assert_refused("[fd00::1]", "ADDRESS[/LENGTH]:PORT");
	assert_refused("[fd00::1]x:80", "ADDRESS[/LENGTH]:PORT");
	assert_refused("fd00::1:80", "in brackets");
	assert_refused("mirror.example:80", "not an IP address");
	assert_refused("10.0.0.1:0", "the port");
	assert_refused("10.0.0.1:65536", "the port");
	assert_refused("10.0.0.1:http", "the port");
	assert_refused("10.0.0.1:", "the port");
	assert_refused("10.0.0.1/24:80", "beyond the prefix length");
}

static void test_exceptions_never_open_loopback_link_local_or_metadata(void **state)
{
	(void)state;
	assert_refused("127.0.0.1:80", "loopback");
	assert_refused("127.0.0.0/8:80", "loopback");
	assert_refused("[::1]:80", "loopback");
	assert_refused("169.254.169.254:80", "link-local");
	assert_refused("169.254.0.0/16:80", "link-local");
	assert_refused("[fe80::1]:80", "link-local");
	assert_refused("[fd00:ec2::254]:80", "metadata");
	assert_refused("100.100.100.200:80", "metadata");
	assert_refused("168.63.129.16:80", "metadata");
	assert_refused("224.0.0.251:5353", "multicast");
	assert_refused("[ff02::1]:80", "multicast");
	assert_refused("255.255.255.255:80", "broadcast");
	assert_refused("0.0.0.0:80", "unspecified");
}

static void test_exceptions_never_open_them_by_a_wide_prefix(void **state)
{
	(void)state;
	assert_refused("0.0.0.0/0:443", "never");
	assert_refused("[::/0]:443", "never");
	assert_refused("168.0.0.0/7:80", "link-local");
	assert_refused("[fd00::/8]:80", "metadata");
}

static void test_exceptions_never_open_them_in_disguise(void **state)
{
	(void)state;
	assert_refused("[::ffff:127.0.0.1]:80", "IPv4");
	assert_refused("[::ffff:10.0.0.1]:80", "IPv4");
	assert_refused("[64:ff9b::a00:1]:80", "IPv4");
	assert_refused("[64:ff9b:1::a00:1]:80", "IPv4");
	assert_refused("[2002:7f00:1::]:80", "IPv4");
	assert_refused("[2001::1]:80", "IPv4");
}

static void test_exceptions_never_open_this_host(void **state)
{
	(void)state;
	assert_refused("10.9.9.9:80", "this host");
	assert_refused("[fd99::9]:80", "this host");
	assert_refused("10.1.1.1:8470", "paddockd's own");
	assert_refused("10.0.0.0/8:8470", "paddockd's own");
}

static void test_exceptions_may_surround_single_addresses_that_the_rules_leave_out(void **state)
{
	(void)state;
	assert_taken("10.9.9.0/24:80", "10.9.9.0/24", 80);
	assert_taken("100.64.0.0/10:443", "100.64.0.0/10", 443);
}

static void test_exceptions_are_capped(void **state)
{
	char *entries[EXCEPTIONS_MAX + 2] = {NULL};
	struct exceptions exceptions;
	struct err err;

	(void)state;
	for (int i = 0; i < EXCEPTIONS_MAX; i++) {
		entries[i] = "10.1.2.3:80";
	}
	assert_ok(exceptions_parse(entries, &bounds, &exceptions, &err), &err);
	entries[EXCEPTIONS_MAX] = "10.1.2.3:80";
	assert_err(exceptions_parse(entries, &bounds, &exceptions, &err), &err, ERR_INVALID);
}

static void test_exceptions_escape_what_they_quote(void **state)
{
	struct exceptions exceptions;
	struct err err;

	(void)state;
	assert_err(parse("10.0.0.1:80\n<3>forged", &exceptions, &err), &err, ERR_INVALID);
	assert_null(strchr(err.msg, '\n'));
}

static void test_own_addresses_include_the_loopback(void **state)
{
	struct ip_prefix loopback;
	struct err err;
	size_t count;
	bool is_there = false;
	_cleanup_free_ struct ip_prefix *list = exceptions_own_addresses(&count, &err);

	(void)state;
	assert_non_null(list);
	assert_ok(ip_parse("127.0.0.1", &loopback, &err), &err);
	for (size_t i = 0; i < count; i++) {
		is_there = is_there || ip_equal(&list[i], &loopback);
	}
	assert_true(is_there);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_exceptions_take_prefix_and_port),
		cmocka_unit_test(test_exceptions_refuse_what_is_no_entry),
		cmocka_unit_test(test_exceptions_never_open_loopback_link_local_or_metadata),
		cmocka_unit_test(test_exceptions_never_open_them_by_a_wide_prefix),
		cmocka_unit_test(test_exceptions_never_open_them_in_disguise),
		cmocka_unit_test(test_exceptions_never_open_this_host),
		cmocka_unit_test(
			test_exceptions_may_surround_single_addresses_that_the_rules_leave_out),
		cmocka_unit_test(test_exceptions_are_capped),
		cmocka_unit_test(test_exceptions_escape_what_they_quote),
		cmocka_unit_test(test_own_addresses_include_the_loopback),
	};
	struct err err;

	if (ip_parse("10.9.9.9", &own[0], &err) < 0 || ip_parse("fd99::9", &own[1], &err) < 0) {
		return 1;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
