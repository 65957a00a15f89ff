#include "hv/lv_job.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/xalloc.h"
#include "hv/lv_error.h"
#include "hv/overlay.h"
#include "hv/spec.h"

/*
 * Theory of operation. A verb is a row of verbs[]. run() makes the call and gives up the reference
 * to the connection while still on the thread: giving up the last one closes it, which may block.
 *
 * To a libvirt in another process each job makes a connection of its own, and the common one only
 * says that there is one: libvirt's client must not be used by several threads at a time
 * (docs/hypervisor.md).
 *
 * QEMU's log: the embedded driver appends what QEMU prints to a file. That is little, but a guest
 * that breaks its virtual devices again and again can provoke more, so every listing (the daemon
 * lists periodically) empties logs that have grown.
 */

#define LOG_BYTES_MAX (1024 * 1024)

static char *log_path(const char *dir, const struct lv_job *job, const char *id)
{
	char name[DOMAIN_NAME_BYTES];

	domain_name(name, job->target.instance, id);
	return xasprintf("%s/%s.log", dir, name);
}

static void trim_log(const struct lv_job *job, const char *id)
{
	_cleanup_free_ char *path = log_path(job->place->log_dir, job, id);
	struct stat st;

	if (lstat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > LOG_BYTES_MAX) {
		/* Nothing lost that anybody could still read: it is the same few lines. */
		(void)!truncate(path, 0);
	}
}

/* ---- worker ---- */

static int disk_create_blocking(struct lv_job *job, struct err *err)
{
	return overlay_create_blocking(job->spec, err);
}

static int disk_prepare_blocking(struct lv_job *job, struct err *err)
{
	return overlay_prepare_blocking(job->spec, err);
}

static int disk_swap_blocking(struct lv_job *job, struct err *err)
{
	return overlay_swap_blocking(job->paths, err);
}

static int disk_discard_blocking(struct lv_job *job, struct err *err)
{
	return overlay_discard_blocking(job->paths, err);
}

static int disk_remove_blocking(struct lv_job *job, struct err *err)
{
	/* Where it can't be removed it is found among what is left over. */
	_cleanup_free_ char *path = log_path(job->place->old_log_dir, job, job->id);

	(void)fs_remove(path, err);
	return overlay_remove_blocking(job->paths, err);
}

static int check_socket_path(const char *path, struct err *err)
{
	size_t max = sizeof((struct sockaddr_un){0}.sun_path) - 1;

	return strlen(path) <= max
		       ? 0
		       : err_set(err, ERR_INTERNAL,
				 "%s is longer than the %zu bytes of a socket's path", path, max);
}

static int start_blocking(struct lv_job *job, struct err *err)
{
	const struct hv_paths *paths = job->spec->paths;

	if (check_socket_path(paths->agent_socket, err) != 0 ||
		check_socket_path(paths->console_socket, err) != 0) {
		return -1;
	}
	ASSERT(pthread_rwlock_rdlock(job->starts) == 0);
	int rc = lv_domain_start_blocking(
		&job->target, job->spec, job->host, job->uuid, &job->facts, err);

	pthread_rwlock_unlock(job->starts);
	return rc;
}

static int destroy_blocking(struct lv_job *job, struct err *err)
{
	return lv_domain_destroy_blocking(&job->target, job->id, &job->process, err);
}

static int resume_blocking(struct lv_job *job, struct err *err)
{
	return lv_domain_resume_blocking(&job->target, job->id, err);
}

static int set_expiry_blocking(struct lv_job *job, struct err *err)
{
	return lv_domain_set_expiry_blocking(&job->target, job->id, job->expires_at_ms, err);
}

static int set_link_blocking(struct lv_job *job, struct err *err)
{
	return lv_domain_set_link_blocking(&job->target, job->id, job->is_up, err);
}

static int list_blocking(struct lv_job *job, struct err *err)
{
	if (lv_domain_list_blocking(&job->target, &job->list, &job->count, err) != 0) {
		return -1;
	}
	for (size_t i = 0; job->place->log_dir && i < job->count; i++) {
		trim_log(job, job->list[i].facts.id);
	}
	return 0;
}

static int survey_blocking(struct lv_job *job, struct err *err)
{
	return lv_residue_gather_blocking(
		&job->target, job->place, &job->census, &job->residue, &job->residue_count, err);
}

static int residue_remove_blocking(struct lv_job *job, struct err *err)
{
	return lv_residue_remove_blocking(&job->target, job->place, &job->item, job->starts, err);
}

