#include "tests/lib/cm.h"

#include <libxml/parser.h>
#include <libxml/relaxng.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/xalloc.h"
#include "hv/domain_xml.h"

/*
 * Golden files: golden/NAME.xml holds what libvirt is given, for review. GOLDEN_WRITE=1 writes them
 * anew.
 */

#define UUID   "6c1d4c1e-6a4f-4c53-9f0e-0d2f5a1b7c3d"
#define SCHEMA "/usr/share/libvirt/schemas/domain.rng"

static const struct hv_paths paths = {
	.disk_dir = (char *)"/srv/paddock/disk/sb_00112233445566778899",
	.overlay = (char *)"/srv/paddock/disk/sb_00112233445566778899/disk.qcow2",
	.run_dir = (char *)"/srv/paddock/run/sb_00112233445566778899",
	.agent_socket = (char *)"/srv/paddock/run/sb_00112233445566778899/agent.sock",
	.console_socket = (char *)"/srv/paddock/run/sb_00112233445566778899/console.sock",
};

static const struct hv_spec plain_spec = {
	.id = "sb_00112233445566778899",
	.account = "ac_99887766554433221100",
	.expires_at_ms = 1767225600000,
	.uid = 300001,
	.gid = 107,
	.vcpus = 2,
	.memory_mb = 4096,
	.disk_bytes = 40ull << 30,
	.network = HV_NETWORK_NONE,
	.kernel = "/srv/paddock/images/minimal/vmlinuz",
	.initrd = "/srv/paddock/images/minimal/initrd.img",
	.cmdline = "console=ttyS0 quiet",
	.base_image = "/srv/paddock/images/minimal/root.qcow2",
	.paths = &paths,
};

static const struct domain_xml_host tcg = {.instance = "0123456789abcdef", .tb_cache_mib = 32};
static const struct domain_xml_host kvm = {
	.instance = "0123456789abcdef", .is_kvm = true, .tb_cache_mib = 32};

static struct hv_spec with_user_network(bool is_link_down)
{
	struct hv_spec spec = plain_spec;

	spec.network = HV_NETWORK_USER;
	spec.is_link_down = is_link_down;
	return spec;
}

static struct hv_spec durable(void)
{
	struct hv_spec spec = plain_spec;

	spec.is_disk_durable = true;
	spec.name = "brave-otter-01ab";
	spec.expires_at_ms = 0;
	return spec;
}

static char *build(const struct hv_spec *spec, const struct domain_xml_host *host)
{
	struct err err = ERR_INIT;
	char *xml = domain_xml_build(spec, host, UUID, &err);

	if (!xml) {
		fail_msg("%s", err.msg);
	}
	return xml;
}

static void assert_golden(
	const char *name, const struct hv_spec *spec, const struct domain_xml_host *host)
{
	_cleanup_free_ char *xml = build(spec, host);
	_cleanup_free_ char *text = xasprintf("%s\n", xml);
	_cleanup_free_ char *path = xasprintf(GOLDEN_DIR "/%s.xml", name);
	_cleanup_free_ char *expected = NULL;
	struct err err;

	if (getenv("GOLDEN_WRITE")) {
		assert_ok(fs_write_atomic(path, text, strlen(text), 0644, &err), &err);
	}
	assert_ok(fs_read(path, 1 << 20, &expected, NULL, &err), &err);
	assert_string_equal(text, expected);
}

static void test_documents_are_as_reviewed(void **state)
{
	const struct hv_spec up = with_user_network(false);
	const struct hv_spec down = with_user_network(true);
	const struct hv_spec lasting = durable();

	(void)state;
	assert_golden("tcg-none", &plain_spec, &tcg);
	assert_golden("tcg-user", &up, &tcg);
	assert_golden("tcg-user-down", &down, &tcg);
	assert_golden("tcg-durable", &lasting, &tcg);
	assert_golden("kvm-none", &plain_spec, &kvm);
	assert_golden("kvm-user", &up, &kvm);
	assert_golden("kvm-user-down", &down, &kvm);
	assert_golden("kvm-durable", &lasting, &kvm);
}

static void ignore_message(void *arg, const char *format, ...)
{
	(void)arg;
	(void)format;
}

static int validate(xmlRelaxNGPtr schema, const char *xml)
{
	xmlDocPtr doc = xmlReadMemory(xml, (int)strlen(xml), NULL, NULL, XML_PARSE_NONET);
	xmlRelaxNGValidCtxtPtr context = xmlRelaxNGNewValidCtxt(schema);

	assert_non_null(doc);
	xmlRelaxNGSetValidErrors(context, ignore_message, ignore_message, NULL);
	int rc = xmlRelaxNGValidateDoc(context, doc);
	xmlRelaxNGFreeValidCtxt(context);
	xmlFreeDoc(doc);
	return rc;
}

