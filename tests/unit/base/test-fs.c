#include "tests/lib/cm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/xalloc.h"

static char *dir;

static char *in_dir(const char *name)
{
	return xasprintf("%s/%s", dir, name);
}

static mode_t mode_of(const char *path)
{
	struct stat st;

	assert_int_equal(lstat(path, &st), 0);
	return st.st_mode & 07777;
}

static int make_dir(void **state)
{
	(void)state;
	dir = xstrdup("/tmp/paddock-fs-XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static int drop_dir(void **state)
{
	struct err err;

	(void)state;
	int rc = fs_remove_tree(dir, &err);
	free(dir);
	return rc;
}

static void test_write_then_read_gives_the_same(void **state)
{
	_cleanup_free_ char *path = in_dir("f");
	_cleanup_free_ char *text = NULL;
	size_t len = 0;
	struct err err;

	(void)state;
	assert_ok(fs_write_atomic(path, "a\0b", 3, 0640, &err), &err);
	assert_ok(fs_read(path, 3, &text, &len, &err), &err);
	assert_int_equal(len, 3);
	assert_memory_equal(text, "a\0b", 4);
	assert_int_equal(mode_of(path), 0640);
}

static void test_read_refuses_one_byte_over_the_cap(void **state)
{
	_cleanup_free_ char *path = in_dir("big");
	_cleanup_free_ char *text = NULL;
	struct err err;

	(void)state;
	assert_ok(fs_write_atomic(path, "1234", 4, 0600, &err), &err);
	assert_err(fs_read(path, 3, &text, NULL, &err), &err, ERR_TOO_LARGE);
	assert_null(text);
}

static void test_read_of_nothing_is_not_found(void **state)
{
	_cleanup_free_ char *path = in_dir("missing");
	_cleanup_free_ char *text = NULL;
	struct err err;

	(void)state;
	assert_err(fs_read(path, 3, &text, NULL, &err), &err, ERR_NOT_FOUND);
}

static void test_failed_write_leaves_the_old_content(void **state)
{
	_cleanup_free_ char *path = in_dir("dir");
	struct err err;

	(void)state;
	assert_ok(fs_mkdir(path, 0700, &err), &err);
	/* A directory can't be replaced by a file. */
	assert_err(fs_write_atomic(path, "x", 1, 0600, &err), &err, ERR_INTERNAL);
	assert_int_equal(mode_of(path), 0700);
}

static void test_mkdir_sets_the_exact_mode_once(void **state)
{
	_cleanup_free_ char *path = in_dir("m/n/o");
	struct err err;

	(void)state;
	mode_t old = umask(077);
	assert_ok(fs_mkdir_parents(path, 0711, &err), &err);
	umask(old);
	assert_int_equal(mode_of(path), 0711);
	assert_ok(fs_mkdir_parents(path, 0700, &err), &err);
	assert_int_equal(mode_of(path), 0711);

	_cleanup_free_ char *slashes = in_dir("m/p//");
	assert_ok(fs_mkdir_parents(slashes, 0711, &err), &err);
	assert_int_equal(mode_of(slashes), 0711);
}

static void test_remove_tree_does_not_follow_links(void **state)
{
	_cleanup_free_ char *tree = in_dir("t/sub");
	_cleanup_free_ char *top = in_dir("t");
	_cleanup_free_ char *outside = in_dir("outside");
	_cleanup_free_ char *link = in_dir("t/sub/link");
	struct err err;

	(void)state;
	assert_ok(fs_mkdir_parents(tree, 0755, &err), &err);
	assert_ok(fs_mkdir(outside, 0755, &err), &err);
	assert_int_equal(symlink(outside, link), 0);
	assert_ok(fs_remove_tree(top, &err), &err);
	assert_int_equal(access(top, F_OK), -1);
	assert_int_equal(access(outside, F_OK), 0);
	assert_ok(fs_remove_tree(top, &err), &err);
	assert_ok(fs_remove(top, &err), &err);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_write_then_read_gives_the_same),
		cmocka_unit_test(test_read_refuses_one_byte_over_the_cap),
		cmocka_unit_test(test_read_of_nothing_is_not_found),
		cmocka_unit_test(test_failed_write_leaves_the_old_content),
		cmocka_unit_test(test_mkdir_sets_the_exact_mode_once),
		cmocka_unit_test(test_remove_tree_does_not_follow_links),
	};

	return cmocka_run_group_tests(tests, make_dir, drop_dir);
}
