#include <string.h>

#include "agent/guest_private.h"
#include "agent/request.h"
#include "base/xalloc.h"

/*
 * Theory of operation. Starting, signalling, resizing and forgetting a job are a request and an
 * END. Waiting is a call that lasts as long as the job; cancelling it is nothing to the job. Input
 * is a call for each pipe of it. Reading and listing are in guest_job_read.c.
 */

int agent_put_id(const struct agent *agent, struct request *body, const char *id, struct err *err)
{
	if (!msg_id_is_valid(id, strlen(id))) {
		return err_set(err, ERR_INVALID, "that isn't the id of a command");
	}
	request_text(body, MSG_ID, "id", id, PROTO_ID_MAX_BYTES);
	return agent_needs(agent, PROTO_FEATURE_JOBS, err);
}

/* ---- short calls ---- */

struct guest_call *agent_signal(struct guest *guest, const char *id, int signal, guest_done_fn done,
	void *arg, struct err *err)
{
	_cleanup_request_ struct request body = REQUEST_INIT;

	if (agent_put_id(agent_of(guest), &body, id, err) < 0) {
		return NULL;
	}
	request_u32(&body, MSG_SIGNAL, (uint32_t)signal);
	return agent_short_call(guest, FRAME_SIGNAL, &body, true, done, arg, err);
}

static int check_job_spec(const struct guest_job_spec *spec, struct err *err)
{
	const struct guest_exec_spec *exec = &spec->exec;
	bool has_args = exec->args && exec->args[0];

	ASSERT(exec->id != NULL && !exec->stdin_pipe);
	if (has_args && exec->command) {
		return err_set(err, ERR_INVALID, "give either command or args");
	}
	if (!has_args && !exec->command && !spec->has_tty) {
		return err_set(err, ERR_INVALID, "without a terminal command or args are needed");
	}
	return 0;
}

struct guest_call *agent_job_start(struct guest *guest, const struct guest_job_spec *spec,
	guest_done_fn done, void *arg, struct err *err)
{
	const struct agent *agent = agent_of(guest);
	_cleanup_request_ struct request body = REQUEST_INIT;
	uint64_t features = PROTO_FEATURE_JOBS | (spec->has_tty ? PROTO_FEATURE_PTY : 0u);
	uint32_t flags = (spec->keep_stdin ? MSG_EXEC_STDIN : 0u) |
			 (spec->has_tty ? MSG_EXEC_TTY : 0u);

	if (check_job_spec(spec, err) < 0 || agent_needs(agent, features, err) < 0) {
		return NULL;
	}
	agent_put_command(&body, &spec->exec, flags);
	if (spec->has_tty) {
		request_u32(&body, MSG_ROWS, spec->rows);
		request_u32(&body, MSG_COLS, spec->cols);
	}
	return agent_short_call(guest, FRAME_JOB_START, &body, false, done, arg, err);
}

struct guest_call *agent_job_resize(struct guest *guest, const char *id, unsigned rows,
	unsigned cols, guest_done_fn done, void *arg, struct err *err)
{
	_cleanup_request_ struct request body = REQUEST_INIT;

	if (agent_put_id(agent_of(guest), &body, id, err) < 0) {
		return NULL;
	}
	request_u32(&body, MSG_ROWS, rows);
	request_u32(&body, MSG_COLS, cols);
	return agent_short_call(guest, FRAME_JOB_RESIZE, &body, true, done, arg, err);
}

struct guest_call *agent_job_forget(
	struct guest *guest, const char *id, guest_done_fn done, void *arg, struct err *err)
{
	_cleanup_request_ struct request body = REQUEST_INIT;

	if (agent_put_id(agent_of(guest), &body, id, err) < 0) {
		return NULL;
	}
	return agent_short_call(guest, FRAME_JOB_FORGET, &body, true, done, arg, err);
}

/* ---- wait ---- */

struct wait_call {
	struct guest_call call;
	struct guest_exec_hooks hooks;
};

