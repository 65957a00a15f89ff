#include "src/stream.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "src/port.h"

/* Credit goes back in pieces of this size: few frames, and the window never runs dry. */
#define CREDIT_BATCH_BYTES (PROTO_WINDOW_INITIAL_BYTES / 4)

static struct stream streams[PROTO_STREAMS_MAX];
static unsigned open_count;

/* ---- slots ---------------------------------------------------------------------------------- */

struct stream *stream_open(uint32_t id, const struct call_ops *ops)
{
	for (unsigned i = 0; i < PROTO_STREAMS_MAX; i++) {
		struct stream *s = &streams[i];

		if (s->id != 0) {
			continue;
		}
		uint32_t generation = s->generation + 1;

		memset(s, 0, sizeof *s);
		s->id = id;
		s->slot = i;
		s->generation = generation;
		s->ops = ops;
		s->in_credit = PROTO_WINDOW_INITIAL_BYTES;
		s->out_credit[FRAME_CHANNEL_OUT] = PROTO_WINDOW_INITIAL_BYTES;
		s->out_credit[FRAME_CHANNEL_ERR] = PROTO_WINDOW_INITIAL_BYTES;
		open_count++;
		return s;
	}
	return NULL;
}

static void release(struct stream *s)
{
	s->id = 0;
	open_count--;
}

struct stream *stream_find(uint32_t id)
{
	for (unsigned i = 0; i < PROTO_STREAMS_MAX; i++) {
		if (streams[i].id == id) {
			return &streams[i];
		}
	}
	return NULL;
}

struct stream *stream_of_event(struct loop_ref ref)
{
	struct stream *s = ref.slot < PROTO_STREAMS_MAX ? &streams[ref.slot] : NULL;

	return s != NULL && s->id != 0 && s->generation == ref.generation ? s : NULL;
}

struct loop_ref stream_ref(const struct stream *s, enum loop_kind kind)
{
	return (struct loop_ref){.kind = kind, .slot = s->slot, .generation = s->generation};
}

unsigned stream_count(void)
{
	return open_count;
}

/* ---- windows -------------------------------------------------------------------------------- */

void stream_in_done(struct stream *s, size_t len)
{
	s->in_owed += (uint32_t)len;
	/* id 0: its END has been queued, and what was left is being dropped. */
	if (s->id == 0 || s->in_owed < CREDIT_BATCH_BYTES || s->is_in_closed) {
		return;
	}
	uint8_t raw[4];

	put_le32(raw, s->in_owed);
	port_put(FRAME_WINDOW, FRAME_CHANNEL_IN, s->id, raw, sizeof raw);
	s->in_credit += s->in_owed;
	s->in_owed = 0;
}

bool stream_add_credit(struct stream *s, enum frame_channel channel, uint32_t credit)
{
	if (credit > PROTO_WINDOW_MAX_BYTES - s->out_credit[channel]) {
		return false;
	}
	s->out_credit[channel] += credit;
	return true;
}

ssize_t stream_pump_out(
	struct stream *s, enum frame_channel channel, int fd, size_t limit, bool *ret_blocked)
{
	size_t size;
	uint8_t *payload = port_room_for_data(&size);

	size = MIN(MIN(size, limit), s->out_credit[channel]);
	*ret_blocked = size == 0;
	if (size == 0) {
		errno = EAGAIN;
		return -1;
	}
	ssize_t n;

	do {
		n = read(fd, payload, size);
	} while (n < 0 && errno == EINTR);
	if (n > 0) {
		port_commit_data(s->id, channel, (size_t)n);
		s->out_credit[channel] -= (uint32_t)n;
	}
	return n;
}

size_t stream_put_data(
	struct stream *s, enum frame_channel channel, const uint8_t *data, size_t len)
{
	size_t size;
	uint8_t *payload = port_room_for_data(&size);

	size = MIN(MIN(size, len), s->out_credit[channel]);
	if (size > 0) {
		memcpy(payload, data, size);
		port_commit_data(s->id, channel, size);
		s->out_credit[channel] -= (uint32_t)size;
	}
	return size;
}

bool stream_has_room(struct stream *s, enum frame_channel channel, size_t len)
{
	size_t size;

	port_room_for_data(&size);
	return MIN(size, s->out_credit[channel]) >= len;
}

void stream_close_channel(struct stream *s, enum frame_channel channel)
{
	port_put(FRAME_CLOSE, (uint16_t)channel, s->id, NULL, 0);
}

/* ---- results -------------------------------------------------------------------------------- */

