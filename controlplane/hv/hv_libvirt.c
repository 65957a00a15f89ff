#include "hv/hv_libvirt.h"

#include <libxml/parser.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "base/rand.h"
#include "base/xalloc.h"
#include "hv/lv_conn.h"
#include "hv/lv_error.h"
#include "hv/lv_job.h"
#include "hv/lv_known.h"
#include "hv/spec.h"

/*
 * Theory of operation
 *
 * An operation is a row of verbs[]: what runs on the worker, what the loop does with the result,
 * and whether it needs a connection. All go the same way: submit() puts the job into the lane of
 * its sandbox, on_done() answers the caller, on_late() tells that an answer which came too late is
 * there.
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

#define WORKERS_DEFAULT_MAX 4
#define WORKERS_MAX         16
#define SPARES              8
#define QUEUE_MAX           256
#define CLOSE_GRACE_MS      5000
/* A call takes a third of a second, on a busy machine a few times that; not all at a time. */
#define STALL_MS 1000
/* No id looks like these. */
#define LIST_LANE      "*"
#define RESIDUE_LANE   "#"
#define LINK_LANE      "link "
#define LANE_KEY_BYTES (sizeof LINK_LANE + ID_BYTES)

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

static struct hv_libvirt *self(struct hv *hv)
{
	return container_of(hv, struct hv_libvirt, hv);
}

/* ---- results, on the loop ---- */

static void signal_known_process(struct hv_libvirt *hv, const char *id, void (*send)(int pidfd))
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
		signal_known_process(hv, job->id, process_continue);
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
		signal_known_process(hv, job->id, process_stop);
	}
}

static void on_done(struct worker_job *worker_job, const struct err *err)
{
	struct lv_job *job = lv_job_of(worker_job);
	struct hv_libvirt *hv = job->owner;

	if (needs_kill(hv, job, err)) {
		log_warn("killing QEMU without libvirt", "sb=%s", job->id);
		signal_known_process(hv, job->id, process_kill);
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

static void answer_refused(void *arg)
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
		loop_defer(hv->loop, answer_refused, hv);
	}
	STAILQ_INSERT_TAIL(&hv->refused, job, link);
}

/* ---- operations ---- */

static struct lv_job *new_job(struct hv *hv, enum lv_verb verb, const char *id, void *arg)
{
	struct hv_libvirt *this = self(hv);
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

static void submit(struct hv_libvirt *hv, struct lv_job *job, uint64_t deadline_ms)
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

static void submit_disk(struct hv *hv, struct lv_job *job, hv_done_fn done)
{
	job->fn.done = done;
	submit(self(hv), job, self(hv)->deadlines.disk_ms);
}

static void op_disk_create(struct hv *hv, const struct hv_spec *spec, hv_done_fn done, void *arg)
{
	struct lv_job *job = new_job(hv, LV_DISK_CREATE, spec->id, arg);

	job->spec = hv_spec_dup(spec);
	submit_disk(hv, job, done);
}

static void op_disk_prepare(struct hv *hv, const struct hv_spec *spec, hv_done_fn done, void *arg)
{
	struct lv_job *job = new_job(hv, LV_DISK_PREPARE, spec->id, arg);

	job->spec = hv_spec_dup(spec);
	submit_disk(hv, job, done);
}

static void op_disk_swap(
	struct hv *hv, const char *id, const struct hv_paths *paths, hv_done_fn done, void *arg)
{
	struct lv_job *job = new_job(hv, LV_DISK_SWAP, id, arg);

	job->paths = hv_paths_dup(paths);
	submit_disk(hv, job, done);
}

static void op_disk_discard(
	struct hv *hv, const char *id, const struct hv_paths *paths, hv_done_fn done, void *arg)
{
	struct lv_job *job = new_job(hv, LV_DISK_DISCARD, id, arg);

	job->paths = hv_paths_dup(paths);
	submit_disk(hv, job, done);
}

static void op_disk_remove(
	struct hv *hv, const char *id, const struct hv_paths *paths, hv_done_fn done, void *arg)
{
	struct lv_job *job = new_job(hv, LV_DISK_REMOVE, id, arg);

