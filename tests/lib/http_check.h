#pragma once

/*
 * http_check - what holds for every answer
 *
 * Purpose: an error has a type and a status that belong together, the request's id in body and
 *          header, and nothing of the service's inside.
 * Thread:  any.
 */

#include "tests/lib/http_world.h"

/* NULL, or what is wrong with @a as an error. Valid until the next call. */
const char *http_check_error(const struct answer *a);
/* NULL, or the piece of @text that no client should see. */
const char *http_check_text(const char *text);
