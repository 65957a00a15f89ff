#include "src/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/msg.h"
#include "src/configure.h"
#include "src/facts.h"
#include "src/log.h"
#include "src/port.h"
#include "src/stream.h"

/* How long the calls of a session whose host hung up keep running. */
#define LOST_SESSION_MS 60000u

enum session_state { SESSION_HUNTING, SESSION_SYNCED, SESSION_READY };

/* A request that came in part. */
struct partial {
	uint32_t id; /* 0: free */
	uint16_t type;
	uint8_t *body;
	size_t len;
};

static enum session_state state = SESSION_HUNTING;
static uint32_t last_id;
static uint64_t abandon_at_ms; /* 0: no calls of a lost session */
static bool has_part_of_frame; /* what was received last ends within a frame */
static struct partial partials[PROTO_PARTIAL_MAX];

static const struct call_ops *const calls[] = {
	&exec_ops,
	&file_put_ops,
	&file_get_ops,
	&file_list_ops,
	&configure_ops,
	&shutdown_ops,
	&signal_ops,
	&job_start_ops,
	&job_wait_ops,
	&job_read_ops,
	&job_input_ops,
	&job_resize_ops,
	&job_list_ops,
	&job_forget_ops,
};

static const struct call_ops *ops_of(uint16_t type)
{
	for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
		if (calls[i]->type == type) {
			return calls[i];
		}
	}
	return NULL;
}

/* ---- begin and end of a session ------------------------------------------------------------- */

static void drop_partial(struct partial *p)
{
	free(p->body);
	*p = (struct partial){0};
}

static void drop_partials(void)
{
	for (size_t i = 0; i < ARRAY_SIZE(partials); i++) {
		drop_partial(&partials[i]);
	}
}

static void lose_session(void)
{
	state = SESSION_HUNTING;
	port_set_muted(true);
	drop_partials();
	if (stream_count() > 0 && abandon_at_ms == 0) {
		abandon_at_ms = now_ms() + LOST_SESSION_MS;
	}
}

void session_host_gone(void)
{
	lose_session();
}

static void put_abort(uint32_t status, const char *text)
{
	uint8_t body[MSG_FIELD_HEADER_BYTES * 2 + 4 + PROTO_TEXT_MAX_BYTES];
	struct msg_writer w = {.buf = body, .size = sizeof body};

	msg_put_u32(&w, MSG_STATUS, status);
	msg_put_text(&w, MSG_TEXT, text);
	port_put(FRAME_ABORT, 0, 0, body, w.len);
}

void session_give_up(const char *why)
{
	if (state == SESSION_HUNTING) {
		return;
	}
	log_warn("session given up: %s", why);
	put_abort(STATUS_INVALID, why);
	lose_session();
}

static void put_hello(void)
{
	uint8_t body[1024];
	struct msg_writer w = {.buf = body, .size = sizeof body};

	msg_put_u32(&w, MSG_VERSION, PROTO_VERSION);
	msg_put_u64(&w, MSG_FEATURES, facts.features);
	msg_put_text(&w, MSG_SOFTWARE, "paddock-agent/" PADDOCK_VERSION);
	msg_put_text(&w, MSG_BOOT_ID, facts_boot_id());
	if (facts.image[0] != '\0') {
		msg_put_text(&w, MSG_IMAGE, facts.image);
	}
	port_put(FRAME_HELLO, 0, 0, body, w.len);
}

static void on_sync(const struct frame *f)
{
	stream_abandon_all();
	drop_partials();
	abandon_at_ms = 0;
	last_id = 0;
	port_drop_unsent();
	port_set_muted(false);
	port_put(FRAME_SYNC_ACK, 0, 0, f->payload, FRAME_SYNC_BYTES);
	put_hello();
	state = SESSION_SYNCED;
}

static void on_hello(const struct frame *f)
{
	struct msg_reader r = {.buf = f->payload, .len = f->length};
	uint32_t version = 0;

	for (struct msg_field field; msg_next(&r, &field);) {
		if (field.tag == MSG_VERSION) {
			version = msg_u32(&r, &field);
		}
	}
	if (r.bad || state != SESSION_SYNCED) {
		session_give_up("malformed or unexpected HELLO");
	} else if (version < PROTO_VERSION_MIN) {
		session_give_up("protocol version too old");
	} else {
		state = SESSION_READY;
	}
}

/* ---- calls ---------------------------------------------------------------------------------- */

static void start_call(uint32_t id, uint16_t type, const uint8_t *body, size_t len)
{
	const struct call_ops *ops = ops_of(type);
	struct stream *s = stream_open(id, ops);

	if (s == NULL) {
		stream_refuse(id, STATUS_BUSY, "too many calls at once");
		return;
	}
	ops->start(s, body, len);
}

static struct partial *find_partial(uint32_t id)
{
	for (size_t i = 0; i < ARRAY_SIZE(partials); i++) {
		if (partials[i].id == id) {
			return &partials[i];
		}
	}
	return NULL;
}

