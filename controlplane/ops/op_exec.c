#include "ops/op_exec.h"

#include <inttypes.h>
#include <string.h>

#include "base/xalloc.h"
#include "ops/events.h"
#include "ops/view.h"

/* What one command's arguments, environment and directory may be together: the guest protocol has
 * room for 1 MiB, of which names and lengths take some. */
#define EXEC_REQUEST_MAX_BYTES (768 * 1024)

/*
 * Theory of operation. The answer is either JSON with the outputs, once the command has ended, or a
 * stream of events, which begins when the guest has accepted the command; what fails before that is
 * an error like any other. A stream's reader sets the pace: events.c says when it is behind, and
 * the guest is paused until it isn't.
 */

/* ---- kept outputs ---- */

static void drop_exec(struct op_call *call)
{
	sandbox_call_abandon(call->own);
}

static void on_exec(void *arg, const struct sandbox_exec_result *result, const struct err *err)
{
	struct op_call *call = arg;

	if (err) {
		op_fail(call, err);
	} else {
		op_reply(call, call->row->status, view_exec(result));
	}
}

/* ---- streams ---- */

struct streaming {
	struct op_call *call;
	struct sandbox_call *running; /* NULL: it has ended */
	struct events *events;        /* NULL: it hasn't begun */
};

static void drop_streaming(struct op_call *call)
{
	struct streaming *streaming = call->own;

	if (streaming->running) {
		sandbox_call_abandon(streaming->running);
	}
	events_free(streaming->events);
	free(streaming);
}

static void on_flow(void *arg, bool is_full)
{
	struct streaming *streaming = arg;

	if (streaming->running) {
		sandbox_exec_pause(streaming->running, is_full);
	}
}

/* From here on the answer is a stream, whatever becomes of the command. */
static void on_started(void *arg, const char *id)
{
	struct streaming *streaming = arg;
	struct op_call *call = streaming->call;
	struct pipe *pipe = pipe_new(call->ops->parts.loop, EVENTS_PIPE_BYTES);
	json_object *data = json_object_new_object();

	streaming->events = events_new(call->ops->parts.loop, pipe,
		call->ops->config.events_heartbeat_ms, on_flow, streaming);
	view_set_text(data, "id", id);
	events_add(streaming->events, "start", data);
	op_reply_stream(call, EVENTS_TYPE, pipe);
}

static void on_output(void *arg, int fd, const void *data, size_t len)
{
	struct streaming *streaming = arg;

	events_output(streaming->events, fd, data, len);
}

static void on_end(void *arg, const struct sandbox_exec_result *result, const struct err *err)
{
	struct streaming *streaming = arg;
	struct op_call *call = streaming->call;

	streaming->running = NULL;
	if (!streaming->events) {
		free(streaming);
		op_fail(call, err);
		return;
	}
	if (err) {
		events_add(streaming->events, "error", op_stream_failed(call, err));
	} else {
		events_add(streaming->events, "exit", view_exec_end(result));
	}
	events_end(streaming->events);
}

static enum op_ret start_stream(
	struct op_call *call, struct sandbox *sb, const struct sandbox_exec_spec *spec)
{
	struct err err;
	struct streaming *streaming = xnew(struct streaming);
	const struct sandbox_exec_hooks hooks = {.on_started = on_started,
		.on_output = on_output,
		.on_done = on_end,
		.arg = streaming};

	streaming->call = call;
	streaming->running = sandbox_exec_stream(sb, spec, &hooks, &err);
	if (!streaming->running) {
		free(streaming);
		pipe_reader_free(spec->stdin_pipe);
		return op_fail(call, &err);
	}
	return op_wait(call, drop_streaming, streaming);
}

/* ---- what is asked for ---- */

static size_t strv_bytes(char *const *strv)
{
	size_t bytes = 0;

	for (; strv && *strv; strv++) {
		bytes += strlen(*strv) + 1;
	}
	return bytes;
}

