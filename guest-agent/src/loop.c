#include "src/loop.h"

#include <errno.h>
#include <limits.h>
#include <sys/epoll.h>

#define EVENTS_PER_TURN 64

static int epoll_fd = -1;
static bool is_kicked;
static uint64_t deadline_ms;

int loop_init(void)
{
	epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	return epoll_fd < 0 ? -1 : 0;
}

/* kind: 8 bits, slot: 24 bits, generation: 32 bits. */
static uint64_t ref_pack(struct loop_ref ref)
{
	return (uint64_t)ref.kind << 56 | (uint64_t)(ref.slot & 0xffffff) << 32 | ref.generation;
}

static struct loop_ref ref_unpack(uint64_t data)
{
	return (struct loop_ref){
		.kind = (enum loop_kind)(data >> 56),
		.slot = (unsigned)(data >> 32 & 0xffffff),
		.generation = (uint32_t)data,
	};
}

int loop_watch(int fd, uint32_t events, struct loop_ref ref)
{
	struct epoll_event event = {.events = events | EPOLLET, .data.u64 = ref_pack(ref)};

	return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

void loop_forget(int fd)
{
	epoll_ctl(epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}

void loop_kick(void)
{
	is_kicked = true;
}

void loop_note_deadline(uint64_t at_ms)
{
	if (at_ms != 0 && (deadline_ms == 0 || at_ms < deadline_ms)) {
		deadline_ms = at_ms;
	}
}

static int wait_ms(void)
{
	if (is_kicked) {
		return 0;
	}
	if (deadline_ms == 0) {
		return -1;
	}
	uint64_t now = now_ms();

	return deadline_ms <= now ? 0 : (int)MIN(deadline_ms - now, (uint64_t)INT_MAX);
}

void loop_turn(loop_event_fn on_event)
{
	struct epoll_event events[EVENTS_PER_TURN];
	int n = epoll_wait(epoll_fd, events, EVENTS_PER_TURN, wait_ms());

	is_kicked = false;
	deadline_ms = 0;
	for (int i = 0; i < n; i++) {
		on_event(ref_unpack(events[i].data.u64), events[i].events);
	}
}
