#include "hv/process.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/parse.h"
#include "base/xalloc.h"
#include "loop/loop.h"

/*
 * Theory of operation. QEMU started by libvirt's embedded driver is a child of process 1, which in
 * a container may reap late or never: a zombie has released memory, files and sockets, so it counts
 * as gone. A pidfd becomes readable at that very moment, too.
 */

#define STAT_BYTES_MAX    4096
#define CMDLINE_BYTES_MAX (128 * 1024)

/* After a failed look at a process: the want of something of ours tells nothing about it. */
static int look_failed(struct err *err)
{
	if (err->sys == EMFILE || err->sys == ENFILE || err->sys == ENOMEM) {
		err->kind = ERR_UNAVAILABLE;
	}
	return -1;
}

/* State letter and start time of @pid; the command name before them may hold anything. */
static int read_stat(pid_t pid, char *ret_state, uint64_t *ret_start, struct err *err)
{
	char path[64];
	_cleanup_free_ char *text = NULL;

	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	if (fs_read(path, STAT_BYTES_MAX, &text, NULL, err) != 0) {
		/* Reading the file of a process that ends meanwhile gives ESRCH. */
		return err->sys == ESRCH
			       ? err_set(err, ERR_NOT_FOUND, "process %d is gone", (int)pid)
			       : look_failed(err);
	}
	const char *after_name = strrchr(text, ')');

	if (!after_name ||
		sscanf(after_name + 1,
			" %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
			"%*s %" SCNu64,
			ret_state, ret_start) != 2) {
		return err_set(err, ERR_INTERNAL, "%s isn't understood", path);
	}
	return 0;
}

static bool is_dead_state(char state)
{
	return state == 'Z' || state == 'X';
}

/* 0: it is alive. */
static int check_alive(const struct process *process, struct err *err)
{
	char state;
	uint64_t start;

	if (process->pid <= 0) {
		return err_set(err, ERR_NOT_FOUND, "the process isn't known");
	}
	if (read_stat(process->pid, &state, &start, err) != 0) {
		return -1;
	}
	return is_dead_state(state) || start != process->start
		       ? err_set(err, ERR_NOT_FOUND, "process %d is gone", (int)process->pid)
		       : 0;
}

bool process_is_alive(const struct process *process)
{
	struct err err;

	return check_alive(process, &err) == 0 || err.kind == ERR_UNAVAILABLE;
}

static int read_args(pid_t pid, char **ret, size_t *ret_len, struct err *err)
{
	char path[64];

	snprintf(path, sizeof path, "/proc/%d/cmdline", (int)pid);
	return fs_read(path, CMDLINE_BYTES_MAX, ret, ret_len, err) == 0 ? 0 : look_failed(err);
}

/* 0: it does. libvirt passes "-name guest=NAME,debug-threads=on". */
static int check_runs_domain(pid_t pid, const char *name, struct err *err)
{
	_cleanup_free_ char *args = NULL;
	_cleanup_free_ char *wanted = xasprintf("guest=%s,", name);
	size_t len;

	if (read_args(pid, &args, &len, err) != 0) {
		return err->kind == ERR_UNAVAILABLE
			       ? -1
			       : err_set(err, ERR_NOT_FOUND, "process %d is gone", (int)pid);
	}
	for (size_t at = 0; at < len; at += strlen(args + at) + 1) {
		if (strncmp(args + at, wanted, strlen(wanted)) == 0) {
			return 0;
		}
	}
	return err_set(err, ERR_NOT_FOUND, "process %d doesn't run %s", (int)pid, name);
}

int process_find(const char *pid_file, const char *name, struct process *ret, struct err *err)
{
	_cleanup_free_ char *text = NULL;
	int64_t pid;
	char state;
	struct process found;

	if (fs_read(pid_file, 32, &text, NULL, err) != 0) {
		return look_failed(err);
	}
	text[strcspn(text, "\n")] = '\0';
	if (parse_int(text, 1, INT32_MAX, &pid, err) != 0) {
		return err_wrap(err, "process id in %s", pid_file);
	}
	found.pid = (pid_t)pid;
	if (read_stat(found.pid, &state, &found.start, err) != 0) {
		return -1;
	}
	if (is_dead_state(state)) {
		return err_set(err, ERR_NOT_FOUND, "process %d is gone", (int)pid);
	}
	if (check_runs_domain(found.pid, name, err) != 0) {
		return -1;
	}
	*ret = found;
	return 0;
}

