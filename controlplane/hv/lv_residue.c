#include "hv/lv_residue.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/parse.h"
#include "base/xalloc.h"
#include "loop/loop.h"

/*
 * Theory of operation
 *
 * places[] lists the directories and how names in them are read. The same reading is done before
 * something is removed: an item is only a word of what to look at again.
 *
 * A directory of libvirt's tells the number of its domain and the first bytes of its name, which
 * are the same for all of ours. The number alone decides. libvirt gives it out before it makes the
 * directory, and a domain that it re-attaches to keeps it.
 */

#define KILL_GRACE_MS 5000
#define DOMAIN_DIR    "domain-"
#define PROBE_DIR     "qmp-"
/* How much of a domain's name libvirt puts into the names of directories. */
#define SHORT_NAME_BYTES 20

DEFINE_CLEANUP(DIR *, closedir)

/* ---- names ---- */

static bool has_suffix(const char *text, const char *suffix)
{
	size_t len = strlen(text);

	return len >= strlen(suffix) && strcmp(text + len - strlen(suffix), suffix) == 0;
}

/* A domain's name followed by @suffix. */
static bool parse_file(
	const char *entry, const char *suffix, const char *instance, struct lv_residue_entry *ret)
{
	size_t len = strlen(entry);

	if (!has_suffix(entry, suffix) || len - strlen(suffix) >= sizeof ret->domain) {
		return false;
	}
	snprintf(ret->domain, sizeof ret->domain, "%.*s", (int)(len - strlen(suffix)), entry);
	return domain_name_parse(ret->domain, instance, ret->id);
}

static bool parse_log(const char *entry, const char *instance, struct lv_residue_entry *ret)
{
	char name[DOMAIN_NAME_BYTES + 8];
	size_t len = strlen(entry);

	/* virtlogd keeps older ones as NAME.log.0 and so on. */
	if (len > 2 && entry[len - 2] == '.' && isdigit((unsigned char)entry[len - 1])) {
		len -= 2;
	}
	ret->kind = HV_RESIDUE_LOG;
	return (size_t)snprintf(name, sizeof name, "%.*s", (int)len, entry) < sizeof name &&
	       parse_file(name, ".log", instance, ret);
}

static bool parse_run_file(const char *entry, const char *instance, struct lv_residue_entry *ret)
{
	ret->kind = HV_RESIDUE_FILE;
	return parse_file(entry, ".pid", instance, ret) || parse_file(entry, ".xml", instance, ret);
}

/* "domain-12-paddock-01234567-sb_" */
static bool parse_domain_dir(const char *entry, const char *instance, struct lv_residue_entry *ret)
{
	char name[DOMAIN_NAME_BYTES];
	char digits[16];
	const char *rest = entry + strlen(DOMAIN_DIR);
	int64_t number;
	struct err err;

	if (strncmp(entry, DOMAIN_DIR, strlen(DOMAIN_DIR)) != 0) {
		return false;
	}
	size_t len = strcspn(rest, "-");

	domain_name(name, instance, ID_SANDBOX);
	if (len == 0 || len >= sizeof digits || rest[len] != '-' ||
		strncmp(rest + len + 1, name, SHORT_NAME_BYTES) != 0 ||
		strlen(rest + len + 1) > SHORT_NAME_BYTES) {
		return false;
	}
	snprintf(digits, sizeof digits, "%.*s", (int)len, rest);
	if (parse_int(digits, 0, INT32_MAX, &number, &err) != 0) {
		return false;
	}
	ret->kind = HV_RESIDUE_DIRECTORY;
	ret->number = (int)number;
	return true;
}

static bool parse_lib_dir(const char *entry, const char *instance, struct lv_residue_entry *ret)
{
	ret->kind = HV_RESIDUE_DIRECTORY;
	return strncmp(entry, PROBE_DIR, strlen(PROBE_DIR)) == 0 ||
	       parse_domain_dir(entry, instance, ret);
}

static const struct place_dir {
	const char *name; /* below the root */
	bool (*parse)(const char *entry, const char *instance, struct lv_residue_entry *ret);
} places[] = {
	{"log/qemu", parse_log},
	{"run/qemu", parse_run_file},
	{"lib/qemu", parse_lib_dir},
	{"lib/qemu/channel/target", parse_domain_dir},
};

static const struct place_dir *find_place(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		if (strcmp(places[i].name, name) == 0) {
			return &places[i];
		}
	}
	return NULL;
}

bool lv_residue_parse(const char *place_dir, const char *entry, const char *instance,
	struct lv_residue_entry *ret)
{
	const struct place_dir *dir = find_place(place_dir);

	*ret = (struct lv_residue_entry){.number = -1};
	return dir && entry[0] != '.' && !strchr(entry, '/') && dir->parse(entry, instance, ret);
}

