/*
 * Theory of operation
 *
 * A call ends when its command is over (command.c) and what was in its pipes at that moment has
 * been passed on; on CANCEL without the latter.
 *
 *   output up to the cap: pipe ──► port, as credit allows
 *   output beyond it:     pipe ──► tails ──when the command is over──► port
 *
 * Between the end of a command and END there are only: wait, two FIONREAD and one write. Closing
 * and looking after the cgroup comes behind.
 */

#include "src/exec.h"

#include <errno.h>
#include <sys/epoll.h>

#include "src/exec-request.h"
#include "src/port.h"
#include "src/stream.h"

/* Reads of one output in one turn, so that 64 streams share the port. */
#define READS_PER_TURN 4

/* ---- start ---------------------------------------------------------------------------------- */

static void started(struct stream *s, const struct exec_request *q)
{
	struct exec *e = &s->exec;
	uint8_t body[16];
	struct msg_writer w = {.buf = body, .size = sizeof body};

	loop_watch(e->out.fd, EPOLLIN, stream_ref(s, LOOP_STREAM_OUT));
	loop_watch(e->err.fd, EPOLLIN, stream_ref(s, LOOP_STREAM_ERR));
	if (e->in.state == FEED_OPEN) {
		loop_watch(e->in.fd, EPOLLOUT, stream_ref(s, LOOP_STREAM_IN));
	}
	s->pid = e->command.pid;
	s->deadline_ms = e->command.deadline_ms;
	e->cap_left = q->output_cap;
	for (size_t i = 0; i < ARRAY_SIZE(e->tails); i++) {
		ring_init(&e->tails[i], (size_t)q->tail_cap, 1);
	}
	msg_put_u32(&w, MSG_PID, (uint32_t)e->command.pid);
	port_put(FRAME_STARTED, 0, s->id, body, w.len);
}

static void exec_start(struct stream *s, const uint8_t *body, size_t len)
{
	static struct exec_request q; /* too large for a stack; one at a time */
	struct exec *e = &s->exec;
	struct command_pipes pipes;

	if (!exec_request_init(&q, len)) {
		stream_fail(s, STATUS_BUSY, ENOMEM, "out of memory");
		return;
	}
	e->in = FEED_INIT;
	if (exec_request_parse(s, &q, body, len, MSG_EXEC_STDIN | MSG_EXEC_ROOT) &&
		command_start(&e->command, s, &q, &pipes)) {
		e->out.fd = pipes.out;
		e->err.fd = pipes.err;
		if (pipes.in >= 0) {
			feed_open(&e->in, pipes.in);
		}
		started(s, &q);
	}
	exec_request_fini(&q);
}

/* ---- stdin ---------------------------------------------------------------------------------- */

static void exec_data(struct stream *s, const uint8_t *data, size_t len)
{
	/* A reader that is gone isn't an error: the rest is dropped. */
	feed_data(s, &s->exec.in, data, len);
}

static void exec_in_closed(struct stream *s)
{
	feed_pump(s, &s->exec.in);
}

/* ---- output --------------------------------------------------------------------------------- */

/* Over the cap: counted, and only the last of it kept. */
static ssize_t keep_tail(struct exec *e, struct output *o, size_t limit)
{
	const uint8_t *data;
	ssize_t n = output_read(o, limit, &data);

	if (n > 0) {
		ring_append(&e->tails[o == &e->err], 0, data, (size_t)n);
	}
	return n;
}

/* CLOSE, unless bytes of its tail still follow. */
static void end_output(struct stream *s, enum frame_channel channel, struct output *o)
{
	util_close(&o->fd);
	if (s->exec.tails[o == &s->exec.err].end == 0) {
		stream_close_channel(s, channel);
	}
}

static void pump_output(struct stream *s, enum frame_channel channel, struct output *o)
{
	struct exec *e = &s->exec;
	bool is_bounded = command_is_over(&e->command);

	for (int i = 0; o->fd >= 0 && o->is_ready; i++) {
		size_t limit = is_bounded ? o->left : SIZE_MAX;
		bool is_beyond = e->cap_left == 0;
		bool is_blocked = false;
		ssize_t n;

		if (limit == 0) {
			return;
		}
		if (i == READS_PER_TURN) {
			loop_kick();
			return;
		}
		if (is_beyond) {
			n = keep_tail(e, o, limit);
		} else {
			limit = (size_t)MIN((uint64_t)limit, e->cap_left);
			n = stream_pump_out(s, channel, o->fd, limit, &is_blocked);
		}
		if (is_blocked) {
			return;
		}
		if (n > 0) {
			o->bytes += (uint64_t)n;
			e->cap_left -= is_beyond ? 0 : (uint64_t)n;
			o->left -= is_bounded ? (size_t)n : 0;
		} else if (n < 0 && errno == EAGAIN) {
			o->is_ready = false;
			o->left = 0;
		} else {
			end_output(s, channel, o);
		}
	}
}

