#pragma once

/*
 * reply - headers and JSON of an answer
 *
 * Purpose: what every answer has in common. No terminal send is here: request.c has them.
 * Uses:    base, ops, request.h.
 */

#include "base/json.h"
#include "http/request.h"

struct http_server;
struct op_answer;

/* "Not Found" */
const char *http_reason(int status);

/* Headers of every answer. */
void http_reply_headers(struct http_request *request, int status, const char *content_type);
/* Of a failure that never became a call. */
void http_reply_error_headers(struct http_request *request, enum err_kind kind);
/* Of one whose op_answer asks for more: Retry-After, the file's size and mode. */
void http_reply_answer_headers(struct http_request *request, const struct op_answer *answer);
/* Headers and body of a JSON answer, for http_request_send(). Returns the bytes of the body. */
uint64_t http_reply_json(struct http_request *request, int status, json_object *json);

/*
 * A line for what was refused before it was a call, with as much as is known of it. A flood of them
 * is held back, unless it is from somebody with a key. @request NULL: there was none yet.
 */
void http_log_refusal(struct http_server *server, const struct http_request *request,
	const char *id, int status, const struct err *err);
/* The same for an error of ours. */
void http_log_failure(const struct http_request *request, const struct err *err);
