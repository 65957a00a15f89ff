#include "hv/hv_libvirt.h"

#include <libxml/parser.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/rand.h"
#include "base/xalloc.h"
#include "hv/lv_error.h"
#include "hv/lv_queue.h"
#include "hv/spec.h"

/*
 * Theory of operation. An operation is a row of verbs[] in lv_job.c: what runs on the worker, and
 * whether it needs a connection. Here its arguments become a job, with its deadline; lv_queue.c
 * does the rest. And here all of it is put together and taken apart.
 */

#define WORKERS_DEFAULT_MAX 4
#define WORKERS_MAX         16
#define SPARES              8
#define QUEUE_MAX           256
#define CLOSE_GRACE_MS      5000
/* A call takes a third of a second, on a busy machine a few times that; not all at a time. */
#define STALL_MS 1000

static void submit_disk(struct hv *hv, struct lv_job *job, hv_done_fn done)
{
	job->fn.done = done;
	lv_queue_submit(hv_libvirt_of(hv), job, hv_libvirt_of(hv)->deadlines.disk_ms);
}

static void make_disk(
	struct hv *hv, enum lv_verb verb, const struct hv_spec *spec, hv_done_fn done, void *arg)
{
	struct lv_job *job = lv_queue_job(hv, verb, spec->id, arg);

	job->spec = hv_spec_dup(spec);
	submit_disk(hv, job, done);
}

static void move_disk(struct hv *hv, enum lv_verb verb, const char *id,
	const struct hv_paths *paths, hv_done_fn done, void *arg)
{
	struct lv_job *job = lv_queue_job(hv, verb, id, arg);

	job->paths = hv_paths_dup(paths);
	submit_disk(hv, job, done);
}

static void op_disk_create(struct hv *hv, const struct hv_spec *spec, hv_done_fn done, void *arg)
{
	make_disk(hv, LV_DISK_CREATE, spec, done, arg);
}

static void op_disk_prepare(struct hv *hv, const struct hv_spec *spec, hv_done_fn done, void *arg)
{
	make_disk(hv, LV_DISK_PREPARE, spec, done, arg);
}

static void op_disk_swap(
	struct hv *hv, const char *id, const struct hv_paths *paths, hv_done_fn done, void *arg)
{
	move_disk(hv, LV_DISK_SWAP, id, paths, done, arg);
}

static void op_disk_discard(
	struct hv *hv, const char *id, const struct hv_paths *paths, hv_done_fn done, void *arg)
{
	move_disk(hv, LV_DISK_DISCARD, id, paths, done, arg);
}

static void op_disk_remove(
	struct hv *hv, const char *id, const struct hv_paths *paths, hv_done_fn done, void *arg)
{
	move_disk(hv, LV_DISK_REMOVE, id, paths, done, arg);
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
	struct lv_job *job = lv_queue_job(hv, LV_START, spec->id, arg);

	job->spec = hv_spec_dup(spec);
	job->fn.start = done;
	make_uuid(job->uuid);
	/* Before it can have any event. */
	lv_known_expect(hv_libvirt_of(hv)->known, spec->id, job->uuid);
	lv_queue_submit(hv_libvirt_of(hv), job, hv_libvirt_of(hv)->deadlines.start_ms);
}

static void op_destroy(struct hv *hv, const char *id, hv_done_fn done, void *arg)
{
	struct lv_job *job = lv_queue_job(hv, LV_DESTROY, id, arg);

	job->process = lv_known_process(hv_libvirt_of(hv)->known, id);
	job->fn.done = done;
	lv_queue_submit(hv_libvirt_of(hv), job, hv_libvirt_of(hv)->deadlines.call_ms);
}

static void op_resume(struct hv *hv, const char *id, hv_done_fn done, void *arg)
{
	struct lv_job *job = lv_queue_job(hv, LV_RESUME, id, arg);

	job->fn.done = done;
	lv_queue_submit(hv_libvirt_of(hv), job, hv_libvirt_of(hv)->deadlines.call_ms);
}

static void op_set_expiry(
	struct hv *hv, const char *id, int64_t expires_at_ms, hv_done_fn done, void *arg)
{
	struct lv_job *job = lv_queue_job(hv, LV_SET_EXPIRY, id, arg);

	job->expires_at_ms = expires_at_ms;
	job->fn.done = done;
	lv_queue_submit(hv_libvirt_of(hv), job, hv_libvirt_of(hv)->deadlines.call_ms);
}

static void op_set_link(struct hv *hv, const char *id, bool is_up, hv_done_fn done, void *arg)
{
	struct lv_job *job = lv_queue_job(hv, LV_SET_LINK, id, arg);

	job->is_up = is_up;
	job->fn.done = done;
	if (is_up) {
		/* It may have been stopped for a pull, and libvirt may still hang. */
		lv_queue_signal(hv_libvirt_of(hv), id, process_continue);
	}
	lv_queue_submit(hv_libvirt_of(hv), job,
		is_up ? hv_libvirt_of(hv)->deadlines.call_ms
		      : hv_libvirt_of(hv)->deadlines.pull_ms);
}

static void op_list(struct hv *hv, hv_list_fn done, void *arg)
{
	struct lv_job *job = lv_queue_job(hv, LV_LIST, "", arg);

	job->fn.list = done;
	lv_queue_submit(hv_libvirt_of(hv), job, hv_libvirt_of(hv)->deadlines.call_ms);
}

static void op_survey(struct hv *hv, hv_survey_fn done, void *arg)
{
	struct lv_job *job = lv_queue_job(hv, LV_SURVEY, "", arg);

	job->fn.survey = done;
	lv_queue_submit(hv_libvirt_of(hv), job, hv_libvirt_of(hv)->deadlines.call_ms);
}

static void op_residue_remove(
	struct hv *hv, const struct hv_residue *item, hv_done_fn done, void *arg)
{
	struct lv_job *job = lv_queue_job(hv, LV_RESIDUE_REMOVE, item->id, arg);

	job->item = *item;
	job->fn.done = done;
	lv_queue_submit(hv_libvirt_of(hv), job, hv_libvirt_of(hv)->deadlines.call_ms);
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
	hv_libvirt_of(hv)->hooks = *hooks;
	lv_conn_open(hv_libvirt_of(hv)->conn);
}

static void op_close(struct hv *hv)
{
	struct hv_libvirt *this = hv_libvirt_of(hv);

	loop_assert();
	if (this->is_closed) {
		return;
	}
	this->is_closed = true;
	this->info.is_ready = false;
	loop_cancel_deferred(this->loop, lv_queue_answer_refused, this);
	lv_queue_answer_refused(this);
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
	struct hv_libvirt *this = hv_libvirt_of(hv);

	op_close(hv);
	loop_cancel_deferred(this->loop, lv_queue_answer_refused, this);
	lv_queue_answer_refused(this);
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
