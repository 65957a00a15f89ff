#include "tests/lib/cm.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/xalloc.h"
#include "hv/overlay.h"
#include "off-loop.h"

/* qcow2: magic, version, where the backing file's name is, its length; all big-endian. */
#define QCOW2_SIZE_OFFSET 24

static char *dir;
static struct loop *loop;
static struct hv_paths paths;
static struct hv_spec spec;

struct call {
	int rc;
	struct err err;
};

static void call_create(void *arg)
{
	struct call *call = arg;

	call->rc = overlay_create_blocking(&spec, &call->err);
}

static void call_remove(void *arg)
{
	struct call *call = arg;

	call->rc = overlay_remove_blocking(&paths, &call->err);
}

static void assert_created(void)
{
	struct call call;

	off_loop(call_create, &call);
	if (call.rc != 0) {
		fail_msg("%s", call.err.msg);
	}
}

static struct stat stat_of(const char *path)
{
	struct stat st;

	assert_int_equal(lstat(path, &st), 0);
	return st;
}

static void test_the_overlay_has_size_and_base_as_asked(void **state)
{
	_cleanup_free_ char *head = NULL;
	size_t len;
	struct err err;
	uint64_t size = 0;

	(void)state;
	assert_created();
	assert_ok(fs_read(paths.overlay, 1 << 20, &head, &len, &err), &err);
	assert_true(len > 512);
	assert_memory_equal(head, "QFI\xfb", 4);
	for (int i = 0; i < 8; i++) {
		size = size << 8 | (unsigned char)head[QCOW2_SIZE_OFFSET + i];
	}
	assert_int_equal(size, spec.disk_bytes);
	assert_non_null(memmem(head, len, spec.base_image, strlen(spec.base_image)));
}

static void test_only_the_overlay_is_the_sandbox_s(void **state)
{
	(void)state;
	assert_created();
	struct stat overlay = stat_of(paths.overlay);
	assert_int_equal(overlay.st_uid, spec.uid);
	assert_int_equal(overlay.st_gid, spec.gid);
	assert_int_equal(overlay.st_mode & 07777, 0600);
	struct stat disk_dir = stat_of(paths.disk_dir);
	assert_int_equal(disk_dir.st_uid, geteuid());
	assert_int_equal(disk_dir.st_mode & 07777, 0711);
	struct stat run_dir = stat_of(paths.run_dir);
	assert_int_equal(run_dir.st_uid, geteuid());
	assert_int_equal(run_dir.st_mode & 07777, 0700);
}

static void test_leftovers_are_replaced(void **state)
{
	struct err err;
	_cleanup_free_ char *old = xasprintf("%s/old", paths.disk_dir);

	(void)state;
	assert_created();
	assert_ok(fs_write_atomic(old, "x", 1, 0600, &err), &err);
	assert_ok(fs_write_atomic(paths.agent_socket, "x", 1, 0600, &err), &err);
	assert_created();
	assert_int_equal(access(old, F_OK), -1);
	assert_int_equal(access(paths.agent_socket, F_OK), -1);
}

static void test_removing_twice_is_fine(void **state)
{
	struct call call;

	(void)state;
	assert_created();
	off_loop(call_remove, &call);
	assert_int_equal(call.rc, 0);
	assert_int_equal(access(paths.disk_dir, F_OK), -1);
	assert_int_equal(access(paths.run_dir, F_OK), -1);
	off_loop(call_remove, &call);
	assert_int_equal(call.rc, 0);
}

static void test_a_failure_says_why_and_leaves_nothing(void **state)
{
	const char *base = spec.base_image;
	struct call call;

	(void)state;
	spec.base_image = "/nonexistent/base.qcow2";
	off_loop(call_create, &call);
	spec.base_image = base;
	assert_int_equal(call.rc, -1);
	assert_int_equal(call.err.kind, ERR_INTERNAL);
	assert_err_says(&call.err, "/nonexistent/base.qcow2");
	assert_int_equal(access(paths.disk_dir, F_OK), -1);
}

static void test_a_full_disk_is_told_from_other_failures(void **state)
{
	(void)state;
	assert_true(overlay_says_full(
		"qemu-img: /x/disk.qcow2: Could not write: No space left on device"));
	assert_true(overlay_says_full(
		"qemu-img: /x/disk.qcow2: Could not resize: Disk quota exceeded"));
	assert_false(overlay_says_full(
		"qemu-img: No space left on device/b: No such file or directory"));
	assert_false(overlay_says_full("space"));
	assert_false(overlay_says_full(""));
}

static char *in_dir(const char *name)
{
	return xasprintf("%s/%s", dir, name);
}

static int set_up(void **state)
{
	struct err err;

	(void)state;
	dir = xstrdup("/tmp/paddock-overlay-XXXXXX");
	if (!mkdtemp(dir)) {
		return -1;
	}
	paths = (struct hv_paths){.disk_dir = in_dir("disk"),
		.overlay = in_dir("disk/disk.qcow2"),
		.run_dir = in_dir("run"),
		.agent_socket = in_dir("run/agent.sock"),
		.console_socket = in_dir("run/console.sock")};
	/* Not root: only our own ids can be given. */
	bool is_root = geteuid() == 0;
	spec = (struct hv_spec){.id = "sb_00112233445566778899",
		.uid = is_root ? 300001 : geteuid(),
		.gid = is_root ? 300000 : getegid(),
		.disk_bytes = 3ull << 30,
		.base_image = in_dir("base.qcow2"),
		.paths = &paths};
	_cleanup_free_ char *command = xasprintf(
		"qemu-img create -q -f qcow2 '%s' 1M", spec.base_image);
	loop = loop_new(&err);
	return loop && system(command) == 0 ? 0 : -1;
}

static int tear_down(void **state)
{
	struct err err;

	(void)state;
	int rc = fs_remove_tree(dir, &err);
	free(paths.disk_dir);
	free(paths.overlay);
	free(paths.run_dir);
	free(paths.agent_socket);
	free(paths.console_socket);
	free((char *)spec.base_image);
	free(dir);
	loop_free(loop);
	return rc;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_overlay_has_size_and_base_as_asked),
		cmocka_unit_test(test_only_the_overlay_is_the_sandbox_s),
		cmocka_unit_test(test_leftovers_are_replaced),
		cmocka_unit_test(test_removing_twice_is_fine),
		cmocka_unit_test(test_a_failure_says_why_and_leaves_nothing),
		cmocka_unit_test(test_a_full_disk_is_told_from_other_failures),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
