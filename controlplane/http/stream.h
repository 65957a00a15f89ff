#pragma once

/*
 * stream - a pipe's bytes as an answer
 *
 * Purpose: from the pipe of an op_answer to the client, at the client's pace: in chunks, or with a
 *          length for HTTP/1.0.
 * Owns:    the pipe's reading end.
 * Thread:  loop.
 * Errors:  a pipe that fails breaks the connection, so that the client can't take what it has for
 *          the whole.
 * Uses:    base, loop, ops.
 */

#include "http/request.h"

struct op_answer;
struct http_stream;

/* Writes the headers and takes the pipe of @answer. */
void http_stream_begin(struct http_request *request, struct op_answer *answer);
/* Goes on; for conn.c, when bytes have left. */
void http_stream_pump(struct http_stream *stream);
void http_stream_free(struct http_stream *stream); /* NULL is fine */
