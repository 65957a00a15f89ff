/*
 * Theory of operation
 *
 *   start ─► helper forked ──OPENED(fd)──► bytes move ──► PUT: commit ──DONE──► END
 *                  │                            └──► GET of a plain file: end of file ──► END
 *                  └──DONE(errno)──► END        └──► GET through a pipe, LIST: end, DONE ──► END
 *
 * Until OPENED and after the commit the helper has FILE_STEP_MS; a path that blocks for longer is
 * an error, and the helper is killed. While bytes move the host sets the pace, but wherever it is
 * the helper that we wait for, it has the same time for each step.
 *
 * Giving up a PUT means closing the control socket: the helper then removes its temporary file.
 */

#include "src/file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "src/helper.h"
#include "src/options.h"
#include "src/port.h"
#include "src/stream.h"

#define FILE_STEP_MS   30000u
#define READS_PER_TURN 4
#define LIST_LIMIT     100000u /* where the request names none */

/* ---- request -------------------------------------------------------------------------------- */

/* Returns what is wrong with the path, or NULL. */
static const char *take_path(struct helper_job *job, const struct msg_field *f)
{
	size_t len = 0;

	if (f->len == 0) {
		return "path is empty";
	}
	if (f->len > PROTO_PATH_MAX_BYTES) {
		return "path is too long";
	}
	if (memchr(f->data, 0, f->len) != NULL) {
		return "path holds a NUL";
	}
	if (f->data[0] != '/') {
		len = (size_t)snprintf(job->path, sizeof job->path, "%.4000s/", options.workspace);
	}
	memcpy(job->path + len, f->data, f->len);
	job->path[len + f->len] = '\0';
	return NULL;
}

/* Returns what is wrong with a field, or NULL; *ret_known tells whether it is one of ours. */
static const char *take_field(struct file_call *c, struct helper_job *job, struct msg_reader *r,
	const struct msg_field *f, bool *ret_known)
{
	*ret_known = true;
	switch (f->tag & ~MSG_CRITICAL) {
	case MSG_PATH:
		return take_path(job, f);
	case MSG_MODE:
		job->has_mode = true;
		job->mode = msg_u32(r, f);
		return job->mode <= 07777 ? NULL : "mode has more than the permission bits";
	case MSG_FILE_FLAGS:
		job->flags = msg_u32(r, f);
		return NULL;
	case MSG_OFFSET:
		job->has_offset = true;
		job->offset = msg_u64(r, f);
		return job->offset <= INT64_MAX ? NULL : "offset is too large";
	case MSG_LENGTH:
		job->length = msg_u64(r, f);
		return NULL;
	case MSG_SIZE:
		c->has_size = true;
		c->size = msg_u64(r, f);
		return NULL;
	case MSG_LIMIT:
		job->limit = msg_u32(r, f);
		return NULL;
	default:
		*ret_known = false;
		return NULL;
	}
}

static uint32_t allowed_flags(enum helper_kind kind)
{
	return kind == HELPER_PUT    ? MSG_FILE_PARENTS | MSG_FILE_APPEND
	       : kind == HELPER_LIST ? MSG_FILE_RECURSIVE
				     : 0;
}

/* False when the stream has been ended with the reason. */
static bool parse(struct stream *s, struct helper_job *job, const uint8_t *body, size_t len)
{
	struct msg_reader r = {.buf = body, .len = len};

	for (struct msg_field f; msg_next(&r, &f);) {
		bool is_known;
		const char *wrong = take_field(&s->file, job, &r, &f, &is_known);

		if (wrong != NULL) {
			stream_fail(s, STATUS_INVALID, 0, "%s", wrong);
			return false;
		}
		if (!is_known && (f.tag & MSG_CRITICAL) != 0) {
			stream_fail(s, STATUS_UNSUPPORTED, 0, "unsupported field");
			return false;
		}
	}
	if (r.bad) {
		stream_fail(s, STATUS_INVALID, 0, "malformed request");
	} else if (job->path[0] == '\0') {
		stream_fail(s, STATUS_INVALID, 0, "path is missing");
	} else if ((job->flags & ~allowed_flags(job->kind)) != 0) {
		stream_fail(s, STATUS_UNSUPPORTED, 0, "unsupported file flag");
	} else if (job->has_offset && (job->flags & MSG_FILE_APPEND) != 0) {
		stream_fail(s, STATUS_INVALID, 0, "either append or offset");
	} else {
		return true;
	}
	return false;
}

