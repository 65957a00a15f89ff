#pragma once

/*
 * sse - reads a text/event-stream
 *
 * Purpose: bytes in, events out, as the HTML standard has it: lines end in LF, CR LF or CR, several
 *          lines of data are joined by LF, comments are skipped, an event without data is none, and
 *          one that isn't ended by an empty line never happened.
 * Owns:    the event under way, at most SSE_EVENT_MAX_BYTES.
 * Thread:  any.
 * Errors:  ERR_TOO_LARGE: an event beyond that. ERR_CANCELLED: the caller's function gave up. The
 *          reader is of no use after either.
 * Uses:    base.
 */

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "client/buffer.h"

/* Many times what a service puts into one: a piece of output in base64, say. */
#define SSE_EVENT_MAX_BYTES ((size_t)4 * 1024 * 1024)

/* Valid during the call. */
struct sse_event {
	const char *name; /* "message" where the stream has none */
	const char *id;   /* the last one seen; "" before the first */
	const char *data; /* terminated; there may be NUL bytes in it */
	size_t len;
};

/* 0, or -1 to give up. */
typedef int (*sse_event_fn)(void *arg, const struct sse_event *event);

struct sse {
	sse_event_fn on_event;
	void *arg;
	struct buffer line; /* as much of it as there is */
	struct buffer name;
	struct buffer id;
	struct buffer data;
	bool has_data;    /* a line of data, maybe an empty one */
	bool is_after_cr; /* an LF that comes next belongs to the line end before it */
	bool is_started;  /* the first line has gone, which may begin with a byte order mark */
};

#define SSE_INIT(event_fn, event_arg) ((struct sse){.on_event = (event_fn), .arg = (event_arg)})

/* The next bytes, however the stream was cut. */
int sse_feed(struct sse *sse, const char *data, size_t len, struct err *err);
void sse_fini(struct sse *sse);
#define _cleanup_sse_ _cleanup_(sse_fini)
