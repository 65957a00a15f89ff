#include "store/store_sandbox.h"

#include <string.h>

#include "base/json.h"
#include "base/xalloc.h"
#include "store/store_stmt.h"

/* In the order in which read_row() takes them. */
#define COLUMNS                                                                                    \
	"id, account_id, name, state, reason, size, vcpus, memory_mb, disk_gb, image,"             \
	" image_version, network, temporary, env, metadata, created_at, ready_at, expires_at,"     \
	" ended_at, idempotency_key, request_hash, uid, pid, pid_start, task"
#define ID_COLUMN       0
#define METADATA_COLUMN 14
#define CREATED_COLUMN  15

#define MISSING "there is no such sandbox"

void store_sandbox_free(struct store_sandbox *row)
{
	if (!row) {
		return;
	}
	free(row->name);
	free(row->state);
	free(row->reason);
	free(row->task);
	free(row->size);
	free(row->image);
	free(row->image_version);
	free(row->network);
	free(row->env);
	free(row->metadata);
	free(row->idempotency_key);
	free(row->request_hash);
	free(row);
}

static struct store_sandbox *read_row(struct stmt *stmt)
{
	struct store_sandbox *row = xnew(struct store_sandbox);
	int c = 0;

	stmt_text_into(stmt, c++, row->id, sizeof(row->id));
	stmt_text_into(stmt, c++, row->account, sizeof(row->account));
	row->name = stmt_text(stmt, c++);
	row->state = stmt_text(stmt, c++);
	row->reason = stmt_text(stmt, c++);
	row->size = stmt_text(stmt, c++);
	row->vcpus = (unsigned)stmt_int(stmt, c++);
	row->memory_mb = (unsigned)stmt_int(stmt, c++);
	row->disk_gb = (unsigned)stmt_int(stmt, c++);
	row->image = stmt_text(stmt, c++);
	row->image_version = stmt_text(stmt, c++);
	row->network = stmt_text(stmt, c++);
	row->is_temporary = stmt_int(stmt, c++) != 0;
	row->env = stmt_blob(stmt, c++, &row->env_len);
	row->metadata = stmt_text(stmt, c++);
	row->created_at_ms = stmt_int(stmt, c++);
	row->ready_at_ms = stmt_int(stmt, c++);
	row->expires_at_ms = stmt_int(stmt, c++);
	row->ended_at_ms = stmt_int(stmt, c++);
	row->idempotency_key = stmt_text(stmt, c++);
	row->request_hash = stmt_text(stmt, c++);
	row->uid = (uid_t)stmt_int(stmt, c++);
	row->pid = (pid_t)stmt_int(stmt, c++);
	row->pid_start = (uint64_t)stmt_int(stmt, c++);
	row->task = stmt_text(stmt, c++);
	return row;
}

static void bind_process(struct stmt *stmt, pid_t pid, uint64_t pid_start)
{
	if (pid) {
		stmt_bind_int(stmt, ":pid", pid);
		stmt_bind_int(stmt, ":pid_start", (int64_t)pid_start);
	}
}

int store_sandbox_insert(struct store *store, const struct store_sandbox *row, struct err *err)
{
	_cleanup_stmt_ struct stmt stmt = stmt_make(store,
		"INSERT INTO sandbox (" COLUMNS ") VALUES ("
		":id, :account, :name, :state, :reason, :size, :vcpus, :memory_mb, :disk_gb,"
		" :image, :image_version, :network, :temporary, :env, :metadata, :created_at,"
		" :ready_at, :expires_at, :ended_at, :idempotency_key, :request_hash, :uid, :pid,"
		" :pid_start, :task)");

	stmt_bind_text(&stmt, ":id", row->id);
	stmt_bind_text(&stmt, ":account", row->account);
	stmt_bind_text(&stmt, ":name", row->name);
	stmt_bind_text(&stmt, ":state", row->state);
	stmt_bind_text(&stmt, ":reason", row->reason);
	stmt_bind_text(&stmt, ":size", row->size);
	stmt_bind_int(&stmt, ":vcpus", row->vcpus);
	stmt_bind_int(&stmt, ":memory_mb", row->memory_mb);
	stmt_bind_int(&stmt, ":disk_gb", row->disk_gb);
	stmt_bind_text(&stmt, ":image", row->image);
	stmt_bind_text(&stmt, ":image_version", row->image_version);
	stmt_bind_text(&stmt, ":network", row->network);
	stmt_bind_int(&stmt, ":temporary", row->is_temporary);
	stmt_bind_blob(&stmt, ":env", row->env, row->env_len);
	stmt_bind_text(&stmt, ":metadata", row->metadata);
	stmt_bind_int(&stmt, ":created_at", row->created_at_ms);
	stmt_bind_int_or_null(&stmt, ":ready_at", row->ready_at_ms);
	stmt_bind_int_or_null(&stmt, ":expires_at", row->expires_at_ms);
	stmt_bind_int_or_null(&stmt, ":ended_at", row->ended_at_ms);
	stmt_bind_text(&stmt, ":idempotency_key", row->idempotency_key);
	stmt_bind_text(&stmt, ":request_hash", row->request_hash);
	stmt_bind_int_or_null(&stmt, ":uid", row->uid);
	bind_process(&stmt, row->pid, row->pid_start);
	stmt_bind_text(&stmt, ":task", row->task);
	return stmt_run(&stmt, err);
}

