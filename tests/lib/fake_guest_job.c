#include <event2/buffer.h>
#include <stdio.h>

#include "proto/msg.h"
#include "tests/lib/fake_guest_priv.h"

/*
 * Theory of operation
 *
 * A job belongs to its machine. What its program writes goes into the job's pipe, and from there
 * into the ring as far as the foremost follower lets it; the job ends when its program has and the
 * pipe is empty. Calls find their job by its id each time that they act, so one that was forgotten
 * in the meantime is not found. A call that waits for something of a job has its timer fired when
 * the job changes.
 */

#define ENDED_RING_BYTES (64u * 1024)
#define STDIN_BYTES      (64u * 1024)

static struct fake_task *job_of(struct fake_machine *machine, const char *id)
{
	struct fake_task *job;

	TAILQ_FOREACH (job, &machine->jobs, link) {
		if (strcmp(job->is.id, id) == 0) {
			return job;
		}
	}
	return NULL;
}

/* The calls that are about @job, one after the other. */
static struct guest_call *next_call(const struct fake_task *job, struct guest_call *call)
{
	struct channel *channel;

	if (call) {
		call = TAILQ_NEXT(call, link);
	} else {
		TAILQ_FOREACH (channel, &job->fake->channels, link) {
			if (strcmp(channel->socket, job->machine->socket) == 0) {
				call = TAILQ_FIRST(&channel->calls);
			}
		}
	}
	while (call && (!call->id || strcmp(call->id, job->is.id) != 0)) {
		call = TAILQ_NEXT(call, link);
	}
	return call;
}

static void wake(const struct fake_task *job)
{
	for (struct guest_call *call = NULL; (call = next_call(job, call));) {
		bool waits = call->op == FAKE_GUEST_JOB_READ || call->op == FAKE_GUEST_JOB_WAIT ||
			     call->op == FAKE_GUEST_JOB_INPUT;

		if (waits && call->has_begun) {
			set_timer(call->timer, 0);
		}
	}
}

/* ---- the ring ---- */

static void move_output(struct fake_output *from, struct fake_output *to, size_t len)
{
	evbuffer_remove_buffer(from->data, to->data, len);
	evbuffer_remove_buffer(from->fds, to->fds, len);
}

static void drop_oldest(struct fake_task *job, size_t keep)
{
	size_t len = evbuffer_get_length(job->ring.data);

	if (len > keep) {
		evbuffer_drain(job->ring.data, len - keep);
		evbuffer_drain(job->ring.fds, len - keep);
		job->is.first_offset += len - keep;
	}
}

/* How far the ring may go: what the foremost follower hasn't had stays in it. */
static uint64_t limit_of(const struct fake_task *job)
{
	uint64_t limit = UINT64_MAX;
	uint64_t foremost = 0;

	for (struct guest_call *call = NULL; (call = next_call(job, call));) {
		if (call->op == FAKE_GUEST_JOB_READ && call->has_begun && call->read.is_followed) {
			foremost = MAX(foremost, call->position);
			limit = foremost + job->fake->ring_bytes;
		}
	}
	return limit;
}

static void end_job(struct fake_task *job)
{
	struct fake_task *oldest;
	unsigned ended = 0;

	job->is.result = job->process->result;
	job->is.is_running = false;
	fake_process_free(steal_ptr(&job->process));
	job->has_stdin = false;
	drop_oldest(job, MIN(job->fake->ring_bytes, ENDED_RING_BYTES));
	wake(job);
	TAILQ_FOREACH (oldest, &job->machine->jobs, link) {
		ended += !oldest->is.is_running;
	}
	if (ended > FAKE_JOBS_ENDED_MAX) {
		TAILQ_FOREACH (oldest, &job->machine->jobs, link) {
			if (!oldest->is.is_running) {
				fake_task_free(oldest);
				return;
			}
		}
	}
}

