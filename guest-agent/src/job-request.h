#pragma once

/*
 * job-request - what a call about a job asks for, and the common answers
 *
 * Purpose: fields into numbers, each checked; the job that they name; what is told of it.
 * Owns:    nothing.
 * Thread:  the agent has one.
 * Errors:  the stream is ended with the reason.
 * Uses:    job.h, stream.h.
 */

#include "proto/msg.h"
#include "src/job.h"

struct stream;

struct job_request {
	char id[PROTO_ID_MAX_BYTES + 1];
	uint64_t offset;
	uint64_t length;
	uint64_t wait_ms;
	uint32_t flags;
	uint32_t signal;
	uint32_t rows;
	uint32_t cols;
};

/* False when the stream has been ended with the reason. @flags: those that the call may have. */
bool job_request_parse(
	struct stream *s, struct job_request *q, const uint8_t *body, size_t len, uint32_t flags);
/* The same for a call about one job, which the stream remembers; NULL when it has been ended. */
struct job *job_request_for(
	struct stream *s, struct job_request *q, const uint8_t *body, size_t len, uint32_t flags);
/* The stream's job, later; NULL when it has been ended, since the job was forgotten. */
struct job *job_still_there(struct stream *s);

/* END OK with nothing to tell. */
void job_call_end(struct stream *s);
/* END CANCELLED. */
void job_call_cancelled(struct stream *s);
/* The fields that tell of a job. */
void job_describe(const struct job *job, struct msg_writer *w);
