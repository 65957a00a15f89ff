#pragma once

/*
 * lv_queue - jobs on their way to the workers and back
 *
 * Purpose: what every operation of hv_libvirt has in common: the lane that its job waits in, what
 *          is noted of a result, and the answer to the caller.
 * Owns:    the jobs, from lv_queue_submit() to the answer.
 * Thread:  loop.
 * Uses:    base, loop, lv_conn.h, lv_job.h, lv_known.h.
 */

#include <pthread.h>

#include "hv/hv_libvirt.h"
#include "hv/lv_conn.h"
#include "hv/lv_job.h"
#include "hv/lv_known.h"

/* The hypervisor, as hv_libvirt.c makes it. */
struct hv_libvirt {
	struct hv hv;
	struct loop *loop;
	struct hv_libvirt_deadlines deadlines;
	char *instance;
	char *emulator;
	struct lv_place *place;
	struct accel_choice accel;
	struct domain_xml_host host;
	struct worker_pool *pool;
	struct lanes *lanes;
	struct lv_conn *conn;
	struct lv_known *known;
	struct lv_job_list refused;
	pthread_rwlock_t starts; /* lv_residue.h; of the workers */
	struct hv_hooks hooks;
	struct hv_info info;
	char libvirt_version[24];
	char qemu_version[24];
	bool is_closed;
	bool is_left_behind; /* a thread that didn't come back still uses parts of this */
};

static inline struct hv_libvirt *hv_libvirt_of(struct hv *hv)
{
	return container_of(hv, struct hv_libvirt, hv);
}

/* A job for one operation; @arg is for its callback. */
struct lv_job *lv_queue_job(struct hv *hv, enum lv_verb verb, const char *id, void *arg);
/* Takes @job, and answers it once: not from within this call. @deadline_ms: from now. */
void lv_queue_submit(struct hv_libvirt *hv, struct lv_job *job, uint64_t deadline_ms);
/* Deferred by this file, and for those that are left at the end. @arg is the hv_libvirt. */
void lv_queue_answer_refused(void *arg);
/* To the process of sandbox @id, if one is known and lives. */
void lv_queue_signal(struct hv_libvirt *hv, const char *id, void (*send)(int pidfd));
