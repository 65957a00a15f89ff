#include "tests/lib/cm.h"

#include <stdbool.h>

#include "image/manifest.h"
#include "tests/unit/image/fixture.h"

static const char *const contents[3] = {"kernel", "initrd", "base"};

static void test_manifest_is_read(void **state)
{
	_cleanup_manifest_ struct manifest manifest = {0};
	char version[FIXTURE_VERSION_BYTES];
	_cleanup_free_ char *text = fixture_manifest("minimal", contents, version);
	struct err err;

	(void)state;
	assert_ok(manifest_parse(text, strlen(text), &manifest, &err), &err);
	assert_string_equal(manifest.name, "minimal");
	assert_string_equal(manifest.version, version);
	assert_string_equal(manifest.cmdline, FIXTURE_CMDLINE);
	assert_string_equal(manifest.agent_version, "0.1.0");
	assert_string_equal(manifest.kernel_version, "6.1");
	assert_string_equal(manifest.created, "2026-01-31T12:00:00Z");
	assert_true(manifest.virtual_size_bytes == 1073741824);
	assert_int_equal(manifest.files[2].size, 4);
}

/* The manifest with @from replaced by @to. */
static char *edited(const char *from, const char *to)
{
	char version[FIXTURE_VERSION_BYTES];
	_cleanup_free_ char *text = fixture_manifest("minimal", contents, version);
	char *at = strstr(text, from);

	assert_non_null(at);
	return xasprintf("%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
}

static void test_each_fault_is_named(void **state)
{
	static const struct {
		const char *from;
		const char *to;
		const char *says;
	} faults[] = {
		{"{", "", "not JSON"},
		{"\"format\": 1", "\"format\": 2", "format 2"},
		{"\"format\": 1", "\"format\": 0", "\"format\""},
		{"\"format\": 1", "\"format\": \"1\"", "\"format\""},
		{"\"format\": 1, ", "", "\"format\""},
		{"\"name\": \"minimal\"", "\"name\": \"\"", "\"name\""},
		{"\"name\": \"minimal\"", "\"name\": 7", "\"name\""},
		{"\"agent_version\"", "\"agent\"", "\"agent_version\""},
		{"ttyS0", "ttyS0\\n", "\"cmdline\""},
		{"ttyS0", "tty\\u0000", "\"cmdline\""},
		{"1073741824", "-1", "\"virtual_size_bytes\""},
		{"1073741824", "1.5", "\"virtual_size_bytes\""},
		{"\"files\"", "\"file\"", "\"files\""},
		{"\"initrd.img\"", "\"initrd\"", "\"initrd.img\""},
		{"\"sha256\": \"", "\"sha256\": \"x", "\"sha256\""},
		{"\"sha256\": \"", "\"sha256\": \"\", \"other\": \"", "\"sha256\""},
		{"\"size\": 6", "\"size\": null", "\"size\""},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(faults); i++) {
		_cleanup_manifest_ struct manifest manifest = {0};
		_cleanup_free_ char *text = edited(faults[i].from, faults[i].to);
		struct err err;

		assert_err(
			manifest_parse(text, strlen(text), &manifest, &err), &err, ERR_UNAVAILABLE);
		assert_err_says(&err, faults[i].says);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_manifest_is_read),
		cmocka_unit_test(test_each_fault_is_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
