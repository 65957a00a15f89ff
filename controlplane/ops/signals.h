#pragma once

/*
 * signals - names of signals
 *
 * Purpose: which number a client means. The guest is Linux, whatever this is built on.
 * Thread:  any.
 * Errors:  ERR_INVALID: it is none.
 * Uses:    base.
 */

#include "base/err.h"

/* "TERM", "SIGTERM", "term" or "15": 1 to 64. */
int signal_parse(const char *text, int *ret, struct err *err);
