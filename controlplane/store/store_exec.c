#include "store/store_exec.h"

#include <stdlib.h>
#include <string.h>

#include "base/xalloc.h"
#include "store/store_stmt.h"

static const char *const state_names[] = {
#define X(id, name) [STORE_EXEC_##id] = name,
	STORE_EXEC_STATES(X)
#undef X
};

const char *store_exec_state_name(enum store_exec_state state)
{
	ASSERT(state < STORE_EXEC_STATE_MAX);
	return state_names[state];
}

static void *copy_bytes(const void *bytes, size_t len)
{
	return len > 0 ? xmemdup(bytes, len) : NULL;
}

void store_exec_copy(const struct store_exec *row, struct store_exec *ret)
{
	*ret = *row;
	ret->command = xstrdup(row->command);
	ret->error = xstrdup(row->error);
	ret->out.bytes = copy_bytes(row->out.bytes, row->out.len);
	ret->err_out.bytes = copy_bytes(row->err_out.bytes, row->err_out.len);
	ret->runs = copy_bytes(row->runs, row->runs_len);
}

void store_exec_fini(struct store_exec *row)
{
	free(row->command);
	free(row->error);
	free(row->out.bytes);
	free(row->err_out.bytes);
	free(row->runs);
	*row = (struct store_exec){0};
}

void store_exec_list_fini(struct store_exec_list *list)
{
	for (size_t i = 0; i < list->count; i++) {
		store_exec_fini(&list->rows[i]);
	}
	free(list->rows);
	*list = (struct store_exec_list){0};
}

/* ---- writing ---- */

int store_exec_put(
	struct store *store, const char *sandbox_id, const struct store_exec *row, struct err *err)
{
	_cleanup_stmt_ struct stmt stmt = stmt_make(store,
		"INSERT INTO exec (sandbox_id, seq, end_seq, id, state, background, tty, command,"
		" started_at, ended_at, exit_code, signal, timed_out, truncated, duration_ms,"
		" error, stdout_bytes, stdout_tail, stderr_bytes, stderr_tail, tail_runs)"
		" VALUES (:sandbox_id, (SELECT coalesce(max(seq), 0) + 1 FROM exec"
		" WHERE sandbox_id = :sandbox_id), CASE WHEN :ended_at IS NOT NULL THEN"
		" (SELECT coalesce(max(end_seq), 0) + 1 FROM exec"
		" WHERE sandbox_id = :sandbox_id) END, :id, :state, :background, :tty, :command,"
		" :started_at, :ended_at, :exit_code, :signal, :timed_out, :truncated,"
		" :duration_ms, :error, :stdout_bytes, :stdout_tail, :stderr_bytes, :stderr_tail,"
		" :tail_runs)"
		" ON CONFLICT (sandbox_id, id) DO UPDATE SET state = excluded.state,"
		" end_seq = excluded.end_seq, ended_at = excluded.ended_at, exit_code = "
		"excluded.exit_code,"
		" signal = excluded.signal, timed_out = excluded.timed_out,"
		" truncated = excluded.truncated, duration_ms = excluded.duration_ms,"
		" error = excluded.error, stdout_bytes = excluded.stdout_bytes,"
		" stdout_tail = excluded.stdout_tail, stderr_bytes = excluded.stderr_bytes,"
		" stderr_tail = excluded.stderr_tail, tail_runs = excluded.tail_runs");

	stmt_bind_text(&stmt, ":sandbox_id", sandbox_id);
	stmt_bind_text(&stmt, ":id", row->id);
	stmt_bind_text(&stmt, ":state", store_exec_state_name(row->state));
	stmt_bind_int(&stmt, ":background", row->is_background);
	stmt_bind_int(&stmt, ":tty", row->has_tty);
	stmt_bind_text(&stmt, ":command", row->command);
	stmt_bind_int_or_null(&stmt, ":started_at", row->started_at_ms);
	stmt_bind_int_or_null(&stmt, ":ended_at", row->ended_at_ms);
	if (row->state == STORE_EXEC_EXITED) {
		stmt_bind_int(&stmt, ":exit_code", row->exit_code);
		stmt_bind_int(&stmt, ":duration_ms", row->duration_ms);
	}
	stmt_bind_int_or_null(&stmt, ":signal", row->signal);
	stmt_bind_int(&stmt, ":timed_out", row->timed_out);
	stmt_bind_int(&stmt, ":truncated", row->truncated);
	stmt_bind_text(&stmt, ":error", row->error);
	stmt_bind_int(&stmt, ":stdout_bytes", (int64_t)row->out.total);
	stmt_bind_blob(&stmt, ":stdout_tail", row->out.bytes, row->out.len);
	stmt_bind_int(&stmt, ":stderr_bytes", (int64_t)row->err_out.total);
	stmt_bind_blob(&stmt, ":stderr_tail", row->err_out.bytes, row->err_out.len);
	stmt_bind_blob(&stmt, ":tail_runs", row->runs, row->runs_len);
	return stmt_run(&stmt, err);
}

static struct store_exec *add_row(struct store_exec_list *list)
{
	struct store_exec *row;

