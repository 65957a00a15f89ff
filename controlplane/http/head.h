#pragma once

/*
 * head - the head of a request
 *
 * Purpose: from bytes to method, target, version and headers; refuses what two programs could read
 *          in two ways, so that no proxy before us sees other requests than we answer (request
 *          smuggling). Pure: the bytes come from whoever has them.
 * Owns:    its copy of the bytes.
 * Thread:  any.
 * Errors:  a problem is a text for the client. The connection ends with the answer: where the next
 *          request starts isn't known.
 * Uses:    base.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define HTTP_HEAD_LINES_MAX 256
/* A method, which no operation has a longer one of. */
#define HTTP_METHOD_MAX_BYTES 16

enum http_head_state {
	HTTP_HEAD_LINE,  /* within the request line */
	HTTP_HEAD_NAME,  /* at the start of a header, or within its name */
	HTTP_HEAD_VALUE, /* behind the colon */
	HTTP_HEAD_OVER,  /* all of it is there; the fields below may be used */
	HTTP_HEAD_BAD,   /* .problem says why */
};

/* Of text; values begin behind spaces and end before blanks. */
struct http_header {
	uint32_t name;
	uint32_t value;
};

struct http_head {
	enum http_head_state state;
	const char *problem;

	const char *method; /* a token; "GET" */
	const char *target; /* printable ASCII without blanks, never empty */
	bool is_old;        /* HTTP/1.0 */

	/* ---- of the parser ---- */
	char *text; /* the bytes, with a NUL behind each part */
	size_t len;
	size_t size;
	size_t max_bytes;
	size_t taken_bytes;
	size_t line_start;
	size_t target_start;
	unsigned blanks; /* in the request line */
	unsigned lines;
	bool after_cr;
	struct http_header headers[HTTP_HEAD_LINES_MAX];
	size_t header_count;
};

/* Ready for the first byte. */
void http_head_init(struct http_head *head, size_t max_bytes);
/* Forgets a head and is ready for the next; keeps a small copy's memory. */
void http_head_reset(struct http_head *head);
void http_head_fini(struct http_head *head);

/* Looks at the next bytes; returns how many belong to the head. All that follow its end, or a
 * problem, don't. */
size_t http_head_take(struct http_head *head, const char *bytes, size_t len);
/* Nothing of a request has come. */
bool http_head_is_fresh(const struct http_head *head);

/* ---- of a head that is over ---- */

/* Value of the header, the first one of that name; NULL: there is none. */
const char *http_head_find(const struct http_head *head, const char *name);
/* The comma-separated list of values, in all headers @name together, has @token. */
bool http_head_has_token(const struct http_head *head, const char *name, const char *token);

/*
 * What must agree between headers: nothing twice that may be there once, and one length at most, in
 * a form that leaves no doubt, and none where @may_have_body is false.
 */
struct http_length {
	bool is_chunked;
	uint64_t bytes; /* 0: no body, or an empty one */
};
int http_head_length(
	const struct http_head *head, bool may_have_body, struct http_length *ret, struct err *err);
