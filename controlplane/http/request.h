#pragma once

/*
 * request - the life of a request
 *
 * Purpose: from a head to the answer's last byte: where its body goes, the call, the answer, and
 *          what becomes of them when the client leaves.
 * Owns:    the op_call, the ends of pipes that are the transport's, what of a JSON body has come.
 * Thread:  loop.
 * Uses:    base, loop, api, ops.
 */

#include "api/api_args.h"
#include "auth/auth.h"
#include "base/err.h"
#include "base/id.h"
#include "base/json.h"
#include "http/conn.h"
#include "http/router.h"

struct http_stream;
struct op_call;
struct pipe;

struct http_request {
	struct http_server *server;
	struct http_conn *conn;
	char id[ID_BYTES];
	const struct api_row *row;  /* NULL: not known, or there is none */
	struct principal principal; /* all zero: not known, or nobody */
	bool is_head;
	const char *allow; /* for 405; NULL: none */

	/* Between a head that was found good and the end of its body. */
	struct api_args args;
	struct evbuffer *json; /* a JSON body so far; NULL: there is none */
	struct pipe *upload;   /* writer's end: a raw body on its way; NULL: none */

	struct op_call *call;       /* NULL before, and again when its answer is all written */
	struct http_stream *stream; /* while a pipe's bytes are sent */
	bool is_streamed;           /* its answer is such bytes */
	bool is_answered;           /* the last of the answer is in the link's buffer */
	uint64_t sent_bytes;
};

/* The head of @conn is over. */
void http_request_begin(struct http_conn *conn);
/* The head of @conn is bad, or takes too long: answers @err with @status (0: as its kind has it),
 * and the connection closes. */
void http_request_refuse(struct http_conn *conn, int status, const struct err *err);
/* Ends it, wherever it is. */
void http_request_free(struct http_request *request);

/* ---- of its body; for conn.c ---- */

/* How many bytes can be taken now; 0: they wait, or nobody wants them. */
size_t http_request_room(const struct http_request *request);
/* Takes all of @bytes, which are at most that many. */
void http_request_take(struct http_request *request, struct evbuffer *bytes);
/* All of it has come. */
void http_request_body_end(struct http_request *request);

/* ---- of its answer ---- */

/* Starts the call of @request and sends what it answers, now or later. */
void http_request_start(struct http_request *request, struct op_call *call);
/* Answers with a failure; whatever ran for the request is called off. @status 0: as the kind has
 * it. */
void http_request_fail(struct http_request *request, int status, const struct err *err);
/* The last of the answer is written: the call is over. */
void http_request_answered(struct http_request *request);
