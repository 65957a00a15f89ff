#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/rand.h"
#include "base/xalloc.h"

static int open_failed(struct err *err, const char *path)
{
	int sys = errno;

	if (sys == ENOENT) {
		return err_set(err, ERR_NOT_FOUND, "%s doesn't exist", path);
	}
	return err_sys(err, sys, "open %s", path);
}

int fs_read(const char *path, size_t max, char **ret, size_t *ret_len, struct err *err)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t size = 4096;
	size_t len = 0;

	if (fd < 0) {
		return open_failed(err, path);
	}
	_cleanup_free_ char *data = xcalloc(1, size + 1);

	for (;;) {
		if (len == size) {
			size *= 2;
			data = xrealloc(data, 1, size + 1);
		}
		ssize_t n = read(fd, data + len, size - len);

		if (n < 0 && errno == EINTR) {
			continue;
		}
		if (n < 0) {
			return err_sys(err, errno, "read %s", path);
		}
		if (n == 0) {
			break;
		}
		len += (size_t)n;
		if (len > max) {
			return err_set(
				err, ERR_TOO_LARGE, "%s is larger than %zu bytes", path, max);
		}
	}
	data[len] = '\0';
	*ret = steal_ptr(&data);
	if (ret_len) {
		*ret_len = len;
	}
	return 0;
}

static int write_all(int fd, const char *data, size_t len)
{
	while (len > 0) {
		ssize_t n = write(fd, data, len);

		if (n < 0 && errno == EINTR) {
			continue;
		}
		if (n < 0) {
			return -1;
		}
		data += n;
		len -= (size_t)n;
	}
	return 0;
}

int fs_write_atomic(const char *path, const void *data, size_t len, mode_t mode, struct err *err)
{
	char suffix[9];

	rand_hex(suffix, 8);
	_cleanup_free_ char *temporary = xasprintf("%s.%s.tmp", path, suffix);
	_cleanup_close_ int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	if (fd < 0) {
		return err_sys(err, errno, "create %s", temporary);
	}
	if (write_all(fd, data, len) != 0 || fchmod(fd, mode) != 0 || fsync(fd) != 0 ||
		rename(temporary, path) != 0) {
		int sys = errno;

		unlink(temporary);
		return err_sys(err, sys, "write %s", path);
	}
	return 0;
}

int fs_mkdir(const char *path, mode_t mode, struct err *err)
{
	if (mkdir(path, 0700) != 0) {
		struct stat st;

		if (errno == EEXIST && stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
			return 0;
		}
		return err_sys(err, errno, "make directory %s", path);
	}
	if (chmod(path, mode) != 0) {
		return err_sys(err, errno, "set the mode of %s", path);
	}
	return 0;
}

int fs_mkdir_parents(const char *path, mode_t mode, struct err *err)
{
	_cleanup_free_ char *copy = xstrdup(path);

	/* "a/b/" is a/b, which has @mode. */
	for (size_t n = strlen(copy); n > 1 && copy[n - 1] == '/'; n--) {
		copy[n - 1] = '\0';
	}
	for (char *slash = strchr(copy + (*copy == '/'), '/'); slash;
		slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		if (fs_mkdir(copy, 0755, err) != 0) {
			return -1;
		}
		*slash = '/';
	}
	return fs_mkdir(copy, mode, err);
}

int fs_remove(const char *path, struct err *err)
{
	if (unlink(path) != 0 && errno != ENOENT) {
		return err_sys(err, errno, "remove %s", path);
	}
	return 0;
}

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
	(void)st;
	(void)kind;
	(void)ftw;
	return remove(path) != 0 && errno != ENOENT ? -1 : 0;
}

int fs_remove_tree(const char *path, struct err *err)
{
	if (nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS) != 0 && errno != ENOENT) {
		return err_sys(err, errno, "remove %s", path);
	}
	return 0;
}
