#pragma once

/*
 * body - where the body of a request ends
 *
 * Purpose: tells content from what is around it, for a body of a known length and for one in
 *          chunks. Pure: it is told of bytes, and moves none.
 * Owns:    nothing.
 * Thread:  any.
 * Errors:  a problem is a text for the client; where the next request starts isn't known then.
 * Uses:    base.
 *
 * Content and framing take turns:
 *
 *	while (!http_body_is_end(body) && !body->problem && there are bytes) {
 *		if ((n = http_body_content(body)) > 0) {
 *			take m <= n bytes as content; http_body_took(body, m);
 *		} else {
 *			throw http_body_frame(body, bytes, len) bytes away;
 *		}
 *	}
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of a chunk's line, with its size and extensions. */
#define HTTP_CHUNK_LINE_MAX_BYTES 256
/* Of all extensions of a body together; they mean nothing to us. */
#define HTTP_EXTENSIONS_MAX_BYTES (16 * 1024)
/* Of the headers behind the last chunk, which are thrown away. */
#define HTTP_TRAILER_MAX_BYTES (8 * 1024)

enum http_body_state {
	HTTP_BODY_CONTENT,   /* .left bytes of it */
	HTTP_BODY_SIZE,      /* a chunk's size, in hexadecimal digits */
	HTTP_BODY_EXTENSION, /* behind the size */
	HTTP_BODY_CHUNK_END, /* CR LF behind a chunk's content */
	HTTP_BODY_TRAILER,   /* lines behind the last chunk, up to an empty one */
	HTTP_BODY_OVER,
};

struct http_body {
	enum http_body_state state;
	bool is_chunked;
	uint64_t left;        /* of the body, or of the chunk */
	uint64_t total_bytes; /* of content so far */
	const char *problem;  /* NULL: none */

	unsigned digits;
	size_t line_bytes;
	size_t extension_bytes;
	size_t trailer_bytes;
	bool after_cr;
};

void http_body_init(struct http_body *body, bool is_chunked, uint64_t bytes);
bool http_body_is_end(const struct http_body *body);
/* How many bytes of content come next; 0: framing, or the end. */
uint64_t http_body_content(const struct http_body *body);
void http_body_took(struct http_body *body, uint64_t bytes);
/* Looks at framing; returns how many bytes are. */
size_t http_body_frame(struct http_body *body, const char *bytes, size_t len);