static int wait_on_end(struct guest_call *call, struct err *err)
{
	if (agent_check_exit(&call->end, err) < 0) {
		return -1;
	}
	rpc_finish(call, NULL);
	return 0;
}

static void wait_done(struct guest_call *call, const struct err *err)
{
	struct wait_call *self = container_of(call, struct wait_call, call);
	struct guest_exec_result result = agent_exit_result(&call->end);

	self->hooks.on_done(self->hooks.arg, err ? NULL : &result, err);
}

static const struct call_ops wait_ops = {.on_end = wait_on_end, .done = wait_done};

struct guest_call *agent_job_wait(
	struct guest *guest, const char *id, const struct guest_exec_hooks *hooks, struct err *err)
{
	struct agent *agent = agent_of(guest);
	_cleanup_request_ struct request body = REQUEST_INIT;
	_cleanup_free_ struct wait_call *self = xnew(struct wait_call);
	struct rpc_request request = {.type = FRAME_JOB_WAIT, .body = &body, .ops = &wait_ops};

	if (agent_put_id(agent, &body, id, err) < 0) {
		return NULL;
	}
	self->hooks = *hooks;
	if (rpc_start(&agent->rpc, &self->call, &request, err) < 0) {
		return NULL;
	}
	return &steal_ptr(&self)->call;
}

/* ---- input ---- */

struct input_call {
	struct guest_call call;
	struct pipe *pipe;
	bool is_at_end; /* all of it has been written to the guest */
	guest_done_fn done;
	void *arg;
};

static struct input_call *input_of(struct guest_call *call)
{
	return container_of(call, struct input_call, call);
}

static size_t input_pull(struct guest_call *call, uint8_t *out, size_t max, bool *ret_is_end)
{
	struct input_call *self = input_of(call);
	size_t n = pipe_read(self->pipe, out, max);

	self->is_at_end = pipe_is_end(self->pipe);
	*ret_is_end = self->is_at_end;
	return n;
}

static void input_on_pipe(void *arg)
{
	struct input_call *self = arg;
	const struct err *failure = pipe_failure(self->pipe);

	if (failure) {
		rpc_finish(&self->call, failure);
		return;
	}
	rpc_poke(&self->call);
}

static int input_on_end(struct guest_call *call, struct err *err)
{
	if (!input_of(call)->is_at_end) {
		return rpc_violation(err, "input that was taken before it was sent");
	}
	rpc_finish(call, NULL);
	return 0;
}

static void input_release(struct guest_call *call, const struct err *err)
{
	struct pipe *pipe = steal_ptr(&input_of(call)->pipe);

	if (err) {
		pipe_fail(pipe, err);
	}
	pipe_reader_free(pipe);
}

static void input_done(struct guest_call *call, const struct err *err)
{
	struct input_call *self = input_of(call);
	struct guest_status status = rpc_status(call);

	self->done(self->arg, call->is_ended ? &status : NULL, err);
}

static const struct call_ops input_ops = {
	.on_end = input_on_end,
	.pull = input_pull,
	.release = input_release,
	.done = input_done,
};

struct guest_call *agent_job_input(struct guest *guest, const char *id, struct pipe *input,
	bool closes, guest_done_fn done, void *arg, struct err *err)
{
	struct agent *agent = agent_of(guest);
	_cleanup_request_ struct request body = REQUEST_INIT;
	_cleanup_free_ struct input_call *self = xnew(struct input_call);
	struct rpc_request request = {
		.type = FRAME_JOB_INPUT, .body = &body, .ops = &input_ops, .has_input = true};

	if (agent_put_id(agent, &body, id, err) < 0) {
		return NULL;
	}
	request_u32(&body, MSG_JOB_FLAGS, closes ? MSG_JOB_CLOSE : 0u);
	self->done = done;
	self->arg = arg;
	if (rpc_start(&agent->rpc, &self->call, &request, err) < 0) {
		return NULL;
	}
	self->pipe = input;
	pipe_set_reader(input, input_on_pipe, self);
	return &steal_ptr(&self)->call;
}
