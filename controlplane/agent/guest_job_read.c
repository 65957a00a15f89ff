#include <stdio.h>
#include <string.h>

#include "agent/guest_private.h"
#include "agent/request.h"
#include "base/xalloc.h"

/*
 * Theory of operation. What a guest tells of a job must agree with itself, and what it sends of an
 * output with what it tells: it starts where it was asked to, each byte moves the offset by one, a
 * gap moves it on, and END names the offset that was reached. So bytes that got lost on the way
 * can't go unnoticed. Nothing is kept here; while the reader is paused its credit is withheld, and
 * no deadline runs.
 */

static struct guest_job job_of(const struct msg_job *told)
{
	struct guest_job job = {
		.is_running = told->flags & MSG_JOB_RUNNING,
		.has_tty = told->flags & MSG_JOB_TTY,
		.first_offset = told->first_offset,
		.end_offset = told->end_offset,
	};

	_Static_assert(sizeof job.id == sizeof told->id, "ids have one length");
	memcpy(job.id, told->id, sizeof job.id);
	if (!job.is_running) {
		job.result = (struct guest_exec_result){
			.exit_code = (int)told->exit_code,
			.signal = (int)told->signal,
			.timed_out = told->end_flags & MSG_END_TIMED_OUT,
			.stdout_bytes = told->out_bytes,
			.stderr_bytes = told->err_bytes,
			.duration_us = told->duration_us,
		};
	}
	return job;
}

/* ---- read ---- */

struct read_call {
	struct guest_call call;
	struct guest_job_hooks hooks;
	char id[PROTO_ID_MAX_BYTES + 1];
	uint64_t asked;
	uint64_t left;     /* bytes that may still come */
	uint64_t position; /* offset of the next one */
	bool is_started;
	bool is_paused;
	size_t withheld[FRAME_CHANNEL_MAX];
};

static struct read_call *read_of(struct guest_call *call)
{
	return container_of(call, struct read_call, call);
}

static int decode_started(struct msg_job *ret_job, uint64_t *ret_offset, const uint8_t *body,
	size_t len, struct err *err)
{
	struct msg_reader r = {.buf = body, .len = len};
	struct msg_job job = {0};
	uint64_t offset = UINT64_MAX;

	for (struct msg_field f; msg_next(&r, &f);) {
		if ((f.tag & ~MSG_CRITICAL) == MSG_OFFSET) {
			offset = msg_u64(&r, &f);
		} else if (!msg_job_take(&r, &f, &job)) {
			r.bad = r.bad || (f.tag & MSG_CRITICAL) != 0;
		}
	}
	if (r.bad || !msg_job_is_sound(&job)) {
		return rpc_violation(err, "a job that can't be");
	}
	*ret_job = job;
	*ret_offset = offset;
	return 0;
}

static int read_on_started(
	struct guest_call *call, const uint8_t *body, size_t len, struct err *err)
{
	struct read_call *self = read_of(call);
	struct msg_job told;

	if (decode_started(&told, &self->position, body, len, err) < 0) {
		return -1;
	}
	if (strcmp(told.id, self->id) != 0) {
		return rpc_violation(err, "the output of another job");
	}
	if (self->position != MAX(self->asked, told.first_offset) ||
		self->position > told.end_offset) {
		return rpc_violation(err, "output that begins elsewhere");
	}
	struct guest_job job = job_of(&told);

	self->is_started = true;
	if (self->hooks.on_job) {
		self->hooks.on_job(self->hooks.arg, &job);
	}
	if (!call->is_done) {
		self->hooks.on_start(self->hooks.arg, self->position);
	}
	return 0;
}

/* Done with, unless the reader is paused: then once it isn't. */
static void settle(struct read_call *self, unsigned channel, size_t len)
{
	if (self->is_paused) {
		self->withheld[channel] += len;
	} else {
		rpc_consume(&self->call, channel, len);
	}
}

static int read_on_data(
	struct guest_call *call, unsigned channel, const uint8_t *data, size_t len, struct err *err)
{
	struct read_call *self = read_of(call);

	if (!self->is_started || len > self->left || len > INT64_MAX - self->position) {
		return rpc_violation(err, "more output than was asked for");
	}
	self->position += len;
	self->left -= self->left == UINT64_MAX ? 0 : len;
	self->hooks.on_output(self->hooks.arg, channel == FRAME_CHANNEL_OUT ? 1 : 2, data, len);
	settle(self, channel, len);
	return 0;
}

static int read_on_gap(struct guest_call *call, uint64_t offset, struct err *err)
{
	struct read_call *self = read_of(call);

	if (offset <= self->position || offset > INT64_MAX) {
		return rpc_violation(err, "a gap that leads back");
	}
	self->position = offset;
	self->hooks.on_start(self->hooks.arg, offset);
	settle(self, FRAME_CHANNEL_OUT, PROTO_GAP_BYTES);
	return 0;
}

static int read_on_end(struct guest_call *call, struct err *err)
{
	struct read_call *self = read_of(call);

	if (!self->is_started || !call->end.has_offset || call->end.offset != self->position) {
		return rpc_violation(err, "an END of other output than came");
	}
	rpc_finish(call, NULL);
	return 0;
}

static bool read_is_guests_turn(const struct guest_call *call)
{
	const struct read_call *self = container_of(call, struct read_call, call);

	return self->withheld[FRAME_CHANNEL_OUT] == 0 && self->withheld[FRAME_CHANNEL_ERR] == 0;
}

