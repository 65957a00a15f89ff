/*
 * Theory of operation
 *
 * A call names a job by its id and remembers it by a reference that outlives it; when the job has
 * been forgotten meanwhile the call ends NOT_FOUND. JOB_WAIT, JOB_READ and JOB_INPUT last, and look
 * in every turn at what has become of their job; the others are answered at once.
 *
 * JOB_READ: DATA on OUT or ERR according to the run of the ring. It ends at `until`, which is known
 * once there are bytes to send: what is there then, or without end for a follower.
 */

#include "src/job-call.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>

#include "src/exec-request.h"
#include "src/port.h"
#include "src/pty.h"
#include "src/stream.h"

/* A terminal's end may take more without saying so. */
#define TTY_POLL_MS 50u

/* ---- requests ------------------------------------------------------------------------------- */

struct request {
	char id[PROTO_ID_MAX_BYTES + 1];
	uint64_t offset;
	uint64_t length;
	uint64_t wait_ms;
	uint32_t flags;
	uint32_t signal;
	uint32_t rows;
	uint32_t cols;
};

/* False: not one of ours. */
static bool take_field(struct request *q, struct msg_reader *r, const struct msg_field *f)
{
	switch (f->tag & ~MSG_CRITICAL) {
	case MSG_ID:
		msg_text(r, f, q->id, sizeof q->id);
		return true;
	case MSG_OFFSET:
		q->offset = msg_u64(r, f);
		return true;
	case MSG_LENGTH:
		q->length = msg_u64(r, f);
		return true;
	case MSG_WAIT_MS:
		q->wait_ms = MIN(msg_u64(r, f), EXEC_TIME_MAX_MS);
		return true;
	case MSG_JOB_FLAGS:
		q->flags = msg_u32(r, f);
		return true;
	case MSG_SIGNAL:
		q->signal = msg_u32(r, f);
		return true;
	case MSG_ROWS:
		q->rows = msg_u32(r, f);
		return true;
	case MSG_COLS:
		q->cols = msg_u32(r, f);
		return true;
	default:
		return false;
	}
}

/* False when the stream has been ended with the reason. @flags: those that the call may have. */
static bool parse(
	struct stream *s, struct request *q, const uint8_t *body, size_t len, uint32_t flags)
{
	struct msg_reader r = {.buf = body, .len = len};

	*q = (struct request){.length = UINT64_MAX};
	for (struct msg_field f; msg_next(&r, &f);) {
		if (!take_field(q, &r, &f) && (f.tag & MSG_CRITICAL) != 0) {
			stream_fail(s, STATUS_UNSUPPORTED, 0, "unsupported field");
			return false;
		}
	}
	if (r.bad) {
		stream_fail(s, STATUS_INVALID, 0, "malformed request");
		return false;
	}
	if ((q->flags & ~flags) != 0) {
		stream_fail(s, STATUS_UNSUPPORTED, 0, "unsupported job flag");
		return false;
	}
	return true;
}

/* NULL when the stream has been ended with the reason. */
static struct job *parse_for_job(
	struct stream *s, struct request *q, const uint8_t *body, size_t len, uint32_t flags)
{
	if (!parse(s, q, body, len, flags)) {
		return NULL;
	}
	struct job *job = job_find(q->id);

	if (job == NULL) {
		stream_fail(s, STATUS_NOT_FOUND, 0, "there is no such command");
		return NULL;
	}
	s->job.job = job_ref(job);
	return job;
}

/* The same later. */
static struct job *still_there(struct stream *s)
{
	struct job *job = job_get(s->job.job);

	if (job == NULL) {
		stream_fail(s, STATUS_NOT_FOUND, 0, "the command has been forgotten");
	}
	return job;
}

static void end_fine(struct stream *s)
{
	stream_end(s, &(struct stream_result){.status = STATUS_OK});
}

static void end_cancelled(struct stream *s)
{
	stream_fail(s, STATUS_CANCELLED, 0, "cancelled");
}

/* ---- SIGNAL, JOB_START, JOB_RESIZE, JOB_FORGET ---------------------------------------------- */

static void signal_start(struct stream *s, const uint8_t *body, size_t len)
{
	struct request q;

	if (!parse(s, &q, body, len, 0)) {
		return;
	}
	struct command *command = q.id[0] != '\0' ? command_find(q.id) : NULL;

	if (q.signal - 1 >= PROTO_SIGNAL_MAX) {
		stream_fail(s, STATUS_INVALID, 0, "there is no such signal");
	} else if (command == NULL || command->has_exited) {
		stream_fail(s, STATUS_NOT_FOUND, 0, "no such command runs");
	} else {
		command_signal(command, (int)q.signal);
		end_fine(s);
	}
}