/* From the pipe into the ring. */
static void pump(struct fake_task *job)
{
	uint64_t room = limit_of(job) - job->is.end_offset;
	size_t len = (size_t)MIN(room, evbuffer_get_length(job->pipe.data));

	if (len > 0) {
		move_output(&job->pipe, &job->ring, len);
		job->is.end_offset += len;
		drop_oldest(job, job->fake->ring_bytes);
		wake(job);
	}
	if (job->has_exited && job->process && evbuffer_get_length(job->pipe.data) == 0) {
		end_job(job);
	}
}

void fake_task_output(struct fake_task *job, int fd, const void *data, size_t len)
{
	evbuffer_add(job->pipe.data, data, len);
	for (size_t i = 0; i < len; i++) {
		evbuffer_add(job->pipe.fds, &(char){(char)fd}, 1);
	}
	pump(job);
}

void fake_task_exited(struct fake_task *job)
{
	job->has_exited = true;
	pump(job);
}

/* ---- start and end ---- */

static void init_output(struct fake_output *output)
{
	output->data = evbuffer_new();
	output->fds = evbuffer_new();
}

static void free_output(struct fake_output *output)
{
	evbuffer_free(output->data);
	evbuffer_free(output->fds);
}

void fake_task_free(struct fake_task *job)
{
	wake(job);
	if (job->process) {
		fake_process_free(job->process);
	}
	TAILQ_REMOVE(&job->machine->jobs, job, link);
	free_output(&job->ring);
	free_output(&job->pipe);
	evbuffer_free(job->input);
	free(job);
}

static void answer(struct guest_call *call, uint32_t status, const char *why)
{
	call->has_effect = true;
	call->status = status;
	snprintf(call->why, sizeof call->why, "%s", why);
}

static void start_job(struct guest_call *call, const struct guest_job_spec *spec)
{
	struct fake_task *job;
	unsigned running = 0;

	TAILQ_FOREACH (job, &call->machine->jobs, link) {
		running += job->is.is_running;
	}
	if (job_of(call->machine, call->id)) {
		answer(call, STATUS_EXISTS, "there is a command of this id");
		return;
	}
	if (running >= FAKE_JOBS_RUNNING_MAX) {
		answer(call, STATUS_LIMIT, "too many background commands run");
		return;
	}
	job = xnew(struct fake_task);
	job->fake = call->fake;
	job->machine = call->machine;
	snprintf(job->is.id, sizeof job->is.id, "%s", call->id);
	job->is.is_running = true;
	job->is.has_tty = spec->has_tty;
	job->has_stdin = spec->keep_stdin || spec->has_tty;
	job->view = (struct fake_job_view){.rows = spec->rows, .cols = spec->cols};
	snprintf(job->view.shell, sizeof job->view.shell, "%s", call->shell ? call->shell : "");
	init_output(&job->ring);
	init_output(&job->pipe);
	job->input = evbuffer_new();
	TAILQ_INSERT_TAIL(&call->machine->jobs, job, link);

	struct guest_job_spec copy = {.exec = {.id = call->id,
					      .command = call->command,
					      .shell = call->shell,
					      .env = call->env,
					      .timeout_ms = call->timeout_ms,
					      .output_cap = UINT64_MAX}};

	job->process = fake_process_new(job, &copy);
	answer(call, STATUS_OK, "");
}

/* ---- calls ---- */

static void send_signal(struct guest_call *call)
{
	struct fake_task *job = job_of(call->machine, call->id);
	struct guest_call *exec;

	if (job && job->process) {
		job->view.signal = call->signal;
		fake_process_signal(job->process, call->signal);
		answer(call, STATUS_OK, "");
		return;
	}
	TAILQ_FOREACH (exec, &call->channel->calls, link) {
		if (exec->op == FAKE_GUEST_EXEC && exec->has_begun && exec->id &&
			strcmp(exec->id, call->id) == 0) {
			answer(call, STATUS_OK, "");
			fake_process_signal(exec, call->signal);
			return;
		}
	}
	answer(call, STATUS_NOT_FOUND, "no such command runs");
}

