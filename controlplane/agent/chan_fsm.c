#include "agent/chan_fsm.h"

#include <string.h>

#include "agent/guest_err.h"
#include "proto/msg.h"

/*
 * Theory of operation. A connection starts with bytes of unknown origin in both directions: the
 * rest of an earlier session, or of a guest that was cut off in the middle of a frame. So the host
 * sends SYNC with a nonce that it never used before and discards everything until the guest sends
 * it back; from there on both sides are at a frame boundary.
 *
 *   DOWN ──connect──► SYNC ──own nonce──► HELLO ──guest's HELLO──► READY
 *     ▲                 │                   │                        │
 *     └─────────────────┴──disconnect, violation, ABORT, time-out────┘
 *
 * A SYNC that isn't answered is repeated with another nonce, and only the latest counts. A guest
 * starts over with every SYNC it reads; but what we take for the answer is that to the last one in
 * the line, so no copy can reset a session that we believe in. Lest a slow guest never catches up
 * with us, the pause doubles each time, and nothing is sent while an earlier SYNC isn't even taken.
 *
 * The first pause is longer than PROTO_PARTIAL_FRAME_MS: where the last connection broke off within
 * a frame and the guest didn't notice, SYNC looks like the rest of that frame until nothing has
 * come for so long. Then the guest finds it; more of them would only put that off.
 *
 * A machine that has failed isn't repaired: the socket is closed, and the next connection starts
 * from the beginning.
 */

static void set_state(struct chan_fsm *fsm, enum chan_state state)
{
	static const bool allowed[CHAN_STATE_MAX][CHAN_STATE_MAX] = {
		[CHAN_DOWN] = {[CHAN_DOWN] = true, [CHAN_SYNC] = true},
		[CHAN_SYNC] = {[CHAN_DOWN] = true, [CHAN_HELLO] = true},
		[CHAN_HELLO] = {[CHAN_DOWN] = true, [CHAN_READY] = true},
		[CHAN_READY] = {[CHAN_DOWN] = true},
	};

	ASSERT(allowed[fsm->state][state]);
	fsm->state = state;
}

void chan_fsm_init(struct chan_fsm *fsm, const struct chan_timing *timing)
{
	*fsm = (struct chan_fsm){.state = CHAN_DOWN, .timing = timing};
}

static void put_frame(struct chan_fsm *fsm, uint16_t type, size_t len)
{
	ASSERT(PROTO_HEADER_BYTES + len <= sizeof fsm->out);
	frame_header(fsm->out, type, 0, 0, (uint32_t)len);
	fsm->out_len = PROTO_HEADER_BYTES + len;
}

static void put_sync(struct chan_fsm *fsm)
{
	uint8_t *body = fsm->out + PROTO_HEADER_BYTES;

	memcpy(body, frame_magic, FRAME_MAGIC_BYTES);
	memcpy(body + FRAME_MAGIC_BYTES, fsm->nonce, FRAME_NONCE_BYTES);
	put_frame(fsm, FRAME_SYNC, FRAME_SYNC_BYTES);
}

static void put_hello(struct chan_fsm *fsm)
{
	struct msg_writer w = {
		.buf = fsm->out + PROTO_HEADER_BYTES,
		.size = sizeof fsm->out - PROTO_HEADER_BYTES,
	};

	msg_put_u32(&w, MSG_VERSION, PROTO_VERSION);
	msg_put_u64(&w, MSG_FEATURES, 0);
	msg_put_text(&w, MSG_SOFTWARE, "paddockd/" PADDOCK_VERSION);
	ASSERT(!w.overflow);
	put_frame(fsm, FRAME_HELLO, w.len);
}

void chan_fsm_connect(struct chan_fsm *fsm, const uint8_t nonce[FRAME_NONCE_BYTES], uint64_t now)
{
	set_state(fsm, CHAN_SYNC);
	memcpy(fsm->nonce, nonce, FRAME_NONCE_BYTES);
	fsm->since_ms = now;
	fsm->is_pinged = false;
	fsm->retry_ms = fsm->timing->sync_retry_ms;
	put_sync(fsm);
}

void chan_fsm_disconnect(struct chan_fsm *fsm)
{
	set_state(fsm, CHAN_DOWN);
	fsm->out_len = 0;
}

static enum chan_action fail(struct chan_fsm *fsm)
{
	set_state(fsm, CHAN_DOWN);
	return CHAN_FAIL;
}

static enum chan_action violation(struct chan_fsm *fsm, struct err *err, const char *what)
{
	err_set(err, ERR_UNAVAILABLE, "the agent broke the protocol: %s", what);
	return fail(fsm);
}

static enum chan_action hunt(
	struct chan_fsm *fsm, const uint8_t *buf, size_t len, uint64_t now, size_t *ret_used)
{
	size_t offset;

	if (frame_hunt(FRAME_SIDE_GUEST, buf, len, &offset) == FRAME_INCOMPLETE) {
		*ret_used = offset;
		return CHAN_WAIT;
	}
	const uint8_t *nonce = buf + offset + PROTO_HEADER_BYTES + FRAME_MAGIC_BYTES;

