#include "tests/lib/cm.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/xalloc.h"
#include "hv/process.h"
#include "off-loop.h"

#define NAME "paddock-01234567-sb_00112233445566778899"

static char *pid_file;
static struct loop *loop;
extern char **environ;

/* A process whose command line is like QEMU's for that domain. */
static pid_t spawn_like(const char *name)
{
	_cleanup_free_ char *guest = xasprintf("guest=%s,debug-threads=on", name);
	char *const argv[] = {
		(char *)"sh", (char *)"-c", (char *)"kill -STOP $$", (char *)"-name", guest, NULL};
	pid_t pid;

	assert_int_equal(posix_spawn(&pid, "/bin/sh", NULL, NULL, argv, environ), 0);
	return pid;
}

static void write_pid(pid_t pid)
{
	char text[32];
	struct err err;

	int len = snprintf(text, sizeof text, "%d\n", (int)pid);
	assert_ok(fs_write_atomic(pid_file, text, (size_t)len, 0600, &err), &err);
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* posix_spawn() returns when the new program is there, so its command line is, too. */
static pid_t spawn_and_find(struct process *ret)
{
	struct err err;
	pid_t pid = spawn_like(NAME);

	write_pid(pid);
	assert_ok(process_find(pid_file, NAME, ret, &err), &err);
	assert_int_equal(ret->pid, pid);
	return pid;
}

static void test_a_domain_s_process_is_found(void **state)
{
	struct process process;

	(void)state;
	pid_t pid = spawn_and_find(&process);
	assert_true(process.start > 0);
	assert_true(process_is_alive(&process));
	end(pid);
	assert_false(process_is_alive(&process));
}

static void test_a_process_of_another_domain_isn_t_taken(void **state)
{
	struct process process;
	struct err err;

	(void)state;
	pid_t pid = spawn_like(NAME "0");
	write_pid(pid);
	assert_err(process_find(pid_file, NAME, &process, &err), &err, ERR_NOT_FOUND);
	end(pid);
}

static void test_a_zombie_counts_as_gone(void **state)
{
	struct process process;
	struct err err;
	siginfo_t info;

	(void)state;
	pid_t pid = spawn_and_find(&process);
	kill(pid, SIGKILL);
	assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
	assert_false(process_is_alive(&process));
	assert_err(process_find(pid_file, NAME, &process, &err), &err, ERR_NOT_FOUND);
	end(pid);
}

static void test_a_reused_number_is_another_process(void **state)
{
	struct process process;
	struct err err;
	int fd;

	(void)state;
	pid_t pid = spawn_and_find(&process);
	process.start--;
	assert_false(process_is_alive(&process));
	assert_err(process_open(&process, NAME, &fd, &err), &err, ERR_NOT_FOUND);
	end(pid);
}

static void test_bad_pid_files_are_refused(void **state)
{
	struct process process;
	struct err err;

	(void)state;
	assert_ok(fs_remove(pid_file, &err), &err);
	assert_err(process_find(pid_file, NAME, &process, &err), &err, ERR_NOT_FOUND);
	assert_ok(fs_write_atomic(pid_file, "0\n", 2, 0600, &err), &err);
	assert_int_equal(process_find(pid_file, NAME, &process, &err), -1);
	assert_ok(fs_write_atomic(pid_file, "-1\n", 3, 0600, &err), &err);
	assert_int_equal(process_find(pid_file, NAME, &process, &err), -1);
	assert_ok(fs_write_atomic(pid_file, "12x\n", 4, 0600, &err), &err);
	assert_int_equal(process_find(pid_file, NAME, &process, &err), -1);
}

static void wait_short(void *arg)
{
	assert_false(process_wait_blocking(*(int *)arg, 50));
}

static void wait_long(void *arg)
{
	assert_true(process_wait_blocking(*(int *)arg, 30000));
}

static void test_a_process_is_pinned_killed_and_awaited(void **state)
{
	struct process process;
	struct err err;
	int fd = -1;

	(void)state;
	pid_t pid = spawn_and_find(&process);
	assert_ok(process_open(&process, NAME, &fd, &err), &err);
	off_loop(wait_short, &fd);
	process_kill(fd);
	/* Nobody has reaped it yet. */
	off_loop(wait_long, &fd);
	close(fd);
	end(pid);
}

static bool has_state(pid_t pid, char wanted)
{
	_cleanup_free_ char *path = xasprintf("/proc/%d/stat", (int)pid);
	_cleanup_free_ char *text = NULL;
	struct err err;

	assert_ok(fs_read(path, 4096, &text, NULL, &err), &err);
	return strrchr(text, ')')[2] == wanted;
}

static void test_a_process_is_stopped_and_goes_on(void **state)
{
	char *const argv[] = {(char *)"sh", (char *)"-c", (char *)"read line", (char *)"-name",
		(char *)"guest=" NAME ",", NULL};
	posix_spawn_file_actions_t actions;
	struct process process;
	struct err err;
	pid_t pid;
	int fds[2];
	int fd = -1;

	(void)state;
	assert_int_equal(pipe(fds), 0);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, fds[0], STDIN_FILENO);
	assert_int_equal(posix_spawn(&pid, "/bin/sh", &actions, NULL, argv, environ), 0);
	posix_spawn_file_actions_destroy(&actions);
	write_pid(pid);
	assert_ok(process_find(pid_file, NAME, &process, &err), &err);
	assert_ok(process_open(&process, NAME, &fd, &err), &err);
	process_stop(fd);
	await(loop, has_state(pid, 'T'), 30000);
	assert_true(process_is_alive(&process));
	process_continue(fd);
	await(loop, !has_state(pid, 'T'), 30000);
	close(fd);
	close(fds[0]);
	close(fds[1]);
	end(pid);
}

