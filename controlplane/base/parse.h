#pragma once

/*
 * parse - strict readers for text from configuration, queries and command lines
 *
 * Errors: ERR_INVALID with a message that says what is wrong with the value and what is allowed,
 * but not which field it was: the caller wraps with the name.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Decimal, no sign unless @min < 0, no blanks, within [min, max]. */
int parse_int(const char *text, int64_t min, int64_t max, int64_t *ret, struct err *err);
/* yes/no, true/false, on/off, 1/0. */
int parse_bool(const char *text, bool *ret, struct err *err);
/* 0 to 15, or -1: it is none. */
int parse_hex_digit(char c);
/*
 * Bytes of the UTF-8 sequence at @text, of which there are @len > 0, and its code point; 0 when it
 * is none: overlong, a surrogate, beyond U+10FFFF or cut.
 */
size_t utf8_decode(const char *text, size_t len, uint32_t *ret_code);
/* Valid UTF-8, which NUL is: what JSON strings and headers must be. */
bool utf8_is_valid(const char *text, size_t len);
/* How many bytes at the end of @text begin a character that goes on behind it: 0 to 3. */
size_t utf8_split_end(const char *text, size_t len);
/* How many bytes at the beginning of @text may end a character that began before it: 0 to 3. */
size_t utf8_split_start(const char *text, size_t len);
