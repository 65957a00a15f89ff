#include "src/job-request.h"

#include <string.h>

#include "src/exec-request.h"
#include "src/stream.h"

/* False: not one of ours. */
static bool take_field(struct job_request *q, struct msg_reader *r, const struct msg_field *f)
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

bool job_request_parse(
	struct stream *s, struct job_request *q, const uint8_t *body, size_t len, uint32_t flags)
{
	struct msg_reader r = {.buf = body, .len = len};

	*q = (struct job_request){.length = UINT64_MAX};
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

struct job *job_request_for(
	struct stream *s, struct job_request *q, const uint8_t *body, size_t len, uint32_t flags)
{
	if (!job_request_parse(s, q, body, len, flags)) {
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

struct job *job_still_there(struct stream *s)
{
	struct job *job = job_get(s->job.job);

	if (job == NULL) {
		stream_fail(s, STATUS_NOT_FOUND, 0, "the command has been forgotten");
	}
	return job;
}

void job_call_end(struct stream *s)
{
	stream_end(s, &(struct stream_result){.status = STATUS_OK});
}

void job_call_cancelled(struct stream *s)
{
	stream_fail(s, STATUS_CANCELLED, 0, "cancelled");
}

void job_describe(const struct job *job, struct msg_writer *w)
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