	list->rows = xrealloc(list->rows, list->count + 1, sizeof(struct store_exec));
	row = &list->rows[list->count++];
	*row = (struct store_exec){0};
	return row;
}

int store_exec_prune(struct store *store, const char *sandbox_id, bool is_background, unsigned keep,
	struct store_exec_list *gone, struct err *err)
{
	_cleanup_stmt_ struct stmt stmt = stmt_make(store,
		"DELETE FROM exec WHERE sandbox_id = :sandbox_id AND background = :background AND"
		" end_seq IS NOT NULL AND seq NOT IN (SELECT seq FROM exec"
		" WHERE sandbox_id = :sandbox_id AND background = :background AND"
		" end_seq IS NOT NULL ORDER BY end_seq DESC LIMIT :keep)"
		" RETURNING id");
	int r;

	stmt_bind_text(&stmt, ":sandbox_id", sandbox_id);
	stmt_bind_int(&stmt, ":background", is_background);
	stmt_bind_int(&stmt, ":keep", keep);
	while ((r = stmt_step(&stmt, err)) > 0) {
		struct store_exec *row = add_row(gone);

		stmt_text_into(&stmt, 0, row->id, sizeof row->id);
		row->is_background = is_background;
	}
	return r;
}

/* ---- reading ---- */

#define COLUMNS                                                                                    \
	"id, state, background, tty, command, started_at, ended_at, exit_code, signal, timed_out," \
	" truncated, duration_ms, error, stdout_bytes, stdout_tail, stderr_bytes, stderr_tail,"    \
	" tail_runs"

static enum store_exec_state parse_state(const char *name)
{
	for (unsigned i = 0; i < STORE_EXEC_STATE_MAX; i++) {
		if (strcmp(state_names[i], name) == 0) {
			return (enum store_exec_state)i;
		}
	}
	return STORE_EXEC_LOST; /* the table's check knows no other */
}

static void read_tail(struct stmt *stmt, int column, struct store_tail *ret)
{
	ret->total = (uint64_t)stmt_int(stmt, column);
	ret->bytes = stmt_blob(stmt, column + 1, &ret->len);
}

static void read_row(struct stmt *stmt, struct store_exec *ret)
{
	char state[16];
	int c = 0;

	stmt_text_into(stmt, c++, ret->id, sizeof ret->id);
	stmt_text_into(stmt, c++, state, sizeof state);
	ret->state = parse_state(state);
	ret->is_background = stmt_int(stmt, c++) != 0;
	ret->has_tty = stmt_int(stmt, c++) != 0;
	ret->command = stmt_text(stmt, c++);
	ret->started_at_ms = stmt_int(stmt, c++);
	ret->ended_at_ms = stmt_int(stmt, c++);
	ret->exit_code = (int)stmt_int(stmt, c++);
	ret->signal = (int)stmt_int(stmt, c++);
	ret->timed_out = stmt_int(stmt, c++) != 0;
	ret->truncated = stmt_int(stmt, c++) != 0;
	ret->duration_ms = stmt_int(stmt, c++);
	ret->error = stmt_text(stmt, c++);
	read_tail(stmt, c, &ret->out);
	read_tail(stmt, c + 2, &ret->err_out);
	ret->runs = stmt_blob(stmt, c + 4, &ret->runs_len);
}

int store_exec_get(struct store *store, const char *sandbox_id, const char *id,
	struct store_exec *ret, struct err *err)
{
	_cleanup_stmt_ struct stmt stmt = stmt_make(
		store, "SELECT " COLUMNS " FROM exec WHERE sandbox_id = :sandbox_id AND id = :id");

	stmt_bind_text(&stmt, ":sandbox_id", sandbox_id);
	stmt_bind_text(&stmt, ":id", id);
	if (stmt_find(&stmt, "there is no such command", err) < 0) {
		return -1;
	}
	*ret = (struct store_exec){0};
	read_row(&stmt, ret);
	return 0;
}

static int read_list(
	struct stmt *stmt, const char *sandbox_id, struct store_exec_list *ret, struct err *err)
{
	_cleanup_store_exec_list_ struct store_exec_list list = {0};
	int r;

	stmt_bind_text(stmt, ":sandbox_id", sandbox_id);
	while ((r = stmt_step(stmt, err)) > 0) {
		read_row(stmt, add_row(&list));
	}
	if (r < 0) {
		return -1;
	}
	*ret = list;
	list = (struct store_exec_list){0};
	return 0;
}

int store_exec_list(
	struct store *store, const char *sandbox_id, struct store_exec_list *ret, struct err *err)
{
	_cleanup_stmt_ struct stmt stmt = stmt_make(store,
		"SELECT " COLUMNS " FROM exec WHERE sandbox_id = :sandbox_id ORDER BY seq DESC");

	return read_list(&stmt, sandbox_id, ret, err);
}

int store_exec_list_running(
	struct store *store, const char *sandbox_id, struct store_exec_list *ret, struct err *err)
{
	_cleanup_stmt_ struct stmt stmt = stmt_make(store,
		"SELECT " COLUMNS " FROM exec WHERE sandbox_id = :sandbox_id AND state = 'running'"
		" ORDER BY seq DESC");

	return read_list(&stmt, sandbox_id, ret, err);
}
