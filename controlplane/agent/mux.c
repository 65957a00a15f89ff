#include "agent/mux.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/xalloc.h"

/*
 * Theory of operation. A stream gets its number when its first frame is written, so numbers rise on
 * the wire whatever order frames are scheduled in, and a call that is cancelled before that leaves
 * no trace.
 *
 * Writing. mux_write() makes one frame at a time, and its caller asks only while little is queued
 * ahead, so that the order is decided as late as possible. Two queues: *urgent* streams have
 * something small (a request of one frame, CANCEL, WINDOW) and go first; *bulk* streams (input,
 * requests of many frames) take turns, a frame each. A stream is in at most one queue; place()
 * decides which after everything that changes it.
 *
 * Credit. For each channel that a guest sends on, `window` is what it may still send: DATA lowers
 * it, WINDOW raises it. Consumed bytes are `owed` until they are worth a frame. For input, `credit`
 * is what the guest granted us.
 *
 * A stream that its owner abandoned becomes an orphan: it stays until the guest's END, since the
 * guest still holds it, too, and may still send on it.
 */

struct mux_stream {
	TAILQ_ENTRY(mux_stream) link;  /* mux.streams */
	TAILQ_ENTRY(mux_stream) place; /* *queue */
	struct mux_list *queue;        /* mux.urgent, mux.bulk or NULL */
	void *owner;                   /* NULL: an orphan */
	mux_pull_fn pull;              /* NULL: no input, or no more */
	uint8_t *body;                 /* NULL once it is sent */
	size_t len;
	size_t sent;
	uint32_t id; /* 0: the guest knows nothing of it */
	uint16_t type;
	bool has_input; /* pull() may give something */
	bool at_end;    /* input has ended; CLOSE is due */
	bool is_started;
	bool wants_cancel;
	bool is_cancelled; /* CANCEL is written */
	uint32_t credit;
	struct {
		uint32_t window;
		uint32_t owed;
		bool is_closed;
	} output[FRAME_CHANNEL_MAX]; /* [FRAME_CHANNEL_IN] is unused */
};

/* WINDOW is sent once so much is owed. */
#define WINDOW_STEP_BYTES (PROTO_WINDOW_INITIAL_BYTES / 2)

void mux_init(struct mux *mux)
{
	*mux = (struct mux){0};
	TAILQ_INIT(&mux->streams);
	TAILQ_INIT(&mux->urgent);
	TAILQ_INIT(&mux->bulk);
}

static void unqueue(struct mux_stream *stream)
{
	if (stream->queue) {
		TAILQ_REMOVE(stream->queue, stream, place);
		stream->queue = NULL;
	}
}

static void stream_free(struct mux *mux, struct mux_stream *stream)
{
	unqueue(stream);
	TAILQ_REMOVE(&mux->streams, stream, link);
	mux->count--;
	if (!stream->owner) {
		mux->orphans--;
	}
	if (mux->partial == stream) {
		mux->partial = NULL;
	}
	if (stream->body) {
		mux->waiting -= stream->len;
	}
	free(stream->body);
	free(stream);
}

void mux_reset(struct mux *mux)
{
	while (!TAILQ_EMPTY(&mux->streams)) {
		stream_free(mux, TAILQ_FIRST(&mux->streams));
	}
	ASSERT(mux->count == 0 && mux->orphans == 0 && mux->waiting == 0);
	mux->last_id = 0;
}

static bool owes_window(const struct mux_stream *stream, unsigned channel)
{
	return stream->output[channel].owed >= WINDOW_STEP_BYTES &&
	       !stream->output[channel].is_closed;
}

static bool is_urgent(const struct mux_stream *stream)
{
	if (stream->body) {
		return stream->len <= PROTO_PAYLOAD_MAX_BYTES;
	}
	return (stream->wants_cancel && !stream->is_cancelled) ||
	       owes_window(stream, FRAME_CHANNEL_OUT) || owes_window(stream, FRAME_CHANNEL_ERR);
}

static bool is_bulk(const struct mux_stream *stream)
{
	return stream->body || stream->at_end || (stream->pull && stream->has_input);
}

