#include "store/store_key.h"

#include "base/xalloc.h"
#include "store/store_stmt.h"

#define COLUMNS                                                                                    \
	"api_key.id, api_key.account_id, api_key.name, api_key.hash, api_key.hint,"                \
	" api_key.created_at, api_key.revoked_at, api_key.last_used_at"
#define COLUMN_COUNT 8
#define MISSING      "there is no such key"

static void read_row(struct stmt *stmt, struct store_key *ret)
{
	*ret = (struct store_key){
		.created_at_ms = stmt_int(stmt, 5),
		.revoked_at_ms = stmt_int(stmt, 6),
		.last_used_at_ms = stmt_int(stmt, 7),
	};
	stmt_text_into(stmt, 0, ret->id, sizeof(ret->id));
	stmt_text_into(stmt, 1, ret->account, sizeof(ret->account));
	stmt_text_into(stmt, 2, ret->name, sizeof(ret->name));
	stmt_blob_into(stmt, 3, ret->hash, sizeof(ret->hash));
	stmt_text_into(stmt, 4, ret->hint, sizeof(ret->hint));
}

int store_key_insert(struct store *store, const struct store_key *key, struct err *err)
{
	_cleanup_stmt_ struct stmt stmt = stmt_make(store,
		"INSERT INTO api_key (id, account_id, name, hash, hint, created_at)"
		" VALUES (:id, :account, :name, :hash, :hint, :created_at)");

	stmt_bind_text(&stmt, ":id", key->id);
	stmt_bind_text(&stmt, ":account", key->account);
	stmt_bind_text(&stmt, ":name", key->name);
	stmt_bind_blob(&stmt, ":hash", key->hash, sizeof(key->hash));
	stmt_bind_text(&stmt, ":hint", key->hint);
	stmt_bind_int(&stmt, ":created_at", key->created_at_ms);
	return stmt_run(&stmt, err);
}

int store_key_get(struct store *store, const char *id, struct store_key *ret, struct err *err)
{
	_cleanup_stmt_ struct stmt stmt = stmt_make(
		store, "SELECT " COLUMNS " FROM api_key WHERE id = :id");

	stmt_bind_text(&stmt, ":id", id);
	if (stmt_find(&stmt, MISSING, err) < 0) {
		return -1;
	}
	read_row(&stmt, ret);
	return 0;
}

int store_key_get_by_hash(struct store *store, const uint8_t hash[STORE_KEY_HASH_BYTES],
	struct store_key *ret, struct store_account *ret_account, struct err *err)
{
	_cleanup_stmt_ struct stmt stmt = stmt_make(store,
		"SELECT " COLUMNS ", account.name, account.created_at, account.disabled"
		" FROM api_key JOIN account ON account.id = api_key.account_id"
		" WHERE hash = :hash");

	stmt_bind_blob(&stmt, ":hash", hash, STORE_KEY_HASH_BYTES);
	if (stmt_find(&stmt, MISSING, err) < 0) {
		return -1;
	}
	read_row(&stmt, ret);
	*ret_account = (struct store_account){
		.created_at_ms = stmt_int(&stmt, COLUMN_COUNT + 1),
		.is_disabled = stmt_int(&stmt, COLUMN_COUNT + 2) != 0,
	};
	stmt_text_into(&stmt, 1, ret_account->id, sizeof(ret_account->id));
	stmt_text_into(&stmt, COLUMN_COUNT, ret_account->name, sizeof(ret_account->name));
	return 0;
}

int store_key_revoke(struct store *store, const char *id, int64_t revoked_at_ms, struct err *err)
{
	_cleanup_stmt_ struct stmt stmt = stmt_make(store,
		"UPDATE api_key SET revoked_at = coalesce(revoked_at, :revoked_at) WHERE id = :id");

	stmt_bind_text(&stmt, ":id", id);
	stmt_bind_int(&stmt, ":revoked_at", revoked_at_ms);
	return stmt_change(&stmt, MISSING, err);
}

int store_key_touch(struct store *store, const char *id, int64_t used_at_ms, struct err *err)
{
	_cleanup_stmt_ struct stmt stmt = stmt_make(
		store, "UPDATE api_key SET last_used_at = :used_at WHERE id = :id");

	stmt_bind_text(&stmt, ":id", id);
	stmt_bind_int(&stmt, ":used_at", used_at_ms);
	return stmt_change(&stmt, MISSING, err);
}

int store_key_list(struct store *store, const char *account, struct store_key **ret,
	size_t *ret_count, struct err *err)
{
	_cleanup_stmt_ struct stmt stmt = stmt_make(store,
		"SELECT " COLUMNS " FROM api_key WHERE :account IS NULL OR account_id = :account"
		" ORDER BY created_at, id");
	_cleanup_free_ struct store_key *rows = NULL;
	size_t count = 0;
	int r;

	stmt_bind_text(&stmt, ":account", account);
	while ((r = stmt_step(&stmt, err)) > 0) {
		rows = xrealloc(rows, count + 1, sizeof(*rows));
		read_row(&stmt, &rows[count++]);
	}
	if (r < 0) {
		return -1;
	}
	*ret = steal_ptr(&rows);
	*ret_count = count;
	return 0;
}
