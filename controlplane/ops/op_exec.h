#pragma once

/*
 * op_exec - what the handlers of commands share
 *
 * Purpose: the calls between op_exec.c, op_job.c, op_output.c and op_pty.c.
 * Thread:  loop.
 * Uses:    op.h.
 */

#include "ops/op.h"

/* As in the operation table's words: the record, at once. */
#define OP_EXEC_BACKGROUND_STATUS 202

/* op_exec() with "background": of @spec all but stdin and limits. */
enum op_ret op_exec_background(
	struct op_call *call, struct sandbox *sb, const struct sandbox_exec_spec *spec);

/*
 * The record of command @eid in the sandbox that {id} names, as op_find_sandbox() has it. *ret_sb
 * is NULL where the sandbox has ended. ERR_NOT_FOUND.
 */
int op_find_exec(struct op_call *call, const char *eid, struct sandbox **ret_sb,
	struct store_exec *ret, struct err *err);

/* The guest said that it has no such command. */
bool op_is_unknown_exec(const struct guest_status *status, const struct err *err);

/* op_exec_output() as a stream of events; @sb NULL: from the record alone. */
enum op_ret op_exec_follow(struct op_call *call, struct sandbox *sb, const struct store_exec *row);

/* Answers with a command's record as it is now. */
enum op_ret op_reply_exec(struct op_call *call, const char *eid, int status);
