#include "tests/lib/fake_guest.h"

#include <sys/stat.h>

#include "base/clock.h"
#include "proto/msg.h"
#include "tests/lib/fake_guest_priv.h"

/*
 * Theory of operation
 *
 * A machine is made when something first needs it and goes with its domain. A channel (struct
 * guest) is found by its socket's path. A call has one timer; when that fires the call acts: it
 * fails, moves file bytes, or runs its program. Calls that wait for pipes act from the pipes'
 * callbacks. call_end() is the one place where a call is answered and freed.
 */

/* ---- machines ---- */

struct fake_machine *fake_machine_of(struct fake_guest *fake, const char *socket)
{
	struct fake_machine *machine;

	TAILQ_FOREACH (machine, &fake->machines, link) {
		if (strcmp(machine->socket, socket) == 0) {
			return machine;
		}
	}
	machine = xnew(struct fake_machine);
	machine->socket = xstrdup(socket);
	TAILQ_INIT(&machine->files);
	TAILQ_INIT(&machine->jobs);
	TAILQ_INSERT_TAIL(&fake->machines, machine, link);
	return machine;
}

static struct fake_file *file_of(struct fake_machine *machine, const char *path, bool make)
{
	struct fake_file *file;

	TAILQ_FOREACH (file, &machine->files, link) {
		if (strcmp(file->path, path) == 0) {
			return file;
		}
	}
	if (!make) {
		return NULL;
	}
	file = xnew(struct fake_file);
	file->path = xstrdup(path);
	file->bytes = evbuffer_new();
	file->mode = S_IFREG | 0644;
	TAILQ_INSERT_TAIL(&machine->files, file, link);
	return file;
}

void fake_machine_free(struct fake_guest *fake, struct fake_machine *machine)
{
	struct fake_file *file;

	while ((file = TAILQ_FIRST(&machine->files))) {
		TAILQ_REMOVE(&machine->files, file, link);
		evbuffer_free(file->bytes);
		free(file->path);
		free(file);
	}
	while (!TAILQ_EMPTY(&machine->jobs)) {
		fake_task_free(TAILQ_FIRST(&machine->jobs));
	}
	TAILQ_REMOVE(&fake->machines, machine, link);
	strv_free(machine->settings.env);
	free(machine->settings.ca_pem);
	free(machine->socket);
	free(machine);
}

/* ---- calls ---- */

static void free_body(struct guest_call *call, const struct err *err)
{
	if (!call->body) {
		return;
	}
	if (call->op == FAKE_GUEST_GET) {
		if (err) {
			pipe_fail(call->body, err);
		} else {
			pipe_close(call->body);
		}
		pipe_writer_free(call->body);
	} else {
		pipe_reader_free(call->body);
	}
	call->body = NULL;
}

static void free_output(struct fake_output *output)
{
	evbuffer_free(output->data);
	evbuffer_free(output->fds);
}

static void call_free(struct guest_call *call)
{
	event_free(call->timer);
	evbuffer_free(call->bytes);
	evbuffer_free(call->tails[0]);
	evbuffer_free(call->tails[1]);
	free_output(&call->held);
	strv_free(call->env);
	free(call->id);
	free(call->shell);
	free(call->command);
	free(call->path);
	free(call);
}

void fake_free_dead(void *arg)
{
	struct fake_guest *fake = arg;

	while (!TAILQ_EMPTY(&fake->dead)) {
		struct guest_call *call = TAILQ_FIRST(&fake->dead);

		TAILQ_REMOVE(&fake->dead, call, link);
		call_free(call);
	}
}

static void bury(struct guest_call *call)
{
	call->is_ended = true;
	evtimer_del(call->timer);
	if (TAILQ_EMPTY(&call->fake->dead)) {
		loop_defer(call->fake->loop, fake_free_dead, call->fake);
	}
	TAILQ_INSERT_TAIL(&call->fake->dead, call, link);
}

void fake_process_free(struct guest_call *process)
{
	bury(process);
}

void fake_call_end(struct guest_call *call, uint32_t status, const struct err *err)
{
	struct guest_status word = {.status = status, .text = msg_status_name(status)};
	const struct guest_status *said = err && err->kind == ERR_GUEST ? &word : NULL;

	if (call->is_ended) {
		return;
	}
	if (call->job) {
		fake_task_exited(call->job);
		return;
	}
	TAILQ_REMOVE(&call->channel->calls, call, link);
	bury(call);
	free_body(call, err);
	switch (call->op) {
	case FAKE_GUEST_EXEC:
	case FAKE_GUEST_JOB_WAIT:
		call->exec_hooks.on_done(call->exec_hooks.arg, err ? NULL : &call->result, err);
		break;
	case FAKE_GUEST_GET:
		call->get_hooks.on_done(call->get_hooks.arg, said, err);
		break;
	case FAKE_GUEST_LIST:
		call->list_hooks.on_done(call->list_hooks.arg, false, said, err);
		break;
	case FAKE_GUEST_JOB_READ:
	case FAKE_GUEST_JOB_LIST:
		call->job_hooks.on_done(call->job_hooks.arg, said, err);
		break;
	case FAKE_GUEST_CONFIGURE:
	case FAKE_GUEST_PUT:
	case FAKE_GUEST_SHUTDOWN:
	case FAKE_GUEST_SIGNAL:
	case FAKE_GUEST_JOB_START:
	case FAKE_GUEST_JOB_INPUT:
	case FAKE_GUEST_JOB_RESIZE:
	case FAKE_GUEST_JOB_FORGET:
	case FAKE_GUEST_OP_MAX:
	default:
		call->done(call->arg, said, err);
		break;
	}
}

