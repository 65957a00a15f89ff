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

enum monitor_change {
	MONITOR_NONE,
	MONITOR_CHANGED, /* something was added, or word of changes was lost: look */
	MONITOR_REMOVED, /* something of the table is gone */
};

struct monitor;

/* @on_change is called from the loop, with the gravest of what came together. */
struct monitor *monitor_new(struct loop *loop, const char *table,
	void (*on_change)(void *arg, enum monitor_change change), void *arg, struct err *err);
void monitor_free(struct monitor *monitor);
DEFINE_CLEANUP(struct monitor *, monitor_free)

/* Takes what is waiting, without on_change(). */
enum monitor_change monitor_drain(struct monitor *monitor);

/* Grows with each transaction of anybody in this network namespace. */
int monitor_generation(struct monitor *monitor, uint32_t *ret, struct err *err);
