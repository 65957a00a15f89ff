#pragma once

/*
 * event_text - reads text/event-stream as strictly as we write it
 *
 * Purpose: one event after the other out of what has come; anything that isn't of the form that
 *          docs/api.md promises fails the test.
 * Owns:    what an event holds, until event_fini().
 * Thread:  any.
 */

#include <event2/buffer.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/json.h"

struct event {
	char name[32]; /* "": a comment */
	char id[32];   /* "": none */
	json_object *data;
	char *bytes; /* of stdout and stderr, decoded and with a terminator; else NULL */
	size_t len;
	bool is_text;
};

/* Takes the next event off the front of @from. False: it isn't whole yet. */
bool event_take(struct evbuffer *from, struct event *ret);
void event_fini(struct event *event);
#define _cleanup_event_ _cleanup_(event_fini)

/* Text at "a.b" in its data, or NULL; numbers and booleans as text. */
const char *event_field(const struct event *event, const char *path);
