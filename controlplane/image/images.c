#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "base/id.h"
#include "base/xalloc.h"
#include "image/image.h"
#include "image/scan.h"
#include "image/verify.h"
#include "loop/loop.h"
#include "loop/worker.h"

/*
 * Theory of operation
 *
 * The catalogue is a list of entries, one for each version that was current once or was asked for.
 * There is one kind of job, a scan of everything, and at most one at a time: it gets a copy of what
 * is known (names, versions, stamps), hashes what is new or differs, and its result is merged into
 * the list on the loop. Whoever wants something verified marks it, and a scan starts, or another
 * one after that which is under way (is_stale). Waiters are served by the scan that started after
 * they came.
 *
 *	entry:  (new) ──► VERIFYING ──► GOOD | REFUSED ──(stamps differ)──► VERIFYING
 *
 * An entry that went back to VERIFYING while a scan was under way ignores that scan's "same as
 * before": it was judged by what is known to be outdated.
 */

struct entry {
	TAILQ_ENTRY(entry) link; /* images.entries, by name, then version */
	char *name;
	char version[IMAGE_VERSION_BYTES]; /* "": `current` names none */
	enum image_state state;
	bool is_current;
	struct image *image;        /* GOOD */
	struct err refusal;         /* REFUSED */
	struct image_stamps stamps; /* GOOD, REFUSED */
};

struct waiter {
	STAILQ_ENTRY(waiter) link; /* images.waiting or .served */
	image_done_fn done;
	void *arg;
	bool is_for_one; /* image_prepare() */
	char *name;
	char *version; /* NULL: the current one */
};

STAILQ_HEAD(waiters, waiter);

struct scan_job {
	struct worker_job job;
	struct images *images; /* not touched by the worker */
	struct scan *scan;
};

struct images {
	struct loop *loop;
	struct worker_pool *pool;
	struct images_config config;
	TAILQ_HEAD(, entry) entries;
	bool is_ready;

	struct scan_job *running;
	bool is_stale;          /* scan again after that one */
	struct waiters served;  /* by the one that runs */
	struct waiters waiting; /* for the next one */
	struct err submit_err;
};

/* ---- entries ---- */

static int compare(const struct entry *entry, const char *name, const char *version)
{
	int order = strcmp(entry->name, name);

	return order ? order : strcmp(entry->version, version);
}

static struct entry *find_entry(struct images *images, const char *name, const char *version)
{
	struct entry *entry;

	TAILQ_FOREACH (entry, &images->entries, link) {
		if (compare(entry, name, version) == 0) {
			return entry;
		}
	}
	return NULL;
}

/* The one that was current when we last looked. */
static struct entry *find_current(struct images *images, const char *name)
{
	struct entry *entry;

	TAILQ_FOREACH (entry, &images->entries, link) {
		if (entry->is_current && strcmp(entry->name, name) == 0) {
			return entry;
		}
	}
	return NULL;
}

static struct entry *need_entry(struct images *images, const char *name, const char *version)
{
	struct entry *entry = find_entry(images, name, version);
	struct entry *after;

	if (entry) {
		return entry;
	}
	entry = xnew(struct entry);
	entry->name = xstrdup(name);
	memcpy(entry->version, version, strlen(version) + 1);
	entry->state = IMAGE_VERIFYING;
	TAILQ_FOREACH (after, &images->entries, link) {
		if (compare(after, name, version) > 0) {
			TAILQ_INSERT_BEFORE(after, entry, link);
			return entry;
		}
	}
	TAILQ_INSERT_TAIL(&images->entries, entry, link);
	return entry;
}

static void forget_verdict(struct entry *entry)
{
	image_unref(entry->image);
	entry->image = NULL;
	entry->refusal = ERR_INIT;
	entry->state = IMAGE_VERIFYING;
}

static void drop_entry(struct images *images, struct entry *entry)
{
	TAILQ_REMOVE(&images->entries, entry, link);
	image_unref(entry->image);
	free(entry->name);
	free(entry);
}

/* ---- waiters ---- */

static void add_waiter(struct images *images, image_done_fn done, void *arg, bool is_for_one,
	const char *name, const char *version)
{
	struct waiter *waiter;

	if (!done) {
		return;
	}
	waiter = xnew(struct waiter);
	waiter->done = done;
	waiter->arg = arg;
	waiter->is_for_one = is_for_one;
	waiter->name = xstrdup(name);
	waiter->version = xstrdup(version);
	STAILQ_INSERT_TAIL(&images->waiting, waiter, link);
}

static void free_waiter(struct waiter *waiter)
{
	free(waiter->name);
	free(waiter->version);
	free(waiter);
}

static void serve_waiter(struct images *images, struct waiter *waiter, const struct err *scan_err)
{
	struct err err = ERR_INIT;

	if (!scan_err && waiter->is_for_one) {
		image_unref(image_get(images, waiter->name, waiter->version, &err));
		scan_err = err.kind == ERR_NONE ? NULL : &err;
	}
	waiter->done(waiter->arg, scan_err);
	free_waiter(waiter);
}