/* ---- one row ---- */

struct store_sandbox *store_sandbox_get(struct store *store, const char *id, struct err *err)
{
	_cleanup_stmt_ struct stmt stmt = stmt_make(
		store, "SELECT " COLUMNS " FROM sandbox WHERE id = :id");

	stmt_bind_text(&stmt, ":id", id);
	return stmt_find(&stmt, MISSING, err) < 0 ? NULL : read_row(&stmt);
}

struct store_sandbox *store_sandbox_get_by_name(
	struct store *store, const char *account, const char *name, struct err *err)
{
	_cleanup_stmt_ struct stmt stmt = stmt_make(store,
		"SELECT " COLUMNS " FROM sandbox"
		" WHERE account_id = :account AND name = :name AND ended_at IS NULL");

	stmt_bind_text(&stmt, ":account", account);
	stmt_bind_text(&stmt, ":name", name);
	return stmt_find(&stmt, MISSING, err) < 0 ? NULL : read_row(&stmt);
}

struct store_sandbox *store_sandbox_get_by_idempotency(
	struct store *store, const char *account, const char *idempotency_key, struct err *err)
{
	_cleanup_stmt_ struct stmt stmt = stmt_make(store,
		"SELECT " COLUMNS " FROM sandbox"
		" WHERE account_id = :account AND idempotency_key = :key");

	stmt_bind_text(&stmt, ":account", account);
	stmt_bind_text(&stmt, ":key", idempotency_key);
	return stmt_find(&stmt, MISSING, err) < 0 ? NULL : read_row(&stmt);
}

/* ---- changes ---- */

int store_sandbox_set_state(struct store *store, const char *id,
	const struct store_sandbox_change *change, struct err *err)
{
	_cleanup_stmt_ struct stmt stmt = stmt_make(store,
		"UPDATE sandbox SET state = :state, task = :task,"
		" reason = nullif(coalesce(:reason, reason), ''),"
		" ready_at = coalesce(:ready_at, ready_at),"
		" ended_at = coalesce(:ended_at, ended_at), pid = :pid, pid_start = :pid_start,"
		" uid = CASE WHEN :releases_uid THEN NULL ELSE uid END"
		" WHERE id = :id");

	stmt_bind_text(&stmt, ":id", id);
	stmt_bind_text(&stmt, ":state", change->state);
	stmt_bind_text(&stmt, ":task", change->task);
	stmt_bind_text(&stmt, ":reason", change->reason);
	stmt_bind_int_or_null(&stmt, ":ready_at", change->ready_at_ms);
	stmt_bind_int_or_null(&stmt, ":ended_at", change->ended_at_ms);
	bind_process(&stmt, change->pid, change->pid_start);
	stmt_bind_int(&stmt, ":releases_uid", change->releases_uid);
	return stmt_change(&stmt, MISSING, err);
}

int store_sandbox_release_key(struct store *store, const char *id, struct err *err)
{
	_cleanup_stmt_ struct stmt stmt = stmt_make(store,
		"UPDATE sandbox SET idempotency_key = NULL, request_hash = NULL WHERE id = :id");

	stmt_bind_text(&stmt, ":id", id);
	return stmt_change(&stmt, MISSING, err);
}

