#include "store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rand.h"
#include "base/xalloc.h"
#include "store/store_internal.h"
#include "store/store_migrate.h"
#include "store/store_stmt.h"

/*
 * Theory of operation
 *
 * One connection, used by the loop alone. WAL, so that somebody who looks with sqlite3(1) doesn't
 * hold us up; synchronous FULL, so that what was answered survives a power cut. A lock held by
 * another program makes a call fail rather than the loop stand still: calls together may wait for
 * BUSY_MS in BUSY_WINDOW_MS, since it makes no difference to the loop whether one call waits long
 * or a thousand wait a little.
 *
 * A file that turns out to be damaged is read as far as that goes and written no more: each write
 * could spread the damage into what is still good. The domain goes on without it: sandboxes run,
 * expire and are removed; nothing is created.
 *
 * Opening goes: file, connection, check (which only reads), settings, migrations, instance id. A
 * file that fails the check is left exactly as it was.
 */

#define BUSY_MS        100
#define BUSY_WINDOW_MS 1000
#define BUSY_STEP_MS   2
/* The log is copied into the file in pieces of about 1 MiB: short pauses instead of long ones. */
#define CHECKPOINT_PAGES "256"
/* The longest value; far above what the API lets anybody store. */
#define VALUE_MAX_BYTES (16 * 1024 * 1024)

/* ---- opening ---- */

