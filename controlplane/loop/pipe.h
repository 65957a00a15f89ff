#pragma once

/*
 * pipe - a bounded stream of bytes between two parts of the daemon
 *
 * Purpose: how bodies travel: from an HTTP request to a guest and back, with back-pressure. The
 * writer stops when the pipe is full and hears when there is room; the reader takes what it can.
 * Owns:    the buffered bytes.
 * Thread:  loop.
 * Errors:  carried by the pipe: pipe_fail() on either side reaches the other.
 * Uses:    base, loop, evbuffer.
 *
 * Callbacks come from the loop, never from within a call of the other side, and at most once a
 * turn. Each side has one reference; the pipe goes with the last. A side that lets go of its
 * reference before the end was reached fails the pipe with ERR_CANCELLED.
 */

#include <event2/buffer.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "loop/loop.h"

struct pipe;
typedef void (*pipe_fn)(void *arg);

/* One reference for the writer, one for the reader: end them with the two functions below. */
struct pipe *pipe_new(struct loop *loop, size_t capacity);
void pipe_writer_free(struct pipe *pipe); /* NULL is fine */
void pipe_reader_free(struct pipe *pipe); /* NULL is fine */

/* ---- writer ---- */

/* @on_room: there is room again after the pipe was full, or the reader failed it. */
void pipe_set_writer(struct pipe *pipe, pipe_fn on_room, void *arg);
size_t pipe_room(const struct pipe *pipe);
/* Moves up to pipe_room() bytes off the front of @from; returns how many. */
size_t pipe_write_buffer(struct pipe *pipe, struct evbuffer *from);
/* Copies up to pipe_room() bytes; returns how many. */
size_t pipe_write(struct pipe *pipe, const void *data, size_t len);
/* No more bytes. */
void pipe_close(struct pipe *pipe);

/* ---- reader ---- */

/* @on_data: there are bytes, the end, or a failure to see. Called for what is there already, too.
 */
void pipe_set_reader(struct pipe *pipe, pipe_fn on_data, void *arg);
size_t pipe_available(const struct pipe *pipe);
/* Moves up to @max bytes to @to; returns how many. */
size_t pipe_read_buffer(struct pipe *pipe, struct evbuffer *to, size_t max);
/* Copies up to @max bytes out; returns how many. */
size_t pipe_read(struct pipe *pipe, void *out, size_t max);
/* Closed by the writer and everything read. */
bool pipe_is_end(const struct pipe *pipe);

/* ---- both ---- */

/* The first failure stays. What was buffered is dropped. */
void pipe_fail(struct pipe *pipe, const struct err *err);
/* NULL while there is none. */
const struct err *pipe_failure(const struct pipe *pipe);
