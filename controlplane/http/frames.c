#include "http/frames.h"

#include <stdlib.h>
#include <string.h>
#include <wslay/wslay.h>

#include "base/parse.h"
#include "base/xalloc.h"

/*
 * Theory of operation. wslay takes the frames apart and makes them; it hands out their contents in
 * pieces, with the frame's head beside each. Which frame may follow which, how they become
 * messages, that a client has to mask, and what a message may be is decided here. The length in a
 * head is checked before a byte of the frame is kept.
 */

#define CONTROL_MAX_BYTES 125

struct http_frames {
	struct evbuffer *in;
	struct evbuffer *out;
	size_t message_max_bytes;
	wslay_frame_context_ptr wslay;

	bool is_in_frame;
	uint64_t left;            /* of the frame */
	bool is_in_message;       /* its last frame hasn't come */
	bool is_text;             /* the message */
	bool is_delivered;        /* .message has been handed out */
	struct evbuffer *message; /* what has come of it */
	char control[CONTROL_MAX_BYTES];
	size_t control_len;
};

/* ---- wslay's view of the buffers ---- */

static ssize_t on_recv(uint8_t *bytes, size_t len, int flags, void *arg)
{
	struct http_frames *frames = arg;
	int n = evbuffer_remove(frames->in, bytes, len);

	(void)flags;
	return n > 0 ? n : -1;
}

static ssize_t on_send(const uint8_t *bytes, size_t len, int flags, void *arg)
{
	struct http_frames *frames = arg;

	(void)flags;
	return evbuffer_add(frames->out, bytes, len) == 0 ? (ssize_t)len : -1;
}

struct http_frames *http_frames_new(
	struct evbuffer *in, struct evbuffer *out, size_t message_max_bytes)
{
	const struct wslay_frame_callbacks callbacks = {
		.send_callback = on_send, .recv_callback = on_recv};
	struct http_frames *frames = xnew(struct http_frames);
	int rc;

	frames->in = in;
	frames->out = out;
	frames->message_max_bytes = message_max_bytes;
	frames->message = evbuffer_new();
	ASSERT(frames->message);
	rc = wslay_frame_context_init(&frames->wslay, &callbacks, frames);
	ASSERT(rc == 0);
	return frames;
}

void http_frames_free(struct http_frames *frames)
{
	if (frames) {
		wslay_frame_context_free(frames->wslay);
		evbuffer_free(frames->message);
		free(frames);
	}
}

/* ---- sending ---- */

static void send_frame(struct http_frames *frames, uint8_t opcode, const void *data, size_t len)
{
	struct wslay_frame_iocb frame = {
		.fin = 1, .opcode = opcode, .payload_length = len, .data = data};

	do {
		frame.data_length = len;
		ssize_t n = wslay_frame_send(frames->wslay, &frame);

		ASSERT(n >= 0 && (size_t)n <= len);
		frame.data += n;
		len -= (size_t)n;
	} while (len > 0);
}

void http_frames_send(struct http_frames *frames, bool is_text, const void *data, size_t len)
{
	send_frame(frames, is_text ? WSLAY_TEXT_FRAME : WSLAY_BINARY_FRAME, data, len);
}

void http_frames_ping(struct http_frames *frames)
{
	send_frame(frames, WSLAY_PING, "", 0);
}

/* As much of @text as fits, in whole characters. */
static size_t cut(const char *text, size_t max)
{
	size_t len = strlen(text);

	if (len <= max) {
		return len;
	}
	while (max > 0 && ((unsigned char)text[max] & 0xc0) == 0x80) {
		max--;
	}
	return max;
}

void http_frames_close(struct http_frames *frames, unsigned code, const char *reason)
{
	char bytes[CONTROL_MAX_BYTES] = {(char)(code >> 8), (char)code};
	size_t len = code ? 2 : 0;

	if (code && reason) {
		size_t n = cut(reason, sizeof bytes - len);

		memcpy(bytes + len, reason, n);
		len += n;
	}
	send_frame(frames, WSLAY_CONNECTION_CLOSE, bytes, len);
}

/* ---- receiving ---- */

static enum http_frames_event broken(
	struct http_frames_message *ret, enum wslay_status_code code, const char *why)
{
	*ret = (struct http_frames_message){.code = code, .text = why, .len = strlen(why)};
	return HTTP_FRAMES_BROKEN;
}

static enum http_frames_event begin_data(struct http_frames *frames,
	const struct wslay_frame_iocb *frame, struct http_frames_message *ret)
{
	bool goes_on = frame->opcode == WSLAY_CONTINUATION_FRAME;

	if (goes_on != frames->is_in_message) {
		return broken(ret, WSLAY_CODE_PROTOCOL_ERROR,
			goes_on ? "a message goes on that hasn't begun"
				: "a message begins within another");
	}
	if (frame->payload_length >
		frames->message_max_bytes - evbuffer_get_length(frames->message)) {
		return broken(ret, WSLAY_CODE_MESSAGE_TOO_BIG, "the message is too long");
	}
	if (!goes_on) {
		frames->is_text = frame->opcode == WSLAY_TEXT_FRAME;
		frames->is_in_message = true;
	}
	return HTTP_FRAMES_MORE;
}

