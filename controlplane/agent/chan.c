#include "agent/chan.h"

#include <errno.h>
#include <event2/buffer.h>
#include <linux/sockios.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "agent/dial.h"
#include "base/clock.h"
#include "base/rand.h"
#include "base/xalloc.h"

/*
 * Theory of operation. dial finds the socket; chan_fsm says what the bytes mean; this file moves
 * them. Everything is written from on_writable(), and only a frame at a time is taken from fill(),
 * so that the queue ahead of an urgent frame is that frame and the socket's own buffer.
 *
 * The callbacks may free the channel. chan_free() therefore lets go of everything at once but
 * leaves the object itself to the next turn, and whoever called back looks at is_freed.
 *
 * QEMU reads our socket only while the guest has its port open. So the first SYNC waits in the
 * socket and is there the moment the agent opens the port; SIOCOUTQ tells whether it was taken, and
 * before that no second one is sent.
 */

struct chan {
	struct loop *loop;
	struct chan_hooks hooks;
	struct dial dial;
	struct chan_fsm fsm;
	int fd;
	struct event *read_event;
	struct event *write_event;
	struct event *timer;
	uint8_t *in;
	size_t in_len;
	struct evbuffer *out;
	struct err given_up; /* waits for the loop; kind ERR_NONE: not */
	bool is_freed;
};

static void on_writable(evutil_socket_t fd, short what, void *arg);
static void on_readable(evutil_socket_t fd, short what, void *arg);

static void arm(struct chan *chan)
{
	uint64_t due = chan_fsm_due(&chan->fsm);
	uint64_t now = clock_monotonic_ms();

	if (due == UINT64_MAX) {
		evtimer_del(chan->timer);
		return;
	}
	loop_timer_set(chan->timer, due > now ? due - now : 0);
}

static void hang_up(struct chan *chan)
{
	if (chan->fd < 0) {
		return;
	}
	event_free(steal_ptr(&chan->read_event));
	event_free(steal_ptr(&chan->write_event));
	evtimer_del(chan->timer);
	close(steal_fd(&chan->fd));
	chan_fsm_disconnect(&chan->fsm);
	chan->given_up = ERR_INIT;
	evbuffer_drain(chan->out, evbuffer_get_length(chan->out));
	free(steal_ptr(&chan->in));
	chan->in_len = 0;
}

static void lose(struct chan *chan, const struct err *err, uint64_t pause_ms)
{
	struct err copy = *err;

	hang_up(chan);
	dial_start(&chan->dial, pause_ms);
	chan->hooks.on_lost(chan->hooks.arg, &copy);
}

static void lose_closed(struct chan *chan, int error)
{
	bool is_quiet = chan->fsm.state == CHAN_SYNC;
	struct err err;

	err_set(&err, ERR_UNAVAILABLE, "the channel to the agent was closed");
	err.sys = error;
	hang_up(chan);
	dial_start(&chan->dial, CHAN_RETRY_MS);
	/* A socket that closes before there was a session is a domain that isn't up yet. */
	if (!is_quiet) {
		chan->hooks.on_lost(chan->hooks.arg, &err);
	}
}

static void send_session(struct chan *chan)
{
	ASSERT(evbuffer_add(chan->out, chan->fsm.out, chan->fsm.out_len) == 0);
	ASSERT(event_add(chan->write_event, NULL) == 0);
}

/* True: the peer has read all that we wrote. */
static bool is_taken(const struct chan *chan)
{
	int queued = 0;

	return evbuffer_get_length(chan->out) == 0 &&
	       (ioctl(chan->fd, SIOCOUTQ, &queued) < 0 || queued == 0);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct chan *chan = arg;
	struct err err = ERR_INIT;
	uint8_t nonce[FRAME_NONCE_BYTES];

	(void)fd;
	(void)what;
	rand_bytes(nonce, sizeof nonce);
	switch (chan_fsm_tick(&chan->fsm, clock_monotonic_ms(), is_taken(chan), nonce, &err)) {
	case CHAN_FAIL:
		lose(chan, &err, chan->fsm.timing->penalty_ms);
		return;
	case CHAN_SEND:
		send_session(chan);
		break;
	case CHAN_WAIT:
	case CHAN_SKIP:
	case CHAN_TAKE_HELLO:
	case CHAN_TAKE_FRAME:
		break;
	}
	arm(chan);
}

static void on_connected(void *arg, int fd)
{
	struct chan *chan = arg;
	int bytes = CHAN_SOCKET_BYTES;
	uint8_t nonce[FRAME_NONCE_BYTES];

	/* A larger buffer would do no harm but to latency. */
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
	chan->fd = fd;
	/* Not zeroed: of a guest that says little only the first pages are ever touched. */
	chan->in = xrealloc(NULL, CHAN_IN_BYTES, 1);
	chan->read_event = event_new(
		loop_base(chan->loop), fd, EV_READ | EV_PERSIST, on_readable, chan);
	chan->write_event = event_new(
		loop_base(chan->loop), fd, EV_WRITE | EV_PERSIST, on_writable, chan);
	ASSERT(chan->read_event && chan->write_event);
	ASSERT(event_add(chan->read_event, NULL) == 0);
	rand_bytes(nonce, sizeof nonce);
	chan_fsm_connect(&chan->fsm, nonce, clock_monotonic_ms());
	send_session(chan);
	arm(chan);
}

static void on_trouble(void *arg, const struct err *err)
{
	struct chan *chan = arg;

	chan->hooks.on_lost(chan->hooks.arg, err);
}

