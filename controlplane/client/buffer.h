#pragma once

/*
 * buffer - bytes that grow
 *
 * Purpose: text and answers that are put together piece by piece. There is always a terminator
 *          behind the last byte, so what has no NUL in it is a string.
 * Owns:    its bytes: buffer_fini(), or whoever takes .data.
 * Thread:  any.
 * Errors:  none; whoever adds what comes from outside keeps to a limit.
 */

#include <stddef.h>

#include "base/cleanup.h"

struct buffer {
	char *data; /* NULL as long as nothing was added */
	size_t len;
	size_t size;
};

void buffer_add(struct buffer *b, const void *data, size_t len);
void buffer_add_text(struct buffer *b, const char *text);
/* Drops the first @len bytes. */
void buffer_drop(struct buffer *b, size_t len);
/* Drops all of them and keeps the memory for the next ones. */
void buffer_clear(struct buffer *b);
void buffer_fini(struct buffer *b);
#define _cleanup_buffer_ _cleanup_(buffer_fini)
