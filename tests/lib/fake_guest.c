#include "fake_guest.h"

#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/xalloc.h"
#include "proto/msg.h"

/*
 * Theory of operation
 *
 * A machine is made when something first needs it and goes with its domain. A channel (struct
 * guest) is found by its socket's path. A call has one timer; when that fires the call acts: it
 * fails, moves file bytes, or runs its program. Calls that wait for pipes act from the pipes'
 * callbacks. call_end() is the one place where a call is answered and freed.
 */

struct fake_file {
	TAILQ_ENTRY(fake_file) link; /* fake_machine.files */
	char *path;
	struct evbuffer *bytes;
	uint32_t mode;
	int64_t mtime_ms;
};

struct fake_machine {
	TAILQ_ENTRY(fake_machine) link; /* fake_guest.machines */
	char *socket;
	struct fake_settings settings;
	TAILQ_HEAD(, fake_file) files;
};

struct channel {
	struct guest guest;
	TAILQ_ENTRY(channel) link; /* fake_guest.channels */
	struct fake_guest *fake;
	char *socket;
	struct guest_hooks hooks;
	enum guest_state state;
	bool has_hello;
	struct guest_hello hello;
	struct event *timer; /* until the hello */
	TAILQ_HEAD(, guest_call) calls;
};

struct guest_call {
	TAILQ_ENTRY(guest_call) link; /* channel.calls */
	struct channel *channel;
	enum fake_guest_op op;
	struct fake_script script;
	struct event *timer;
	bool is_cancelled;

	guest_done_fn done; /* CONFIGURE, PUT, SHUTDOWN */
	void *arg;
	struct guest_exec_hooks exec_hooks;
	struct guest_list_hooks list_hooks;
	struct guest_get_hooks get_hooks;

	char *command; /* EXEC */
	char **env;
	uint64_t timeout_ms;
	uint64_t output_cap;
	struct guest_exec_result result;
	bool is_sleeping;

	char *path; /* files */
	struct guest_file_spec spec;
	struct pipe *body; /* or an exec's stdin */
	struct evbuffer *bytes;
};

struct fake_guest {
	struct guest_driver driver;
	struct loop *loop;
	struct fake_hv *hv;
	int hello_ms;
	TAILQ_HEAD(, fake_machine) machines;
	TAILQ_HEAD(, channel) channels;
	struct fake_script scripts[FAKE_GUEST_OP_MAX];
	unsigned calls[FAKE_GUEST_OP_MAX];
	fake_program_fn program;
	void *program_arg;
};

static void set_timer(struct event *timer, unsigned ms)
{
	struct timeval tv = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};

	evtimer_add(timer, &tv);
}

/* ---- machines ---- */

static struct fake_machine *machine_of(struct fake_guest *fake, const char *socket)
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

