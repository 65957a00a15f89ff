#include "store/store_stmt.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "base/xalloc.h"
#include "store/store_internal.h"

/*
 * Theory of operation
 *
 * SQL texts are literals, so their address names them: the cache is an array that is searched for
 * it. A statement leaves the cache for the length of a scope; using one twice at the same time is a
 * programming error.
 *
 * Bindings refer to the caller's memory (SQLITE_STATIC), so stmt_fini() clears them.
 */

/* ---- errors ---- */

/* What sqlite says of a unique constraint, and what we say. */
static const struct {
	const char *columns;
	const char *text;
} conflicts[] = {
	{"account.name", "an account of that name exists already"},
	{"sandbox.account_id, sandbox.name", "a sandbox of that name exists already"},
	{"sandbox.account_id, sandbox.idempotency_key", "that idempotency key was used already"},
	{"sandbox.uid", "that uid belongs to another sandbox"},
	{"sandbox.id", "a sandbox with that id exists already"},
};

static int fail_conflict(struct store *store, int rc, struct err *err)
{
	const char *columns = strstr(sqlite3_errmsg(store->db), ": ");

	for (size_t i = 0; columns && i < ARRAY_SIZE(conflicts); i++) {
		if (strcmp(columns + 2, conflicts[i].columns) == 0) {
			return err_set_at(
				err, ERR_CONFLICT, rc, __FILE__, __LINE__, "%s", conflicts[i].text);
		}
	}
	return err_set_at(err, ERR_CONFLICT, rc, __FILE__, __LINE__, "that exists already");
}

int store_refuse_damaged(struct err *err)
{
	return err_set(err, ERR_UNAVAILABLE,
		"the service's database is damaged; its operator has to restore it");
}

/* While it is opened, store_migrate.c tells this better: it knows the backups. */
static int fail_damaged(struct store *store, int rc, const char *what, struct err *err)
{
	err_set_at(err, ERR_INTERNAL, rc, __FILE__, __LINE__, "database: %s: %s", what,
		sqlite3_errmsg(store->db));
	if (!store->is_open) {
		return -1;
	}
	if (!store->is_damaged) {
		store->is_damaged = true;
		log_failure(LOG_LEVEL_ERR,
			"the database is damaged: nothing is written to it any more; restart "
			"paddockd, "
			"which says what to do",
			err, "path=%s", store->path);
	}
	return store_refuse_damaged(err);
}

int store_fail(struct store *store, int rc, const char *what, struct err *err)
{
	int sys = sqlite3_system_errno(store->db);

	if (rc == SQLITE_CONSTRAINT_UNIQUE || rc == SQLITE_CONSTRAINT_PRIMARYKEY) {
		return fail_conflict(store, rc, err);
	}
	if (rc == SQLITE_CONSTRAINT_FOREIGNKEY) {
		/* The only references are to accounts. */
		return err_set_at(
			err, ERR_NOT_FOUND, rc, __FILE__, __LINE__, "there is no such account");
	}
	switch (rc & 0xff) {
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
		return fail_damaged(store, rc, what, err);
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
		return err_set_at(err, ERR_UNAVAILABLE, rc, __FILE__, __LINE__,
			"the database is locked by another program; try again");
	case SQLITE_FULL:
		return err_set_at(err, ERR_UNAVAILABLE, rc, __FILE__, __LINE__,
			"the disk that holds the database is full");
	case SQLITE_IOERR:
		if (sys == ENOSPC || sys == EDQUOT) {
			return err_set_at(err, ERR_UNAVAILABLE, rc, __FILE__, __LINE__,
				"the disk that holds the database is full");
		}
		break;
	case SQLITE_TOOBIG:
		return err_set_at(err, ERR_TOO_LARGE, rc, __FILE__, __LINE__,
			"too large to be kept in the database");
	default:
		break;
	}
	return err_set_at(err, ERR_INTERNAL, rc, __FILE__, __LINE__,
		"database: %s: %s (code %d, errno %d)", what, sqlite3_errmsg(store->db), rc, sys);
}

static int stmt_fail(struct stmt *stmt, struct err *err)
{
	char what[64];

	snprintf(what, sizeof(what), "%s", stmt->sql);
	return store_fail(stmt->store, stmt->rc, what, err);
}

int store_exec(struct store *store, const char *sql, struct err *err)
{
	int rc = sqlite3_exec(store->db, sql, NULL, NULL, NULL);

	if (rc != SQLITE_OK) {
		char what[64];

		snprintf(what, sizeof(what), "%s", sql);
		return store_fail(store, rc, what, err);
	}
	return 0;
}

/* ---- cache ---- */

struct stmt stmt_make(struct store *store, const char *sql)
{
	struct stmt stmt = {.store = store, .sql = sql};

	store_assert_thread(store);
	for (unsigned i = 0; i < store->cached_count; i++) {
		if (store->cached[i].sql == sql) {
			stmt.handle = store->cached[i].handle;
			ASSERT(!sqlite3_stmt_busy(stmt.handle));
			return stmt;
		}
	}
	stmt.rc = sqlite3_prepare_v3(
		store->db, sql, -1, SQLITE_PREPARE_PERSISTENT, &stmt.handle, NULL);
	if (stmt.rc == SQLITE_OK) {
		ASSERT(store->cached_count < STORE_STATEMENTS_MAX);
		store->cached[store->cached_count++] = (struct store_cached){
			.sql = sql, .handle = stmt.handle};
	}
	return stmt;
}