/* ---- begin and end -------------------------------------------------------------------------- */

/* @is_stuck: the helper doesn't listen. Only that of a PUT has something to undo. */
static void let_go(struct stream *s, bool is_stuck)
{
	struct file_call *c = &s->file;

	if (s->pid > 0 && (is_stuck || s->ops->type != FRAME_FILE_PUT)) {
		kill(s->pid, SIGKILL);
	}
	feed_stop(s, &c->in);
	util_close(&c->out_fd);
	util_close(&c->ctl);
}

static void fail(struct stream *s, uint32_t status, int sys, const char *text)
{
	let_go(s, !s->file.is_opened);
	stream_fail(s, status, sys, "%s", text);
}

static void fail_sys(struct stream *s, int sys)
{
	fail(s, stream_status_of(sys), sys, strerror(sys));
}

static void succeed(struct stream *s)
{
	struct file_call *c = &s->file;
	struct stream_result r = {
		.status = STATUS_OK,
		.flags = c->done_flags,
		.has_bytes = true,
		.bytes = s->ops->type == FRAME_FILE_PUT ? c->in.bytes : c->bytes,
	};

	stream_end(s, &r);
	port_flush();
	let_go(s, false);
}

static void start(struct stream *s, enum helper_kind kind, const uint8_t *body, size_t len)
{
	static struct helper_job job; /* too large for a stack; one at a time */
	struct file_call *c = &s->file;

	memset(&job, 0, sizeof job);
	job.kind = kind;
	job.length = UINT64_MAX;
	job.limit = LIST_LIMIT;
	c->ctl = c->out_fd = -1;
	c->in = FEED_INIT;
	if (!parse(s, &job, body, len)) {
		return;
	}
	c->left = job.length;
	c->offset = job.offset;
	c->in.state = kind == HELPER_PUT ? FEED_WAITING : FEED_STOPPED;
	c->ctl = helper_start(&job, &s->pid);
	if (c->ctl < 0) {
		int sys = errno;

		s->pid = 0;
		fail(s, stream_status_of(sys), sys, "can't start a file helper");
		return;
	}
	loop_watch(c->ctl, EPOLLIN, stream_ref(s, LOOP_STREAM_HELPER));
	s->deadline_ms = now_ms() + FILE_STEP_MS;
}

static void put_start(struct stream *s, const uint8_t *body, size_t len)
{
	start(s, HELPER_PUT, body, len);
}

static void get_start(struct stream *s, const uint8_t *body, size_t len)
{
	start(s, HELPER_GET, body, len);
}

static void list_start(struct stream *s, const uint8_t *body, size_t len)
{
	start(s, HELPER_LIST, body, len);
}

/* ---- the helper's words --------------------------------------------------------------------- */

static void put_started(struct stream *s, const struct helper_message *m)
{
	uint8_t body[64];
	struct msg_writer w = {.buf = body, .size = sizeof body};

	msg_put_u64(&w, MSG_SIZE, m->size);
	msg_put_u32(&w, MSG_MODE, m->mode & 07777);
	msg_put_u64(&w, MSG_MTIME_NS, m->mtime_ns);
	port_put(FRAME_STARTED, 0, s->id, body, w.len);
}

