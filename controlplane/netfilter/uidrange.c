#include "netfilter/uidrange.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/xalloc.h"
#include "netfilter/netfilter.h"
#include "netfilter/uidclaim.h"

/*
 * Theory of operation
 *
 * The registry is a directory with one file for each instance that has a range, and a lock. Every
 * call holds the lock (flock, so a process that dies gives it back) for a few milliseconds.
 *
 * A claim is stale when its state directory no longer has a record with that instance: removed, or
 * made anew. It is dropped only when no process runs in the range, since domains may well outlive
 * their state directory.
 *
 * Where the search for a free range begins depends on the instance id: after a reboot the registry
 * is empty, and an instance that starts for the first time then must not be led to the range that
 * belongs to the files of one that hasn't started yet. Ranges begin at multiples of their count.
 */

#define RECORD       "uid-range"
#define LOCK         "lock"
#define LOCK_WAIT_MS 10000
#define LOCK_STEP_MS 20
#define CLAIMS_MAX   1024

struct registry {
	const struct uidrange_settings *settings;
	const char *dir;
	const char *proc_dir;
	const char *etc_dir;
	int (*remove_filter)(const char *instance, struct err *err);
	int lock;
	struct uidclaim *others;
	size_t other_count;
	struct uidclaim own;
	bool has_own;
	struct uidclaim record;
	bool has_record;
};

static void registry_close(struct registry *registry)
{
	close_p(&registry->lock);
	free(registry->others);
}
#define _cleanup_registry_ _cleanup_(registry_close)

static int take_lock(struct registry *registry, struct err *err)
{
	_cleanup_free_ char *path = xasprintf("%s/" LOCK, registry->dir);

	registry->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (registry->lock < 0) {
		return err_sys(err, errno, "open %s", path);
	}
	for (int waited = 0; flock(registry->lock, LOCK_EX | LOCK_NB) != 0;
		waited += LOCK_STEP_MS) {
		if (errno != EWOULDBLOCK && errno != EINTR) {
			return err_sys(err, errno, "lock %s", path);
		}
		if (waited >= LOCK_WAIT_MS) {
			return err_set(err, ERR_UNAVAILABLE, "another process holds %s", path);
		}
		usleep(LOCK_STEP_MS * 1000);
	}
	return 0;
}

/* Sets *ret to whether the claim of another instance may be dropped. */
static int is_stale(
	const struct registry *registry, const struct uidclaim *claim, bool *ret, struct err *err)
{
	_cleanup_free_ char *path = xasprintf("%s/" RECORD, claim->state_dir);
	struct uidclaim record;
	struct err why;
	bool is_used;

	*ret = false;
	if (uidclaim_read(path, &record, &why) == 0) {
		if (strcmp(record.instance, claim->instance) == 0) {
			return 0;
		}
	} else if (why.kind != ERR_NOT_FOUND) {
		/* Not to be judged: better a range too many is kept. */
		return 0;
	}
	if (uiduse_find_process(registry->proc_dir, &claim->range, NULL, &is_used, err) != 0) {
		return -1;
	}
	*ret = !is_used;
	return 0;
}

static bool is_claim_name(const char *name)
{
	return name[0] != '\0' && strspn(name, "0123456789abcdef") == strlen(name) &&
	       strlen(name) < UIDCLAIM_INSTANCE_BYTES;
}

static int read_claim(struct registry *registry, const char *name, struct err *err)
{
	_cleanup_free_ char *path = xasprintf("%s/%s", registry->dir, name);
	struct uidclaim *claim = &registry->others[registry->other_count];
	bool may_drop;

	if (uidclaim_read(path, claim, err) != 0) {
		return -1;
	}
	if (strcmp(claim->instance, name) != 0) {
		return err_set(err, ERR_INTERNAL, "%s is the claim of another instance", path);
	}
	if (strcmp(name, registry->settings->instance) == 0) {
		registry->own = *claim;
		registry->has_own = true;
		return 0;
	}
	if (is_stale(registry, claim, &may_drop, err) != 0) {
		return -1;
	}
	if (may_drop) {
		struct err ignored;

		/* A table that stays only refuses too much, and without rights there is none. */
		(void)registry->remove_filter(claim->instance, &ignored);
		return fs_remove(path, err);
	}
	registry->other_count++;
	return 0;
}