static void resize(struct guest_call *call, struct fake_task *job)
{
	if (!job->is.has_tty) {
		answer(call, STATUS_INVALID, "it has no terminal");
		return;
	}
	job->view.rows = call->rows;
	job->view.cols = call->cols;
	answer(call, STATUS_OK, "");
	if (job->process) {
		fake_process_on_winsize(job->process);
	}
}

static void forget(struct guest_call *call, struct fake_task *job)
{
	if (job->is.is_running) {
		answer(call, STATUS_INVALID, "it still runs");
		return;
	}
	fake_task_free(job);
	answer(call, STATUS_OK, "");
}

void fake_task_effect(struct guest_call *call)
{
	struct fake_task *job = job_of(call->machine, call->id);

	if (call->has_effect) {
		return;
	}
	if (call->op == FAKE_GUEST_JOB_START) {
		start_job(call, &call->start);
	} else if (call->op == FAKE_GUEST_SIGNAL) {
		send_signal(call);
	} else if (!job) {
		answer(call, STATUS_NOT_FOUND, "no such command");
	} else if (call->op == FAKE_GUEST_JOB_RESIZE) {
		resize(call, job);
	} else if (call->op == FAKE_GUEST_JOB_FORGET) {
		forget(call, job);
	}
}

static void end_by_status(struct guest_call *call)
{
	enum err_kind kind = call->status == STATUS_LIMIT ? ERR_RATE : ERR_GUEST;

	if (call->status == STATUS_OK) {
		fake_call_end(call, STATUS_OK, NULL);
	} else {
		fake_call_fail(call, kind, call->status, call->why);
	}
}

static void not_found(struct guest_call *call)
{
	fake_call_fail(call, ERR_GUEST, STATUS_NOT_FOUND, "no such command");
}

static void act_wait(struct guest_call *call, struct fake_task *job)
{
	call->has_begun = true;
	if (!job->is.is_running) {
		call->result = job->is.result;
		fake_call_end(call, STATUS_OK, NULL);
	}
}

static void on_input(void *arg)
{
	struct guest_call *call = arg;
	struct fake_task *job = job_of(call->machine, call->id);
	const struct err *failure = pipe_failure(call->body);

	if (!job) {
		not_found(call);
		return;
	}
	if (failure) {
		struct err err = *failure;

		fake_call_end(call, 0, &err);
		return;
	}
	while (job->has_stdin && pipe_available(call->body) > 0 &&
		evbuffer_get_length(job->input) < STDIN_BYTES) {
		pipe_read_buffer(
			call->body, job->input, STDIN_BYTES - evbuffer_get_length(job->input));
		fake_process_on_input(job->process);
	}
	if (!job->has_stdin) {
		fake_call_fail(call, ERR_GUEST, STATUS_INVALID, "its stdin isn't open");
	} else if (pipe_is_end(call->body)) {
		job->has_stdin = !call->closes;
		fake_process_on_input(job->process);
		fake_call_end(call, STATUS_OK, NULL);
	}
}

static void act_input(struct guest_call *call)
{
	if (!call->has_begun) {
		call->has_begun = true;
		pipe_set_reader(call->body, on_input, call);
	}
	on_input(call);
}

/* As it is now: who is told may have any of them forgotten. */
static void act_list(struct guest_call *call)
{
	struct guest_job copies[FAKE_JOBS_RUNNING_MAX + FAKE_JOBS_ENDED_MAX];
	struct fake_task *job;
	size_t count = 0;

	TAILQ_FOREACH (job, &call->machine->jobs, link) {
		ASSERT(count < ARRAY_SIZE(copies));
		copies[count++] = job->is;
	}
	for (size_t i = 0; i < count && !call->is_ended; i++) {
		call->job_hooks.on_job(call->job_hooks.arg, &copies[i]);
	}
	if (!call->is_ended) {
		fake_call_end(call, STATUS_OK, NULL);
	}
}

