#pragma once

/*
 * http_fixture - the http_world of a program whose tests have one each
 *
 * Purpose: what their set-up has in common.
 * Thread:  loop.
 */

#include "tests/lib/http_world.h"

extern struct http_world *h;
int http_set_up(void **state);
int http_tear_down(void **state);
/* "/v1/sandboxes/ID" and @rest; valid until the next call. */
const char *http_at(const char *id, const char *rest);
