#include "sandbox/paths.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/xalloc.h"

DEFINE_CLEANUP(DIR *, closedir)

static char *home_path(const char *state_dir, const char *id)
{
	return xasprintf("%s/sandboxes/%s", state_dir, id);
}

static const char *digits_of(const char *id)
{
	ASSERT(id_is_valid(id, ID_SANDBOX));
	return id + strlen(ID_SANDBOX);
}

int paths_prepare(const char *state_dir, const char *run_dir, struct err *err)
{
	_cleanup_free_ char *sandboxes = xasprintf("%s/sandboxes", state_dir);
	size_t longest = strlen(run_dir) + 1 + ID_RANDOM_DIGITS + strlen("/console");

	if (longest > PATHS_SOCKET_MAX) {
		return err_set(err, ERR_INTERNAL,
			"the run directory's path is too long by %zu bytes for the sockets in it: "
			"choose a shorter one: %s",
			longest - PATHS_SOCKET_MAX, run_dir);
	}
	return fs_mkdir_parents(sandboxes, 0711, err) != 0 ||
			       fs_mkdir_parents(run_dir, 0711, err) != 0
		       ? -1
		       : 0;
}

void paths_init(struct hv_paths *paths, const char *state_dir, const char *run_dir, const char *id)
{
	const char *digits = digits_of(id);

	paths->disk_dir = xasprintf("%s/sandboxes/%s/disk", state_dir, id);
	paths->overlay = xasprintf("%s/overlay.qcow2", paths->disk_dir);
	paths->overlay_next = xasprintf("%s/overlay.next", paths->disk_dir);
	paths->run_dir = xasprintf("%s/%s", run_dir, digits);
	paths->agent_socket = xasprintf("%s/agent", paths->run_dir);
	paths->console_socket = xasprintf("%s/console", paths->run_dir);
	ASSERT(strlen(paths->console_socket) <= PATHS_SOCKET_MAX);
}

void paths_fini(struct hv_paths *paths)
{
	free(paths->disk_dir);
	free(paths->overlay);
	free(paths->overlay_next);
	free(paths->run_dir);
	free(paths->agent_socket);
	free(paths->console_socket);
	*paths = (struct hv_paths){0};
}

int paths_make_home(const char *state_dir, const char *id, struct err *err)
{
	_cleanup_free_ char *home = home_path(state_dir, id);

	return fs_mkdir(home, 0711, err);
}

int paths_remove_home(const char *state_dir, const char *id, struct err *err)
{
	_cleanup_free_ char *home = home_path(state_dir, id);

	return fs_remove_tree(home, err);
}

/* 0: it isn't there. */
static int64_t changed_ms(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0
		       ? (int64_t)st.st_mtim.tv_sec * 1000 + st.st_mtim.tv_nsec / 1000000
		       : 0;
}

int64_t paths_changed_ms(
	const char *state_dir, const char *run_dir, const char *id, bool *ret_has_home)
{
	_cleanup_free_ char *home = home_path(state_dir, id);
	_cleanup_(paths_fini) struct hv_paths paths;

	paths_init(&paths, state_dir, run_dir, id);
	const int64_t times[] = {changed_ms(home), changed_ms(paths.disk_dir),
		changed_ms(paths.overlay), changed_ms(paths.run_dir)};
	int64_t last = 0;

	for (size_t i = 0; i < ARRAY_SIZE(times); i++) {
		last = MAX(last, times[i]);
	}
	*ret_has_home = times[0] > 0;
	return last;
}

static void add_id(struct paths_list *list, const char *id)
{
	if (!id_is_valid(id, ID_SANDBOX)) {
		return;
	}
	for (size_t i = 0; i < list->count; i++) {
		if (strcmp(list->ids[i], id) == 0) {
			return;
		}
	}
	list->ids = xrealloc(list->ids, list->count + 1, sizeof *list->ids);
	snprintf(list->ids[list->count++], ID_BYTES, "%s", id);
}

static int list_dir(const char *path, const char *prefix, struct paths_list *list, struct err *err)
{
	_cleanup_(closedir_p) DIR *dir = opendir(path);

	if (!dir) {
		return err_sys(err, errno, "read %s", path);
	}
	for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
		char id[ID_BYTES];
		int n = snprintf(id, sizeof id, "%s%s", prefix, entry->d_name);

		if (n > 0 && (size_t)n < sizeof id) {
			add_id(list, id);
		}
	}
	return 0;
}

int paths_list(const char *state_dir, const char *run_dir, struct paths_list *ret, struct err *err)
{
	_cleanup_free_ char *sandboxes = xasprintf("%s/sandboxes", state_dir);
	struct paths_list list = {0};

	if (list_dir(sandboxes, "", &list, err) != 0 ||
		list_dir(run_dir, ID_SANDBOX, &list, err) != 0) {
		paths_list_fini(&list);
		return -1;
	}
	*ret = list;
	return 0;
}

void paths_list_fini(struct paths_list *list)
{
	free(list->ids);
	*list = (struct paths_list){0};
}