int store_sandbox_set_expiry(
	struct store *store, const char *id, int64_t expires_at_ms, struct err *err)
{
	_cleanup_store_sandbox_ struct store_sandbox *row = NULL;
	_cleanup_stmt_ struct stmt stmt = stmt_make(store,
		"UPDATE sandbox SET expires_at = :expires_at WHERE id = :id AND ended_at IS NULL");

	stmt_bind_text(&stmt, ":id", id);
	stmt_bind_int_or_null(&stmt, ":expires_at", expires_at_ms);
	if (stmt_change(&stmt, MISSING, err) == 0) {
		return 0;
	}
	if (err->kind != ERR_NOT_FOUND) {
		return -1;
	}
	row = store_sandbox_get(store, id, err);
	return row ? err_set(err, ERR_ENDED, "the sandbox has ended") : -1;
}

/* ---- many rows ---- */

void store_sandbox_list_fini(struct store_sandbox_list *list)
{
	for (size_t i = 0; i < list->count; i++) {
		store_sandbox_free(list->rows[i]);
	}
	free(list->rows);
	*list = (struct store_sandbox_list){0};
}

/* Metadata that one page looks through: some 20 ms. */
#define SCAN_MAX_BYTES (4 * 1024 * 1024)
/* A row costs something, too. */
#define SCAN_ROW_BYTES 256

/* Does the row's object, text of our own, hold each of @wanted's members? */
static bool holds(const char *metadata, json_object *wanted)
{
	_cleanup_json_ json_object *held = metadata ? json_tokener_parse(metadata) : NULL;

	json_object_object_foreach (wanted, key, value) {
		json_object *other;

		if (!held || !json_object_object_get_ex(held, key, &other) ||
			!json_object_equal(value, other)) {
			return false;
		}
	}
	return true;
}

static void add_row(struct store_sandbox_list *list, size_t *room, struct store_sandbox *row)
{
	if (list->count == *room) {
		*room = *room ? 2 * *room : 16;
		list->rows = xrealloc(list->rows, *room, sizeof(struct store_sandbox *));
	}
	list->rows[list->count++] = row;
}

/* Takes all rows that are left, or those that hold @wanted; what is beyond only shows as has_more.
 */
static int read_rows(struct stmt *stmt, size_t limit, json_object *wanted,
	struct store_sandbox_list *ret, struct err *err)
{
	_cleanup_store_sandbox_list_ struct store_sandbox_list list = {0};
	size_t room = 0;
	size_t scanned = 0;
	int r;

	while ((r = stmt_step(stmt, err)) > 0) {
		size_t len;
		const char *metadata = stmt_peek_text(stmt, METADATA_COLUMN, &len);

		if (list.count == limit || scanned > SCAN_MAX_BYTES) {
			list.has_more = true;
			break;
		}
		stmt_text_into(stmt, ID_COLUMN, list.last_id, sizeof list.last_id);
		list.last_created_at_ms = stmt_int(stmt, CREATED_COLUMN);
		if (wanted) {
			scanned += len + SCAN_ROW_BYTES;
			if (!holds(metadata, wanted)) {
				continue;
			}
		}
		add_row(&list, &room, read_row(stmt));
	}
	if (r < 0) {
		return -1;
	}
	*ret = list;
	list = (struct store_sandbox_list){0};
	return 0;
}

/* One text for each index, so that a page costs what it holds. */
#define PAGE_SQL(where)                                                                            \
	"SELECT " COLUMNS " FROM sandbox WHERE " where                                             \
	" (created_at, id) < (:after_created_at, :after_id)"                                       \
	" AND (:state IS NULL OR state = :state)"                                                  \
	" ORDER BY created_at DESC, id DESC LIMIT :limit"

static const char *const page_sql[2][2] = {
	/* [of one account][live only] */
	{PAGE_SQL(""), PAGE_SQL("ended_at IS NULL AND")},
	{PAGE_SQL("account_id = :account AND"),
		PAGE_SQL("account_id = :account AND ended_at IS NULL AND")},
};

int store_sandbox_list(struct store *store, const struct store_sandbox_query *query,
	struct store_sandbox_list *ret, struct err *err)
{
	_cleanup_json_ json_object *wanted = NULL;
	_cleanup_stmt_ struct stmt stmt = stmt_make(
		store, page_sql[query->account != NULL][query->is_live_only]);

