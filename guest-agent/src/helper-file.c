/*
 * Theory of operation
 *
 * Runs as the sandbox user. A descriptor on a file system of the kernel's own (ext4, tmpfs, …) is
 * handed to the agent, which then moves the bytes without a copy through a pipe. Where a read or
 * write may block for as long as somebody likes (FUSE, network, files of /proc that look into a
 * process), the helper keeps the file and hands over a pipe: it blocks, the agent doesn't.
 *
 * A PUT without offset writes into a file without a name (O_TMPFILE) in the target's directory,
 * which is gone by itself if the helper is killed, and gives it the target's name at the commit.
 * Where the file system has no such files it writes into one with a name of its own.
 */

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "proto/msg.h"
#include "src/helper.h"

#define LINKS_MAX    40
#define COPY_BYTES   65536
#define XFS_MAGIC    0x58465342
#define SQUASH_MAGIC 0x73717368
#define ROOTFS_MAGIC 0x858458f6

static bool never_blocks(int fd)
{
	static const unsigned long magics[] = {EXT4_SUPER_MAGIC, TMPFS_MAGIC, ROOTFS_MAGIC,
		XFS_MAGIC, BTRFS_SUPER_MAGIC, SQUASH_MAGIC};
	struct statfs fs;

	if (fstatfs(fd, &fs) != 0) {
		return false;
	}
	for (size_t i = 0; i < ARRAY_SIZE(magics); i++) {
		if ((unsigned long)fs.f_type == magics[i]) {
			return true;
		}
	}
	return false;
}

/* Copies at most @limit bytes; 0 or an errno. Goes on reading after a write error, so that the
 * other side of a pipe isn't stuck. */
static int copy(int from, int to, uint64_t limit)
{
	static char buf[COPY_BYTES];
	int sys = 0;

	while (limit > 0) {
		ssize_t n = read(from, buf, (size_t)MIN(limit, sizeof buf));

		if (n < 0 && errno == EINTR) {
			continue;
		}
		if (n < 0) {
			return errno;
		}
		if (n == 0) {
			break;
		}
		if (sys == 0 && util_write_all(to, buf, (size_t)n) != 0) {
			sys = errno;
		}
		limit -= (uint64_t)n;
	}
	return sys;
}

static void describe(struct helper_message *message, const struct stat *st)
{
	message->kind = HELPER_OPENED;
	message->mode = st->st_mode;
	message->size = (uint64_t)st->st_size;
	message->mtime_ns = (uint64_t)st->st_mtim.tv_sec * 1000000000u +
			    (uint64_t)st->st_mtim.tv_nsec;
}

/* Ends the helper where a path isn't a regular file. */
static void require_regular(int ctl, const struct stat *st)
{
	if (S_ISDIR(st->st_mode)) {
		helper_fail(ctl, EISDIR);
	}
	if (!S_ISREG(st->st_mode)) {
		helper_refuse(ctl, STATUS_NOT_REGULAR);
	}
}

/* ---- get ------------------------------------------------------------------------------------ */

void helper_run_get(int ctl, const struct helper_job *job)
{
	struct helper_message message = {0};
	struct stat st;

	/* Looks before it opens: opening a device or a fifo does things. */
	if (stat(job->path, &st) != 0) {
		helper_fail(ctl, errno);
	}
	require_regular(ctl, &st);
	int fd = open(job->path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);

	if (fd < 0 || fstat(fd, &st) != 0) {
		helper_fail(ctl, errno);
	}
	require_regular(ctl, &st);
	if (job->offset > INT64_MAX || lseek(fd, (off_t)job->offset, SEEK_SET) < 0) {
		helper_fail(ctl, EINVAL);
	}
	describe(&message, &st);
	if (never_blocks(fd)) {
		helper_send(ctl, &message, fd);
		_exit(0);
	}
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) != 0) {
		helper_fail(ctl, errno);
	}
	message.is_pollable = 1;
	helper_send(ctl, &message, ends[0]);
	close(ends[0]);

	uint64_t limit = job->length;

	/* As in the agent: one that grows ends where it ended when it was opened. */
	if (message.size > 0) {
		limit = MIN(limit, message.size > job->offset ? message.size - job->offset : 0);
	}
	int sys = copy(fd, ends[1], limit);

	close(ends[1]);
	helper_fail(ctl, sys);
}