static void machine_free(struct fake_guest *fake, struct fake_machine *machine)
{
	struct fake_file *file;

	while ((file = TAILQ_FIRST(&machine->files))) {
		TAILQ_REMOVE(&machine->files, file, link);
		evbuffer_free(file->bytes);
		free(file->path);
		free(file);
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

/* Answers and frees. @status: with ERR_GUEST. */
static void call_end(struct guest_call *call, uint32_t status, const struct err *err)
{
	struct guest_status word = {.status = status, .text = msg_status_name(status)};
	const struct guest_status *said = err && err->kind == ERR_GUEST ? &word : NULL;

	TAILQ_REMOVE(&call->channel->calls, call, link);
	free_body(call, err);
	switch (call->op) {
	case FAKE_GUEST_EXEC:
		call->exec_hooks.on_done(call->exec_hooks.arg, err ? NULL : &call->result, err);
		break;
	case FAKE_GUEST_GET:
		call->get_hooks.on_done(call->get_hooks.arg, said, err);
		break;
	case FAKE_GUEST_LIST:
		call->list_hooks.on_done(call->list_hooks.arg, false, said, err);
		break;
	case FAKE_GUEST_CONFIGURE:
	case FAKE_GUEST_PUT:
	case FAKE_GUEST_SHUTDOWN:
	case FAKE_GUEST_OP_MAX:
	default:
		call->done(call->arg, said, err);
		break;
	}
	event_free(call->timer);
	if (call->bytes) {
		evbuffer_free(call->bytes);
	}
	strv_free(call->env);
	free(call->command);
	free(call->path);
	free(call);
}

static void call_fail(struct guest_call *call, enum err_kind kind, uint32_t status, const char *why)
{
	struct err err;

	err_set(&err, kind, "%s", why);
	call_end(call, status, &err);
}

void fake_exec_output(struct guest_call *call, int fd, const void *data, size_t len)
{
	uint64_t kept = call->result.stdout_bytes + call->result.stderr_bytes;
	size_t take = kept >= call->output_cap ? 0 : (size_t)MIN(len, call->output_cap - kept);

	*(fd == 1 ? &call->result.stdout_bytes : &call->result.stderr_bytes) += len;
	call->result.truncated |= take < len;
	if (take > 0) {
		call->exec_hooks.on_output(call->exec_hooks.arg, fd, data, take);
	}
}

void fake_guest_ignore_cap(struct guest_call *call)
{
	call->output_cap = UINT64_MAX;
}

void fake_exec_exit(struct guest_call *call, int code)
{
	call->result.exit_code = code;
	call_end(call, STATUS_OK, NULL);
}

static void write_bytes(struct guest_call *call, size_t count)
{
	char block[4096];

	memset(block, 'x', sizeof block);
	while (count > 0) {
		size_t n = MIN(count, sizeof block);

		fake_exec_output(call, 1, block, n);
		count -= n;
	}
}

static int run_env(struct guest_call *call, const char *name)
{
	size_t len = strlen(name);
	char *const *lists[] = {
		call->env, machine_of(call->channel->fake, call->channel->socket)->settings.env};

	for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
		for (char *const *entry = lists[i]; entry && *entry; entry++) {
			if (strncmp(*entry, name, len) == 0 && (*entry)[len] == '=') {
				fake_exec_output(
					call, 1, *entry + len + 1, strlen(*entry) - len - 1);
				return 0;
			}
		}
	}
	return 1;
}

static void run_sleep(struct guest_call *call, unsigned ms)
{
	call->is_sleeping = true;
	if (call->timeout_ms > 0 && call->timeout_ms < ms) {
		call->result.timed_out = true;
		call->result.signal = 9;
		call->result.exit_code = 137;
		ms = (unsigned)call->timeout_ms;
	}
	call->result.duration_us = (uint64_t)ms * 1000;
	set_timer(call->timer, ms);
}

/* The rest of @command when it begins with the word @program, else NULL. */
static const char *rest_after(const char *command, const char *program)
{
	size_t n = strlen(program);

	if (strncmp(command, program, n) != 0 || (command[n] != ' ' && command[n] != '\0')) {
		return NULL;
	}
	return command[n] == ' ' ? command + n + 1 : command + n;
}

static void run_program(struct guest_call *call)
{
	struct fake_guest *fake = call->channel->fake;
	const struct fake_exec exec = {.command = call->command,
		.env = call->env,
		.timeout_ms = call->timeout_ms,
		.input = call->bytes};
	const char *rest;

	if (fake->program && fake->program(fake->program_arg, call, &exec)) {
		return;
	}
	if (rest_after(call->command, "true")) {
		fake_exec_exit(call, 0);
	} else if (rest_after(call->command, "false")) {
		fake_exec_exit(call, 1);
	} else if ((rest = rest_after(call->command, "exit"))) {
		fake_exec_exit(call, atoi(rest));
	} else if ((rest = rest_after(call->command, "kill"))) {
		call->result.signal = atoi(rest);
		fake_exec_exit(call, 128 + atoi(rest));
	} else if ((rest = rest_after(call->command, "echo"))) {
		fake_exec_output(call, 1, rest, strlen(rest));
		fake_exec_output(call, 1, "\n", 1);
		fake_exec_exit(call, 0);
	} else if ((rest = rest_after(call->command, "warn"))) {
		fake_exec_output(call, 2, rest, strlen(rest));
		fake_exec_output(call, 2, "\n", 1);
		fake_exec_exit(call, 0);
	} else if (rest_after(call->command, "cat")) {
		fake_exec_output(call, 1, evbuffer_pullup(call->bytes, -1),
			evbuffer_get_length(call->bytes));
		fake_exec_exit(call, 0);
	} else if ((rest = rest_after(call->command, "bytes"))) {
		write_bytes(call, (size_t)atoll(rest));
		fake_exec_exit(call, 0);
	} else if ((rest = rest_after(call->command, "env"))) {
		fake_exec_exit(call, run_env(call, rest));
	} else if ((rest = rest_after(call->command, "sleep"))) {
		run_sleep(call, (unsigned)atoi(rest));
	} else if (!rest_after(call->command, "hang")) {
		fake_exec_exit(call, 127);
	}
}

/* stdin of an exec and the body of a PUT: read to the end, then act. */
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

static void on_body(void *arg)
{
	struct guest_call *call = arg;
	const struct err *failure = pipe_failure(call->body);

	if (failure) {
		struct err err = *failure;

		call_end(call, 0, &err);
		return;
	}
	pipe_read_buffer(call->body, call->bytes, SIZE_MAX);
	if (!pipe_is_end(call->body)) {
		return;
	}
	free_body(call, NULL);
	if (call->op == FAKE_GUEST_EXEC) {
		run_program(call);
		return;
	}
	struct fake_file *file = file_of(
		machine_of(call->channel->fake, call->channel->socket), call->path, true);

	write_file(file, call);
	if (call->spec.mode) {
		file->mode = S_IFREG | (call->spec.mode & 07777);
	}
	file->mtime_ms = clock_wall_ms();
	call_end(call, STATUS_OK, NULL);
}

static void on_room(void *arg)
{
	struct guest_call *call = arg;
	const struct err *failure = pipe_failure(call->body);

	if (failure) {
		struct err err = *failure;

		call_end(call, 0, &err);
		return;
	}
	pipe_write_buffer(call->body, call->bytes);
	if (evbuffer_get_length(call->bytes) == 0) {
		call_end(call, STATUS_OK, NULL);
	}
}

static void act_get(struct guest_call *call, struct fake_machine *machine)
{
	struct fake_file *file = file_of(machine, call->path, false);

	if (!file) {
		call_fail(call, ERR_GUEST, STATUS_NOT_FOUND, "no such file");
		return;
	}
	size_t size = evbuffer_get_length(file->bytes);
	size_t offset = (size_t)MIN(call->spec.offset, size);
	size_t length = (size_t)MIN(call->spec.length, size - offset);
	struct guest_file_info info = {
		.size = size, .mode = file->mode, .mtime_ms = file->mtime_ms};

	evbuffer_add(call->bytes, evbuffer_pullup(file->bytes, -1) + offset, length);
	call->get_hooks.on_info(call->get_hooks.arg, &info);
	pipe_set_writer(call->body, on_room, call);
	on_room(call);
}

static void act_list(struct guest_call *call, struct fake_machine *machine)
{
	size_t len = strlen(call->path);
	struct fake_file *file;

	TAILQ_FOREACH (file, &machine->files, link) {
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
	call_end(call, STATUS_OK, NULL);
}

static void act(struct guest_call *call)
{
	struct fake_machine *machine = machine_of(call->channel->fake, call->channel->socket);

	switch (call->op) {
	case FAKE_GUEST_EXEC:
		if (call->body) {
			pipe_set_reader(call->body, on_body, call);
		} else {
			run_program(call);
		}
		break;
	case FAKE_GUEST_PUT:
		pipe_set_reader(call->body, on_body, call);
		break;
	case FAKE_GUEST_GET:
		act_get(call, machine);
		break;
	case FAKE_GUEST_LIST:
		act_list(call, machine);
		break;
	case FAKE_GUEST_CONFIGURE:
	case FAKE_GUEST_SHUTDOWN:
	case FAKE_GUEST_OP_MAX:
	default:
		call_end(call, STATUS_OK, NULL);
		break;
	}
}

static void on_call_timer(evutil_socket_t fd, short what, void *arg)
{
	struct guest_call *call = arg;

	(void)fd;
	(void)what;
	if (call->is_cancelled) {
		call_fail(call, ERR_CANCELLED, STATUS_CANCELLED, "cancelled");
	} else if (call->is_sleeping) {
		call_end(call, STATUS_OK, NULL);
	} else if (call->script.mode == FAKE_TIMEOUT) {
		call_fail(call, ERR_TIMEOUT, 0, "the guest didn't answer");
	} else if (call->script.mode == FAKE_FAIL || call->script.mode == FAKE_EFFECT_FAIL) {
		call_fail(call, call->script.kind ? call->script.kind : ERR_GUEST, STATUS_IO,
			"scripted failure");
	} else {
		act(call);
	}
}

static struct guest_call *call_new(struct guest *guest, enum fake_guest_op op, struct err *err)
{
	struct channel *channel = (struct channel *)guest;
	struct fake_guest *fake = channel->fake;
	struct fake_script *script = &fake->scripts[op];

	loop_assert();
	if (channel->state != GUEST_READY) {
		err_set(err, ERR_UNAVAILABLE, "the channel is down");
		return NULL;
	}
	struct guest_call *call = xnew(struct guest_call);

	fake->calls[op]++;
	call->channel = channel;
	call->op = op;
	if (script->mode != FAKE_OK && script->skip > 0) {
		script->skip--;
	} else {
		call->script = *script;
		if (script->times > 0 && --script->times == 0) {
			*script = (struct fake_script){0};
		}
	}
	call->bytes = evbuffer_new();
	call->timer = evtimer_new(loop_base(fake->loop), on_call_timer, call);
	if (call->script.mode != FAKE_HOLD) {
		set_timer(call->timer, call->script.delay_ms);
	}
	TAILQ_INSERT_TAIL(&channel->calls, call, link);
	return call;
}

/* ---- channels ---- */

static void fail_calls(struct channel *channel, enum err_kind kind, const char *why)
{
	struct guest_call *call;

	while ((call = TAILQ_FIRST(&channel->calls))) {
		call_fail(call, kind, 0, why);
	}
}

static void on_hello(evutil_socket_t fd, short what, void *arg)
{
	struct channel *channel = arg;

	(void)fd;
	(void)what;
	if (fake_hv_is_up(channel->fake->hv, channel->socket)) {
		channel->state = GUEST_READY;
		channel->has_hello = true;
		channel->hooks.on_state(channel->hooks.arg, GUEST_READY, NULL);
	}
}

static void await_hello(struct channel *channel, int ms)
{
	if (ms >= 0 && fake_hv_is_up(channel->fake->hv, channel->socket)) {
		set_timer(channel->timer, (unsigned)ms);
	}
}

static void channel_down(struct channel *channel)
{
	struct err err;
	bool was_ready = channel->state == GUEST_READY;

	evtimer_del(channel->timer);
	channel->state = GUEST_DOWN;
	fail_calls(channel, ERR_UNAVAILABLE, "the channel broke");
	if (was_ready) {
		err_set(&err, ERR_UNAVAILABLE, "the channel broke");
		channel->hooks.on_state(channel->hooks.arg, GUEST_DOWN, &err);
	}
}

static void on_watch(void *arg, const char *socket, bool is_up)
{
	struct fake_guest *fake = arg;
	struct channel *channel;

	TAILQ_FOREACH (channel, &fake->channels, link) {
		if (strcmp(channel->socket, socket) == 0) {
			break;
		}
	}
	if (is_up) {
		if (channel) {
			await_hello(channel, fake->hello_ms);
		}
		return;
	}
	if (channel) {
		channel_down(channel);
	}
	machine_free(fake, machine_of(fake, socket));
}

static struct guest *fake_open(struct guest_driver *driver, const char *agent_socket,
	const char *console_socket, const struct guest_hooks *hooks)
{
	struct fake_guest *fake = (struct fake_guest *)driver;
	struct channel *channel = xnew(struct channel);

	(void)console_socket;
	channel->guest.ops = driver->ops;
	channel->fake = fake;
	channel->socket = xstrdup(agent_socket);
	channel->hooks = *hooks;
	channel->timer = evtimer_new(loop_base(fake->loop), on_hello, channel);
	channel->hello = (struct guest_hello){.version = 1, .software = "fake/1", .image = "fake"};
	TAILQ_INIT(&channel->calls);
	TAILQ_INSERT_TAIL(&fake->channels, channel, link);
	await_hello(channel, fake->hello_ms);
	return &channel->guest;
}

static void fake_close(struct guest *guest)
{
	struct channel *channel = (struct channel *)guest;

	channel->state = GUEST_DOWN;
	fail_calls(channel, ERR_CANCELLED, "the channel was closed");
	TAILQ_REMOVE(&channel->fake->channels, channel, link);
	event_free(channel->timer);
	free(channel->socket);
	free(channel);
}

static enum guest_state fake_state(const struct guest *guest)
{
	return ((const struct channel *)guest)->state;
}

static const struct guest_hello *fake_hello(const struct guest *guest)
{
	const struct channel *channel = (const struct channel *)guest;

	return channel->has_hello ? &channel->hello : NULL;
}

static void fake_console(const struct guest *guest, struct evbuffer *to, size_t max)
{
	static const char text[] = "fake console\n";

	(void)guest;
	evbuffer_add(to, text, MIN(max, sizeof text - 1));
}

static void take_settings(struct guest_call *call, const struct guest_config *config)
{
	struct fake_settings *settings =
		&machine_of(call->channel->fake, call->channel->socket)->settings;

	settings->times++;
	if (config->hostname) {
		snprintf(settings->hostname, sizeof settings->hostname, "%s", config->hostname);
	}
	if (config->wall_ms) {
		settings->wall_ms = config->wall_ms;
	}
	if (config->has_deadline) {
		settings->has_deadline = true;
		settings->deadline_ms = config->deadline_ms;
	}
	if (config->reset_env || config->env) {
		strv_free(settings->env);
		settings->env = strv_dup(config->env);
	}
	if (config->ca_pem) {
		free(settings->ca_pem);
		settings->ca_pem = xstrdup(config->ca_pem);
	}
	settings->was_seeded |= config->reseed;
}

static struct guest_call *fake_configure(struct guest *guest, const struct guest_config *config,
	guest_done_fn done, void *arg, struct err *err)
{
	struct guest_call *call = call_new(guest, FAKE_GUEST_CONFIGURE, err);

	if (!call) {
		return NULL;
	}
	call->done = done;
	call->arg = arg;
	/* As a real guest would: at once, even if its answer comes late. */
	if (call->script.mode == FAKE_OK || call->script.mode == FAKE_EFFECT_FAIL) {
		take_settings(call, config);
	}
	return call;
}

static char *join(char *const *args)
{
	char *all = xstrdup("");

	for (char *const *arg = args; arg && *arg; arg++) {
		char *longer = xasprintf("%s%s%s", all, arg == args ? "" : " ", *arg);

		free(all);
		all = longer;
	}
	return all;
}

static struct guest_call *fake_exec_start(struct guest *guest, const struct guest_exec_spec *spec,
	const struct guest_exec_hooks *hooks, struct err *err)
{
	struct guest_call *call = call_new(guest, FAKE_GUEST_EXEC, err);

	if (!call) {
		return NULL;
	}
	call->exec_hooks = *hooks;
	call->command = spec->command ? xstrdup(spec->command) : join(spec->args);
	call->env = strv_dup(spec->env);
	call->timeout_ms = spec->timeout_ms;
	call->output_cap = spec->output_cap;
	call->body = spec->stdin_pipe;
	return call;
}

static struct guest_call *file_call(struct guest *guest, enum fake_guest_op op,
	const struct guest_file_spec *spec, struct pipe *body, struct err *err)
{
	struct guest_call *call = call_new(guest, op, err);

	if (!call) {
		return NULL;
	}
	call->path = xcalloc(1, spec->path_len + 1);
	memcpy(call->path, spec->path, spec->path_len);
	call->spec = *spec;
	call->body = body;
	return call;
}

static struct guest_call *fake_put(struct guest *guest, const struct guest_file_spec *spec,
	struct pipe *body, guest_done_fn done, void *arg, struct err *err)
{
	struct guest_call *call = file_call(guest, FAKE_GUEST_PUT, spec, body, err);

	if (call) {
		call->done = done;
		call->arg = arg;
	}
	return call;
}

static struct guest_call *fake_get(struct guest *guest, const struct guest_file_spec *spec,
	struct pipe *body, const struct guest_get_hooks *hooks, struct err *err)
{
	struct guest_call *call = file_call(guest, FAKE_GUEST_GET, spec, body, err);

	if (call) {
		call->get_hooks = *hooks;
	}
	return call;
}

static struct guest_call *fake_list(struct guest *guest, const struct guest_file_spec *spec,
	const struct guest_list_hooks *hooks, struct err *err)
{
	struct guest_call *call = file_call(guest, FAKE_GUEST_LIST, spec, NULL, err);

	if (call) {
		call->list_hooks = *hooks;
	}
	return call;
}

static struct guest_call *fake_shutdown(
	struct guest *guest, guest_done_fn done, void *arg, struct err *err)
{
	struct guest_call *call = call_new(guest, FAKE_GUEST_SHUTDOWN, err);

	if (call) {
		call->done = done;
		call->arg = arg;
	}
	return call;
}

static void fake_cancel(struct guest_call *call)
{
	call->is_cancelled = true;
	if (call->body) {
		if (call->op == FAKE_GUEST_GET) {
			pipe_set_writer(call->body, NULL, NULL);
		} else {
			pipe_set_reader(call->body, NULL, NULL);
		}
	}
	set_timer(call->timer, 0);
}

static void fake_exec_pause(struct guest_call *call, bool is_paused)
{
	(void)call;
	(void)is_paused;
}

static const struct guest_driver_ops fake_ops = {
	.open = fake_open,
	.close = fake_close,
	.state = fake_state,
	.hello = fake_hello,
	.console = fake_console,
	.configure = fake_configure,
	.exec = fake_exec_start,
	.put = fake_put,
	.get = fake_get,
	.list = fake_list,
	.shutdown = fake_shutdown,
	.cancel = fake_cancel,
	.exec_pause = fake_exec_pause,
};

/* ---- for tests ---- */

struct fake_guest *fake_guest_new(struct loop *loop, struct fake_hv *hv)
{
	struct fake_guest *fake = xnew(struct fake_guest);

	fake->driver.ops = &fake_ops;
	fake->loop = loop;
	fake->hv = hv;
	TAILQ_INIT(&fake->machines);
	TAILQ_INIT(&fake->channels);
	fake_hv_watch(hv, on_watch, fake);
	return fake;
}

void fake_guest_free(struct fake_guest *fake)
{
	ASSERT(TAILQ_EMPTY(&fake->channels));
	fake_hv_watch(fake->hv, NULL, NULL);
	while (!TAILQ_EMPTY(&fake->machines)) {
		machine_free(fake, TAILQ_FIRST(&fake->machines));
	}
	free(fake);
}

struct guest_driver *fake_guest_driver(struct fake_guest *fake)
{
	return &fake->driver;
}

void fake_guest_script(
	struct fake_guest *fake, enum fake_guest_op op, const struct fake_script *script)
{
	fake->scripts[op] = script ? *script : (struct fake_script){0};
}

void fake_guest_release(struct fake_guest *fake, enum fake_guest_op op)
{
	struct channel *channel;
	struct guest_call *call;

	fake_guest_script(fake, op, NULL);
	TAILQ_FOREACH (channel, &fake->channels, link) {
		TAILQ_FOREACH (call, &channel->calls, link) {
			if (call->op == op && call->script.mode == FAKE_HOLD) {
				call->script.mode = FAKE_OK;
				set_timer(call->timer, 0);
			}
		}
	}
}

unsigned fake_guest_calls(const struct fake_guest *fake, enum fake_guest_op op)
{
	return fake->calls[op];
}

void fake_guest_set_hello_delay(struct fake_guest *fake, int ms)
{
	struct channel *channel;

	fake->hello_ms = ms;
	TAILQ_FOREACH (channel, &fake->channels, link) {
		if (channel->state == GUEST_CONNECTING) {
			evtimer_del(channel->timer);
			await_hello(channel, ms);
		}
	}
}

static const char *socket_of(struct fake_guest *fake, const char *id)
{
	struct fake_domain *domain = fake_hv_find(fake->hv, id);

	ASSERT(domain != NULL);
	return domain->agent_socket;
}

void fake_guest_drop(struct fake_guest *fake, const char *id, int back_ms)
{
	struct channel *channel;

	TAILQ_FOREACH (channel, &fake->channels, link) {
		if (strcmp(channel->socket, socket_of(fake, id)) == 0) {
			channel_down(channel);
			await_hello(channel, back_ms);
			return;
		}
	}
}

size_t fake_guest_open_count(const struct fake_guest *fake)
{
	struct channel *channel;
	size_t count = 0;

	TAILQ_FOREACH (channel, &fake->channels, link) {
		count++;
	}
	return count;
}

size_t fake_guest_call_count(const struct fake_guest *fake)
{
	struct channel *channel;
	struct guest_call *call;
	size_t count = 0;

	TAILQ_FOREACH (channel, &fake->channels, link) {
		TAILQ_FOREACH (call, &channel->calls, link) {
			count++;
		}
	}
	return count;
}

const struct fake_settings *fake_guest_settings(struct fake_guest *fake, const char *id)
{
	struct fake_settings *settings = &machine_of(fake, socket_of(fake, id))->settings;

	return settings->times > 0 ? settings : NULL;
}

void fake_guest_set_program(struct fake_guest *fake, fake_program_fn fn, void *arg)
{
	fake->program = fn;
	fake->program_arg = arg;
}