static void serve_waiters(struct images *images, struct waiters *waiters, const struct err *err)
{
	struct waiter *waiter;

	while ((waiter = STAILQ_FIRST(waiters))) {
		STAILQ_REMOVE_HEAD(waiters, link);
		serve_waiter(images, waiter, err);
	}
}

/* ---- scans ---- */

static void run_scan(struct worker_job *job)
{
	struct scan_job *scan_job = container_of(job, struct scan_job, job);

	(void)scan_run_blocking(scan_job->scan, &job->err);
}

static void merge_item(struct images *images, struct scan_item *item)
{
	struct entry *entry = need_entry(images, item->name, item->version);

	entry->is_current = item->is_current;
	if (item->is_gone) {
		drop_entry(images, entry);
	} else if (!item->is_same) {
		forget_verdict(entry);
		entry->state = item->image ? IMAGE_GOOD : IMAGE_REFUSED;
		entry->image = steal_ptr(&item->image);
		entry->refusal = item->refusal;
		entry->stamps = item->stamps;
	}
}

static void start_scan(struct images *images);

static void on_scanned(struct worker_job *job, const struct err *err)
{
	struct scan_job *scan_job = container_of(job, struct scan_job, job);
	struct images *images = scan_job->images;
	struct waiters served = STAILQ_HEAD_INITIALIZER(served);
	struct scan_item *item;

	if (!err) {
		images->is_ready = true;
		TAILQ_FOREACH (item, &scan_job->scan->items, link) {
			merge_item(images, item);
		}
	}
	scan_free(scan_job->scan);
	free(scan_job);
	images->running = NULL;
	STAILQ_CONCAT(&served, &images->served);
	if (images->is_stale) {
		start_scan(images);
	}
	serve_waiters(images, &served, err);
}

static void on_not_submitted(void *arg)
{
	struct images *images = arg;
	struct waiters served = STAILQ_HEAD_INITIALIZER(served);
	struct err err = images->submit_err;

	STAILQ_CONCAT(&served, &images->waiting);
	serve_waiters(images, &served, &err);
}

static void start_scan(struct images *images)
{
	struct scan_job *scan_job = xnew(struct scan_job);
	struct entry *entry;

	images->is_stale = false;
	scan_job->images = images;
	scan_job->job.run = run_scan;
	scan_job->job.done = on_scanned;
	scan_job->scan = scan_new(&images->config);
	TAILQ_FOREACH (entry, &images->entries, link) {
		scan_add(scan_job->scan, entry->name, entry->version,
			entry->state == IMAGE_VERIFYING ? NULL : &entry->stamps);
	}
	if (worker_submit(images->pool, &scan_job->job, &images->submit_err) < 0) {
		scan_free(scan_job->scan);
		free(scan_job);
		loop_defer(images->loop, on_not_submitted, images);
		return;
	}
	images->running = scan_job;
	STAILQ_CONCAT(&images->served, &images->waiting);
}

static void want_scan(struct images *images)
{
	if (images->running) {
		images->is_stale = true;
	} else {
		start_scan(images);
	}
}

/* ---- the catalogue ---- */

struct images *images_new(
	struct loop *loop, struct worker_pool *pool, const struct images_config *config)
{
	struct images *images = xnew(struct images);

	ASSERT(config->dir && config->default_name);
	images->loop = loop;
	images->pool = pool;
	images->config = (struct images_config){
		.dir = xstrdup(config->dir),
		.default_name = xstrdup(config->default_name),
		.owner = config->owner,
	};
	TAILQ_INIT(&images->entries);
	STAILQ_INIT(&images->served);
	STAILQ_INIT(&images->waiting);
	return images;
}

void images_free(struct images *images)
{
	struct entry *entry;
	struct err err;

	if (!images) {
		return;
	}
	loop_cancel_deferred(images->loop, on_not_submitted, images);
	STAILQ_CONCAT(&images->served, &images->waiting);
	err_set(&err, ERR_CANCELLED, "the service is shutting down");
	serve_waiters(images, &images->served, &err);
	while ((entry = TAILQ_FIRST(&images->entries))) {
		drop_entry(images, entry);
	}
	/* A worker that the pool left behind still reads the configuration. */
	if (!images->running) {
		free((char *)images->config.dir);
		free((char *)images->config.default_name);
		free(images);
	}
}

void images_refresh(struct images *images, image_done_fn done, void *arg)
{
	loop_assert();
	add_waiter(images, done, arg, false, NULL, NULL);
	want_scan(images);
}

bool images_is_ready(const struct images *images)
{
	return images->is_ready;
}

const char *images_default(const struct images *images)
{
	return images->config.default_name;
}

