#include "agent/rpc.h"

#include "agent/guest_err.h"
#include "agent/request.h"
#include "base/clock.h"
#include "base/xalloc.h"

/*
 * Theory of operation. A call is live from rpc_start() to rpc_finish(). rpc_finish() is the only
 * way out, whatever the cause: END, a deadline, a cancel, a failed pipe, the loss of the channel,
 * close. It takes the call off the list before it calls back, so whatever the callback does (start
 * or cancel others, close the guest) can't reach this call again.
 *
 * A call for which END has come, but whose bytes haven't all been taken yet, needs the guest no
 * more: it outlives the channel, and a new one beside it.
 *
 * Since callbacks may end the call that is being worked on, a finished call stays in memory, on
 * the list of the dead, until the next turn.
 *
 * A call that ends without END leaves its stream behind as an orphan (mux.c); the guest is told to
 * stop it. Many at once are no fault of its (a client with many transfers went away); it is one
 * when they stay too many for as long as a cancel may take.
 */

static void free_dead(void *arg)
{
	struct rpc *rpc = arg;

	while (!TAILQ_EMPTY(&rpc->dead)) {
		struct guest_call *call = TAILQ_FIRST(&rpc->dead);

		TAILQ_REMOVE(&rpc->dead, call, link);
		free(call);
	}
}

static void on_orphans_timer(evutil_socket_t fd, short what, void *arg)
{
	struct rpc *rpc = arg;
	struct err err;

	(void)fd;
	(void)what;
	rpc_violation(&err, "cancelled calls don't end");
	chan_give_up(rpc->chan, &err);
}

void rpc_init(struct rpc *rpc, struct loop *loop, const struct guest_timing *timing)
{
	*rpc = (struct rpc){.loop = loop, .timing = timing};
	mux_init(&rpc->mux);
	rpc->orphans_timer = loop_timer_new(loop, on_orphans_timer, rpc);
	TAILQ_INIT(&rpc->calls);
	TAILQ_INIT(&rpc->dead);
}

static struct guest_call *first_call(const struct rpc *rpc, bool is_unended_only)
{
	struct guest_call *call;

	TAILQ_FOREACH (call, &rpc->calls, link) {
		if (!is_unended_only || !call->is_ended) {
			break;
		}
	}
	return call;
}

/* From the first again each time: a callback may end others. */
static void end_calls(struct rpc *rpc, bool is_unended_only, const struct err *err)
{
	rpc->is_ready = false;
	evtimer_del(rpc->orphans_timer);
	for (struct guest_call *call; (call = first_call(rpc, is_unended_only));) {
		rpc_finish(call, err);
	}
	mux_reset(&rpc->mux);
}

void rpc_close(struct rpc *rpc)
{
	struct err err;

	rpc->is_closed = true;
	err_set(&err, ERR_CANCELLED, "the sandbox's channel is being closed");
	end_calls(rpc, false, &err);
}

void rpc_fini(struct rpc *rpc)
{
	ASSERT(rpc->is_closed && TAILQ_EMPTY(&rpc->calls));
	loop_cancel_deferred(rpc->loop, free_dead, rpc);
	free_dead(rpc);
	event_free(rpc->orphans_timer);
}

int rpc_violation(struct err *err, const char *what)
{
	return err_set(err, ERR_UNAVAILABLE, "the agent broke the protocol: %s", what);
}

/* ---- deadlines ---- */

static void arm(struct guest_call *call);

static uint64_t due(const struct guest_call *call)
{
	uint64_t at = call->deadline_ms ? call->deadline_ms : UINT64_MAX;

	return call->idle_ms ? MIN(at, call->progress_ms + call->idle_ms) : at;
}

/* It's us, or our caller, that the call waits for. */
static void put_off(struct guest_call *call, uint64_t now)
{
	call->progress_ms = now;
	if (call->deadline_ms && !call->is_cancelled) {
		call->deadline_ms = MAX(call->deadline_ms, now + call->rpc->timing->exec_margin_ms);
	}
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct guest_call *call = arg;
	uint64_t now = clock_monotonic_ms();

	(void)fd;
	(void)what;
	if (call->is_ended || (call->ops->is_guests_turn && !call->ops->is_guests_turn(call))) {
		put_off(call, now);
	}
	if (now < due(call)) {
		arm(call);
		return;
	}
	struct err err;

	err_set(&err, ERR_TIMEOUT, "the sandbox's agent didn't answer in time");
	rpc_finish(call, &err);
}

static void arm(struct guest_call *call)
{
	uint64_t at = due(call);
	uint64_t now = clock_monotonic_ms();

	if (at != UINT64_MAX) {
		loop_timer_set(call->timer,
			at > now ? MIN(at - now, (uint64_t)24 * 60 * MS_PER_MINUTE) : 0);
	}
}

