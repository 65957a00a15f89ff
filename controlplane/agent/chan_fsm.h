#pragma once

/*
 * chan_fsm - the session with an agent, from socket to readiness
 *
 * Purpose: decides what the bytes from a guest mean and what the session itself must send: SYNC,
 *          HELLO, PING. Pure: bytes, times and events in, actions out.
 * Owns:    nothing.
 * Thread:  any; no state outside the arguments.
 * Errors:  CHAN_FAIL with ERR_UNAVAILABLE (the guest broke the protocol or gave up) or ERR_TIMEOUT.
 * Uses:    base, proto.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "proto/frame.h"

enum chan_state {
	CHAN_DOWN, /* no socket, or the session has failed; only chan_fsm_connect() is legal */
	/*
	 * Our SYNC is out; whatever comes is discarded until our nonce comes back. No time limit:
	 * the guest may boot for as long as it likes.
	 */
	CHAN_SYNC,
	CHAN_HELLO, /* the guest answered, our HELLO is out; only its HELLO may follow, and soon */
	CHAN_READY, /* frames of calls travel both ways */
	CHAN_STATE_MAX
};

enum chan_action {
	CHAN_WAIT,       /* nothing to do until more bytes or the next tick */
	CHAN_SKIP,       /* bytes were used up; look again */
	CHAN_SEND,       /* send out[0..out_len) before anything else; look again */
	CHAN_TAKE_HELLO, /* the session stands; the frame is the guest's HELLO */
	CHAN_TAKE_FRAME, /* the frame belongs to a call */
	CHAN_FAIL,       /* the session is over; the state is DOWN */
};

struct chan_timing {
	/* The first time; more than PROTO_PARTIAL_FRAME_MS. Doubles up to CHAN_SYNC_RETRY_MAX_MS.
	 */
	uint32_t sync_retry_ms;
	uint32_t hello_ms;     /* from the ack to the guest's HELLO */
	uint32_t ping_idle_ms; /* of silence, no calls under way */
	uint32_t ping_busy_ms; /* of silence, calls under way */
	uint32_t pong_ms;      /* for any sign of life; more than PROTO_SILENCE_MAX_MS */
	uint32_t penalty_ms;   /* chan: pause after a guest broke the protocol or fell silent */
};

#define CHAN_SYNC_RETRY_MAX_MS 4000u

#define CHAN_OUT_BYTES (PROTO_HEADER_BYTES + 128u)

struct chan_fsm {
	enum chan_state state;
	const struct chan_timing *timing;
	uint8_t nonce[FRAME_NONCE_BYTES];
	uint32_t retry_ms; /* SYNC: until the next */
	bool is_busy;
	bool is_pinged;    /* READY: a PING is out and nothing came since */
	uint64_t since_ms; /* SYNC: last SYNC; HELLO: the ack; READY: last sign of life or PING */
	uint8_t out[CHAN_OUT_BYTES];
	size_t out_len;
};

/* @timing is borrowed for the machine's life. */
void chan_fsm_init(struct chan_fsm *fsm, const struct chan_timing *timing);

/* From DOWN: the socket is connected. @nonce was never used before. Fills out[] with SYNC. */
void chan_fsm_connect(struct chan_fsm *fsm, const uint8_t nonce[FRAME_NONCE_BYTES], uint64_t now);
/* The socket is gone. */
void chan_fsm_disconnect(struct chan_fsm *fsm);

/*
 * Looks at the front of @buf; *ret_used bytes of it are done with after the action is carried out.
 * To be repeated until CHAN_WAIT. What *ret_frame points to is within @buf.
 */
enum chan_action chan_fsm_input(struct chan_fsm *fsm, const uint8_t *buf, size_t len, uint64_t now,
	struct frame *ret_frame, size_t *ret_used, struct err *err);

/* Calls are under way: silence is noticed sooner. */
void chan_fsm_set_busy(struct chan_fsm *fsm, bool is_busy, uint64_t now);

/* When chan_fsm_tick() has something to do; UINT64_MAX: never. */
uint64_t chan_fsm_due(const struct chan_fsm *fsm);
/*
 * CHAN_WAIT, CHAN_SEND or CHAN_FAIL. @is_taken: the peer has read all that we sent. Otherwise
 * another SYNC would only queue up behind the first until the guest opens its port. @fresh is a
 * nonce that was never used.
 */
enum chan_action chan_fsm_tick(struct chan_fsm *fsm, uint64_t now, bool is_taken,
	const uint8_t fresh[FRAME_NONCE_BYTES], struct err *err);
