#include <string.h>

#include "base/xalloc.h"
#include "ops/op_exec.h"
#include "ops/signals.h"
#include "ops/socket.h"
#include "ops/view.h"

/*
 * Theory of operation
 *
 * A terminal is a background command with has_tty; who converses with it is one of its readers and
 * one of its writers. The conversation is agreed to once the command is known to be there:
 *
 *	(start it, or ask how far its output is) ──► on_open ──► following ──► exit ──► closed
 *
 * Output goes on as far as the client reads: what comes beyond waits in a backlog, which is no more
 * than what is under way when the guest is paused. Input goes into a pipe that one call empties for
 * as long as the conversation lasts; the client is held up while a message finds no room in it, and
 * while a resize or a signal is on its way, so that these keep their places among the bytes.
 *
 * When the client leaves, what it has typed still reaches the command, but for what it was held up
 * with.
 */

#define INPUT_PIPE_BYTES (64 * 1024)
#define SEND_MAX_BYTES   (32 * 1024)

struct pty {
	struct op_call *call;
	struct op_socket *socket; /* NULL: not open yet */
	char eid[ID_BYTES];
	struct sandbox_job *starting;
	struct sandbox_call *running;   /* the read under way: first how far, then on from there */
	struct sandbox_exec_wait *wait; /* for the record's end */

	uint64_t end;  /* attaching: of the output when it was asked for */
	uint64_t next; /* offset of what comes next from the guest */
	bool has_started;
	bool is_ended; /* the guest has told all */
	bool is_paused;
	struct err failure; /* how the reading ended; kind NONE: well */
	struct evbuffer *backlog;

	struct pipe *input; /* writer's end; NULL: not any more */
	struct sandbox_call *writing;
	struct evbuffer *typed; /* found no room */
	struct sandbox_call *control;
};

static struct pty *pty_new(struct op_call *call)
{
	struct pty *pty = xnew(struct pty);

	pty->call = call;
	pty->failure = ERR_INIT;
	pty->backlog = evbuffer_new();
	pty->typed = evbuffer_new();
	ASSERT(pty->backlog && pty->typed);
	return pty;
}

static void pty_free(struct pty *pty)
{
	evbuffer_free(pty->backlog);
	evbuffer_free(pty->typed);
	free(pty);
}

static void end_input(struct pty *pty)
{
	if (pty->input) {
		pipe_set_writer(pty->input, NULL, NULL);
		pipe_close(pty->input);
		pipe_writer_free(pty->input);
		pty->input = NULL;
	}
}

static void drop_pty(struct op_call *call)
{
	struct pty *pty = call->own;

	if (pty->starting) {
		sandbox_job_leave(pty->starting);
	}
	if (pty->running) {
		sandbox_call_abandon(pty->running);
	}
	if (pty->wait) {
		sandbox_exec_wait_cancel(pty->wait);
	}
	end_input(pty);
	if (pty->writing) {
		sandbox_call_leave(pty->writing);
	}
	if (pty->control) {
		sandbox_call_leave(pty->control);
	}
	pty_free(pty);
}

static struct sandbox *sandbox_of(const struct pty *pty)
{
	return sandbox_find(pty->call->ops->parts.sandboxes, NULL, pty->call->sandbox);
}

/* ---- words about the conversation ---- */

/* {NAME: data}. Takes @data. */
static void say(struct pty *pty, const char *name, json_object *data)
{
	_cleanup_json_ json_object *message = json_object_new_object();
	size_t len;

	view_set(message, name, data);
	const char *text = json_text(message, &len);

	op_socket_send(pty->socket, true, text, len);
}

static void say_error(struct pty *pty, const struct err *err)
{
	_cleanup_json_ json_object *message = op_stream_failed(pty->call, err);
	size_t len;
	const char *text = json_text(message, &len);

	op_socket_send(pty->socket, true, text, len);
	op_socket_close(pty->socket,
		err->kind == ERR_INTERNAL ? OP_SOCKET_INTERNAL : OP_SOCKET_GOING_AWAY, "");
}

static void say_exit(struct pty *pty)
{
	_cleanup_store_exec_ struct store_exec row = {0};
	struct err err;

	if (sandbox_exec_get(pty->call->ops->parts.sandboxes, pty->call->sandbox, pty->eid, &row,
		    &err) != 0) {
		say_error(pty, &err);
	} else if (row.state != STORE_EXEC_EXITED) {
		err_set(&err, row.state == STORE_EXEC_RUNNING ? ERR_UNAVAILABLE : ERR_CONFLICT,
			"command %s is %s%s%s", row.id, store_exec_state_name(row.state),
			row.error ? ": " : "", row.error ? row.error : "");
		say_error(pty, &err);
	} else {
		say(pty, "exit", view_exec_exit(&row));
		op_socket_close(pty->socket, OP_SOCKET_NORMAL, "");
	}
}

