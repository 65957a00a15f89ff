#include "store/store_migrate.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/xalloc.h"
#include "store/store_internal.h"
#include "store/store_stmt.h"

/*
 * Theory of operation
 *
 * PRAGMA user_version counts the migrations that a file has seen; each one runs in a transaction
 * together with the new count, so a crash leaves a whole number of them applied. Before the first
 * of them the content is copied to PATH.backup-<version> by VACUUM INTO a temporary file beside it,
 * then fsync and rename: a backup is whole or isn't there.
 *
 * Foreign keys are off while migrations run, since they may rebuild tables, and checked before each
 * commit.
 */

/* As in migrations/0001-init.sql. */
#define APPLICATION_ID 0x5061646b

#define BACKUP_INFIX ".backup-"

/* ---- questions to a file whose schema isn't known yet; not from the cache ---- */

/* The first column of the first row. */
static int ask(struct store *store, const char *sql, char **ret_text, struct err *err)
{
	sqlite3_stmt *stmt = NULL;
	int rc = sqlite3_prepare_v2(store->db, sql, -1, &stmt, NULL);

	if (rc == SQLITE_OK) {
		rc = sqlite3_step(stmt);
	}
	if (rc == SQLITE_ROW) {
		*ret_text = xstrdup((const char *)sqlite3_column_text(stmt, 0));
	} else if (rc == SQLITE_DONE) {
		*ret_text = NULL;
	}
	sqlite3_finalize(stmt);
	return rc == SQLITE_ROW || rc == SQLITE_DONE ? 0 : store_fail(store, rc, sql, err);
}

static int ask_int(struct store *store, const char *sql, long *ret, struct err *err)
{
	_cleanup_free_ char *text = NULL;

	if (ask(store, sql, &text, err) < 0) {
		return -1;
	}
	*ret = text ? strtol(text, NULL, 10) : 0;
	return 0;
}

/* ---- check ---- */

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static char *dir_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	if (!slash) {
		return xstrdup(".");
	}
	return xasprintf("%.*s", slash == path ? 1 : (int)(slash - path), path);
}

/* Path of the backup that was made last, NULL when there is none. */
static char *newest_backup(const char *path)
{
	_cleanup_free_ char *dir = dir_name(path);
	_cleanup_free_ char *prefix = xasprintf("%s" BACKUP_INFIX, base_name(path));
	char *newest = NULL;
	struct timespec newest_time = {0};
	DIR *listing = opendir(dir);
	struct dirent *entry;

	while (listing && (entry = readdir(listing))) {
		const char *suffix = entry->d_name + strlen(prefix);
		struct stat st;

		if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0 || !*suffix ||
			suffix[strspn(suffix, "0123456789")] ||
			fstatat(dirfd(listing), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
			continue;
		}
		if (!newest || st.st_mtim.tv_sec > newest_time.tv_sec ||
			(st.st_mtim.tv_sec == newest_time.tv_sec &&
				st.st_mtim.tv_nsec > newest_time.tv_nsec)) {
			free(newest);
			newest = xasprintf("%s/%s", dir, entry->d_name);
			newest_time = st.st_mtim;
		}
	}
	if (listing) {
		closedir(listing);
	}
	return newest;
}

static int refuse_damaged(struct store *store, const char *how, struct err *err)
{
	_cleanup_free_ char *backup = newest_backup(store->path);

	if (backup) {
		return err_set(err, ERR_INTERNAL,
			"database %s is damaged (%.80s); move it away and copy %s in its place",
			store->path, how, backup);
	}
	return err_set(err, ERR_INTERNAL,
		"database %s is damaged (%.80s) and there is no backup; move it away to start anew",
		store->path, how);
}

/* A failure to read it at all is damage, unless it is a lock or the like. */
static int refuse_unreadable(struct store *store, struct err *err)
{
	int primary = err->sys & 0xff;

	if (primary == SQLITE_NOTADB || primary == SQLITE_CORRUPT) {
		return refuse_damaged(store, sqlite3_errstr(err->sys), err);
	}
	return -1;
}

