#include <string.h>

#include "base/xalloc.h"
#include "ops/op.h"
#include "ops/op_exec.h"
#include "ops/signals.h"
#include "ops/view.h"
#include "proto/msg.h"

/*
 * Theory of operation. What there is to do with a command that is there already, and the start of
 * one that nobody waits for. A background command is answered with its record once it runs; should
 * its client leave before, it goes on. {eid} is looked for among the records, which the domain
 * keeps for commands that run, too.
 */

/* ---- finding one ---- */

static int refuse_exec(const char *text, struct err *err)
{
	return err_set(err, ERR_NOT_FOUND, "there is no command \"%s\"", text);
}

int op_find_exec(struct op_call *call, const char *eid, struct sandbox **ret_sb,
	struct store_exec *ret, struct err *err)
{
	_cleanup_store_sandbox_ struct store_sandbox *ended = NULL;
	struct sandbox *sb = op_find_sandbox(call, &ended, err);

	if (!sb && !ended) {
		return -1;
	}
	if (!id_is_valid(eid, ID_EXEC)) {
		return refuse_exec(eid, err);
	}
	if (sandbox_exec_get(call->ops->parts.sandboxes, call->sandbox, eid, ret, err) != 0) {
		return err->kind == ERR_NOT_FOUND ? refuse_exec(eid, err) : -1;
	}
	*ret_sb = sb;
	return 0;
}

static int refuse_ended(const char *eid, struct err *err)
{
	return err_set(err, ERR_CONFLICT, "command %s has ended", eid);
}

/* For what needs a running one. */
static int find_running(
	struct op_call *call, struct sandbox **ret_sb, struct store_exec *ret, struct err *err)
{
	if (op_find_exec(call, api_args_text(&call->args, "eid"), ret_sb, ret, err) != 0) {
		return -1;
	}
	if (!*ret_sb || ret->state != STORE_EXEC_RUNNING) {
		return refuse_ended(ret->id, err);
	}
	return 0;
}

bool op_is_unknown_exec(const struct guest_status *status, const struct err *err)
{
	return err->kind == ERR_GUEST && status && status->status == STATUS_NOT_FOUND;
}

enum op_ret op_reply_exec(struct op_call *call, const char *eid, int status)
{
	_cleanup_store_exec_ struct store_exec row = {0};
	struct err err;

	if (sandbox_exec_get(call->ops->parts.sandboxes, call->sandbox, eid, &row, &err) != 0) {
		return op_fail(call, &err);
	}
	return op_reply(call, status, view_exec_record(&row));
}

/* ---- start ---- */

static void drop_start(struct op_call *call)
{
	sandbox_job_leave(call->own);
}

static void on_started(
	void *arg, const char *eid, const struct guest_status *status, const struct err *err)
{
	struct op_call *call = arg;

	if (err) {
		op_fail_guest(call, status, err);
	} else {
		op_reply_exec(call, eid, OP_EXEC_BACKGROUND_STATUS);
	}
}

enum op_ret op_exec_background(
	struct op_call *call, struct sandbox *sb, const struct sandbox_exec_spec *spec)
{
	const struct api_args *args = &call->args;
	const struct guest_job_spec job_spec = {
		.exec = {.args = spec->args,
			.command = spec->command,
			.shell = spec->shell,
			.cwd = spec->cwd,
			.env = spec->env,
			.timeout_ms = (uint64_t)api_args_int(args, "timeout_ms")},
		.keep_stdin = api_args_bool(args, "keep_stdin"),
	};
	struct err err;
	struct sandbox_job *job;

	if (call->body || api_args_has(args, "stdin") || api_args_has(args, "stdin_base64")) {
		err_set(&err, ERR_INVALID,
			"\"background\": the command's input is written once it runs: ask for "
			"\"keep_stdin\", then use exec.stdin");
		return op_fail(call, &err);
	}
	job = sandbox_job_start(sb, &job_spec, on_started, call, &err);
	return job ? op_wait(call, drop_start, job) : op_fail(call, &err);
}

/* ---- one record, and waiting for its end ---- */

struct waiting {
	struct op_call *call;
	struct sandbox_exec_wait *wait; /* NULL: it has been told */
	struct event *timer;
};

static void waiting_free(struct waiting *waiting)
{
	if (waiting->wait) {
		sandbox_exec_wait_cancel(waiting->wait);
	}
	event_free(waiting->timer);
	free(waiting);
}

static void drop_waiting(struct op_call *call)
{
	waiting_free(call->own);
}

static void end_waiting(struct waiting *waiting)
{
	struct op_call *call = waiting->call;

	waiting_free(waiting);
	op_reply_exec(call, api_args_text(&call->args, "eid"), call->row->status);
}

