#pragma once

/*
 * stream - a file's bytes as an answer
 *
 * Purpose: from the pipe of an op_answer to a chunked answer, at the client's pace.
 * Owns:    the pipe's reading end.
 * Thread:  loop.
 * Errors:  a pipe that fails cuts the connection, so that the client can't take what it has for the
 *          whole.
 * Uses:    base, loop, ops, libevent_extra.
 */

#include "http/request.h"

struct op_answer;
struct http_stream;

/* Sends the headers and takes the pipe of @answer. */
void http_stream_begin(struct http_request *request, struct op_answer *answer);
/* The connection is gone. */
void http_stream_free(struct http_stream *stream);
