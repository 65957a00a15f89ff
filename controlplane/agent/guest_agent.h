#pragma once

/*
 * guest_agent - the real implementation of guest.h
 *
 * Purpose: a guest reached through its virtio-serial channel.
 * Owns:    the driver; guests are opened and closed through its table.
 * Thread:  loop.
 * Errors:  as guest.h.
 * Uses:    base, loop, proto.
 */

#include "agent/chan_fsm.h"
#include "agent/guest.h"
#include "loop/loop.h"

struct guest_timing {
	struct chan_timing chan;
	uint32_t exec_margin_ms; /* on top of an exec's time-out and the guest's grace */
	uint32_t cancel_ms;      /* from cancel() to the guest's last word */
	uint32_t idle_ms;        /* file calls: without progress while it's the guest's turn */
	uint32_t system_ms;      /* configure, shutdown */
};
extern const struct guest_timing guest_timing_default;

/* NULL: the defaults. Copied. */
struct guest_driver *guest_agent_driver_new(struct loop *loop, const struct guest_timing *timing);
/* After all of its guests are closed. */
void guest_agent_driver_free(struct guest_driver *driver);
DEFINE_CLEANUP(struct guest_driver *, guest_agent_driver_free)
