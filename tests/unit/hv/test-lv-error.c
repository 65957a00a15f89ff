#include "tests/lib/cm.h"

#include <libvirt/libvirt.h>
#include <libvirt/virterror.h>
#include <stdlib.h>

#include "hv/lv_error.h"

static void test_a_missing_domain_is_not_found(void **state)
{
	virConnectPtr conn = virConnectOpen("test:///default");
	struct err err;

	(void)state;
	assert_non_null(conn);
	assert_null(virDomainLookupByName(conn, "nobody"));
	assert_int_equal(lv_error_set(&err, "find it"), -1);
	assert_int_equal(err.kind, ERR_NOT_FOUND);
	assert_int_equal(err.sys, VIR_ERR_NO_DOMAIN);
	assert_err_says(&err, "find it");
	virConnectClose(conn);
}

static void test_a_wrong_state_is_a_conflict_and_tells_no_names(void **state)
{
	virConnectPtr conn = virConnectOpen("test:///default");
	virDomainPtr domain = virDomainLookupByName(conn, "test");
	struct err err;

	(void)state;
	assert_non_null(domain);
	assert_int_equal(virDomainDestroy(domain), 0);
	assert_int_equal(virDomainGetDiskErrors(domain, NULL, 0, 0), -1);
	lv_error_set(&err, "look at it");
	assert_int_equal(err.kind, ERR_CONFLICT);
	assert_null(strstr(err.msg, "'test'"));
	virDomainFree(domain);
	virConnectClose(conn);
}

static void test_the_rest_is_internal_with_libvirt_s_words(void **state)
{
	struct err err;

	(void)state;
	assert_null(virConnectOpen("nonsense:///x"));
	lv_error_set(&err, "connect");
	assert_true(err.kind == ERR_INTERNAL || err.kind == ERR_UNAVAILABLE);
	virResetLastError();
	lv_error_set(&err, "connect");
	assert_int_equal(err.kind, ERR_INTERNAL);
	assert_err_says(&err, "no reason");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_missing_domain_is_not_found),
		cmocka_unit_test(test_a_wrong_state_is_a_conflict_and_tells_no_names),
		cmocka_unit_test(test_the_rest_is_internal_with_libvirt_s_words),
	};

	lv_error_silence();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
