/*
 * Theory of operation
 *
 * The child shares our memory until it calls execve (CLONE_VM|CLONE_VFORK), so nothing is copied
 * however large the agent is, and is born in its cgroup (CLONE_INTO_CGROUP), since moving a process
 * later waits for an RCU grace period. Between the two it only makes system calls and touches
 * nothing of ours but the shared report. All signals are blocked in the agent, so no handler can
 * run in the child either; it unblocks them last.
 *
 * While the child has not called execve the agent waits; guard.c frees it from one that never does.
 *
 * A vfork child that changed its user can't be traced: the kernel marks the shared memory
 * undumpable.
 *
 * Under a sanitizer the child is an ordinary fork.
 */

#include "src/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "src/guard.h"
#include "src/options.h"

/* Enough for the agent's own tables, and what programs expect. */
#define NOFILE_SOFT 1024u
#define NOFILE_HARD 524288u
/* Of a program's name in the line that says why it didn't start. */
#define SAY_MAX_BYTES 1024u

/* Written by the child, read by us after it has called execve or ended. */
struct report {
	volatile int stage;
	volatile int sys;
};

static struct report *report;
static bool must_reset_oom;

int spawn_init(void)
{
	report = mmap(
		NULL, sizeof *report, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (report == MAP_FAILED) {
		return -1;
	}
	/* Init is spared by the OOM killer anyway; elsewhere we ask for it and children undo it. */
	if (!options.is_init && options.can_setuid) {
		must_reset_oom = util_write_text("/proc/self/oom_score_adj", "-1000") == 0;
	}
	struct rlimit files = {NOFILE_SOFT, NOFILE_HARD};
	struct rlimit infinite = {RLIM_INFINITY, RLIM_INFINITY};
	struct rlimit core = {0, RLIM_INFINITY};

	/* Inherited by the commands, to save a few calls each time. The number of processes is the
	 * cgroup's business. */
	if (options.can_setuid) {
		setgroups(0, NULL);
		setrlimit(RLIMIT_NOFILE, &files);
		setrlimit(RLIMIT_NPROC, &infinite);
		setrlimit(RLIMIT_CORE, &core);
	}
	return 0;
}

/* ---- in the child --------------------------------------------------------------------------- */

_noreturn_ static void child_fail(enum spawn_stage stage)
{
	report->sys = errno;
	report->stage = stage;
	_exit(127);
}

/* The start of it: nobody reads the pipe before we have ended, so it must all fit. */
static void say(const char *text)
{
	if (write(STDERR_FILENO, text, strnlen(text, SAY_MAX_BYTES)) < 0) {
		/* Its reader is gone. */
	}
}

/* What a shell would say and return. */
_noreturn_ static void child_not_run(const char *name, int sys)
{
	say("paddock: ");
	say(name);
	if (sys == ENOENT) {
		say(strchr(name, '/') == NULL ? ": command not found\n"
					      : ": No such file or directory\n");
		_exit(127);
	}
	say(sys == EACCES ? ": Permission denied\n" : ": cannot execute\n");
	_exit(126);
}

/*
 * ETXTBSY: somebody has the file open for writing. That may be a file helper which was forked while
 * we had it open and hasn't got to closing what it inherited, so it is tried a few times.
 */
static void exec_patiently(const char *file, char **argv, char **envp)
{
	const struct timespec a_little = {.tv_nsec = 2000000};

	for (int i = 0; i < 10; i++) {
		execve(file, argv, envp);
		if (errno != ETXTBSY) {
			return;
		}
		nanosleep(&a_little, NULL);
		errno = ETXTBSY;
	}
}

static void child_exec(const struct spawn_plan *plan, const char *file)
{
	exec_patiently(file, plan->argv, plan->envp);
	if (errno == ENOEXEC) {
		char *saved = plan->argv[0];

		plan->argv[-1] = (char *)"/bin/sh";
		plan->argv[0] = (char *)file;
		execve("/bin/sh", plan->argv - 1, plan->envp);
		plan->argv[0] = saved;
		errno = ENOEXEC;
	}
}

/* Tries each directory of plan->path. errno says why none did. */
static void child_search(const struct spawn_plan *plan, const char *name)
{
	size_t name_len = strlen(name);
	char file[PATH_MAX];
	int kept = ENOENT;

	for (const char *dir = plan->path; dir != NULL;) {
		const char *colon = strchr(dir, ':');
		size_t len = colon == NULL ? strlen(dir) : (size_t)(colon - dir);

		if (len + name_len + 2 <= sizeof file) {
			memcpy(file, dir, len);
			/* An empty element is the working directory. */
			file[len] = '/';
			memcpy(file + len + (len > 0), name, name_len + 1);
			child_exec(plan, file);
			if (errno != ENOENT && errno != ENOTDIR) {
				kept = errno;
			}
			if (errno == E2BIG || errno == ENOMEM || errno == ETXTBSY) {
				return;
			}
		}
		dir = colon == NULL ? NULL : colon + 1;
	}
	errno = kept;
}

static bool child_set_up(const struct spawn_plan *plan)
{
	setsid();
	if (dup2(plan->in_fd, STDIN_FILENO) < 0 || dup2(plan->out_fd, STDOUT_FILENO) < 0 ||
		dup2(plan->err_fd, STDERR_FILENO) < 0) {
		return false;
	}
	if (plan->has_tty && ioctl(STDIN_FILENO, TIOCSCTTY, 0) != 0) {
		return false;
	}
	if (plan->script_fd == 3) {
		fcntl(3, F_SETFD, 0);
	} else if (plan->script_fd >= 0 && dup2(plan->script_fd, 3) < 0) {
		return false;
	}
	syscall(SYS_close_range, plan->script_fd >= 0 ? 4u : 3u, ~0u, 0u);
	if (must_reset_oom) {
		util_write_text("/proc/self/oom_score_adj", "0");
	}
	if (!options.can_setuid || plan->is_root) {
		return true;
	}
	return setresgid(options.gid, options.gid, options.gid) == 0 &&
	       setresuid(options.uid, options.uid, options.uid) == 0;
}

_noreturn_ static void child_main(const struct spawn_plan *plan)
{
	const char *file = plan->file != NULL ? plan->file : plan->argv[0];
	sigset_t none;

	if (!child_set_up(plan)) {
		child_fail(SPAWN_STAGE_SETUP);
	}
	if (chdir(plan->cwd) != 0) {
		child_fail(SPAWN_STAGE_CWD);
	}
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	util_become_ordinary();
	if (plan->path != NULL && file[0] != '\0' && strchr(file, '/') == NULL) {
		child_search(plan, file);
	} else {
		child_exec(plan, file);
	}
	if (errno == E2BIG || errno == ENOMEM || errno == EAGAIN) {
		child_fail(SPAWN_STAGE_EXEC);
	}
	child_not_run(file, errno);
}

/* ---- clone ---------------------------------------------------------------------------------- */

/*
 * The wrapper of libc would return twice from one frame, so the call is made in place: the child
 * goes on below our stack frame and never returns.
 */
static inline long sys_clone3(struct clone_args *args, size_t size)
{
#if defined(__x86_64__)
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "0"((long)SYS_clone3), "D"(args), "S"(size)
			 : "rcx", "r11", "memory");
	return result;
#elif defined(__aarch64__)
	register long x8 __asm__("x8") = SYS_clone3;
	register long x0 __asm__("x0") = (long)args;
	register long x1 __asm__("x1") = (long)size;

	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1) : "memory");
	return x0;
