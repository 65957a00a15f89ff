/*
 * Theory of operation
 *
 * options.cgroup_dir carries the limits of all commands together (pids.max, memory.max), so that
 * the kernel, the agent and its helpers are left with something, and one of its children, "exec-N",
 * each command: it shares the processor evenly with the others, however many processes it is, and
 * leaves them a part of the processes. (Memory is shared by all: that controller would make mkdir
 * and rmdir dear.) CLONE_INTO_CGROUP needs no migration.
 *
 *   EMPTY ──take──► TAKEN ──release──► LEFT ──no process in it any more──► EMPTY
 *
 * A cgroup that cgroup.kill was used on is removed and made anew before it is taken again: kernels
 * with kill_seq compare that of the *parent's* cgroup when CLONE_INTO_CGROUP names another one, and
 * kill every child born into one that has ever been killed.
 *
 * A cgroup in LEFT holds what a finished command left running. LEFT ones are looked at when none is
 * EMPTY. When all of them are in use a command runs in one that is common to all such.
 */

#include "src/tree.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/log.h"
#include "src/options.h"

#define TREES_MAX 128u
/* Kept for the kernel and the agent beyond what they use when no command has run yet. */
#define HEADROOM_MIN_BYTES (24ull << 20)
/*
 * More processes than that have no memory to work with. With many more, those that the kernel kills
 * for their memory wait so long for the processor to die on that everybody waits with them.
 */
#define BYTES_PER_PROCESS (1u << 20)
#define PROCESSES_MIN     256u
/* Of the processor, to the agent's 100: four times as much where both want it all, so that a large
 * file on its way keeps no command waiting. What the agent needs for a call it gets at once. */
#define COMMANDS_WEIGHT 400u

enum tree_state { TREE_UNMADE, TREE_EMPTY, TREE_TAKEN, TREE_LEFT };

struct tree {
	enum tree_state state;
	bool was_killed;
	int dir_fd;
	int events_fd; /* cgroup.events, whose "populated" line tells whether anything is in it */
};

static struct tree trees[TREES_MAX];
static unsigned made_count;
static bool has_cgroups;
static int common_fd = -1;
static uint64_t command_pids; /* the most that one command may be; 0: no limit */

/* ---- set-up --------------------------------------------------------------------------------- */

static void write_limit(const char *dir, const char *name, uint64_t value)
{
	char path[512];
	char text[32];

	snprintf(path, sizeof path, "%s/%s", dir, name);
	snprintf(text, sizeof text, "%llu", (unsigned long long)value);
	if (util_write_text(path, text) != 0) {
		log_info("no limit %s: %s", name, strerror(errno));
	}
}

/* A line of /proc/meminfo, in bytes; 0 where it isn't there. */
static uint64_t meminfo(const char *name)
{
	char text[2048];

	util_read_text("/proc/meminfo", text, sizeof text);
	const char *line = strstr(text, name);

	return line == NULL ? 0 : strtoull(line + strlen(name), NULL, 10) * 1024u;
}

static void set_limits(void)
{
	uint64_t threads = util_read_number("/proc/sys/kernel/threads-max");
	uint64_t pids = util_read_number("/proc/sys/kernel/pid_max");
	uint64_t total = meminfo("MemTotal:");
	uint64_t available = meminfo("MemAvailable:");
	uint64_t keep = MAX(total / 20, HEADROOM_MIN_BYTES);

	if (threads > 0 && pids > 0) {
		uint64_t all = MAX(MIN(threads, pids) / 2, 64u);

		write_limit(options.cgroup_dir, "pids.max", all);
		command_pids = MIN(all / 4 * 3, MAX(total / BYTES_PER_PROCESS, PROCESSES_MIN));
	}
	write_limit(options.cgroup_dir, "cpu.weight", COMMANDS_WEIGHT);
	if (available > 2 * keep) {
		write_limit(options.cgroup_dir, "memory.max", available - keep);
	}
}

/* Lets @dir hand these controllers down. */
static void enable_controllers(const char *dir, const char *const *names)
{
	char path[512];

	snprintf(path, sizeof path, "%s/cgroup.subtree_control", dir);
	for (; *names != NULL; names++) {
		if (util_write_text(path, *names) != 0) {
			log_info("no cgroup controller %s: %s", *names, strerror(errno));
		}
	}
}

