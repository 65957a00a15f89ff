#pragma once

/*
 * request - the life of a request
 *
 * Purpose: from evhttp's callback to the one terminal send: the id, the watch for a client that
 *          leaves, sending JSON or a file's bytes, the log record.
 * Owns:    the op_call and, until the terminal send, evhttp's request.
 * Thread:  loop.
 * Uses:    base, loop, api, ops, libevent_extra.
 */

#include <event2/http.h>

#include "auth/auth.h"
#include "base/err.h"
#include "base/id.h"
#include "base/json.h"
#include "http/conn.h"

struct http_stream;
struct op_call;

struct http_request {
	struct http_server *server;
	struct http_conn *conn; /* NULL once it is lost */
	struct evhttp_request *evreq;
	char id[ID_BYTES];
	const struct api_row *row;  /* NULL: not known, or there is none */
	struct principal principal; /* all zero: not known, or nobody */
	struct op_call *call;       /* NULL before rest.c has made it */
	bool is_head;
	bool closes; /* the connection ends with this answer */

	struct event *gone; /* while the call waits; see request.c */
	int gone_fd;
	struct http_stream *stream; /* while a file's bytes are sent */
	uint64_t sent_bytes;
};

/* For evhttp_set_gencb(): @arg is the door. */
void http_request_begin(struct evhttp_request *evreq, void *arg);

/* Starts @call (taken) and sends what it answers, now or later. */
void http_request_run(struct http_request *request, struct op_call *call);
/* Sends a failure that never became a call. @status 0: as the kind has it. */
void http_request_fail(struct http_request *request, int status, const struct err *err);

/* The connection is gone. For conn.c. */
void http_request_lost(struct http_request *request);
/* Answers "unavailable" to what still waits, cuts what is being sent. For server.c. */
void http_request_abort(struct http_request *request);

/* ---- for stream.c: the terminal sends. @request is gone when they return. ---- */

/* All that is in the output buffer, with the headers. */
void http_request_send(struct http_request *request, int status);
/* The end of what evhttp_send_reply_start() began. */
void http_request_send_end(struct http_request *request);
