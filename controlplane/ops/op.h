#pragma once

/*
 * op - operations, as their handlers see them
 *
 * Purpose: the call, and the ways to end or suspend it. For ops/ alone; transports use ops.h.
 * Owns:    see ops.h.
 * Thread:  loop.
 * Uses:    as ops.h.
 *
 * A handler ends with `return op_reply(…)`, `return op_fail(…)` or `return op_wait(…)`. One that
 * waits calls op_reply() or op_fail() later, as the last thing that it does: the call may be gone
 * when they return.
 */

#include <sys/queue.h>

#include "agent/guest.h"
#include "base/log.h"
#include "hv/hv.h"
#include "image/image.h"
#include "ops/ops.h"
#include "ops/socket.h"
#include "sandbox/sandbox.h"
#include "store/store_sandbox.h"

struct ops {
	struct ops_parts parts;
	struct ops_config config;
	size_t call_count;        /* that haven't been freed */
	uint64_t collected_bytes; /* of files for JSON answers, in all calls */
	bool is_shut;
	struct log_limit keyless; /* lines of calls that need no key */
};

enum op_state { OP_NEW, OP_STARTING, OP_WAITING, OP_ANSWERED };

struct op_call {
	struct ops *ops;
	const struct api_row *row;
	char id[ID_BYTES];      /* of the request */
	char sandbox[ID_BYTES]; /* it is about; empty: none, or none that the caller may know of */
	struct principal principal;
	struct api_args args;
	struct pipe *body; /* reader's end; handlers steal it */
	uint64_t body_bytes;
	bool accepts_raw;
	bool accepts_events;
	char *idempotency_key;

	enum op_state state;
	struct op_answer answer;
	uint64_t started_us;
	op_done_fn done;
	void *done_arg;

	/* A handler's own, while it waits or its answer streams. drop() frees it: the caller has
	 * gone, and nothing that was asked for may call back any more. */
	void (*drop)(struct op_call *call);
	void *own;
};

typedef enum op_ret (*op_fn)(struct op_call *call);

/* Takes @json. */
enum op_ret op_reply(struct op_call *call, int status, json_object *json);
/* Answers with bytes of a file; takes the reader's end of @body. drop() stays in force. */
enum op_ret op_reply_file(struct op_call *call, struct pipe *body, uint64_t body_bytes,
	const struct guest_file_info *info);
/*
 * Answers with whatever @body brings, as @content_type (a literal); takes the reader's end. It goes
 * out as it comes: text/event-stream is written into the pipe, whose room is how much the client
 * still wants. drop() stays in force.
 */
enum op_ret op_reply_stream(struct op_call *call, const char *content_type, struct pipe *body);
/* Agrees to converse (socket.h), on a row with API_SOCKET. @drop and @own as with op_wait(). */
enum op_ret op_reply_socket(struct op_call *call, const struct op_socket_hooks *hooks,
	void (*drop)(struct op_call *call), void *own);
enum op_ret op_fail(struct op_call *call, const struct err *err);
/* The same; where @err is ERR_GUEST, with the guest's own word. @status may be NULL. */
enum op_ret op_fail_guest(
	struct op_call *call, const struct guest_status *status, const struct err *err);
/* A stream that has begun fails: what to tell its reader; notes it for the log. */
json_object *op_stream_failed(struct op_call *call, const struct err *err);
enum op_ret op_wait(struct op_call *call, void (*drop)(struct op_call *call), void *own);

/*
 * The sandbox that {id} names and the principal may see, for everybody else it doesn't exist.
 * Live: returns it. Ended: NULL, with its record in *ret_ended, which the caller frees. Neither:
 * NULL with @err set (ERR_NOT_FOUND).
 *
 * Once a call, at its beginning: a name that has been freed meanwhile may be another's by then.
 */
struct sandbox *op_find_sandbox(
	struct op_call *call, struct store_sandbox **ret_ended, struct err *err);
/* The same for what needs a live one: ERR_ENDED else. */
struct sandbox *op_live_sandbox(struct op_call *call, struct err *err);
/* For the call's line in the log; the two above do it by themselves. */
void op_note_sandbox(struct op_call *call, const char *id);

/* Id of the account that @text names, by id or by name. */
int op_find_account(struct op_call *call, const char *text, char ret_id[ID_BYTES], struct err *err);

/* A pipe that holds @len bytes and its end; returns the reader's end. */
struct pipe *op_pipe_of(struct op_call *call, const void *data, size_t len);
/* The argument @plain, or decoded @in_base64: at most one may be there. NULL without @err: none. */
struct pipe *op_pipe_of_content(struct op_call *call, const char *plain, const char *in_base64,
	uint64_t *ret_len, struct err *err);

/* ---- the handlers ---- */

enum op_ret op_sandbox_create(struct op_call *call);
enum op_ret op_sandbox_list(struct op_call *call);
enum op_ret op_sandbox_get(struct op_call *call);
enum op_ret op_sandbox_delete(struct op_call *call);
enum op_ret op_sandbox_extend(struct op_call *call);
enum op_ret op_sandbox_restart(struct op_call *call);
enum op_ret op_sandbox_reset(struct op_call *call);
enum op_ret op_exec(struct op_call *call);
enum op_ret op_exec_list(struct op_call *call);
enum op_ret op_exec_get(struct op_call *call);
enum op_ret op_exec_output(struct op_call *call);
enum op_ret op_exec_stdin(struct op_call *call);
enum op_ret op_exec_kill(struct op_call *call);
enum op_ret op_pty(struct op_call *call);
enum op_ret op_file_read(struct op_call *call);
enum op_ret op_file_write(struct op_call *call);
enum op_ret op_service_info(struct op_call *call);
enum op_ret op_healthz(struct op_call *call);
enum op_ret op_readyz(struct op_call *call);
enum op_ret op_openapi(struct op_call *call);
enum op_ret op_account_create(struct op_call *call);
enum op_ret op_account_list(struct op_call *call);
enum op_ret op_key_create(struct op_call *call);
enum op_ret op_key_list(struct op_call *call);
enum op_ret op_key_revoke(struct op_call *call);
enum op_ret op_image_list(struct op_call *call);
enum op_ret op_doctor(struct op_call *call);
enum op_ret op_strays(struct op_call *call);
enum op_ret op_status(struct op_call *call);
