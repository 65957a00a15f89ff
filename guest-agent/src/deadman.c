#include "src/deadman.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "src/guard.h"
#include "src/log.h"
#include "src/loop.h"
#include "src/machine.h"

static int timer_fd = -1;

int deadman_init(void)
{
	timer_fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
	return timer_fd < 0
		       ? -1
		       : loop_watch(timer_fd, EPOLLIN, (struct loop_ref){.kind = LOOP_DEADMAN});
}

int deadman_set(uint64_t ms)
{
	struct itimerspec at = {0};

	/* Beyond what a timer can hold nobody waits for it. */
	ms = MIN(ms, (uint64_t)INT32_MAX * 1000u);
	at.it_value.tv_sec = (time_t)(ms / 1000u);
	at.it_value.tv_nsec = (long)(ms % 1000u) * 1000000;
	if (timerfd_settime(timer_fd, 0, &at, NULL) != 0) {
		return -1;
	}
	guard_set_deadline(ms == 0 ? 0 : guard_now_ms() + ms);
	return 0;
}

void deadman_on_event(void)
{
	uint64_t count;

	/* Nothing to read: it has been set anew since. */
	if (read(timer_fd, &count, sizeof count) == (ssize_t)sizeof count) {
		log_warn("the deadline has passed and nobody extended it");
		machine_power_off();
	}
}
