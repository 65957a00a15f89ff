#include "ops/ops.h"

#include <string.h>

#include "api/api_errors.h"
#include "base/base64.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/xalloc.h"
#include "ops/events.h"
#include "ops/op.h"
#include "ops/view.h"
#include "proto/msg.h"
#include "store/store_account.h"

/*
 * Theory of operation. A call is OP_NEW until op_start(), OP_STARTING within it, OP_WAITING when
 * the handler waits for somebody, OP_ANSWERED when there is an answer. The same op_reply() ends it
 * from within the handler, where the transport sees OP_DONE, and later, where it hears done().
 *
 * Authorisation is here and in op_find_sandbox() alone: the scope of the row against that of the
 * principal, and whose a sandbox is.
 */

static const op_fn handlers[] = {
	[API_SANDBOX_CREATE] = op_sandbox_create,
	[API_SANDBOX_LIST] = op_sandbox_list,
	[API_SANDBOX_GET] = op_sandbox_get,
	[API_SANDBOX_DELETE] = op_sandbox_delete,
	[API_SANDBOX_EXTEND] = op_sandbox_extend,
	[API_SANDBOX_RESTART] = op_sandbox_restart,
	[API_SANDBOX_RESET] = op_sandbox_reset,
	[API_EXEC] = op_exec,
	[API_EXEC_LIST] = op_exec_list,
	[API_EXEC_GET] = op_exec_get,
	[API_EXEC_OUTPUT] = op_exec_output,
	[API_EXEC_STDIN] = op_exec_stdin,
	[API_EXEC_KILL] = op_exec_kill,
	[API_PTY] = op_pty,
	[API_FILE_READ] = op_file_read,
	[API_FILE_WRITE] = op_file_write,
	[API_SERVICE_INFO] = op_service_info,
	[API_HEALTHZ] = op_healthz,
	[API_READYZ] = op_readyz,
	[API_OPENAPI] = op_openapi,
	[API_ACCOUNT_CREATE] = op_account_create,
	[API_ACCOUNT_LIST] = op_account_list,
	[API_KEY_CREATE] = op_key_create,
	[API_KEY_LIST] = op_key_list,
	[API_KEY_REVOKE] = op_key_revoke,
	[API_IMAGE_LIST] = op_image_list,
	[API_DOCTOR] = op_doctor,
	[API_STRAYS] = op_strays,
	[API_STATUS] = op_status,
};
_Static_assert(ARRAY_SIZE(handlers) == API_OP_MAX, "every operation has a handler");

#define DELETE_WAIT_MS 30000
#define AGAIN_WAIT_MS  600000

struct ops *ops_new(const struct ops_parts *parts, const struct ops_config *config)
{
	struct ops *ops = xnew(struct ops);

	ops->parts = *parts;
	ops->config = *config;
	if (ops->config.delete_wait_ms == 0) {
		ops->config.delete_wait_ms = DELETE_WAIT_MS;
	}
	if (ops->config.again_wait_ms == 0) {
		ops->config.again_wait_ms = AGAIN_WAIT_MS;
	}
	if (ops->config.events_heartbeat_ms == 0) {
		ops->config.events_heartbeat_ms = EVENTS_HEARTBEAT_MS;
	}
	if (ops->config.bodies_total_bytes == 0) {
		ops->config.bodies_total_bytes = 4 * ops->config.body_bytes;
	}
	return ops;
}

void ops_free(struct ops *ops)
{
	if (ops) {
		ASSERT(ops->call_count == 0);
		free(ops);
	}
}

void ops_shut(struct ops *ops)
{
	ops->is_shut = true;
}

/* ---- calls ---- */

struct op_call *op_call_new(
	struct ops *ops, const struct api_row *row, const struct op_request *request)
{
	struct op_call *call = xnew(struct op_call);

	loop_assert();
	call->ops = ops;
	call->row = row;
	snprintf(call->id, sizeof call->id, "%s", request->id);
	if (request->principal) {
		call->principal = *request->principal;
	}
	call->args = *request->args;
	*request->args = API_ARGS_INIT;
	call->body = request->body;
	call->body_bytes = request->body_bytes;
	call->accepts_raw = request->accepts_raw;
	call->accepts_events = request->accepts_events;
	call->idempotency_key = xstrdup(request->idempotency_key);
	call->started_us = clock_monotonic_us();
	ops->call_count++;
	return call;
}

static int authorise(const struct op_call *call, struct err *err)
{
	if (call->row->scope == API_SCOPE_ANONYMOUS) {
		return 0;
	}
	unsigned needed = call->row->scope == API_SCOPE_ADMIN ? AUTH_SCOPE_ADMIN : AUTH_SCOPE_USER;

	if (!(call->principal.scopes & needed)) {
		return err_set(err, ERR_FORBIDDEN, "%s is not for this key", call->row->name);
	}
	return 0;
}

