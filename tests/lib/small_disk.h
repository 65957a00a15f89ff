#pragma once

/*
 * small_disk - a file system that a test can fill
 *
 * Purpose: a tmpfs of a few MiB over a directory, in a mount namespace of the test's own: gone with
 *          the process. Call small_disk_enter() before there are threads.
 */

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "base/cleanup.h"

static inline int small_disk_write(const char *path, const char *text)
{
	_cleanup_close_ int fd = open(path, O_WRONLY | O_CLOEXEC);

	return fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) ? 0 : -1;
}

/* As root, or in a user namespace where that is allowed. */
static inline int small_disk_enter(void)
{
	char map[64];

	if (geteuid() == 0) {
		if (unshare(CLONE_NEWNS) < 0) {
			return -1;
		}
	} else {
		snprintf(map, sizeof map, "%u %u 1", (unsigned)geteuid(), (unsigned)geteuid());
		if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0 ||
			small_disk_write("/proc/self/uid_map", map) < 0) {
			return -1;
		}
	}
	return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
}

static inline int small_disk_mount(const char *dir, unsigned mib)
{
	char options[32];

	snprintf(options, sizeof options, "size=%um,mode=0755", mib);
	return mount("tmpfs", dir, "tmpfs", 0, options);
}

/* Appends to @path until nothing fits. */
static inline int small_disk_fill(const char *path)
{
	static char block[4096];
	_cleanup_close_ int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);

	memset(block, 'x', sizeof block);
	while (fd >= 0 && write(fd, block, sizeof block) > 0) {
	}
	return fd >= 0 && errno == ENOSPC ? 0 : -1;
}
