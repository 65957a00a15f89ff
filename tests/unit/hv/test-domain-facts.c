#include "tests/lib/cm.h"

#include <libvirt/libvirt.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/xalloc.h"
#include "hv/domain_facts.h"

#define GOOD(attributes)                                                                           \
	"<sandbox format=\"1\" instance=\"0123456789abcdef\" id=\"sb_00112233445566778899\" "      \
	"account=\"ac_99887766554433221100\" " attributes "/>"

static void assert_refused(const char *xml)
{
	struct domain_metadata metadata;
	struct err err;

	assert_err(domain_metadata_parse(xml, &metadata, &err), &err, ERR_INVALID);
}

static void test_good_metadata_is_read(void **state)
{
	struct domain_metadata metadata;
	struct err err;

	(void)state;
	assert_ok(domain_metadata_parse(GOOD("expires=\"12\" later=\"x\""), &metadata, &err), &err);
	assert_string_equal(metadata.id, "sb_00112233445566778899");
	assert_int_equal(metadata.expires_at_ms, 12);
	assert_string_equal(metadata.name, "");
}

static void test_damaged_metadata_is_refused(void **state)
{
	(void)state;
	assert_refused("");
	assert_refused("no xml");
	assert_refused("<sandbox");
	assert_refused("<other format=\"1\"/>");
	assert_refused(GOOD(""));
	assert_refused(GOOD("expires=\"-1\""));
	assert_refused(GOOD("expires=\"99999999999999999999\""));
	assert_refused("<sandbox format=\"2\" instance=\"0123456789abcdef\" "
		       "id=\"sb_00112233445566778899\" account=\"ac_99887766554433221100\" "
		       "expires=\"0\"/>");
	assert_refused("<sandbox format=\"1\" instance=\"0123456789ABCDEF\" "
		       "id=\"sb_00112233445566778899\" account=\"ac_99887766554433221100\" "
		       "expires=\"0\"/>");
	assert_refused("<sandbox format=\"1\" instance=\"0123456789abcdef\" "
		       "id=\"../../etc\" account=\"ac_99887766554433221100\" expires=\"0\"/>");
	assert_refused("<sandbox format=\"1\" instance=\"0123456789abcdef\" "
		       "id=\"sb_00112233445566778899\" account=\"root\" expires=\"0\"/>");
}

static void test_a_bad_name_doesn_t_disown_a_domain(void **state)
{
	struct domain_metadata metadata;
	struct err err;

	(void)state;
	assert_ok(domain_metadata_parse(GOOD("expires=\"0\" name=\"&lt;b&gt;\""), &metadata, &err),
		&err);
	assert_string_equal(metadata.name, "");
}

static void test_metadata_of_any_size_is_refused_beyond_the_limit(void **state)
{
	(void)state;
	_cleanup_free_ char *blanks = xcalloc(1, DOMAIN_METADATA_MAX + 2);
	memset(blanks, ' ', DOMAIN_METADATA_MAX + 1);
	memcpy(blanks, GOOD("expires=\"0\""), strlen(GOOD("expires=\"0\"")));
	assert_refused(blanks);
	blanks[DOMAIN_METADATA_MAX] = '\0';
	struct domain_metadata metadata;
	struct err err;
	assert_ok(domain_metadata_parse(blanks, &metadata, &err), &err);
}

static void test_entities_aren_t_expanded(void **state)
{
	(void)state;
	assert_refused("<!DOCTYPE x [<!ENTITY e SYSTEM \"file:///etc/passwd\">]>"
		       "<sandbox format=\"1\" instance=\"0123456789abcdef\" id=\"&e;\" "
		       "account=\"ac_99887766554433221100\" expires=\"0\"/>");
}

static void test_a_name_holds_instance_and_sandbox(void **state)
{
	char name[DOMAIN_NAME_BYTES];

	(void)state;
	domain_name(name, "0123456789abcdef", "sb_00112233445566778899");
	assert_string_equal(name, "paddock-01234567-sb_00112233445566778899");
}

static void test_a_domain_is_off_only_when_its_process_is_gone(void **state)
{
	(void)state;
	assert_int_equal(domain_state(VIR_DOMAIN_RUNNING, true), HV_DOMAIN_RUNNING);
	assert_int_equal(domain_state(VIR_DOMAIN_RUNNING, false), HV_DOMAIN_UNSETTLED);
	assert_int_equal(domain_state(VIR_DOMAIN_PAUSED, true), HV_DOMAIN_PAUSED);
	assert_int_equal(domain_state(VIR_DOMAIN_PAUSED, false), HV_DOMAIN_UNSETTLED);
	assert_int_equal(domain_state(VIR_DOMAIN_SHUTOFF, true), HV_DOMAIN_UNSETTLED);
	assert_int_equal(domain_state(VIR_DOMAIN_SHUTOFF, false), HV_DOMAIN_SHUTOFF);
	assert_int_equal(domain_state(VIR_DOMAIN_CRASHED, false), HV_DOMAIN_SHUTOFF);
	assert_int_equal(domain_state(VIR_DOMAIN_SHUTDOWN, true), HV_DOMAIN_UNSETTLED);
	assert_int_equal(domain_state(VIR_DOMAIN_NOSTATE, true), HV_DOMAIN_UNSETTLED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good_metadata_is_read),
		cmocka_unit_test(test_damaged_metadata_is_refused),
		cmocka_unit_test(test_a_bad_name_doesn_t_disown_a_domain),
		cmocka_unit_test(test_metadata_of_any_size_is_refused_beyond_the_limit),
		cmocka_unit_test(test_entities_aren_t_expanded),
		cmocka_unit_test(test_a_name_holds_instance_and_sandbox),
		cmocka_unit_test(test_a_domain_is_off_only_when_its_process_is_gone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
