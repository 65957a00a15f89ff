#include "agent/guest_agent.h"

#include "agent/console.h"
#include "agent/guest_err.h"
#include "agent/guest_private.h"
#include "base/xalloc.h"

/*
 * Theory of operation. A guest is a channel, the calls on it and the console. This file wires the
 * three together and keeps the state that the domain sees:
 *
 *   CONNECTING ──HELLO──► READY ──loss──► DOWN ──HELLO──► READY …
 *        └──broken protocol──► DOWN
 *
 * agent_close() ends everything at once, but leaves the object to the next turn: a callback that
 * closes the guest returns into code that still looks at it.
 */

const struct guest_timing guest_timing_default = {
	.chan =
		{
			.sync_retry_ms = PROTO_PARTIAL_FRAME_MS + PROTO_SYNC_RETRY_MS,
			.hello_ms = 10000,
			.ping_idle_ms = 30000,
			.ping_busy_ms = 5000,
			.pong_ms = PROTO_SILENCE_MAX_MS + 5000,
			.penalty_ms = 1000,
		},
	.exec_margin_ms = 8000,
	.cancel_ms = 10000,
	.idle_ms = 60000,
	.system_ms = 30000,
};

static void set_state(struct agent *agent, enum guest_state state, const struct err *err)
{
	if (agent->state == state) {
		return;
	}
	agent->state = state;
	agent->hooks.on_state(agent->hooks.arg, state, err);
}

static int decode_hello(struct guest_hello *ret, const uint8_t *body, size_t len, struct err *err)
{
	struct msg_reader r = {.buf = body, .len = len};
	struct guest_hello hello = {0};

	for (struct msg_field f; msg_next(&r, &f);) {
		switch (f.tag & ~MSG_CRITICAL) {
		case MSG_VERSION:
			hello.version = msg_u32(&r, &f);
			break;
		case MSG_FEATURES:
			hello.features = msg_u64(&r, &f);
			break;
		case MSG_SOFTWARE:
			guest_text_copy(hello.software, sizeof hello.software, f.data, f.len);
			break;
		case MSG_BOOT_ID:
			guest_text_copy(hello.boot_id, sizeof hello.boot_id, f.data, f.len);
			break;
		case MSG_IMAGE:
			guest_text_copy(hello.image, sizeof hello.image, f.data, f.len);
			break;
		default:
			r.bad = r.bad || (f.tag & MSG_CRITICAL) != 0;
			break;
		}
	}
	if (r.bad) {
		return rpc_violation(err, "a malformed HELLO");
	}
	if (hello.version < PROTO_VERSION_MIN) {
		return err_set(err, ERR_UNAVAILABLE,
			"the agent speaks version %u of the protocol; needed is %u or later",
			hello.version, PROTO_VERSION_MIN);
	}
	*ret = hello;
	return 0;
}

static int on_ready(void *arg, const uint8_t *body, size_t len, struct err *err)
{
	struct agent *agent = arg;

	if (decode_hello(&agent->hello, body, len, err) < 0) {
		return -1;
	}
	agent->has_hello = true;
	rpc_ready(&agent->rpc);
	guest_clock_ready(&agent->clock, agent->hello.features);
	set_state(agent, GUEST_READY, NULL);
	return 0;
}

static int on_frame(void *arg, const struct frame *frame, struct err *err)
{
	struct agent *agent = arg;

	return rpc_frame(&agent->rpc, frame, err);
}

static void on_lost(void *arg, const struct err *err)
{
	struct agent *agent = arg;

	guest_clock_lost(&agent->clock);
	rpc_lost(&agent->rpc, err);
	if (!agent->is_closed) {
		set_state(agent, GUEST_DOWN, err);
	}
}

static size_t on_fill(void *arg, uint8_t *out)
{
	struct agent *agent = arg;

	return rpc_fill(&agent->rpc, out);
}

