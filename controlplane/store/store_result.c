#include "store/store_result.h"

#include <stdlib.h>

#include "base/xalloc.h"
#include "store/store_stmt.h"

void store_result_fini(struct store_result *result)
{
	free(result->error);
	free(result->out.bytes);
	free(result->err_out.bytes);
	*result = (struct store_result){0};
}

void store_result_list_fini(struct store_result_list *list)
{
	for (size_t i = 0; i < list->count; i++) {
		store_result_fini(&list->rows[i]);
	}
	free(list->rows);
	*list = (struct store_result_list){0};
}

static int insert(struct store *store, const char *sandbox_id, const struct store_result *result,
	struct err *err)
{
	_cleanup_stmt_ struct stmt stmt = stmt_make(store,
		"INSERT INTO exec_result (sandbox_id, seq, id, ended_at, exit_code, signal,"
		" timed_out, truncated, duration_ms, error, stdout_bytes, stdout_tail,"
		" stderr_bytes, stderr_tail) VALUES (:sandbox_id, (SELECT coalesce(max(seq), 0) + 1"
		" FROM exec_result WHERE sandbox_id = :sandbox_id), :id, :ended_at, :exit_code,"
		" :signal, :timed_out, :truncated, :duration_ms, :error, :stdout_bytes,"
		" :stdout_tail, :stderr_bytes, :stderr_tail)");

	stmt_bind_text(&stmt, ":sandbox_id", sandbox_id);
	stmt_bind_text(&stmt, ":id", result->id);
	stmt_bind_int(&stmt, ":ended_at", result->ended_at_ms);
	if (!result->error) {
		stmt_bind_int(&stmt, ":exit_code", result->exit_code);
		stmt_bind_int(&stmt, ":duration_ms", result->duration_ms);
	}
	stmt_bind_int_or_null(&stmt, ":signal", result->signal);
	stmt_bind_int(&stmt, ":timed_out", result->timed_out);
	stmt_bind_int(&stmt, ":truncated", result->truncated);
	stmt_bind_text(&stmt, ":error", result->error);
	stmt_bind_int(&stmt, ":stdout_bytes", (int64_t)result->out.total);
	stmt_bind_blob(&stmt, ":stdout_tail", result->out.bytes, result->out.len);
	stmt_bind_int(&stmt, ":stderr_bytes", (int64_t)result->err_out.total);
	stmt_bind_blob(&stmt, ":stderr_tail", result->err_out.bytes, result->err_out.len);
	return stmt_run(&stmt, err);
}

int store_result_add(struct store *store, const char *sandbox_id, const struct store_result *result,
	unsigned keep, struct err *err)
{
	_cleanup_stmt_ struct stmt stmt = stmt_make(store,
		"DELETE FROM exec_result WHERE sandbox_id = :sandbox_id AND seq <= (SELECT max(seq)"
		" FROM exec_result WHERE sandbox_id = :sandbox_id) - :keep");

	if (insert(store, sandbox_id, result, err) < 0) {
		return -1;
	}
	stmt_bind_text(&stmt, ":sandbox_id", sandbox_id);
	stmt_bind_int(&stmt, ":keep", keep);
	return stmt_run(&stmt, err);
}

static void read_tail(struct stmt *stmt, int column, struct store_tail *ret)
{
	ret->total = (uint64_t)stmt_int(stmt, column);
	ret->bytes = stmt_blob(stmt, column + 1, &ret->len);
}

static void read_result(struct stmt *stmt, struct store_result *ret)
{
	int c = 0;

	stmt_text_into(stmt, c++, ret->id, sizeof ret->id);
	ret->ended_at_ms = stmt_int(stmt, c++);
	ret->exit_code = (int)stmt_int(stmt, c++);
	ret->signal = (int)stmt_int(stmt, c++);
	ret->timed_out = stmt_int(stmt, c++) != 0;
	ret->truncated = stmt_int(stmt, c++) != 0;
	ret->duration_ms = stmt_int(stmt, c++);
	ret->error = stmt_text(stmt, c++);
	read_tail(stmt, c, &ret->out);
	read_tail(stmt, c + 2, &ret->err_out);
}

int store_result_list(
	struct store *store, const char *sandbox_id, struct store_result_list *ret, struct err *err)
{
	_cleanup_store_result_list_ struct store_result_list list = {0};
	_cleanup_stmt_ struct stmt stmt = stmt_make(store,
		"SELECT id, ended_at, exit_code, signal, timed_out, truncated, duration_ms, error,"
		" stdout_bytes, stdout_tail, stderr_bytes, stderr_tail FROM exec_result"
		" WHERE sandbox_id = :sandbox_id ORDER BY seq DESC");
	int r;

	stmt_bind_text(&stmt, ":sandbox_id", sandbox_id);
	while ((r = stmt_step(&stmt, err)) > 0) {
		list.rows = xrealloc(list.rows, list.count + 1, sizeof(struct store_result));
		list.rows[list.count] = (struct store_result){0};
		read_result(&stmt, &list.rows[list.count++]);
	}
	if (r < 0) {
		return -1;
	}
	*ret = list;
	list = (struct store_result_list){0};
	return 0;
}