void fake_call_fail(struct guest_call *call, enum err_kind kind, uint32_t status, const char *why)
{
	struct err err;

	err_set(&err, kind, "%s", why);
	fake_call_end(call, status, &err);
}

/* Replaces the file, or with an offset what is from there on, as far as the new bytes reach. */
static void write_file(struct fake_file *file, struct guest_call *call)
{
	size_t size = evbuffer_get_length(file->bytes);
	size_t offset = call->spec.append ? size : (size_t)call->spec.offset;
	struct evbuffer *old = evbuffer_new();

	evbuffer_add_buffer(old, file->bytes);
	evbuffer_remove_buffer(old, file->bytes, MIN(offset, size));
	while (evbuffer_get_length(file->bytes) < offset) {
		evbuffer_add(file->bytes, "", 1);
	}
	if (offset > 0) {
		evbuffer_drain(old, evbuffer_get_length(call->bytes));
	} else {
		evbuffer_drain(old, size);
	}
	evbuffer_add_buffer(file->bytes, call->bytes);
	evbuffer_add_buffer(file->bytes, old);
	evbuffer_free(old);
}

/* What a machine's disk holds of one file. */
#define FILE_MAX_BYTES (256u * 1024 * 1024)

/* stdin of an exec and the body of a PUT: read to the end, then act. */
static void on_body(void *arg)
{
	struct guest_call *call = arg;
	const struct err *failure = pipe_failure(call->body);

	if (failure) {
		struct err err = *failure;

		fake_call_end(call, 0, &err);
		return;
	}
	pipe_read_buffer(call->body, call->bytes, SIZE_MAX);
	if (call->channel->fake->discards) {
		call->channel->fake->discarded_bytes += evbuffer_get_length(call->bytes);
		evbuffer_drain(call->bytes, evbuffer_get_length(call->bytes));
	}
	if (!pipe_is_end(call->body)) {
		return;
	}
	free_body(call, NULL);
	if (call->op == FAKE_GUEST_EXEC) {
		fake_process_run(call);
		return;
	}
	struct fake_file *file = file_of(call->machine, call->path, true);

	if (call->spec.offset > FILE_MAX_BYTES) {
		struct err err;

		err_set(&err, ERR_GUEST, "the machine has no room for that");
		fake_call_end(call, STATUS_NO_SPACE, &err);
		return;
	}
	write_file(file, call);
	if (call->spec.mode) {
		file->mode = S_IFREG | (call->spec.mode & 07777);
	}
	file->mtime_ms = clock_wall_ms();
	fake_call_end(call, STATUS_OK, NULL);
}

static void on_room(void *arg)
{
	struct guest_call *call = arg;
	const struct err *failure = pipe_failure(call->body);

	if (failure) {
		struct err err = *failure;

		fake_call_end(call, 0, &err);
		return;
	}
	pipe_write_buffer(call->body, call->bytes);
	if (evbuffer_get_length(call->bytes) == 0) {
		fake_call_end(call, STATUS_OK, NULL);
	}
}

static void act_get(struct guest_call *call)
{
	struct fake_file *file = file_of(call->machine, call->path, false);

	if (!file) {
		fake_call_fail(call, ERR_GUEST, STATUS_NOT_FOUND, "no such file");
		return;
	}
	size_t size = evbuffer_get_length(file->bytes);
	size_t offset = (size_t)MIN(call->spec.offset, size);
	size_t length = (size_t)MIN(call->spec.length, size - offset);
	struct guest_file_info info = {
		.size = size, .mode = file->mode, .mtime_ms = file->mtime_ms};

	if (length > 0) {
		evbuffer_add(call->bytes, evbuffer_pullup(file->bytes, -1) + offset, length);
	}
	call->get_hooks.on_info(call->get_hooks.arg, &info);
	pipe_set_writer(call->body, on_room, call);
	on_room(call);
}

static void act_list(struct guest_call *call)
{
	size_t len = strlen(call->path);
	struct fake_file *file;

	TAILQ_FOREACH (file, &call->machine->files, link) {
		if (strncmp(file->path, call->path, len) == 0 && file->path[len] == '/') {
			struct guest_entry entry = {.name = file->path + len + 1,
				.name_len = strlen(file->path + len + 1),
				.type = 'f',
				.size = evbuffer_get_length(file->bytes),
				.mode = file->mode,
				.mtime_ms = file->mtime_ms};

			call->list_hooks.on_entry(call->list_hooks.arg, &entry);
		}
	}
	fake_call_end(call, STATUS_OK, NULL);
}

