#include "tests/lib/cm.h"
#include "netfilter/ip.h"

#include <sys/socket.h>

static struct ip_prefix ip(const char *text)
{
	struct ip_prefix prefix;
	struct err err;

	assert_ok(ip_parse(text, &prefix, &err), &err);
	return prefix;
}

static void test_ip_reads_and_prints_prefixes(void **state)
{
	static const char *const texts[][2] = {
		{"10.1.2.3", "10.1.2.3"},
		{"10.1.2.3/32", "10.1.2.3"},
		{"10.0.0.0/8", "10.0.0.0/8"},
		{"0.0.0.0/0", "0.0.0.0/0"},
		{"fd00::/8", "fd00::/8"},
		{"FD12:0:0::5/128", "fd12::5"},
		{"::ffff:10.0.0.1", "::ffff:10.0.0.1"},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		struct ip_prefix prefix = ip(texts[i][0]);
		char text[IP_TEXT_BYTES];

		assert_string_equal(ip_format(&prefix, text), texts[i][1]);
	}
}

static void test_ip_refuses_what_is_no_prefix(void **state)
{
	static const char *const texts[] = {"", "10", "10.0.0", "10.0.0.0/", "10.0.0.0/33",
		"10.0.0.0/-1", "10.0.0.0/8x", "10.0.0.0/ 8", " 10.0.0.1", "010.0.0.1", "host",
		"10.0.0.1/8", "fd00::1/64", "fe80::1%eth0", "::/129", "1:2:3:4:5:6:7:8:9",
		"10.0.0.1 }; flush ruleset", "/8"};
	struct ip_prefix prefix;
	struct err err;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		if (ip_parse(texts[i], &prefix, &err) == 0) {
			fail_msg("\"%s\" was taken", texts[i]);
		}
		assert_int_equal(err.kind, ERR_INVALID);
	}
}

static void test_ip_tells_bits_beyond_the_prefix(void **state)
{
	struct ip_prefix prefix;
	struct err err;

	(void)state;
	assert_err(ip_parse("10.1.2.3/24", &prefix, &err), &err, ERR_INVALID);
	assert_err_says(&err, "beyond the prefix length 24");
	assert_ok(ip_parse("10.1.2.3/32", &prefix, &err), &err);
	assert_err(ip_parse("10.1.2.3/31", &prefix, &err), &err, ERR_INVALID);
}

static void test_ip_contains_and_overlaps_by_bits(void **state)
{
	struct ip_prefix ten = ip("10.0.0.0/8");
	struct ip_prefix one = ip("10.1.2.3");
	struct ip_prefix nine = ip("9.0.0.0/8");
	struct ip_prefix cgnat = ip("100.64.0.0/10");
	struct ip_prefix beyond = ip("100.128.0.0");
	struct ip_prefix last = ip("100.127.255.255");
	struct ip_prefix all = ip("0.0.0.0/0");
	struct ip_prefix v6 = ip("::/0");

	(void)state;
	assert_true(ip_contains(&ten, &one));
	assert_false(ip_contains(&one, &ten));
	assert_true(ip_overlap(&one, &ten));
	assert_false(ip_overlap(&nine, &ten));
	assert_true(ip_contains(&cgnat, &last));
	assert_false(ip_contains(&cgnat, &beyond));
	assert_true(ip_overlap(&all, &one));
	assert_false(ip_overlap(&v6, &all));
	assert_true(ip_equal(&ten, &ten));
	assert_false(ip_equal(&ten, &all));
}

static void test_ip_embeds_ipv4_in_nat64(void **state)
{
	struct ip_prefix ten = ip("10.0.0.0/8");
	struct ip_prefix embedded = ip_nat64(&ten);
	struct ip_prefix expected = ip("64:ff9b::a00:0/104");

	(void)state;
	assert_int_equal(embedded.family, AF_INET6);
	assert_true(ip_equal(&embedded, &expected));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ip_reads_and_prints_prefixes),
		cmocka_unit_test(test_ip_refuses_what_is_no_prefix),
		cmocka_unit_test(test_ip_tells_bits_beyond_the_prefix),
		cmocka_unit_test(test_ip_contains_and_overlaps_by_bits),
		cmocka_unit_test(test_ip_embeds_ipv4_in_nat64),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
