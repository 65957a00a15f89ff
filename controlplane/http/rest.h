#pragma once

/*
 * rest - what a request means
 *
 * Purpose: host and origin, route, principal, arguments; then the call is request.c's to run.
 * Owns:    nothing.
 * Thread:  loop.
 * Uses:    base, loop, api, auth, ops, router.h, request.h.
 */

#include "http/request.h"

void http_rest(struct http_request *request);
