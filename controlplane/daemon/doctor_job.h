#pragma once

/*
 * doctor_job - the doctor beside a running daemon
 *
 * Purpose: takes what hypervisor and filter say of themselves on the loop, has doctor.c look at the
 * rest in a worker, and brings the findings back. Thread:  loop. Errors:  ERR_UNAVAILABLE: the
 * worker's queue is full; done() is told. Uses:    base, loop, hv.h, netfilter.
 */

#include "base/err.h"
#include "base/json.h"

struct config;
struct hv;
struct loop;
struct netfilter;
struct worker_pool;

typedef void (*doctor_done_fn)(void *arg, json_object *findings, const struct err *err);

/* done() comes once, from the loop, later; it takes the findings. @config is borrowed until then.
 */
void doctor_job_submit(struct loop *loop, struct worker_pool *pool, const struct config *config,
	const struct hv *hv, const struct netfilter *netfilter, doctor_done_fn done, void *arg);
