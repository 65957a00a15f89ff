#include "fixture.h"

#include "tests/lib/cm.h"

#include <stdio.h>
#include <string.h>

#include "base/xalloc.h"

const struct guest_timing fixture_timing = {
	.chan =
		{
			.sync_retry_ms = 20,
			.hello_ms = 200,
			.ping_idle_ms = 100,
			.ping_busy_ms = 50,
			.pong_ms = 150,
			.penalty_ms = 20,
		},
	.exec_margin_ms = 50,
	.cancel_ms = 100,
	.idle_ms = 100,
	.system_ms = 100,
};

const struct guest_timing fixture_patient = {
	.chan =
		{
			.sync_retry_ms = PROTO_SYNC_RETRY_MS,
			.hello_ms = PEER_PATIENCE_MS,
			.ping_idle_ms = PEER_PATIENCE_MS,
			.ping_busy_ms = PEER_PATIENCE_MS,
			.pong_ms = PEER_PATIENCE_MS,
			.penalty_ms = 10,
		},
	.exec_margin_ms = PEER_PATIENCE_MS,
	.cancel_ms = PEER_PATIENCE_MS,
	.idle_ms = PEER_PATIENCE_MS,
	.system_ms = PEER_PATIENCE_MS,
};

void fixture_on_state(void *arg, enum guest_state state, const struct err *err)
{
	struct fixture *f = arg;

	assert_false(f->in_call);
	if (state == GUEST_READY) {
		assert_null(err);
		f->ready++;
	} else {
		assert_int_equal(state, GUEST_DOWN);
		assert_non_null(err);
		f->down++;
		f->down_err = *err;
	}
}

void fixture_init(struct fixture *f, const struct guest_timing *timing)
{
	struct err err;

	*f = (struct fixture){0};
	f->loop = loop_new(&err);
	assert_non_null(f->loop);
	f->driver = guest_agent_driver_new(f->loop, timing);
	peer_init(&f->peer, f->loop);
	struct guest_hooks hooks = {.on_state = fixture_on_state, .arg = f};

	f->guest = f->driver->ops->open(f->driver, f->peer.path, NULL, &hooks);
	assert_int_equal(f->driver->ops->state(f->guest), GUEST_CONNECTING);
}

void fixture_fini(struct fixture *f)
{
	if (f->guest) {
		f->driver->ops->close(f->guest);
	}
	peer_fini(&f->peer);
	peer_turns(&f->peer, 2);
	guest_agent_driver_free(f->driver);
	loop_free(f->loop);
}

struct count {
	const unsigned *value;
	unsigned wanted;
};

static bool has_count(const void *arg)
{
	const struct count *count = arg;

	return *count->value >= count->wanted;
}

void fixture_wait_ready(struct fixture *f, unsigned n)
{
	peer_wait(&f->peer, has_count, &(struct count){&f->ready, n});
}

void fixture_wait_down(struct fixture *f, unsigned n)
{
	peer_wait(&f->peer, has_count, &(struct count){&f->down, n});
}

void fixture_wait_done(struct fixture *f, const struct record *record)
{
	peer_wait(&f->peer, has_count, &(struct count){&record->done, 1});
}

void fixture_start(struct fixture *f)
{
	peer_listen(&f->peer);
	peer_start_session(&f->peer);
	fixture_wait_ready(f, 1);
}

static void note(struct record *record, const struct guest_status *status, const struct err *err)
{
	record->done++;
	record->err = err ? *err : ERR_INIT;
	record->has_status = status != NULL;
	if (status) {
		record->status = status->status;
		record->sys = status->sys;
		snprintf(record->text, sizeof record->text, "%s", status->text);
	}
}

void record_done(void *arg, const struct guest_status *status, const struct err *err)
{
	note(arg, status, err);
}

static void on_exec_started(void *arg)
{
	struct record *record = arg;

	assert_int_equal(record->output[1] + record->output[2] + record->done, 0);
	record->started++;
}

