#pragma once

/*
 * lv_events - from libvirt's event thread to the loop
 *
 * Purpose: runs libvirt's event loop in a thread of its own, and carries what its callbacks say
 *          into ours.
 * Owns:    that thread (one a process); a reference to the mailbox (lv_mailbox.h).
 * Thread:  loop, except where it says otherwise.
 * Errors:  ERR_INTERNAL: no thread, no descriptor.
 * Uses:    base, loop, lv_mailbox.h, libvirt.
 */

#include <libvirt/libvirt.h>

#include "hv/lv_mailbox.h"
#include "loop/loop.h"

typedef void (*lv_mail_fn)(void *arg, const struct lv_mail *mail);

struct lv_events;

/* Registers libvirt's event loop and starts its thread. Before the first connection. */
struct lv_events *lv_events_new(struct loop *loop, lv_mail_fn on_mail, void *arg, struct err *err);
/* No on_mail() after this. */
void lv_events_mute(struct lv_events *events);
/* Ends the thread, too. Connections may still hold the mailbox. */
void lv_events_free(struct lv_events *events);
DEFINE_CLEANUP(struct lv_events *, lv_events_free)

/* What a connection subscribed to. */
struct lv_subscription {
	int lifecycle_id;
	bool has_close;
};

/* Worker: subscribes @conn, which is the @generation-th. @is_remote: it can be lost. */
int lv_events_subscribe_blocking(struct lv_events *events, virConnectPtr conn, uint64_t generation,
	bool is_remote, struct lv_subscription *ret, struct err *err);
/* Any thread but the loop's. */
void lv_events_unsubscribe_blocking(virConnectPtr conn, const struct lv_subscription *subscription);
