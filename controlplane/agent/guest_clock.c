#include "agent/guest_clock.h"

#include "agent/request.h"
#include "base/clock.h"
#include "base/xalloc.h"

/*
 * Theory of operation. A look is a CONFIGURE without fields, whose END tells the guest's time. By
 * how much the clock is off is found here and sent as a difference, so that it doesn't matter how
 * long that is under way.
 *
 *	ready ──soon──► look ──answer──► move, where needed ──again_ms──► look …
 */

struct clock_call {
	struct guest_call call;
	struct guest_clock *clock;
	bool is_move;
	uint64_t asked_us;
};

static void call(struct guest_clock *clock, int64_t shift_us);

static void look_later(struct guest_clock *clock, uint32_t ms)
{
	if (clock->can_tell) {
		loop_timer_set(clock->timer, ms);
	}
}

static void judge(struct guest_clock *clock, const struct clock_call *self)
{
	struct clock_look seen = {
		/* Whatever it says fits. */
		.guest_us = (int64_t)(self->call.end.realtime_ns / 1000),
		.wall_us = clock_wall_us(),
		.took_us = clock_monotonic_us() - self->asked_us,
	};
	struct clock_advice advice = clock_policy_judge(&clock->policy, &seen);

	clock->again_ms = advice.again_ms;
	if (advice.shift_us != 0) {
		call(clock, advice.shift_us);
	} else {
		look_later(clock, clock->again_ms);
	}
}

static void on_done(struct guest_call *ended, const struct err *err)
{
	struct clock_call *self = container_of(ended, struct clock_call, call);
	struct guest_clock *clock = self->clock;

	clock->is_calling = false;
	if (clock->is_wanted) {
		guest_clock_look(clock);
	} else if (err || ended->end.realtime_ns == 0) {
		look_later(clock, CLOCK_LOOK_MS);
	} else if (self->is_move) {
		look_later(clock, clock->again_ms);
	} else {
		judge(clock, self);
	}
}

static const struct call_ops clock_ops = {.done = on_done};

/* A look, or a move where @shift_us isn't 0. */
static void call(struct guest_clock *clock, int64_t shift_us)
{
	_cleanup_request_ struct request body = REQUEST_INIT;
	_cleanup_free_ struct clock_call *self = xnew(struct clock_call);
	struct rpc_request request = {
		.type = FRAME_CONFIGURE,
		.body = &body,
		.ops = &clock_ops,
		.timeout_ms = clock->rpc->timing->system_ms,
		.is_reserved = true,
	};
	struct err err;

	if (shift_us != 0) {
		request_u64(&body, MSG_CLOCK_SHIFT_NS, (uint64_t)shift_us * 1000);
	}
	self->clock = clock;
	self->is_move = shift_us != 0;
	self->asked_us = clock_monotonic_us();
	if (rpc_start(clock->rpc, &self->call, &request, &err) < 0) {
		look_later(clock, CLOCK_LOOK_MS);
		return;
	}
	clock->is_calling = true;
	(void)steal_ptr(&self);
}

void guest_clock_look(struct guest_clock *clock)
{
	clock->is_wanted = clock->is_calling;
	if (clock->can_tell && !clock->is_calling) {
		call(clock, 0);
	}
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	guest_clock_look(arg);
}

void guest_clock_init(struct guest_clock *clock, struct rpc *rpc)
{
	*clock = (struct guest_clock){.rpc = rpc};
	clock->timer = loop_timer_new(rpc->loop, on_timer, clock);
}

void guest_clock_fini(struct guest_clock *clock)
{
	event_free(steal_ptr(&clock->timer));
}

void guest_clock_ready(struct guest_clock *clock, uint64_t features)
{
	clock->can_tell = (features & PROTO_FEATURE_CLOCK) != 0;
	clock->policy = (struct clock_policy){0};
	/* Not at once: the guest is busy with being told all the rest. */
	look_later(clock, CLOCK_SOON_MS);
}

void guest_clock_lost(struct guest_clock *clock)
{
	clock->can_tell = false;
	clock->is_wanted = false;
	evtimer_del(clock->timer);
}
