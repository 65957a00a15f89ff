#include "tests/lib/cm.h"
#include "netfilter/resolvers.h"

#include <stdio.h>

/* "10.0.0.1 fe80::1%eth0 " */
static const char *parsed(const char *text)
{
	static char out[1024];
	struct resolvers resolvers;
	size_t len = 0;

	resolvers_parse(text, &resolvers);
	out[0] = '\0';
	for (size_t i = 0; i < resolvers.count; i++) {
		const struct resolver *one = &resolvers.list[i];
		char address[IP_TEXT_BYTES];

		len += (size_t)snprintf(out + len, sizeof out - len, "%s%s%s ",
			ip_format(&one->address, address), one->interface[0] ? "%" : "",
			one->interface);
	}
	return out;
}

static void test_resolvers_are_read_as_the_c_library_does(void **state)
{
	(void)state;
	assert_string_equal(parsed(""), "");
	assert_string_equal(parsed("# nothing\nsearch a.example\noptions ndots:2\n"), "");
	assert_string_equal(parsed("nameserver 10.0.0.1\nnameserver\t127.0.0.53 # stub\n"),
		"10.0.0.1 127.0.0.53 ");
	assert_string_equal(parsed("nameserver 2001:db8::53\r\nnameserver fe80::1%eth0"),
		"2001:db8::53 fe80::1%eth0 ");
	assert_string_equal(parsed("#nameserver 10.0.0.1\n;nameserver 10.0.0.2\n"), "");
}

static void test_resolvers_count_once(void **state)
{
	(void)state;
	assert_string_equal(
		parsed("nameserver 10.0.0.1\nnameserver 10.0.0.2\nnameserver 10.0.0.1\n"),
		"10.0.0.1 10.0.0.2 ");
}

static void test_resolvers_take_any_for_the_loopback(void **state)
{
	(void)state;
	assert_string_equal(parsed("nameserver 0.0.0.0\nnameserver ::\n"), "127.0.0.1 ::1 ");
}

static void test_resolvers_pass_over_what_could_change_the_rules(void **state)
{
	(void)state;
	assert_string_equal(parsed("nameserver 0.0.0.0/0\n"), "");
	assert_string_equal(parsed("nameserver 10.0.0.0/8\n"), "");
	assert_string_equal(parsed("nameserver fe80::1%eth0\"}accept\n"), "");
	assert_string_equal(parsed("nameserver fe80::1%\n"), "");
	assert_string_equal(parsed("nameserver fe80::1%an-interface-too-long\n"), "");
	assert_string_equal(parsed("nameserver evil.example\n"), "");
	assert_string_equal(parsed("nameserver\n"), "");
}

static void test_resolvers_are_capped(void **state)
{
	char text[2048];
	size_t len = 0;
	struct resolvers resolvers;

	(void)state;
	for (int i = 1; i <= RESOLVERS_MAX + 3; i++) {
		len += (size_t)snprintf(text + len, sizeof text - len, "nameserver 10.0.0.%d\n", i);
	}
	resolvers_parse(text, &resolvers);
	assert_int_equal(resolvers.count, RESOLVERS_MAX);
}

static void test_resolvers_differ_by_address_interface_and_order(void **state)
{
	struct resolvers a;
	struct resolvers b;

	(void)state;
	resolvers_parse("nameserver fe80::1%eth0\nnameserver 10.0.0.1\n", &a);
	resolvers_parse("nameserver fe80::1%eth0\nsearch x\nnameserver 10.0.0.1\n", &b);
	assert_true(resolvers_equal(&a, &b));
	resolvers_parse("nameserver fe80::1%eth1\nnameserver 10.0.0.1\n", &b);
	assert_false(resolvers_equal(&a, &b));
	resolvers_parse("nameserver fe80::1%eth0\n", &b);
	assert_false(resolvers_equal(&a, &b));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_resolvers_are_read_as_the_c_library_does),
		cmocka_unit_test(test_resolvers_count_once),
		cmocka_unit_test(test_resolvers_take_any_for_the_loopback),
		cmocka_unit_test(test_resolvers_pass_over_what_could_change_the_rules),
		cmocka_unit_test(test_resolvers_are_capped),
		cmocka_unit_test(test_resolvers_differ_by_address_interface_and_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