/* ---- end ------------------------------------------------------------------------------------ */

static void clean_up(struct stream *s)
{
	struct exec *e = &s->exec;

	feed_stop(s, &e->in);
	output_let_go(&e->out);
	output_let_go(&e->err);
	ring_fini(&e->tails[0]);
	ring_fini(&e->tails[1]);
	command_release(&e->command);
}

static void finish(struct stream *s)
{
	struct exec *e = &s->exec;
	struct stream_result r = {
		.status = STATUS_OK,
		.is_exec = true,
		.exit_code = command_exit_code(&e->command),
		.signal = command_exit_signal(&e->command),
		.flags = e->command.end_flags,
		.has_counts = true,
		.out_bytes = e->out.bytes,
		.err_bytes = e->err.bytes,
		.duration_us = e->command.ended_us - e->command.started_us,
	};

	if (e->is_sending_tails) {
		r.out_tail = e->tails[0].end - e->tails[0].first;
		r.err_tail = e->tails[1].end - e->tails[1].first;
	}
	if (e->tails[0].end + e->tails[1].end > r.out_tail + r.err_tail) {
		r.flags |= MSG_END_TRUNCATED;
	}
	stream_end(s, &r);
	port_flush();
	clean_up(s);
}

/* True when all of it has been sent. */
static bool send_tail(struct stream *s, enum frame_channel channel, int which)
{
	const struct ring *tail = &s->exec.tails[which];
	uint64_t *sent = &s->exec.tail_sent[which];

	if (!s->exec.is_sending_tails) {
		*sent = tail->first;
	}
	while (*sent < tail->end) {
		unsigned stream;
		const uint8_t *data;
		size_t n = ring_peek(tail, *sent, &stream, &data);

		n = stream_put_data(s, channel, data, n);
		if (n == 0) {
			return false;
		}
		*sent += n;
	}
	return true;
}

static bool send_tails(struct stream *s)
{
	bool is_out_sent = send_tail(s, FRAME_CHANNEL_OUT, 0);
	bool is_err_sent = send_tail(s, FRAME_CHANNEL_ERR, 1);

	s->exec.is_sending_tails = true;
	return is_out_sent && is_err_sent;
}

static void exec_pump(struct stream *s)
{
	struct exec *e = &s->exec;
	bool is_cancelled = (e->command.end_flags & MSG_END_CANCELLED) != 0;

	if (is_cancelled && e->command.ending == COMMAND_KILLING) {
		return; /* nobody wants its output */
	}
	pump_output(s, FRAME_CHANNEL_OUT, &e->out);
	pump_output(s, FRAME_CHANNEL_ERR, &e->err);
	if (command_is_over(&e->command) &&
		(is_cancelled || (output_is_drained(&e->out) && output_is_drained(&e->err) &&
					 send_tails(s)))) {
		finish(s);
	}
}

static void exec_exited(struct stream *s, int wait_status)
{
	struct exec *e = &s->exec;

	command_exited(&e->command, wait_status);
	s->deadline_ms = e->command.deadline_ms;
	output_note_left(&e->out);
	output_note_left(&e->err);
}

static void exec_timer(struct stream *s)
{
	struct exec *e = &s->exec;

	if (command_timer(&e->command)) {
		output_note_left(&e->out);
		output_note_left(&e->err);
	}
	if (e->command.has_exited) {
		s->pid = 0;
	}
	s->deadline_ms = e->command.deadline_ms;
}

static void exec_cancel(struct stream *s)
{
	struct exec *e = &s->exec;

	e->command.end_flags |= MSG_END_CANCELLED;
	command_kill(&e->command);
	s->deadline_ms = e->command.deadline_ms;
}

static void exec_abandon(struct stream *s)
{
	struct exec *e = &s->exec;

	tree_kill(e->command.tree, e->command.pid);
	clean_up(s);
}

static void exec_event(struct stream *s, enum loop_kind kind)
{
	struct exec *e = &s->exec;

	if (kind == LOOP_STREAM_IN) {
		feed_pump(s, &e->in);
	} else if (kind == LOOP_STREAM_OUT) {
		e->out.is_ready = true;
	} else {
		e->err.is_ready = true;
	}
}

const struct call_ops exec_ops = {
	.type = FRAME_EXEC,
	.name = "exec",
	.start = exec_start,
	.data = exec_data,
	.in_closed = exec_in_closed,
	.event = exec_event,
	.pump = exec_pump,
	.timer = exec_timer,
	.exited = exec_exited,
	.cancel = exec_cancel,
	.abandon = exec_abandon,
};
