#pragma once

/*
 * sandbox_call - a guest operation under way
 *
 * Purpose: what exec.c and files.c have in common: may it begin, who waits for it, what its end is
 *          called when the sandbox ended meanwhile.
 * Owns:    struct sandbox_call until call_free().
 * Thread:  loop.
 * Errors:  as sandbox.h says for guest operations.
 * Uses:    sandbox_priv.h.
 *
 * A kind embeds struct sandbox_call first and frees itself in its done callback, which calls
 * call_end() before anything else.
 */

#include "sandbox/sandbox_priv.h"

struct sandbox_call {
	TAILQ_ENTRY(sandbox_call) link; /* sandbox.calls */
	struct sandbox *sb;
	struct guest_call *guest_call;
	bool is_cancelled;
	bool is_abandoned; /* nobody wants to hear of it */
};

/* May one more begin? */
int call_check(struct sandbox *sb, struct err *err);
/* The same for what ends others: however many there are. */
int call_check_urgent(struct sandbox *sb, struct err *err);
/* The guest took it. */
void call_begin(struct sandbox *sb, struct sandbox_call *call, struct guest_call *guest_call);
/*
 * What came from the guest's side about something in this sandbox: @err or, in *storage, a better
 * one; NULL: fine.
 */
const struct err *call_error(const struct sandbox *sb, const struct err *err, struct err *storage);
/*
 * The guest's callback has come. The error to report, as call_error() has it. The call is out of
 * the sandbox's list afterwards.
 */
const struct err *call_end(struct sandbox_call *call, const struct err *err, struct err *storage);