/* Where libvirt has it; NULL: not our affair there. The caller frees. */
static char *path_of(const struct lv_place *place, const char *place_dir)
{
	if (place->root) {
		return xasprintf("%s/%s", place->root, place_dir);
	}
	return strcmp(place_dir, "log/qemu") == 0 ? xstrdup(place->old_log_dir) : NULL;
}

/* ---- gathering ---- */

struct candidates {
	struct hv_residue *items;
	struct lv_residue_entry *entries;
	size_t count;
};

static void candidates_fini(struct candidates *all)
{
	free(all->items);
	free(all->entries);
}

static void add(
	struct candidates *all, const struct hv_residue *item, const struct lv_residue_entry *entry)
{
	all->items = xrealloc(all->items, all->count + 1, sizeof *all->items);
	all->entries = xrealloc(all->entries, all->count + 1, sizeof *all->entries);
	all->items[all->count] = *item;
	all->entries[all->count++] = *entry;
}

static int64_t changed_at_ms(const struct stat *st)
{
	return (int64_t)st->st_mtim.tv_sec * 1000 + st->st_mtim.tv_nsec / 1000000;
}

static void look_at(struct candidates *all, const char *place_dir, const char *name,
	const char *path, const char *instance)
{
	_cleanup_free_ char *full = xasprintf("%s/%s", path, name);
	struct lv_residue_entry entry;
	struct hv_residue item = {0};
	struct stat st;

	if (!lv_residue_parse(place_dir, name, instance, &entry) || lstat(full, &st) != 0 ||
		S_ISDIR(st.st_mode) != (entry.kind == HV_RESIDUE_DIRECTORY) ||
		(size_t)snprintf(item.name, sizeof item.name, "%s/%s", place_dir, name) >=
			sizeof item.name) {
		return;
	}
	item.kind = entry.kind;
	item.since_ms = changed_at_ms(&st);
	snprintf(item.id, sizeof item.id, "%s", entry.id);
	add(all, &item, &entry);
}

static int gather_files(struct candidates *all, const struct lv_place *place, const char *place_dir,
	const char *instance, struct err *err)
{
	_cleanup_free_ char *path = path_of(place, place_dir);
	_cleanup_(closedir_p) DIR *dir = path ? opendir(path) : NULL;

	/* A daemon that may not look at libvirtd's logs leaves them to libvirtd. */
	if (path && !dir && errno != ENOENT && (place->root || errno != EACCES)) {
		return err_sys(err, errno, "read %s", path);
	}
	for (struct dirent *entry = dir ? readdir(dir) : NULL; entry; entry = readdir(dir)) {
		look_at(all, place_dir, entry->d_name, path, instance);
	}
	return 0;
}

static void add_process(
	struct candidates *all, const struct process_found *found, const char *instance)
{
	struct lv_residue_entry entry = {.kind = HV_RESIDUE_PROCESS, .number = -1};
	struct hv_residue item = {.kind = HV_RESIDUE_PROCESS,
		.since_ms = process_started_at_ms(&found->process),
		.pid = found->process.pid,
		.pid_start = found->process.start};

	snprintf(entry.domain, sizeof entry.domain, "%s", found->domain);
	if (domain_name_parse(found->domain, instance, entry.id)) {
		snprintf(item.id, sizeof item.id, "%s", entry.id);
	}
	snprintf(item.name, sizeof item.name, "qemu pid %d%s%s", (int)item.pid,
		found->domain[0] ? " " : "", found->domain);
	add(all, &item, &entry);
}

static bool is_process_below(
	const struct process_found *found, size_t count, const char *root, const char *name)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", root, name);

	for (size_t i = 0; i < count; i++) {
		if (process_args_name(found[i].args, found[i].len, path)) {
			return true;
		}
	}
	return false;
}

static bool is_probe(const struct hv_residue *item, const struct lv_residue_entry *entry)
{
	return item->kind == HV_RESIDUE_DIRECTORY && entry->number < 0;
}

static bool is_used(const struct lv_residue_entry *entry, const struct lv_census *census)
{
	for (size_t i = 0; i < census->name_count; i++) {
		const struct lv_name *name = &census->names[i];

		if ((entry->domain[0] && strcmp(name->name, entry->domain) == 0) ||
			(entry->number >= 0 && name->number == entry->number)) {
			return true;
		}
	}
	return false;
}

/* Directories of probes that still run are dropped at once, with what they run below. */
static void drop_running_probes(
	struct candidates *all, const char *root, const struct process_found *found, size_t count)
{
	size_t kept = 0;

