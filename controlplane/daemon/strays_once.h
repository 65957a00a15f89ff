#pragma once

/*
 * strays_once - strays of an instance whose daemon doesn't run
 *
 * Purpose: `paddockd --strays`: enough of a daemon to look for strays, and no more. It takes the
 *          state directory's lock, so no daemon works beside it, and nothing is done by itself: no
 *          channel is opened, nothing expires, nothing is removed but what --reap is to.
 * Owns:    its parts, for the time of the call.
 * Thread:  the only one.
 * Errors:  ERR_NOT_FOUND: there is no instance. ERR_CONFLICT: a daemon runs. Else as strays.h.
 * Uses:    store, hv, agent, sandbox, ops/view.h.
 */

#include <stdbool.h>

#include "base/err.h"
#include "base/json.h"

struct config;

struct strays_options {
	bool is_reap;
	bool wants_others;
};

/* *ret: the answer of the operation `strays`; the caller puts it. */
int strays_once(const struct config *config, const struct strays_options *options,
	json_object **ret, struct err *err);
