#include "image/scan.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>

#include "base/id.h"
#include "base/xalloc.h"

struct scan *scan_new(const struct images_config *config)
{
	struct scan *scan = xnew(struct scan);

	scan->config = config;
	TAILQ_INIT(&scan->items);
	return scan;
}

void scan_free(struct scan *scan)
{
	struct scan_item *item;

	if (!scan) {
		return;
	}
	while ((item = TAILQ_FIRST(&scan->items))) {
		TAILQ_REMOVE(&scan->items, item, link);
		image_unref(item->image);
		free(item->name);
		free(item);
	}
	free(scan);
}

static struct scan_item *add_item(struct scan *scan, const char *name, const char *version)
{
	struct scan_item *item = xnew(struct scan_item);

	ASSERT(strlen(version) < sizeof(item->version));
	item->name = xstrdup(name);
	memcpy(item->version, version, strlen(version) + 1);
	item->refusal = ERR_INIT;
	TAILQ_INSERT_TAIL(&scan->items, item, link);
	return item;
}

void scan_add(
	struct scan *scan, const char *name, const char *version, const struct image_stamps *stamps)
{
	struct scan_item *item = add_item(scan, name, version);

	if (stamps) {
		item->is_known = true;
		item->stamps = *stamps;
	}
}

static struct scan_item *find_item(struct scan *scan, const char *name, const char *version)
{
	struct scan_item *item;

	TAILQ_FOREACH (item, &scan->items, link) {
		if (strcmp(item->name, name) == 0 && strcmp(item->version, version) == 0) {
			return item;
		}
	}
	return NULL;
}

/* Marks what `current` names, or why it names nothing. */
static void add_current(struct scan *scan, const char *name)
{
	char version[IMAGE_VERSION_BYTES] = "";
	struct err err = ERR_INIT;
	struct scan_item *item;
	int found = image_current(scan->config, name, version, &err);

	if (found == 0) {
		return;
	}
	item = find_item(scan, name, version);
	if (!item) {
		item = add_item(scan, name, version);
	}
	item->is_current = true;
	if (found < 0) {
		item->refusal = err;
	}
}

static int add_all_current(struct scan *scan, struct err *err)
{
	DIR *dir = opendir(scan->config->dir);
	struct dirent *entry;

	if (!dir && errno == ENOENT) {
		return 0;
	}
	if (!dir) {
		return err_sys(err, errno, "open the images directory %s", scan->config->dir);
	}
	while ((entry = readdir(dir))) {
		if (name_is_valid(entry->d_name)) {
			add_current(scan, entry->d_name);
		}
	}
	closedir(dir);
	return 0;
}

static void verify_blocking(const struct images_config *config, struct scan_item *item)
{
	struct image_stamps now;

	image_stamps_take(config, item->name, item->version, &now);
	if (!item->is_current && now.dirs[2].mode == 0) {
		item->is_gone = true;
		return;
	}
	if (item->is_known && image_stamps_equal(&item->stamps, &now)) {
		item->is_same = true;
		return;
	}
	item->image = image_verify_blocking(
		config, item->name, item->version, &item->stamps, &item->refusal);
}

int scan_run_blocking(struct scan *scan, struct err *err)
{
	struct scan_item *item;

	if (add_all_current(scan, err) < 0) {
		return -1;
	}
	TAILQ_FOREACH (item, &scan->items, link) {
		if (item->version[0] != '\0') {
			verify_blocking(scan->config, item);
		} else if (!item->is_current) {
			item->is_gone = true;
		}
	}
	return 0;
}