	if (memcmp(nonce, fsm->nonce, FRAME_NONCE_BYTES) != 0) {
		/* An earlier session's, possibly cut off with ours inside of what seems its nonce.
		 */
		*ret_used = offset + 1;
		return CHAN_SKIP;
	}
	*ret_used = offset + PROTO_HEADER_BYTES + FRAME_SYNC_BYTES;
	set_state(fsm, CHAN_HELLO);
	fsm->since_ms = now;
	put_hello(fsm);
	return CHAN_SEND;
}

static enum chan_action take_abort(struct chan_fsm *fsm, const struct frame *frame, struct err *err)
{
	struct msg_reader r = {.buf = frame->payload, .len = frame->length};
	char text[PROTO_TEXT_MAX_BYTES + 1] = "";
	uint32_t status = STATUS_INTERNAL;

	for (struct msg_field f; msg_next(&r, &f);) {
		uint16_t tag = f.tag & (uint16_t)~MSG_CRITICAL;

		if (tag == MSG_STATUS) {
			status = msg_u32(&r, &f);
		} else if (tag == MSG_TEXT) {
			guest_text_copy(text, sizeof text, f.data, f.len);
		}
	}
	err_set(err, ERR_UNAVAILABLE, "the agent gave the session up (%s): %s",
		msg_status_name(status), text);
	return fail(fsm);
}

static enum chan_action take_session_frame(
	struct chan_fsm *fsm, const struct frame *frame, struct err *err)
{
	switch (frame->type) {
	case FRAME_SYNC_ACK:
	case FRAME_PONG:
		return CHAN_SKIP;
	case FRAME_ABORT:
		return take_abort(fsm, frame, err);
	case FRAME_HELLO:
		if (fsm->state == CHAN_HELLO) {
			set_state(fsm, CHAN_READY);
			return CHAN_TAKE_HELLO;
		}
		return violation(fsm, err, "a second HELLO");
	default:
		return violation(fsm, err, "a frame that isn't the guest's to send");
	}
}

enum chan_action chan_fsm_input(struct chan_fsm *fsm, const uint8_t *buf, size_t len, uint64_t now,
	struct frame *ret_frame, size_t *ret_used, struct err *err)
{
	*ret_used = 0;
	ASSERT(fsm->state != CHAN_DOWN);
	if (fsm->state == CHAN_SYNC) {
		return hunt(fsm, buf, len, now, ret_used);
	}
	switch (frame_parse(FRAME_SIDE_GUEST, buf, len, ret_frame, ret_used)) {
	case FRAME_INCOMPLETE:
		return CHAN_WAIT;
	case FRAME_BAD:
		return violation(fsm, err, "a malformed frame");
	case FRAME_OK:
		break;
	}
	if (fsm->state == CHAN_READY) {
		fsm->since_ms = now;
		fsm->is_pinged = false;
	}
	if (ret_frame->stream == 0) {
		enum chan_action action = take_session_frame(fsm, ret_frame, err);

		if (action == CHAN_TAKE_HELLO) {
			fsm->since_ms = now;
		}
		return action;
	}
	if (fsm->state != CHAN_READY) {
		return violation(fsm, err, "a call before HELLO");
	}
	return CHAN_TAKE_FRAME;
}

void chan_fsm_set_busy(struct chan_fsm *fsm, bool is_busy, uint64_t now)
{
	/* The silence before the call doesn't count against it. */
	if (is_busy && !fsm->is_busy && !fsm->is_pinged && fsm->state == CHAN_READY) {
		fsm->since_ms = now;
	}
	fsm->is_busy = is_busy;
}

uint64_t chan_fsm_due(const struct chan_fsm *fsm)
{
	const struct chan_timing *t = fsm->timing;

	switch (fsm->state) {
	case CHAN_SYNC:
		return fsm->since_ms + fsm->retry_ms;
	case CHAN_HELLO:
		return fsm->since_ms + t->hello_ms;
	case CHAN_READY:
		if (fsm->is_pinged) {
			return fsm->since_ms + t->pong_ms;
		}
		return fsm->since_ms + (fsm->is_busy ? t->ping_busy_ms : t->ping_idle_ms);
	case CHAN_DOWN:
	case CHAN_STATE_MAX:
		break;
	}
	return UINT64_MAX;
}

enum chan_action chan_fsm_tick(struct chan_fsm *fsm, uint64_t now, bool is_taken,
	const uint8_t fresh[FRAME_NONCE_BYTES], struct err *err)
{
	if (now < chan_fsm_due(fsm)) {
		return CHAN_WAIT;
	}
	fsm->since_ms = now;
	if (fsm->state == CHAN_SYNC) {
		if (!is_taken) {
			return CHAN_WAIT;
		}
		memcpy(fsm->nonce, fresh, FRAME_NONCE_BYTES);
		fsm->retry_ms = MIN(fsm->retry_ms * 2, CHAN_SYNC_RETRY_MAX_MS);
		put_sync(fsm);
		return CHAN_SEND;
	}
	if (fsm->state == CHAN_HELLO) {
		err_set(err, ERR_TIMEOUT, "the agent doesn't say hello");
		return fail(fsm);
	}
	if (fsm->is_pinged) {
		err_set(err, ERR_TIMEOUT, "the agent doesn't answer");
		return fail(fsm);
	}
	fsm->is_pinged = true;
	put_frame(fsm, FRAME_PING, 0);
	return CHAN_SEND;
}
