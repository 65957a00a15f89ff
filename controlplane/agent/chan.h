#pragma once

/*
 * chan - the channel to the agent of one guest
 *
 * Purpose: connects to the chardev's socket, keeps a session (chan_fsm) on it, hands on the frames
 *          of calls and sends what the calls have to send; connects again after a loss.
 * Owns:    the socket, the session, the bytes in between: at most CHAN_IN_BYTES in and one frame
 *          and a few session frames out.
 * Thread:  loop. Callbacks come from the loop, never from within a call.
 * Errors:  told by on_lost(): ERR_UNAVAILABLE (closed, or the guest broke the protocol) or
 *          ERR_TIMEOUT (it doesn't answer).
 * Uses:    base, loop, proto.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/chan_fsm.h"
#include "base/err.h"
#include "loop/loop.h"
#include "proto/frame.h"

/* Room for the largest frame and a decent read behind it. */
#define CHAN_IN_BYTES (2u * (PROTO_HEADER_BYTES + PROTO_PAYLOAD_MAX_BYTES))
/* What one guest may have read and written in one turn of the loop. */
#define CHAN_TURN_BYTES (512u * 1024u)
/* Asked of the kernel, so that little is queued ahead of an urgent frame. */
#define CHAN_SOCKET_BYTES (64 * 1024)
/* Between the close of a socket and the next attempt; chan_timing.penalty_ms where it's the guest's
 * fault. */
#define CHAN_RETRY_MS 50u

struct chan_hooks {
	/* The session stands; @body is that of the guest's HELLO. -1: it's no good. */
	int (*on_ready)(void *arg, const uint8_t *body, size_t len, struct err *err);
	/* -1: the session can't go on. */
	int (*on_frame)(void *arg, const struct frame *frame, struct err *err);
	/* The session is over, or never came to be for a reason worth telling. */
	void (*on_lost)(void *arg, const struct err *err);
	/* Writes one frame into CHAN_FILL_BYTES at @out; returns its size, 0: nothing to send. */
	size_t (*fill)(void *arg, uint8_t *out);
	void *arg;
};
#define CHAN_FILL_BYTES (PROTO_HEADER_BYTES + PROTO_PAYLOAD_MAX_BYTES)

struct chan;

/* @timing is borrowed. Starts to connect from the loop. */
struct chan *chan_new(struct loop *loop, const char *path, const struct chan_timing *timing,
	const struct chan_hooks *hooks);
/* No callback after it. Fine to call from a callback. */
void chan_free(struct chan *chan);

/* fill() has something now. */
void chan_wake(struct chan *chan);
/* Calls are under way: silence is noticed sooner. */
void chan_set_busy(struct chan *chan, bool is_busy);
/* Ends the session, from the loop, with @err for on_lost(). */
void chan_give_up(struct chan *chan, const struct err *err);
