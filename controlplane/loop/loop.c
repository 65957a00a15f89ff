#include "loop/loop.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/xalloc.h"

/*
 * Theory of operation. Deferred calls sit in a list that one zero-delay timer works off, as many as
 * were there when it fired: what they defer in turn comes with the next turn, so sockets get their
 * share.
 */

struct deferred {
	TAILQ_ENTRY(deferred) link; /* loop.deferred */
	void (*fn)(void *arg);
	void *arg;
};

struct loop {
	struct event_base *base;
	struct event *defer_timer;
	TAILQ_HEAD(, deferred) deferred;
};

static _Atomic bool has_loop;
static pthread_t loop_thread;

bool loop_is_current(void)
{
	return !has_loop || pthread_equal(pthread_self(), loop_thread);
}

static void on_defer_timer(evutil_socket_t fd, short what, void *arg)
{
	struct loop *loop = arg;
	struct deferred marker = {0};

	(void)fd;
	(void)what;
	TAILQ_INSERT_TAIL(&loop->deferred, &marker, link);
	for (;;) {
		struct deferred *call = TAILQ_FIRST(&loop->deferred);

		TAILQ_REMOVE(&loop->deferred, call, link);
		if (call == &marker) {
			break;
		}
		void (*fn)(void *) = call->fn;
		void *fn_arg = call->arg;

		free(call);
		fn(fn_arg);
	}
	if (!TAILQ_EMPTY(&loop->deferred)) {
		loop_timer_set(loop->defer_timer, 0);
	}
}

static void on_libevent_log(int severity, const char *msg)
{
	enum log_level level = severity >= EVENT_LOG_WARN ? LOG_LEVEL_WARN : LOG_LEVEL_DEBUG;
	static struct log_limit limit; /* clients can cause some of them: too many descriptors */
	char quoted[512];
	unsigned held_back;

	if (level <= log_level() && log_limit_allows(&limit, clock_monotonic_ms(), &held_back)) {
		log_line(level, "libevent", "held_back=%u text=%s", held_back,
			log_quote(quoted, sizeof quoted, msg, strlen(msg)));
	}
}

struct loop *loop_new(struct err *err)
{
	struct loop *loop = xnew(struct loop);

	signal(SIGPIPE, SIG_IGN);
	event_set_log_callback(on_libevent_log);
	TAILQ_INIT(&loop->deferred);
	loop->base = event_base_new();
	if (!loop->base) {
		free(loop);
		err_set(err, ERR_INTERNAL, "no event base");
		return NULL;
	}
	loop->defer_timer = loop_timer_new(loop, on_defer_timer, loop);
	loop_thread = pthread_self();
	has_loop = true;
	return loop;
}

void loop_free(struct loop *loop)
{
	if (!loop) {
		return;
	}
	loop_assert();
	while (!TAILQ_EMPTY(&loop->deferred)) {
		on_defer_timer(-1, 0, loop);
	}
	event_free(loop->defer_timer);
	event_base_free(loop->base);
	has_loop = false;
	free(loop);
}

struct event_base *loop_base(struct loop *loop)
{
	return loop->base;
}

void loop_run(struct loop *loop)
{
	loop_assert();
	event_base_loop(loop->base, EVLOOP_NO_EXIT_ON_EMPTY);
}

void loop_stop(struct loop *loop)
{
	event_base_loopbreak(loop->base);
}

static void on_turn_timer(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	(void)arg;
}

struct event *loop_timer_new(struct loop *loop, event_callback_fn fn, void *arg)
{
	struct event *timer = evtimer_new(loop->base, fn, arg);

	ASSERT(timer != NULL);
	return timer;
}

void loop_timer_set(struct event *timer, uint64_t ms)
{
	const struct timeval tv = {
		.tv_sec = (time_t)(ms / 1000), .tv_usec = (suseconds_t)(ms % 1000 * 1000)};
	int rc = evtimer_add(timer, &tv);

	ASSERT(rc == 0);
}

void loop_turn_for(struct loop *loop, unsigned ms)
{
	loop_assert();
	struct event *timer = loop_timer_new(loop, on_turn_timer, NULL);

	loop_timer_set(timer, ms);
	event_base_loop(loop->base, EVLOOP_ONCE);
	event_free(timer);
}

void loop_defer(struct loop *loop, void (*fn)(void *arg), void *arg)
{
	struct deferred *call = xnew(struct deferred);

	loop_assert();
	call->fn = fn;
	call->arg = arg;
	if (TAILQ_EMPTY(&loop->deferred)) {
		loop_timer_set(loop->defer_timer, 0);
	}
	TAILQ_INSERT_TAIL(&loop->deferred, call, link);
}

void loop_cancel_deferred(struct loop *loop, void (*fn)(void *arg), void *arg)
{
	struct deferred *call = TAILQ_FIRST(&loop->deferred);

	loop_assert();
	while (call) {
		struct deferred *next = TAILQ_NEXT(call, link);

		/* The marker of a running round has no function. */
		if (call->fn == fn && call->arg == arg) {
			TAILQ_REMOVE(&loop->deferred, call, link);
			free(call);
		}
		call = next;
	}
}
