#include "agent/guest_private.h"
#include "agent/request.h"
#include "base/xalloc.h"

/*
 * Theory of operation. Output goes straight from the frame to on_output(); nothing is kept here. A
 * paused exec keeps its credit back, so that the guest, and in the end the process, stops once the
 * window is used up.
 *
 * Its time-out on the host stands still meanwhile: END comes behind the output.
 *
 * What the guest reports is checked against what came: fewer bytes than were sent, more than the
 * cap allows or an exit code that no process can have is a broken guest, not a result.
 */

struct exec_call {
	struct guest_call call;
	struct guest_exec_hooks hooks;
	struct pipe *stdin_pipe;
	uint64_t output_cap;
	uint64_t tail_cap;
	uint64_t received[FRAME_CHANNEL_MAX];
	size_t withheld[FRAME_CHANNEL_MAX];
	bool is_paused;
};

static struct exec_call *exec_of(struct guest_call *call)
{
	return container_of(call, struct exec_call, call);
}

static int exec_on_started(
	struct guest_call *call, const uint8_t *body, size_t len, struct err *err)
{
	struct exec_call *self = exec_of(call);

	(void)body;
	(void)len;
	(void)err;
	if (self->hooks.on_started) {
		self->hooks.on_started(self->hooks.arg);
	}
	return 0;
}

static uint64_t add_or_max(uint64_t a, uint64_t b)
{
	return b > UINT64_MAX - a ? UINT64_MAX : a + b;
}

static int exec_on_data(
	struct guest_call *call, unsigned channel, const uint8_t *data, size_t len, struct err *err)
{
	struct exec_call *self = exec_of(call);
	uint64_t sum = self->received[FRAME_CHANNEL_OUT] + self->received[FRAME_CHANNEL_ERR];

	if (len > add_or_max(self->output_cap, 2 * self->tail_cap) - sum) {
		return rpc_violation(err, "more output than was asked for");
	}
	self->received[channel] += len;
	self->hooks.on_output(self->hooks.arg, channel == FRAME_CHANNEL_OUT ? 1 : 2, data, len);
	if (self->is_paused) {
		self->withheld[channel] += len;
	} else {
		rpc_consume(call, channel, len);
	}
	return 0;
}

int agent_check_exit(const struct call_end *end, struct err *err)
{
	if (!end->has_exit_code || end->exit_code > 255 || end->signal > PROTO_SIGNAL_MAX) {
		return rpc_violation(err, "an END without a possible exit code");
	}
	if (end->out_bytes > INT64_MAX || end->err_bytes > INT64_MAX - end->out_bytes) {
		return rpc_violation(err, "an END that counts more than can have been written");
	}
	return 0;
}

struct guest_exec_result agent_exit_result(const struct call_end *end)
{
	return (struct guest_exec_result){
		.exit_code = (int)end->exit_code,
		.signal = (int)end->signal,
		.timed_out = end->flags & MSG_END_TIMED_OUT,
		.truncated = end->flags & MSG_END_TRUNCATED,
		.stdout_bytes = end->out_bytes,
		.stderr_bytes = end->err_bytes,
		.stdout_tail = end->out_tail,
		.stderr_tail = end->err_tail,
		.duration_us = end->duration_us,
	};
}

/* The tails it tells of have come, and what came before them is within the cap. */
static bool tails_fit(const struct exec_call *self)
{
	const struct call_end *end = &self->call.end;
	uint64_t out = self->received[FRAME_CHANNEL_OUT];
	uint64_t err = self->received[FRAME_CHANNEL_ERR];

	return end->out_tail <= MIN(out, self->tail_cap) &&
	       end->err_tail <= MIN(err, self->tail_cap) &&
	       (out - end->out_tail) + (err - end->err_tail) <= self->output_cap;
}

static int exec_on_end(struct guest_call *call, struct err *err)
{
	struct exec_call *self = exec_of(call);
	const struct call_end *end = &call->end;
	struct err failure = ERR_INIT;

	if (agent_check_exit(end, err) < 0) {
		return -1;
	}
	if (end->out_bytes < self->received[FRAME_CHANNEL_OUT] ||
		end->err_bytes < self->received[FRAME_CHANNEL_ERR]) {
		return rpc_violation(err, "an END that counts less output than came");
	}
	if (end->flags & MSG_END_CANCELLED) {
		err_set(&failure, ERR_CANCELLED, "the command was cancelled");
		rpc_finish(call, &failure);
		return 0;
	}
	if (!tails_fit(self)) {
		return rpc_violation(err, "an END with tails that can't be");
	}
	rpc_finish(call, NULL);
	return 0;
}

static bool exec_is_guests_turn(const struct guest_call *call)
{
	const struct exec_call *self = container_of(call, struct exec_call, call);

	return self->withheld[FRAME_CHANNEL_OUT] == 0 && self->withheld[FRAME_CHANNEL_ERR] == 0;
}

static size_t exec_pull(struct guest_call *call, uint8_t *out, size_t max, bool *ret_is_end)
{
	struct exec_call *self = exec_of(call);
	size_t n = pipe_read(self->stdin_pipe, out, max);

	*ret_is_end = pipe_is_end(self->stdin_pipe);
	return n;
}

