#pragma once

/*
 * job-call - the calls about jobs, and SIGNAL
 *
 * Purpose: JOB_START, JOB_WAIT, JOB_READ, JOB_INPUT, JOB_RESIZE, JOB_LIST, JOB_FORGET, SIGNAL.
 * Owns:    per call: its place among a job's readers, a descriptor of its stdin.
 * Thread:  the agent has one.
 * Uses:    job.h, feed.h, stream.h.
 */

#include "src/feed.h"
#include "src/job.h"

struct call_ops;

struct job_call {
	struct job_ref job;
	/* JOB_READ */
	struct job_reader reader;
	uint64_t until;  /* offset at which it ends */
	uint64_t max;    /* bytes, while until isn't known */
	bool is_waiting; /* nothing to send yet */
	/* JOB_INPUT */
	struct feed in;
	bool closes;
	bool has_outlived; /* its job has ended */
	bool is_late;      /* bytes came that it hadn't taken by then */
};

extern const struct call_ops signal_ops;
extern const struct call_ops job_start_ops;
extern const struct call_ops job_wait_ops;
extern const struct call_ops job_read_ops;
extern const struct call_ops job_input_ops;
extern const struct call_ops job_resize_ops;
extern const struct call_ops job_list_ops;
extern const struct call_ops job_forget_ops;