/* ---- output ---- */

static void pause_output(struct pty *pty, bool is_paused)
{
	if (pty->is_paused != is_paused && pty->running) {
		pty->is_paused = is_paused;
		sandbox_exec_pause(pty->running, is_paused);
	}
}

static void on_record_ended(void *arg)
{
	struct pty *pty = arg;

	pty->wait = NULL;
	say_exit(pty);
}

/* The client has been sent all there is. */
static void finish(struct pty *pty)
{
	struct sandbox *sb = sandbox_of(pty);

	if (pty->failure.kind != ERR_NONE) {
		say_error(pty, &pty->failure);
		return;
	}
	pty->wait = sb ? sandbox_exec_wait(sb, pty->eid, on_record_ended, pty) : NULL;
	if (!pty->wait) {
		say_exit(pty);
	}
}

/* @is_all: whether there is room or not. */
static void send_backlog(struct pty *pty, bool is_all)
{
	char block[SEND_MAX_BYTES];
	size_t room = is_all ? SIZE_MAX : op_socket_room(pty->socket);

	while (room > 0 && evbuffer_get_length(pty->backlog) > 0) {
		int n = evbuffer_remove(pty->backlog, block, MIN(sizeof block, room));

		op_socket_send(pty->socket, false, block, (size_t)n);
		room = is_all ? SIZE_MAX : op_socket_room(pty->socket);
	}
}

static void pump(struct pty *pty)
{
	send_backlog(pty, false);
	bool is_behind = evbuffer_get_length(pty->backlog) > 0;

	pause_output(pty, is_behind);
	if (pty->is_ended && !is_behind) {
		pty->is_ended = false; /* once */
		finish(pty);
	}
}

static void on_room(struct op_call *call)
{
	pump(call->own);
}

static void on_job(void *arg, const struct guest_job *job)
{
	struct pty *pty = arg;

	pty->end = job->end_offset;
}

static void on_start(void *arg, uint64_t offset)
{
	struct pty *pty = arg;
	json_object *data = json_object_new_object();

	if (!pty->has_started) {
		pty->has_started = true;
		view_set_text(data, "id", pty->eid);
		view_set_int(data, "offset", (int64_t)offset);
		say(pty, "start", data);
	} else {
		/* It is about the bytes behind it. */
		send_backlog(pty, true);
		view_set_int(data, "dropped_bytes", (int64_t)(offset - pty->next));
		say(pty, "gap", data);
	}
	pty->next = offset;
}

static void on_output(void *arg, int fd, const void *data, size_t len)
{
	struct pty *pty = arg;

	(void)fd;
	pty->next += len;
	ASSERT(evbuffer_add(pty->backlog, data, len) == 0);
	pump(pty);
}

static void on_read(void *arg, const struct guest_status *status, const struct err *err)
{
	struct pty *pty = arg;

	(void)status;
	pty->running = NULL;
	pty->is_ended = true;
	if (err) {
		pty->failure = *err;
	}
	pump(pty);
}

static void follow(struct pty *pty)
{
	const struct guest_read_spec spec = {
		.id = pty->eid, .offset = pty->next, .max = UINT64_MAX, .is_followed = true};
	const struct guest_job_hooks hooks = {.on_job = on_job,
		.on_start = on_start,
		.on_output = on_output,
		.on_done = on_read,
		.arg = pty};
	struct sandbox *sb = sandbox_of(pty);
	struct err err;

	if (!sb) {
		err_set(&err, ERR_ENDED, "the sandbox has ended");
	} else {
		pty->running = sandbox_job_read(sb, &spec, &hooks, &err);
	}
	if (!pty->running) {
		say_error(pty, &err);
	}
}

/* ---- input ---- */

/* The client waits while something of it hasn't got on its way. */
static void update_client(struct pty *pty)
{
	op_socket_pause(pty->socket, pty->control || evbuffer_get_length(pty->typed) > 0);
}

static void on_input_room(void *arg)
{
	struct pty *pty = arg;

	if (pipe_failure(pty->input)) {
		evbuffer_drain(pty->typed, evbuffer_get_length(pty->typed));
	}
	pipe_write_buffer(pty->input, pty->typed);
	update_client(pty);
}

