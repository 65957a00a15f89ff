#include "hv/overlay.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/xalloc.h"
#include "loop/loop.h"

/*
 * Theory of operation. Both directories stay the daemon's own, so removing them never walks through
 * something that a guest's QEMU could swap under our feet. qemu-img reads the base (root's, 0444)
 * only for its header and gets format and size spelled out.
 */

#define QEMU_IMG         "qemu-img"
#define OUTPUT_BYTES_MAX 512

static void quiet_spawn_attributes(posix_spawnattr_t *attr)
{
	sigset_t none, all;

	sigemptyset(&none);
	sigfillset(&all);
	/* KILL and STOP can't be set, and posix_spawn() skips what can't. */
	posix_spawnattr_init(attr);
	posix_spawnattr_setsigmask(attr, &none);
	posix_spawnattr_setsigdefault(attr, &all);
	posix_spawnattr_setflags(attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
}

/* The beginning of what comes out of @fd, up to its end. */
static void read_output(int fd, char out[OUTPUT_BYTES_MAX])
{
	size_t len = 0;
	char rest[256];

	for (;;) {
		bool is_full = len == OUTPUT_BYTES_MAX - 1;
		ssize_t n = is_full ? read(fd, rest, sizeof rest)
				    : read(fd, out + len, OUTPUT_BYTES_MAX - 1 - len);

		if (n <= 0 && !(n < 0 && errno == EINTR)) {
			break;
		}
		if (n > 0 && !is_full) {
			len += (size_t)n;
		}
	}
	out[len] = '\0';
	out[strcspn(out, "\n")] = '\0';
}

/* Runs @argv with its output in @output; returns 0 if it exited with 0. */
static int run(char *const argv[], char output[OUTPUT_BYTES_MAX], struct err *err)
{
	int pipe_fds[2];
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	char *const env[] = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"LC_ALL=C", NULL};
	pid_t pid;
	int status;

	if (pipe2(pipe_fds, O_CLOEXEC) != 0) {
		return err_sys(err, errno, "make a pipe");
	}
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&actions, pipe_fds[1], STDOUT_FILENO);
	posix_spawn_file_actions_adddup2(&actions, pipe_fds[1], STDERR_FILENO);
	quiet_spawn_attributes(&attr);
	int rc = posix_spawnp(&pid, argv[0], &actions, &attr, argv, env);

	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&actions);
	close(pipe_fds[1]);
	if (rc != 0) {
		close(pipe_fds[0]);
		return err_sys(err, rc, "run %s", argv[0]);
	}
	read_output(pipe_fds[0], output);
	close(pipe_fds[0]);
	while (waitpid(pid, &status, 0) < 0) {
		if (errno != EINTR) {
			return err_sys(err, errno, "wait for %s", argv[0]);
		}
	}
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
		return err_set(err, ERR_INTERNAL, "%s: %s", argv[0], output);
	}
	return 0;
}

static int disk_full(struct err *err)
{
	return err_set(err, ERR_UNAVAILABLE, "the host's disk is full");
}

static bool is_full(int sys)
{
	return sys == ENOSPC || sys == EDQUOT;
}

bool overlay_says_full(const char *output)
{
	static const int errors[] = {ENOSPC, EDQUOT};
	size_t len = strlen(output);

	for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
		char text[128];
		const char *error = strerror_r(errors[i], text, sizeof text);
		size_t error_len = strlen(error);

		if (len >= error_len && strcmp(output + len - error_len, error) == 0) {
			return true;
		}
	}
	return false;
}

static int create_image(const struct hv_spec *spec, const char *path, struct err *err)
{
	char size[24];
	char output[OUTPUT_BYTES_MAX] = "";
	char *const argv[] = {(char *)QEMU_IMG, (char *)"create", (char *)"-q", (char *)"-f",
		(char *)"qcow2", (char *)"-F", (char *)"qcow2", (char *)"-b",
		(char *)spec->base_image, (char *)path, size, NULL};

	snprintf(size, sizeof size, "%" PRIu64, spec->disk_bytes);
	if (run(argv, output, err) == 0) {
		return 0;
	}
	return overlay_says_full(output) ? disk_full(err) : -1;
}

/* Makes @path anew, empty and ours alone. */
static int renew_directory(const char *path, struct err *err)
{
	if (fs_remove_tree(path, err) != 0) {
		return -1;
	}
	if (mkdir(path, 0700) != 0) {
		return is_full(errno) ? disk_full(err)
				      : err_sys(err, errno, "make directory %s", path);
	}
	return 0;
}

int overlay_prepare_run_blocking(const struct hv_paths *paths, struct err *err)
{
	ASSERT(!loop_is_current());
	return renew_directory(paths->run_dir, err);
}

static int hand_over(const struct hv_spec *spec, const char *path, struct err *err)
{
	if (chmod(path, 0600) != 0 || lchown(path, spec->uid, spec->gid) != 0 ||
		chmod(spec->paths->disk_dir, 0711) != 0) {
		return err_sys(err, errno, "give %s to its user", path);
	}
	return 0;
}

int overlay_create_blocking(const struct hv_spec *spec, struct err *err)
{
	ASSERT(!loop_is_current());
	if (renew_directory(spec->paths->disk_dir, err) != 0 ||
		create_image(spec, spec->paths->overlay, err) != 0 ||
		hand_over(spec, spec->paths->overlay, err) != 0) {
		struct err ignored;

		(void)fs_remove_tree(spec->paths->disk_dir, &ignored);
		return -1;
	}
	return overlay_prepare_run_blocking(spec->paths, err);
}

int overlay_prepare_blocking(const struct hv_spec *spec, struct err *err)
{
	const char *path = spec->paths->overlay_next;

	if (overlay_discard_blocking(spec->paths, err) != 0) {
		return -1;
	}
	if (create_image(spec, path, err) != 0 || hand_over(spec, path, err) != 0) {
		(void)unlink(path);
		return -1;
	}
	return 0;
}

int overlay_swap_blocking(const struct hv_paths *paths, struct err *err)
{
	ASSERT(!loop_is_current());
	if (rename(paths->overlay_next, paths->overlay) != 0) {
		return errno == ENOENT
			       ? err_set(err, ERR_NOT_FOUND, "no fresh disk is prepared")
			       : err_sys(err, errno, "put %s in place", paths->overlay_next);
	}
	return 0;
}

int overlay_discard_blocking(const struct hv_paths *paths, struct err *err)
{
	ASSERT(!loop_is_current());
	if (unlink(paths->overlay_next) != 0 && errno != ENOENT) {
		return err_sys(err, errno, "remove %s", paths->overlay_next);
	}
	return 0;
}

int overlay_remove_blocking(const struct hv_paths *paths, struct err *err)
{
	struct err first = ERR_INIT;

	ASSERT(!loop_is_current());
	/* Both are tried: what can be freed is. */
	(void)fs_remove_tree(paths->run_dir, &first);
	if (fs_remove_tree(paths->disk_dir, err) != 0) {
		return -1;
	}
	if (first.kind != ERR_NONE) {
		*err = first;
		return -1;
	}
	return 0;
}