/* ---- one image ---- */

static struct image *fail_missing(struct images *images, const char *name, struct err *err)
{
	_cleanup_free_ char *known = xstrdup("");
	struct entry *entry;

	TAILQ_FOREACH (entry, &images->entries, link) {
		if (entry->is_current && entry->state == IMAGE_GOOD) {
			char *longer = xasprintf("%s%s%s", known, *known ? ", " : "", entry->name);

			free(known);
			known = longer;
		}
	}
	err_set(err, ERR_NOT_FOUND, "there is no image \"%.63s\"; there are: %s", name,
		*known ? known : "none");
	return NULL;
}

static struct image *fail_refused(const char *name, const struct err *why, struct err *err)
{
	*err = *why;
	err_wrap(err, "image \"%s\" is refused", name);
	return NULL;
}

static struct image *fail_verifying(const char *name, struct err *err)
{
	err_set(err, ERR_UNAVAILABLE, "image \"%s\" is being verified; try again in a few seconds",
		name);
	return NULL;
}

static bool is_unchanged(struct images *images, const struct entry *entry)
{
	struct image_stamps now;

	image_stamps_take(&images->config, entry->name, entry->version, &now);
	return image_stamps_equal(&entry->stamps, &now);
}

/* The entry's verdict as far as it still holds; else has it verified again. */
static struct image *use_entry(struct images *images, struct entry *entry, struct err *err)
{
	if (entry->state != IMAGE_VERIFYING && !is_unchanged(images, entry)) {
		forget_verdict(entry);
	}
	switch (entry->state) {
	case IMAGE_GOOD:
		return image_ref(entry->image);
	case IMAGE_REFUSED:
		return fail_refused(entry->name, &entry->refusal, err);
	case IMAGE_VERIFYING:
	default:
		want_scan(images);
		return fail_verifying(entry->name, err);
	}
}

/* A new `current` is being verified: until then the one before it does. */
static struct image *use_previous(struct images *images, const char *name, struct err *err)
{
	struct entry *previous = find_current(images, name);

	if (previous && previous->state == IMAGE_GOOD && is_unchanged(images, previous)) {
		return image_ref(previous->image);
	}
	return fail_verifying(name, err);
}

static struct image *get_current(struct images *images, const char *name, struct err *err)
{
	char version[IMAGE_VERSION_BYTES] = "";
	struct err why = ERR_INIT;
	int found = image_current(&images->config, name, version, &why);
	struct entry *entry;

	if (found == 0) {
		return fail_missing(images, name, err);
	}
	if (found < 0) {
		return fail_refused(name, &why, err);
	}
	entry = find_entry(images, name, version);
	if (entry && (entry->is_current || entry->state != IMAGE_VERIFYING)) {
		return use_entry(images, entry, err);
	}
	need_entry(images, name, version);
	want_scan(images);
	return use_previous(images, name, err);
}

static struct image *get_version(
	struct images *images, const char *name, const char *version, struct err *err)
{
	struct image_stamps now;
	struct entry *entry;

	if (!image_version_is_valid(version)) {
		return fail_missing(images, name, err);
	}
	entry = find_entry(images, name, version);
	if (!entry) {
		image_stamps_take(&images->config, name, version, &now);
		if (now.dirs[2].mode == 0) {
			err_set(err, ERR_NOT_FOUND, "version %s of image \"%s\" is not there",
				version, name);
			return NULL;
		}
		entry = need_entry(images, name, version);
	}
	return use_entry(images, entry, err);
}

struct image *image_get(
	struct images *images, const char *name, const char *version, struct err *err)
{
	loop_assert();
	if (!name) {
		name = images->config.default_name;
	}
	if (!name_is_valid(name)) {
		err_set(err, ERR_NOT_FOUND, "that is not the name of an image");
		return NULL;
	}
	return version ? get_version(images, name, version, err) : get_current(images, name, err);
}

void image_prepare(
	struct images *images, const char *name, const char *version, image_done_fn done, void *arg)
{
	loop_assert();
	if (!name) {
		name = images->config.default_name;
	}
	if (version && name_is_valid(name) && image_version_is_valid(version)) {
		need_entry(images, name, version);
	}
	add_waiter(images, done, arg, true, name, version);
	want_scan(images);
}

/* ---- for people ---- */

void images_each(const struct images *images, image_status_fn fn, void *arg)
{
	struct entry *entry;

	TAILQ_FOREACH (entry, &images->entries, link) {
		struct image_status status = {
			.name = entry->name,
			.version = entry->version[0] ? entry->version : NULL,
			.state = entry->state,
			.problem = entry->state == IMAGE_REFUSED ? entry->refusal.msg : NULL,
			.image = entry->image,
			.is_current = entry->is_current,
			.is_default = strcmp(entry->name, images->config.default_name) == 0,
		};

		fn(arg, &status);
	}
}
