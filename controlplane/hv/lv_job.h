#pragma once

/*
 * lv_job - one operation of hv_ops on its way through a worker
 *
 * Purpose: what each operation runs on the thread, and how its caller is answered.
 * Owns:    a job: its copies of what the caller passed, its reference to the connection, results.
 * Thread:  made, answered and freed on the loop; in between the worker's alone (loop/worker.h).
 * Errors:  as in hv.h.
 * Uses:    base, loop, spec.h, overlay.h, lv_domain.h, lv_residue.h.
 */

#include "hv/lv_domain.h"
#include "hv/lv_residue.h"
#include "loop/lane.h"

enum lv_verb {
	LV_DISK_CREATE,
	LV_DISK_PREPARE,
	LV_DISK_SWAP,
	LV_DISK_DISCARD,
	LV_DISK_REMOVE,
	LV_START,
	LV_DESTROY,
	LV_RESUME,
	LV_SET_EXPIRY,
	LV_SET_LINK,
	LV_LIST,
	LV_SURVEY,
	LV_RESIDUE_REMOVE,
};
#define LV_VERB_COUNT (LV_RESIDUE_REMOVE + 1)

struct hv_libvirt;

struct lv_job {
	struct lane_job lane;
	STAILQ_ENTRY(lv_job) link; /* hv_libvirt.refused */
	struct hv_libvirt *owner;  /* the loop's */
	enum lv_verb verb;
	char id[ID_BYTES];

	/* What it works on. */
	virConnectPtr virt; /* a reference, given up by the thread */
	struct lv_target target;
	const struct domain_xml_host *host;
	const struct lv_place *place;
	pthread_rwlock_t *starts; /* lv_residue.h */
	struct hv_spec *spec;
	struct hv_paths *paths;
	unsigned char uuid[DOMAIN_UUID_BYTES];
	struct process process;
	int64_t expires_at_ms;
	bool is_up;
	struct hv_residue item;

	/* Results. */
	struct lv_facts facts;
	struct lv_facts *list;
	size_t count;
	struct lv_census census;
	struct hv_residue *residue;
	size_t residue_count;

	/* The caller; which one the verb says. */
	union {
		hv_done_fn done;
		hv_start_fn start;
		hv_list_fn list;
		hv_survey_fn survey;
	} fn;
	void *arg;
};
STAILQ_HEAD(lv_job_list, lv_job);

/* Submitter sets the rest, and done, late and deadline of the worker job. */
struct lv_job *lv_job_new(enum lv_verb verb, const char *id);
void lv_job_free(struct lv_job *job);
struct lv_job *lv_job_of(struct worker_job *job);

/* Disk work goes on without libvirt. */
bool lv_job_needs_connection(const struct lv_job *job);
/* Calls the caller back. Results are looked at only where @err is NULL. */
void lv_job_answer(struct lv_job *job, const struct err *err);
