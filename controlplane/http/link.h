#pragma once

/*
 * link - the two directions of a socket
 *
 * Purpose: reads as much as is wanted and no more, writes what the kernel takes at once, and sees a
 *          peer that leaves at any time, also while nothing is read.
 * Owns:    the descriptor and both buffers.
 * Thread:  loop.
 * Errors:  a broken link is a state: nothing comes and nothing goes any more.
 * Uses:    loop, libevent_core.
 */

#include <event2/buffer.h>
#include <event2/event.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "loop/loop.h"

/* What an evbuffer keeps in 64 KiB, with its own few. */
#define HTTP_LINK_READ_MAX_BYTES (64 * 1024 - 256)

struct http_link {
	int fd; /* -1: closed */
	struct event *event;
	struct evbuffer *in;
	struct evbuffer *out;
	uint64_t read_bytes; /* in all */
	bool is_readable;    /* a read may bring something */
	bool is_writable;
	bool has_left;  /* the peer closed, or shut its sending half; bytes may still be there */
	bool is_end;    /* the last of them has been read */
	bool is_broken; /* a reset, or the like */
	void (*fn)(void *arg);
	void *arg;
};

/* Takes @fd, which doesn't block. @fn: something has changed; it may close the link. */
void http_link_init(
	struct http_link *link, struct loop *loop, int fd, void (*fn)(void *arg), void *arg);
/* It is TCP: small pieces leave at once, and a peer whose host is gone is found by asking it (then
 * .is_broken), within a minute. */
void http_link_set_tcp(const struct http_link *link);
/* No call of fn() comes any more. What hasn't been sent is lost. Again is fine. */
void http_link_close(struct http_link *link);
/* The same with a reset, so that the peer takes nothing for whole. Unix sockets have none. */
void http_link_reset(struct http_link *link);
/* Ends our sending half. */
void http_link_shut(struct http_link *link);

/* Reads once, up to @max bytes (and HTTP_LINK_READ_MAX_BYTES), to .in; returns how many. */
size_t http_link_read(struct http_link *link, size_t max);
/* Writes of .out what can be written now; returns how many bytes. */
size_t http_link_write(struct http_link *link);
