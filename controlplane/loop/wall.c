#include "loop/wall.h"

#include <errno.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "base/xalloc.h"

/*
 * Theory of operation. A timer of the wall clock that is due in the far future can ask to be
 * cancelled when that clock is set; waking from sleep counts as such. Reading it then says so, and
 * it must be set anew.
 */

#define FAR_SECONDS (INT64_C(100) * 365 * 24 * 3600)

struct wall_watch {
	int fd;
	struct event *event;
	void (*on_set)(void *arg);
	void *arg;
};

static void arm(struct wall_watch *watch)
{
	const struct itimerspec at = {.it_value = {.tv_sec = time(NULL) + FAR_SECONDS}};

	(void)timerfd_settime(watch->fd, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, &at, NULL);
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	struct wall_watch *watch = arg;
	uint64_t count;

	(void)what;
	if (read(fd, &count, sizeof count) < 0 && errno == ECANCELED) {
		arm(watch);
		watch->on_set(watch->arg);
	}
}

struct wall_watch *wall_watch_new(struct loop *loop, void (*on_set)(void *arg), void *arg)
{
	struct wall_watch *watch = xnew(struct wall_watch);

	watch->on_set = on_set;
	watch->arg = arg;
	watch->fd = timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK | TFD_CLOEXEC);
	if (watch->fd >= 0) {
		watch->event = event_new(
			loop_base(loop), watch->fd, EV_READ | EV_PERSIST, on_readable, watch);
		ASSERT(watch->event && event_add(watch->event, NULL) == 0);
		arm(watch);
	}
	return watch;
}

void wall_watch_free(struct wall_watch *watch)
{
	if (!watch) {
		return;
	}
	if (watch->event) {
		event_free(watch->event);
		close(watch->fd);
	}
	free(watch);
}
