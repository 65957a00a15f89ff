#include "tests/lib/cm.h"

#include "base/xalloc.h"
#include "hv/lv_place.h"

static void assert_refused(const char *uri, const char *says)
{
	struct err err;

	struct lv_place *place = lv_place_new(uri, &err);
	assert_null(place);
	assert_int_equal(err.kind, ERR_INVALID);
	assert_err_says(&err, says);
}

static void test_the_two_uris_are_read(void **state)
{
	struct err err;

	(void)state;
	struct lv_place *place = lv_place_new("qemu:///system", &err);
	assert_non_null(place);
	assert_null(place->root);
	assert_string_equal(place->pid_dir, "/run/libvirt/qemu");
	assert_string_equal(lv_place_label(place), "libvirt (qemu:///system)");
	lv_place_free(place);
	place = lv_place_new("qemu:///embed?root=/srv/p/libvirt", &err);
	assert_non_null(place);
	assert_string_equal(place->root, "/srv/p/libvirt");
	assert_string_equal(place->pid_dir, "/srv/p/libvirt/run/qemu");
	assert_null(strstr(lv_place_label(place), "/srv"));
	lv_place_free(place);
}

static void test_other_uris_are_refused(void **state)
{
	(void)state;
	assert_refused("", "qemu:///system");
	assert_refused("qemu:///session", "qemu:///system");
	assert_refused("qemu+ssh://host/system", "qemu:///system");
	assert_refused("test:///default", "qemu:///system");
	assert_refused("qemu:///embed", "qemu:///embed?root=");
}

static void test_roots_that_a_uri_would_change_are_refused(void **state)
{
	(void)state;
	assert_refused("qemu:///embed?root=", "absolute path");
	assert_refused("qemu:///embed?root=relative", "absolute path");
	assert_refused("qemu:///embed?root=/a&root=/b", "absolute path");
	assert_refused("qemu:///embed?root=/a%2fb", "absolute path");
	assert_refused("qemu:///embed?root=/a b", "absolute path");
}

static void test_a_root_must_leave_room_for_libvirt_s_sockets(void **state)
{
	struct err err;
	char root[51] = "/";

	(void)state;
	memset(root + 1, 'x', 48);
	char *fits = xasprintf("qemu:///embed?root=%s", root);
	struct lv_place *place = lv_place_new(fits, &err);
	assert_non_null(place);
	root[49] = 'x';
	char *too_long = xasprintf("qemu:///embed?root=%s", root);
	assert_refused(too_long, "shorter state directory");
	lv_place_free(place);
	free(fits);
	free(too_long);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_two_uris_are_read),
		cmocka_unit_test(test_other_uris_are_refused),
		cmocka_unit_test(test_roots_that_a_uri_would_change_are_refused),
		cmocka_unit_test(test_a_root_must_leave_room_for_libvirt_s_sockets),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