static void enable_above(void)
{
	char parent[512];
	const char *slash = strrchr(options.cgroup_dir, '/');

	snprintf(parent, sizeof parent, "%.*s", (int)(slash - options.cgroup_dir),
		options.cgroup_dir);
	enable_controllers(parent, (const char *const[]){"+cpu", "+pids", "+memory", NULL});
}

static void path_of(const struct tree *t, char *out, size_t size)
{
	snprintf(out, size, "%s/exec-%u", options.cgroup_dir, (unsigned)(t - trees));
}

static bool make_tree(struct tree *t)
{
	char path[512];

	path_of(t, path, sizeof path);
	t->state = TREE_UNMADE;
	if (mkdir(path, 0755) != 0 && errno != EEXIST) {
		return false;
	}
	t->dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	t->events_fd = t->dir_fd < 0 ? -1
				     : openat(t->dir_fd, "cgroup.events", O_RDONLY | O_CLOEXEC);
	if (t->events_fd < 0) {
		util_close(&t->dir_fd);
		return false;
	}
	if (command_pids > 0) {
		write_limit(path, "pids.max", command_pids);
	}
	t->state = TREE_EMPTY;
	t->was_killed = false;
	made_count = MAX(made_count, (unsigned)(t - trees) + 1);
	return true;
}

/* Makes an empty one fit to be taken. */
static bool renew_tree(struct tree *t)
{
	char path[512];

	if (!t->was_killed) {
		t->state = TREE_EMPTY;
		return true;
	}
	path_of(t, path, sizeof path);
	if (rmdir(path) != 0 && errno != ENOENT) {
		t->state = TREE_LEFT;
		return false;
	}
	util_close(&t->dir_fd);
	util_close(&t->events_fd);
	return make_tree(t);
}

