/*
 * bare-agent - the least that an agent in a guest could do: the yardstick of the benchmarks
 *
 *   bare-agent COUNT PROGRAM [ARG...]   as a command in a sandbox: starts PROGRAM COUNT times, one
 *                                       after the other, by vfork, exec and wait; prints
 *                                       "count=… p50_us=… p99_us=… min_us=…" on the guest's clock
 *   (as PID 1)                          writes one byte to the agent's port as soon as it is
 *                                       there: what bare QEMU needs from start to hello. Then, for
 *                                       each line with a path that comes, what cat writes of it
 *
 * No protocol, no limits, no cgroup. Kept small enough to review at a glance.
 */

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "proto/limits.h"

static double now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec / 1e3;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a;
	double y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Starts a program and waits for its end. Microseconds; below 0: it couldn't be started. */
static double run_once(char **argv)
{
	double start = now_us();
	int status = 0;
	pid_t pid = vfork();

	if (pid == 0) {
		execv(argv[0], argv);
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &status, 0) < 0 ||
		(WIFEXITED(status) && WEXITSTATUS(status) == 127)) {
		return -1;
	}
	return now_us() - start;
}

static int measure(int count, char **argv)
{
	double *us = calloc((size_t)count, sizeof *us);

	if (us == NULL) {
		return 1;
	}
	for (int i = 0; i < count; i++) {
		us[i] = run_once(argv);
		if (us[i] < 0) {
			fprintf(stderr, "bare-agent: can't run %s\n", argv[0]);
			free(us);
			return 1;
		}
	}
	qsort(us, (size_t)count, sizeof *us, by_value);
	printf("count=%d p50_us=%.0f p99_us=%.0f min_us=%.0f\n", count, us[count / 2],
		us[count * 99 / 100], us[0]);
	free(us);
	return 0;
}

/* The port's device, or -1. */
static int open_port(void)
{
	DIR *dir = opendir("/sys/class/virtio-ports");
	int fd = -1;

	for (struct dirent *entry; dir != NULL && fd < 0 && (entry = readdir(dir)) != NULL;) {
		char path[384];
		char name[64] = "";

		snprintf(path, sizeof path, "/sys/class/virtio-ports/%s/name", entry->d_name);
		int name_fd = open(path, O_RDONLY);

		if (name_fd < 0) {
			continue;
		}
		if (read(name_fd, name, sizeof name - 1) > 0 &&
			strncmp(name, PROTO_PORT_NAME, strlen(PROTO_PORT_NAME)) == 0) {
			snprintf(path, sizeof path, "/dev/%s", entry->d_name);
			fd = open(path, O_RDWR);
		}
		close(name_fd);
	}
	if (dir != NULL) {
		closedir(dir);
	}
	return fd;
}

/* What a command writes, from its pipe to the port. */
static void pass_on(int port, char *path)
{
	static char buf[65536];
	char *argv[] = {"/bin/cat", path, NULL};
	int ends[2];

	if (pipe(ends) < 0) {
		return;
	}
	pid_t pid = vfork();

	if (pid == 0) {
		dup2(ends[1], STDOUT_FILENO);
		execv(argv[0], argv);
		_exit(127);
	}
	close(ends[1]);
	for (ssize_t n; (n = read(ends[0], buf, sizeof buf)) > 0;) {
		for (ssize_t done = 0, m; done < n; done += m) {
			m = write(port, buf + done, (size_t)(n - done));
			if (m < 0) {
				break;
			}
		}
	}
	close(ends[0]);
	waitpid(pid, NULL, 0);
}

static void serve(int port)
{
	char line[256];
	size_t len = 0;

	while (read(port, line + len, 1) == 1) {
		if (line[len] == '\n') {
			line[len] = '\0';
			pass_on(port, line);
			len = 0;
		} else if (len < sizeof line - 1) {
			len++;
		}
	}
}

static void say_hello(void)
{
	const struct timespec pause_a_little = {.tv_nsec = 1000000};
	int fd;

	mount("sysfs", "/sys", "sysfs", 0, NULL);
	mount("devtmpfs", "/dev", "devtmpfs", 0, NULL);
	while ((fd = open_port()) < 0 || write(fd, "h", 1) != 1) {
		if (fd >= 0) {
			close(fd);
		}
		nanosleep(&pause_a_little, NULL);
	}
	serve(fd);
	for (;;) {
		pause();
	}
}

int main(int argc, char **argv)
{
	if (getpid() == 1) {
		say_hello();
	}
	int count = argc < 3 ? 0 : atoi(argv[1]);

	if (count <= 0) {
		fprintf(stderr, "usage: bare-agent COUNT PROGRAM [ARG...]\n");
		return 2;
	}
	return measure(count, argv + 2);
}
