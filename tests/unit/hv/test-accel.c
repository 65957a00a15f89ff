#include "tests/lib/cm.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/xalloc.h"
#include "hv/accel.h"

static char *dir;
static char *cpuinfo;
static char *device;

static int make_dir(void **state)
{
	(void)state;
	dir = xstrdup("/tmp/paddock-accel-XXXXXX");
	if (!mkdtemp(dir)) {
		return -1;
	}
	cpuinfo = xasprintf("%s/cpuinfo", dir);
	device = xasprintf("%s/kvm", dir);
	return 0;
}

static int drop_dir(void **state)
{
	struct err err;

	(void)state;
	int rc = fs_remove_tree(dir, &err);
	free(dir);
	free(cpuinfo);
	free(device);
	return rc;
}

static void write_file(const char *path, const char *text)
{
	struct err err;

	assert_ok(fs_write_atomic(path, text, strlen(text), 0600, &err), &err);
}

static struct accel_choice choose(enum hv_accel wanted, const char *machine)
{
	const struct accel_host host = {.machine = machine, .cpuinfo = cpuinfo, .kvm = device};
	struct accel_choice choice;
	struct err err;

	assert_ok(accel_choose(wanted, &host, &choice, &err), &err);
	assert_true(strlen(choice.why) > 0);
	return choice;
}

static void test_kvm_is_used_where_flag_and_device_are_there(void **state)
{
	(void)state;
	write_file(cpuinfo, "processor\t: 0\nflags\t\t: fpu vmx sse2\n");
	write_file(device, "");
	assert_true(choose(HV_ACCEL_AUTO, "x86_64").is_kvm);
	write_file(cpuinfo, "processor\t: 0\nflags\t\t: fpu sse2 svm\n");
	assert_true(choose(HV_ACCEL_AUTO, "x86_64").is_kvm);
}

static void test_a_device_without_the_flag_isn_t_enough(void **state)
{
	(void)state;
	write_file(cpuinfo, "flags\t\t: fpu sse2 svm_lock avmx\nbugs\t\t: vmx\n");
	write_file(device, "");
	struct accel_choice choice = choose(HV_ACCEL_AUTO, "x86_64");
	assert_false(choice.is_kvm);
	assert_non_null(strstr(choice.why, "neither vmx nor svm"));
}

static void test_the_flag_without_the_device_isn_t_enough(void **state)
{
	struct err err;

	(void)state;
	write_file(cpuinfo, "flags\t\t: fpu vmx\n");
	assert_ok(fs_remove(device, &err), &err);
	struct accel_choice choice = choose(HV_ACCEL_AUTO, "x86_64");
	assert_false(choice.is_kvm);
	assert_non_null(strstr(choice.why, "can't be opened"));
}

static void test_other_processors_ask_the_device(void **state)
{
	(void)state;
	write_file(cpuinfo, "Features\t: fp asimd\n");
	write_file(device, "");
	struct accel_choice choice = choose(HV_ACCEL_AUTO, "aarch64");
	assert_false(choice.is_kvm);
	assert_non_null(strstr(choice.why, "doesn't answer like KVM"));
}

static void test_the_configuration_can_force_either(void **state)
{
	const struct accel_host host = {.machine = "x86_64", .cpuinfo = cpuinfo, .kvm = device};
	struct accel_choice choice;
	struct err err;

	(void)state;
	write_file(cpuinfo, "flags\t\t: fpu vmx\n");
	write_file(device, "");
	assert_false(choose(HV_ACCEL_TCG, "x86_64").is_kvm);
	write_file(cpuinfo, "flags\t\t: fpu\n");
	assert_true(choose(HV_ACCEL_KVM, "x86_64").is_kvm);
	assert_ok(fs_remove(device, &err), &err);
	assert_err(accel_choose(HV_ACCEL_KVM, &host, &choice, &err), &err, ERR_UNAVAILABLE);
}

static void test_names_are_read(void **state)
{
	enum hv_accel accel = HV_ACCEL_AUTO;
	struct err err;

	(void)state;
	assert_ok(accel_parse("tcg", &accel, &err), &err);
	assert_int_equal(accel, HV_ACCEL_TCG);
	assert_ok(accel_parse("kvm", &accel, &err), &err);
	assert_int_equal(accel, HV_ACCEL_KVM);
	assert_err(accel_parse("KVM", &accel, &err), &err, ERR_INVALID);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kvm_is_used_where_flag_and_device_are_there),
		cmocka_unit_test(test_a_device_without_the_flag_isn_t_enough),
		cmocka_unit_test(test_the_flag_without_the_device_isn_t_enough),
		cmocka_unit_test(test_other_processors_ask_the_device),
		cmocka_unit_test(test_the_configuration_can_force_either),
		cmocka_unit_test(test_names_are_read),
	};

	return cmocka_run_group_tests(tests, make_dir, drop_dir);
}
