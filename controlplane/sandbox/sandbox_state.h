#pragma once

/*
 * sandbox_state - the life of a sandbox
 *
 * Purpose: the states, the legal moves between them, and the only setter.
 * Thread:  loop.
 * Errors:  the setter writes the row first; where that fails the state stays and the error comes
 *          back. An illegal move is a programming error and asserts.
 *
 *   (row made) provisioning ──────────► failed
 *               │   ▲  │
 *               ▼   │  ├──► stopped ──┐
 *              running ┘      ▲  │    │        provisioning ◄── stopped, too: a restart
 *                  ├──────────┘  │    │
 *                  └─────────► deleting ──► deleted
 *
 * PROVISIONING  The row exists; disk, domain and agent may not. No guest operation is legal.
 *               Left by the create plan, within its deadlines, or after a crash by reconcile. A
 *               restart or a reset comes here again, with its name in the row (task): it ends
 *               RUNNING, or STOPPED where it fails.
 *
 * RUNNING       The domain runs and the agent has been configured. Guest operations are legal;
 *               while the channel is down they answer "unavailable".
 *
 * STOPPED       The domain ended by itself (guest power-off, QEMU's death) and the sandbox is kept:
 *               row and disk exist. Temporary sandboxes go on to DELETING at once.
 *
 * DELETING      Removal has begun and will be finished, whatever happens in between.
 *
 * DELETED       Nothing is left but the row, with a reason.
 *
 * FAILED        Creation failed; everything it made was taken back; the row has the reason.
 */

#include <stdbool.h>

#include "base/err.h"

struct sandbox;

#define SANDBOX_STATES(X)                                                                          \
	X(PROVISIONING, "provisioning")                                                            \
	X(RUNNING, "running")                                                                      \
	X(STOPPED, "stopped")                                                                      \
	X(DELETING, "deleting")                                                                    \
	X(DELETED, "deleted")                                                                      \
	X(FAILED, "failed")

enum sandbox_state {
#define X(id, name) SANDBOX_##id,
	SANDBOX_STATES(X)
#undef X
		SANDBOX_STATE_MAX
};

const char *sandbox_state_name(enum sandbox_state state);
/* False when @name is none. */
bool sandbox_state_parse(const char *name, enum sandbox_state *ret);
bool sandbox_state_can(enum sandbox_state from, enum sandbox_state to);
/* DELETED and FAILED: nothing real is left. */
bool sandbox_state_is_final(enum sandbox_state state);

/* @reason: a short word or sentence for the record; NULL keeps what is there, "" clears it. */
int sandbox_set_state(
	struct sandbox *sb, enum sandbox_state to, const char *reason, struct err *err);
/* The move alone: the row can't be written and still says what was before. */
void sandbox_assume_state(struct sandbox *sb, enum sandbox_state to, const char *reason);
/* A reason for the record of one that goes on as it is; "" clears it. */
int sandbox_note_reason(struct sandbox *sb, const char *reason, struct err *err);
/* The same, where the row can't be written: this process alone knows it. */
void sandbox_assume_reason(struct sandbox *sb, const char *reason);