/* One look at the bytes that are there. False: the session, or the channel, is gone. */
static bool take_one(struct chan *chan, size_t *pos, uint64_t now, bool *ret_more)
{
	struct frame frame;
	size_t used;
	struct err err = ERR_INIT;
	enum chan_action action = chan_fsm_input(
		&chan->fsm, chan->in + *pos, chan->in_len - *pos, now, &frame, &used, &err);

	*pos += used;
	*ret_more = action != CHAN_WAIT;
	switch (action) {
	case CHAN_WAIT:
	case CHAN_SKIP:
		return true;
	case CHAN_SEND:
		send_session(chan);
		arm(chan);
		return true;
	case CHAN_TAKE_HELLO:
		arm(chan);
		if (chan->hooks.on_ready(chan->hooks.arg, frame.payload, frame.length, &err) == 0) {
			break;
		}
		if (!chan->is_freed) {
			lose(chan, &err, chan->fsm.timing->penalty_ms);
		}
		return false;
	case CHAN_TAKE_FRAME:
		if (chan->hooks.on_frame(chan->hooks.arg, &frame, &err) == 0) {
			break;
		}
		if (!chan->is_freed) {
			lose(chan, &err, chan->fsm.timing->penalty_ms);
		}
		return false;
	case CHAN_FAIL:
		lose(chan, &err, chan->fsm.timing->penalty_ms);
		return false;
	}
	return !chan->is_freed;
}

/* False: the session, or the channel, is gone. */
static bool take_input(struct chan *chan)
{
	uint64_t now = clock_monotonic_ms();
	size_t pos = 0;

	for (bool more = true; more;) {
		if (!take_one(chan, &pos, now, &more)) {
			return false;
		}
	}
	memmove(chan->in, chan->in + pos, chan->in_len - pos);
	chan->in_len -= pos;
	return true;
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	struct chan *chan = arg;
	size_t taken = 0;

	(void)what;
	while (taken < CHAN_TURN_BYTES) {
		size_t room = CHAN_IN_BYTES - chan->in_len;

		/* A frame that fills it all is complete and was taken. */
		ASSERT(room > 0);
		ssize_t n = read(fd, chan->in + chan->in_len, room);

		if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
			return;
		}
		if (n <= 0) {
			lose_closed(chan, n < 0 ? errno : 0);
			return;
		}
		chan->in_len += (size_t)n;
		taken += (size_t)n;
		if (!take_input(chan) || (size_t)n < room) {
			return;
		}
	}
}

/* False: nothing to send. */
static bool fill(struct chan *chan)
{
	/* Shared by all channels, which live on one thread: room kept in each would add up. */
	static uint8_t frame[CHAN_FILL_BYTES];

	if (evbuffer_get_length(chan->out) > 0) {
		return true;
	}
	if (chan->fsm.state != CHAN_READY) {
		return false;
	}
	size_t len = chan->hooks.fill(chan->hooks.arg, frame);

	ASSERT(evbuffer_add(chan->out, frame, len) == 0);
	return len > 0;
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
	struct chan *chan = arg;
	size_t written = 0;

	(void)what;
	while (written < CHAN_TURN_BYTES) {
		if (!fill(chan)) {
			event_del(chan->write_event);
			return;
		}
		int n = evbuffer_write(chan->out, fd);

		if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
			return;
		}
		if (n < 0 && (errno == EPIPE || errno == ECONNRESET)) {
			/* What the guest said last is still to be read; then comes the end. */
			event_del(chan->write_event);
			return;
		}
		if (n < 0) {
			lose_closed(chan, errno);
			return;
		}
		written += (size_t)n;
	}
}

struct chan *chan_new(struct loop *loop, const char *path, const struct chan_timing *timing,
	const struct chan_hooks *hooks)
{
	struct chan *chan = xnew(struct chan);
	struct dial_hooks dial_hooks = {
		.on_connected = on_connected, .on_trouble = on_trouble, .arg = chan};

	chan->loop = loop;
	chan->hooks = *hooks;
	chan->fd = -1;
	chan->out = evbuffer_new();
	chan->timer = loop_timer_new(loop, on_timer, chan);
	ASSERT(chan->out);
	chan_fsm_init(&chan->fsm, timing);
	dial_init(&chan->dial, loop, path, &dial_hooks);
	dial_start(&chan->dial, 0);
	return chan;
}

static void on_give_up(void *arg)
{
	struct chan *chan = arg;

	if (chan->given_up.kind != ERR_NONE) {
		lose(chan, &chan->given_up, chan->fsm.timing->penalty_ms);
	}
}

static void free_later(void *arg)
{
	struct chan *chan = arg;

	evbuffer_free(chan->out);
	event_free(chan->timer);
	free(chan->in);
	free(chan);
}

void chan_free(struct chan *chan)
{
	if (!chan) {
		return;
	}
	ASSERT(!chan->is_freed);
	chan->is_freed = true;
	if (chan->fd >= 0) {
		/* Whoever is reading from in[] right now still may. */
		uint8_t *in = steal_ptr(&chan->in);

		hang_up(chan);
		chan->in = in;
	}
	dial_fini(&chan->dial);
	loop_cancel_deferred(chan->loop, on_give_up, chan);
	loop_defer(chan->loop, free_later, chan);
}

void chan_wake(struct chan *chan)
{
	if (chan->fd >= 0 && chan->fsm.state == CHAN_READY) {
		ASSERT(event_add(chan->write_event, NULL) == 0);
	}
}

void chan_set_busy(struct chan *chan, bool is_busy)
{
	if (chan->fsm.is_busy != is_busy) {
		chan_fsm_set_busy(&chan->fsm, is_busy, clock_monotonic_ms());
		if (chan->fd >= 0) {
			arm(chan);
		}
	}
}

void chan_give_up(struct chan *chan, const struct err *err)
{
	if (chan->fd >= 0 && chan->given_up.kind == ERR_NONE) {
		chan->given_up = *err;
		loop_defer(chan->loop, on_give_up, chan);
	}
}