const struct call_ops signal_ops = {
	.type = FRAME_SIGNAL,
	.name = "signal",
	.start = signal_start,
};

static void job_start_start(struct stream *s, const uint8_t *body, size_t len)
{
	static struct exec_request q; /* too large for a stack; one at a time */

	if (!exec_request_init(&q, len)) {
		stream_fail(s, STATUS_BUSY, ENOMEM, "out of memory");
		return;
	}
	if (exec_request_parse(s, &q, body, len, MSG_EXEC_STDIN | MSG_EXEC_ROOT | MSG_EXEC_TTY)) {
		if (q.id[0] == '\0') {
			stream_fail(s, STATUS_INVALID, 0, "an id is needed");
		} else if (job_start(s, &q) != NULL) {
			end_fine(s);
		}
	}
	exec_request_fini(&q);
}

const struct call_ops job_start_ops = {
	.type = FRAME_JOB_START,
	.name = "job_start",
	.start = job_start_start,
};

static void resize_start(struct stream *s, const uint8_t *body, size_t len)
{
	struct request q;
	struct job *job = parse_for_job(s, &q, body, len, 0);

	if (job == NULL) {
		return;
	}
	if (q.rows - 1 >= PROTO_TTY_SIZE_MAX || q.cols - 1 >= PROTO_TTY_SIZE_MAX) {
		stream_fail(s, STATUS_INVALID, 0, "impossible size");
	} else if (!job->has_tty || job->out.fd < 0) {
		stream_fail(s, STATUS_INVALID, 0, "the command has no terminal");
	} else if (pty_resize(job->out.fd, q.rows, q.cols) != 0) {
		stream_fail(s, STATUS_IO, errno, "can't resize: %s", strerror(errno));
	} else {
		end_fine(s);
	}
}

const struct call_ops job_resize_ops = {
	.type = FRAME_JOB_RESIZE,
	.name = "job_resize",
	.start = resize_start,
};

static void forget_start(struct stream *s, const uint8_t *body, size_t len)
{
	struct request q;
	struct job *job = parse_for_job(s, &q, body, len, 0);

	if (job == NULL) {
		return;
	}
	if (!job->has_ended) {
		stream_fail(s, STATUS_INVALID, 0, "the command still runs");
		return;
	}
	job_forget(job);
	end_fine(s);
}

const struct call_ops job_forget_ops = {
	.type = FRAME_JOB_FORGET,
	.name = "job_forget",
	.start = forget_start,
};

/* ---- JOB_WAIT ------------------------------------------------------------------------------- */

static void wait_pump(struct stream *s)
{
	struct job *job = still_there(s);

	if (job == NULL || !job->has_ended) {
		return;
	}
	stream_end(s, &(struct stream_result){
			      .status = STATUS_OK,
			      .is_exec = true,
			      .exit_code = command_exit_code(&job->command),
			      .signal = command_exit_signal(&job->command),
			      .flags = job->command.end_flags,
			      .has_counts = true,
			      .out_bytes = job->out.bytes,
			      .err_bytes = job->err.bytes,
			      .duration_us = job->command.ended_us - job->command.started_us,
		      });
}

static void wait_start(struct stream *s, const uint8_t *body, size_t len)
{
	struct request q;

	/* The pump of this turn looks whether it has ended already. */
	parse_for_job(s, &q, body, len, 0);
}

const struct call_ops job_wait_ops = {
	.type = FRAME_JOB_WAIT,
	.name = "job_wait",
	.start = wait_start,
	.pump = wait_pump,
	.cancel = end_cancelled,
};

/* ---- what is told of a job ------------------------------------------------------------------ */

static void describe(const struct job *job, struct msg_writer *w)
{
	struct msg_job told = {
		.flags = (job->has_ended ? 0u : MSG_JOB_RUNNING) |
			 (job->has_tty ? MSG_JOB_TTY : 0u),
		.first_offset = job->ring.first,
		.end_offset = job->ring.end,
		.out_bytes = job->out.bytes,
		.err_bytes = job->err.bytes,
	};

	memcpy(told.id, job->command.id, sizeof told.id);
	if (job->has_ended) {
		told.exit_code = command_exit_code(&job->command);
		told.signal = command_exit_signal(&job->command);
		told.end_flags = job->command.end_flags;
		told.duration_us = job->command.ended_us - job->command.started_us;
	}
	msg_job_put(w, &told);
}

