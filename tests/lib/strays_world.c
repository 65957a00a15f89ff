#include "tests/lib/strays_world.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/xalloc.h"

/* ---- asking ---- */

void strays_on_found(void *arg, const struct strays_report *report, const struct err *err)
{
	struct strays_found *found = arg;

	found->count++;
	found->kind = err ? err->kind : ERR_NONE;
	if (report) {
		assert_true(report->count <= ARRAY_SIZE(found->strays));
		for (size_t i = 0; i < report->count; i++) {
			found->strays[i] = report->strays[i];
		}
		found->stray_count = report->count;
		found->young = report->young;
	}
}

struct strays_found strays_ask(struct world *w, const struct strays_request *request)
{
	struct strays_found found = {0};
	struct err err;

	assert_non_null(strays_find(w->all, request, strays_on_found, &found, &err));
	assert_int_equal(found.count, 0);
	WORLD_UNTIL(w, found.count > 0);
	assert_int_equal(found.count, 1);
	return found;
}

struct strays_found strays_look(struct world *w)
{
	struct strays_found found = strays_ask(
		w, &(struct strays_request){.ready_ms = WORLD_PATIENCE_MS});

	assert_int_equal(found.kind, ERR_NONE);
	return found;
}

struct strays_found strays_reap(struct world *w)
{
	struct strays_found found = strays_ask(
		w, &(struct strays_request){.is_reap = true, .ready_ms = WORLD_PATIENCE_MS});

	assert_int_equal(found.kind, ERR_NONE);
	return found;
}

const struct stray *strays_pick(
	const struct strays_found *found, enum stray_kind kind, const char *what)
{
	for (size_t i = 0; i < found->stray_count; i++) {
		if (found->strays[i].kind == kind && strcmp(found->strays[i].what, what) == 0) {
			return &found->strays[i];
		}
	}
	return NULL;
}

/* ---- making ---- */

static char *path_in(struct world *w, const char *name)
{
	return xasprintf("%s/%s", w->dir, name);
}

/* As new by the clock of the test, which isn't the file system's. */
void strays_make_dir(struct world *w, const char *name)
{
	_cleanup_free_ char *path = path_in(w, name);
	int64_t now = clock_wall_ms();
	const struct timespec times[] = {
		{.tv_nsec = UTIME_OMIT}, {.tv_sec = now / 1000, .tv_nsec = now % 1000 * 1000000}};
	struct err err;

	assert_ok(fs_mkdir_parents(path, 0700, &err), &err);
	while (strlen(path) > strlen(w->dir)) {
		assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
		*strrchr(path, '/') = '\0';
	}
}

bool strays_has_path(struct world *w, const char *name)
{
	_cleanup_free_ char *path = path_in(w, name);

	return access(path, F_OK) == 0;
}

/* Nothing happens by itself in it, as in paddockd --strays. */
struct world *strays_world(void)
{
	struct world *w = world_new_stopped(NULL);

	w->config.stray_grace_ms = STRAYS_GRACE_MS;
	w->config.is_inspection = true;
	return w;
}

void strays_pass_grace(void)
{
	clock_test_advance(STRAYS_GRACE_MS, STRAYS_GRACE_MS);
}

/* What a daemon left: a sandbox that runs, and then nobody. */
const char *strays_leave_running(struct world *w, const struct sandbox_create_spec *spec)
{
	w->config.is_inspection = false;
	world_start(w);
	const char *id = spec ? world_create_spec(w, spec) : world_create(w, NULL);

	WORLD_UNTIL(w, world_is_state(w, id, "running"));
	world_stop(w);
	w->config.is_inspection = true;
	return id;
}
