#include <string.h>

#include "base/xalloc.h"
#include "sandbox/exec_records.h"
#include "sandbox/result_tail.h"
#include "sandbox/sandbox_call.h"

/*
 * Theory of operation
 *
 * Outputs are collected up to the cap, both together. The guest is told the cap and keeps to it,
 * but a guest that is broken into need not: what comes beyond is dropped here and marked. All
 * commands of a sandbox together may hold SANDBOX_OUTPUT_CAPS times the cap: many at once would
 * else be a way to fill the daemon's memory. Who is cut by that is the same sandbox's next command.
 *
 * The tails are apart from that: they go on when the outputs are cut or nobody waits for them any
 * more.
 */

struct exec {
	struct sandbox_call call;
	struct exec_record *record;
	char id[ID_BYTES];
	struct evbuffer *out;
	struct evbuffer *err_out;
	uint64_t held;
	bool is_cut;
	struct result_tail out_tail;
	struct result_tail err_tail;
	sandbox_exec_fn fn;
	void *arg;
};

static void exec_free(struct exec *exec)
{
	evbuffer_free(exec->out);
	evbuffer_free(exec->err_out);
	result_tail_fini(&exec->out_tail);
	result_tail_fini(&exec->err_tail);
	free(exec);
}

static void on_output(void *arg, int fd, const void *data, size_t len)
{
	struct exec *exec = arg;
	struct sandbox *sb = exec->call.sb;
	uint64_t cap = sb->all->config.exec_output_cap;
	uint64_t room = MIN(cap - exec->held, cap * SANDBOX_OUTPUT_CAPS - sb->output_held);
	size_t take = exec->call.is_abandoned ? 0 : (size_t)MIN(len, room);

	if (sb->all->config.results_count > 0) {
		result_tail_add(fd == 1 ? &exec->out_tail : &exec->err_tail,
			sb->all->config.result_bytes, data, len);
	}
	exec->is_cut |= take < len;
	exec->held += take;
	sb->output_held += take;
	ASSERT(evbuffer_add(fd == 1 ? exec->out : exec->err_out, data, take) == 0);
}

static char *reason_text(const struct exec *exec, const struct err *err)
{
	if (exec->call.is_abandoned && err->kind == ERR_CANCELLED) {
		return xstrdup("stopped: its client left");
	}
	return xstrdup(err->kind == ERR_INTERNAL ? "internal error" : err->msg);
}

/* What is known of one without a result. */
static enum store_exec_state failed_state(const struct exec *exec, const struct err *err)
{
	bool is_called_off = exec->call.is_cancelled && err->kind == ERR_CANCELLED;
	bool is_unknown = err->kind == ERR_UNAVAILABLE || err->kind == ERR_TIMEOUT ||
			  err->kind == ERR_ENDED || err->kind == ERR_CANCELLED ||
			  err->kind == ERR_CONFLICT;

	return is_unknown && !is_called_off ? STORE_EXEC_LOST : STORE_EXEC_FAILED;
}

static void keep_result(
	struct exec *exec, const struct guest_exec_result *result, const struct err *err)
{
	struct sandbox *sb = exec->call.sb;
	size_t cap = sb->all->config.result_bytes;
	struct store_exec kept = {.state = STORE_EXEC_EXITED, .truncated = exec->is_cut};

	result_tail_take(&exec->out_tail, cap, &kept.out);
	result_tail_take(&exec->err_tail, cap, &kept.err_out);
	if (err) {
		kept.state = failed_state(exec, err);
		kept.error = reason_text(exec, err);
	} else {
		kept.exit_code = result->exit_code;
		kept.signal = result->signal;
		kept.timed_out = result->timed_out;
		kept.truncated |= result->truncated;
		kept.duration_ms = (int64_t)(result->duration_us / 1000);
	}
	exec_record_end(exec->record, &kept);
}

static void on_done(void *arg, const struct guest_exec_result *result, const struct err *err)
{
	struct exec *exec = arg;
	struct err better;

	exec->call.sb->output_held -= exec->held;
	err = call_end(&exec->call, err, &better);
	keep_result(exec, result, err);
	if (!exec->call.is_abandoned && err) {
		exec->fn(exec->arg, NULL, err);
	} else if (!exec->call.is_abandoned) {
		struct sandbox_exec_result whole = {.id = exec->id,
			.out = exec->out,
			.err_out = exec->err_out,
			.guest = *result};

		whole.guest.truncated |= exec->is_cut;
		exec->fn(exec->arg, &whole, NULL);
	}
	exec_free(exec);
}

struct sandbox_call *sandbox_exec(struct sandbox *sb, const struct sandbox_exec_spec *spec,
	sandbox_exec_fn fn, void *arg, struct err *err)
{
	uint64_t cap = sb->all->config.exec_output_cap;

	if (call_check(sb, err) != 0) {
		return NULL;
	}
	struct exec *exec = xnew(struct exec);
	id_make(exec->id, ID_EXEC);
	const struct guest_exec_spec guest_spec = {.id = exec->id,
		.args = spec->args,
		.command = spec->command,
		.cwd = spec->cwd,
		.env = spec->env,
		.timeout_ms = spec->timeout_ms,
		.output_cap = cap,
		.stdin_pipe = spec->stdin_pipe};
	const struct guest_exec_hooks hooks = {
		.on_output = on_output, .on_done = on_done, .arg = exec};

	exec->out = evbuffer_new();
	exec->err_out = evbuffer_new();
	ASSERT(exec->out && exec->err_out);
	exec->fn = fn;
	exec->arg = arg;
	struct guest_call *guest_call = sb->guest->ops->exec(sb->guest, &guest_spec, &hooks, err);

	if (!guest_call) {
		exec_free(exec);
		return NULL;
	}
	call_begin(sb, &exec->call, guest_call);
	exec->record = exec_record_begin(sb, exec->id, spec->args, spec->command, false);
	return &exec->call;
}