static void exec_on_stdin(void *arg)
{
	struct exec_call *self = arg;
	const struct err *failure = pipe_failure(self->stdin_pipe);

	if (failure) {
		rpc_finish(&self->call, failure);
		return;
	}
	rpc_poke(&self->call);
}

static void exec_release(struct guest_call *call, const struct err *err)
{
	struct exec_call *self = exec_of(call);
	struct pipe *pipe = steal_ptr(&self->stdin_pipe);

	if (pipe && err) {
		pipe_fail(pipe, err);
	}
	pipe_reader_free(pipe);
}

static void exec_done(struct guest_call *call, const struct err *err)
{
	struct exec_call *self = exec_of(call);
	const struct call_end *end = &call->end;
	bool has_result = call->is_ended && end->status == STATUS_OK;
	struct guest_exec_result result = agent_exit_result(end);

	/* Never call complete what didn't come. */
	result.truncated |= end->out_bytes != self->received[FRAME_CHANNEL_OUT] ||
			    end->err_bytes != self->received[FRAME_CHANNEL_ERR];
	self->hooks.on_done(self->hooks.arg, has_result ? &result : NULL, err);
}

static const struct call_ops exec_ops = {
	.on_started = exec_on_started,
	.on_data = exec_on_data,
	.on_end = exec_on_end,
	.pull = exec_pull,
	.is_guests_turn = exec_is_guests_turn,
	.release = exec_release,
	.done = exec_done,
};

void agent_put_command(struct request *body, const struct guest_exec_spec *spec, uint32_t flags)
{
	flags |= spec->as_root ? MSG_EXEC_ROOT : 0u;
	request_text(body, MSG_ID, "id", spec->id, PROTO_ID_MAX_BYTES);
	request_texts(body, MSG_ARG, "args", spec->args, PROTO_ARGS_MAX);
	request_text(body, MSG_COMMAND, "command", spec->command, PROTO_REQUEST_MAX_BYTES);
	request_text(body, MSG_CWD, "cwd", spec->cwd, PROTO_PATH_MAX_BYTES);
	request_env(body, spec->env);
	if (spec->timeout_ms > 0) {
		request_u64(body, MSG_TIMEOUT_MS, spec->timeout_ms);
	}
	/* An older agent would take its own. */
	request_text(body, MSG_SHELL | MSG_CRITICAL, "shell", spec->shell, PROTO_PATH_MAX_BYTES);
	request_u32(body, MSG_EXEC_FLAGS, flags);
}

static int write_request(struct request *body, const struct guest_exec_spec *spec, struct err *err)
{
	if ((spec->args && spec->args[0]) == (spec->command != NULL)) {
		return err_set(err, ERR_INVALID, "give either command or args");
	}
	agent_put_command(body, spec, spec->stdin_pipe ? MSG_EXEC_STDIN : 0u);
	request_u64(body, MSG_OUTPUT_CAP, spec->output_cap);
	if (spec->tail_cap > 0) {
		request_u64(body, MSG_TAIL_CAP, spec->tail_cap);
	}
	return request_check(body, err);
}

struct guest_call *agent_exec(struct guest *guest, const struct guest_exec_spec *spec,
	const struct guest_exec_hooks *hooks, struct err *err)
{
	struct agent *agent = agent_of(guest);
	_cleanup_request_ struct request body = REQUEST_INIT;
	uint64_t margin = PROTO_EXEC_GRACE_MS + agent->driver->timing.exec_margin_ms;

	if ((spec->shell && agent_needs(agent, PROTO_FEATURE_JOBS, err) < 0) ||
		write_request(&body, spec, err) < 0) {
		return NULL;
	}
	_cleanup_free_ struct exec_call *self = xnew(struct exec_call);
	struct rpc_request request = {
		.type = FRAME_EXEC,
		.body = &body,
		.ops = &exec_ops,
		.timeout_ms = spec->timeout_ms > 0 && spec->timeout_ms < UINT64_MAX / 2
				      ? spec->timeout_ms + margin
				      : 0,
		.has_input = spec->stdin_pipe != NULL,
	};

	self->hooks = *hooks;
	self->output_cap = spec->output_cap;
	self->tail_cap = MIN(spec->tail_cap, PROTO_TAIL_MAX_BYTES);
	if (rpc_start(&agent->rpc, &self->call, &request, err) < 0) {
		return NULL;
	}
	self->stdin_pipe = spec->stdin_pipe;
	if (self->stdin_pipe) {
		pipe_set_reader(self->stdin_pipe, exec_on_stdin, self);
	}
	return &steal_ptr(&self)->call;
}

void agent_exec_pause(struct guest_call *call, bool is_paused)
{
	struct exec_call *self = exec_of(call);

	ASSERT(call->ops == &exec_ops);
	self->is_paused = is_paused;
	if (is_paused) {
		return;
	}
	for (unsigned channel = FRAME_CHANNEL_OUT; channel < FRAME_CHANNEL_MAX; channel++) {
		size_t len = self->withheld[channel];

		self->withheld[channel] = 0;
		rpc_consume(call, channel, len);
	}
}
