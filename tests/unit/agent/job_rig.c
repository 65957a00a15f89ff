#include "job_rig.h"

#include "tests/lib/cm.h"

const struct msg_job job_running = {
	.id = "ex_1", .flags = MSG_JOB_RUNNING, .first_offset = 100, .end_offset = 200};
const struct msg_job job_ended = {.id = "ex_1",
	.first_offset = 100,
	.end_offset = 200,
	.exit_code = 3,
	.out_bytes = 150,
	.err_bytes = 50,
	.duration_us = 7};

struct guest_call *job_begin_read(
	struct fixture *f, const struct guest_read_spec *spec, struct record *record)
{
	struct guest_job_hooks hooks = record_job_hooks;
	struct err err;

	*record = (struct record){0};
	hooks.arg = record;
	struct guest_call *call = f->driver->ops->job_read(f->guest, spec, &hooks, &err);

	assert_non_null(call);
	assert_int_equal(record->jobs + record->done, 0);
	return call;
}

void job_send_started(
	struct peer *peer, uint32_t stream, const struct msg_job *job, uint64_t offset)
{
	uint8_t body[MSG_JOB_MAX_BYTES + 32];
	struct msg_writer w = {.buf = body, .size = sizeof body};

	msg_job_put(&w, job);
	msg_put_u64(&w, MSG_OFFSET, offset);
	peer_send(peer, FRAME_STARTED, 0, stream, body, w.len);
}

void job_send_end_at(struct peer *peer, uint32_t stream, uint64_t offset)
{
	uint8_t body[64];
	struct msg_writer w = {.buf = body, .size = sizeof body};

	msg_put_u32(&w, MSG_STATUS, STATUS_OK);
	msg_put_u64(&w, MSG_OFFSET, offset);
	peer_send(peer, FRAME_END, 0, stream, body, w.len);
}

void job_send_gap(struct peer *peer, uint32_t stream, uint64_t offset)
{
	uint8_t raw[8];

	put_le64(raw, offset);
	peer_send(peer, FRAME_GAP, 0, stream, raw, sizeof raw);
}

void job_send_entries(struct peer *peer, const struct msg_job *job, unsigned times)
{
	uint8_t body[PROTO_PAYLOAD_MAX_BYTES];
	size_t used = 0;

	for (unsigned i = 0; i < times; i++) {
		struct msg_writer w = {.buf = body + used + 4, .size = sizeof body - used - 4};

		msg_job_put(&w, job);
		put_le32(body + used, (uint32_t)(4 + w.len));
		used += 4 + w.len;
	}
	peer_send(peer, FRAME_DATA, FRAME_CHANNEL_OUT, 1, body, used);
}

void job_begin_list(struct fixture *f, struct record *record)
{
	struct guest_job_hooks hooks = record_job_hooks;
	struct err err;

	*record = (struct record){0};
	hooks.arg = record;
	assert_non_null(f->driver->ops->job_list(f->guest, &hooks, &err));
}