static int open_pidfd(const struct process *process, struct err *err)
{
	int fd = pidfd_open(process->pid, 0);

	if (fd >= 0) {
		return fd;
	}
	if (errno == ESRCH) {
		return err_set(err, ERR_NOT_FOUND, "process %d is gone", (int)process->pid);
	}
	(void)err_sys(err, errno, "open process %d", (int)process->pid);
	return look_failed(err);
}

int process_open(const struct process *process, const char *name, int *ret_fd, struct err *err)
{
	if (process->pid <= 0) {
		return err_set(err, ERR_NOT_FOUND, "the process of %s isn't known", name);
	}
	_cleanup_close_ int fd = open_pidfd(process, err);

	/* The rest after the descriptor: what it holds now keeps its number. */
	if (fd < 0 || check_alive(process, err) != 0 ||
		check_runs_domain(process->pid, name, err) != 0) {
		return -1;
	}
	*ret_fd = steal_fd(&fd);
	return 0;
}

int64_t process_started_at_ms(const struct process *process)
{
	long ticks = sysconf(_SC_CLK_TCK);

	if (process->pid <= 0 || ticks <= 0) {
		return 0;
	}
	int64_t after_boot_ms = (int64_t)(process->start * 1000 / (uint64_t)ticks);

	return clock_wall_ms() - ((int64_t)clock_monotonic_ms() - after_boot_ms);
}

/* ---- the scan ---- */

/* The kernel's name of it. /proc/PID/exe says more, but not to a daemon without CAP_SYS_PTRACE. */
static int check_qemu(pid_t pid, struct err *err)
{
	char path[64];
	_cleanup_free_ char *comm = NULL;

	snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
	if (fs_read(path, 64, &comm, NULL, err) != 0) {
		return look_failed(err);
	}
	return strncmp(comm, "qemu-system-", strlen("qemu-system-")) == 0 ||
			       strncmp(comm, "qemu-kvm", strlen("qemu-kvm")) == 0
		       ? 0
		       : err_set(err, ERR_NOT_FOUND, "process %d is no QEMU", (int)pid);
}

/* Whether the path that goes on at @rest leaves where it is by "..". */
static bool climbs(const char *rest, const char *end)
{
	while (rest < end && *rest == '/') {
		size_t len = 0;

		rest++;
		while (rest + len < end && !strchr("/\",", rest[len])) {
			len++;
		}
		if (len == 2 && memcmp(rest, "..", 2) == 0) {
			return true;
		}
		rest += len;
	}
	return false;
}

bool process_args_name(const char *args, size_t len, const char *path)
{
	size_t path_len = strlen(path);
	const char *end = args + len;

	for (const char *at = memmem(args, len, path, path_len); at;
		at = memmem(at + 1, (size_t)(end - at - 1), path, path_len)) {
		const char *after = at + path_len;
		/* What stands before a path in QEMU's options, and what ends a component. */
		bool is_begin = at == args || strchr(":=\",", at[-1]) != NULL;
		bool is_end = after == end || strchr("/\",", *after) != NULL;

		if (is_begin && is_end && !climbs(after, end)) {
			return true;
		}
	}
	return false;
}

/* "-name guest=NAME,debug-threads=on" */
static void read_domain(const char *args, size_t len, char ret[PROCESS_DOMAIN_BYTES])
{
	ret[0] = '\0';
	for (size_t at = 0; at < len; at += strlen(args + at) + 1) {
		const char *name = args + at + strlen("guest=");

		if (strncmp(args + at, "guest=", strlen("guest=")) == 0 &&
			strcspn(name, ",") < PROCESS_DOMAIN_BYTES) {
			snprintf(ret, PROCESS_DOMAIN_BYTES, "%.*s", (int)strcspn(name, ","), name);
			return;
		}
	}
}