/* ---- reading ---- */

static bool begin_read(struct guest_call *call, const struct fake_task *job)
{
	struct guest_job copy = job->is;

	if (call->read.offset > job->is.end_offset) {
		fake_call_fail(call, ERR_GUEST, STATUS_INVALID, "the offset is beyond the end");
		return false;
	}
	call->has_begun = true;
	call->position = MAX(call->read.offset, job->is.first_offset);
	if (call->job_hooks.on_job) {
		call->job_hooks.on_job(call->job_hooks.arg, &copy);
	}
	if (!call->is_ended) {
		call->job_hooks.on_start(call->job_hooks.arg, call->position);
	}
	return !call->is_ended;
}

/* One run of one descriptor, or a part of it. Callbacks may end the call. */
static void hand_on_run(struct guest_call *call, struct fake_task *job)
{
	size_t at = (size_t)(call->position - job->is.first_offset);
	const unsigned char *fds = evbuffer_pullup(job->ring.fds, -1) + at;
	const unsigned char *data = evbuffer_pullup(job->ring.data, -1) + at;
	size_t left = (size_t)MIN(call->read.max, job->is.end_offset - call->position);
	size_t n = 1;
	unsigned char block[4096];
	int fd = fds[0];

	while (n < MIN(left, sizeof block) && fds[n] == fds[0]) {
		n++;
	}
	memcpy(block, data, n);
	call->position += n;
	call->read.max -= call->read.max == UINT64_MAX ? 0 : n;
	pump(job);
	call->job_hooks.on_output(call->job_hooks.arg, fd, block, n);
}

static void act_read(struct guest_call *call, struct fake_task *job)
{
	bool had_begun = call->has_begun;

	if (!had_begun && !begin_read(call, job)) {
		return;
	}
	/* Each callback may do anything, so the job is looked up again. */
	while (!call->is_ended && !call->is_cancelled && !call->is_paused && call->read.max > 0 &&
		(job = job_of(call->machine, call->id)) && call->position < job->is.end_offset) {
		if (call->position < job->is.first_offset) {
			call->position = job->is.first_offset;
			call->job_hooks.on_start(call->job_hooks.arg, call->position);
			continue;
		}
		call->has_waited = true;
		hand_on_run(call, job);
	}
	if (call->is_ended || call->is_cancelled || call->is_paused) {
		return;
	}
	if (!job) {
		not_found(call);
		return;
	}
	bool may_wait = call->read.is_followed || (call->read.wait_ms > 0 && !call->has_waited);

	if (call->read.max == 0 || !job->is.is_running || !may_wait) {
		fake_call_end(call, STATUS_OK, NULL);
	} else if (!call->read.is_followed) {
		/* The next time is the last. */
		call->has_waited = true;
		set_timer(call->timer, (unsigned)MIN(call->read.wait_ms, UINT32_MAX));
	}
}

void fake_task_read_on(struct guest_call *call)
{
	if (!call->is_paused && call->has_begun) {
		set_timer(call->timer, 0);
	}
}

void fake_task_act(struct guest_call *call)
{
	struct fake_task *job = call->id ? job_of(call->machine, call->id) : NULL;

	switch ((int)call->op) {
	case FAKE_GUEST_JOB_LIST:
		act_list(call);
		return;
	case FAKE_GUEST_JOB_WAIT:
	case FAKE_GUEST_JOB_READ:
	case FAKE_GUEST_JOB_INPUT:
		break;
	default:
		fake_task_effect(call);
		end_by_status(call);
		return;
	}
	if (!job) {
		not_found(call);
	} else if (call->op == FAKE_GUEST_JOB_WAIT) {
		act_wait(call, job);
	} else if (call->op == FAKE_GUEST_JOB_READ) {
		act_read(call, job);
	} else {
		act_input(call);
	}
}

