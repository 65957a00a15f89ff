#pragma once

/*
 * guest_clock - keeps a guest's wall clock with the host's
 *
 * Purpose: looks at the clock of a guest that can tell it (PROTO_FEATURE_CLOCK) from time to time,
 *          and when there is reason to, and moves it.
 * Owns:    a timer and at most one call.
 * Thread:  loop.
 * Errors:  none: a look that failed is repeated at the next time.
 * Uses:    rpc, clock_policy. Private to this folder.
 */

#include "agent/clock_policy.h"
#include "agent/rpc.h"

struct guest_clock {
	struct rpc *rpc;
	struct event *timer;
	struct clock_policy policy;
	uint32_t again_ms; /* after the move that is under way */
	bool can_tell;
	bool is_calling;
	bool is_wanted; /* a look, as soon as the call is over */
};

void guest_clock_init(struct guest_clock *clock, struct rpc *rpc);
/* After rpc_close(). */
void guest_clock_fini(struct guest_clock *clock);
/* The session stands. */
void guest_clock_ready(struct guest_clock *clock, uint64_t features);
/* It is over. */
void guest_clock_lost(struct guest_clock *clock);
/* There is reason to look now. */
void guest_clock_look(struct guest_clock *clock);
