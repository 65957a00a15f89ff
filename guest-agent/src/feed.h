#pragma once

/*
 * feed - from channel IN into a descriptor
 *
 * Purpose: writes at once what the descriptor takes, keeps the rest, gives credit back for what has
 *          been written. The window is the size of the buffer, so it can't overflow.
 * Owns:    the descriptor and the buffer, which exists only once it is needed.
 * Thread:  the agent has one.
 * Uses:    stream.h.
 *
 *   FEED_WAITING ──feed_open──► FEED_OPEN ──all written after CLOSE, error, feed_stop──►
 * FEED_STOPPED
 */

#include "src/util.h"

struct stream;

enum feed_state {
	FEED_STOPPED, /* what comes is dropped */
	FEED_WAITING, /* what comes is kept */
	FEED_OPEN,
};

struct feed {
	enum feed_state state;
	int fd;
	bool is_shared; /* others have the same pipe: closing fd doesn't end the watch on it */
	bool goes_on;   /* more follows what the host sends: CLOSE isn't its end */
	int sys;        /* why it stopped: errno of write; 0: because it was told to */
	uint64_t bytes;
	uint8_t *buf;
	size_t head;
	size_t len;
};

#define FEED_INIT ((struct feed){.fd = -1})

/* Takes @fd, which must not block unless writing to it always ends. */
void feed_open(struct feed *f, int fd);
void feed_data(struct stream *s, struct feed *f, const uint8_t *data, size_t len);
/* To be called when the descriptor may take more, and after CLOSE. */
void feed_pump(struct stream *s, struct feed *f);
/* Closes it and drops what is left. Fine to call twice. */
void feed_stop(struct stream *s, struct feed *f);
