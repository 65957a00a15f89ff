#include "tests/lib/cm.h"

#include "image/verify.h"
#include "tests/unit/image/fixture.h"

static char version[FIXTURE_VERSION_BYTES];

static int make_image(void **state)
{
	int r = tmpdir_make(state);

	if (r == 0) {
		fixture_image("minimal", "base", version);
	}
	return r;
}

static void expect_refusal(const char *text)
{
	struct images_config config = fixture_config();
	struct image_stamps stamps;
	struct err err = ERR_INIT;

	assert_null(image_verify_blocking(&config, "minimal", version, &stamps, &err));
	assert_int_equal(err.kind, ERR_UNAVAILABLE);
	assert_err_says(&err, text);
	assert_null(strstr(err.msg, tmpdir));
}

static void test_sound_image_is_accepted(void **state)
{
	struct images_config config = fixture_config();
	_cleanup_free_ char *base = fixture_path("minimal", version, "root.qcow2");
	_cleanup_free_ char *kernel = fixture_path("minimal", version, "vmlinuz");
	struct image_stamps stamps;
	struct image_stamps now;
	struct err err = ERR_INIT;

	(void)state;
	_cleanup_image_ struct image *image = image_verify_blocking(
		&config, "minimal", version, &stamps, &err);
	assert_non_null(image);
	assert_string_equal(image->name, "minimal");
	assert_string_equal(image->version, version);
	assert_string_equal(image->base, base);
	assert_string_equal(image->kernel, kernel);
	assert_string_equal(image->cmdline, FIXTURE_CMDLINE);
	assert_true(image->virtual_size_bytes == 1073741824);
	image_stamps_take(&config, "minimal", version, &now);
	assert_true(image_stamps_equal(&stamps, &now));
}

static void test_flipped_byte_is_refused_in_each_file(void **state)
{
	(void)state;
	for (int i = 0; i < 3; i++) {
		_cleanup_free_ char *path = fixture_path(
			"minimal", version, manifest_file_names[i]);
		_cleanup_free_ char *says = xasprintf(
			"%s doesn't match its manifest", manifest_file_names[i]);

		fixture_damage(path);
		expect_refusal(says);
		fixture_damage(path); /* and back */
	}
	struct images_config config = fixture_config();
	struct err err = ERR_INIT;
	_cleanup_image_ struct image *image = image_load_blocking(&config, "minimal", NULL, &err);
	assert_non_null(image);
}

static void test_wrong_size_is_refused_with_both(void **state)
{
	_cleanup_free_ char *path = fixture_path("minimal", version, "root.qcow2");

	(void)state;
	fixture_write(path, "base+");
	expect_refusal("it has 5 bytes instead of 4");
}

static void test_missing_file_is_refused(void **state)
{
	_cleanup_free_ char *path = fixture_path("minimal", version, "initrd.img");

	(void)state;
	assert_int_equal(unlink(path), 0);
	expect_refusal("initrd.img is missing");
}

static void test_link_in_place_of_a_file_is_refused(void **state)
{
	_cleanup_free_ char *path = fixture_path("minimal", version, "root.qcow2");
	_cleanup_free_ char *moved = fixture_path("minimal", version, "moved");

	(void)state;
	assert_int_equal(rename(path, moved), 0);
	assert_int_equal(symlink("moved", path), 0);
	expect_refusal("root.qcow2 is not a regular file");
}

static void test_what_others_may_write_is_refused(void **state)
{
	_cleanup_free_ char *file = fixture_path("minimal", version, "vmlinuz");
	_cleanup_free_ char *manifest = fixture_path("minimal", version, "manifest.json");
	_cleanup_free_ char *dir = fixture_path("minimal", version, ".");
	_cleanup_free_ char *home = fixture_path("minimal", ".", ".");

	(void)state;
	assert_int_equal(chmod(file, 0464), 0);
	expect_refusal("vmlinuz may be written by others");
	assert_int_equal(chmod(file, 0444), 0);
	assert_int_equal(chmod(manifest, 0446), 0);
	expect_refusal("manifest.json may be written by others");
	assert_int_equal(chmod(manifest, 0444), 0);
	assert_int_equal(chmod(dir, 0775), 0);
	expect_refusal("its version's directory may be written by others");
	assert_int_equal(chmod(dir, 0755), 0);
	assert_int_equal(chmod(home, 0757), 0);
	expect_refusal("its directory may be written by others");
	assert_int_equal(chmod(home, 0755), 0);
	assert_int_equal(chmod(tmpdir, 0777), 0);
	expect_refusal("the directory of all images may be written by others");
}