/* Puts the stream at the end of the queue it belongs to, unless it's there already. */
static void place(struct mux *mux, struct mux_stream *stream)
{
	struct mux_list *queue = is_urgent(stream) ? &mux->urgent
				 : is_bulk(stream) ? &mux->bulk
						   : NULL;

	if (queue == stream->queue) {
		return;
	}
	unqueue(stream);
	stream->queue = queue;
	if (queue) {
		TAILQ_INSERT_TAIL(queue, stream, place);
	}
}

struct mux_stream *mux_open(
	struct mux *mux, const struct mux_request *request, void *owner, struct err *err)
{
	unsigned max = PROTO_STREAMS_MAX - (request->is_reserved ? 0 : MUX_STREAMS_RESERVED);

	ASSERT(owner != NULL && request->len <= PROTO_REQUEST_MAX_BYTES);
	ASSERT(frame_type_is_call(request->type));
	if (mux->count >= max) {
		err_set(err, ERR_RATE,
			"the sandbox has %u commands and transfers under way: wait for one to end",
			mux->count);
		return NULL;
	}
	if (!request->is_reserved && mux->waiting + request->len > MUX_WAITING_MAX_BYTES) {
		err_set(err, ERR_UNAVAILABLE, "the sandbox's agent doesn't take requests");
		return NULL;
	}
	/* Those that are open may all be without a number yet. */
	if (mux->count >= UINT32_MAX - mux->last_id) {
		err_set(err, ERR_UNAVAILABLE, "the agent's session is used up");
		return NULL;
	}
	struct mux_stream *stream = xnew(struct mux_stream);

	stream->owner = owner;
	stream->type = request->type;
	/* An empty body is a frame all the same. */
	stream->body = request->body ? request->body : xcalloc(1, 1);
	stream->len = request->len;
	stream->pull = request->pull;
	stream->has_input = request->pull != NULL;
	stream->credit = PROTO_WINDOW_INITIAL_BYTES;
	stream->output[FRAME_CHANNEL_OUT].window = PROTO_WINDOW_INITIAL_BYTES;
	stream->output[FRAME_CHANNEL_ERR].window = PROTO_WINDOW_INITIAL_BYTES;
	mux->count++;
	mux->waiting += stream->len;
	TAILQ_INSERT_TAIL(&mux->streams, stream, link);
	place(mux, stream);
	return stream;
}

void mux_poke(struct mux *mux, struct mux_stream *stream)
{
	if (stream->pull) {
		stream->has_input = true;
		place(mux, stream);
	}
}

void mux_consume(struct mux *mux, struct mux_stream *stream, unsigned channel, size_t len)
{
	ASSERT(channel == FRAME_CHANNEL_OUT || channel == FRAME_CHANNEL_ERR);
	ASSERT(len <= PROTO_WINDOW_INITIAL_BYTES - stream->output[channel].window -
			      stream->output[channel].owed);
	stream->output[channel].owed += (uint32_t)len;
	place(mux, stream);
}

bool mux_cancel(struct mux *mux, struct mux_stream *stream)
{
	if (stream->id == 0) {
		stream_free(mux, stream);
		return true;
	}
	stream->wants_cancel = true;
	stream->pull = NULL;
	stream->at_end = false;
	place(mux, stream);
	return false;
}

void mux_abandon(struct mux *mux, struct mux_stream *stream)
{
	if (mux_cancel(mux, stream)) {
		return;
	}
	stream->owner = NULL;
	mux->orphans++;
	for (unsigned channel = FRAME_CHANNEL_OUT; channel < FRAME_CHANNEL_MAX; channel++) {
		mux_consume(mux, stream, channel,
			PROTO_WINDOW_INITIAL_BYTES - stream->output[channel].window -
				stream->output[channel].owed);
	}
}

/* ---- input ---- */

static int violation(struct err *err, const char *what)
{
	return err_set(err, ERR_UNAVAILABLE, "the agent broke the protocol: %s", what);
}

static struct mux_stream *find(const struct mux *mux, uint32_t id)
{
	struct mux_stream *stream;

	TAILQ_FOREACH (stream, &mux->streams, link) {
		if (stream->id == id) {
			return stream;
		}
	}
	return NULL;
}

static bool has_output(const struct mux_stream *stream, unsigned channel)
{
	switch (stream->type) {
	case FRAME_EXEC:
	case FRAME_JOB_READ:
		return channel == FRAME_CHANNEL_OUT || channel == FRAME_CHANNEL_ERR;
	case FRAME_FILE_GET:
	case FRAME_FILE_LIST:
	case FRAME_JOB_LIST:
		return channel == FRAME_CHANNEL_OUT;
	default:
		return false;
	}
}

