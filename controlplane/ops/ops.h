#pragma once

/*
 * ops - operations, as transports call them
 *
 * Purpose: from checked arguments and a principal to an answer. Whatever speaks to clients (REST,
 *          MCP) makes an op_call, starts it, and sends what it answers.
 * Owns:    a call from op_call_new() to op_call_free(): its arguments, body and answer.
 * Thread:  loop.
 * Errors:  are answers: op_answer() has status and JSON of a failure, too.
 * Uses:    base, loop, api, auth, store, image, sandbox, hv.h (for what it says of itself).
 *
 *   op_call_new() ──► op_start() ──┬─ OP_DONE ─────────────────────► op_answer() ──► op_call_free()
 *                                  └─ OP_WAIT ──► done(), once ───►
 *
 * op_call_free() is right at any time: before done() it means that the caller has gone. What can be
 * undone is cancelled then (a command is stopped, a file transfer ends); a creation and a removal
 * go on. No callback comes after it.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/api.h"
#include "api/api_args.h"
#include "auth/auth.h"
#include "base/err.h"
#include "base/json.h"
#include "loop/loop.h"
#include "loop/pipe.h"

struct hv;
struct images;
struct ops;
struct op_call;
struct op_socket_hooks;
struct quotas;
struct sandboxes;
struct store;

/* ---- construction ---- */

struct ops_size {
	const char *name;
	unsigned vcpus;
	unsigned memory_mb;
	unsigned disk_gb;
};

/* Everything is borrowed and must outlive the ops. */
struct ops_config {
	const struct ops_size *sizes;
	size_t size_count;
	const char *default_size;
	unsigned timeout_default_minutes;
	unsigned max_lifetime_minutes;
	uint64_t exec_timeout_ms; /* where a request names none */
	uint64_t exec_timeout_max_ms;
	uint64_t exec_output_bytes; /* kept where a request says nothing */
	uint64_t exec_output_max_bytes;
	uint64_t body_bytes;         /* largest JSON body, and largest file in a JSON answer */
	uint64_t upload_bytes;       /* largest raw body, for clients to know; 0: no limit */
	uint64_t bodies_total_bytes; /* of such files that are being collected; 0: 4 x body_bytes */
	uint64_t delete_wait_ms;     /* DELETE answers "timeout" after so long; 0: 30 s */
	unsigned events_heartbeat_ms; /* longest silence in a stream of events; 0: 15 s */
	uint64_t again_wait_ms;       /* restart and reset do; 0: 10 min */
	bool is_egress_configured;    /* network.default is egress: what an unasked sandbox gets */

	/*
	 * The daemon's: checks everything and calls @done once, later, from the loop, with an array
	 * of findings (taken over) or an error. NULL: doctor is unavailable.
	 */
	void (*doctor)(void *arg,
		void (*done)(void *done_arg, json_object *findings, const struct err *err),
		void *done_arg);
	/* Adds what only the daemon knows to the answer of `status`. May be NULL. */
	void (*status)(void *arg, json_object *status);
	void *arg;
};

struct ops_parts {
	struct loop *loop;
	struct store *store;
	struct auth *auth;
	struct quotas *quotas;
	struct images *images;
	struct hv *hv;
	struct sandboxes *sandboxes;
};

struct ops *ops_new(const struct ops_parts *parts, const struct ops_config *config);
/* Every call must have been freed. */
void ops_free(struct ops *ops); /* NULL is fine */

/* From now on everything but healthz and readyz answers "unavailable". */
void ops_shut(struct ops *ops);

/* ---- calls ---- */

struct op_request {
	const char *id; /* rq_… */
	const struct principal *principal;
	struct api_args *args;       /* finished; its values are taken, also by a failure */
	struct pipe *body;           /* reader's end, taken; NULL: none */
	uint64_t body_bytes;         /* how long it will be; UINT64_MAX: unknown */
	bool accepts_raw;            /* application/octet-stream is welcome */
	bool accepts_events;         /* text/event-stream is */
	const char *idempotency_key; /* NULL: none */
};

/* What has to be sent; owned by the call. */
struct op_answer {
	int status;               /* HTTP's */
	json_object *json;        /* NULL: the answer is body, or a conversation */
	struct pipe *body;        /* reader's end; a failure in it means: cut the connection */
	const char *content_type; /* of body; NULL: it is a file's bytes, and this holds: */
	uint64_t body_bytes;      /* how long body will be */
	uint32_t mode;            /* of the file in body */
	int64_t mtime_ms;         /* of it, too */
	const struct op_socket_hooks *socket; /* the answer is a conversation */
	unsigned retry_after_s;               /* 0: none */
	const char *error_type;               /* NULL: a success */
};

enum op_ret { OP_DONE, OP_WAIT };
typedef void (*op_done_fn)(void *arg, struct op_call *call);

struct op_call *op_call_new(
	struct ops *ops, const struct api_row *row, const struct op_request *request);
/* OP_DONE: the answer is there. OP_WAIT: @done will be called, once, not from within this call. */
enum op_ret op_start(struct op_call *call, op_done_fn done, void *arg);
/* NULL while there is none. */
struct op_answer *op_answer(struct op_call *call);
/* The body, whose length wasn't known, has ended after @bytes: before its pipe is closed. */
void op_body_came(struct op_call *call, uint64_t bytes);
/* Writes the call's log record: @bytes is what the transport sent of the answer. */
void op_call_free(struct op_call *call, uint64_t bytes);

/* {"error": {…}} for a failure that never became a call. ERR_INTERNAL's text stays here. */
json_object *op_error_json(const struct err *err, const char *request_id);
