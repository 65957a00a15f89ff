#pragma once

/*
 * mux_rig - what the tests of the mux share: a source of input, and frames in both directions
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/mux.h"

/* A source of input: @left bytes, of which @available may be had now. */
struct source {
	size_t left;
	size_t available;
	bool is_open; /* more will come */
};

extern int owner; /* something to point to */

/* A call with a body of @len bytes; FILE_PUT takes its input from @call_owner, a struct source. */
struct mux_stream *open_call(struct mux *mux, uint16_t type, size_t len, void *call_owner);

/* The next frame the host writes, as the guest parses it; type 0: none. Valid until the next. */
struct frame next(struct mux *mux);
void expect(struct mux *mux, uint16_t type, uint32_t stream);

/* A frame of @len zeros from the guest; returns what mux_input() does. */
int give(struct mux *mux, uint16_t type, uint16_t flags, uint32_t stream, size_t len,
	struct mux_event *ret);
/* WINDOW from the guest. */
int grant(struct mux *mux, uint32_t stream, uint32_t credit);
