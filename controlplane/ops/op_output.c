#include "base/xalloc.h"
#include "ops/op_exec.h"
#include "ops/output_tail.h"
#include "ops/view.h"

/*
 * Theory of operation. Output comes from the guest, which has a ring of it for as long as it keeps
 * the command, or from the record, which has the last bytes. The record is asked when there is no
 * guest any more, or when that has forgotten the command. Both count bytes the same way.
 *
 * An answer is one piece without a gap: where the ring drops bytes while it is read, the piece ends
 * before them, and the next one says what is missing. It doesn't end within a character either,
 * unless there is nothing else in it.
 */

struct reading {
	struct op_call *call;
	struct sandbox_call *running; /* NULL: it has ended */
	struct output_piece piece;
	uint64_t wanted; /* the offset that was asked for */
	uint64_t max;
	bool has_started;
	bool is_full; /* what still comes is for the next one */
	bool has_job;
	struct guest_job job; /* as it was when the reading began */
	struct err failure;
};

static void reading_free(struct reading *reading)
{
	reading->call->ops->collected_bytes -= output_piece_bytes(&reading->piece);
	output_piece_fini(&reading->piece);
	free(reading);
}

static void drop_reading(struct op_call *call)
{
	struct reading *reading = call->own;

	sandbox_call_abandon(reading->running);
	reading_free(reading);
}

/* ---- the answer ---- */

/* The guest's word of a command's end may be here before the record of it. */
static void take_end(struct store_exec *row, const struct guest_job *job)
{
	if (row->state == STORE_EXEC_RUNNING && !job->is_running) {
		row->state = STORE_EXEC_EXITED;
		row->exit_code = job->result.exit_code;
		row->signal = job->result.signal;
		row->timed_out = job->result.timed_out;
		row->out.total = job->end_offset;
	}
}

static bool is_last(const struct store_exec *row, const struct output_piece *piece)
{
	return row->state != STORE_EXEC_RUNNING &&
	       output_piece_next(piece) >= row->out.total + row->err_out.total;
}

static enum op_ret reply(
	struct op_call *call, struct store_exec *row, struct output_piece *piece, uint64_t wanted)
{
	/* The rest of a character may still come. */
	if (!is_last(row, piece)) {
		output_piece_trim(piece);
	}
	return op_reply(call, call->row->status,
		view_output(row, piece, piece->offset - MIN(wanted, piece->offset),
			is_last(row, piece)));
}

static enum op_ret reply_from_record(struct op_call *call, const struct store_exec *row)
{
	uint64_t wanted = (uint64_t)api_args_int(&call->args, "offset");
	struct output_piece piece;
	struct err err;

	if (output_tail_read(
		    row, wanted, (size_t)api_args_int(&call->args, "limit"), &piece, &err) != 0) {
		return op_fail(call, &err);
	}
	struct store_exec copy = *row;
	enum op_ret ret = reply(call, &copy, &piece, wanted);

	output_piece_fini(&piece);
	return ret;
}

/* ---- from the guest ---- */

static void on_job(void *arg, const struct guest_job *job)
{
	struct reading *reading = arg;

	reading->has_job = true;
	reading->job = *job;
}

static void stop(struct reading *reading)
{
	if (!reading->is_full) {
		reading->is_full = true;
		sandbox_call_cancel(reading->running);
	}
}

static void on_start(void *arg, uint64_t offset)
{
	struct reading *reading = arg;

	if (reading->has_started) {
		stop(reading);
	} else {
		reading->has_started = true;
		reading->piece.offset = offset;
	}
}

static void on_output(void *arg, int fd, const void *data, size_t len)
{
	struct reading *reading = arg;
	struct ops *ops = reading->call->ops;

	/* The guest was told the limit, and is not trusted to keep it. */
	if (reading->is_full || len > reading->max - output_piece_bytes(&reading->piece)) {
		stop(reading);
		return;
	}
	if (ops->collected_bytes + len > ops->config.bodies_total_bytes) {
		err_set(&reading->failure, ERR_UNAVAILABLE, "too much is under way; try again");
		stop(reading);
		return;
	}
	ops->collected_bytes += len;
	output_piece_add(&reading->piece, fd, data, len);
}