static struct guest *agent_open(struct guest_driver *driver, const char *agent_socket,
	const char *console_socket, const struct guest_hooks *hooks)
{
	struct agent_driver *self = container_of(driver, struct agent_driver, driver);
	struct agent *agent = xnew(struct agent);
	struct chan_hooks chan_hooks = {
		.on_ready = on_ready,
		.on_frame = on_frame,
		.on_lost = on_lost,
		.fill = on_fill,
		.arg = agent,
	};

	loop_assert();
	agent->guest.ops = driver->ops;
	agent->driver = self;
	agent->hooks = *hooks;
	agent->state = GUEST_CONNECTING;
	rpc_init(&agent->rpc, self->loop, &self->timing);
	agent->chan = chan_new(self->loop, agent_socket, &self->timing.chan, &chan_hooks);
	agent->rpc.chan = agent->chan;
	if (console_socket) {
		agent->console = console_new(self->loop, console_socket);
	}
	guest_clock_init(&agent->clock, &agent->rpc);
	TAILQ_INSERT_TAIL(&self->guests, agent, link);
	return &agent->guest;
}

static void free_later(void *arg)
{
	struct agent *agent = arg;

	rpc_fini(&agent->rpc);
	free(agent);
}

static void agent_close(struct guest *guest)
{
	struct agent *agent = agent_of(guest);

	loop_assert();
	if (agent->is_closed) {
		return;
	}
	agent->is_closed = true;
	agent->state = GUEST_DOWN;
	TAILQ_REMOVE(&agent->driver->guests, agent, link);
	rpc_close(&agent->rpc);
	guest_clock_fini(&agent->clock);
	chan_free(steal_ptr(&agent->chan));
	console_free(steal_ptr(&agent->console));
	loop_defer(agent->driver->loop, free_later, agent);
}

static enum guest_state agent_state(const struct guest *guest)
{
	return agent_of_const(guest)->state;
}

static const struct guest_hello *agent_hello(const struct guest *guest)
{
	const struct agent *agent = agent_of_const(guest);

	return agent->has_hello ? &agent->hello : NULL;
}

static void agent_console(const struct guest *guest, struct evbuffer *to, size_t max)
{
	const struct agent *agent = agent_of_const(guest);

	if (agent->console) {
		console_copy(agent->console, to, max);
	}
}

int agent_needs(const struct agent *agent, uint64_t features, struct err *err)
{
	/* Without a HELLO there is no call either, which says it better. */
	if (agent->has_hello && (agent->hello.features & features) != features) {
		return err_set(err, ERR_CONFLICT,
			"the agent in the sandbox's image is too old for that: it must be rebuilt");
	}
	return 0;
}

static void agent_pause(struct guest_call *call, bool is_paused)
{
	if (agent_is_job_read(call)) {
		agent_job_read_pause(call, is_paused);
	} else {
		agent_exec_pause(call, is_paused);
	}
}

static const struct guest_driver_ops agent_ops = {
	.open = agent_open,
	.close = agent_close,
	.state = agent_state,
	.hello = agent_hello,
	.console = agent_console,
	.configure = agent_configure,
	.exec = agent_exec,
	.put = agent_put,
	.get = agent_get,
	.list = agent_list,
	.shutdown = agent_shutdown,
	.cancel = rpc_cancel,
	.exec_pause = agent_pause,
	.signal = agent_signal,
	.job_start = agent_job_start,
	.job_wait = agent_job_wait,
	.job_read = agent_job_read,
	.job_input = agent_job_input,
	.job_resize = agent_job_resize,
	.job_list = agent_job_list,
	.job_forget = agent_job_forget,
};

static void on_wall_set(void *arg)
{
	struct agent_driver *driver = arg;
	struct agent *agent;

	TAILQ_FOREACH (agent, &driver->guests, link) {
		guest_clock_look(&agent->clock);
	}
}

struct guest_driver *guest_agent_driver_new(struct loop *loop, const struct guest_timing *timing)
{
	struct agent_driver *driver = xnew(struct agent_driver);

	driver->driver.ops = &agent_ops;
	driver->loop = loop;
	driver->timing = timing ? *timing : guest_timing_default;
	driver->wall = wall_watch_new(loop, on_wall_set, driver);
	TAILQ_INIT(&driver->guests);
	return &driver->driver;
}

void guest_agent_driver_free(struct guest_driver *driver)
{
	if (driver) {
		struct agent_driver *self = container_of(driver, struct agent_driver, driver);

		ASSERT(TAILQ_EMPTY(&self->guests));
		wall_watch_free(self->wall);
		free(self);
	}
}