/* Its answer arrives, and then it is off. */
static void act_shutdown(struct guest_call *call)
{
	struct fake_hv *hv = call->channel->fake->hv;
	const char *id = fake_hv_id_of(hv, call->channel->socket);
	char copy[ID_BYTES] = "";

	if (id) {
		snprintf(copy, sizeof copy, "%s", id);
	}
	fake_call_end(call, STATUS_OK, NULL);
	if (copy[0] && fake_hv_find(hv, copy)) {
		fake_hv_stop_domain(hv, copy, true);
	}
}

static void act(struct guest_call *call)
{
	switch (call->op) {
	case FAKE_GUEST_EXEC:
		if (call->exec_hooks.on_started) {
			call->exec_hooks.on_started(call->exec_hooks.arg);
		}
		if (call->body) {
			pipe_set_reader(call->body, on_body, call);
		} else {
			fake_process_run(call);
		}
		break;
	case FAKE_GUEST_PUT:
		pipe_set_reader(call->body, on_body, call);
		break;
	case FAKE_GUEST_GET:
		act_get(call);
		break;
	case FAKE_GUEST_LIST:
		act_list(call);
		break;
	case FAKE_GUEST_SHUTDOWN:
		act_shutdown(call);
		break;
	case FAKE_GUEST_SIGNAL:
	case FAKE_GUEST_JOB_START:
	case FAKE_GUEST_JOB_WAIT:
	case FAKE_GUEST_JOB_READ:
	case FAKE_GUEST_JOB_INPUT:
	case FAKE_GUEST_JOB_RESIZE:
	case FAKE_GUEST_JOB_LIST:
	case FAKE_GUEST_JOB_FORGET:
		fake_task_act(call);
		break;
	case FAKE_GUEST_CONFIGURE:
	case FAKE_GUEST_OP_MAX:
	default:
		fake_call_end(call, STATUS_OK, NULL);
		break;
	}
}

static void on_call_timer(evutil_socket_t fd, short what, void *arg)
{
	struct guest_call *call = arg;

	(void)fd;
	(void)what;
	if (call->is_cancelled) {
		fake_call_fail(call, ERR_CANCELLED, STATUS_CANCELLED, "cancelled");
	} else if (call->op == FAKE_GUEST_EXEC && call->has_begun) {
		fake_process_on_timer(call);
	} else if (call->script.mode == FAKE_TIMEOUT) {
		fake_call_fail(call, ERR_TIMEOUT, 0, "the guest didn't answer");
	} else if (call->script.mode == FAKE_FAIL || call->script.mode == FAKE_EFFECT_FAIL) {
		fake_call_fail(call, call->script.kind ? call->script.kind : ERR_GUEST, STATUS_IO,
			call->script.kind == ERR_INTERNAL ? FAKE_INTERNAL_TEXT
							  : "scripted failure");
	} else {
		act(call);
	}
}

static struct guest_call *call_new(struct fake_guest *fake)
{
	struct guest_call *call = xnew(struct guest_call);

	call->fake = fake;
	call->bytes = evbuffer_new();
	call->tails[0] = evbuffer_new();
	call->tails[1] = evbuffer_new();
	call->held.data = evbuffer_new();
	call->held.fds = evbuffer_new();
	call->timer = evtimer_new(loop_base(fake->loop), on_call_timer, call);
	return call;
}

struct guest_call *fake_process_new(struct fake_task *job, const struct guest_job_spec *spec)
{
	struct guest_call *call = call_new(job->fake);

	call->machine = job->machine;
	call->job = job;
	call->op = FAKE_GUEST_EXEC;
	fake_process_take(call, &spec->exec);
	set_timer(call->timer, 0);
	return call;
}

struct guest_call *fake_call_new(struct guest *guest, enum fake_guest_op op, struct err *err)
{
	struct channel *channel = (struct channel *)guest;
	struct fake_guest *fake = channel->fake;
	struct fake_script *script = &fake->scripts[op];

	loop_assert();
	if (channel->state != GUEST_READY || channel->is_breaking) {
		err_set(err, ERR_UNAVAILABLE, "the channel is down");
		return NULL;
	}
	struct guest_call *call = call_new(fake);

	fake->calls[op]++;
	call->channel = channel;
	call->machine = fake_machine_of(fake, channel->socket);
	call->op = op;
	if (script->mode != FAKE_OK && script->skip > 0) {
		script->skip--;
	} else {
		call->script = *script;
		if (script->times > 0 && --script->times == 0) {
			*script = (struct fake_script){0};
		}
	}
	if (call->script.mode != FAKE_HOLD) {
		set_timer(call->timer, call->script.delay_ms);
	}
	TAILQ_INSERT_TAIL(&channel->calls, call, link);
	return call;
}