/* ---- the driver's functions ---- */

static struct guest_call *call_for(
	struct guest *guest, enum fake_guest_op op, const char *id, struct err *err)
{
	struct guest_call *call = fake_call_new(guest, op, err);

	if (call && id) {
		call->id = xstrdup(id);
	}
	return call;
}

/* As a real guest would: at once, even if its answer comes late or never. */
static void start_effect(struct guest_call *call, guest_done_fn done, void *arg)
{
	call->done = done;
	call->arg = arg;
	if (call->script.mode == FAKE_OK || call->script.mode == FAKE_EFFECT_FAIL) {
		fake_task_effect(call);
	}
}

struct guest_call *fake_signal(struct guest *guest, const char *id, int signal, guest_done_fn done,
	void *arg, struct err *err)
{
	struct guest_call *call = call_for(guest, FAKE_GUEST_SIGNAL, id, err);

	/* It may end an EXEC, whose caller hears of it: not from within this call. */
	if (call) {
		call->signal = signal;
		call->done = done;
		call->arg = arg;
	}
	return call;
}

struct guest_call *fake_task_start(struct guest *guest, const struct guest_job_spec *spec,
	guest_done_fn done, void *arg, struct err *err)
{
	struct guest_call *call = fake_call_new(guest, FAKE_GUEST_JOB_START, err);

	ASSERT(spec->exec.id != NULL && strlen(spec->exec.id) < sizeof((struct guest_job *)0)->id);
	if (!call) {
		return NULL;
	}
	fake_process_take(call, &spec->exec);
	if (spec->has_tty && !spec->exec.command && !spec->exec.args) {
		free(call->command);
		call->command = xstrdup("shell");
	}
	call->start = *spec;
	start_effect(call, done, arg);
	return call;
}

struct guest_call *fake_task_wait(
	struct guest *guest, const char *id, const struct guest_exec_hooks *hooks, struct err *err)
{
	struct guest_call *call = call_for(guest, FAKE_GUEST_JOB_WAIT, id, err);

	if (call) {
		call->exec_hooks = *hooks;
	}
	return call;
}

struct guest_call *fake_task_read(struct guest *guest, const struct guest_read_spec *spec,
	const struct guest_job_hooks *hooks, struct err *err)
{
	struct guest_call *call = call_for(guest, FAKE_GUEST_JOB_READ, spec->id, err);

	if (call) {
		call->read = *spec;
		call->job_hooks = *hooks;
	}
	return call;
}

struct guest_call *fake_task_input(struct guest *guest, const char *id, struct pipe *input,
	bool closes, guest_done_fn done, void *arg, struct err *err)
{
	struct guest_call *call = call_for(guest, FAKE_GUEST_JOB_INPUT, id, err);

	if (call) {
		call->body = input;
		call->closes = closes;
		call->done = done;
		call->arg = arg;
	}
	return call;
}

struct guest_call *fake_task_resize(struct guest *guest, const char *id, unsigned rows,
	unsigned cols, guest_done_fn done, void *arg, struct err *err)
{
	struct guest_call *call = call_for(guest, FAKE_GUEST_JOB_RESIZE, id, err);

	if (call) {
		call->rows = rows;
		call->cols = cols;
		start_effect(call, done, arg);
	}
	return call;
}

struct guest_call *fake_task_list(
	struct guest *guest, const struct guest_job_hooks *hooks, struct err *err)
{
	struct guest_call *call = call_for(guest, FAKE_GUEST_JOB_LIST, NULL, err);

	if (call) {
		call->job_hooks = *hooks;
	}
	return call;
}

struct guest_call *fake_task_forget(
	struct guest *guest, const char *id, guest_done_fn done, void *arg, struct err *err)
{
	struct guest_call *call = call_for(guest, FAKE_GUEST_JOB_FORGET, id, err);

	if (call) {
		start_effect(call, done, arg);
	}
	return call;
}