static int check_exec(
	const struct op_call *call, const struct sandbox_exec_spec *spec, struct err *err)
{
	uint64_t max = call->ops->config.exec_timeout_max_ms;
	size_t bytes = strv_bytes(spec->args) + strv_bytes(spec->env) +
		       (spec->command ? strlen(spec->command) : 0);

	if (!spec->args == !spec->command) {
		return err_set(err, ERR_INVALID, "give either \"command\" or \"args\"");
	}
	if (api_args_bool(&call->args, "keep_stdin") && !api_args_bool(&call->args, "background")) {
		return err_set(err, ERR_INVALID, "\"keep_stdin\" goes with \"background\" alone");
	}
	if (spec->output_cap > 0 && api_args_bool(&call->args, "background")) {
		return err_set(err, ERR_INVALID,
			"\"output_limit_bytes\" doesn't go with \"background\": what is kept then "
			"is "
			"the last output");
	}
	if (spec->args && spec->args[0][0] == '\0') {
		return err_set(err, ERR_INVALID, "\"args\"[0], the program, must not be empty");
	}
	if (spec->shell && !spec->command) {
		return err_set(err, ERR_INVALID, "\"shell\" goes with \"command\" alone");
	}
	if (spec->output_cap > call->ops->config.exec_output_max_bytes) {
		return err_set(err, ERR_INVALID,
			"\"output_limit_bytes\" must be between 1 and %" PRIu64 ", not %" PRIu64,
			call->ops->config.exec_output_max_bytes, spec->output_cap);
	}
	if (spec->timeout_ms > max && !api_args_bool(&call->args, "background")) {
		return err_set(err, ERR_INVALID,
			"\"timeout_ms\" must be between 1 and %" PRIu64 ", not %" PRIu64, max,
			spec->timeout_ms);
	}
	if (bytes > EXEC_REQUEST_MAX_BYTES) {
		return err_set(err, ERR_TOO_LARGE,
			"\"command\" or \"args\" and \"env\" must have at most %d bytes together, "
			"not %zu",
			EXEC_REQUEST_MAX_BYTES, bytes);
	}
	return 0;
}

/* The body, or what the arguments say; NULL without @err: none. */
static struct pipe *take_stdin(struct op_call *call, struct err *err)
{
	uint64_t len;

	if (call->body) {
		return steal_ptr(&call->body);
	}
	return op_pipe_of_content(call, "stdin", "stdin_base64", &len, err);
}

static enum op_ret start(struct op_call *call, struct sandbox_exec_spec *spec)
{
	struct err err = ERR_INIT;
	struct sandbox *sb = op_live_sandbox(call, &err);

	if (!sb || check_exec(call, spec, &err) < 0) {
		return op_fail(call, &err);
	}
	if (api_args_bool(&call->args, "background")) {
		return op_exec_background(call, sb, spec);
	}
	spec->stdin_pipe = take_stdin(call, &err);
	if (!spec->stdin_pipe && err.kind != ERR_NONE) {
		return op_fail(call, &err);
	}
	if (call->accepts_events) {
		return start_stream(call, sb, spec);
	}
	struct sandbox_call *running = sandbox_exec(sb, spec, on_exec, call, &err);

	if (!running) {
		pipe_reader_free(spec->stdin_pipe);
		return op_fail(call, &err);
	}
	return op_wait(call, drop_exec, running);
}

enum op_ret op_exec(struct op_call *call)
{
	const struct api_args *args = &call->args;
	struct sandbox_exec_spec spec = {
		.args = api_args_strv(args, "args"),
		.command = api_args_text(args, "command"),
		.shell = api_args_text(args, "shell"),
		.cwd = api_args_text(args, "cwd"),
		.env = api_args_strv(args, "env"),
		.timeout_ms = call->ops->config.exec_timeout_ms,
		.output_cap = (uint64_t)api_args_int(args, "output_limit_bytes"),
	};

	if (api_args_has(args, "timeout_ms")) {
		spec.timeout_ms = (uint64_t)api_args_int(args, "timeout_ms");
	}
	enum op_ret ret = start(call, &spec);

	strv_free((char **)spec.args);
	strv_free((char **)spec.env);
	return ret;
}

enum op_ret op_exec_list(struct op_call *call)
{
	struct err err = ERR_INIT;
	_cleanup_store_sandbox_ struct store_sandbox *ended = NULL;
	_cleanup_store_exec_list_ struct store_exec_list list = {0};
	struct sandbox *sb = op_find_sandbox(call, &ended, &err);

	if (!sb && !ended) {
		return op_fail(call, &err);
	}
	const char *id = sb ? sandbox_row(sb)->id : ended->id;

	if (sandbox_execs(call->ops->parts.sandboxes, id, &list, &err) != 0) {
		return op_fail(call, &err);
	}
	json_object *data = json_object_new_array();
	json_object *answer = json_object_new_object();

	for (size_t i = 0; i < list.count; i++) {
		json_object_array_add(data, view_exec_record(&list.rows[i]));
	}
	view_set(answer, "data", data);
	return op_reply(call, call->row->status, answer);
}