	job->paths = hv_paths_dup(paths);
	submit_disk(hv, job, done);
}

/* RFC 4122, version 4. */
static void make_uuid(unsigned char uuid[DOMAIN_UUID_BYTES])
{
	rand_bytes(uuid, DOMAIN_UUID_BYTES);
	uuid[6] = (unsigned char)((uuid[6] & 0x0f) | 0x40);
	uuid[8] = (unsigned char)((uuid[8] & 0x3f) | 0x80);
}

static void op_start(struct hv *hv, const struct hv_spec *spec, hv_start_fn done, void *arg)
{
	struct lv_job *job = new_job(hv, LV_START, spec->id, arg);

	job->spec = hv_spec_dup(spec);
	job->fn.start = done;
	make_uuid(job->uuid);
	/* Before it can have any event. */
	lv_known_expect(self(hv)->known, spec->id, job->uuid);
	submit(self(hv), job, self(hv)->deadlines.start_ms);
}

static void op_destroy(struct hv *hv, const char *id, hv_done_fn done, void *arg)
{
	struct lv_job *job = new_job(hv, LV_DESTROY, id, arg);

	job->process = lv_known_process(self(hv)->known, id);
	job->fn.done = done;
	submit(self(hv), job, self(hv)->deadlines.call_ms);
}

static void op_resume(struct hv *hv, const char *id, hv_done_fn done, void *arg)
{
	struct lv_job *job = new_job(hv, LV_RESUME, id, arg);

	job->fn.done = done;
	submit(self(hv), job, self(hv)->deadlines.call_ms);
}

static void op_set_expiry(
	struct hv *hv, const char *id, int64_t expires_at_ms, hv_done_fn done, void *arg)
{
	struct lv_job *job = new_job(hv, LV_SET_EXPIRY, id, arg);

	job->expires_at_ms = expires_at_ms;
	job->fn.done = done;
	submit(self(hv), job, self(hv)->deadlines.call_ms);
}

static void op_set_link(struct hv *hv, const char *id, bool is_up, hv_done_fn done, void *arg)
{
	struct lv_job *job = new_job(hv, LV_SET_LINK, id, arg);

	job->is_up = is_up;
	job->fn.done = done;
	if (is_up) {
		/* It may have been stopped for a pull, and libvirt may still hang. */
		signal_known_process(self(hv), id, process_continue);
	}
	submit(self(hv), job, is_up ? self(hv)->deadlines.call_ms : self(hv)->deadlines.pull_ms);
}

static void op_list(struct hv *hv, hv_list_fn done, void *arg)
{
	struct lv_job *job = new_job(hv, LV_LIST, "", arg);

	job->fn.list = done;
	submit(self(hv), job, self(hv)->deadlines.call_ms);
}

static void op_survey(struct hv *hv, hv_survey_fn done, void *arg)
{
	struct lv_job *job = new_job(hv, LV_SURVEY, "", arg);

	job->fn.survey = done;
	submit(self(hv), job, self(hv)->deadlines.call_ms);
}

static void op_residue_remove(
	struct hv *hv, const struct hv_residue *item, hv_done_fn done, void *arg)
{
	struct lv_job *job = new_job(hv, LV_RESIDUE_REMOVE, item->id, arg);