static void on_ended(void *arg)
{
	struct waiting *waiting = arg;

	waiting->wait = NULL;
	end_waiting(waiting);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	end_waiting(arg);
}

enum op_ret op_exec_get(struct op_call *call)
{
	_cleanup_store_exec_ struct store_exec row = {0};
	uint64_t wait_ms = (uint64_t)api_args_int(&call->args, "wait_ms");
	struct sandbox_exec_wait *wait = NULL;
	struct sandbox *sb;
	struct err err;

	if (op_find_exec(call, api_args_text(&call->args, "eid"), &sb, &row, &err) != 0) {
		return op_fail(call, &err);
	}
	struct waiting *waiting = xnew(struct waiting);

	if (sb && wait_ms > 0) {
		wait = sandbox_exec_wait(sb, row.id, on_ended, waiting);
	}
	if (!wait) {
		free(waiting);
		return op_reply(call, call->row->status, view_exec_record(&row));
	}
	waiting->call = call;
	waiting->wait = wait;
	waiting->timer = loop_timer_new(call->ops->parts.loop, on_timer, waiting);
	loop_timer_set(waiting->timer, wait_ms);
	return op_wait(call, drop_waiting, waiting);
}

/* ---- signals ---- */

static void drop_running(struct op_call *call)
{
	sandbox_call_abandon(call->own);
}

static void on_signalled(void *arg, const struct guest_status *status, const struct err *err)
{
	struct op_call *call = arg;
	const char *eid = api_args_text(&call->args, "eid");
	struct err ignored;
	struct err ended;
	int number;

	if (err && op_is_unknown_exec(status, err)) {
		/* The record is about to say so. */
		(void)refuse_ended(eid, &ended);
		op_fail(call, &ended);
		return;
	}
	if (err) {
		op_fail_guest(call, status, err);
		return;
	}
	json_object *answer = json_object_new_object();

	(void)signal_parse(api_args_text(&call->args, "signal"), &number, &ignored);
	view_set_text(answer, "id", eid);
	view_set_int(answer, "signal", number);
	op_reply(call, call->row->status, answer);
}

enum op_ret op_exec_kill(struct op_call *call)
{
	_cleanup_store_exec_ struct store_exec row = {0};
	struct sandbox_call *running;
	struct sandbox *sb;
	struct err err;
	int number;

	if (signal_parse(api_args_text(&call->args, "signal"), &number, &err) != 0 ||
		find_running(call, &sb, &row, &err) != 0) {
		return op_fail(call, &err);
	}
	running = sandbox_exec_signal(sb, row.id, number, on_signalled, call, &err);
	return running ? op_wait(call, drop_running, running) : op_fail(call, &err);
}

/* ---- input ---- */

static void on_input_taken(void *arg, const struct guest_status *status, const struct err *err)
{
	struct op_call *call = arg;

	if (err) {
		op_fail_guest(call, status, err);
		return;
	}
	json_object *answer = json_object_new_object();

	view_set_text(answer, "id", api_args_text(&call->args, "eid"));
	view_set_bool(answer, "closed", api_args_bool(&call->args, "close"));
	op_reply(call, call->row->status, answer);
}

/* The body, or what the arguments say; with nothing but "close" an empty one. */
static struct pipe *take_input(struct op_call *call, struct err *err)
{
	struct pipe *input;
	uint64_t len;

	if (call->body) {
		return steal_ptr(&call->body);
	}
	input = op_pipe_of_content(call, "data", "data_base64", &len, err);
	if (!input && err->kind == ERR_NONE && api_args_bool(&call->args, "close")) {
		return op_pipe_of(call, "", 0);
	}
	if (!input && err->kind == ERR_NONE) {
		err_set(err, ERR_INVALID,
			"\"data\" is missing: give it, \"data_base64\", \"close\" or an "
			"application/octet-stream body");
	}
	return input;
}

enum op_ret op_exec_stdin(struct op_call *call)
{
	_cleanup_store_exec_ struct store_exec row = {0};
	bool closes = api_args_bool(&call->args, "close");
	struct sandbox_call *running;
	struct sandbox *sb;
	struct err err = ERR_INIT;

	if (find_running(call, &sb, &row, &err) != 0) {
		return op_fail(call, &err);
	}
	if (!row.is_background) {
		err_set(&err, ERR_CONFLICT,
			"command %s has had its input from who started it: only a background one "
			"takes more",
			row.id);
		return op_fail(call, &err);
	}
	struct pipe *input = take_input(call, &err);

	if (!input) {
		return op_fail(call, &err);
	}
	running = sandbox_job_input(sb, row.id, input, closes, on_input_taken, call, &err);
	if (!running) {
		pipe_reader_free(input);
		return op_fail(call, &err);
	}
	return op_wait(call, drop_running, running);
}
