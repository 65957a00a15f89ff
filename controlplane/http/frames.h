#pragma once

/*
 * frames - messages of a WebSocket, as a server has them (RFC 6455)
 *
 * Purpose: from bytes to whole messages and back. Strict: what a client may not send ends the
 *          conversation with the code that says so. Pure: it works on two buffers.
 * Owns:    what has come of a message. The buffers are the caller's.
 * Thread:  any.
 * Uses:    base, wslay, evbuffer.
 */

#include <event2/buffer.h>
#include <stdbool.h>
#include <stddef.h>

struct http_frames;

enum http_frames_event {
	HTTP_FRAMES_MORE,    /* no whole message is there */
	HTTP_FRAMES_MESSAGE, /* one is */
	HTTP_FRAMES_CLOSED,  /* the client says goodbye; .code is what it is to be answered with */
	HTTP_FRAMES_BROKEN,  /* it broke the rules; .code is how to close, .text says why */
};

struct http_frames_message {
	bool is_text;
	const char *text; /* valid until the next call */
	size_t len;
	unsigned code; /* 0: none */
};

/* Borrows both. */
struct http_frames *http_frames_new(
	struct evbuffer *in, struct evbuffer *out, size_t message_max_bytes);
void http_frames_free(struct http_frames *frames); /* NULL is fine */

/* What comes next. Not called again after CLOSED or BROKEN. Pings are answered on the way, unless
 * more than @out_max bytes wait to be sent. */
enum http_frames_event http_frames_next(
	struct http_frames *frames, size_t out_max, struct http_frames_message *ret);

void http_frames_send(struct http_frames *frames, bool is_text, const void *data, size_t len);
void http_frames_ping(struct http_frames *frames);
/* @code 0: without one. @reason: UTF-8; what is longer than fits is cut. */
void http_frames_close(struct http_frames *frames, unsigned code, const char *reason);
