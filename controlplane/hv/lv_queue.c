#include "hv/lv_queue.h"

#include <stdio.h>
#include <unistd.h>

#include "base/log.h"
#include "base/xalloc.h"

/*
 * Theory of operation
 *
 * All operations go the same way: lv_queue_submit() puts the job into the lane of its sandbox,
 * on_done() answers the caller, on_late() tells that an answer which came too late is there.
 *
 * A job that can't be submitted is answered from the loop a moment later, through `refused`, since
 * callers rely on not being called back from within the call.
 *
 * A destroy that libvirt doesn't carry out (it hangs, or there is no connection) ends the QEMU
 * process from here: its identity is known. The caller still hears of the failure, since what
 * libvirt makes of it is open; whatever hangs there usually comes back once the process is gone.
 *
 * In the same way a network cable that libvirt doesn't pull in time is as good as pulled once the
 * process is stopped: QEMU moves every packet itself. It goes on when the next call is about to
 * pull the cable, for which it must run, or when the cable may be plugged again.
 */

/* No id looks like these. */
#define LIST_LANE      "*"
#define RESIDUE_LANE   "#"
#define LINK_LANE      "link "
#define LANE_KEY_BYTES (sizeof LINK_LANE + ID_BYTES)

/* ---- results, on the loop ---- */

void lv_queue_signal(struct hv_libvirt *hv, const char *id, void (*send)(int pidfd))
{
	struct process process = lv_known_process(hv->known, id);
	char name[DOMAIN_NAME_BYTES];
	struct err err;
	int fd;

	domain_name(name, hv->instance, id);
	if (process_open(&process, name, &fd, &err) != 0) {
		if (err.kind != ERR_NOT_FOUND) {
			log_failure(LOG_LEVEL_ERR, "process can't be reached", &err, "sb=%s", id);
		}
		return;
	}
	send(fd);
	close(fd);
}

static void note_start(struct hv_libvirt *hv, const struct lv_job *job, const struct err *err)
{
	if (err) {
		lv_known_drop_expected(hv->known, job->id);
	} else {
		lv_known_learn(hv->known, &job->facts);
	}
}

static void note_list(
	struct hv_libvirt *hv, const struct lv_facts *list, size_t count, const struct err *err)
{
	for (size_t i = 0; !err && i < count; i++) {
		lv_known_learn(hv->known, &list[i]);
	}
}

/* A late failure of an earlier pull may have stopped it since the plug was asked for. */
static void note_link(struct hv_libvirt *hv, const struct lv_job *job, const struct err *err)
{
	if (!err && job->is_up && !job->lane.job.is_abandoned) {
		lv_queue_signal(hv, job->id, process_continue);
	}
}

static void note_end(struct hv_libvirt *hv, const struct lv_job *job, const struct err *err)
{
	if (!err) {
		lv_known_forget(hv->known, job->id);
	}
}

/* What to do with a result before the caller sees it. */
static void note(struct hv_libvirt *hv, const struct lv_job *job, const struct err *err)
{
	switch (job->verb) {
	case LV_START:
		note_start(hv, job, err);
		break;
	case LV_LIST:
		note_list(hv, job->list, job->count, err);
		break;
	case LV_SURVEY:
		note_list(hv, job->census.own, job->census.own_count, err);
		break;
	case LV_DESTROY:
	case LV_DISK_REMOVE:
		note_end(hv, job, err);
		break;
	case LV_SET_LINK:
		note_link(hv, job, err);
		break;
	case LV_DISK_CREATE:
	case LV_DISK_PREPARE:
	case LV_DISK_SWAP:
	case LV_DISK_DISCARD:
	case LV_RESUME:
	case LV_SET_EXPIRY:
	case LV_RESIDUE_REMOVE:
		break;
	}
}

/* libvirt hangs, is full or isn't there: the process can be ended without it. */
static bool needs_kill(const struct hv_libvirt *hv, const struct lv_job *job, const struct err *err)
{
	return err && job->verb == LV_DESTROY && !hv->is_closed &&
	       (err->kind == ERR_TIMEOUT || err->kind == ERR_UNAVAILABLE);
}

/* A pull that libvirt didn't carry out: the guest must be silent all the same. */
static void stop_if_plugged(struct hv_libvirt *hv, const struct lv_job *job, const struct err *err)
{
	if (err && job->verb == LV_SET_LINK && !job->is_up && !hv->is_closed) {
		log_warn("stopping QEMU without libvirt", "sb=%s", job->id);
		lv_queue_signal(hv, job->id, process_stop);
	}
}