/* ---- start, cancel, finish ---- */

static size_t pull(void *owner, uint8_t *out, size_t max, bool *ret_is_end)
{
	struct guest_call *call = owner;
	size_t n = call->ops->pull(call, out, max, ret_is_end);

	if (n > 0) {
		call->progress_ms = clock_monotonic_ms();
	}
	return n;
}

int rpc_start(struct rpc *rpc, struct guest_call *call, const struct rpc_request *request,
	struct err *err)
{
	if (request_check(request->body, err) < 0) {
		return -1;
	}
	if (!rpc->is_ready) {
		return err_set(err, ERR_UNAVAILABLE, "the sandbox's agent isn't connected");
	}
	struct mux_request mux_request = {
		.type = request->type,
		.body = request->body->buf,
		.len = request->body->len,
		.is_reserved = request->is_reserved,
		.pull = request->has_input ? pull : NULL,
	};

	call->stream = mux_open(&rpc->mux, &mux_request, call, err);
	if (!call->stream) {
		return -1;
	}
	(void)request_steal(request->body);
	call->rpc = rpc;
	call->ops = request->ops;
	call->timer = loop_timer_new(rpc->loop, on_timer, call);
	call->progress_ms = clock_monotonic_ms();
	call->deadline_ms = request->timeout_ms ? call->progress_ms + request->timeout_ms : 0;
	call->idle_ms = request->idle_ms;
	TAILQ_INSERT_TAIL(&rpc->calls, call, link);
	arm(call);
	chan_set_busy(rpc->chan, true);
	chan_wake(rpc->chan);
	return 0;
}

static void on_finish_later(void *arg)
{
	struct guest_call *call = arg;

	rpc_finish(call, &call->failure);
}

void rpc_finish_later(struct guest_call *call, const struct err *err)
{
	if (!call->is_done && call->failure.kind == ERR_NONE) {
		call->failure = *err;
		loop_defer(call->rpc->loop, on_finish_later, call);
	}
}

/* The stream of a call that ends before the guest said so. */
static void leave_stream(struct guest_call *call)
{
	struct rpc *rpc = call->rpc;
	struct mux_stream *stream = steal_ptr(&call->stream);

	if (!stream || !rpc->is_ready) {
		/* Over, or the whole session is: mux_reset() frees it. */
		return;
	}
	mux_abandon(&rpc->mux, stream);
	chan_wake(rpc->chan);
	if (rpc->mux.orphans > MUX_ORPHANS_MAX && !evtimer_pending(rpc->orphans_timer, NULL)) {
		loop_timer_set(rpc->orphans_timer, rpc->timing->cancel_ms);
	}
}

void rpc_finish(struct guest_call *call, const struct err *err)
{
	struct rpc *rpc = call->rpc;
	struct err copy = err ? *err : ERR_INIT;

	ASSERT(!call->is_done);
	call->is_done = true;
	event_free(steal_ptr(&call->timer));
	if (call->failure.kind != ERR_NONE) {
		loop_cancel_deferred(rpc->loop, on_finish_later, call);
	}
	leave_stream(call);
	TAILQ_REMOVE(&rpc->calls, call, link);
	if (TAILQ_EMPTY(&rpc->dead)) {
		loop_defer(rpc->loop, free_dead, rpc);
	}
	TAILQ_INSERT_TAIL(&rpc->dead, call, link);
	if (TAILQ_EMPTY(&rpc->calls) && !rpc->is_closed) {
		chan_set_busy(rpc->chan, false);
	}
	if (call->ops->release) {
		call->ops->release(call, err ? &copy : NULL);
	}
	call->ops->done(call, err ? &copy : NULL);
}

void rpc_cancel(struct guest_call *call)
{
	struct rpc *rpc = call->rpc;
	struct err err;

	if (call->is_done || call->is_cancelled) {
		return;
	}
	call->is_cancelled = true;
	err_set(&err, ERR_CANCELLED, "the call was cancelled");
	if (!call->stream || mux_cancel(&rpc->mux, call->stream)) {
		call->stream = NULL;
		rpc_finish_later(call, &err);
		return;
	}
	call->deadline_ms = clock_monotonic_ms() + rpc->timing->cancel_ms;
	arm(call);
	chan_wake(rpc->chan);
}

void rpc_poke(struct guest_call *call)
{
	if (call->stream) {
		mux_poke(&call->rpc->mux, call->stream);
		chan_wake(call->rpc->chan);
	}
}

void rpc_consume(struct guest_call *call, unsigned channel, size_t len)
{
	if (call->stream && len > 0) {
		mux_consume(&call->rpc->mux, call->stream, channel, len);
		chan_wake(call->rpc->chan);
	}
}

/* ---- from the channel ---- */