	for (size_t i = 0; i < all->count; i++) {
		if (!is_probe(&all->items[i], &all->entries[i]) ||
			!is_process_below(found, count, root, all->items[i].name)) {
			all->items[kept] = all->items[i];
			all->entries[kept++] = all->entries[i];
		}
	}
	all->count = kept;
}

static int gather(
	struct candidates *all, const struct lv_place *place, const char *instance, struct err *err)
{
	struct process_found *found;
	size_t count;

	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		if (gather_files(all, place, places[i].name, instance, err) != 0) {
			return -1;
		}
	}
	if (!place->root) {
		return 0;
	}
	if (process_scan(place->root, &found, &count, err) != 0) {
		return -1;
	}
	drop_running_probes(all, place->root, found, count);
	for (size_t i = 0; i < count; i++) {
		add_process(all, &found[i], instance);
	}
	process_scan_fini(found, count);
	return 0;
}

int lv_residue_gather_blocking(const struct lv_target *target, const struct lv_place *place,
	struct lv_census *ret_census, struct hv_residue **ret, size_t *ret_count, struct err *err)
{
	_cleanup_(candidates_fini) struct candidates all = {0};
	size_t count = 0;

	if (gather(&all, place, target->instance, err) != 0 ||
		lv_domain_census_blocking(target, ret_census, err) != 0) {
		return -1;
	}
	for (size_t i = 0; i < all.count; i++) {
		if (!is_used(&all.entries[i], ret_census)) {
			all.items[count++] = all.items[i];
		}
	}
	*ret = steal_ptr(&all.items);
	*ret_count = count;
	return 0;
}

/* ---- removing ---- */

static int refuse_used(
	const struct lv_target *target, const struct lv_residue_entry *entry, struct err *err)
{
	bool is_name_known = false;
	bool is_number_known = false;

	if ((entry->domain[0] &&
		    lv_domain_has_name_blocking(target, entry->domain, &is_name_known, err) != 0) ||
		(entry->number >= 0 && lv_domain_has_number_blocking(target, entry->number,
					       &is_number_known, err) != 0)) {
		return -1;
	}
	return is_name_known || is_number_known
		       ? err_set(err, ERR_CONFLICT, "a virtual machine uses it")
		       : 0;
}

static int end_process(const struct lv_target *target, const char *root,
	const struct hv_residue *item, struct err *err)
{
	const struct process process = {.pid = item->pid, .start = item->pid_start};
	struct lv_residue_entry entry = {.number = -1};
	int fd;

	_Static_assert(sizeof entry.domain == PROCESS_DOMAIN_BYTES, "a name fits both");
	if (process_open_below(&process, root, entry.domain, &fd, err) != 0) {
		return err->kind == ERR_NOT_FOUND ? 0 : -1;
	}
	_cleanup_close_ int pidfd = fd;

	if (refuse_used(target, &entry, err) != 0) {
		return -1;
	}
	process_kill(pidfd);
	return process_wait_blocking(pidfd, KILL_GRACE_MS)
		       ? 0
		       : err_set(err, ERR_TIMEOUT, "the process doesn't end");
}

static int remove_directory(const struct lv_target *target, const struct lv_residue_entry *entry,
	const char *path, pthread_rwlock_t *starts, struct err *err)
{
	if (pthread_rwlock_trywrlock(starts) != 0) {
		return err_set(err, ERR_CONFLICT, "a virtual machine is being started");
	}
	int rc = refuse_used(target, entry, err);

	if (rc == 0) {
		rc = fs_remove_tree(path, err);
	}
	pthread_rwlock_unlock(starts);
	return rc;
}

int lv_residue_remove_blocking(const struct lv_target *target, const struct lv_place *place,
	const struct hv_residue *item, pthread_rwlock_t *starts, struct err *err)
{
	const char *slash = strrchr(item->name, '/');
	struct lv_residue_entry entry;

	ASSERT(!loop_is_current());
	if (item->kind == HV_RESIDUE_PROCESS) {
		return place->root ? end_process(target, place->root, item, err)
				   : err_set(err, ERR_INVALID, "processes are libvirtd's affair");
	}
	_cleanup_free_ char *place_dir =
		slash ? xasprintf("%.*s", (int)(slash - item->name), item->name) : NULL;
	_cleanup_free_ char *dir = place_dir ? path_of(place, place_dir) : NULL;

	if (!dir || !lv_residue_parse(place_dir, slash + 1, target->instance, &entry)) {
		return err_set(err, ERR_INVALID, "%s isn't ours", item->name);
	}
	_cleanup_free_ char *path = xasprintf("%s/%s", dir, slash + 1);

	if (entry.kind == HV_RESIDUE_DIRECTORY) {
		return remove_directory(target, &entry, path, starts, err);
	}
	return refuse_used(target, &entry, err) != 0 ? -1 : fs_remove(path, err);
}
