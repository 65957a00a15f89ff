#pragma once

/*
 * http_events - a client that reads a stream of events
 *
 * Purpose: from an answer's chunks to its events, at the test's own pace.
 * Owns:    what it has read.
 * Thread:  loop.
 *
 *	struct event_stream *s = event_stream_new(h, "POST", target, h->key, "{…}");
 *	struct event event;
 *	while (event_stream_next(s, &event)) { … event_fini(&event); }
 *	assert_true(s->is_end);
 *	event_stream_free(s); (leaves, if it isn't at its end)
 */

#include "tests/lib/event_text.h"
#include "tests/lib/http_world.h"

struct event_stream {
	struct client *c;
	struct answer *refusal; /* the answer was another one; NULL: it is a stream */
	char *headers;
	struct evbuffer *text;
	size_t chunk_left; /* bytes of the chunk that is being read */
	bool is_end;       /* by its last chunk */
	bool is_cut;       /* by the end of the connection */
};

/* Asks with Accept: text/event-stream, and waits for the head of the answer. */
struct event_stream *event_stream_new(struct http_world *h, const char *method, const char *target,
	const char *key, const char *json);
struct event_stream *event_stream_new_raw(struct http_world *h, const char *method,
	const char *target, const char *key, const char *type, const void *body, size_t len);
void event_stream_free(struct event_stream *s);

/* Waits for the next event that is no comment. False: the stream is over. */
bool event_stream_next(struct event_stream *s, struct event *ret);
/* The next one has that name. */
void event_stream_expect(struct event_stream *s, const char *name, struct event *ret);
/* Reads on to the end: the outputs as they are, and the last event. */
void event_stream_drain(
	struct event_stream *s, struct evbuffer *outputs[2], struct event *ret_last);
