#pragma once

/*
 * configure - CONFIGURE and SHUTDOWN calls, and the dead-man
 *
 * Purpose: what the host says about the machine as a whole: clock, entropy, host name, deadline,
 *          environment, trusted CA, end.
 * Owns:    the dead-man timer.
 * Thread:  the agent has one.
 * Uses:    stream.h, env.h, machine.h.
 */

struct call_ops;

extern const struct call_ops configure_ops;
extern const struct call_ops shutdown_ops;

int configure_init(void);
/* The dead-man has fired. */
void configure_on_deadline(void);