static void on_done(struct worker_job *worker_job, const struct err *err)
{
	struct lv_job *job = lv_job_of(worker_job);
	struct hv_libvirt *hv = job->owner;

	if (needs_kill(hv, job, err)) {
		log_warn("killing QEMU without libvirt", "sb=%s", job->id);
		lv_queue_signal(hv, job->id, process_kill);
	}
	stop_if_plugged(hv, job, err);
	/* The worker still writes to an abandoned job; on_late() sees its result. */
	if (worker_job->is_abandoned) {
		lv_job_answer(job, err);
		return;
	}
	note(hv, job, err);
	lv_job_answer(job, err);
	if (job->virt) {
		lv_conn_put(hv->conn, steal_ptr(&job->virt));
	}
	lv_job_free(job);
}

static void on_late(struct worker_job *worker_job)
{
	struct lv_job *job = lv_job_of(worker_job);
	struct hv_libvirt *hv = job->owner;
	const struct err *err = worker_job->err.kind == ERR_NONE ? NULL : &worker_job->err;

	note(hv, job, err);
	stop_if_plugged(hv, job, err);
	if (!hv->is_closed && job->id[0] != '\0') {
		hv->hooks.on_late(hv->hooks.arg, job->id);
	}
	lv_job_free(job);
}

void lv_queue_answer_refused(void *arg)
{
	struct hv_libvirt *hv = arg;
	struct lv_job *job;

	/* What a callback submits in turn comes with the next round. */
	struct lv_job_list now = STAILQ_HEAD_INITIALIZER(now);
	STAILQ_CONCAT(&now, &hv->refused);
	while ((job = STAILQ_FIRST(&now))) {
		STAILQ_REMOVE_HEAD(&now, link);
		on_done(&job->lane.job, &job->lane.job.err);
	}
}

static void refuse(struct hv_libvirt *hv, struct lv_job *job, const struct err *err)
{
	job->lane.job.err = *err;
	if (STAILQ_EMPTY(&hv->refused)) {
		loop_defer(hv->loop, lv_queue_answer_refused, hv);
	}
	STAILQ_INSERT_TAIL(&hv->refused, job, link);
}

/* ---- submitting ---- */

struct lv_job *lv_queue_job(struct hv *hv, enum lv_verb verb, const char *id, void *arg)
{
	struct hv_libvirt *this = hv_libvirt_of(hv);
	struct lv_job *job = lv_job_new(verb, id);

	loop_assert();
	job->owner = this;
	job->target = (struct lv_target){.instance = this->instance,
		.pid_dir = this->place->pid_dir,
		.root = this->place->root};
	job->host = &this->host;
	job->place = this->place;
	job->starts = &this->starts;
	job->arg = arg;
	return job;
}

/* A pull must not wait for whatever else hangs about that sandbox. */
static void lane_key(char out[LANE_KEY_BYTES], const struct lv_job *job)
{
	if (job->verb == LV_LIST || job->verb == LV_SURVEY) {
		snprintf(out, LANE_KEY_BYTES, LIST_LANE);
	} else if (!job->id[0]) {
		snprintf(out, LANE_KEY_BYTES, RESIDUE_LANE);
	} else {
		snprintf(out, LANE_KEY_BYTES, "%s%s", job->verb == LV_SET_LINK ? LINK_LANE : "",
			job->id);
	}
}

void lv_queue_submit(struct hv_libvirt *hv, struct lv_job *job, uint64_t deadline_ms)
{
	char key[LANE_KEY_BYTES];
	struct err err;

	job->lane.job.done = on_done;
	job->lane.job.late = on_late;
	job->lane.job.deadline_ms = deadline_ms;
	if (hv->is_closed) {
		err_set(&err, ERR_UNAVAILABLE, "the service is shutting down");
		refuse(hv, job, &err);
		return;
	}
	if (lv_job_needs_connection(job)) {
		job->virt = lv_conn_get(hv->conn);
		job->target.conn = job->virt;
		if (!job->virt) {
			err_set(&err, ERR_UNAVAILABLE,
				"the hypervisor isn't ready; try again soon");
			refuse(hv, job, &err);
			return;
		}
	}
	lane_key(key, job);
	if (lane_submit(hv->lanes, key, &job->lane, &err) != 0) {
		refuse(hv, job, &err);
	}
}