/* ---- put ------------------------------------------------------------------------------------ */

/* Makes the directories above @path that are missing. 0 or an errno. */
static int make_parents(const char *path)
{
	static char dir[sizeof((struct helper_job *)0)->path];
	size_t len = strlen(path);

	memcpy(dir, path, len + 1);
	for (char *p = strchr(dir + 1, '/'); p != NULL; p = strchr(p + 1, '/')) {
		*p = '\0';
		if (mkdir(dir, 0777) != 0 && errno != EEXIST) {
			int sys = errno;
			struct stat st;

			/* A read-only or foreign file system says so even of what is there. */
			if (stat(dir, &st) != 0) {
				return sys;
			}
		}
		*p = '/';
	}
	return 0;
}

/* Follows symbolic links of the last component, also where they lead nowhere yet. 0 or an errno. */
static int resolve(char *path, size_t size)
{
	for (int i = 0; i < LINKS_MAX; i++) {
		static char link[PATH_MAX];
		static char base[sizeof((struct helper_job *)0)->path];
		ssize_t n = readlink(path, link, sizeof link - 1);

		if (n < 0) {
			return errno == EINVAL || errno == ENOENT ? 0 : errno;
		}
		link[n] = '\0';
		char *slash = strrchr(path, '/');
		size_t dir_len = link[0] == '/' || slash == NULL ? 0 : (size_t)(slash - path) + 1;

		if (dir_len + (size_t)n >= size) {
			return ENAMETOOLONG;
		}
		memcpy(base, link, (size_t)n + 1);
		memcpy(path + dir_len, base, (size_t)n + 1);
	}
	return ELOOP;
}

struct put {
	int fd;
	char target[sizeof((struct helper_job *)0)->path];
	bool is_unnamed;
	char temp[sizeof((struct helper_job *)0)->path + 32]; /* "": none */
};

static int open_in_place(struct put *p, const struct helper_job *job, bool exists)
{
	int flags = O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
	mode_t mode = job->has_mode ? job->mode & 07777 : 0644;

	if ((job->flags & MSG_FILE_APPEND) != 0) {
		flags |= O_APPEND;
	} else if (!job->has_offset) {
		flags |= O_TRUNC;
	}
	p->fd = open(p->target, flags, mode);
	if (p->fd < 0) {
		return errno;
	}
	if (job->has_mode && exists && fchmod(p->fd, mode) != 0) {
		return errno;
	}
	if (job->has_offset &&
		(job->offset > INT64_MAX || lseek(p->fd, (off_t)job->offset, SEEK_SET) < 0)) {
		return EINVAL;
	}
	return 0;
}

static int dir_length(const char *path)
{
	return (int)(strrchr(path, '/') - path) + 1;
}

static int open_beside(struct put *p, const struct helper_job *job, const struct stat *old)
{
	snprintf(p->temp, sizeof p->temp, "%.*s", dir_length(p->target), p->target);
	p->fd = open(p->temp, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
	p->is_unnamed = p->fd >= 0;
	if (p->fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR)) {
		strcat(p->temp, ".paddock-XXXXXX");
		p->fd = mkostemp(p->temp, O_CLOEXEC);
	}
	if (p->fd < 0 || p->is_unnamed) {
		p->temp[0] = '\0';
	}
	if (p->fd < 0) {
		return errno;
	}
	mode_t mode = job->has_mode ? job->mode & 07777 : old != NULL ? old->st_mode & 07777 : 0644;

	return fchmod(p->fd, mode) == 0 ? 0 : errno;
}