	job->item = *item;
	job->fn.done = done;
	submit(self(hv), job, self(hv)->deadlines.call_ms);
}

/* ---- connection ---- */

static void on_up(void *arg, const struct lv_opened *opened)
{
	struct hv_libvirt *hv = arg;

	for (size_t i = 0; i < opened->count; i++) {
		lv_known_learn(hv->known, &opened->facts[i]);
	}
	snprintf(hv->libvirt_version, sizeof hv->libvirt_version, "%s", opened->libvirt_version);
	snprintf(hv->qemu_version, sizeof hv->qemu_version, "%s", opened->qemu_version);
	hv->info.acceleration = hv->accel.is_kvm ? "kvm" : "tcg";
	hv->info.warning =
		opened->is_probing_slow
			? "libvirt probes QEMU anew for every call, since its QEMU user can't open "
			  "/dev/kvm: chgrp kvm /dev/kvm; chmod 660 /dev/kvm"
			: NULL;
	hv->info.is_ready = true;
	if (!hv->is_closed) {
		hv->hooks.on_ready(hv->hooks.arg, true, NULL);
	}
}

static void on_down(void *arg, const struct err *err)
{
	struct hv_libvirt *hv = arg;

	hv->info.is_ready = false;
	if (!hv->is_closed) {
		hv->hooks.on_ready(hv->hooks.arg, false, err);
	}
}

static void on_domain(void *arg, const unsigned char *uuid, enum hv_event event)
{
	struct hv_libvirt *hv = arg;
	const char *found = lv_known_find(hv->known, uuid);
	char id[ID_BYTES];

	if (found && !hv->is_closed) {
		/* A copy: the callback may end the entry. */
		snprintf(id, sizeof id, "%s", found);
		hv->hooks.on_event(hv->hooks.arg, id, event);
	}
}

static void op_open(struct hv *hv, const struct hv_hooks *hooks)
{
	self(hv)->hooks = *hooks;
	lv_conn_open(self(hv)->conn);
}

static void op_close(struct hv *hv)
{
	struct hv_libvirt *this = self(hv);

	loop_assert();
	if (this->is_closed) {
		return;
	}
	this->is_closed = true;
	this->info.is_ready = false;
	loop_cancel_deferred(this->loop, answer_refused, this);
	answer_refused(this);
	bool is_ended = worker_pool_free(this->pool, CLOSE_GRACE_MS);

	if (this->conn) {
		lv_conn_free(this->conn, is_ended);
	}
	this->is_left_behind = !is_ended;
	if (is_ended) {
		lanes_free(this->lanes);
	}
	this->pool = NULL;
	this->lanes = NULL;
	this->conn = NULL;
}

static const struct hv_info *op_info(const struct hv *hv)
{
	return &container_of(hv, struct hv_libvirt, hv)->info;
}

static const struct hv_ops libvirt_ops = {
	.open = op_open,
	.close = op_close,
	.info = op_info,
	.disk_create = op_disk_create,
	.disk_prepare = op_disk_prepare,
	.disk_swap = op_disk_swap,
	.disk_discard = op_disk_discard,
	.disk_remove = op_disk_remove,
	.start = op_start,
	.destroy = op_destroy,
	.resume = op_resume,
	.set_expiry = op_set_expiry,
	.set_link = op_set_link,
	.list = op_list,
	.survey = op_survey,
	.residue_remove = op_residue_remove,
};

/* ---- construction ---- */

static unsigned worker_count(unsigned wanted)
{
	long cores = sysconf(_SC_NPROCESSORS_ONLN);

	if (wanted > 0) {
		return MIN(wanted, (unsigned)WORKERS_MAX);
	}
	return cores < 1 ? 1 : (unsigned)MIN(cores, (long)WORKERS_DEFAULT_MAX);
}

static int construct(struct hv_libvirt *hv, const struct hv_libvirt_config *config, struct err *err)
{
	const struct worker_limits limits = {.threads = worker_count(config->workers),
		.spares = SPARES,
		.queue_max = QUEUE_MAX,
		.stall_ms = STALL_MS};
	const struct lv_conn_hooks hooks = {
		.on_up = on_up, .on_down = on_down, .on_domain = on_domain, .arg = hv};

	if (!domain_instance_is_valid(config->instance)) {
		return err_set(err, ERR_INVALID, "the instance id must be 16 hex digits");
	}
	hv->place = lv_place_new(config->uri, err);
	if (!hv->place || accel_choose(config->accel, NULL, &hv->accel, err) != 0) {
		return -1;
	}
	hv->host = (struct domain_xml_host){.instance = hv->instance,
		.is_kvm = hv->accel.is_kvm,
		.tb_cache_mib = config->tb_cache_mib,
		.emulator = hv->emulator};
	hv->pool = worker_pool_new(hv->loop, "hypervisor", &limits, err);
	if (!hv->pool) {
		return -1;
	}
	const struct lv_conn_config conn_config = {.place = hv->place,
		.instance = hv->instance,
		.emulator = hv->emulator,
		.is_kvm = hv->accel.is_kvm,
		.open_ms = config->deadlines.open_ms,
		.settle_ms = config->deadlines.settle_ms};
	hv->conn = lv_conn_new(hv->loop, hv->pool, &conn_config, &hooks, err);
	if (!hv->conn) {
		return -1;
	}
	hv->lanes = lanes_new(hv->loop, hv->pool);
	return 0;
}

struct hv *hv_libvirt_new(
	struct loop *loop, const struct hv_libvirt_config *config, struct err *err)
{
	struct hv_libvirt *hv = xnew(struct hv_libvirt);

	loop_assert();
	/* Both libraries want their first call from one thread. */
	xmlInitParser();
	lv_error_silence();
	hv->hv.ops = &libvirt_ops;
	hv->loop = loop;
	hv->deadlines = config->deadlines;
	hv->instance = xstrdup(config->instance);
	hv->emulator = xstrdup(config->emulator);
	hv->known = lv_known_new();
	STAILQ_INIT(&hv->refused);
	ASSERT(pthread_rwlock_init(&hv->starts, NULL) == 0);
	if (construct(hv, config, err) != 0) {
		hv_libvirt_free(&hv->hv);
		return NULL;
	}
	hv->info = (struct hv_info){.driver = lv_place_label(hv->place),
		.acceleration = "",
		.acceleration_why = hv->accel.why,
		.libvirt_version = hv->libvirt_version,
		.qemu_version = hv->qemu_version};
	return &hv->hv;
}

void hv_libvirt_free(struct hv *hv)
{
	if (!hv) {
		return;
	}
	struct hv_libvirt *this = self(hv);

	op_close(hv);
	loop_cancel_deferred(this->loop, answer_refused, this);
	answer_refused(this);
	if (this->is_left_behind) {
		return;
	}
	lv_place_free(this->place);
	lv_known_free(this->known);
	pthread_rwlock_destroy(&this->starts);
	free(this->instance);
	free(this->emulator);
	free(this);
}
