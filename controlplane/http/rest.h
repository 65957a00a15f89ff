#pragma once

/*
 * rest - what a request means
 *
 * Purpose: host and origin, route, principal, arguments: all that a head can tell is judged before
 *          a byte of the body is read. Then the call is request.c's to run.
 * Owns:    nothing.
 * Thread:  loop.
 * Uses:    base, loop, api, auth, ops, router.h, request.h.
 */

#include "http/request.h"

/* The head is there: fails @request, starts its call, or leaves it waiting for its JSON. */
void http_rest(struct http_request *request);
/* The JSON is there, all of it: fails @request or starts its call. */
void http_rest_body(struct http_request *request);
/* So many bytes of JSON aren't too many. ERR_TOO_LARGE. */
int http_rest_check_json_length(const struct http_request *request, uint64_t len, struct err *err);