/* Gives a file without a name one beside its target. 0 or an errno. */
static int name_it(struct put *p)
{
	char self[32];
	uint32_t number;

	snprintf(self, sizeof self, "/proc/self/fd/%d", p->fd);
	for (;;) {
		if (getrandom(&number, sizeof number, GRND_NONBLOCK) != (ssize_t)sizeof number) {
			number = (uint32_t)now_us();
		}
		snprintf(p->temp, sizeof p->temp, "%.*s.paddock-%08x", dir_length(p->target),
			p->target, number);
		if (linkat(AT_FDCWD, self, AT_FDCWD, p->temp, AT_SYMLINK_FOLLOW) == 0) {
			return 0;
		}
		if (errno != EEXIST) {
			p->temp[0] = '\0';
			return errno;
		}
	}
}

/* Replaces the target. 0 or an errno. */
static int publish(struct put *p)
{
	int sys = p->is_unnamed ? name_it(p) : 0;

	if (sys == 0 && p->temp[0] != '\0' && rename(p->temp, p->target) != 0) {
		sys = errno;
	}
	return sys;
}

static int open_target(int ctl, struct put *p, const struct helper_job *job)
{
	struct stat st;
	int sys = resolve(p->target, sizeof p->target);

	if (sys != 0) {
		return sys;
	}
	bool exists = stat(p->target, &st) == 0;

	if (!exists && errno != ENOENT) {
		return errno;
	}
	if (exists) {
		require_regular(ctl, &st);
		if (access(p->target, W_OK) != 0) {
			return errno;
		}
	} else if (p->target[strlen(p->target) - 1] == '/') {
		return EISDIR;
	}
	if (job->has_offset || (job->flags & MSG_FILE_APPEND) != 0) {
		return open_in_place(p, job, exists);
	}
	sys = open_beside(p, job, exists ? &st : NULL);
	/* The file is ours to write but its directory isn't. */
	return (sys == EACCES || sys == EROFS) && exists ? open_in_place(p, job, true) : sys;
}

_noreturn_ static void put_fail(int ctl, const struct put *p, int sys)
{
	if (p->temp[0] != '\0') {
		unlink(p->temp);
	}
	helper_fail(ctl, sys);
}

void helper_run_put(int ctl, const struct helper_job *job)
{
	static struct put p = {.fd = -1};
	struct helper_message message = {0};
	struct stat st;
	int sys = 0;
	char go;

	memcpy(p.target, job->path, sizeof p.target);
	if ((job->flags & MSG_FILE_PARENTS) != 0) {
		sys = make_parents(p.target);
	}
	if (sys == 0) {
		sys = open_target(ctl, &p, job);
	}
	if (sys == 0 && fstat(p.fd, &st) != 0) {
		sys = errno;
	}
	if (sys != 0) {
		put_fail(ctl, &p, sys);
	}
	require_regular(ctl, &st);
	describe(&message, &st);
	if (never_blocks(p.fd)) {
		helper_send(ctl, &message, p.fd);
	} else {
		int ends[2];

		if (pipe2(ends, O_CLOEXEC) != 0) {
			put_fail(ctl, &p, errno);
		}
		message.is_pollable = 1;
		helper_send(ctl, &message, ends[1]);
		close(ends[1]);
		sys = copy(ends[0], p.fd, UINT64_MAX);
	}
	/* One byte: all has been written. End of file: it has been given up. */
	if (sys == 0 && read(ctl, &go, 1) != 1) {
		sys = ECANCELED;
	}
	/* Some file systems say only at a close what they couldn't write. */
	if (sys == 0 && close(dup(p.fd)) != 0) {
		sys = errno;
	}
	if (sys == 0) {
		sys = publish(&p);
	}
	if (sys != 0) {
		put_fail(ctl, &p, sys);
	}
	/* Before anybody hears of it: a program that is still open for writing can't be run. */
	close(p.fd);
	helper_fail(ctl, 0);
}
