/*
 * Theory of operation
 *
 * The bytes of the ring from an offset on become DATA on OUT or ERR, according to the run they are
 * in. The call ends at `until`, which is known once there are bytes to send: what is there then, or
 * without end for a follower.
 */

#include "src/job-call.h"
#include "src/job-request.h"
#include "src/port.h"
#include "src/stream.h"

static uint64_t add_or_max(uint64_t a, uint64_t b)
{
	return b > UINT64_MAX - a ? UINT64_MAX : a + b;
}

static void read_start(struct stream *s, const uint8_t *body, size_t len)
{
	struct job_call *c = &s->job;
	struct job_request q;
	struct job *job = job_request_for(s, &q, body, len, MSG_JOB_FOLLOW);
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
	job_describe(job, &w);
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

static enum frame_channel channel_of(unsigned stream)
{
	return stream == 0 ? FRAME_CHANNEL_OUT : FRAME_CHANNEL_ERR;
}

/* With the byte behind it, so that there are never more gaps than bytes. */
static bool has_room_for_gap(struct stream *s, const struct job *job)
{
	const struct ring *ring = &job->ring;
	unsigned stream;
	const uint8_t *data;

	if (ring->first == ring->end) { /* for want of memory */
		return (job->has_ended || !s->job.reader.is_followed) &&
		       stream_has_room(s, FRAME_CHANNEL_OUT, PROTO_GAP_BYTES);
	}
	ring_peek(ring, ring->first, &stream, &data);
	return stream_has_room(s, FRAME_CHANNEL_OUT, PROTO_GAP_BYTES + (stream == 0)) &&
	       stream_has_room(s, channel_of(stream), 1);
}

/* The ring has dropped what comes next: on from where it begins now. False: no room to say so. */
static bool skip_gap(struct stream *s, const struct job *job)
{
	struct job_call *c = &s->job;
	uint8_t raw[8];

	if (c->reader.offset >= job->ring.first) {
		return true;
	}
	if (!has_room_for_gap(s, job)) {
		return false;
	}
	c->reader.offset = job->ring.first;
	put_le64(raw, c->reader.offset);
	port_put(FRAME_GAP, 0, s->id, raw, sizeof raw);
	s->out_credit[FRAME_CHANNEL_OUT] -= PROTO_GAP_BYTES;
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
		n = stream_put_data(s, channel_of(stream), data, n);
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
	struct job *job = job_still_there(s);

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
	job_call_cancelled(s);
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
