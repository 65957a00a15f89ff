#pragma once

/*
 * configure - CONFIGURE and SHUTDOWN calls
 *
 * Purpose: what the host says about the machine as a whole: clock, entropy, host name, deadline,
 *          environment, trusted CA, end.
 * Owns:    nothing.
 * Thread:  the agent has one.
 * Uses:    stream.h, deadman.h, env.h, machine.h.
 */

struct call_ops;

extern const struct call_ops configure_ops;
extern const struct call_ops shutdown_ops;