static enum op_ret start(struct op_call *call)
{
	struct err err = ERR_INIT;

	if (call->ops->is_shut && call->row->op != API_HEALTHZ && call->row->op != API_READYZ) {
		err_set(&err, ERR_UNAVAILABLE, "the service is stopping");
		return op_fail(call, &err);
	}
	if (authorise(call, &err) < 0) {
		return op_fail(call, &err);
	}
	return handlers[call->row->op](call);
}

enum op_ret op_start(struct op_call *call, op_done_fn done, void *arg)
{
	LOG_REQUEST(call->id);

	ASSERT(call->state == OP_NEW);
	call->state = OP_STARTING;
	call->done = done;
	call->done_arg = arg;

	enum op_ret ret = start(call);

	ASSERT((ret == OP_DONE) == (call->state == OP_ANSWERED));
	return ret;
}

struct op_answer *op_answer(struct op_call *call)
{
	return call->state == OP_ANSWERED ? &call->answer : NULL;
}

void op_body_came(struct op_call *call, uint64_t bytes)
{
	call->body_bytes = bytes;
}

static void log_call(const struct op_call *call, uint64_t bytes)
{
	bool is_probe = call->row->op == API_HEALTHZ || call->row->op == API_READYZ;
	enum log_level level = is_probe ? LOG_LEVEL_DEBUG : LOG_LEVEL_INFO;
	uint64_t us = clock_monotonic_us() - call->started_us;
	char more[32] = "";
	unsigned held_back;

	if (level > log_level() ||
		!principal_may_log(&call->principal, &call->ops->keyless, &held_back)) {
		return;
	}
	if (held_back > 0) {
		snprintf(more, sizeof more, " held_back=%u", held_back);
	}
	log_line(level, "call",
		"rq=%s op=%s account=%s by=%s sb=%s status=%d error=%s ms=%llu.%03llu bytes=%llu%s",
		call->id, call->row->name, log_dash(call->principal.account_id),
		principal_log_name(&call->principal), log_dash(call->sandbox),
		call->state == OP_ANSWERED ? call->answer.status : 0,
		log_dash(call->answer.error_type), (unsigned long long)us / 1000,
		(unsigned long long)us % 1000, (unsigned long long)bytes, more);
}

void op_call_free(struct op_call *call, uint64_t bytes)
{
	if (!call) {
		return;
	}
	if (call->drop) {
		call->drop(call);
	}
	log_call(call, bytes);
	pipe_reader_free(call->body);
	pipe_reader_free(call->answer.body);
	json_object_put(call->answer.json);
	api_args_fini(&call->args);
	free(call->idempotency_key);
	call->ops->call_count--;
	free(call);
}

/* ---- ends of a call ---- */

static enum op_ret answered(struct op_call *call)
{
	bool was_waiting = call->state == OP_WAITING;

	ASSERT(was_waiting || call->state == OP_STARTING);
	call->state = OP_ANSWERED;
	if (was_waiting) {
		call->done(call->done_arg, call);
	}
	return OP_DONE;
}

enum op_ret op_reply(struct op_call *call, int status, json_object *json)
{
	call->answer.status = status;
	call->answer.json = json;
	call->drop = NULL;
	return answered(call);
}

enum op_ret op_reply_file(struct op_call *call, struct pipe *body, uint64_t body_bytes,
	const struct guest_file_info *info)
{
	call->answer.status = call->row->status;
	call->answer.body = body;
	call->answer.body_bytes = body_bytes;
	call->answer.mode = info->mode;
	call->answer.mtime_ms = info->mtime_ms;
	return answered(call);
}

enum op_ret op_reply_stream(struct op_call *call, const char *content_type, struct pipe *body)
{
	call->answer.status = call->row->status;
	call->answer.body = body;
	call->answer.content_type = content_type;
	return answered(call);
}

enum op_ret op_reply_socket(struct op_call *call, const struct op_socket_hooks *hooks,
	void (*drop)(struct op_call *call), void *own)
{
	ASSERT((call->row->flags & API_SOCKET) && drop);
	call->answer.status = call->row->status;
	call->answer.socket = hooks;
	call->drop = drop;
	call->own = own;
	return answered(call);
}

/* Writes down that and, for an error of ours, why. */
static const struct api_error *note_failure(struct op_call *call, const struct err *err)
{
	const struct api_error *error = api_error_of(err->kind);

	if (err->kind == ERR_INTERNAL) {
		log_failure(LOG_LEVEL_ERR, "call failed", err, "rq=%s op=%s", call->id,
			call->row->name);
	}
	call->answer.error_type = error->type;
	return error;
}

static enum op_ret fail(struct op_call *call, const struct err *err, const char *code)
{
	const struct api_error *error = note_failure(call, err);

	call->answer.retry_after_s = error->retry_after_s;
	return op_reply(call, error->status, view_error(err, code, call->id));
}