static void test_what_qemu_cant_read_is_refused(void **state)
{
	_cleanup_free_ char *file = fixture_path("minimal", version, "root.qcow2");
	_cleanup_free_ char *dir = fixture_path("minimal", version, ".");

	(void)state;
	assert_int_equal(chmod(file, 0440), 0);
	expect_refusal("root.qcow2 can't be read by the users that QEMU runs as");
	assert_int_equal(chmod(file, 0444), 0);
	assert_int_equal(chmod(dir, 0750), 0);
	expect_refusal("its version's directory can't be entered");
	assert_int_equal(chmod(dir, 0755), 0);
	assert_int_equal(chmod(tmpdir, 0700), 0);
	expect_refusal("the directory of all images can't be entered");
}

static void test_other_owner_is_refused(void **state)
{
	struct images_config config = fixture_config();
	struct image_stamps stamps;
	struct err err = ERR_INIT;

	(void)state;
	config.owner = geteuid() + 1;
	assert_null(image_verify_blocking(&config, "minimal", version, &stamps, &err));
	assert_err_says(&err, "belongs to uid");
}

static void test_manifest_of_another_image_is_refused(void **state)
{
	const char *const contents[3] = {"kernel", "initrd", "base"};
	char other[FIXTURE_VERSION_BYTES];
	_cleanup_free_ char *path = fixture_path("minimal", version, "manifest.json");
	_cleanup_free_ char *text = fixture_manifest("other", contents, other);

	(void)state;
	fixture_write(path, text);
	expect_refusal("its manifest is that of image \"other\"");
}

static void test_manifest_of_another_version_is_refused(void **state)
{
	const char *const contents[3] = {"kernel", "initrd", "other base"};
	char other[FIXTURE_VERSION_BYTES];
	_cleanup_free_ char *path = fixture_path("minimal", version, "manifest.json");
	_cleanup_free_ char *text = fixture_manifest("minimal", contents, other);

	(void)state;
	fixture_write(path, text);
	expect_refusal("its manifest is that of version");
}

static void test_damaged_manifest_is_refused(void **state)
{
	_cleanup_free_ char *path = fixture_path("minimal", version, "manifest.json");

	(void)state;
	fixture_write(path, "{}");
	expect_refusal("its manifest is damaged at \"format\"");
	fixture_write(path, "");
	expect_refusal("its manifest is not JSON");
}

static void test_loading_names_image_and_fault(void **state)
{
	struct images_config config = fixture_config();
	_cleanup_free_ char *path = fixture_path("minimal", version, "root.qcow2");
	struct err err = ERR_INIT;

	(void)state;
	assert_null(image_load_blocking(&config, "other", NULL, &err));
	assert_int_equal(err.kind, ERR_NOT_FOUND);
	assert_null(image_load_blocking(&config, "../minimal", NULL, &err));
	assert_int_equal(err.kind, ERR_NOT_FOUND);
	assert_null(image_load_blocking(&config, "minimal", "../x", &err));
	assert_int_equal(err.kind, ERR_NOT_FOUND);
	fixture_damage(path);
	assert_null(image_load_blocking(&config, NULL, NULL, &err));
	assert_string_equal(
		err.msg, "image \"minimal\" is refused: root.qcow2 doesn't match its manifest");
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, make_image, tmpdir_drop)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_sound_image_is_accepted),
		TEST(test_flipped_byte_is_refused_in_each_file),
		TEST(test_wrong_size_is_refused_with_both),
		TEST(test_missing_file_is_refused),
		TEST(test_link_in_place_of_a_file_is_refused),
		TEST(test_what_others_may_write_is_refused),
		TEST(test_what_qemu_cant_read_is_refused),
		TEST(test_other_owner_is_refused),
		TEST(test_manifest_of_another_image_is_refused),
		TEST(test_manifest_of_another_version_is_refused),
		TEST(test_damaged_manifest_is_refused),
		TEST(test_loading_names_image_and_fault),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