static void put_end(uint32_t id, const struct stream_result *r)
{
	uint8_t body[512];
	struct msg_writer w = {.buf = body, .size = sizeof body};

	msg_put_u32(&w, MSG_STATUS, r->status);
	if (r->sys != 0) {
		msg_put_u32(&w, MSG_ERRNO, (uint32_t)r->sys);
	}
	if (r->text[0] != '\0') {
		msg_put_text(&w, MSG_TEXT, r->text);
	}
	if (r->is_exec) {
		msg_put_u32(&w, MSG_EXIT_CODE, r->exit_code);
		if (r->signal != 0) {
			msg_put_u32(&w, MSG_SIGNAL, r->signal);
		}
	}
	if (r->flags != 0) {
		msg_put_u32(&w, MSG_END_FLAGS, r->flags);
	}
	if (r->has_counts) {
		msg_put_u64(&w, MSG_OUT_BYTES, r->out_bytes);
		msg_put_u64(&w, MSG_ERR_BYTES, r->err_bytes);
		msg_put_u64(&w, MSG_DURATION_US, r->duration_us);
	}
	if (r->out_tail > 0) {
		msg_put_u64(&w, MSG_OUT_TAIL, r->out_tail);
	}
	if (r->err_tail > 0) {
		msg_put_u64(&w, MSG_ERR_TAIL, r->err_tail);
	}
	if (r->has_bytes) {
		msg_put_u64(&w, MSG_BYTES, r->bytes);
	}
	if (r->has_offset) {
		msg_put_u64(&w, MSG_OFFSET, r->offset);
	}
	if (r->realtime_ns != 0) {
		msg_put_u64(&w, MSG_REALTIME_NS, r->realtime_ns);
	}
	port_put(FRAME_END, 0, id, body, w.len);
}

void stream_end(struct stream *s, const struct stream_result *result)
{
	put_end(s->id, result);
	release(s);
}

void stream_fail(struct stream *s, uint32_t status, int sys, const char *fmt, ...)
{
	struct stream_result r = {.status = status, .sys = sys};
	va_list args;

	va_start(args, fmt);
	vsnprintf(r.text, sizeof r.text, fmt, args);
	va_end(args);
	stream_end(s, &r);
}

void stream_refuse(uint32_t id, uint32_t status, const char *text)
{
	struct stream_result r = {.status = status};

	snprintf(r.text, sizeof r.text, "%s", text);
	put_end(id, &r);
}

uint32_t stream_status_of(int sys)
{
	static const struct {
		int sys;
		enum msg_status status;
	} map[] = {
		{0, STATUS_OK},
		{EINVAL, STATUS_INVALID},
		{E2BIG, STATUS_INVALID},
		{ENOENT, STATUS_NOT_FOUND},
		{EACCES, STATUS_PERMISSION},
		{EPERM, STATUS_PERMISSION},
		{EEXIST, STATUS_EXISTS},
		{EISDIR, STATUS_IS_DIRECTORY},
		{ENOTDIR, STATUS_NOT_DIRECTORY},
		{ENOSPC, STATUS_NO_SPACE},
		{EDQUOT, STATUS_NO_SPACE},
		{EFBIG, STATUS_NO_SPACE},
		{EROFS, STATUS_READ_ONLY},
		{ENAMETOOLONG, STATUS_NAME_TOO_LONG},
		{ELOOP, STATUS_LOOP},
		{ENXIO, STATUS_NOT_REGULAR},
		{ENODEV, STATUS_NOT_REGULAR},
		{EAGAIN, STATUS_BUSY},
		{ENOMEM, STATUS_BUSY},
		{EMFILE, STATUS_BUSY},
		{ENFILE, STATUS_BUSY},
		{EBUSY, STATUS_BUSY},
		{ETXTBSY, STATUS_BUSY},
		{EOPNOTSUPP, STATUS_UNSUPPORTED},
		{ENOSYS, STATUS_UNSUPPORTED},
	};

	for (size_t i = 0; i < ARRAY_SIZE(map); i++) {
		if (map[i].sys == sys) {
			return map[i].status;
		}
	}
	return STATUS_IO;
}

/* ---- turns ---------------------------------------------------------------------------------- */

bool stream_child_exited(pid_t pid, int wait_status)
{
	for (unsigned i = 0; i < PROTO_STREAMS_MAX; i++) {
		struct stream *s = &streams[i];

		if (s->id != 0 && s->pid == pid) {
			s->pid = 0;
			s->ops->exited(s, wait_status);
			return true;
		}
	}
	return false;
}

void stream_run_all(void)
{
	if (open_count == 0) {
		return;
	}
	uint64_t now = now_ms();

	for (unsigned i = 0; i < PROTO_STREAMS_MAX; i++) {
		struct stream *s = &streams[i];

		if (s->id != 0 && s->deadline_ms != 0 && s->deadline_ms <= now) {
			s->deadline_ms = 0;
			s->ops->timer(s);
		}
		if (s->id != 0 && s->ops->pump != NULL) {
			s->ops->pump(s);
		}
		if (s->id != 0) {
			loop_note_deadline(s->deadline_ms);
		}
	}
}

void stream_abandon_all(void)
{
	for (unsigned i = 0; i < PROTO_STREAMS_MAX; i++) {
		struct stream *s = &streams[i];

		if (s->id != 0) {
			if (s->ops->abandon != NULL) {
				s->ops->abandon(s);
			}
			release(s);
		}
	}
}