	ASSERT(query->limit >= 1 && query->limit <= STORE_PAGE_MAX);
	if (query->metadata) {
		wanted = json_tokener_parse(query->metadata);
		ASSERT(wanted);
	}
	if (query->account) {
		stmt_bind_text(&stmt, ":account", query->account);
	}
	stmt_bind_text(&stmt, ":state", query->state);
	stmt_bind_int(&stmt, ":after_created_at",
		query->after_id ? query->after_created_at_ms : INT64_MAX);
	stmt_bind_text(&stmt, ":after_id", query->after_id ? query->after_id : "");
	/* -1: none but what is looked through. */
	stmt_bind_int(&stmt, ":limit", wanted ? -1 : (int64_t)query->limit + 1);
	return read_rows(&stmt, query->limit, wanted, ret, err);
}

int store_sandbox_list_owning(struct store *store, struct store_sandbox_list *ret, struct err *err)
{
	_cleanup_stmt_ struct stmt stmt = stmt_make(store,
		/* With OR, sqlite would read every record there is. */
		"SELECT " COLUMNS " FROM sandbox WHERE rowid IN ("
		"SELECT rowid FROM sandbox WHERE ended_at IS NULL UNION ALL"
		" SELECT rowid FROM sandbox WHERE uid IS NOT NULL)"
		" ORDER BY created_at, id");

	return read_rows(&stmt, SIZE_MAX, NULL, ret, err);
}

int store_sandbox_find_uid(
	struct store *store, uid_t first, unsigned count, uid_t *ret, struct err *err)
{
	_cleanup_stmt_ struct stmt stmt = stmt_make(
		store, "SELECT uid FROM sandbox WHERE uid >= :first AND uid < :end ORDER BY uid");
	int64_t end = (int64_t)first + count;
	int64_t lowest = first;
	int r;

	stmt_bind_int(&stmt, ":first", first);
	stmt_bind_int(&stmt, ":end", end);
	while ((r = stmt_step(&stmt, err)) > 0 && stmt_int(&stmt, 0) == lowest) {
		lowest++;
	}
	if (r < 0) {
		return -1;
	}
	if (lowest >= end) {
		return err_set(err, ERR_UNAVAILABLE,
			"all %u user ids for sandboxes are in use; try again when one has ended",
			count);
	}
	*ret = (uid_t)lowest;
	return 0;
}

int store_sandbox_prune(struct store *store, int64_t ended_before_ms, unsigned max,
	unsigned *ret_count, struct err *err)
{
	_cleanup_stmt_ struct stmt stmt = stmt_make(store,
		"DELETE FROM sandbox WHERE rowid IN (SELECT rowid FROM sandbox"
		" WHERE ended_at < :ended_before AND uid IS NULL ORDER BY ended_at LIMIT :max)");

	stmt_bind_int(&stmt, ":ended_before", ended_before_ms);
	stmt_bind_int(&stmt, ":max", max);
	if (stmt_run(&stmt, err) < 0) {
		return -1;
	}
	*ret_count = (unsigned)stmt_changes(&stmt);
	return 0;
}

int store_sandbox_prune_account(struct store *store, const char *account, unsigned keep,
	unsigned max, unsigned *ret_count, struct err *err)
{
	_cleanup_stmt_ struct stmt stmt = stmt_make(store,
		"DELETE FROM sandbox WHERE rowid IN (SELECT rowid FROM sandbox"
		" WHERE account_id = :account AND ended_at IS NOT NULL AND uid IS NULL"
		" AND (ended_at, id) <= (SELECT ended_at, id FROM sandbox"
		" WHERE account_id = :account AND ended_at IS NOT NULL"
		" ORDER BY ended_at DESC, id DESC LIMIT 1 OFFSET :keep)"
		" ORDER BY ended_at, id LIMIT :max)");

	stmt_bind_text(&stmt, ":account", account);
	stmt_bind_int(&stmt, ":keep", keep);
	stmt_bind_int(&stmt, ":max", max);
	if (stmt_run(&stmt, err) < 0) {
		return -1;
	}
	*ret_count = (unsigned)stmt_changes(&stmt);
	return 0;
}
