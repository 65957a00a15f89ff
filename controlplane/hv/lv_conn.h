#pragma once

/*
 * lv_conn - the connection to libvirt
 *
 * Purpose: opens it, makes it ready, notices its loss and opens it again.
 * Owns:    the virConnectPtr; libvirt's event thread (lv_events).
 * Thread:  loop.
 * Errors:  through on_down(): why there is no connection.
 * Uses:    base, loop, lv_events.h, lv_domain.h, lv_place.h, lv_error.h, libvirt.
 *
 *   CLOSED ──open──► OPENING ──► READY ──lost──► WAITING ──backoff──► OPENING
 *                       └──failed──► WAITING
 *
 * Ready means: capabilities are cached, domains that ran before are re-attached or given up.
 */

#include "hv/lv_domain.h"
#include "hv/lv_events.h"
#include "hv/lv_place.h"
#include "loop/worker.h"

struct lv_conn_config {
	const struct lv_place *place; /* borrowed, like all that is here */
	const char *instance;
	const char *emulator;
	bool is_kvm;
	uint64_t open_ms;   /* deadline of one attempt */
	uint64_t settle_ms; /* of it, how long to wait for domains to be re-attached */
};

/* What came with a connection; valid during on_up(). */
struct lv_opened {
	const struct lv_facts *facts;
	size_t count;
	char libvirt_version[24];
	char qemu_version[24];
	bool is_probing_slow; /* libvirt asks QEMU anew for each call: the /dev/kvm trap */
};

struct lv_conn_hooks {
	void (*on_up)(void *arg, const struct lv_opened *opened);
	void (*on_down)(void *arg, const struct err *err);
	void (*on_domain)(void *arg, const unsigned char *uuid, enum hv_event event);
	void *arg;
};

struct lv_conn;

struct lv_conn *lv_conn_new(struct loop *loop, struct worker_pool *pool,
	const struct lv_conn_config *config, const struct lv_conn_hooks *hooks, struct err *err);
void lv_conn_open(struct lv_conn *conn);
/* A new reference for one job, or NULL while there is no connection. */
virConnectPtr lv_conn_get(struct lv_conn *conn);
/* Gives back the reference of a job that never ran; one that did closes it on its thread. */
void lv_conn_put(struct lv_conn *conn, virConnectPtr virt);
/*
 * Closes and frees; after worker_pool_free(). @is_pool_ended: no thread holds on to something of
 * ours. If not, or if closing hangs, things are left behind for the end of the process.
 */
void lv_conn_free(struct lv_conn *conn, bool is_pool_ended);