static int take_data(struct mux *mux, struct mux_stream *stream, const struct frame *frame,
	struct mux_event *ret, struct err *err)
{
	unsigned channel = frame->flags & FRAME_CHANNEL_MASK;

	if (!has_output(stream, channel) || stream->output[channel].is_closed) {
		return violation(err, "data on a channel that isn't open");
	}
	if (frame->length > stream->output[channel].window) {
		return violation(err, "data beyond the window");
	}
	stream->output[channel].window -= frame->length;
	if (!stream->owner) {
		mux_consume(mux, stream, channel, frame->length);
		return 0;
	}
	ret->kind = MUX_DATA;
	ret->channel = channel;
	return 0;
}

static int take_close(struct mux *mux, struct mux_stream *stream, const struct frame *frame,
	struct mux_event *ret, struct err *err)
{
	unsigned channel = frame->flags & FRAME_CHANNEL_MASK;

	if (!has_output(stream, channel) || stream->output[channel].is_closed) {
		return violation(err, "the end of a channel that isn't open");
	}
	stream->output[channel].is_closed = true;
	place(mux, stream);
	ret->kind = MUX_CLOSE;
	ret->channel = channel;
	return 0;
}

static int take_window(
	struct mux *mux, struct mux_stream *stream, const struct frame *frame, struct err *err)
{
	uint32_t more = get_le32(frame->payload);

	if (more > PROTO_WINDOW_MAX_BYTES - stream->credit) {
		return violation(err, "more credit than a window may hold");
	}
	stream->credit += more;
	if (stream->pull && more > 0) {
		stream->has_input = true;
		place(mux, stream);
	}
	return 0;
}

static int take_started(struct mux_stream *stream, struct mux_event *ret, struct err *err)
{
	bool may_start = stream->type == FRAME_EXEC || stream->type == FRAME_FILE_GET ||
			 stream->type == FRAME_JOB_READ;

	if (!may_start || stream->is_started) {
		return violation(err, "a call that starts twice or can't");
	}
	stream->is_started = true;
	ret->kind = MUX_STARTED;
	return 0;
}

static int take_gap(
	struct mux *mux, struct mux_stream *stream, struct mux_event *ret, struct err *err)
{
	if (stream->type != FRAME_JOB_READ || !stream->is_started) {
		return violation(err, "a gap in what has none");
	}
	if (stream->output[FRAME_CHANNEL_OUT].window < PROTO_GAP_BYTES) {
		return violation(err, "a gap beyond the window");
	}
	stream->output[FRAME_CHANNEL_OUT].window -= PROTO_GAP_BYTES;
	if (!stream->owner) {
		mux_consume(mux, stream, FRAME_CHANNEL_OUT, PROTO_GAP_BYTES);
		return 0;
	}
	ret->kind = MUX_GAP;
	return 0;
}

static int take_frame(struct mux *mux, struct mux_stream *stream, const struct frame *frame,
	struct mux_event *ret, struct err *err)
{
	switch (frame->type) {
	case FRAME_DATA:
		return take_data(mux, stream, frame, ret, err);
	case FRAME_CLOSE:
		return take_close(mux, stream, frame, ret, err);
	case FRAME_WINDOW:
		return take_window(mux, stream, frame, err);
	case FRAME_STARTED:
		return take_started(stream, ret, err);
	case FRAME_GAP:
		return take_gap(mux, stream, ret, err);
	case FRAME_END:
		ret->kind = MUX_END;
		stream_free(mux, stream);
		return 0;
	default:
		return violation(err, "a frame that isn't the guest's to send");
	}
}

int mux_input(struct mux *mux, const struct frame *frame, struct mux_event *ret, struct err *err)
{
	*ret = (struct mux_event){.data = frame->payload, .len = frame->length};
	if (frame->stream > mux->last_id) {
		return violation(err, "a call that was never made");
	}
	struct mux_stream *stream = find(mux, frame->stream);

	if (!stream) {
		return 0;
	}
	ret->owner = stream->owner;
	if (take_frame(mux, stream, frame, ret, err) < 0) {
		return -1;
	}
	if (!ret->owner) {
		ret->kind = MUX_NOTHING;
	}
	return 0;
}

/* ---- output ---- */

