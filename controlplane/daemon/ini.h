#pragma once

/*
 * ini - the form of the configuration file
 *
 * Purpose: finds sections, keys and values in a text, line by line.
 * Owns:    nothing.
 * Thread:  any.
 * Errors:  ERR_INVALID, or what the callback fails with; *ret_line is where.
 * Uses:    base.
 *
 * A line is empty, a comment (# or ;), a [section], or `key = value`. Blanks around each part don't
 * count. A blank before ; begins a comment behind a value. Nothing continues on the next line, and
 * no line is too long.
 */

#include <stddef.h>

#include "base/err.h"

/* May change none of the texts; -1 with @err ends the reading. */
typedef int (*ini_fn)(
	void *arg, const char *section, const char *key, const char *value, struct err *err);

/* @text is torn apart. */
int ini_read(char *text, ini_fn fn, void *arg, unsigned *ret_line, struct err *err);
