#pragma once

/*
 * dial - a unix socket that may not be there yet
 *
 * Purpose: connects to a path and keeps trying, without blocking and without a busy loop. QEMU
 *          makes its sockets at some point during the start of a domain, and the time until we are
 *          connected is part of the boot.
 * Owns:    the timer. A connected descriptor belongs to whom on_connected() gave it.
 * Thread:  loop. Callbacks come from the loop, never from within a call.
 * Errors:  a socket that is missing or refuses is normal; anything else is told by on_trouble()
 *          once, and dialling goes on.
 * Uses:    base, loop.
 */

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "loop/loop.h"

/* sun_path less its terminator. */
#define DIAL_PATH_MAX_BYTES 107

/* Tries come quickly at first, then every DIAL_STARTING_MS for DIAL_START_SPAN_MS, then rarely. */
#define DIAL_FIRST_MS      2u
#define DIAL_STARTING_MS   100u
#define DIAL_START_SPAN_MS 60000u
#define DIAL_LATER_MS      1000u

struct dial_hooks {
	/* @fd is non-blocking and close-on-exec. */
	void (*on_connected)(void *arg, int fd);
	void (*on_trouble)(void *arg, const struct err *err);
	void *arg;
};

struct dial {
	char *path;
	struct dial_hooks hooks;
	struct event *timer;
	uint64_t since_ms;
	uint64_t pause_ms;
	bool told;
};

void dial_init(
	struct dial *dial, struct loop *loop, const char *path, const struct dial_hooks *hooks);
/* No callback after it. Fine to call from a callback. */
void dial_fini(struct dial *dial);
/* First try after @delay_ms; ends with on_connected(). */
void dial_start(struct dial *dial, uint64_t delay_ms);