/* For those that get none of their own. */
static int make_common(void)
{
	char path[512];

	snprintf(path, sizeof path, "%s/common", options.cgroup_dir);
	if (mkdir(path, 0755) != 0 && errno != EEXIST) {
		return -1;
	}
	if (command_pids > 0) {
		write_limit(path, "pids.max", command_pids);
	}
	return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

bool tree_init(void)
{
	if (options.cgroup_dir == NULL) {
		return false;
	}
	enable_above();
	if (mkdir(options.cgroup_dir, 0755) != 0 && errno != EEXIST) {
		log_warn("no cgroups: %s", strerror(errno));
		return false;
	}
	set_limits();
	enable_controllers(options.cgroup_dir, (const char *const[]){"+cpu", "+pids", NULL});
	if (!make_tree(&trees[0])) {
		log_warn("no cgroups: %s", strerror(errno));
		return false;
	}
	common_fd = make_common();
	has_cgroups = true;
	return true;
}

bool tree_shares_processor(void)
{
	return has_cgroups && faccessat(common_fd, "../cpu.weight", F_OK, 0) == 0;
}

/* ---- pool ----------------------------------------------------------------------------------- */

static bool is_populated(const struct tree *t)
{
	char text[128];
	ssize_t n = pread(t->events_fd, text, sizeof text - 1, 0);

	text[MAX(n, 0)] = '\0';
	return strstr(text, "populated 0") == NULL;
}

struct tree *tree_take(void)
{
	struct tree *found = NULL;

	if (!has_cgroups) {
		return NULL;
	}
	for (unsigned i = 0; found == NULL && i < made_count; i++) {
		if (trees[i].state == TREE_EMPTY) {
			found = &trees[i];
		}
	}
	for (unsigned i = 0; found == NULL && i < made_count; i++) {
		struct tree *t = &trees[i];

		if (t->state == TREE_UNMADE
				? make_tree(t)
				: t->state == TREE_LEFT && !is_populated(t) && renew_tree(t)) {
			found = t;
		}
	}
	if (found == NULL && made_count < TREES_MAX && make_tree(&trees[made_count])) {
		found = &trees[made_count - 1];
	}
	if (found != NULL) {
		found->state = TREE_TAKEN;
	}
	return found;
}

void tree_release(struct tree *t)
{
	if (t == NULL) {
		return;
	}
	if (is_populated(t)) {
		t->state = TREE_LEFT;
	} else {
		renew_tree(t);
	}
}

int tree_fd(const struct tree *t)
{
	return t == NULL ? common_fd : t->dir_fd;
}

/* ---- signals by cgroup ---------------------------------------------------------------------- */

typedef void (*pid_fn)(pid_t pid, void *arg);

static void each_in_cgroup(const struct tree *t, pid_fn fn, void *arg)
{
	int fd = openat(t->dir_fd, "cgroup.procs", O_RDONLY | O_CLOEXEC);
	FILE *file = fd < 0 ? NULL : fdopen(fd, "r");
	char line[32];

	if (file == NULL) {
		util_close(&fd);
		return;
	}
	while (fgets(line, sizeof line, file) != NULL) {
		fn((pid_t)strtol(line, NULL, 10), arg);
	}
	fclose(file);
}

/* ---- signals without cgroup ----------------------------------------------------------------- */

#define WALK_MAX 8192u

struct process {
	pid_t pid;
	pid_t parent;
	pid_t session;
	bool is_ours;
};

static bool read_process(const char *name, struct process *ret)
{
	char path[64];
	char text[512];

	snprintf(path, sizeof path, "/proc/%.20s/stat", name);
	if (!isdigit((unsigned char)name[0]) || util_read_text(path, text, sizeof text) <= 0) {
		return false;
	}
	const char *rest = strrchr(text, ')'); /* the name before it may hold anything */
	char status;
	int parent;
	int session;

	if (rest == NULL || sscanf(rest + 1, " %c %d %*d %d", &status, &parent, &session) != 3) {
		return false;
	}
	*ret = (struct process){
		.pid = (pid_t)strtol(name, NULL, 10), .parent = parent, .session = session};
	return status != 'Z' && status != 'X';
}

/* Calls @fn for each process of @leader's session and each descendant of one. Returns how many. */
static unsigned each_in_session(pid_t leader, pid_fn fn, void *arg)
{
	static struct process all[WALK_MAX];
	unsigned count = 0;
	unsigned found = 0;
	DIR *dir = opendir("/proc");

	if (dir == NULL) {
		return 0;
	}
	for (struct dirent *entry; count < WALK_MAX && (entry = readdir(dir)) != NULL;) {
		if (read_process(entry->d_name, &all[count])) {
			all[count].is_ours = all[count].session == leader ||
					     all[count].pid == leader;
			count++;
		}
	}
	closedir(dir);
	for (bool is_changed = true; is_changed;) {
		is_changed = false;
		for (unsigned i = 0; i < count; i++) {
			for (unsigned j = 0; !all[i].is_ours && j < count; j++) {
				if (all[j].is_ours && all[i].parent == all[j].pid) {
					all[i].is_ours = true;
					is_changed = true;
				}
			}
		}
	}
	for (unsigned i = 0; i < count; i++) {
		if (all[i].is_ours) {
			fn(all[i].pid, arg);
			found++;
		}
	}
	return found;
}

/* ---- both ----------------------------------------------------------------------------------- */

static void send_signal(pid_t pid, void *arg)
{
	if (pid > 1 && pid != getpid()) {
		kill(pid, *(int *)arg);
	}
}

static void ignore_pid(pid_t pid, void *arg)
{
	(void)pid;
	(void)arg;
}

void tree_signal(struct tree *t, pid_t leader, int signal)
{
	if (t != NULL) {
		each_in_cgroup(t, send_signal, &signal);
	} else {
		each_in_session(leader, send_signal, &signal);
	}
}

void tree_kill(struct tree *t, pid_t leader)
{
	int signal = SIGKILL;

	if (t == NULL) {
		each_in_session(leader, send_signal, &signal);
		return;
	}
	int fd = openat(t->dir_fd, "cgroup.kill", O_WRONLY | O_CLOEXEC);

	t->was_killed = true;

	if (fd < 0 || write(fd, "1", 1) != 1) { /* before Linux 5.14 */
		each_in_cgroup(t, send_signal, &signal);
	}
	util_close(&fd);
}

bool tree_is_empty(struct tree *t, pid_t leader)
{
	return t != NULL ? !is_populated(t) : each_in_session(leader, ignore_pid, NULL) == 0;
}