DEFINE_CLEANUP(DIR *, closedir)

static int read_claims(struct registry *registry, struct err *err)
{
	_cleanup_(closedir_p) DIR *dir = opendir(registry->dir);
	struct dirent *entry;

	if (!dir) {
		return err_sys(err, errno, "open %s", registry->dir);
	}
	registry->others = xcalloc(CLAIMS_MAX, sizeof *registry->others);
	while ((entry = readdir(dir))) {
		if (!is_claim_name(entry->d_name)) {
			continue;
		}
		if (registry->other_count == CLAIMS_MAX) {
			return err_set(
				err, ERR_UNAVAILABLE, "%s holds too many claims", registry->dir);
		}
		if (read_claim(registry, entry->d_name, err) != 0) {
			return -1;
		}
	}
	return 0;
}

static int read_record(struct registry *registry, struct err *err)
{
	const struct uidrange_settings *settings = registry->settings;
	_cleanup_free_ char *path = xasprintf("%s/" RECORD, settings->state_dir);

	if (uidclaim_read(path, &registry->record, err) != 0) {
		return err->kind == ERR_NOT_FOUND ? 0 : -1;
	}
	/* One of an earlier instance in that directory means nothing. */
	registry->has_record = strcmp(registry->record.instance, settings->instance) == 0;
	return 0;
}

static int registry_open(
	struct registry *registry, const struct uidrange_settings *settings, struct err *err)
{
	*registry = (struct registry){.settings = settings,
		.dir = settings->registry ? settings->registry : UIDRANGE_REGISTRY,
		.proc_dir = settings->proc_dir ? settings->proc_dir : "/proc",
		.etc_dir = settings->etc_dir ? settings->etc_dir : "/etc",
		.remove_filter = settings->remove_filter ? settings->remove_filter
							 : netfilter_remove_blocking,
		.lock = -1};
	ASSERT(is_claim_name(settings->instance) && settings->state_dir[0] == '/');
	ASSERT(strlen(settings->state_dir) < PATH_MAX);
	if (fs_mkdir_parents(registry->dir, 0755, err) != 0 || take_lock(registry, err) != 0 ||
		read_claims(registry, err) != 0 || read_record(registry, err) != 0) {
		return -1;
	}
	return 0;
}

/* ---- which range ---- */

static const struct uidclaim *find_other(
	const struct registry *registry, const struct uidrange *range)
{
	for (size_t i = 0; i < registry->other_count; i++) {
		if (uidrange_overlap(&registry->others[i].range, range)) {
			return &registry->others[i];
		}
	}
	return NULL;
}

static int refuse_overlap(
	const struct uidrange *range, const struct uidclaim *other, struct err *err)
{
	return err_set(err, ERR_CONFLICT,
		"the uids %ju-%ju overlap those of the instance in %s (%ju-%ju); set "
		"network.uid_first to another range or to auto",
		(uintmax_t)range->first, (uintmax_t)range->first + range->count - 1,
		other->state_dir, (uintmax_t)other->range.first,
		(uintmax_t)other->range.first + other->range.count - 1);
}

static int is_free(
	const struct registry *registry, const struct uidrange *range, bool *ret, struct err *err)
{
	bool is_used;
	bool is_account;

	*ret = false;
	if (find_other(registry, range)) {
		return 0;
	}
	if (uiduse_find_account(registry->etc_dir, range, &is_account, err) != 0 ||
		uiduse_find_process(registry->proc_dir, range, NULL, &is_used, err) != 0) {
		return -1;
	}
	*ret = !is_account && !is_used;
	return 0;
}

static int find_free(const struct registry *registry, struct uidrange *ret, struct err *err)
{
	unsigned count = registry->settings->count;
	unsigned slots = (UIDRANGE_AUTO_LAST - UIDRANGE_AUTO_FIRST + 1) / count;
	uint32_t start = 2166136261; /* FNV-1a */

	for (const char *c = registry->settings->instance; *c; c++) {
		start = (start ^ (unsigned char)*c) * 16777619;
	}
	for (unsigned i = 0; i < slots; i++) {
		struct uidrange range = {
			.first = UIDRANGE_AUTO_FIRST + (start % slots + i) % slots * count,
			.count = count};
		bool is_good;

		if (is_free(registry, &range, &is_good, err) != 0) {
			return -1;
		}
		if (is_good) {
			*ret = range;
			return 0;
		}
	}
	return err_set(err, ERR_UNAVAILABLE,
		"no %u uids are free from %d to %d; set network.uid_first to a range that is",
		count, UIDRANGE_AUTO_FIRST, UIDRANGE_AUTO_LAST);
}

