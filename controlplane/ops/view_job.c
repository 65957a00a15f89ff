#include "ops/view.h"

#include "ops/output_tail.h"

static void set_bytes(json_object *obj, const char *key, struct evbuffer *bytes)
{
	size_t len = evbuffer_get_length(bytes);

	view_set_bytes(obj, key, len ? (const char *)evbuffer_pullup(bytes, -1) : "", len);
}

static void set_offset(json_object *obj, const char *key, uint64_t offset)
{
	view_set_int(obj, key, (int64_t)MIN(offset, (uint64_t)INT64_MAX));
}

/* How it ended, as far as that is known. */
static void set_end(json_object *obj, const struct store_exec *row)
{
	bool has_exited = row->state == STORE_EXEC_EXITED;
	int exit_code = row->timed_out ? VIEW_EXIT_CODE_TIMED_OUT : row->exit_code;

	view_set(obj, "exit_code", has_exited ? json_object_new_int(exit_code) : NULL);
	view_set(obj, "signal", row->signal ? json_object_new_int(row->signal) : NULL);
	view_set_bool(obj, "timed_out", row->timed_out);
	view_set_text(obj, "error", row->error);
}

json_object *view_output(const struct store_exec *row, const struct output_piece *piece,
	uint64_t dropped, bool is_end)
{
	json_object *obj = json_object_new_object();

	view_set_text(obj, "id", row->id);
	view_set_text(obj, "status", store_exec_state_name(row->state));
	set_bytes(obj, "stdout", piece->out);
	set_bytes(obj, "stderr", piece->err_out);
	set_offset(obj, "offset", piece->offset);
	set_offset(obj, "next_offset", output_piece_next(piece));
	set_offset(obj, "dropped_bytes", dropped);
	view_set_bool(obj, "is_end", is_end);
	set_end(obj, row);
	return obj;
}

json_object *view_exec_exit(const struct store_exec *row)
{
	json_object *obj = json_object_new_object();

	view_set_text(obj, "id", row->id);
	view_set_text(obj, "status", store_exec_state_name(row->state));
	set_end(obj, row);
	view_set_int(obj, "duration_ms", row->duration_ms);
	set_offset(obj, "stdout_bytes", row->out.total);
	set_offset(obj, "stderr_bytes", row->err_out.total);
	return obj;
}