/* The command has no use for more: its end is told by the output. */
static void on_written(void *arg, const struct guest_status *status, const struct err *err)
{
	struct pty *pty = arg;

	(void)status;
	(void)err;
	pty->writing = NULL;
	end_input(pty);
	evbuffer_drain(pty->typed, evbuffer_get_length(pty->typed));
	update_client(pty);
}

static void open_input(struct pty *pty)
{
	struct sandbox *sb = sandbox_of(pty);
	struct pipe *input = pipe_new(pty->call->ops->parts.loop, INPUT_PIPE_BYTES);
	struct err err;

	pty->writing = sb ? sandbox_job_input(sb, pty->eid, input, false, on_written, pty, &err)
			  : NULL;
	if (!pty->writing) {
		/* It has ended, or is about to say why it can't be read either. */
		pipe_reader_free(input);
		pipe_writer_free(input);
		return;
	}
	pty->input = input;
	pipe_set_writer(input, on_input_room, pty);
}

static void take_bytes(struct pty *pty, const char *data, size_t len)
{
	size_t taken = pty->input ? pipe_write(pty->input, data, len) : len;

	if (taken < len) {
		ASSERT(evbuffer_add(pty->typed, data + taken, len - taken) == 0);
		update_client(pty);
	}
}

/* ---- resize and signals ---- */

/* A resize of what has just ended is no harm. */
static void on_controlled(void *arg, const struct guest_status *status, const struct err *err)
{
	struct pty *pty = arg;

	(void)status;
	(void)err;
	pty->control = NULL;
	update_client(pty);
}

static void resize(struct pty *pty, unsigned rows, unsigned cols)
{
	struct sandbox *sb = sandbox_of(pty);
	struct err ignored;

	if (sb) {
		pty->control = sandbox_job_resize(
			sb, pty->eid, rows, cols, on_controlled, pty, &ignored);
		update_client(pty);
	}
}

static bool take_size(json_object *size, const char *name, unsigned *ret)
{
	json_object *member;

	if (!json_object_object_get_ex(size, name, &member) ||
		!json_object_is_type(member, json_type_int)) {
		return false;
	}
	int64_t value = json_object_get_int64(member);

	*ret = (unsigned)value;
	return value >= 1 && value <= API_TTY_SIZE_MAX;
}

static int take_resize(struct pty *pty, json_object *size, struct err *err)
{
	unsigned rows;
	unsigned cols;

	if (!take_size(size, "rows", &rows) || !take_size(size, "cols", &cols)) {
		return err_set(
			err, ERR_INVALID, "rows and cols must be from 1 to %d", API_TTY_SIZE_MAX);
	}
	resize(pty, rows, cols);
	return 0;
}

static int take_signal(struct pty *pty, json_object *name, struct err *err)
{
	struct sandbox *sb = sandbox_of(pty);
	struct err ignored;
	int number;

	if (!json_object_is_type(name, json_type_string)) {
		return err_set(err, ERR_INVALID, "signal must be a string");
	}
	if (signal_parse(json_object_get_string(name), &number, err) != 0) {
		return -1;
	}
	if (sb) {
		pty->control = sandbox_exec_signal(
			sb, pty->eid, number, on_controlled, pty, &ignored);
		update_client(pty);
	}
	return 0;
}

static int take_words(struct pty *pty, const char *text, size_t len, struct err *err)
{
	_cleanup_json_ json_object *message = json_parse(text, len, err);
	json_object *member;

	if (!message) {
		return err_set(err, ERR_INVALID, "a text message must be JSON");
	}
	if (json_object_object_get_ex(message, "resize", &member)) {
		return take_resize(pty, member, err);
	}
	if (json_object_object_get_ex(message, "signal", &member)) {
		return take_signal(pty, member, err);
	}
	return err_set(err, ERR_INVALID, "a text message must be a resize or a signal");
}

static void on_message(struct op_call *call, bool is_text, const char *data, size_t len)
{
	struct pty *pty = call->own;
	struct err err;

	if (!is_text) {
		take_bytes(pty, data, len);
	} else if (take_words(pty, data, len, &err) != 0) {
		op_socket_close(pty->socket, OP_SOCKET_POLICY, err.msg);
	}
}

/* ---- the beginning ---- */

static unsigned size_of(const struct op_call *call, const char *name, unsigned otherwise)
{
	return api_args_has(&call->args, name) ? (unsigned)api_args_int(&call->args, name)
					       : otherwise;
}

