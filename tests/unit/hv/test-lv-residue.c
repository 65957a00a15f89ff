#include "tests/lib/cm.h"

#include "hv/lv_residue.h"

#define INSTANCE "0123456789abcdef"
#define ID       "sb_00112233445566778899"
#define NAME     "paddock-01234567-" ID
#define DIR      "-paddock-01234567-sb_"

struct name_case {
	const char *dir;
	const char *entry;
	bool is_ours;
	enum hv_residue_kind kind;
	const char *id;
	int number;
};

static const struct name_case names[] = {
	{"log/qemu", NAME ".log", true, HV_RESIDUE_LOG, ID, -1},
	{"log/qemu", NAME ".log.0", true, HV_RESIDUE_LOG, ID, -1},
	{"log/qemu", NAME ".log.x", false, 0, NULL, 0},
	{"log/qemu", NAME, false, 0, NULL, 0},
	{"log/qemu", NAME "0.log", false, 0, NULL, 0},
	{"log/qemu", "x" NAME ".log", false, 0, NULL, 0},
	{"log/qemu", "paddock-01234567-.log", false, 0, NULL, 0},
	{"log/qemu", "paddock-76543210-" ID ".log", false, 0, NULL, 0},
	{"log/qemu", ".log", false, 0, NULL, 0},
	{"log/qemu", "debian.log", false, 0, NULL, 0},
	{"log/qemu", "../" NAME ".log", false, 0, NULL, 0},
	{"run/qemu", NAME ".pid", true, HV_RESIDUE_FILE, ID, -1},
	{"run/qemu", NAME ".xml", true, HV_RESIDUE_FILE, ID, -1},
	{"run/qemu", "driver.pid", false, 0, NULL, 0},
	{"run/qemu", "autostarted", false, 0, NULL, 0},
	{"run/qemu", "dbus", false, 0, NULL, 0},
	{"lib/qemu", "domain-12" DIR, true, HV_RESIDUE_DIRECTORY, "", 12},
	{"lib/qemu", "qmp-A1b2C3", true, HV_RESIDUE_DIRECTORY, "", -1},
	{"lib/qemu", "domain-12-paddock-76543210-sb_", false, 0, NULL, 0},
	{"lib/qemu", "domain-12" DIR "0", false, 0, NULL, 0},
	{"lib/qemu", "domain-" DIR, false, 0, NULL, 0},
	{"lib/qemu", "domain-1x" DIR, false, 0, NULL, 0},
	{"lib/qemu", "domain--1" DIR, false, 0, NULL, 0},
	{"lib/qemu", "domain-99999999999" DIR, false, 0, NULL, 0},
	{"lib/qemu", "domain-12-fedora", false, 0, NULL, 0},
	{"lib/qemu", "channel", false, 0, NULL, 0},
	{"lib/qemu", "save", false, 0, NULL, 0},
	{"lib/qemu/channel/target", "domain-3" DIR, true, HV_RESIDUE_DIRECTORY, "", 3},
	{"lib/qemu/channel/target", "qmp-A1b2C3", false, 0, NULL, 0},
	{"etc", NAME ".log", false, 0, NULL, 0},
	{"", NAME ".log", false, 0, NULL, 0},
};

static void test_only_names_with_our_mark_are_read(void **state)
{
	struct lv_residue_entry entry;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		const struct name_case *name = &names[i];
		bool is_ours = lv_residue_parse(name->dir, name->entry, INSTANCE, &entry);

		if (is_ours != name->is_ours) {
			fail_msg("%s/%s", name->dir, name->entry);
		}
		if (is_ours) {
			assert_int_equal(entry.kind, name->kind);
			assert_string_equal(entry.id, name->id);
			assert_int_equal(entry.number, name->number);
			assert_string_equal(entry.domain, name->id[0] ? NAME : "");
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_only_names_with_our_mark_are_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
