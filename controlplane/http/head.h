#pragma once

/*
 * head - what the head of a request may look like
 *
 * Purpose: refuses what two programs could read in two ways, so that no proxy before us and no
 *          parser behind us sees other requests than we answer (request smuggling).
 * Owns:    nothing.
 * Thread:  any.
 * Errors:  ERR_INVALID. The connection ends with the answer: where the next request starts isn't
 *          known.
 * Uses:    base, libevent_extra.
 */

#include <event2/http.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

#define HTTP_HEAD_LINES_MAX 256

/* Looks at the bytes of a head as they come, before a parser has smoothed them out. */
struct http_head {
	enum { HTTP_HEAD_LINE, HTTP_HEAD_NAME, HTTP_HEAD_VALUE, HTTP_HEAD_OVER } state;
	bool after_cr;
	size_t line_bytes;
	unsigned blanks; /* in the request line */
	unsigned lines;
	const char *problem; /* NULL: none so far; the first one stays */
};

#define HTTP_HEAD_INIT ((struct http_head){.state = HTTP_HEAD_LINE})

/* Bytes behind the head's end, and all that follow a problem, aren't looked at. */
void http_head_scan(struct http_head *head, const char *bytes, size_t len);

/*
 * The parsed @headers: one length at most, in a form that leaves no doubt, and nothing twice that
 * may be there once. @may_have_body: as the parser has it for this method.
 */
int http_head_check(const struct evkeyvalq *headers, bool may_have_body, struct err *err);

/* The length of the body is told by its chunks. */
bool http_head_is_chunked(const struct evkeyvalq *headers);
