#pragma once

/*
 * monitor - the kernel's word on changes of nftables
 *
 * Purpose: tells of every change of one table, and of changes at all by the generation number.
 * Owns:    two netlink sockets.
 * Thread:  loop. Nothing here waits.
 * Errors:  ERR_FORBIDDEN without CAP_NET_ADMIN, ERR_UNAVAILABLE without support.
 * Uses:    base, loop, libmnl.
 */

#include <stdbool.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "loop/loop.h"

/* What the kernel told; all zero: nothing that concerns the table. */
struct monitor_news {
	unsigned transactions; /* that touched the table and are complete */
	bool is_touched;       /* something of it was added or removed */
	bool is_removed;       /* something of it was removed */
	bool is_lost;          /* word of some changes was lost */
};

struct monitor;

/* @on_news is called from the loop when there is any. */
struct monitor *monitor_new(struct loop *loop, const char *table,
	void (*on_news)(void *arg, const struct monitor_news *news), void *arg, struct err *err);
void monitor_free(struct monitor *monitor);
DEFINE_CLEANUP(struct monitor *, monitor_free)

/* Takes what is waiting, without on_news(). What a finished call did is there already. */
struct monitor_news monitor_drain(struct monitor *monitor);

/* Grows with each transaction of anybody in this network namespace. */
int monitor_generation(struct monitor *monitor, uint32_t *ret, struct err *err);