/* MORE: the frame may go on. */
static enum http_frames_event begin_frame(struct http_frames *frames,
	const struct wslay_frame_iocb *frame, struct http_frames_message *ret)
{
	frames->is_in_frame = true;
	frames->left = frame->payload_length;
	if (frame->rsv != 0) {
		return broken(ret, WSLAY_CODE_PROTOCOL_ERROR, "a frame has a reserved bit");
	}
	if (!frame->mask) {
		return broken(ret, WSLAY_CODE_PROTOCOL_ERROR, "a frame isn't masked");
	}
	switch (frame->opcode) {
	case WSLAY_CONTINUATION_FRAME:
	case WSLAY_TEXT_FRAME:
	case WSLAY_BINARY_FRAME:
		return begin_data(frames, frame, ret);
	case WSLAY_CONNECTION_CLOSE:
	case WSLAY_PING:
	case WSLAY_PONG:
		frames->control_len = 0;
		return HTTP_FRAMES_MORE;
	default:
		return broken(ret, WSLAY_CODE_PROTOCOL_ERROR, "a frame is of no known kind");
	}
}

static bool is_close_code(unsigned code)
{
	return (code >= 1000 && code <= 1003) || (code >= 1007 && code <= 1011) ||
	       (code >= 3000 && code <= 4999);
}

static enum http_frames_event end_close(
	const struct http_frames *frames, struct http_frames_message *ret)
{
	const unsigned char *bytes = (const unsigned char *)frames->control;
	unsigned code = frames->control_len >= 2 ? (unsigned)bytes[0] << 8 | bytes[1] : 0;

	if (frames->control_len == 1 || (code && !is_close_code(code)) ||
		(frames->control_len >= 2 && !code)) {
		return broken(ret, WSLAY_CODE_PROTOCOL_ERROR, "the closing code is none");
	}
	if (code && !utf8_is_valid(frames->control + 2, frames->control_len - 2)) {
		return broken(ret, WSLAY_CODE_INVALID_FRAME_PAYLOAD_DATA,
			"the reason for closing isn't UTF-8");
	}
	*ret = (struct http_frames_message){.code = code};
	return HTTP_FRAMES_CLOSED;
}

static enum http_frames_event end_message(
	struct http_frames *frames, struct http_frames_message *ret)
{
	size_t len = evbuffer_get_length(frames->message);
	const char *text = len > 0 ? (const char *)evbuffer_pullup(frames->message, -1) : "";

	frames->is_in_message = false;
	if (frames->is_text && !utf8_is_valid(text, len)) {
		return broken(ret, WSLAY_CODE_INVALID_FRAME_PAYLOAD_DATA, "the text isn't UTF-8");
	}
	frames->is_delivered = true;
	*ret = (struct http_frames_message){.is_text = frames->is_text, .text = text, .len = len};
	return HTTP_FRAMES_MESSAGE;
}

static enum http_frames_event end_frame(struct http_frames *frames,
	const struct wslay_frame_iocb *frame, size_t out_max, struct http_frames_message *ret)
{
	frames->is_in_frame = false;
	switch (frame->opcode) {
	case WSLAY_CONNECTION_CLOSE:
		return end_close(frames, ret);
	case WSLAY_PING:
		if (evbuffer_get_length(frames->out) <= out_max) {
			send_frame(frames, WSLAY_PONG, frames->control, frames->control_len);
		}
		return HTTP_FRAMES_MORE;
	case WSLAY_PONG:
		return HTTP_FRAMES_MORE;
	default:
		return frame->fin ? end_message(frames, ret) : HTTP_FRAMES_MORE;
	}
}

static void keep(struct http_frames *frames, const struct wslay_frame_iocb *frame)
{
	if (wslay_is_ctrl_frame(frame->opcode)) {
		ASSERT(frame->data_length <= sizeof frames->control - frames->control_len);
		memcpy(frames->control + frames->control_len, frame->data, frame->data_length);
		frames->control_len += frame->data_length;
	} else {
		evbuffer_add(frames->message, frame->data, frame->data_length);
	}
	frames->left -= frame->data_length;
}

static enum http_frames_event take_piece(struct http_frames *frames,
	const struct wslay_frame_iocb *frame, size_t out_max, struct http_frames_message *ret)
{
	if (!frames->is_in_frame) {
		enum http_frames_event event = begin_frame(frames, frame, ret);

		if (event != HTTP_FRAMES_MORE) {
			return event;
		}
	}
	if (frame->data_length > 0) {
		keep(frames, frame);
	}
	return frames->left == 0 ? end_frame(frames, frame, out_max, ret) : HTTP_FRAMES_MORE;
}

enum http_frames_event http_frames_next(
	struct http_frames *frames, size_t out_max, struct http_frames_message *ret)
{
	enum http_frames_event event = HTTP_FRAMES_MORE;

	if (frames->is_delivered) {
		frames->is_delivered = false;
		evbuffer_drain(frames->message, evbuffer_get_length(frames->message));
	}
	while (event == HTTP_FRAMES_MORE) {
		struct wslay_frame_iocb frame = {0};
		ssize_t n = wslay_frame_recv(frames->wslay, &frame);

		if (n == WSLAY_ERR_WANT_READ) {
			break;
		}
		if (n < 0) {
			return broken(ret, WSLAY_CODE_PROTOCOL_ERROR, "a frame is malformed");
		}
		event = take_piece(frames, &frame, out_max, ret);
	}
	return event;
}
