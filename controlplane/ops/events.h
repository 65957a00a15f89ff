#pragma once

/*
 * events - an answer that is a stream of events
 *
 * Purpose: writes text/event-stream into an answer's pipe: records with a name and a line of JSON,
 *          a command's output as whole characters, and a comment where there would be silence.
 * Owns:    the writer's end of the pipe; what it has no room for.
 * Thread:  loop. The one callback may come from within events_output() and events_add().
 * Errors:  none: a reader that is gone is the call's drop().
 * Uses:    base, loop.
 *
 *	event: stdout
 *	id: 12
 *	data: {"text":"hello\\n"}
 *
 * Output that is UTF-8 without NUL is "text"; a character that comes in parts waits for its rest.
 * Other output is "base64". The bytes of all records of an output, one after the other, are what
 * was given here.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/json.h"
#include "loop/loop.h"
#include "loop/pipe.h"

#define EVENTS_TYPE         "text/event-stream"
#define EVENTS_HEARTBEAT_MS 15000
#define EVENTS_PIPE_BYTES   (512 * 1024) /* of the pipe that an answer should have */

struct events;

/* @is_full: the reader is behind, give no more for now; what comes all the same is kept. Else: go
 * on. Once for each change. */
typedef void (*events_flow_fn)(void *arg, bool is_full);

/* Takes the writer's end of @pipe. */
struct events *events_new(struct loop *loop, struct pipe *pipe, unsigned heartbeat_ms,
	events_flow_fn on_flow, void *arg);
/* Before events_end() it fails the pipe. NULL is fine. */
void events_free(struct events *events);

/* A record of its own. Takes @data. */
void events_add(struct events *events, const char *name, json_object *data);
/* Output of stdout (1) or stderr (2). */
void events_output(struct events *events, int fd, const void *data, size_t len);
/*
 * The output that comes next begins at @offset of what can be asked for again. From now on records
 * have an id: where to go on from after them, so that nothing is missed.
 */
void events_locate(struct events *events, uint64_t offset);
/* No more: the pipe is closed behind what was given. */
void events_end(struct events *events);