/* The range that this instance has or had before; NULL: none. */
static const struct uidrange *former(const struct registry *registry)
{
	if (registry->has_own) {
		return &registry->own.range;
	}
	return registry->has_record ? &registry->record.range : NULL;
}

static int choose(const struct registry *registry, struct uidrange *ret, struct err *err)
{
	const struct uidrange_settings *settings = registry->settings;
	const struct uidrange *before = former(registry);
	bool is_mapped;

	if (settings->first > 0) {
		*ret = (struct uidrange){.first = settings->first, .count = settings->count};
	} else if (before && before->count == settings->count) {
		*ret = *before;
	} else if (find_free(registry, ret, err) != 0) {
		return -1;
	}
	const struct uidclaim *other = find_other(registry, ret);

	if (other) {
		return refuse_overlap(ret, other, err);
	}
	if (uiduse_is_mapped(registry->proc_dir, ret, &is_mapped, err) != 0) {
		return -1;
	}
	if (!is_mapped) {
		return err_set(err, ERR_UNAVAILABLE,
			"the uids %ju-%ju don't exist in this container; map them, or set "
			"network.uid_first to a range that it has",
			(uintmax_t)ret->first, (uintmax_t)ret->first + ret->count - 1);
	}
	return 0;
}

static int check_leftovers(
	const struct registry *registry, const struct uidrange *range, struct err *err)
{
	const struct uidrange *before = former(registry);
	bool is_used;

	if (!before) {
		return 0;
	}
	if (uiduse_find_process(registry->proc_dir, before, range, &is_used, err) != 0) {
		return -1;
	}
	if (is_used) {
		return err_set(err, ERR_CONFLICT,
			"sandboxes still run with the uids %ju-%ju that this instance had before; "
			"destroy them before network.uid_first or uid_count is changed",
			(uintmax_t)before->first, (uintmax_t)before->first + before->count - 1);
	}
	return 0;
}

int uidrange_claim(const struct uidrange_settings *settings, struct uidrange *ret, struct err *err)
{
	_cleanup_registry_ struct registry registry;
	_cleanup_free_ char *record = xasprintf("%s/" RECORD, settings->state_dir);
	struct uidclaim claim;

	ASSERT(settings->count >= 1 && settings->count <= UIDRANGE_COUNT_MAX);
	if (registry_open(&registry, settings, err) != 0 ||
		choose(&registry, &claim.range, err) != 0 ||
		check_leftovers(&registry, &claim.range, err) != 0) {
		return -1;
	}
	_cleanup_free_ char *path = xasprintf("%s/%s", registry.dir, settings->instance);

	strcpy(claim.instance, settings->instance);
	strcpy(claim.state_dir, settings->state_dir);
	/* The record first: a claim without one would look stale. */
	if (uidclaim_write(record, &claim, err) != 0 || uidclaim_write(path, &claim, err) != 0) {
		return -1;
	}
	*ret = claim.range;
	return 0;
}

int uidrange_release(const struct uidrange_settings *settings, struct err *err)
{
	_cleanup_registry_ struct registry registry;
	_cleanup_free_ char *record = xasprintf("%s/" RECORD, settings->state_dir);
	bool is_used = false;

	if (registry_open(&registry, settings, err) != 0) {
		return -1;
	}
	const struct uidrange *range = former(&registry);
	_cleanup_free_ char *path = xasprintf("%s/%s", registry.dir, settings->instance);

	if (!range) {
		return 0;
	}
	if (uiduse_find_process(registry.proc_dir, range, NULL, &is_used, err) != 0) {
		return -1;
	}
	if (is_used) {
		return err_set(err, ERR_CONFLICT, "processes still run with the uids %ju-%ju",
			(uintmax_t)range->first, (uintmax_t)range->first + range->count - 1);
	}
	return fs_remove(path, err) != 0 || fs_remove(record, err) != 0 ? -1 : 0;
}
