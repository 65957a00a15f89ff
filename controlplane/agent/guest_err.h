#pragma once

/*
 * guest_err - what a guest says of a failure, as our error value
 *
 * Purpose: the only place where the protocol's status numbers become error kinds, and where text
 *          from a guest becomes text that may be shown.
 * Owns:    nothing.
 * Thread:  any.
 * Uses:    base, proto.
 */

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/*
 * Copies @len bytes into @out with a terminator: cut to @size - 1 bytes at a character, control
 * characters as '?'; UTF-8 is kept where all of it is valid, else each byte beyond ASCII is '?'.
 */
void guest_text_copy(char *out, size_t size, const void *data, size_t len);

/*
 * @status is any number but STATUS_OK, @text as from guest_text_copy() or "". CANCELLED gives
 * ERR_CANCELLED, BUSY gives ERR_UNAVAILABLE, LIMIT gives ERR_RATE, all others ERR_GUEST. Returns
 * -1.
 */
int guest_err_set(struct err *err, uint32_t status, const char *text);
