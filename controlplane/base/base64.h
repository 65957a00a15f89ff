#pragma once

/*
 * base64 - bytes as text (RFC 4648, with padding)
 *
 * Thread: any.
 * Errors: ERR_INVALID: not base64.
 */

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

#define BASE64_ENCODED_BYTES(len) (((len) + 2) / 3 * 4)

/* BASE64_ENCODED_BYTES(@len) characters into @out, without a terminator. */
void base64_encode(char *out, const void *data, size_t len);
/* Bytes that valid text of @len characters decodes to. */
size_t base64_decoded_bytes(const char *text, size_t len);
/* Whether base64_decode() would succeed. Strict: no white space, padding as it must be. */
bool base64_is_valid(const char *text, size_t len);
/* base64_decoded_bytes() bytes into @out. ERR_INVALID. */
int base64_decode(void *out, const char *text, size_t len, struct err *err);