void rpc_ready(struct rpc *rpc)
{
	ASSERT(!first_call(rpc, true) && rpc->mux.count == 0);
	rpc->is_ready = true;
}

void rpc_lost(struct rpc *rpc, const struct err *err)
{
	end_calls(rpc, true, err);
}

size_t rpc_fill(struct rpc *rpc, uint8_t *out)
{
	return mux_write(&rpc->mux, out);
}

static int decode_end(struct call_end *end, const uint8_t *body, size_t len)
{
	struct msg_reader r = {.buf = body, .len = len};
	bool has_status = false;

	for (struct msg_field f; msg_next(&r, &f);) {
		switch (f.tag & ~MSG_CRITICAL) {
		case MSG_STATUS:
			end->status = msg_u32(&r, &f);
			has_status = true;
			break;
		case MSG_ERRNO:
			/* The kernel's are below 4096. */
			end->sys = (int)MIN(msg_u32(&r, &f), 4095u);
			break;
		case MSG_TEXT:
			guest_text_copy(end->text, sizeof end->text, f.data, f.len);
			break;
		case MSG_EXIT_CODE:
			end->exit_code = msg_u32(&r, &f);
			end->has_exit_code = true;
			break;
		case MSG_SIGNAL:
			end->signal = msg_u32(&r, &f);
			break;
		case MSG_END_FLAGS:
			end->flags = msg_u32(&r, &f);
			break;
		case MSG_OUT_BYTES:
			end->out_bytes = msg_u64(&r, &f);
			break;
		case MSG_ERR_BYTES:
			end->err_bytes = msg_u64(&r, &f);
			break;
		case MSG_DURATION_US:
			end->duration_us = msg_u64(&r, &f);
			break;
		case MSG_BYTES:
			end->bytes = msg_u64(&r, &f);
			end->has_bytes = true;
			break;
		case MSG_OUT_TAIL:
			end->out_tail = msg_u64(&r, &f);
			break;
		case MSG_ERR_TAIL:
			end->err_tail = msg_u64(&r, &f);
			break;
		case MSG_OFFSET:
			end->offset = msg_u64(&r, &f);
			end->has_offset = true;
			break;
		case MSG_REALTIME_NS:
			end->realtime_ns = msg_u64(&r, &f);
			break;
		default:
			r.bad = r.bad || (f.tag & MSG_CRITICAL) != 0;
			break;
		}
	}
	return r.bad || !has_status ? -1 : 0;
}

static int take_end(struct guest_call *call, const struct mux_event *event, struct err *err)
{
	struct err failure = ERR_INIT;

	call->stream = NULL;
	if (decode_end(&call->end, event->data, event->len) < 0) {
		return rpc_violation(err, "a malformed END");
	}
	bool says_cancelled = call->end.status == STATUS_CANCELLED ||
			      (call->end.flags & MSG_END_CANCELLED) != 0;

	if (says_cancelled && !call->is_cancelled) {
		return rpc_violation(err, "a call cancelled that nobody cancelled");
	}
	call->is_ended = true;
	if (call->end.status != STATUS_OK) {
		guest_err_set(&failure, call->end.status, call->end.text);
		rpc_finish(call, &failure);
		return 0;
	}
	if (!call->ops->on_end) {
		rpc_finish(call, NULL);
		return 0;
	}
	if (call->ops->on_end(call, err) < 0) {
		/* Not to be taken for a result. */
		call->is_ended = false;
		return -1;
	}
	return 0;
}

int rpc_frame(struct rpc *rpc, const struct frame *frame, struct err *err)
{
	struct mux_event event;

	if (mux_input(&rpc->mux, frame, &event, err) < 0) {
		return -1;
	}
	/* Credit, or the end of an orphan, may have set something free. */
	if (mux_has_output(&rpc->mux)) {
		chan_wake(rpc->chan);
	}
	struct guest_call *call = event.owner;

	if (event.kind == MUX_NOTHING) {
		if (rpc->mux.orphans <= MUX_ORPHANS_MAX) {
			evtimer_del(rpc->orphans_timer);
		}
		return 0;
	}
	call->progress_ms = clock_monotonic_ms();
	switch (event.kind) {
	case MUX_STARTED:
		return call->ops->on_started
			       ? call->ops->on_started(call, event.data, event.len, err)
			       : 0;
	case MUX_DATA:
		return call->ops->on_data(call, event.channel, event.data, event.len, err);
	case MUX_GAP:
		return call->ops->on_gap(call, get_le64(event.data), err);
	case MUX_END:
		return take_end(call, &event, err);
	case MUX_CLOSE:
	case MUX_NOTHING:
		break;
	}
	return 0;
}

struct guest_status rpc_status(const struct guest_call *call)
{
	return (struct guest_status){
		.status = call->end.status, .sys = call->end.sys, .text = call->end.text};
}
