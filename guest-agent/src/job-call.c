/*
 * Theory of operation
 *
 * A call names a job by its id and remembers it by a reference that outlives it; when the job has
 * been forgotten meanwhile the call ends NOT_FOUND. JOB_WAIT and JOB_INPUT last, and look in every
 * turn at what has become of their job; the others are answered at once. JOB_READ is in job-read.c.
 */

#include "src/job-call.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>

#include "src/exec-request.h"
#include "src/job-request.h"
#include "src/pty.h"
#include "src/stream.h"

/* A terminal's end may take more without saying so. */
#define TTY_POLL_MS 50u
/* The CLOSE of input that ended its job comes just after it. */
#define LATE_CLOSE_MS 1000u

/* ---- SIGNAL, JOB_START, JOB_RESIZE, JOB_FORGET ---------------------------------------------- */

static void signal_start(struct stream *s, const uint8_t *body, size_t len)
{
	struct job_request q;

	if (!job_request_parse(s, &q, body, len, 0)) {
		return;
	}
	struct command *command = q.id[0] != '\0' ? command_find(q.id) : NULL;

	if (q.signal - 1 >= PROTO_SIGNAL_MAX) {
		stream_fail(s, STATUS_INVALID, 0, "there is no such signal");
	} else if (command == NULL || command->has_exited) {
		stream_fail(s, STATUS_NOT_FOUND, 0, "no such command runs");
	} else {
		command_signal(command, (int)q.signal);
		job_call_end(s);
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
			job_call_end(s);
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
	struct job_request q;
	struct job *job = job_request_for(s, &q, body, len, 0);

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
		job_call_end(s);
	}
}

const struct call_ops job_resize_ops = {
	.type = FRAME_JOB_RESIZE,
	.name = "job_resize",
	.start = resize_start,
};

static void forget_start(struct stream *s, const uint8_t *body, size_t len)
{
	struct job_request q;
	struct job *job = job_request_for(s, &q, body, len, 0);

	if (job == NULL) {
		return;
	}
	if (!job->has_ended) {
		stream_fail(s, STATUS_INVALID, 0, "the command still runs");
		return;
	}
	job_forget(job);
	job_call_end(s);
}

const struct call_ops job_forget_ops = {
	.type = FRAME_JOB_FORGET,
	.name = "job_forget",
	.start = forget_start,
};

/* ---- JOB_WAIT ------------------------------------------------------------------------------- */

static void wait_pump(struct stream *s)
{
	struct job *job = job_still_there(s);

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
	struct job_request q;

	/* The pump of this turn looks whether it has ended already. */
	job_request_for(s, &q, body, len, 0);
}

const struct call_ops job_wait_ops = {
	.type = FRAME_JOB_WAIT,
	.name = "job_wait",
	.start = wait_start,
	.pump = wait_pump,
	.cancel = job_call_cancelled,
};

/* ---- JOB_LIST ------------------------------------------------------------------------------- */

#define LIST_MAX_BYTES (JOBS_MAX * MSG_JOB_MAX_BYTES)
_Static_assert(LIST_MAX_BYTES <= PROTO_PAYLOAD_MAX_BYTES, "the list fits into one frame");

static void list_start(struct stream *s, const uint8_t *body, size_t len)
{
	struct job_request q;

	job_request_parse(s, &q, body, len, 0);
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

		job_describe(job, &w);
		put_le32(list + used, (uint32_t)(4 + w.len));
		used += 4 + w.len;
	}
	if (used > 0) {
		stream_put_data(s, FRAME_CHANNEL_OUT, list, used);
	}
	job_call_end(s);
}

const struct call_ops job_list_ops = {
	.type = FRAME_JOB_LIST,
	.name = "job_list",
	.start = list_start,
	.pump = list_pump,
	.cancel = job_call_cancelled,
};

/* ---- JOB_INPUT ------------------------------------------------------------------------------ */

static void input_start(struct stream *s, const uint8_t *body, size_t len)
{
	struct job_call *c = &s->job;
	struct job_request q;
	struct job *job = job_request_for(s, &q, body, len, MSG_JOB_CLOSE);

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
	c->in.is_shared = true;
	c->closes = (q.flags & MSG_JOB_CLOSE) != 0;
	c->in.goes_on = c->closes && job->has_tty;
	feed_open(&c->in, fd);
	loop_watch(fd, EPOLLOUT, stream_ref(s, LOOP_STREAM_IN));
}

static void input_data(struct stream *s, const uint8_t *data, size_t len)
{
	struct job_call *c = &s->job;

	c->is_late = c->has_outlived;
	feed_data(s, &c->in, data, len);
}

/* The job has ended, of what it was given perhaps: fine if it had taken all that came. */
static void outlive_job(struct stream *s)
{
	struct job_call *c = &s->job;

	if (!c->has_outlived) {
		c->has_outlived = true;
		c->is_late = c->in.len > 0 || c->in.sys != 0;
		feed_stop(s, &c->in);
		s->deadline_ms = now_ms() + LATE_CLOSE_MS;
	}
	if (c->is_late || (s->deadline_ms == 0 && !s->is_in_closed)) {
		stream_fail(s, STATUS_INVALID, 0, "the command has ended");
	} else if (s->is_in_closed) {
		job_call_end(s);
	}
}

static void input_pump(struct stream *s)
{
	struct job_call *c = &s->job;
	struct job *job = job_get(s->job.job);
	const uint8_t eof = 4;

	if (job == NULL || job->has_ended) {
		outlive_job(s);
		return;
	}
	feed_pump(s, &c->in);
	if (c->in.state == FEED_OPEN && s->is_in_closed && c->in.goes_on && c->in.len == 0) {
		c->in.goes_on = false;
		feed_data(s, &c->in, &eof, 1);
		feed_pump(s, &c->in);
	}
	if (c->in.state == FEED_OPEN) {
		s->deadline_ms = job->has_tty && c->in.len > 0 ? now_ms() + TTY_POLL_MS : 0;
		return;
	}
	if (c->in.sys == ENOMEM) {
		stream_fail(s, STATUS_BUSY, ENOMEM, "out of memory");
		return;
	}
	if (c->in.sys != 0) {
		stream_fail(s, STATUS_INVALID, c->in.sys, "the command has closed its stdin");
		return;
	}
	if (c->closes && !job->has_tty) {
		util_close(&job->in_fd);
	}
	job_call_end(s);
}

static void input_let_go(struct stream *s)
{
	feed_stop(s, &s->job.in);
}

static void input_cancel(struct stream *s)
{
	input_let_go(s);
	job_call_cancelled(s);
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
	.event = input_event,
	.pump = input_pump,
	.timer = input_timer,
	.cancel = input_cancel,
	.abandon = input_let_go,
};
