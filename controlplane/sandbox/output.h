#pragma once

/*
 * output - what is kept of what a command writes
 *
 * Purpose: the bytes that the guest sends of each output, and once the command has ended, which of
 *          those that it wrote are left out, and where: the first and the last ones are kept.
 * Owns:    the bytes.
 * Thread:  any; no state outside the arguments.
 * Errors:  none.
 * Uses:    base, sandbox.h.
 */

#include "sandbox/sandbox.h"

struct output {
	struct sandbox_output kept; /* .bytes; the rest is there when it's settled */
	uint64_t came;
	bool is_cut; /* not all that came is in .bytes, which has the first ones */
};

void output_init(struct output *output);
void output_fini(struct output *output);

/* Keeps at most @room of the bytes, in all; returns how many. */
size_t output_add(struct output *output, const void *data, size_t len, uint64_t room);

/*
 * The command has ended. Of both outputs together at most @cap bytes stay; what has to go is taken
 * out of the middle, at the gap where the guest left some out. A character that the gap splits goes
 * too, so that text stays text.
 */
void output_settle(struct output *out, struct output *err_out,
	const struct guest_exec_result *result, uint64_t cap);
