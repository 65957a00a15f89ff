#pragma once

/*
 * bytes - moving bytes between buffers at their own cost
 *
 * Purpose: an evbuffer hands on whole allocations, however few bytes are in one. A peer that sends
 *          byte by byte would have us hold a page or more for each; here few bytes are copied
 *          together, and many move as they are.
 * Owns:    nothing.
 * Thread:  any.
 * Uses:    base, evbuffer.
 */

#include <event2/buffer.h>
#include <stddef.h>

/* Moves @n bytes, which are there, off the front of @from to the end of @to. */
void bytes_move(struct evbuffer *from, struct evbuffer *to, size_t n);
