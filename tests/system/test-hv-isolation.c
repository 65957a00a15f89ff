/* What QEMU, and whoever breaks into it, can reach on the host; on real libvirt and QEMU. */

#include "tests/lib/cm.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/xalloc.h"
#include "hv-rig.h"

static struct rig rig;

static void assert_status_line(const char *status, const char *key, const char *value)
{
	_cleanup_free_ char *line = xasprintf("\n%s:\t%s", key, value);

	if (!strstr(status, line)) {
		fail_msg("no line \"%s: %s\" in:\n%s", key, value, status);
	}
}

static void test_qemu_runs_as_its_sandbox_and_with_nothing_more(void **state)
{
	struct rig_box box;
	struct hv_facts facts;

	(void)state;
	rig_box_start(&rig, &box, 10, &facts);
	_cleanup_free_ char *status = rig_proc_text(facts.pid, "status");
	assert_status_line(status, "Uid", "300011\t300011\t300011\t300011\n");
	unsigned gid = box.spec.gid;
	_cleanup_free_ char *gids = xasprintf("%u\t%u\t%u\t%u\n", gid, gid, gid, gid);
	assert_status_line(status, "Gid", gids);
	_cleanup_free_ char *groups = xasprintf("%u \n", gid);
	assert_status_line(status, "Groups", groups);
	assert_status_line(status, "CapEff", "0000000000000000\n");
	assert_status_line(status, "NoNewPrivs", "1\n");
	assert_status_line(status, "Seccomp", "2\n");
	rig_box_end(&rig, &box);
}

/* Returns 0 or the errno of connecting to @path. */
static int connect_errno(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
	return connect(fd, (const struct sockaddr *)&address, sizeof address) == 0 ? 0 : errno;
}

static int open_errno(const char *path, int flags)
{
	_cleanup_close_ int fd = open(path, flags | O_CLOEXEC, 0600);

	return fd >= 0 ? 0 : errno;
}

/* In a child: one bit for each thing that another sandbox's user could do. */
static int attack(const struct rig_box *box, const char *monitor, uid_t uid)
{
	int holes = 0;
	_cleanup_free_ char *new_file = xasprintf("%s/new", box->paths.disk_dir);

	if (setgroups(0, NULL) != 0 || setgid(box->spec.gid) != 0 || setuid(uid) != 0) {
		return 0xff;
	}
	holes |= connect_errno(box->paths.agent_socket) != EACCES ? 1 : 0;
	holes |= connect_errno(box->paths.console_socket) != EACCES ? 2 : 0;
	holes |= connect_errno(monitor) != EACCES ? 4 : 0;
	holes |= open_errno(box->paths.overlay, O_RDONLY) != EACCES ? 8 : 0;
	holes |= open_errno(box->base, O_RDWR) != EACCES ? 16 : 0;
	holes |= open_errno(new_file, O_WRONLY | O_CREAT) != EACCES ? 32 : 0;
	/* What it must be able to do, so that the rest isn't refused for a silly reason. */
	holes |= open_errno(box->base, O_RDONLY) != 0 ? 64 : 0;
	return holes;
}

static char *monitor_path(pid_t pid)
{
	_cleanup_free_ char *path = xasprintf("/proc/%d/cmdline", (int)pid);
	char *args;
	size_t len;
	struct err err;

	assert_ok(fs_read(path, 1 << 20, &args, &len, &err), &err);
	for (size_t at = 0; at < len; at += strlen(args + at) + 1) {
		char *found = strstr(args + at, "\"file\":\"");
		char *end = found ? strstr(found, "/master-key.aes") : NULL;
		if (end) {
			char *dir = found + strlen("\"file\":\"");
			char *result = xasprintf("%.*s/monitor.sock", (int)(end - dir), dir);
			free(args);
			return result;
		}
	}
	fail_msg("QEMU's directory isn't on its command line");
	return NULL;
}

static void test_another_sandbox_s_user_reaches_nothing(void **state)
{
	struct rig_box box;
	struct hv_facts facts;
	int status;

	(void)state;
	rig_box_start(&rig, &box, 11, &facts);
	_cleanup_free_ char *monitor = monitor_path(facts.pid);
	assert_int_equal(access(monitor, F_OK), 0);
	assert_int_equal(connect_errno(box.paths.agent_socket), 0);
	pid_t child = fork();
	if (child == 0) {
		_exit(attack(&box, monitor, RIG_UID + 500));
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	/* The sandbox's own user can't add files either, or reach the daemon's sockets. */
	child = fork();
	if (child == 0) {
		_exit(attack(&box, monitor, box.spec.uid));
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(WEXITSTATUS(status), 8);
	rig_box_end(&rig, &box);
}

static void test_the_shared_base_stays_root_s(void **state)
{
	struct rig_box box;
	struct hv_facts facts;
	struct stat before, after;

	(void)state;
	rig_box_init(&rig, &box, 12);
	assert_int_equal(stat(box.base, &before), 0);
	rig_box_fini(&box);
	rig_box_start(&rig, &box, 12, &facts);
	assert_int_equal(stat(box.base, &after), 0);
	assert_int_equal(after.st_uid, before.st_uid);
	assert_int_equal(after.st_mode, before.st_mode);
	assert_int_equal(after.st_ctim.tv_sec, before.st_ctim.tv_sec);
	rig_box_end(&rig, &box);
}

static int open_rig(void **state)
{
	(void)state;
	rig_open(&rig, NULL);
	return 0;
}

static int close_rig(void **state)
{
	(void)state;
	rig_close(&rig, true);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_qemu_runs_as_its_sandbox_and_with_nothing_more),
		cmocka_unit_test(test_another_sandbox_s_user_reaches_nothing),
		cmocka_unit_test(test_the_shared_base_stays_root_s),
	};

	if (!rig_has_image()) {
		puts("skipped: PADDOCK_TEST_IMAGE names no directory with an image");
		return 77;
	}
	return cmocka_run_group_tests(tests, open_rig, close_rig);
}
