#include <string.h>

#include "base/xalloc.h"
#include "sandbox/exec_records.h"
#include "sandbox/output.h"
#include "sandbox/result_tail.h"
#include "sandbox/sandbox_call.h"

/*
 * Theory of operation
 *
 * Either the outputs are kept until the command ends, or they are handed on as they come, and it is
 * the caller who pauses the guest when it can't take more.
 *
 * What is kept is bounded by the call's cap, both outputs together: the first bytes, and the last
 * ones, see output.c. The guest is told and keeps to it, but a guest that is broken into need not:
 * what comes beyond is dropped here and marked. There is a cap for all commands of a sandbox
 * together, too: many at once would else be a way to fill the daemon's memory. Who is cut by that
 * is the same sandbox's next command.
 *
 * The tails for the record are apart from that: they go on when the outputs are cut or nobody waits
 * for them any more.
 */

/* What a guest must keep of each output for its end; the rest of the cap is for the beginning. */
#define TAIL_MAX_BYTES (1024 * 1024)

struct exec {
	struct sandbox_call call;
	struct exec_record *record;
	char id[ID_BYTES]; /* the guest's name for it, too */
	bool is_started;   /* the guest said so */
	bool is_stream;    /* what its hooks are given isn't kept */
	uint64_t cap;
	uint64_t held; /* of sandbox.output_held */
	struct output out;
	struct output err_out;
	struct result_tail out_tail;
	struct result_tail err_tail;
	struct sandbox_exec_hooks hooks;
};

static void exec_free(struct exec *exec)
{
	output_fini(&exec->out);
	output_fini(&exec->err_out);
	result_tail_fini(&exec->out_tail);
	result_tail_fini(&exec->err_tail);
	free(exec);
}

/* ---- from the guest ---- */

static void on_started(void *arg)
{
	struct exec *exec = arg;

	if (!exec->is_started) {
		exec->is_started = true;
		if (exec->hooks.on_started && !exec->call.is_abandoned) {
			exec->hooks.on_started(exec->hooks.arg, exec->id);
		}
	}
}

static uint64_t tail_cap(const struct exec *exec)
{
	return exec->is_stream ? 0 : MIN(exec->cap / 2, (uint64_t)TAIL_MAX_BYTES);
}

static void keep(struct exec *exec, struct output *output, const void *data, size_t len)
{
	struct sandbox *sb = exec->call.sb;
	uint64_t own_room = exec->cap + tail_cap(exec) - exec->held;
	uint64_t all_room = sb->all->outputs_cap - sb->output_held;
	size_t took = output_add(output, data, len, MIN(own_room, all_room));

	exec->held += took;
	sb->output_held += took;
}

static void on_output(void *arg, int fd, const void *data, size_t len)
{
	struct exec *exec = arg;
	const struct sandboxes_config *config = &exec->call.sb->all->config;

	on_started(exec);
	if (config->results_count > 0) {
		result_tail_add(fd == 1 ? &exec->out_tail : &exec->err_tail, config->result_bytes,
			data, len);
	}
	if (exec->call.is_abandoned) {
		return;
	}
	if (exec->is_stream) {
		exec->hooks.on_output(exec->hooks.arg, fd, data, len);
	} else {
		keep(exec, fd == 1 ? &exec->out : &exec->err_out, data, len);
	}
}

static char *reason_text(const struct exec *exec, const struct err *err)
{
	/* Its client was sent away before. */
	if (exec->call.sb->all->is_closing) {
		return xstrdup("the service stopped while it ran");
	}
	if (exec->call.is_abandoned && err->kind == ERR_CANCELLED) {
		return xstrdup("stopped: its client left");
	}
	return xstrdup(err->kind == ERR_INTERNAL ? "internal error" : err->msg);
}

/* What is known of one without a result. */
static enum store_exec_state failed_state(const struct exec *exec, const struct err *err)
{
	/* A guest that says so has stopped it. */
	bool is_called_off = exec->call.is_cancelled && err->kind == ERR_CANCELLED &&
			     !exec->call.sb->all->is_closing;
	bool is_unknown = err->kind == ERR_UNAVAILABLE || err->kind == ERR_TIMEOUT ||
			  err->kind == ERR_ENDED || err->kind == ERR_CANCELLED ||
			  err->kind == ERR_CONFLICT;

	return is_unknown && !is_called_off ? STORE_EXEC_LOST : STORE_EXEC_FAILED;
}

/* NULL @whole: there is none, for @err. */
static void keep_result(
	struct exec *exec, const struct sandbox_exec_result *whole, const struct err *err)
{
	size_t cap = exec->call.sb->all->config.result_bytes;
	struct store_exec kept = {.state = STORE_EXEC_EXITED};