/* sqlite would make it with the umask's mode, and its companion files get the mode of this one. */
static int make_file(const char *path, struct err *err)
{
	_cleanup_close_ int fd = open(
		path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	struct stat st;

	if (fd >= 0) {
		return 0;
	}
	if (errno != EEXIST) {
		return err_sys(err, errno, "create database %s", path);
	}
	if (lstat(path, &st) < 0) {
		return err_sys(err, errno, "look at database %s", path);
	}
	if (!S_ISREG(st.st_mode) || st.st_uid != geteuid()) {
		return err_set(err, ERR_INTERNAL, "database %s is not a file of ours", path);
	}
	if ((st.st_mode & 0777) != 0600 && chmod(path, 0600) < 0) {
		return err_sys(err, errno, "chmod database %s", path);
	}
	return 0;
}

/* Somebody else has the lock; 0: give up. */
static int on_busy(void *arg, int tries)
{
	struct store *store = arg;
	uint64_t now = clock_monotonic_ms();

	(void)tries;
	if (now - store->busy_since_ms >= BUSY_WINDOW_MS) {
		store->busy_since_ms = now;
		store->busy_ms = 0;
	}
	if (store->busy_ms >= BUSY_MS) {
		return 0;
	}
	store->busy_ms += BUSY_STEP_MS;
	usleep(BUSY_STEP_MS * 1000);
	return 1;
}

static int connect_file(struct store *store, struct err *err)
{
	int rc = sqlite3_open_v2(store->path, &store->db,
		SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, NULL);

	if (!store->db) {
		return err_set(err, ERR_INTERNAL, "database: no memory");
	}
	if (rc != SQLITE_OK) {
		return store_fail(store, rc, "open", err);
	}
	sqlite3_busy_handler(store->db, on_busy, store);
	sqlite3_limit(store->db, SQLITE_LIMIT_LENGTH, VALUE_MAX_BYTES);
	sqlite3_limit(store->db, SQLITE_LIMIT_ATTACHED, 1); /* VACUUM INTO attaches its target */
	sqlite3_db_config(store->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
	sqlite3_db_config(store->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
	return 0;
}

static int set_up(struct store *store, struct err *err)
{
	return store_exec(store,
		"PRAGMA journal_mode = WAL;"
		"PRAGMA synchronous = FULL;"
		"PRAGMA foreign_keys = ON;"
		"PRAGMA wal_autocheckpoint = " CHECKPOINT_PAGES ";",
		err);
}

static int load_instance(struct store *store, struct err *err)
{
	_cleanup_free_ char *known = store_meta_get(store, "instance", err);

	if (!known && err->kind == ERR_NOT_FOUND) {
		*err = ERR_INIT;
		rand_hex(store->instance, STORE_INSTANCE_BYTES - 1);
		return store_meta_set(store, "instance", store->instance, err);
	}
	if (!known) {
		return -1;
	}
	if (strlen(known) != STORE_INSTANCE_BYTES - 1 ||
		strspn(known, "0123456789abcdef") != STORE_INSTANCE_BYTES - 1) {
		return err_set(
			err, ERR_INTERNAL, "database %s: its instance id is damaged", store->path);
	}
	memcpy(store->instance, known, STORE_INSTANCE_BYTES);
	return 0;
}

struct store *store_open_with(
	const char *path, const char *const *migrations, unsigned count, struct err *err)
{
	_cleanup_(store_close_p) struct store *store = xnew(struct store);

	store->path = xstrdup(path);
	store->thread = pthread_self();
	if (make_file(path, err) < 0 || connect_file(store, err) < 0 ||
		store_check(store, count, err) < 0 || set_up(store, err) < 0 ||
		store_migrate(store, migrations, count, err) < 0 || load_instance(store, err) < 0) {
		return NULL;
	}
	store->is_open = true;
	return steal_ptr(&store);
}

struct store *store_open(const char *path, struct err *err)
{
	return store_open_with(path, store_migrations, store_migration_count, err);
}

void store_close(struct store *store)
{
	if (!store) {
		return;
	}
	store_assert_thread(store);
	ASSERT(!store->is_in_tx);
	for (unsigned i = 0; i < store->cached_count; i++) {
		sqlite3_finalize(store->cached[i].handle);
	}
	/* Copies the log into the file and removes it. */
	ASSERT(sqlite3_close(store->db) == SQLITE_OK);
	free(store->path);
	free(store);
}

bool store_is_good(const struct store *store, struct err *ret_why)
{
	if (store->is_damaged) {
		store_refuse_damaged(ret_why);
	}
	return !store->is_damaged;
}

const char *store_instance(const struct store *store)
{
	return store->instance;
}

/* ---- transactions ---- */

int store_begin(struct store *store, struct store_tx *tx, struct err *err)
{
	_cleanup_stmt_ struct stmt stmt = stmt_make(store, "BEGIN IMMEDIATE");

	ASSERT(!tx->store && !store->is_in_tx);
	if (stmt_run(&stmt, err) < 0) {
		return -1;
	}
	store->is_in_tx = true;
	tx->store = store;
	return 0;
}

int store_commit(struct store_tx *tx, struct err *err)
{
	struct store *store = tx->store;

	ASSERT(store && store->is_in_tx);
	{
		_cleanup_stmt_ struct stmt stmt = stmt_make(store, "COMMIT");

		if (stmt_run(&stmt, err) == 0) {
			store->is_in_tx = false;
			tx->store = NULL;
			return 0;
		}
	}
	store_rollback(tx);
	return -1;
}

void store_rollback(struct store_tx *tx)
{
	struct store *store = tx->store;

	if (!store) {
		return;
	}
	/* After a full disk or the like sqlite has rolled back by itself. */
	if (!sqlite3_get_autocommit(store->db)) {
		_cleanup_stmt_ struct stmt stmt = stmt_make(store, "ROLLBACK");
		struct err ignored = ERR_INIT;

		ASSERT(stmt_run(&stmt, &ignored) == 0);
	}
	store->is_in_tx = false;
	tx->store = NULL;
}

/* ---- meta ---- */

char *store_meta_get(struct store *store, const char *key, struct err *err)
{
	_cleanup_stmt_ struct stmt stmt = stmt_make(
		store, "SELECT value FROM meta WHERE key = :key");

	stmt_bind_text(&stmt, ":key", key);
	if (stmt_find(&stmt, "the database holds no such setting", err) < 0) {
		return NULL;
	}
	return stmt_text(&stmt, 0);
}

int store_meta_set(struct store *store, const char *key, const char *value, struct err *err)
{
	_cleanup_stmt_ struct stmt stmt = stmt_make(store,
		"INSERT INTO meta (key, value) VALUES (:key, :value)"
		" ON CONFLICT (key) DO UPDATE SET value = excluded.value");

	stmt_bind_text(&stmt, ":key", key);
	stmt_bind_text(&stmt, ":value", value);
	return stmt_run(&stmt, err);
}