static const struct verb {
	int (*call)(struct lv_job *job, struct err *err);
	bool needs_connection;
} verbs[] = {
	[LV_DISK_CREATE] = {disk_create_blocking, false},
	[LV_DISK_PREPARE] = {disk_prepare_blocking, false},
	[LV_DISK_SWAP] = {disk_swap_blocking, false},
	[LV_DISK_DISCARD] = {disk_discard_blocking, false},
	[LV_DISK_REMOVE] = {disk_remove_blocking, false},
	[LV_START] = {start_blocking, true},
	[LV_DESTROY] = {destroy_blocking, true},
	[LV_RESUME] = {resume_blocking, true},
	[LV_SET_EXPIRY] = {set_expiry_blocking, true},
	[LV_SET_LINK] = {set_link_blocking, true},
	[LV_LIST] = {list_blocking, true},
	[LV_SURVEY] = {survey_blocking, true},
	[LV_RESIDUE_REMOVE] = {residue_remove_blocking, true},
};
_Static_assert(ARRAY_SIZE(verbs) == LV_VERB_COUNT, "a row for each verb");

static int call_blocking(struct lv_job *job, struct err *err)
{
	bool has_own = job->virt && !job->place->root;

	if (!has_own) {
		return verbs[job->verb].call(job, err);
	}
	job->target.conn = virConnectOpen(job->place->uri);
	if (!job->target.conn) {
		return lv_error_set(err, "open a connection to libvirt");
	}
	int rc = verbs[job->verb].call(job, err);

	virConnectClose(job->target.conn);
	return rc;
}

static void run(struct worker_job *worker_job)
{
	struct lv_job *job = lv_job_of(worker_job);
	struct err err;

	if (call_blocking(job, &err) != 0) {
		worker_job->err = err;
	}
	if (job->virt) {
		virConnectClose(steal_ptr(&job->virt));
	}
}

/* ---- loop ---- */

struct lv_job *lv_job_of(struct worker_job *job)
{
	return container_of(container_of(job, struct lane_job, job), struct lv_job, lane);
}

struct lv_job *lv_job_new(enum lv_verb verb, const char *id)
{
	struct lv_job *job = xnew(struct lv_job);

	job->verb = verb;
	snprintf(job->id, sizeof job->id, "%s", id);
	job->lane.job.run = run;
	return job;
}

void lv_job_free(struct lv_job *job)
{
	ASSERT(!job->virt);
	hv_spec_free(job->spec);
	hv_paths_free(job->paths);
	free(job->list);
	lv_census_fini(&job->census);
	free(job->residue);
	free(job);
}

bool lv_job_needs_connection(const struct lv_job *job)
{
	return verbs[job->verb].needs_connection;
}

/* Without what only this folder needs; the caller frees. */
static struct hv_facts *plain_facts(const struct lv_facts *list, size_t count)
{
	struct hv_facts *facts = xcalloc(count + 1, sizeof *facts);

	for (size_t i = 0; i < count; i++) {
		facts[i] = list[i].facts;
	}
	return facts;
}

static void answer_list(struct lv_job *job)
{
	_cleanup_free_ struct hv_facts *facts = plain_facts(job->list, job->count);

	job->fn.list(job->arg, facts, job->count, NULL);
}

static void answer_survey(struct lv_job *job)
{
	_cleanup_free_ struct hv_facts *facts = plain_facts(job->census.own, job->census.own_count);
	const struct hv_survey survey = {.domains = facts,
		.domain_count = job->census.own_count,
		.others = job->census.others,
		.other_count = job->census.other_count,
		.residue = job->residue,
		.residue_count = job->residue_count};

	job->fn.survey(job->arg, &survey, NULL);
}

void lv_job_answer(struct lv_job *job, const struct err *err)
{
	switch (job->verb) {
	case LV_START:
		job->fn.start(job->arg, err ? NULL : &job->facts.facts, err);
		break;
	case LV_LIST:
		if (err) {
			job->fn.list(job->arg, NULL, 0, err);
		} else {
			answer_list(job);
		}
		break;
	case LV_SURVEY:
		if (err) {
			job->fn.survey(job->arg, NULL, err);
		} else {
			answer_survey(job);
		}
		break;
	case LV_DISK_CREATE:
	case LV_DISK_PREPARE:
	case LV_DISK_SWAP:
	case LV_DISK_DISCARD:
	case LV_DISK_REMOVE:
	case LV_DESTROY:
	case LV_RESUME:
	case LV_SET_EXPIRY:
	case LV_SET_LINK:
	case LV_RESIDUE_REMOVE:
	default:
		job->fn.done(job->arg, err);
		break;
	}
}