static void on_open(struct op_call *call, struct op_socket *socket)
{
	struct pty *pty = call->own;
	bool has_size = api_args_has(&call->args, "rows") && api_args_has(&call->args, "cols");

	pty->socket = socket;
	if (api_args_has(&call->args, "exec") && has_size) {
		resize(pty, size_of(call, "rows", 0), size_of(call, "cols", 0));
	}
	open_input(pty);
	follow(pty);
}

static const struct op_socket_hooks hooks = {
	.on_open = on_open, .on_message = on_message, .on_room = on_room};

static void fail(struct pty *pty, const struct guest_status *status, const struct err *err)
{
	struct op_call *call = pty->call;

	call->drop = NULL;
	pty_free(pty);
	op_fail_guest(call, status, err);
}

static void on_started(
	void *arg, const char *eid, const struct guest_status *status, const struct err *err)
{
	struct pty *pty = arg;

	pty->starting = NULL;
	if (err) {
		fail(pty, status, err);
		return;
	}
	snprintf(pty->eid, sizeof pty->eid, "%s", eid);
	op_reply_socket(pty->call, &hooks, drop_pty, pty);
}

static enum op_ret start(struct op_call *call)
{
	const struct api_args *args = &call->args;
	char **env = api_args_strv(args, "env");
	const struct guest_job_spec spec = {
		.exec = {.command = api_args_text(args, "command"),
			.shell = api_args_text(args, "shell"),
			.cwd = api_args_text(args, "cwd"),
			.env = env},
		.has_tty = true,
		.rows = size_of(call, "rows", 24),
		.cols = size_of(call, "cols", 80),
	};
	struct pty *pty = pty_new(call);
	struct err err;
	struct sandbox *sb = op_live_sandbox(call, &err);

	pty->starting = sb ? sandbox_job_start(sb, &spec, on_started, pty, &err) : NULL;
	strv_free(env);
	if (!pty->starting) {
		pty_free(pty);
		return op_fail(call, &err);
	}
	return op_wait(call, drop_pty, pty);
}

/* How far its output is was the question. */
static void on_probed(void *arg, const struct guest_status *status, const struct err *err)
{
	struct pty *pty = arg;
	uint64_t replay = (uint64_t)api_args_int(&pty->call->args, "replay_bytes");

	pty->running = NULL;
	if (err) {
		fail(pty, status, err);
		return;
	}
	pty->next = pty->end - MIN(replay, pty->end);
	op_reply_socket(pty->call, &hooks, drop_pty, pty);
}

static void on_probe_start(void *arg, uint64_t offset)
{
	(void)arg;
	(void)offset;
}

static void on_probe_output(void *arg, int fd, const void *data, size_t len)
{
	(void)arg;
	(void)fd;
	(void)data;
	(void)len;
}

static int check_attach(const struct store_exec *row, const struct sandbox *sb, struct err *err)
{
	if (!row->has_tty) {
		return err_set(err, ERR_CONFLICT, "command %s has no terminal", row->id);
	}
	if (!sb) {
		return err_set(err, ERR_ENDED, "the sandbox of command %s has ended", row->id);
	}
	return 0;
}

static enum op_ret attach(struct op_call *call)
{
	static const char *const others[] = {"command", "shell", "cwd", "env"};
	_cleanup_store_exec_ struct store_exec row = {0};
	struct sandbox *sb;
	struct err err;

	for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
		if (api_args_has(&call->args, others[i])) {
			err_set(&err, ERR_INVALID, "\"exec\" attaches: \"%s\" is for a start",
				others[i]);
			return op_fail(call, &err);
		}
	}
	if (op_find_exec(call, api_args_text(&call->args, "exec"), &sb, &row, &err) != 0 ||
		check_attach(&row, sb, &err) != 0) {
		return op_fail(call, &err);
	}
	struct pty *pty = pty_new(call);
	const struct guest_read_spec spec = {.id = pty->eid, .max = 0};
	const struct guest_job_hooks probe = {.on_job = on_job,
		.on_start = on_probe_start,
		.on_output = on_probe_output,
		.on_done = on_probed,
		.arg = pty};

	memcpy(pty->eid, row.id, sizeof pty->eid);
	pty->running = sandbox_job_read(sb, &spec, &probe, &err);
	if (!pty->running) {
		pty_free(pty);
		return op_fail(call, &err);
	}
	return op_wait(call, drop_pty, pty);
}

enum op_ret op_pty(struct op_call *call)
{
	return api_args_has(&call->args, "exec") ? attach(call) : start(call);
}