static void read_done(struct guest_call *call, const struct err *err)
{
	struct read_call *self = read_of(call);
	struct guest_status status = rpc_status(call);

	self->hooks.on_done(self->hooks.arg, call->is_ended ? &status : NULL, err);
}

static const struct call_ops read_ops = {
	.on_started = read_on_started,
	.on_data = read_on_data,
	.on_gap = read_on_gap,
	.on_end = read_on_end,
	.is_guests_turn = read_is_guests_turn,
	.done = read_done,
};

bool agent_is_job_read(const struct guest_call *call)
{
	return call->ops == &read_ops;
}

void agent_job_read_pause(struct guest_call *call, bool is_paused)
{
	struct read_call *self = read_of(call);

	self->is_paused = is_paused;
	for (unsigned channel = FRAME_CHANNEL_OUT; !is_paused && channel < FRAME_CHANNEL_MAX;
		channel++) {
		size_t len = self->withheld[channel];

		self->withheld[channel] = 0;
		rpc_consume(call, channel, len);
	}
}

/* How long the guest may be silent; 0: for ever. */
static uint64_t patience_ms(const struct agent *agent, const struct guest_read_spec *spec)
{
	uint64_t idle = agent->driver->timing.idle_ms;

	return spec->is_followed || spec->wait_ms > UINT64_MAX / 2 ? 0 : spec->wait_ms + idle;
}

struct guest_call *agent_job_read(struct guest *guest, const struct guest_read_spec *spec,
	const struct guest_job_hooks *hooks, struct err *err)
{
	struct agent *agent = agent_of(guest);
	_cleanup_request_ struct request body = REQUEST_INIT;
	_cleanup_free_ struct read_call *self = xnew(struct read_call);
	struct rpc_request request = {.type = FRAME_JOB_READ,
		.body = &body,
		.ops = &read_ops,
		.idle_ms = patience_ms(agent, spec)};

	if (agent_put_id(agent, &body, spec->id, err) < 0) {
		return NULL;
	}
	request_u64(&body, MSG_OFFSET, spec->offset);
	if (spec->max != UINT64_MAX) {
		request_u64(&body, MSG_LENGTH, spec->max);
	}
	if (spec->is_followed) {
		request_u32(&body, MSG_JOB_FLAGS, MSG_JOB_FOLLOW);
	} else if (spec->wait_ms > 0) {
		request_u64(&body, MSG_WAIT_MS, spec->wait_ms);
	}
	self->hooks = *hooks;
	snprintf(self->id, sizeof self->id, "%s", spec->id);
	self->asked = spec->offset;
	self->left = spec->max;
	if (rpc_start(&agent->rpc, &self->call, &request, err) < 0) {
		return NULL;
	}
	return &steal_ptr(&self)->call;
}

/* ---- list ---- */

struct job_list_call {
	struct guest_call call;
	struct guest_job_hooks hooks;
	unsigned count;
};

/* The entry at the front; its length, or 0 where there is none that can be. */
static size_t decode_entry(struct msg_job *ret, const uint8_t *data, size_t len)
{
	size_t length = len >= 4 ? get_le32(data) : 0;
	struct msg_job job = {0};

	if (length < 4 || length > len) {
		return 0;
	}
	struct msg_reader r = {.buf = data + 4, .len = length - 4};

	for (struct msg_field f; msg_next(&r, &f);) {
		if (!msg_job_take(&r, &f, &job)) {
			r.bad = r.bad || (f.tag & MSG_CRITICAL) != 0;
		}
	}
	*ret = job;
	return r.bad || !msg_job_is_sound(&job) ? 0 : length;
}

static int list_on_data(
	struct guest_call *call, unsigned channel, const uint8_t *data, size_t len, struct err *err)
{
	struct job_list_call *self = container_of(call, struct job_list_call, call);

	for (size_t at = 0; at < len && !call->is_done;) {
		struct msg_job told;
		size_t n = decode_entry(&told, data + at, len - at);

		if (n == 0) {
			return rpc_violation(err, "a job that can't be");
		}
		if (self->count++ == PROTO_JOBS_RUNNING_MAX + PROTO_JOBS_ENDED_MAX) {
			return rpc_violation(err, "more jobs than there can be");
		}
		struct guest_job job = job_of(&told);

		self->hooks.on_job(self->hooks.arg, &job);
		at += n;
	}
	rpc_consume(call, channel, len);
	return 0;
}

static void list_done(struct guest_call *call, const struct err *err)
{
	struct job_list_call *self = container_of(call, struct job_list_call, call);
	struct guest_status status = rpc_status(call);

	self->hooks.on_done(self->hooks.arg, call->is_ended ? &status : NULL, err);
}

static const struct call_ops job_list_ops = {.on_data = list_on_data, .done = list_done};

struct guest_call *agent_job_list(
	struct guest *guest, const struct guest_job_hooks *hooks, struct err *err)
{
	struct agent *agent = agent_of(guest);
	_cleanup_request_ struct request body = REQUEST_INIT;
	_cleanup_free_ struct job_list_call *self = xnew(struct job_list_call);
	struct rpc_request request = {.type = FRAME_JOB_LIST,
		.body = &body,
		.ops = &job_list_ops,
		.timeout_ms = agent->driver->timing.system_ms,
		.is_reserved = true};

	if (agent_needs(agent, PROTO_FEATURE_JOBS, err) < 0) {
		return NULL;
	}
	self->hooks = *hooks;
	if (rpc_start(&agent->rpc, &self->call, &request, err) < 0) {
		return NULL;
	}
	return &steal_ptr(&self)->call;
}