#else
	(void)args;
	(void)size;
	return -ENOSYS;
#endif
}

__attribute__((noinline)) static long clone_child(const struct spawn_plan *plan)
{
	struct clone_args args = {
		.flags = CLONE_VFORK | CLONE_PARENT_SETTID | (UTIL_IS_SANITIZED ? 0 : CLONE_VM),
		.exit_signal = SIGCHLD,
		.parent_tid = (uint64_t)(uintptr_t)guard_spawn_begins(),
	};

	if (plan->cgroup_fd >= 0) {
		args.flags |= CLONE_INTO_CGROUP;
		args.cgroup = (uint64_t)plan->cgroup_fd;
	}
	long result = sys_clone3(&args, sizeof args);

	if (result == 0) {
		child_main(plan);
	}
	return result;
}

/* Without clone3, or where a seccomp filter hides it: a fork that waits like vfork. */
__attribute__((noinline)) static long fork_child(const struct spawn_plan *plan)
{
	long pid = syscall(SYS_clone, CLONE_VFORK | CLONE_PARENT_SETTID | SIGCHLD, NULL,
		guard_spawn_begins(), NULL, NULL);

	if (pid == 0) {
		int fd = plan->cgroup_fd < 0
				 ? -1
				 : openat(plan->cgroup_fd, "cgroup.procs", O_WRONLY | O_CLOEXEC);

		if (fd >= 0 && write(fd, "0", 1) != 1) {
			child_fail(SPAWN_STAGE_SETUP);
		}
		child_main(plan);
	}
	return pid < 0 ? -errno : pid;
}

void spawn_run(const struct spawn_plan *plan, struct spawn_result *ret)
{
	report->stage = SPAWN_STAGE_DONE;
	report->sys = 0;

	long pid = clone_child(plan);

	if (pid == -ENOSYS) {
		pid = fork_child(plan);
	}
	guard_spawn_ends();
	if (pid < 0) {
		*ret = (struct spawn_result){.stage = SPAWN_STAGE_CLONE, .sys = (int)-pid};
		return;
	}
	if (report->stage != SPAWN_STAGE_DONE) {
		*ret = (struct spawn_result){
			.stage = (enum spawn_stage)report->stage, .sys = report->sys};
		waitpid((pid_t)pid, NULL, 0);
		return;
	}
	*ret = (struct spawn_result){.pid = (pid_t)pid};
}
