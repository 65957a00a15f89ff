#include "tests/lib/cm.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sandbox/paths.h"
#include "tests/lib/tmpdir.h"

#define DIGITS       "0123456789abcdef0123"
#define OTHER_DIGITS "ffffffffffffffffffff"
#define ID           "sb_" DIGITS
#define OTHER        "sb_" OTHER_DIGITS

static void test_layout_keeps_disk_and_sockets_apart(void **state)
{
	struct hv_paths paths;

	(void)state;
	paths_init(&paths, "/var/lib/paddock", "/run/paddock", ID);
	assert_string_equal(paths.disk_dir, "/var/lib/paddock/sandboxes/" ID "/disk");
	assert_string_equal(paths.overlay, "/var/lib/paddock/sandboxes/" ID "/disk/overlay.qcow2");
	assert_string_equal(paths.run_dir, "/run/paddock/0123456789abcdef0123");
	assert_string_equal(paths.agent_socket, "/run/paddock/0123456789abcdef0123/agent");
	assert_string_equal(paths.console_socket, "/run/paddock/0123456789abcdef0123/console");
	paths_fini(&paths);
}

static void test_run_directory_may_be_just_long_enough(void **state)
{
	char *base = tmpdir_path("r");
	char dir[PATHS_SOCKET_MAX + 1];
	size_t most = PATHS_SOCKET_MAX - strlen("/0123456789abcdef0123/console");
	struct hv_paths paths;
	struct err err;

	(void)state;
	memset(dir, 'r', sizeof dir);
	memcpy(dir, base, strlen(base));
	dir[most] = '\0';
	assert_ok(paths_prepare(tmpdir, dir, &err), &err);
	paths_init(&paths, tmpdir, dir, ID);
	assert_int_equal(strlen(paths.console_socket), PATHS_SOCKET_MAX);
	paths_fini(&paths);

	dir[most] = 'r';
	dir[most + 1] = '\0';
	assert_err(paths_prepare(tmpdir, dir, &err), &err, ERR_INTERNAL);
	assert_err_says(&err, "too long by 1 bytes");
	free(base);
}

static void make_dir(const char *parent, const char *name)
{
	char *path = xasprintf("%s/%s/%s", tmpdir, parent, name);
	struct err err;

	assert_ok(fs_mkdir_parents(path, 0700, &err), &err);
	free(path);
}

static void test_list_finds_each_id_once_and_nothing_else(void **state)
{
	char *run_dir = tmpdir_path("run");
	struct paths_list list;
	struct err err;

	(void)state;
	assert_ok(paths_prepare(tmpdir, run_dir, &err), &err);
	make_dir("sandboxes", ID);
	make_dir("sandboxes", "lost+found");
	make_dir("sandboxes", "sb_short");
	make_dir("run", DIGITS);
	make_dir("run", OTHER_DIGITS);
	make_dir("run", "libvirt");
	make_dir("run", OTHER);
	assert_ok(paths_list(tmpdir, run_dir, &list, &err), &err);
	assert_int_equal(list.count, 2);
	assert_string_equal(list.ids[0], ID);
	assert_string_equal(list.ids[1], OTHER);
	paths_list_fini(&list);
	free(run_dir);
}

static void test_home_goes_with_everything_in_it(void **state)
{
	char *home = tmpdir_path("sandboxes/" ID);
	char *run_dir = tmpdir_path("run");
	struct stat st;
	struct err err;

	(void)state;
	assert_ok(paths_prepare(tmpdir, run_dir, &err), &err);
	assert_ok(paths_make_home(tmpdir, ID, &err), &err);
	assert_int_equal(stat(home, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0711);
	make_dir("sandboxes/" ID, "disk");
	assert_ok(paths_remove_home(tmpdir, ID, &err), &err);
	assert_int_not_equal(access(home, F_OK), 0);
	assert_ok(paths_remove_home(tmpdir, ID, &err), &err);
	free(home);
	free(run_dir);
}

static void set_time(const char *name, time_t at)
{
	char *path = xasprintf("%s/%s", tmpdir, name);
	const struct timespec times[] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = at}};

	assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
	free(path);
}

static void test_the_last_change_is_that_of_the_youngest_part(void **state)
{
	char *run_dir = tmpdir_path("run");
	bool has_home = true;

	(void)state;
	assert_int_equal(paths_changed_ms(tmpdir, run_dir, ID, &has_home), 0);
	assert_false(has_home);
	make_dir("run", DIGITS);
	set_time("run/" DIGITS, 1000);
	assert_int_equal(paths_changed_ms(tmpdir, run_dir, ID, &has_home), 1000000);
	assert_false(has_home);
	make_dir("sandboxes/" ID, "disk");
	set_time("sandboxes/" ID "/disk", 3000);
	set_time("sandboxes/" ID, 2000);
	assert_int_equal(paths_changed_ms(tmpdir, run_dir, ID, &has_home), 3000000);
	assert_true(has_home);
	make_dir("sandboxes/" ID "/disk", "overlay.qcow2");
	set_time("sandboxes/" ID "/disk/overlay.qcow2", 5000);
	set_time("sandboxes/" ID "/disk", 3000);
	assert_int_equal(paths_changed_ms(tmpdir, run_dir, ID, &has_home), 5000000);
	free(run_dir);
}

int main(void)
{
#define IN_DIR(test) cmocka_unit_test_setup_teardown(test, tmpdir_make, tmpdir_drop)
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_layout_keeps_disk_and_sockets_apart),
		IN_DIR(test_run_directory_may_be_just_long_enough),
		IN_DIR(test_list_finds_each_id_once_and_nothing_else),
		IN_DIR(test_home_goes_with_everything_in_it),
		IN_DIR(test_the_last_change_is_that_of_the_youngest_part),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
