#pragma once

/*
 * mux - the calls of a session side by side on one channel
 *
 * Purpose: stream numbers, credit windows of both directions, and the order in which frames are
 *          written. Pure: frames in, events and frames out.
 * Owns:    the streams and the request bodies that aren't sent yet.
 * Thread:  any; no state outside the arguments. Calls pull() of a stream from mux_write() alone.
 * Errors:  ERR_RATE: too many streams. ERR_UNAVAILABLE: too many bytes waiting, or (mux_input) the
 *          guest broke the protocol.
 * Uses:    base, proto.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/err.h"
#include "proto/frame.h"

/* Of PROTO_STREAMS_MAX, kept back for calls that manage the guest. */
#define MUX_STREAMS_RESERVED 4u
/* Bytes of requests that wait to be sent; reserved calls may go beyond it. */
#define MUX_WAITING_MAX_BYTES (4u * 1024u * 1024u)
/* Streams that we gave up and the guest doesn't end. One that keeps more of them counts as broken.
 */
#define MUX_ORPHANS_MAX 16u

/* Room that mux_write() needs: one frame. */
#define MUX_FRAME_MAX_BYTES (PROTO_HEADER_BYTES + PROTO_PAYLOAD_MAX_BYTES)

/*
 * Copies up to @max bytes of input into @out (which may be fewer than there are, and 0 when @max
 * is 0) and returns how many. *ret_is_end: these were the last.
 */
typedef size_t (*mux_pull_fn)(void *owner, uint8_t *out, size_t max, bool *ret_is_end);

struct mux_stream;
TAILQ_HEAD(mux_list, mux_stream);

struct mux {
	struct mux_list streams;    /* all */
	struct mux_list urgent;     /* have something small to send */
	struct mux_list bulk;       /* have data to send, in turns */
	struct mux_stream *partial; /* its request is sent in part; one at a time */
	unsigned count;
	unsigned orphans;
	size_t waiting; /* bytes of request bodies */
	uint32_t last_id;
};

void mux_init(struct mux *mux);
/* Frees all streams, for a session that is over; the next one starts from stream 1. */
void mux_reset(struct mux *mux);

struct mux_request {
	uint16_t type;    /* FRAME_EXEC … */
	uint8_t *body;    /* malloc'ed */
	size_t len;       /* at most PROTO_REQUEST_MAX_BYTES */
	bool is_reserved; /* may use the streams that are kept back */
	mux_pull_fn pull; /* NULL: no input */
};

/* Takes request->body on success only. */
struct mux_stream *mux_open(
	struct mux *mux, const struct mux_request *request, void *owner, struct err *err);
/* pull() has something now. */
void mux_poke(struct mux *mux, struct mux_stream *stream);
/* @len bytes of output are done with; the guest may send as many more. */
void mux_consume(struct mux *mux, struct mux_stream *stream, unsigned channel, size_t len);
/* Asks the guest to stop; no more input. True: it never heard of the stream, which is gone. */
bool mux_cancel(struct mux *mux, struct mux_stream *stream);
/* The owner gives it up: cancelled, and what still comes is dropped. */
void mux_abandon(struct mux *mux, struct mux_stream *stream);

enum mux_event_kind {
	MUX_NOTHING,
	MUX_STARTED, /* data: the body */
	MUX_DATA,
	MUX_CLOSE,
	MUX_GAP, /* data: the offset; PROTO_GAP_BYTES of FRAME_CHANNEL_OUT are to be consumed */
	MUX_END, /* data: the body; the stream is gone */
};

struct mux_event {
	enum mux_event_kind kind;
	void *owner;
	unsigned channel;
	const uint8_t *data;
	size_t len;
};

/* A frame of a call, as frame_parse() found it. -1: the session can't go on. */
int mux_input(struct mux *mux, const struct frame *frame, struct mux_event *ret, struct err *err);

bool mux_has_output(const struct mux *mux);
/* Writes the next frame into MUX_FRAME_MAX_BYTES at @out; returns its size, 0: nothing to send. */
size_t mux_write(struct mux *mux, uint8_t *out);
