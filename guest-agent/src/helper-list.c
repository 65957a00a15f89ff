/*
 * Theory of operation
 *
 * Runs as the sandbox user. Names of a directory are read in batches, sorted, and each is reported
 * before its own contents. Symbolic links are reported, never followed, but for the path asked for.
 * Packets of whole entries go through a socket that keeps their boundaries and blocks when the
 * agent doesn't read.
 */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/msg.h"
#include "src/helper.h"

#define BATCH_NAMES 4096u
#define DEPTH_MAX   128u

struct listing {
	int ctl;
	int out_fd;
	bool is_recursive;
	uint32_t left;
	bool is_cut;
	char path[PROTO_PATH_MAX_BYTES + 1]; /* relative to the root, "" or ending in "/" */
	uint8_t buf[HELPER_LIST_PACKET_BYTES];
	struct msg_writer packet;
};

static void send_packet(struct listing *l)
{
	if (l->packet.len > 0 && send(l->out_fd, l->buf, l->packet.len, MSG_NOSIGNAL) < 0) {
		_exit(1); /* the agent has let go */
	}
	l->packet.len = 0;
}

static uint8_t type_of(mode_t mode)
{
	return S_ISREG(mode)   ? ENTRY_FILE
	       : S_ISDIR(mode) ? ENTRY_DIR
	       : S_ISLNK(mode) ? ENTRY_SYMLINK
			       : ENTRY_OTHER;
}

/* False when the limit is reached. @name is the whole relative path. */
static bool report(struct listing *l, const char *name, size_t len, const struct stat *st)
{
	struct msg_entry entry = {
		.mode = st->st_mode,
		.size = (uint64_t)st->st_size,
		.mtime_ns = (uint64_t)st->st_mtim.tv_sec * 1000000000u +
			    (uint64_t)st->st_mtim.tv_nsec,
		.type = type_of(st->st_mode),
		.name = name,
		.name_len = len,
	};

	if (l->left == 0) {
		l->is_cut = true;
		return false;
	}
	l->left--;
	if (!msg_entry_put(&l->packet, &entry)) {
		send_packet(l);
		msg_entry_put(&l->packet, &entry);
	}
	return true;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Reads up to BATCH_NAMES names. */
static size_t read_names(struct listing *l, DIR *dir, char **names)
{
	size_t count = 0;

	errno = 0;
	for (struct dirent *entry; count < BATCH_NAMES && (entry = readdir(dir)) != NULL;) {
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) {
			continue;
		}
		names[count] = strdup(entry->d_name);
		if (names[count++] == NULL) {
			helper_fail(l->ctl, ENOMEM);
		}
	}
	/* Of those below, some can't be read or go away meanwhile. */
	if (errno != 0 && l->path[0] == '\0') {
		helper_fail(l->ctl, errno);
	}
	qsort(names, count, sizeof names[0], by_name);
	return count;
}

static bool list_dir(struct listing *l, int fd, unsigned depth);

/* One name; for a directory what is in it too. */
static bool list_name(struct listing *l, int dir_fd, const char *name, unsigned depth)
{
	size_t old = strlen(l->path);
	size_t len = strlen(name);
	struct stat st;

	if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
		return true; /* it has gone meanwhile */
	}
	if (old + len + 1 > PROTO_PATH_MAX_BYTES) {
		l->is_cut = true;
		return true;
	}
	memcpy(l->path + old, name, len + 1);
	bool goes_on = report(l, l->path, old + len, &st);

	if (goes_on && l->is_recursive && S_ISDIR(st.st_mode)) {
		int fd = depth < DEPTH_MAX
				 ? openat(dir_fd, name,
					   O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
				 : -1;

		l->is_cut = l->is_cut || depth >= DEPTH_MAX;
		memcpy(l->path + old + len, "/", 2);
		goes_on = fd < 0 || list_dir(l, fd, depth + 1);
	}
	l->path[old] = '\0';
	return goes_on;
}

/* Takes @fd. False when the limit is reached. */
static bool list_dir(struct listing *l, int fd, unsigned depth)
{
	DIR *dir = fdopendir(fd);
	char **names = calloc(BATCH_NAMES, sizeof *names);
	bool goes_on = true;
	size_t count;

	if (dir == NULL || names == NULL) {
		helper_fail(l->ctl, errno);
	}
	do {
		count = read_names(l, dir, names);
		for (size_t i = 0; i < count; i++) {
			goes_on = goes_on && list_name(l, dirfd(dir), names[i], depth);
			free(names[i]);
		}
	} while (goes_on && count == BATCH_NAMES);
	free(names);
	closedir(dir);
	return goes_on;
}

void helper_run_list(int ctl, const struct helper_job *job)
{
	static struct listing l;
	struct helper_message message = {.kind = HELPER_OPENED, .is_pollable = 1};
	int fd = open(job->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int ends[2];

	if (fd < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
		helper_fail(ctl, errno);
	}
	helper_send(ctl, &message, ends[0]);
	close(ends[0]);
	l.ctl = ctl;
	l.out_fd = ends[1];
	l.is_recursive = (job->flags & MSG_FILE_RECURSIVE) != 0;
	l.left = job->limit;
	l.packet = (struct msg_writer){.buf = l.buf, .size = sizeof l.buf};
	list_dir(&l, fd, 0);
	send_packet(&l);
	close(l.out_fd);

	struct helper_message done = {
		.kind = HELPER_DONE, .flags = l.is_cut ? MSG_END_TRUNCATED : 0};

	helper_send(ctl, &done, -1);
	_exit(0);
}
