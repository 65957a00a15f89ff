#include <stdio.h>

#include "proto/msg.h"
#include "tests/lib/fake_guest_priv.h"

/* ---- channels ---- */

static void fail_calls(struct channel *channel, enum err_kind kind, const char *why)
{
	struct guest_call *call;

	while ((call = TAILQ_FIRST(&channel->calls))) {
		fake_call_fail(call, kind, 0, why);
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

static void channel_free(struct channel *channel)
{
	event_free(channel->timer);
	free(channel->socket);
	free(channel);
}

/* False: it is gone, closed by whoever heard of it. */
static bool channel_down(struct channel *channel)
{
	struct err err;
	bool was_ready = channel->state == GUEST_READY;

	evtimer_del(channel->timer);
	/* As the real one does: calls hear of it while the state is still the old one. */
	channel->is_breaking = true;
	fail_calls(channel, ERR_UNAVAILABLE, "the channel broke");
	channel->is_breaking = false;
	if (channel->is_closed) {
		channel_free(channel);
		return false;
	}
	channel->state = GUEST_DOWN;
	if (was_ready) {
		err_set(&err, ERR_UNAVAILABLE, "the channel broke");
		channel->hooks.on_state(channel->hooks.arg, GUEST_DOWN, &err);
	}
	return true;
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
		(void)channel_down(channel);
	}
	fake_machine_free(fake, fake_machine_of(fake, socket));
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
	channel->is_closed = true;
	if (!channel->is_breaking) {
		channel_free(channel);
	}
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
		&fake_machine_of(call->channel->fake, call->channel->socket)->settings;

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
	struct guest_call *call = fake_call_new(guest, FAKE_GUEST_CONFIGURE, err);

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

static struct guest_call *fake_exec_start(struct guest *guest, const struct guest_exec_spec *spec,
	const struct guest_exec_hooks *hooks, struct err *err)
{
	struct guest_call *call = fake_call_new(guest, FAKE_GUEST_EXEC, err);

	if (!call) {
		return NULL;
	}
	call->exec_hooks = *hooks;
	fake_process_take(call, spec);
	call->body = spec->stdin_pipe;
	return call;
}

static struct guest_call *file_call(struct guest *guest, enum fake_guest_op op,
	const struct guest_file_spec *spec, struct pipe *body, struct err *err)
{
	struct guest_call *call = fake_call_new(guest, op, err);

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
	struct guest_call *call = fake_call_new(guest, FAKE_GUEST_SHUTDOWN, err);

	if (call) {
		call->done = done;
		call->arg = arg;
	}
	return call;
}

void fake_guest_discard(struct fake_guest *fake)
{
	fake->discards = true;
}

uint64_t fake_guest_discarded(const struct fake_guest *fake)
{
	return fake->discarded_bytes;
}

void fake_guest_ignore_cancel(struct fake_guest *fake)
{
	fake->ignores_cancel = true;
}

static void fake_cancel(struct guest_call *call)
{
	if (call->channel->fake->ignores_cancel) {
		return;
	}
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
	if (call->op == FAKE_GUEST_EXEC) {
		fake_process_pause(call, is_paused);
	} else {
		ASSERT(call->op == FAKE_GUEST_JOB_READ);
		call->is_paused = is_paused;
		fake_task_read_on(call);
	}
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
	.signal = fake_signal,
	.job_start = fake_task_start,
	.job_wait = fake_task_wait,
	.job_read = fake_task_read,
	.job_input = fake_task_input,
	.job_resize = fake_task_resize,
	.job_list = fake_task_list,
	.job_forget = fake_task_forget,
};

/* ---- for tests ---- */

struct fake_guest *fake_guest_new(struct loop *loop, struct fake_hv *hv)
{
	struct fake_guest *fake = xnew(struct fake_guest);

	fake->driver.ops = &fake_ops;
	fake->loop = loop;
	fake->hv = hv;
	fake->ring_bytes = 1024 * 1024;
	TAILQ_INIT(&fake->machines);
	TAILQ_INIT(&fake->channels);
	TAILQ_INIT(&fake->dead);
	fake_hv_watch(hv, on_watch, fake);
	return fake;
}

void fake_guest_free(struct fake_guest *fake)
{
	ASSERT(TAILQ_EMPTY(&fake->channels));
	fake_hv_watch(fake->hv, NULL, NULL);
	while (!TAILQ_EMPTY(&fake->machines)) {
		fake_machine_free(fake, TAILQ_FIRST(&fake->machines));
	}
	loop_cancel_deferred(fake->loop, fake_free_dead, fake);
	fake_free_dead(fake);
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
			if (channel_down(channel)) {
				await_hello(channel, back_ms);
			}
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
	struct fake_settings *settings = &fake_machine_of(fake, socket_of(fake, id))->settings;

	return settings->times > 0 ? settings : NULL;
}

void fake_guest_set_ring(struct fake_guest *fake, size_t bytes)
{
	fake->ring_bytes = bytes;
}

const struct fake_job_view *fake_guest_job(struct fake_guest *fake, const char *id, const char *eid)
{
	struct fake_task *job;

	TAILQ_FOREACH (job, &fake_machine_of(fake, socket_of(fake, id))->jobs, link) {
		if (strcmp(job->is.id, eid) == 0) {
			job->view.is_running = job->is.is_running;
			job->view.held = evbuffer_get_length(job->pipe.data);
			return &job->view;
		}
	}
	return NULL;
}

void fake_guest_restart_agent(struct fake_guest *fake, const char *id)
{
	struct fake_machine *machine = fake_machine_of(fake, socket_of(fake, id));

	fake_guest_drop(fake, id, 0);
	while (!TAILQ_EMPTY(&machine->jobs)) {
		fake_task_free(TAILQ_FIRST(&machine->jobs));
	}
}

size_t fake_guest_job_count(struct fake_guest *fake, const char *id)
{
	struct fake_task *job;
	size_t count = 0;

	TAILQ_FOREACH (job, &fake_machine_of(fake, socket_of(fake, id))->jobs, link) {
		count++;
	}
	return count;
}

void fake_guest_set_program(struct fake_guest *fake, fake_program_fn fn, void *arg)
{
	fake->program = fn;
	fake->program_arg = arg;
}
