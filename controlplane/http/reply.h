#pragma once

/*
 * reply - headers and JSON of an answer
 *
 * Purpose: what every answer has in common, as bytes in the link's buffer.
 * Uses:    base, ops, request.h.
 */

#include "base/json.h"
#include "http/request.h"

struct http_server;
struct op_answer;

#define HTTP_REPLY_MAX_BYTES 1024

/* A head that is being written. */
struct http_reply {
	struct http_request *request;
	size_t len;
	char text[HTTP_REPLY_MAX_BYTES];
};

/* "Not Found" */
const char *http_reason(int status);

/* The status line and the headers of every answer. @content_type NULL: it has no content. */
void http_reply_begin(struct http_reply *reply, struct http_request *request, int status,
	const char *content_type);
/* A further line, without its end. */
void http_reply_line(struct http_reply *reply, const char *fmt, ...) _printf_(2, 3);
void http_reply_end(struct http_reply *reply);

/* A whole answer. @retry_after_s 0: trying again doesn't help. Returns the bytes of its body. */
uint64_t http_reply_json(
	struct http_request *request, int status, json_object *json, unsigned retry_after_s);
/* Of a pipe's: the file's size and mode. */
void http_reply_file_lines(struct http_reply *reply, const struct op_answer *answer);

/*
 * A line for what was refused before it was a call, with as much as is known of it. A flood of them
 * is held back, unless it is from somebody with a key.
 */
void http_log_refusal(const struct http_request *request, int status, const struct err *err);
/* The same for an error of ours. */
void http_log_failure(const struct http_request *request, const struct err *err);