static void on_output(void *arg, int fd, const void *data, size_t len)
{
	struct record *record = arg;

	assert_true(fd == 1 || fd == 2);
	assert_int_equal(record->done, 0);
	for (size_t i = 0; i < len && record->output[fd] + i < sizeof record->head[fd] - 1; i++) {
		record->head[fd][record->output[fd] + i] = ((const char *)data)[i];
	}
	record->output[fd] += len;
}

static void on_exec_done(void *arg, const struct guest_exec_result *result, const struct err *err)
{
	struct record *record = arg;

	note(record, NULL, err);
	record->has_result = result != NULL;
	if (result) {
		record->result = *result;
	}
}

const struct guest_exec_hooks record_exec_hooks = {
	.on_started = on_exec_started, .on_output = on_output, .on_done = on_exec_done};

static void on_job(void *arg, const struct guest_job *job)
{
	struct record *record = arg;

	assert_int_equal(record->starts + record->done, 0);
	record->jobs++;
	record->job = *job;
}

static void on_start(void *arg, uint64_t offset)
{
	struct record *record = arg;

	assert_int_equal(record->jobs, 1);
	record->starts++;
	record->start = offset;
}

const struct guest_job_hooks record_job_hooks = {
	.on_job = on_job, .on_start = on_start, .on_output = on_output, .on_done = record_done};

static void on_entry(void *arg, const struct guest_entry *entry)
{
	struct record *record = arg;

	assert_true(entry->name_len > 0);
	assert_int_equal(record->done, 0);
	record->entries++;
	record->info = (struct guest_file_info){
		.size = entry->size, .mode = entry->mode, .mtime_ms = entry->mtime_ms};
}

static void on_list_done(
	void *arg, bool is_cut, const struct guest_status *status, const struct err *err)
{
	struct record *record = arg;

	note(record, status, err);
	record->is_cut = is_cut;
}

const struct guest_list_hooks record_list_hooks = {.on_entry = on_entry, .on_done = on_list_done};

static void on_info(void *arg, const struct guest_file_info *info)
{
	struct record *record = arg;

	record->infos++;
	record->info = *info;
}

const struct guest_get_hooks record_get_hooks = {.on_info = on_info, .on_done = record_done};

struct guest_call *fixture_exec(struct fixture *f, struct record *record, const char *command)
{
	struct guest_exec_spec spec = {.command = command, .output_cap = 1 << 20};
	struct guest_exec_hooks hooks = record_exec_hooks;
	struct err err;

	hooks.arg = record;
	f->in_call = true;
	struct guest_call *call = f->driver->ops->exec(f->guest, &spec, &hooks, &err);

	f->in_call = false;
	assert_non_null(call);
	assert_int_equal(record->done, 0);
	return call;
}

struct guest_call *fixture_put(
	struct fixture *f, struct record *record, struct pipe *body, uint64_t length)
{
	struct guest_file_spec spec = {.path = "/tmp/x", .path_len = 6, .length = length};
	struct err err;
	struct guest_call *call = f->driver->ops->put(
		f->guest, &spec, body, record_done, record, &err);

	assert_non_null(call);
	assert_int_equal(record->done, 0);
	return call;
}

struct guest_call *fixture_get(struct fixture *f, struct record *record, struct pipe *body)
{
	struct guest_file_spec spec = {.path = "/tmp/x", .path_len = 6, .length = UINT64_MAX};
	struct guest_get_hooks hooks = record_get_hooks;
	struct err err;

	hooks.arg = record;
	struct guest_call *call = f->driver->ops->get(f->guest, &spec, body, &hooks, &err);

	assert_non_null(call);
	assert_int_equal(record->done, 0);
	return call;
}

struct guest_call *fixture_list(struct fixture *f, struct record *record, uint32_t limit)
{
	struct guest_file_spec spec = {.path = "/tmp", .path_len = 4, .limit = limit};
	struct guest_list_hooks hooks = record_list_hooks;
	struct err err;

	hooks.arg = record;
	struct guest_call *call = f->driver->ops->list(f->guest, &spec, &hooks, &err);

	assert_non_null(call);
	assert_int_equal(record->done, 0);
	return call;
}