/* ---- the scan ---- */

#define ROOT        "/var/lib/paddock/libvirt"
#define NAMES(text) process_args_name(text, sizeof text - 1, ROOT)

static void test_a_root_is_named_by_whole_components_alone(void **state)
{
	(void)state;
	assert_true(NAMES(ROOT));
	assert_true(NAMES("qemu\0-x\0" ROOT "\0-y"));
	assert_true(NAMES("unix:" ROOT "/lib/qemu/qmp-1/qmp.monitor,server=on"));
	assert_true(NAMES("{\"file\":\"" ROOT "/lib/master-key.aes\"}"));
	assert_true(NAMES("secret,file=" ROOT ",x=y"));
	assert_true(NAMES("/srv" ROOT "/x\0file=" ROOT "/x"));
	assert_false(NAMES(""));
	assert_false(NAMES("qemu\0-x"));
	assert_false(NAMES(ROOT "2/lib"));
	assert_false(NAMES(ROOT "-old"));
	assert_false(NAMES("file=/srv" ROOT "/lib"));
	assert_false(NAMES("file=x" ROOT "/lib"));
	assert_false(NAMES("/var/lib/paddock/libvir"));
	assert_false(NAMES(ROOT "/.."));
	assert_false(NAMES("unix:" ROOT "/../libvirt-old/lib,server=on"));
	assert_false(NAMES(ROOT "/lib/../../x"));
	assert_true(NAMES(ROOT "/..x/x..//..."));
	assert_true(NAMES(ROOT "/../x\0" ROOT "/x\0/.."));
}

/* A process that the kernel calls @program, with @arg and a name for a domain. */
static pid_t spawn_called(const char *program, const char *arg, const char *guest)
{
	_cleanup_free_ char *dir = xasprintf("%s.d", pid_file);
	_cleanup_free_ char *path = xasprintf("%s/%s", dir, program);
	_cleanup_free_ char *name = xasprintf("guest=%s,debug-threads=on", guest);
	char *const argv[] = {(char *)"sh", (char *)"-c", (char *)"kill -STOP $$", (char *)arg,
		(char *)"-name", name, NULL};
	struct err err;
	pid_t pid;

	assert_ok(fs_mkdir_parents(dir, 0700, &err), &err);
	(void)unlink(path);
	assert_int_equal(symlink("/bin/sh", path), 0);
	assert_int_equal(posix_spawn(&pid, path, NULL, NULL, argv, environ), 0);
	return pid;
}

static void test_qemus_below_a_root_are_found_and_no_others(void **state)
{
	_cleanup_free_ char *root = xasprintf("%s.root", pid_file);
	_cleanup_free_ char *ours = xasprintf("file=%s/key", root);
	_cleanup_free_ char *longer = xasprintf("file=%s2/key", root);
	struct process_found *found;
	size_t count;
	struct err err;

	(void)state;
	pid_t pids[] = {spawn_called("qemu-system-test", ours, NAME),
		spawn_called("qemu-system-test", longer, NAME), spawn_called("less", ours, NAME)};

	assert_ok(process_scan(root, &found, &count, &err), &err);
	assert_int_equal(count, 1);
	assert_int_equal(found[0].process.pid, pids[0]);
	assert_string_equal(found[0].domain, NAME);
	assert_true(process_is_alive(&found[0].process));
	int64_t age = clock_wall_ms() - process_started_at_ms(&found[0].process);

	/* Ticks of a hundredth, and a machine that may be busy. */
	assert_in_range(age + 1000, 0, 120000);

	char domain[PROCESS_DOMAIN_BYTES];
	struct process process = found[0].process;
	int fd;

	process_scan_fini(found, count);
	process.start++;
	assert_err(process_open_below(&process, root, domain, &fd, &err), &err, ERR_NOT_FOUND);
	process.start--;
	assert_err(process_open_below(&process, ROOT, domain, &fd, &err), &err, ERR_NOT_FOUND);
	assert_ok(process_open_below(&process, root, domain, &fd, &err), &err);
	assert_string_equal(domain, NAME);
	close(fd);
	for (size_t i = 0; i < ARRAY_SIZE(pids); i++) {
		end(pids[i]);
	}
	assert_err(process_open_below(&process, root, domain, &fd, &err), &err, ERR_NOT_FOUND);
	assert_ok(process_scan(root, &found, &count, &err), &err);
	assert_int_equal(count, 0);
	process_scan_fini(found, count);
	assert_int_equal(process_started_at_ms(&(struct process){0}), 0);
}