/* Fails with ERR_UNAVAILABLE, or otherwise: it is none of those, or has just ended. */
static int look_at(pid_t pid, const char *root, struct process_found *ret, struct err *err)
{
	struct process_found found = {.process.pid = pid};
	_cleanup_free_ char *args = NULL;
	char state;

	if (check_qemu(pid, err) != 0 || read_args(pid, &args, &found.len, err) != 0) {
		return -1;
	}
	if (!process_args_name(args, found.len, root)) {
		return err_set(err, ERR_NOT_FOUND, "process %d is another's", (int)pid);
	}
	if (read_stat(pid, &state, &found.process.start, err) != 0) {
		return -1;
	}
	if (is_dead_state(state)) {
		return err_set(err, ERR_NOT_FOUND, "process %d is gone", (int)pid);
	}
	read_domain(args, found.len, found.domain);
	found.args = steal_ptr(&args);
	*ret = found;
	return 0;
}

DEFINE_CLEANUP(DIR *, closedir)

int process_scan(const char *root, struct process_found **ret, size_t *ret_count, struct err *err)
{
	_cleanup_(closedir_p) DIR *dir = opendir("/proc");
	struct process_found *all = NULL;
	struct process_found found;
	size_t count = 0;

	if (!dir) {
		(void)err_sys(err, errno, "read /proc");
		return look_failed(err);
	}
	for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
		int64_t pid;
		struct err why;

		if (parse_int(entry->d_name, 1, INT32_MAX, &pid, &why) != 0) {
			continue;
		}
		if (look_at((pid_t)pid, root, &found, &why) == 0) {
			all = xrealloc(all, count + 1, sizeof *all);
			all[count++] = found;
		} else if (why.kind == ERR_UNAVAILABLE) {
			process_scan_fini(all, count);
			*err = why;
			return -1;
		}
	}
	*ret = all;
	*ret_count = count;
	return 0;
}

void process_scan_fini(struct process_found *found, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		free(found[i].args);
	}
	free(found);
}

int process_open_below(const struct process *process, const char *root,
	char ret_domain[PROCESS_DOMAIN_BYTES], int *ret_fd, struct err *err)
{
	_cleanup_close_ int fd = open_pidfd(process, err);
	struct process_found found;

	if (fd < 0) {
		return -1;
	}
	/* After the descriptor: what it holds now keeps its number. */
	if (look_at(process->pid, root, &found, err) != 0) {
		return err->kind == ERR_UNAVAILABLE
			       ? -1
			       : err_set(err, ERR_NOT_FOUND, "process %d is gone",
					 (int)process->pid);
	}
	free(found.args);
	if (found.process.start != process->start) {
		return err_set(err, ERR_NOT_FOUND, "process %d is another", (int)process->pid);
	}
	memcpy(ret_domain, found.domain, PROCESS_DOMAIN_BYTES);
	*ret_fd = steal_fd(&fd);
	return 0;
}

bool process_wait_blocking(int pidfd, uint64_t timeout_ms)
{
	uint64_t end = clock_monotonic_ms() + timeout_ms;

	ASSERT(!loop_is_current());
	for (;;) {
		struct pollfd poll_fd = {.fd = pidfd, .events = POLLIN};
		uint64_t now = clock_monotonic_ms();
		int rc = poll(&poll_fd, 1, now < end ? (int)(end - now) : 0);

		if (rc > 0) {
			return true;
		}
		if (rc == 0 || errno != EINTR) {
			return false;
		}
	}
}

/* Fails only when it has ended already. */
static void send_signal(int pidfd, int signal)
{
	(void)pidfd_send_signal(pidfd, signal, NULL, 0);
}

void process_kill(int pidfd)
{
	send_signal(pidfd, SIGKILL);
}

void process_stop(int pidfd)
{
	send_signal(pidfd, SIGSTOP);
}

void process_continue(int pidfd)
{
	send_signal(pidfd, SIGCONT);
}