static void on_opened(struct stream *s, const struct helper_message *m, int fd)
{
	struct file_call *c = &s->file;

	c->is_opened = true;
	s->deadline_ms = 0;
	if (m->is_pollable) {
		fcntl(fd, F_SETFL, O_NONBLOCK);
	}
	if (s->ops->type == FRAME_FILE_PUT) {
		feed_open(&c->in, fd);
		if (m->is_pollable) {
			loop_watch(fd, EPOLLOUT, stream_ref(s, LOOP_STREAM_IN));
		}
		return;
	}
	c->out_fd = fd;
	c->is_out_ready = true;
	c->is_out_pollable = m->is_pollable;
	if (m->is_pollable) {
		loop_watch(fd, EPOLLIN, stream_ref(s, LOOP_STREAM_OUT));
	}
	if (s->ops->type != FRAME_FILE_GET) {
		return;
	}
	/* A file that grows while it is read ends where it ended when it was opened. */
	if (!m->is_pollable && m->size > 0) {
		c->left = MIN(c->left, m->size > c->offset ? m->size - c->offset : 0);
	}
	put_started(s, m);
}

static void on_done(struct stream *s, const struct helper_message *m)
{
	struct file_call *c = &s->file;

	c->is_done = true;
	c->done_status = m->status;
	c->done_sys = m->sys;
	c->done_flags = m->flags;
	s->deadline_ms = 0;
}

/* The helper has ended. */
static void on_gone(struct stream *s)
{
	struct file_call *c = &s->file;
	bool is_plain_get = s->ops->type == FRAME_FILE_GET && c->is_opened && !c->is_out_pollable;

	util_close(&c->ctl);
	if (!c->is_done && !is_plain_get) {
		fail(s, STATUS_INTERNAL, 0, "the file helper died");
	}
}

static void hear_helper(struct stream *s)
{
	struct file_call *c = &s->file;

	while (s->id != 0 && c->ctl >= 0) {
		struct helper_message m;
		int fd;
		int result = helper_receive(c->ctl, &m, &fd);

		if (result < 0) {
			return;
		}
		if (result == 0) {
			on_gone(s);
		} else if (m.kind == HELPER_OPENED && fd >= 0 && !c->is_opened) {
			on_opened(s, &m, fd);
		} else {
			if (m.kind == HELPER_OPENED) {
				m.sys = EMFILE; /* the descriptor didn't get through */
			}
			util_close(&fd);
			on_done(s, &m);
		}
	}
}

/* To be called whenever bytes may have moved: the time starts anew after each. */
static void limit_wait(struct stream *s, bool is_waiting)
{
	if (!is_waiting) {
		s->deadline_ms = 0;
	} else if (s->deadline_ms == 0) {
		s->deadline_ms = now_ms() + FILE_STEP_MS;
	}
}

/* ---- bytes ---------------------------------------------------------------------------------- */

static void file_data(struct stream *s, const uint8_t *data, size_t len)
{
	feed_data(s, &s->file.in, data, len);
}

static void file_event(struct stream *s, enum loop_kind kind)
{
	struct file_call *c = &s->file;

	if (kind == LOOP_STREAM_HELPER) {
		hear_helper(s);
	} else if (kind == LOOP_STREAM_OUT) {
		c->is_out_ready = true;
	}
	/* IN: pumped in any case */
}

static void commit(struct stream *s)
{
	struct file_call *c = &s->file;

	if (c->has_size && c->size != c->in.bytes) {
		fail(s, STATUS_INVALID, 0, "other than size bytes came");
		return;
	}
	c->is_committed = true;
	if (write(c->ctl, "!", 1) != 1) {
		fail_sys(s, errno);
		return;
	}
	s->deadline_ms = now_ms() + FILE_STEP_MS;
}