	result_tail_take(&exec->out_tail, cap, &kept.out);
	result_tail_take(&exec->err_tail, cap, &kept.err_out);
	if (whole) {
		kept.exit_code = whole->guest.exit_code;
		kept.signal = whole->guest.signal;
		kept.timed_out = whole->guest.timed_out;
		kept.truncated = whole->guest.truncated;
		kept.duration_ms = (int64_t)(whole->guest.duration_us / 1000);
		kept.out.total = whole->out.total;
		kept.err_out.total = whole->err_out.total;
	} else {
		kept.state = failed_state(exec, err);
		kept.error = reason_text(exec, err);
		kept.truncated = exec->out.is_cut || exec->err_out.is_cut;
	}
	exec_record_end(exec->record, &kept);
}

static void take_whole(
	struct exec *exec, const struct guest_exec_result *guest, struct sandbox_exec_result *ret)
{
	if (exec->is_stream) {
		exec->out.kept.total = guest->stdout_bytes;
		exec->err_out.kept.total = guest->stderr_bytes;
	} else {
		output_settle(&exec->out, &exec->err_out, guest, exec->cap);
	}
	*ret = (struct sandbox_exec_result){.id = exec->id,
		.out = exec->out.kept,
		.err_out = exec->err_out.kept,
		.guest = *guest};
	ret->guest.truncated |= ret->out.omitted > 0 || ret->err_out.omitted > 0;
}

static void on_done(void *arg, const struct guest_exec_result *guest, const struct err *err)
{
	struct exec *exec = arg;
	struct sandbox_exec_result whole;
	struct err better;

	exec->call.sb->output_held -= exec->held;
	err = call_end(&exec->call, err, &better);
	if (!err) {
		take_whole(exec, guest, &whole);
		exec->call.is_cancelled = true; /* there is nothing to cancel any more */
		on_started(exec);
	}
	keep_result(exec, err ? NULL : &whole, err);
	if (!exec->call.is_abandoned) {
		exec->hooks.on_done(exec->hooks.arg, err ? NULL : &whole, err);
	}
	exec_free(exec);
}

/* ---- start ---- */

static struct sandbox_call *start(struct sandbox *sb, struct exec *exec,
	const struct sandbox_exec_spec *spec, struct err *err)
{
	const struct guest_exec_spec guest_spec = {.id = exec->id,
		.args = spec->args,
		.command = spec->command,
		.shell = spec->shell,
		.cwd = spec->cwd,
		.env = spec->env,
		.timeout_ms = spec->timeout_ms,
		.output_cap = exec->cap - tail_cap(exec),
		.tail_cap = tail_cap(exec),
		.stdin_pipe = spec->stdin_pipe};
	const struct guest_exec_hooks hooks = {
		.on_started = on_started, .on_output = on_output, .on_done = on_done, .arg = exec};
	struct guest_call *guest_call = sb->guest->ops->exec(sb->guest, &guest_spec, &hooks, err);

	if (!guest_call) {
		exec_free(exec);
		return NULL;
	}
	call_begin(sb, &exec->call, guest_call);
	exec->record = exec_record_begin(sb, exec->id, spec->args, spec->command, false);
	return &exec->call;
}

static struct exec *exec_new(const struct sandbox_exec_spec *spec, uint64_t default_cap)
{
	struct exec *exec = xnew(struct exec);

	id_make(exec->id, ID_EXEC);
	output_init(&exec->out);
	output_init(&exec->err_out);
	exec->cap = spec->output_cap > 0 ? spec->output_cap : default_cap;
	return exec;
}

struct sandbox_call *sandbox_exec(struct sandbox *sb, const struct sandbox_exec_spec *spec,
	sandbox_exec_fn fn, void *arg, struct err *err)
{
	if (call_check(sb, err) != 0) {
		return NULL;
	}
	struct exec *exec = exec_new(spec, sb->all->config.exec_output_cap);

	exec->hooks = (struct sandbox_exec_hooks){.on_done = fn, .arg = arg};
	return start(sb, exec, spec, err);
}

struct sandbox_call *sandbox_exec_stream(struct sandbox *sb, const struct sandbox_exec_spec *spec,
	const struct sandbox_exec_hooks *hooks, struct err *err)
{
	if (call_check(sb, err) != 0) {
		return NULL;
	}
	struct exec *exec = exec_new(spec, UINT64_MAX);

	exec->is_stream = true;
	exec->hooks = *hooks;
	return start(sb, exec, spec, err);
}

void sandbox_exec_pause(struct sandbox_call *call, bool is_paused)
{
	loop_assert();
	/* Without a channel its end is on the way already. */
	if (call->sb->guest) {
		call->sb->guest->ops->exec_pause(call->guest_call, is_paused);
	}
}
