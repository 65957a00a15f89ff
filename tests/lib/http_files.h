#pragma once

/*
 * http_files - what tests of files over HTTP share
 *
 * Purpose: a world with one running sandbox, and files of it as bytes.
 * Owns:    the world (http_fixture.h).
 * Thread:  loop.
 */

#include "tests/lib/http_fixture.h"

#define HTTP_OCTETS        "application/octet-stream"
#define HTTP_ACCEPT_OCTETS "Accept: application/octet-stream\r\n"

extern const char *http_files_id;

/* With the usual limits; with some of a MiB. http_tear_down() ends both. */
int http_files_set_up(void **state);
int http_files_set_up_small(void **state);

/* "/v1/sandboxes/ID" and @rest; valid until the next call. */
const char *http_files_at(const char *rest);
/* The caller frees. */
char *http_files_random(size_t len);
struct answer *http_files_put(const char *target, const void *data, size_t len);
struct answer *http_files_get(const char *target);
/* /tmp/large, past the limits. */
void http_files_put_large(size_t len);
