#pragma once

/*
 * console - the last output of a guest's serial console
 *
 * Purpose: reads the console's socket all the time, so that QEMU never waits for us, and keeps the
 *          end of it; connects again when it's closed.
 * Owns:    the socket and a ring of CONSOLE_RING_BYTES.
 * Thread:  loop.
 * Errors:  none; without a socket the ring stays as it is.
 * Uses:    base, loop.
 */

#include <event2/buffer.h>
#include <stddef.h>

#include "loop/loop.h"

#define CONSOLE_RING_BYTES (64u * 1024u)
/* What one guest may have read in one turn of the loop. */
#define CONSOLE_TURN_BYTES (16u * 1024u)

struct console;

struct console *console_new(struct loop *loop, const char *path);
void console_free(struct console *console);
/* Appends the last @max bytes to @to. */
void console_copy(const struct console *console, struct evbuffer *to, size_t max);