/* ---- without descriptors ---- */

#define FEW 64

/* All but @free_count. */
static size_t take_descriptors(int holders[FEW], size_t free_count, struct rlimit *ret_before)
{
	size_t count = 0;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, ret_before), 0);
	const struct rlimit few = {.rlim_cur = FEW, .rlim_max = ret_before->rlim_max};

	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	for (int fd; count < FEW && (fd = fcntl(0, F_DUPFD_CLOEXEC, 3)) >= 0;) {
		holders[count++] = fd;
	}
	for (size_t i = 0; i < free_count; i++) {
		assert_true(count > 0);
		close(holders[--count]);
	}
	return count;
}

static void give_descriptors(int holders[FEW], size_t count, const struct rlimit *before)
{
	while (count > 0) {
		close(holders[--count]);
	}
	assert_int_equal(setrlimit(RLIMIT_NOFILE, before), 0);
}

struct outcomes {
	struct err find, open, below, scan;
	bool is_alive;
};

/* A live process that is looked for with @free_count descriptors left. */
static void look_with_few(size_t free_count, struct outcomes *ret)
{
	_cleanup_free_ char *root = xasprintf("%s.root", pid_file);
	_cleanup_free_ char *ours = xasprintf("file=%s/key", root);
	char domain[PROCESS_DOMAIN_BYTES];
	struct process_found *found = NULL;
	size_t found_count = 0;
	int holders[FEW];
	struct rlimit before;
	int fd = -1;
	struct process process;
	struct err err;
	pid_t pid = spawn_called("qemu-system-test", ours, NAME);

	write_pid(pid);
	assert_ok(process_find(pid_file, NAME, &process, &err), &err);
	*ret = (struct outcomes){0};
	size_t count = take_descriptors(holders, free_count, &before);
	struct process again;

	ret->is_alive = process_is_alive(&process);
	(void)process_find(pid_file, NAME, &again, &ret->find);
	if (process_open(&process, NAME, &fd, &ret->open) == 0) {
		close(fd);
	}
	if (process_open_below(&process, root, domain, &fd, &ret->below) == 0) {
		close(fd);
	}
	if (process_scan(root, &found, &found_count, &ret->scan) == 0) {
		process_scan_fini(found, found_count);
	}
	give_descriptors(holders, count, &before);
	assert_int_equal(found_count, free_count > 1 ? 1 : 0);
	end(pid);
}

static void test_what_can_t_be_seen_for_want_of_descriptors_isn_t_gone(void **state)
{
	struct outcomes outcomes;

	(void)state;
	look_with_few(0, &outcomes);
	assert_true(outcomes.is_alive);
	assert_int_equal(outcomes.find.kind, ERR_UNAVAILABLE);
	assert_int_equal(outcomes.open.kind, ERR_UNAVAILABLE);
	assert_int_equal(outcomes.below.kind, ERR_UNAVAILABLE);
	assert_int_equal(outcomes.scan.kind, ERR_UNAVAILABLE);
	/* One, which the pidfd or /proc itself takes. */
	look_with_few(1, &outcomes);
	assert_true(outcomes.is_alive);
	assert_int_equal(outcomes.find.kind, ERR_NONE);
	assert_int_equal(outcomes.open.kind, ERR_UNAVAILABLE);
	assert_int_equal(outcomes.below.kind, ERR_UNAVAILABLE);
	assert_int_equal(outcomes.scan.kind, ERR_UNAVAILABLE);
	look_with_few(2, &outcomes);
	assert_int_equal(outcomes.open.kind, ERR_NONE);
	assert_int_equal(outcomes.below.kind, ERR_NONE);
	assert_int_equal(outcomes.scan.kind, ERR_NONE);
}

static int set_up(void **state)
{
	struct err err;
	char path[] = "/tmp/paddock-process-XXXXXX";

	(void)state;
	close(mkstemp(path));
	pid_file = xstrdup(path);
	loop = loop_new(&err);
	return loop ? 0 : -1;
}

static int tear_down(void **state)
{
	(void)state;
	_cleanup_free_ char *dir = xasprintf("%s.d", pid_file);
	struct err err;

	(void)fs_remove_tree(dir, &err);
	unlink(pid_file);
	free(pid_file);
	loop_free(loop);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_domain_s_process_is_found),
		cmocka_unit_test(test_a_process_of_another_domain_isn_t_taken),
		cmocka_unit_test(test_a_zombie_counts_as_gone),
		cmocka_unit_test(test_a_reused_number_is_another_process),
		cmocka_unit_test(test_bad_pid_files_are_refused),
		cmocka_unit_test(test_a_process_is_pinned_killed_and_awaited),
		cmocka_unit_test(test_a_process_is_stopped_and_goes_on),
		cmocka_unit_test(test_a_root_is_named_by_whole_components_alone),
		cmocka_unit_test(test_qemus_below_a_root_are_found_and_no_others),
		cmocka_unit_test(test_what_can_t_be_seen_for_want_of_descriptors_isn_t_gone),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
