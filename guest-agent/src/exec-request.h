#pragma once

/*
 * exec-request - what an EXEC asks for
 *
 * Purpose: fields into strings and numbers, each checked.
 * Owns:    the copies of all strings, never more than the request itself was long.
 * Thread:  the agent has one.
 * Errors:  the stream is ended with the reason.
 * Uses:    env.h, stream.h.
 */

#include "proto/limits.h"
#include "src/util.h"

struct stream;

/* The kernel takes no longer single argument, its NUL included. */
#define EXEC_ARG_MAX_BYTES 131072u
/* Longer times are taken for this one, which can be added to any clock. */
#define EXEC_TIME_MAX_MS ((uint64_t)INT64_MAX)

struct exec_request {
	size_t arg_count;
	char *args[PROTO_ARGS_MAX + 3]; /* [0] is spare for spawn, NULL at the end */
	char *command;
	char *shell; /* NULL: the image's */
	char *cwd;
	char id[PROTO_ID_MAX_BYTES + 1]; /* "": none */
	uint32_t flags;
	uint64_t timeout_ms;
	uint64_t grace_ms;
	uint64_t output_cap;
	uint64_t tail_cap;
	uint32_t rows;
	uint32_t cols;
	size_t var_count;
	char *vars[PROTO_ENV_MAX];
	size_t arena_len;
	char *arena; /* all strings; never longer than the request's body */
};

/* For a request of @len bytes. False when there is no memory. */
bool exec_request_init(struct exec_request *q, size_t len);
/* False when the stream has been ended with the reason. @flags: those of enum msg_exec_flag that
 * the call may have. */
bool exec_request_parse(
	struct stream *s, struct exec_request *q, const uint8_t *body, size_t len, uint32_t flags);
void exec_request_fini(struct exec_request *q);