static int check_origin(struct store *store, long version, unsigned newest, struct err *err)
{
	long application_id;
	long tables;

	if (ask_int(store, "PRAGMA application_id", &application_id, err) < 0 ||
		ask_int(store, "SELECT count(*) FROM sqlite_schema", &tables, err) < 0) {
		return refuse_unreadable(store, err);
	}
	if (version == 0 && tables == 0) {
		return 0;
	}
	if (application_id != APPLICATION_ID || version <= 0) {
		return err_set(err, ERR_INTERNAL, "%s is not a database of paddockd", store->path);
	}
	if ((unsigned long)version > newest) {
		return err_set(err, ERR_INTERNAL,
			"database %s has schema version %ld, but this paddockd knows only %u: it "
			"was "
			"written by a newer release; run that one, or put a backup in its place",
			store->path, version, newest);
	}
	return 0;
}

int store_check(struct store *store, unsigned newest, struct err *err)
{
	_cleanup_free_ char *verdict = NULL;
	long version;

	if (ask_int(store, "PRAGMA user_version", &version, err) < 0) {
		return refuse_unreadable(store, err);
	}
	if (check_origin(store, version, newest, err) < 0) {
		return -1;
	}
	if (version == 0) {
		return 0;
	}
	if (ask(store, "PRAGMA quick_check(1)", &verdict, err) < 0) {
		return refuse_unreadable(store, err);
	}
	if (!verdict || strcmp(verdict, "ok") != 0) {
		return refuse_damaged(store, verdict ? verdict : "no answer", err);
	}
	return 0;
}

/* ---- migrate ---- */

static int sync_path(const char *path, int flags, struct err *err)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | flags);

	if (fd < 0 || fsync(fd) < 0) {
		return err_sys(err, errno, "sync %s", path);
	}
	return 0;
}

static int vacuum_into(struct store *store, const char *path, struct err *err)
{
	_cleanup_free_ char *sql = NULL;
	char *quoted = sqlite3_mprintf("VACUUM INTO %Q", path);

	ASSERT(quoted);
	sql = xstrdup(quoted);
	sqlite3_free(quoted);
	return store_exec(store, sql, err);
}

/* Keeps the content as PATH.backup-<version>. */
static int back_up(struct store *store, long version, struct err *err)
{
	_cleanup_free_ char *final = xasprintf("%s" BACKUP_INFIX "%ld", store->path, version);
	_cleanup_free_ char *partial = xasprintf("%s.partial", final);
	_cleanup_free_ char *dir = dir_name(store->path);
	_cleanup_close_ int fd = -1;

	if (unlink(partial) < 0 && errno != ENOENT) {
		return err_sys(err, errno, "remove %s", partial);
	}
	/* Empty, for its mode: sqlite would make it with the umask's. */
	fd = open(partial, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0) {
		return err_sys(err, errno, "create %s", partial);
	}
	if (vacuum_into(store, partial, err) < 0 || sync_path(partial, 0, err) < 0) {
		(void)unlink(partial);
		return err_wrap(err, "back up the database before its migration");
	}
	if (rename(partial, final) < 0) {
		return err_sys(err, errno, "rename %s", partial);
	}
	return sync_path(dir, O_DIRECTORY, err);
}

static int apply(struct store *store, const char *sql, unsigned version, struct err *err)
{
	_cleanup_store_tx_ struct store_tx tx = STORE_TX_INIT;
	_cleanup_free_ char *set_version = xasprintf("PRAGMA user_version = %u", version);
	_cleanup_free_ char *dangling = NULL;

	if (store_begin(store, &tx, err) < 0 || store_exec(store, sql, err) < 0 ||
		store_exec(store, set_version, err) < 0 ||
		ask(store, "PRAGMA foreign_key_check", &dangling, err) < 0) {
		return err_wrap(err, "migrate the database to version %u", version);
	}
	if (dangling) {
		return err_set(err, ERR_INTERNAL,
			"migrate the database to version %u: %s refers to rows that don't exist",
			version, dangling);
	}
	return store_commit(&tx, err);
}

int store_migrate(
	struct store *store, const char *const *migrations, unsigned count, struct err *err)
{
	long version;
	int r = 0;

	if (ask_int(store, "PRAGMA user_version", &version, err) < 0) {
		return -1;
	}
	if ((unsigned long)version == count) {
		return 0;
	}
	if (version > 0 && back_up(store, version, err) < 0) {
		return -1;
	}
	if (store_exec(store, "PRAGMA foreign_keys = OFF", err) < 0) {
		return -1;
	}
	for (unsigned next = (unsigned)version + 1; r == 0 && next <= count; next++) {
		r = apply(store, migrations[next - 1], next, err);
	}
	if (r < 0) {
		return -1;
	}
	return store_exec(store, "PRAGMA foreign_keys = ON", err);
}