void stmt_fini(struct stmt *stmt)
{
	if (stmt->handle) {
		sqlite3_reset(stmt->handle);
		sqlite3_clear_bindings(stmt->handle);
		stmt->handle = NULL;
	}
}

/* ---- binding ---- */

/* 0 when there is nothing to bind to, since preparing failed. */
static int parameter(struct stmt *stmt, const char *name)
{
	int index;

	if (!stmt->handle) {
		return 0;
	}
	index = sqlite3_bind_parameter_index(stmt->handle, name);
	ASSERT(index > 0);
	return index;
}

static void note(struct stmt *stmt, int rc)
{
	if (stmt->rc == SQLITE_OK) {
		stmt->rc = rc;
	}
}

void stmt_bind_int(struct stmt *stmt, const char *name, int64_t value)
{
	int index = parameter(stmt, name);

	if (index) {
		note(stmt, sqlite3_bind_int64(stmt->handle, index, value));
	}
}

void stmt_bind_int_or_null(struct stmt *stmt, const char *name, int64_t value)
{
	if (value) {
		stmt_bind_int(stmt, name, value);
	}
}

void stmt_bind_text(struct stmt *stmt, const char *name, const char *value)
{
	int index = parameter(stmt, name);

	if (index && value) {
		note(stmt, sqlite3_bind_text64(stmt->handle, index, value, strlen(value),
				   SQLITE_STATIC, SQLITE_UTF8));
	}
}

void stmt_bind_blob(struct stmt *stmt, const char *name, const void *value, size_t len)
{
	int index = parameter(stmt, name);

	if (index && value) {
		note(stmt, sqlite3_bind_blob64(stmt->handle, index, value, len, SQLITE_STATIC));
	}
}

/* ---- running ---- */

int stmt_step(struct stmt *stmt, struct err *err)
{
	if (stmt->store->is_damaged && stmt->handle && !sqlite3_stmt_readonly(stmt->handle)) {
		return store_refuse_damaged(err);
	}
	if (stmt->rc == SQLITE_OK || stmt->rc == SQLITE_ROW) {
		stmt->rc = sqlite3_step(stmt->handle);
	}
	switch (stmt->rc) {
	case SQLITE_ROW:
		return 1;
	case SQLITE_DONE:
		return 0;
	default:
		return stmt_fail(stmt, err);
	}
}

int stmt_run(struct stmt *stmt, struct err *err)
{
	int r = stmt_step(stmt, err);

	ASSERT(r <= 0);
	return r;
}

int stmt_find(struct stmt *stmt, const char *missing, struct err *err)
{
	int r = stmt_step(stmt, err);

	if (r == 0) {
		return err_set(err, ERR_NOT_FOUND, "%s", missing);
	}
	return r < 0 ? -1 : 0;
}

int stmt_change(struct stmt *stmt, const char *missing, struct err *err)
{
	if (stmt_run(stmt, err) < 0) {
		return -1;
	}
	if (stmt_changes(stmt) == 0) {
		return err_set(err, ERR_NOT_FOUND, "%s", missing);
	}
	return 0;
}

int stmt_changes(const struct stmt *stmt)
{
	return sqlite3_changes(stmt->store->db);
}

/* ---- the row ---- */

int64_t stmt_int(struct stmt *stmt, int column)
{
	return sqlite3_column_int64(stmt->handle, column);
}

char *stmt_text(struct stmt *stmt, int column)
{
	return xstrdup((const char *)sqlite3_column_text(stmt->handle, column));
}

const char *stmt_peek_text(struct stmt *stmt, int column, size_t *ret_len)
{
	const char *text = (const char *)sqlite3_column_text(stmt->handle, column);

	*ret_len = text ? (size_t)sqlite3_column_bytes(stmt->handle, column) : 0;
	return text;
}

void *stmt_blob(struct stmt *stmt, int column, size_t *ret_len)
{
	const void *blob = sqlite3_column_blob(stmt->handle, column);

	*ret_len = blob ? (size_t)sqlite3_column_bytes(stmt->handle, column) : 0;
	return blob ? xmemdup(blob, *ret_len) : NULL;
}

void stmt_text_into(struct stmt *stmt, int column, char *out, size_t size)
{
	const char *text = (const char *)sqlite3_column_text(stmt->handle, column);
	size_t len = text ? strlen(text) : 0;

	out[0] = '\0';
	if (len < size) {
		memcpy(out, text ? text : "", len + 1);
	}
}

void stmt_blob_into(struct stmt *stmt, int column, void *out, size_t len)
{
	const void *blob = sqlite3_column_blob(stmt->handle, column);

	memset(out, 0, len);
	if (blob && (size_t)sqlite3_column_bytes(stmt->handle, column) == len) {
		memcpy(out, blob, len);
	}
}