static size_t write_frame(const struct mux_stream *stream, uint8_t *out, uint16_t type,
	uint16_t flags, const void *payload, size_t len)
{
	frame_header(out, type, flags, stream->id, (uint32_t)len);
	if (payload && len > 0) {
		memcpy(out + PROTO_HEADER_BYTES, payload, len);
	}
	return PROTO_HEADER_BYTES + len;
}

/* The next part of the request. */
static size_t write_request(struct mux *mux, struct mux_stream *stream, uint8_t *out)
{
	size_t part = MIN(stream->len - stream->sent, (size_t)PROTO_PAYLOAD_MAX_BYTES);
	bool is_last = stream->sent + part == stream->len;

	if (!is_last && mux->partial && mux->partial != stream) {
		return 0;
	}
	if (stream->id == 0) {
		stream->id = ++mux->last_id;
	}
	mux->partial = is_last ? (mux->partial == stream ? NULL : mux->partial) : stream;
	size_t n = write_frame(stream, out, stream->type, is_last ? 0 : FRAME_MORE,
		stream->body + stream->sent, part);

	stream->sent += part;
	if (is_last) {
		mux->waiting -= stream->len;
		free(steal_ptr(&stream->body));
	}
	return n;
}

static size_t write_window(struct mux_stream *stream, unsigned channel, uint8_t *out)
{
	uint8_t raw[4];

	put_le32(raw, stream->output[channel].owed);
	stream->output[channel].window += stream->output[channel].owed;
	stream->output[channel].owed = 0;
	return write_frame(stream, out, FRAME_WINDOW, (uint16_t)channel, raw, sizeof raw);
}

static size_t write_urgent(struct mux *mux, struct mux_stream *stream, uint8_t *out)
{
	if (stream->body) {
		return write_request(mux, stream, out);
	}
	if (stream->wants_cancel && !stream->is_cancelled) {
		stream->is_cancelled = true;
		return write_frame(stream, out, FRAME_CANCEL, 0, NULL, 0);
	}
	for (unsigned channel = FRAME_CHANNEL_OUT; channel < FRAME_CHANNEL_MAX; channel++) {
		if (owes_window(stream, channel)) {
			return write_window(stream, channel, out);
		}
	}
	return 0;
}

static size_t write_input(struct mux_stream *stream, uint8_t *out)
{
	size_t max = MIN(stream->credit, PROTO_PAYLOAD_MAX_BYTES);

	stream->has_input = false;
	size_t n = stream->pull(stream->owner, out + PROTO_HEADER_BYTES, max, &stream->at_end);

	ASSERT(n <= max);
	if (stream->at_end) {
		stream->pull = NULL;
	}
	if (n == 0) {
		return 0;
	}
	stream->has_input = !stream->at_end;
	stream->credit -= (uint32_t)n;
	return write_frame(stream, out, FRAME_DATA, FRAME_CHANNEL_IN, NULL, n);
}

static size_t write_bulk(struct mux *mux, struct mux_stream *stream, uint8_t *out)
{
	if (stream->body) {
		return write_request(mux, stream, out);
	}
	size_t n = stream->pull && stream->has_input ? write_input(stream, out) : 0;

	if (n == 0 && stream->at_end) {
		stream->at_end = false;
		return write_frame(stream, out, FRAME_CLOSE, FRAME_CHANNEL_IN, NULL, 0);
	}
	return n;
}

bool mux_has_output(const struct mux *mux)
{
	return !TAILQ_EMPTY(&mux->urgent) || !TAILQ_EMPTY(&mux->bulk);
}

size_t mux_write(struct mux *mux, uint8_t *out)
{
	struct mux_stream *stream = TAILQ_FIRST(&mux->urgent);

	if (stream) {
		size_t n = write_urgent(mux, stream, out);

		ASSERT(n > 0);
		place(mux, stream);
		return n;
	}
	struct mux_stream *next;

	for (stream = TAILQ_FIRST(&mux->bulk); stream; stream = next) {
		next = TAILQ_NEXT(stream, place);
		size_t n = write_bulk(mux, stream, out);

		if (n == 0) {
			/* Nothing after all (its source says when), or another's request is under
			 * way. */
			place(mux, stream);
			continue;
		}
		/* To the end of the line. */
		unqueue(stream);
		place(mux, stream);
		return n;
	}
	return 0;
}