/* Where the guest has nothing to say the record may have. */
static void end_without(struct op_call *call, const struct guest_status *status,
	const struct err *err, bool is_record_final)
{
	_cleanup_store_exec_ struct store_exec row = {0};
	struct err ignored;
	const char *eid = api_args_text(&call->args, "eid");

	if (is_record_final &&
		sandbox_exec_get(call->ops->parts.sandboxes, call->sandbox, eid, &row, &ignored) ==
			0 &&
		row.state != STORE_EXEC_RUNNING) {
		reply_from_record(call, &row);
	} else {
		op_fail_guest(call, status, err);
	}
}

static void on_read(void *arg, const struct guest_status *status, const struct err *err)
{
	struct reading *reading = arg;
	struct op_call *call = reading->call;
	_cleanup_store_exec_ struct store_exec row = {0};
	struct err failure = reading->failure;

	reading->running = NULL;
	call->drop = NULL;
	if (err && !reading->is_full) {
		reading_free(reading);
		end_without(call, status, err, op_is_unknown_exec(status, err));
		return;
	}
	if (failure.kind == ERR_NONE && !reading->has_started) {
		err_set(&failure, ERR_UNAVAILABLE, "the guest sent no output");
	}
	if (failure.kind != ERR_NONE ||
		sandbox_exec_get(call->ops->parts.sandboxes, call->sandbox,
			api_args_text(&call->args, "eid"), &row, &failure) != 0) {
		reading_free(reading);
		op_fail(call, &failure);
		return;
	}
	if (reading->has_job) {
		take_end(&row, &reading->job);
	}
	struct output_piece piece = reading->piece;
	uint64_t wanted = reading->wanted;

	call->ops->collected_bytes -= output_piece_bytes(&piece);
	free(reading);
	reply(call, &row, &piece, wanted);
	output_piece_fini(&piece);
}

static enum op_ret read_guest(
	struct op_call *call, struct sandbox *sb, const struct store_exec *row)
{
	const struct api_args *args = &call->args;
	struct reading *reading = xnew(struct reading);
	const struct guest_read_spec spec = {.id = row->id,
		.offset = (uint64_t)api_args_int(args, "offset"),
		.max = (uint64_t)api_args_int(args, "limit"),
		.wait_ms = (uint64_t)api_args_int(args, "wait_ms")};
	const struct guest_job_hooks hooks = {.on_job = on_job,
		.on_start = on_start,
		.on_output = on_output,
		.on_done = on_read,
		.arg = reading};
	struct err err;

	reading->call = call;
	reading->wanted = spec.offset;
	reading->max = spec.max;
	output_piece_init(&reading->piece);
	reading->running = sandbox_job_read(sb, &spec, &hooks, &err);
	if (reading->running) {
		return op_wait(call, drop_reading, reading);
	}
	reading_free(reading);
	/* The agent may be lost for a while: the record of what has ended is there. */
	return row->state != STORE_EXEC_RUNNING && err.kind != ERR_RATE
		       ? reply_from_record(call, row)
		       : op_fail(call, &err);
}

enum op_ret op_exec_output(struct op_call *call)
{
	_cleanup_store_exec_ struct store_exec row = {0};
	struct sandbox *sb;
	struct err err;

	if (op_find_exec(call, api_args_text(&call->args, "eid"), &sb, &row, &err) != 0) {
		return op_fail(call, &err);
	}
	if (!row.is_background && row.state == STORE_EXEC_RUNNING) {
		err_set(&err, ERR_CONFLICT,
			"command %s runs in the foreground: its output goes to who started it",
			row.id);
		return op_fail(call, &err);
	}
	/* One that runs has nothing in its record: where the guest can't be asked, that is said. */
	bool is_in_guest = sb && row.is_background &&
			   (sandbox_state(sb) == SANDBOX_RUNNING ||
				   row.state == STORE_EXEC_RUNNING);

	if (call->accepts_events) {
		return op_exec_follow(call, is_in_guest ? sb : NULL, &row);
	}
	return is_in_guest ? read_guest(call, sb, &row) : reply_from_record(call, &row);
}