/* ---- JOB_LIST ------------------------------------------------------------------------------- */

#define LIST_MAX_BYTES (JOBS_MAX * MSG_JOB_MAX_BYTES)
_Static_assert(LIST_MAX_BYTES <= PROTO_PAYLOAD_MAX_BYTES, "the list fits into one frame");

static void list_start(struct stream *s, const uint8_t *body, size_t len)
{
	struct request q;

	parse(s, &q, body, len, 0);
}

static void list_pump(struct stream *s)
{
	static uint8_t list[LIST_MAX_BYTES];
	size_t used = 0;

	if (!stream_has_room(s, FRAME_CHANNEL_OUT, sizeof list)) {
		return;
	}
	for (const struct job *job = job_next(NULL); job != NULL; job = job_next(job)) {
		struct msg_writer w = {.buf = list + used + 4, .size = MSG_JOB_MAX_BYTES - 4};

		describe(job, &w);
		put_le32(list + used, (uint32_t)(4 + w.len));
		used += 4 + w.len;
	}
	if (used > 0) {
		stream_put_data(s, FRAME_CHANNEL_OUT, list, used);
	}
	end_fine(s);
}

const struct call_ops job_list_ops = {
	.type = FRAME_JOB_LIST,
	.name = "job_list",
	.start = list_start,
	.pump = list_pump,
	.cancel = end_cancelled,
};

/* ---- JOB_READ ------------------------------------------------------------------------------- */

static uint64_t add_or_max(uint64_t a, uint64_t b)
{
	return b > UINT64_MAX - a ? UINT64_MAX : a + b;
}

static void read_start(struct stream *s, const uint8_t *body, size_t len)
{
	struct job_call *c = &s->job;
	struct request q;
	struct job *job = parse_for_job(s, &q, body, len, MSG_JOB_FOLLOW);
	uint8_t told[MSG_JOB_MAX_BYTES + 32];
	struct msg_writer w = {.buf = told, .size = sizeof told};

	if (job == NULL) {
		return;
	}
	if (q.offset > job->ring.end) {
		stream_fail(s, STATUS_INVALID, 0, "the output has %llu bytes so far",
			(unsigned long long)job->ring.end);
		return;
	}
	c->reader = (struct job_reader){.offset = MAX(q.offset, job->ring.first),
		.is_followed = (q.flags & MSG_JOB_FOLLOW) != 0};
	c->max = q.length;
	c->until = c->reader.is_followed ? add_or_max(c->reader.offset, q.length) : 0;
	c->is_waiting = !c->reader.is_followed;
	s->deadline_ms = c->is_waiting ? now_ms() + q.wait_ms : 0;
	job_add_reader(job, &c->reader);
	describe(job, &w);
	msg_put_u64(&w, MSG_OFFSET, c->reader.offset);
	port_put(FRAME_STARTED, 0, s->id, told, w.len);
}

static void end_read(struct stream *s, struct job *job)
{
	uint64_t offset = s->job.reader.offset;

	job_remove_reader(job, &s->job.reader);
	stream_end(s,
		&(struct stream_result){.status = STATUS_OK, .has_offset = true, .offset = offset});
}

/* The ring has dropped what comes next: on from where it begins now. False: no room to say so. */
static bool skip_gap(struct stream *s, const struct job *job)
{
	struct job_call *c = &s->job;
	uint8_t raw[8];

	if (c->reader.offset >= job->ring.first) {
		return true;
	}
	if (!stream_has_room(s, FRAME_CHANNEL_OUT, 1)) {
		return false;
	}
	c->reader.offset = job->ring.first;
	put_le64(raw, c->reader.offset);
	port_put(FRAME_GAP, 0, s->id, raw, sizeof raw);
	return true;
}

/* Sends what it may. True: up to its end, or to that of the ring. */
static bool send_ring(struct stream *s, struct job *job)
{
	struct job_reader *reader = &s->job.reader;
	uint64_t before = reader->offset;
	bool is_blocked = !skip_gap(s, job);

	while (!is_blocked && reader->offset < MIN(s->job.until, job->ring.end)) {
		unsigned stream;
		const uint8_t *data;
		size_t n = ring_peek(&job->ring, reader->offset, &stream, &data);

		n = (size_t)MIN((uint64_t)n, s->job.until - reader->offset);
		n = stream_put_data(
			s, stream == 0 ? FRAME_CHANNEL_OUT : FRAME_CHANNEL_ERR, data, n);
		reader->offset += n;
		is_blocked = n == 0;
	}
	if (reader->offset > before) {
		job_reader_moved(job);
	}
	return !is_blocked;
}

