#include "base/xalloc.h"
#include "ops/events.h"
#include "ops/op_exec.h"
#include "ops/output_tail.h"
#include "ops/view.h"

/*
 * Theory of operation. A background command's output as a stream of events, from the guest for as
 * long as that has it, else what the record has. The stream begins with the guest's first word;
 * what fails before that is an error like any other. When the guest has told all, the record's end
 * is waited for, since it says how the command ended.
 *
 * The reader sets the pace: events.c says when it is behind, and the guest is paused until it
 * isn't. The guest's ring holds the command up meanwhile, unless others read faster; what it had to
 * drop then is a gap.
 */

struct following {
	struct op_call *call;
	struct sandbox_call *running;   /* NULL: the guest has told all, or isn't asked */
	struct sandbox_exec_wait *wait; /* for the record's end; NULL: it isn't waited for */
	struct events *events;          /* NULL: it hasn't begun */
	uint64_t next;                  /* the offset of what comes next */
};

static void following_free(struct following *following)
{
	events_free(following->events);
	free(following);
}

static void drop_following(struct op_call *call)
{
	struct following *following = call->own;

	if (following->running) {
		sandbox_call_abandon(following->running);
	}
	if (following->wait) {
		sandbox_exec_wait_cancel(following->wait);
	}
	following_free(following);
}

/* ---- the stream ---- */

static void on_flow(void *arg, bool is_full)
{
	struct following *following = arg;

	if (following->running) {
		sandbox_exec_pause(following->running, is_full);
	}
}

/* Returns what reply() takes, when the first events are in it. */
static struct pipe *begin(struct following *following)
{
	struct op_call *call = following->call;
	struct pipe *pipe = pipe_new(call->ops->parts.loop, EVENTS_PIPE_BYTES);

	following->events = events_new(call->ops->parts.loop, pipe,
		call->ops->config.events_heartbeat_ms, on_flow, following);
	return pipe;
}

/* @following may be gone afterwards: HEAD wants no more than that. */
static enum op_ret reply(struct following *following, struct pipe *pipe)
{
	return op_reply_stream(following->call, EVENTS_TYPE, pipe);
}

static void locate(struct following *following, uint64_t offset)
{
	if (offset > following->next) {
		json_object *data = json_object_new_object();

		view_set_int(data, "dropped_bytes", (int64_t)(offset - following->next));
		events_add(following->events, "gap", data);
	}
	following->next = offset;
	events_locate(following->events, offset);
}

static void output(struct following *following, int fd, const void *data, size_t len)
{
	following->next += len;
	events_output(following->events, fd, data, len);
}

static void finish_with_error(struct following *following, const struct err *err)
{
	events_add(following->events, "error", op_stream_failed(following->call, err));
	events_end(following->events);
}

static void finish(struct following *following, const struct store_exec *row)
{
	struct err err;

	if (row->state == STORE_EXEC_EXITED) {
		events_add(following->events, "exit", view_exec_exit(row));
		events_end(following->events);
		return;
	}
	if (row->state == STORE_EXEC_RUNNING) {
		err_set(&err, ERR_UNAVAILABLE, "the service is shutting down");
	} else {
		err_set(&err, ERR_CONFLICT, "command %s is %s: %s", row->id,
			store_exec_state_name(row->state), row->error);
	}
	finish_with_error(following, &err);
}

/* ---- from the record ---- */

static bool replay(void *arg, int fd, const char *data, size_t len)
{
	output(arg, fd, data, len);
	return true;
}

static enum op_ret follow_record(struct following *following, const struct store_exec *row)
{
	struct op_call *call = following->call;
	uint64_t offset;
	struct err err;

	if (output_tail_begin(row, following->next, &offset, &err) != 0) {
		call->drop = NULL;
		following_free(following);
		return op_fail(call, &err);
	}
	call->drop = drop_following;
	call->own = following;
	struct pipe *pipe = begin(following);

	locate(following, offset);
	output_tail_each(row, offset, replay, following);
	finish(following, row);
	return reply(following, pipe);
}

/* ---- from the guest ---- */

static void on_record_ended(void *arg)
{
	_cleanup_store_exec_ struct store_exec row = {0};
	struct following *following = arg;
	struct op_call *call = following->call;
	struct err err;

	following->wait = NULL;
	if (sandbox_exec_get(call->ops->parts.sandboxes, call->sandbox,
		    api_args_text(&call->args, "eid"), &row, &err) == 0) {
		finish(following, &row);
	} else {
		finish_with_error(following, &err);
	}
}

/* All was told: as soon as the record says how it ended, so does the stream. */
static void wait_for_record(struct following *following)
{
	struct op_call *call = following->call;
	struct sandbox *sb = sandbox_find(call->ops->parts.sandboxes, NULL, call->sandbox);
	const char *eid = api_args_text(&call->args, "eid");

	following->wait = sb ? sandbox_exec_wait(sb, eid, on_record_ended, following) : NULL;
	if (!following->wait) {
		on_record_ended(following);
	}
}

static void on_start(void *arg, uint64_t offset)
{
	struct following *following = arg;
	struct pipe *pipe = following->events ? NULL : begin(following);

	locate(following, offset);
	if (pipe) {
		reply(following, pipe);
	}
}

static void on_output(void *arg, int fd, const void *data, size_t len)
{
	struct following *following = arg;

	if (following->events) {
		output(following, fd, data, len);
	}
}

static void fail_early(
	struct following *following, const struct guest_status *status, const struct err *err)
{
	_cleanup_store_exec_ struct store_exec row = {0};
	struct op_call *call = following->call;
	struct err ignored;

	if (op_is_unknown_exec(status, err) &&
		sandbox_exec_get(call->ops->parts.sandboxes, call->sandbox,
			api_args_text(&call->args, "eid"), &row, &ignored) == 0 &&
		row.state != STORE_EXEC_RUNNING) {
		follow_record(following, &row);
		return;
	}
	call->drop = NULL;
	following_free(following);
	op_fail_guest(call, status, err);
}

static void on_read(void *arg, const struct guest_status *status, const struct err *err)
{
	struct following *following = arg;
	struct err silent;

	following->running = NULL;
	if (!err && !following->events) {
		err_set(&silent, ERR_UNAVAILABLE, "the guest sent no output");
		err = &silent;
	}
	if (!following->events) {
		fail_early(following, status, err);
	} else if (err) {
		finish_with_error(following, err);
	} else {
		wait_for_record(following);
	}
}

enum op_ret op_exec_follow(struct op_call *call, struct sandbox *sb, const struct store_exec *row)
{
	struct following *following = xnew(struct following);
	struct err err;

	following->call = call;
	following->next = (uint64_t)api_args_int(&call->args, "offset");
	if (!sb) {
		return follow_record(following, row);
	}
	const struct guest_read_spec spec = {
		.id = row->id, .offset = following->next, .max = UINT64_MAX, .is_followed = true};
	const struct guest_job_hooks hooks = {
		.on_start = on_start, .on_output = on_output, .on_done = on_read, .arg = following};

	following->running = sandbox_job_read(sb, &spec, &hooks, &err);
	if (following->running) {
		return op_wait(call, drop_following, following);
	}
	if (row->state != STORE_EXEC_RUNNING && err.kind != ERR_RATE) {
		return follow_record(following, row);
	}
	following_free(following);
	return op_fail(call, &err);
}