static void put_pump(struct stream *s)
{
	struct file_call *c = &s->file;

	feed_pump(s, &c->in);
	if (c->is_done && (c->done_status != 0 || c->done_sys != 0)) {
		fail(s, c->done_status != 0 ? c->done_status : stream_status_of(c->done_sys),
			c->done_sys,
			c->done_sys != 0 ? strerror(c->done_sys) : "not a regular file");
	} else if (c->in.sys != 0 && c->in.sys != EPIPE) {
		fail_sys(s, c->in.sys);
	} else if (c->is_done) {
		succeed(s);
	} else if (c->is_opened && c->in.state == FEED_STOPPED && s->is_in_closed &&
		   !c->is_committed) {
		commit(s);
	} else if (c->is_opened && !c->is_committed) {
		if (c->in.bytes != c->bytes) {
			c->bytes = c->in.bytes;
			limit_wait(s, false);
		}
		limit_wait(s, c->in.len > 0);
	}
}

static void pump_out(struct stream *s)
{
	struct file_call *c = &s->file;
	bool is_list = s->ops->type == FRAME_FILE_LIST;

	for (int i = 0; c->out_fd >= 0 && c->is_out_ready; i++) {
		bool is_blocked;

		if (i == READS_PER_TURN) {
			loop_kick();
			return;
		}
		if (is_list && !stream_has_room(s, FRAME_CHANNEL_OUT, HELPER_LIST_PACKET_BYTES)) {
			return;
		}
		ssize_t n = c->left == 0 ? 0
					 : stream_pump_out(s, FRAME_CHANNEL_OUT, c->out_fd,
						   (size_t)MIN(c->left, (uint64_t)SIZE_MAX),
						   &is_blocked);

		if (n > 0) {
			limit_wait(s, false);
			c->bytes += (uint64_t)n;
			c->left -= is_list ? 0 : (uint64_t)n;
		} else if (n == 0) {
			util_close(&c->out_fd);
			stream_close_channel(s, FRAME_CHANNEL_OUT);
			c->is_out_closed = true;
		} else if (errno != EAGAIN) {
			fail_sys(s, errno);
			return;
		} else if (is_blocked) {
			return;
		} else {
			c->is_out_ready = false;
		}
	}
}

static void out_pump(struct stream *s)
{
	struct file_call *c = &s->file;

	if (c->is_done && (c->done_status != 0 || c->done_sys != 0)) {
		fail(s, c->done_status != 0 ? c->done_status : stream_status_of(c->done_sys),
			c->done_sys,
			c->done_sys != 0 ? strerror(c->done_sys) : "not a regular file");
		return;
	}
	pump_out(s);
	if (s->id != 0 && c->is_out_closed && (c->is_done || !c->is_out_pollable)) {
		succeed(s);
	} else if (s->id != 0 && c->is_opened) {
		limit_wait(s, !c->is_done && (c->is_out_closed || !c->is_out_ready));
	}
}

static void file_exited(struct stream *s, int wait_status)
{
	/* Its last word may still be in the socket. */
	(void)wait_status;
	hear_helper(s);
}

static void file_timer(struct stream *s)
{
	let_go(s, true);
	stream_fail(s, STATUS_IO, ETIMEDOUT, "the file system doesn't answer");
}

static void file_cancel(struct stream *s)
{
	fail(s, STATUS_CANCELLED, 0, "cancelled");
}

static void file_abandon(struct stream *s)
{
	let_go(s, !s->file.is_opened);
}

const struct call_ops file_put_ops = {
	.type = FRAME_FILE_PUT,
	.name = "file put",
	.start = put_start,
	.data = file_data,
	.event = file_event,
	.pump = put_pump,
	.timer = file_timer,
	.exited = file_exited,
	.cancel = file_cancel,
	.abandon = file_abandon,
};

const struct call_ops file_get_ops = {
	.type = FRAME_FILE_GET,
	.name = "file get",
	.start = get_start,
	.event = file_event,
	.pump = out_pump,
	.timer = file_timer,
	.exited = file_exited,
	.cancel = file_cancel,
	.abandon = file_abandon,
};

const struct call_ops file_list_ops = {
	.type = FRAME_FILE_LIST,
	.name = "file list",
	.start = list_start,
	.event = file_event,
	.pump = out_pump,
	.timer = file_timer,
	.exited = file_exited,
	.cancel = file_cancel,
	.abandon = file_abandon,
};
