#include "store/store_account.h"

#include <string.h>

#include "base/xalloc.h"
#include "store/store_stmt.h"

#define COLUMNS "id, name, created_at, disabled"
#define MISSING "there is no such account"

static void read_row(struct stmt *stmt, struct store_account *ret)
{
	*ret = (struct store_account){
		.created_at_ms = stmt_int(stmt, 2),
		.is_disabled = stmt_int(stmt, 3) != 0,
	};
	stmt_text_into(stmt, 0, ret->id, sizeof(ret->id));
	stmt_text_into(stmt, 1, ret->name, sizeof(ret->name));
}

int store_account_insert(struct store *store, const char *name, int64_t created_at_ms,
	struct store_account *ret, struct err *err)
{
	_cleanup_stmt_ struct stmt stmt = stmt_make(store,
		"INSERT INTO account (id, name, created_at) VALUES (:id, :name, :created_at)");
	struct store_account account = {.created_at_ms = created_at_ms};

	if (!name_is_valid(name)) {
		return err_set(err, ERR_INVALID,
			"an account's name has 1 to %d lower-case letters, digits and dashes, "
			"with none of the dashes at an end",
			NAME_MAX_BYTES);
	}
	id_make(account.id, ID_ACCOUNT);
	memcpy(account.name, name, strlen(name) + 1);
	stmt_bind_text(&stmt, ":id", account.id);
	stmt_bind_text(&stmt, ":name", account.name);
	stmt_bind_int(&stmt, ":created_at", created_at_ms);
	if (stmt_run(&stmt, err) < 0) {
		return -1;
	}
	*ret = account;
	return 0;
}

int store_account_get(
	struct store *store, const char *id, struct store_account *ret, struct err *err)
{
	_cleanup_stmt_ struct stmt stmt = stmt_make(
		store, "SELECT " COLUMNS " FROM account WHERE id = :id");

	stmt_bind_text(&stmt, ":id", id);
	if (stmt_find(&stmt, MISSING, err) < 0) {
		return -1;
	}
	read_row(&stmt, ret);
	return 0;
}

int store_account_get_by_name(
	struct store *store, const char *name, struct store_account *ret, struct err *err)
{
	_cleanup_stmt_ struct stmt stmt = stmt_make(
		store, "SELECT " COLUMNS " FROM account WHERE name = :name");

	stmt_bind_text(&stmt, ":name", name);
	if (stmt_find(&stmt, MISSING, err) < 0) {
		return -1;
	}
	read_row(&stmt, ret);
	return 0;
}

int store_account_set_disabled(
	struct store *store, const char *id, bool is_disabled, struct err *err)
{
	_cleanup_stmt_ struct stmt stmt = stmt_make(
		store, "UPDATE account SET disabled = :disabled WHERE id = :id");

	stmt_bind_text(&stmt, ":id", id);
	stmt_bind_int(&stmt, ":disabled", is_disabled);
	return stmt_change(&stmt, MISSING, err);
}

int store_account_next(struct store *store, char id[ID_BYTES], struct err *err)
{
	_cleanup_stmt_ struct stmt stmt = stmt_make(
		store, "SELECT id FROM account WHERE id > :id ORDER BY id LIMIT 1");
	char after[ID_BYTES];

	memcpy(after, id, sizeof after);
	stmt_bind_text(&stmt, ":id", after);
	int r = stmt_step(&stmt, err);

	if (r > 0) {
		stmt_text_into(&stmt, 0, id, ID_BYTES);
	}
	return r;
}

int store_account_list(
	struct store *store, struct store_account **ret, size_t *ret_count, struct err *err)
{
	_cleanup_stmt_ struct stmt stmt = stmt_make(
		store, "SELECT " COLUMNS " FROM account ORDER BY name");
	_cleanup_free_ struct store_account *rows = NULL;
	size_t count = 0;
	int r;

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