static void read_pump(struct stream *s)
{
	struct job_call *c = &s->job;
	struct job *job = still_there(s);

	if (job == NULL) {
		return;
	}
	if (c->is_waiting) {
		if (c->reader.offset == job->ring.end && !job->has_ended && s->deadline_ms != 0) {
			return;
		}
		c->is_waiting = false;
		s->deadline_ms = 0;
		c->until = MIN(
			add_or_max(MAX(c->reader.offset, job->ring.first), c->max), job->ring.end);
	}
	if (send_ring(s, job) &&
		(c->reader.offset >= c->until || (c->reader.is_followed && job->has_ended))) {
		end_read(s, job);
	}
}

static void read_let_go(struct stream *s)
{
	struct job *job = job_get(s->job.job);

	if (job != NULL) {
		job_remove_reader(job, &s->job.reader);
	}
}

static void read_cancel(struct stream *s)
{
	read_let_go(s);
	end_cancelled(s);
}

/* wait_ms is over: stream_run_all() has cleared the deadline, which the pump sees. */
static void read_timer(struct stream *s)
{
	(void)s;
}

const struct call_ops job_read_ops = {
	.type = FRAME_JOB_READ,
	.name = "job_read",
	.start = read_start,
	.pump = read_pump,
	.timer = read_timer,
	.cancel = read_cancel,
	.abandon = read_let_go,
};

/* ---- JOB_INPUT ------------------------------------------------------------------------------ */

static void input_start(struct stream *s, const uint8_t *body, size_t len)
{
	struct job_call *c = &s->job;
	struct request q;
	struct job *job = parse_for_job(s, &q, body, len, MSG_JOB_CLOSE);

	if (job == NULL) {
		return;
	}
	if (job->has_ended || job->in_fd < 0) {
		stream_fail(s, STATUS_INVALID, 0, "the command's stdin isn't open");
		return;
	}
	int fd = fcntl(job->in_fd, F_DUPFD_CLOEXEC, 0);

	if (fd < 0) {
		stream_fail(s, stream_status_of(errno), errno, "%s", strerror(errno));
		return;
	}
	c->in = FEED_INIT;
	c->closes = (q.flags & MSG_JOB_CLOSE) != 0;
	feed_open(&c->in, fd);
	loop_watch(fd, EPOLLOUT, stream_ref(s, LOOP_STREAM_IN));
}

static void input_data(struct stream *s, const uint8_t *data, size_t len)
{
	feed_data(s, &s->job.in, data, len);
}

static void input_closed(struct stream *s)
{
	const struct job *job = job_get(s->job.job);

	s->job.owes_eof = s->job.closes && job != NULL && job->has_tty;
}

static void input_pump(struct stream *s)
{
	struct job_call *c = &s->job;
	struct job *job = job_get(s->job.job);
	const uint8_t eof = 4;

	if (job == NULL || job->has_ended) {
		feed_stop(s, &c->in);
		stream_fail(s, STATUS_INVALID, 0, "the command has ended");
		return;
	}
	if (c->owes_eof && c->in.len == 0 && c->in.state == FEED_OPEN) {
		c->owes_eof = false;
		feed_data(s, &c->in, &eof, 1);
	}
	feed_pump(s, &c->in);
	if (c->in.state == FEED_OPEN) {
		s->deadline_ms = job->has_tty && c->in.len > 0 ? now_ms() + TTY_POLL_MS : 0;
		return;
	}
	if (c->in.sys != 0) {
		stream_fail(s, STATUS_INVALID, c->in.sys, "the command has closed its stdin");
		return;
	}
	if (c->closes && !job->has_tty) {
		util_close(&job->in_fd);
	}
	end_fine(s);
}

static void input_let_go(struct stream *s)
{
	feed_stop(s, &s->job.in);
}

static void input_cancel(struct stream *s)
{
	input_let_go(s);
	end_cancelled(s);
}

static void input_event(struct stream *s, enum loop_kind kind)
{
	(void)kind;
	feed_pump(s, &s->job.in);
}

/* The pump that follows writes. */
static void input_timer(struct stream *s)
{
	(void)s;
}

const struct call_ops job_input_ops = {
	.type = FRAME_JOB_INPUT,
	.name = "job_input",
	.start = input_start,
	.data = input_data,
	.in_closed = input_closed,
	.event = input_event,
	.pump = input_pump,
	.timer = input_timer,
	.cancel = input_cancel,
	.abandon = input_let_go,
};
