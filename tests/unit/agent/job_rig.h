#pragma once

/*
 * job_rig - what the tests of a guest's jobs share: calls about them, and a peer's answers
 */

#include "fixture.h"

/* Both "ex_1", with the bytes from 100 to 200. */
extern const struct msg_job job_running;
extern const struct msg_job job_ended;

struct guest_call *job_begin_read(
	struct fixture *f, const struct guest_read_spec *spec, struct record *record);
void job_begin_list(struct fixture *f, struct record *record);

void job_send_started(
	struct peer *peer, uint32_t stream, const struct msg_job *job, uint64_t offset);
void job_send_end_at(struct peer *peer, uint32_t stream, uint64_t offset);
void job_send_gap(struct peer *peer, uint32_t stream, uint64_t offset);
/* @job so many times, in one frame on stream 1. */
void job_send_entries(struct peer *peer, const struct msg_job *job, unsigned times);