static void test_documents_fit_libvirt_s_schema(void **state)
{
	const struct hv_spec up = with_user_network(false);
	const struct hv_spec lasting = durable();

	(void)state;
	xmlRelaxNGParserCtxtPtr parser = xmlRelaxNGNewParserCtxt(SCHEMA);
	xmlRelaxNGPtr schema = xmlRelaxNGParse(parser);
	xmlRelaxNGFreeParserCtxt(parser);
	assert_non_null(schema);
	_cleanup_free_ char *one = build(&up, &tcg);
	_cleanup_free_ char *two = build(&lasting, &kvm);
	assert_int_equal(validate(schema, one), 0);
	assert_int_equal(validate(schema, two), 0);
	/* The schema can say no. */
	assert_int_not_equal(validate(schema, "<domain type='qemu'><nonsense/></domain>"), 0);
	xmlRelaxNGFree(schema);
}

static void test_strings_can_t_break_out_of_their_place(void **state)
{
	struct hv_spec spec = plain_spec;

	(void)state;
	spec.cmdline = "a=\"b\" c='d' <&> ]]> </cmdline><devices/>";
	spec.kernel = "/srv/\"'/><x>&amp;";
	_cleanup_free_ char *xml = build(&spec, &tcg);
	xmlDocPtr doc = xmlReadMemory(xml, (int)strlen(xml), NULL, NULL, XML_PARSE_NONET);
	assert_non_null(doc);
	int devices = 0;
	for (xmlNodePtr node = xmlDocGetRootElement(doc)->children; node; node = node->next) {
		if (strcmp((const char *)node->name, "devices") == 0) {
			devices++;
		}
		if (strcmp((const char *)node->name, "os") == 0) {
			xmlChar *text = xmlNodeGetContent(xmlGetLastChild(node)->prev);
			assert_string_equal((const char *)text, spec.cmdline);
			xmlFree(text);
		}
	}
	assert_int_equal(devices, 1);
	xmlFreeDoc(doc);
}

static void test_what_xml_can_t_hold_is_refused(void **state)
{
	struct hv_spec spec = plain_spec;
	struct err err;

	(void)state;
	spec.cmdline = "a\x01"
		       "b";
	assert_null(domain_xml_build(&spec, &tcg, UUID, &err));
	assert_int_equal(err.kind, ERR_INTERNAL);
	spec.cmdline = "a\nb";
	assert_null(domain_xml_build(&spec, &tcg, UUID, &err));
	spec.cmdline = "\xc3\x28";
	assert_null(domain_xml_build(&spec, &tcg, UUID, &err));
}

static void test_metadata_is_read_as_it_was_written(void **state)
{
	struct domain_metadata written = {.instance = "0123456789abcdef",
		.id = "sb_00112233445566778899",
		.account = "ac_99887766554433221100",
		.name = "brave-otter",
		.expires_at_ms = 1767225600000};
	struct domain_metadata read;
	struct err err;

	(void)state;
	_cleanup_free_ char *xml = domain_xml_metadata(&written, &err);
	assert_non_null(xml);
	assert_ok(domain_metadata_parse(xml, &read, &err), &err);
	assert_memory_equal(&read.instance, &written.instance, sizeof read.instance);
	assert_string_equal(read.id, written.id);
	assert_string_equal(read.account, written.account);
	assert_string_equal(read.name, written.name);
	assert_int_equal(read.expires_at_ms, written.expires_at_ms);
}

static void test_an_interface_can_be_made_alone(void **state)
{
	struct err err;

	(void)state;
	_cleanup_free_ char *up = domain_xml_interface(true, &err);
	_cleanup_free_ char *down = domain_xml_interface(false, &err);
	assert_non_null(strstr(up, "<link state=\"up\"/>"));
	assert_non_null(strstr(down, "<link state=\"down\"/>"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_documents_are_as_reviewed),
		cmocka_unit_test(test_documents_fit_libvirt_s_schema),
		cmocka_unit_test(test_strings_can_t_break_out_of_their_place),
		cmocka_unit_test(test_what_xml_can_t_hold_is_refused),
		cmocka_unit_test(test_metadata_is_read_as_it_was_written),
		cmocka_unit_test(test_an_interface_can_be_made_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
