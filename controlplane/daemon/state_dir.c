#include "daemon/state_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/fs.h"
#include "base/xalloc.h"

struct state_dir {
	int lock_fd;
};

int state_dir_check_traversal(const char *path, struct err *err)
{
	_cleanup_free_ char *copy = xstrdup(path);
	char *end = copy;
	struct stat st;

	do {
		end = strchr(end + 1, '/');
		if (end) {
			*end = '\0';
		}
		if (stat(copy, &st) != 0) {
			return err_sys(err, errno, "look at %s", copy);
		}
		if ((st.st_mode & S_IXOTH) == 0) {
			return err_set(err, ERR_INVALID,
				"state.dir: QEMU's users can't pass through %s (mode %04o): chmod "
				"o+x it, or "
				"choose another directory, such as /var/lib/paddock",
				copy, (unsigned)st.st_mode & 07777);
		}
		if (end) {
			*end = '/';
		}
	} while (end && end[1]);
	return 0;
}

static int take_lock(const char *path, struct err *err)
{
	_cleanup_free_ char *name = xasprintf("%s/lock", path);
	_cleanup_close_ int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	if (fd < 0) {
		return err_sys(err, errno, "open %s", name);
	}
	if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
		if (errno == EWOULDBLOCK) {
			return err_set(err, ERR_CONFLICT,
				"state.dir: another paddockd is using %s; stop it first", path);
		}
		return err_sys(err, errno, "lock %s", name);
	}
	return steal_fd(&fd);
}

struct state_dir *state_dir_open(const char *path, const char *run_dir, struct err *err)
{
	if (fs_mkdir_parents(path, 0711, err) != 0 || state_dir_check_traversal(path, err) != 0 ||
		fs_mkdir_parents(run_dir, 0711, err) != 0 ||
		state_dir_check_traversal(run_dir, err) != 0) {
		return NULL;
	}
	int fd = take_lock(path, err);
	if (fd < 0) {
		return NULL;
	}
	struct state_dir *dir = xnew(struct state_dir);

	dir->lock_fd = fd;
	return dir;
}

void state_dir_close(struct state_dir *dir)
{
	if (dir) {
		close(dir->lock_fd);
		free(dir);
	}
}

int state_dir_claim_run(
	const char *path, const char *run_dir, const char *instance, struct err *err)
{
	_cleanup_free_ char *name = xasprintf("%s/instance", run_dir);
	_cleanup_free_ char *text = xasprintf("%s\n", instance);
	_cleanup_free_ char *found = NULL;
	size_t len = strlen(path);

	if (strncmp(run_dir, path, len) == 0 && run_dir[len] == '/') {
		return 0;
	}
	if (fs_read(name, 64, &found, NULL, err) == 0) {
		return strcmp(found, text) == 0
			       ? 0
			       : err_set(err, ERR_INVALID,
					 "state.run_dir: %s is another instance's; choose another, "
					 "or remove %s if that instance is gone",
					 run_dir, name);
	}
	return err->kind == ERR_NOT_FOUND ? fs_write_atomic(name, text, strlen(text), 0644, err)
					  : -1;
}