static void append_part(struct partial *p, const struct frame *f)
{
	if (p->type != f->type || f->length > PROTO_REQUEST_MAX_BYTES - p->len) {
		session_give_up("request too large or of changing type");
		return;
	}
	uint8_t *body = realloc(p->body, p->len + f->length + 1);

	if (body == NULL) {
		session_give_up("out of memory");
		return;
	}
	memcpy(body + p->len, f->payload, f->length);
	p->body = body;
	p->len += f->length;
	if ((f->flags & FRAME_MORE) == 0) {
		struct partial whole = *p;

		*p = (struct partial){0};
		start_call(whole.id, whole.type, whole.body, whole.len);
		free(whole.body);
	}
}

static void on_call(const struct frame *f)
{
	struct partial *p = find_partial(f->stream);

	if (p == NULL) {
		if (f->stream - 1 != last_id) {
			session_give_up("stream numbers must rise by one");
			return;
		}
		last_id = f->stream;
		if ((f->flags & FRAME_MORE) == 0) {
			start_call(f->stream, f->type, f->payload, f->length);
			return;
		}
		p = find_partial(0);
		if (p == NULL) {
			session_give_up("too many requests in part");
			return;
		}
		*p = (struct partial){.id = f->stream, .type = f->type};
	}
	append_part(p, f);
}

static void on_data(struct stream *s, const struct frame *f)
{
	if (s->is_in_closed || f->length > s->in_credit) {
		session_give_up("DATA after CLOSE or beyond its window");
		return;
	}
	s->in_credit -= f->length;
	if (s->ops->data != NULL) {
		s->ops->data(s, f->payload, f->length);
	} else {
		stream_in_done(s, f->length);
	}
}

static void on_stream_frame(const struct frame *f)
{
	struct partial *p = find_partial(f->stream);
	struct stream *s = stream_find(f->stream);

	if (f->stream > last_id || (p != NULL && f->type != FRAME_CANCEL)) {
		session_give_up("frame for a stream that isn't open");
	} else if (p != NULL) {
		drop_partial(p);
		stream_refuse(f->stream, STATUS_CANCELLED, "cancelled before it was complete");
	} else if (s == NULL) {
		/* It has ended; this was on its way. */
	} else if (f->type == FRAME_DATA) {
		on_data(s, f);
	} else if (f->type == FRAME_CLOSE) {
		bool is_first = !s->is_in_closed;

		s->is_in_closed = true;
		if (is_first && s->ops->in_closed != NULL) {
			s->ops->in_closed(s);
		}
	} else if (f->type == FRAME_WINDOW) {
		if (!stream_add_credit(s, f->flags & FRAME_CHANNEL_MASK, get_le32(f->payload))) {
			session_give_up("window beyond its maximum");
		}
	} else if (s->ops->cancel != NULL) {
		s->ops->cancel(s);
	}
}

static void on_frame(const struct frame *f)
{
	if (f->type == FRAME_SYNC) {
		on_sync(f);
	} else if (f->type == FRAME_HELLO) {
		on_hello(f);
	} else if (f->type == FRAME_ABORT) {
		lose_session();
	} else if (f->type == FRAME_PING) {
		port_put(FRAME_PONG, 0, 0, f->payload, f->length);
	} else if (state != SESSION_READY) {
		session_give_up("call before HELLO");
	} else if (frame_type_is_call(f->type)) {
		on_call(f);
	} else {
		on_stream_frame(f);
	}
}

/* ---- bytes ---------------------------------------------------------------------------------- */

/* Consumes all frames in @buf; returns the bytes used. */
static size_t take_frames(const uint8_t *buf, size_t len)
{
	size_t used = 0;

	has_part_of_frame = false;
	while (port_has_reserve()) {
		struct frame f;
		size_t n = 0;

		if (state == SESSION_HUNTING) {
			enum frame_result found = frame_hunt(
				FRAME_SIDE_HOST, buf + used, len - used, &n);

			used += n;
			if (found != FRAME_OK) {
				break;
			}
		}
		enum frame_result result = frame_parse(
			FRAME_SIDE_HOST, buf + used, len - used, &f, &n);

		if (result == FRAME_INCOMPLETE) {
			has_part_of_frame = used < len;
			break;
		}
		if (result == FRAME_BAD) {
			session_give_up("malformed frame");
			continue; /* hunts in the rest */
		}
		used += n;
		on_frame(&f);
	}
	return used;
}

void session_step(void)
{
	/* Twice the buffer a turn, then others get theirs. */
	for (int i = 0; i < 2; i++) {
		bool has_new = port_fill();
		size_t len;
		const uint8_t *buf = port_received(&len);

		if (len == 0) {
			return;
		}
		size_t used = take_frames(buf, len);

		if (used > 0) {
			port_consume(used);
		} else if (!has_new) {
			return;
		}
	}
}

void session_tick(void)
{
	uint64_t now = now_ms();

	if (has_part_of_frame && state != SESSION_HUNTING) {
		uint64_t give_up_at = port_last_byte_ms() + PROTO_PARTIAL_FRAME_MS;

		if (now >= give_up_at) {
			session_give_up("unfinished frame");
			loop_kick();
		} else {
			loop_note_deadline(give_up_at);
		}
	}
	if (port_take_overflow()) {
		session_give_up("the host doesn't read");
	}
	if (abandon_at_ms != 0) {
		if (now >= abandon_at_ms) {
			abandon_at_ms = 0;
			stream_abandon_all();
		} else {
			loop_note_deadline(abandon_at_ms);
		}
	}
}