json_object *op_stream_failed(struct op_call *call, const struct err *err)
{
	note_failure(call, err);
	return view_error(err, NULL, call->id);
}

enum op_ret op_fail(struct op_call *call, const struct err *err)
{
	return fail(call, err, NULL);
}

enum op_ret op_fail_guest(
	struct op_call *call, const struct guest_status *status, const struct err *err)
{
	if (err->kind != ERR_GUEST || !status) {
		return fail(call, err, NULL);
	}
	const char *code = msg_status_name(status->status);
	struct err outer = *err;

	outer.kind = api_error_of_guest(code);
	return fail(call, &outer, code);
}

enum op_ret op_wait(struct op_call *call, void (*drop)(struct op_call *call), void *own)
{
	ASSERT(call->state == OP_STARTING && drop);
	call->state = OP_WAITING;
	call->drop = drop;
	call->own = own;
	return OP_WAIT;
}

json_object *op_error_json(const struct err *err, const char *request_id)
{
	return view_error(err, NULL, request_id);
}

/* ---- what handlers share ---- */

static int refuse_sandbox(const char *text, struct err *err)
{
	return err_set(err, ERR_NOT_FOUND, "there is no sandbox \"%s\"", text);
}

void op_note_sandbox(struct op_call *call, const char *id)
{
	snprintf(call->sandbox, sizeof call->sandbox, "%s", id);
}

struct sandbox *op_find_sandbox(
	struct op_call *call, struct store_sandbox **ret_ended, struct err *err)
{
	const char *text = api_args_text(&call->args, "id");
	bool is_id = id_is_valid(text, ID_SANDBOX);
	bool is_admin = call->principal.is_admin;
	const char *account = call->principal.account_id;
	struct sandbox *sb = sandbox_find(
		call->ops->parts.sandboxes, is_admin ? NULL : account, text);

	if (sb) {
		op_note_sandbox(call, sandbox_row(sb)->id);
		return sb;
	}
	_cleanup_store_sandbox_ struct store_sandbox *row =
		is_id ? store_sandbox_get(call->ops->parts.store, text, err) : NULL;

	if (!row && is_id && err->kind != ERR_NOT_FOUND) {
		return NULL;
	}
	if (!row || (!is_admin && strcmp(row->account, account) != 0)) {
		refuse_sandbox(text, err);
		return NULL;
	}
	op_note_sandbox(call, row->id);
	*ret_ended = steal_ptr(&row);
	return NULL;
}

struct sandbox *op_live_sandbox(struct op_call *call, struct err *err)
{
	_cleanup_store_sandbox_ struct store_sandbox *ended = NULL;
	struct sandbox *sb = op_find_sandbox(call, &ended, err);

	if (ended) {
		err_set(err, ERR_ENDED, "sandbox %s has ended%s%s", ended->id,
			ended->reason ? ": " : "", ended->reason ? ended->reason : "");
	}
	return sb;
}

int op_find_account(struct op_call *call, const char *text, char ret_id[ID_BYTES], struct err *err)
{
	struct store *store = call->ops->parts.store;
	struct store_account account;
	int ret = id_is_valid(text, ID_ACCOUNT)
			  ? store_account_get(store, text, &account, err)
			  : store_account_get_by_name(store, text, &account, err);

	if (ret < 0) {
		return err->kind == ERR_NOT_FOUND
			       ? err_set(err, ERR_NOT_FOUND, "there is no account \"%s\"", text)
			       : -1;
	}
	memcpy(ret_id, account.id, ID_BYTES);
	return 0;
}

struct pipe *op_pipe_of(struct op_call *call, const void *data, size_t len)
{
	struct pipe *pipe = pipe_new(call->ops->parts.loop, MAX(len, (size_t)1));
	size_t written = pipe_write(pipe, data, len);

	ASSERT(written == len);
	pipe_close(pipe);
	pipe_writer_free(pipe);
	return pipe;
}

struct pipe *op_pipe_of_content(struct op_call *call, const char *plain, const char *in_base64,
	uint64_t *ret_len, struct err *err)
{
	size_t len;
	const char *text = api_args_bytes(&call->args, plain, &len);

	if (text && api_args_has(&call->args, in_base64)) {
		err_set(err, ERR_INVALID, "\"%s\" and \"%s\" exclude each other", plain, in_base64);
		return NULL;
	}
	if (text) {
		*ret_len = len;
		return op_pipe_of(call, text, len);
	}
	text = api_args_bytes(&call->args, in_base64, &len);
	if (!text) {
		return NULL;
	}
	size_t bytes = base64_decoded_bytes(text, len);
	_cleanup_free_ void *data = malloc(bytes + 1);

	if (!data) {
		err_set(err, ERR_UNAVAILABLE, "out of memory");
		return NULL;
	}
	if (base64_decode(data, text, len, err) < 0) {
		return NULL;
	}
	*ret_len = bytes;
	return op_pipe_of(call, data, bytes);
}
