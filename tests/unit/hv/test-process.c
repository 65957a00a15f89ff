#include "tests/lib/cm.h"

#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
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
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
