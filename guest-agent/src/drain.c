#include "src/drain.h"

#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

static struct {
	int fd; /* 0: free; the agent's descriptor 0 is never a pipe */
	uint32_t generation;
} drains[DRAIN_MAX];
static unsigned next;

static void stop(unsigned slot)
{
	loop_forget(drains[slot].fd);
	close(drains[slot].fd);
	drains[slot].fd = 0;
}

/* Reads a bounded amount; the rest in the next turn. */
static void pull(unsigned slot)
{
	static char nothing[65536];

	for (int i = 0; i < 4; i++) {
		ssize_t n = read(drains[slot].fd, nothing, sizeof nothing);

		if (n < 0 && errno == EINTR) {
			continue;
		}
		if (n < 0 && errno == EAGAIN) {
			return;
		}
		if (n <= 0) {
			stop(slot);
			return;
		}
	}
	/* More may be there and no edge will say so: watching anew reports it. */
	loop_forget(drains[slot].fd);
	loop_watch(drains[slot].fd, EPOLLIN,
		(struct loop_ref){LOOP_DRAIN, slot, drains[slot].generation});
}

static unsigned pick_slot(void)
{
	for (unsigned i = 0; i < DRAIN_MAX; i++) {
		unsigned slot = (next + i) % DRAIN_MAX;

		if (drains[slot].fd == 0) {
			return slot;
		}
	}
	stop(next);
	return next;
}

void drain_take(int *fd)
{
	unsigned slot = pick_slot();

	next = (slot + 1) % DRAIN_MAX;
	drains[slot].fd = *fd;
	drains[slot].generation++;
	*fd = -1;
	loop_forget(drains[slot].fd);
	if (loop_watch(drains[slot].fd, EPOLLIN,
		    (struct loop_ref){LOOP_DRAIN, slot, drains[slot].generation}) != 0) {
		stop(slot);
	}
}

void drain_on_event(struct loop_ref ref)
{
	if (ref.slot < DRAIN_MAX && drains[ref.slot].fd != 0 &&
		drains[ref.slot].generation == ref.generation) {
		pull(ref.slot);
	}
}
