#include <stdio.h>

#include "base/clock.h"
#include "base/fs.h"
#include "tests/lib/fake_hv_priv.h"

static struct fake_hv *fake_of(struct hv *hv)
{
	return (struct fake_hv *)hv;
}

/* ---- domains ---- */

struct fake_entry *fake_entry_find(const struct fake_hv *fake, const char *id)
{
	struct fake_entry *entry;

	TAILQ_FOREACH (entry, &fake->domains, link) {
		if (strcmp(entry->domain.facts.id, id) == 0) {
			return entry;
		}
	}
	return NULL;
}

void fake_watch_tell(struct fake_hv *fake, const char *agent_socket, bool is_up)
{
	if (fake->watch && agent_socket[0] != '\0') {
		fake->watch(fake->watch_arg, agent_socket, is_up);
	}
}

void fake_entry_drop(struct fake_hv *fake, struct fake_entry *entry)
{
	TAILQ_REMOVE(&fake->domains, entry, link);
	fake_watch_tell(fake, entry->domain.agent_socket, false);
	free(entry);
}

struct fake_entry *fake_entry_add(struct fake_hv *fake, const struct fake_domain *domain)
{
	struct fake_entry *entry = xnew(struct fake_entry);

	entry->domain = *domain;
	entry->domain.facts.pid = fake->next_pid++;
	entry->domain.facts.pid_start = (uint64_t)entry->domain.facts.pid * 10;
	entry->domain.facts.started_at_ms = clock_wall_ms();
	TAILQ_INSERT_TAIL(&fake->domains, entry, link);
	return entry;
}

/* ---- domains that outlive the process ---- */

struct kept {
	pid_t next_pid;
	unsigned next_disk;
	size_t count;
};

void fake_save(const struct fake_hv *fake)
{
	struct kept head = {fake->next_pid, fake->next_disk, fake_hv_count(fake)};
	struct fake_entry *entry;

	if (!fake->kept_in) {
		return;
	}
	size_t len = sizeof head + head.count * sizeof(struct fake_domain);
	_cleanup_free_ char *bytes = xcalloc(1, len);
	char *at = bytes + sizeof head;

	memcpy(bytes, &head, sizeof head);
	TAILQ_FOREACH (entry, &fake->domains, link) {
		memcpy(at, &entry->domain, sizeof entry->domain);
		at += sizeof entry->domain;
	}
	/* For a kill of this process alone: no sync. */
	_cleanup_free_ char *partial = xasprintf("%s.partial", fake->kept_in);
	FILE *f = fopen(partial, "we");

	ASSERT(f && fwrite(bytes, len, 1, f) == 1 && fclose(f) == 0);
	ASSERT(rename(partial, fake->kept_in) == 0);
}

void fake_hv_keep(struct fake_hv *fake, const char *path)
{
	_cleanup_free_ char *bytes = NULL;
	struct kept head;
	size_t len;
	struct err err;

	fake->kept_in = xstrdup(path);
	if (fs_read(path, 1024 * 1024, &bytes, &len, &err) != 0) {
		ASSERT(err.kind == ERR_NOT_FOUND);
		return;
	}
	memcpy(&head, bytes, sizeof head);
	fake->next_pid = head.next_pid;
	fake->next_disk = head.next_disk;
	for (size_t i = 0; i < head.count; i++) {
		struct fake_entry *entry = xnew(struct fake_entry);

		memcpy(&entry->domain, bytes + sizeof head + i * sizeof entry->domain,
			sizeof entry->domain);
		TAILQ_INSERT_TAIL(&fake->domains, entry, link);
	}
}

/* ---- residue ---- */

struct fake_residue *fake_residue_find(const struct fake_hv *fake, const char *name)
{
	struct fake_residue *residue;

	TAILQ_FOREACH (residue, &fake->residue, link) {
		if (strcmp(residue->item.name, name) == 0) {
			return residue;
		}
	}
	return NULL;
}

void fake_residue_drop(struct fake_hv *fake, struct fake_residue *residue)
{
	TAILQ_REMOVE(&fake->residue, residue, link);
	free(residue);
}

/* ---- the interface ---- */

static void use_paths(struct fake_job *job, const struct hv_paths *paths)
{
	job->disk_dir = xstrdup(paths->disk_dir);
	job->overlay = xstrdup(paths->overlay);
	job->overlay_next = xstrdup(paths->overlay_next);
	job->run_dir = xstrdup(paths->run_dir);
}

static void on_ready_turn(void *arg)
{
	struct fake_hv *fake = arg;
	struct err err;

	err_set(&err, ERR_UNAVAILABLE, "the hypervisor is not connected");
	fake->info.is_ready = fake->is_ready;
	fake->hooks.on_ready(fake->hooks.arg, fake->is_ready, fake->is_ready ? NULL : &err);
}

static void fake_open(struct hv *hv, const struct hv_hooks *hooks)
{
	struct fake_hv *fake = fake_of(hv);

	ASSERT(!fake->is_open);
	fake->is_open = true;
	fake->hooks = *hooks;
	loop_defer(fake->loop, on_ready_turn, fake);
}

static void fake_close(struct hv *hv)
{
	struct fake_hv *fake = fake_of(hv);

	fake->is_open = false;
	loop_cancel_deferred(fake->loop, on_ready_turn, fake);
	while (!TAILQ_EMPTY(&fake->jobs)) {
		fake_job_free(TAILQ_FIRST(&fake->jobs));
	}
}

static const struct hv_info *fake_info(const struct hv *hv)
{
	return &((const struct fake_hv *)hv)->info;
}

static void disk_job(struct hv *hv, enum fake_hv_op op, const char *id,
	const struct hv_paths *paths, hv_done_fn done, void *arg)
{
	struct fake_job *job = fake_job_new(fake_of(hv), op, id, arg);

	job->done = done;
	use_paths(job, paths);
	fake_jobs_start(job->fake);
}

static void fake_disk_create(struct hv *hv, const struct hv_spec *spec, hv_done_fn done, void *arg)
{
	disk_job(hv, FAKE_HV_DISK_CREATE, spec->id, spec->paths, done, arg);
}

static void fake_disk_prepare(struct hv *hv, const struct hv_spec *spec, hv_done_fn done, void *arg)
{
	disk_job(hv, FAKE_HV_DISK_PREPARE, spec->id, spec->paths, done, arg);
}

static void fake_disk_swap(
	struct hv *hv, const char *id, const struct hv_paths *paths, hv_done_fn done, void *arg)
{
	disk_job(hv, FAKE_HV_DISK_SWAP, id, paths, done, arg);
}

static void fake_disk_discard(
	struct hv *hv, const char *id, const struct hv_paths *paths, hv_done_fn done, void *arg)
{
	disk_job(hv, FAKE_HV_DISK_DISCARD, id, paths, done, arg);
}

static void fake_disk_remove(
	struct hv *hv, const char *id, const struct hv_paths *paths, hv_done_fn done, void *arg)
{
	disk_job(hv, FAKE_HV_DISK_REMOVE, id, paths, done, arg);
}

static void fake_start(struct hv *hv, const struct hv_spec *spec, hv_start_fn done, void *arg)
{
	struct fake_job *job = fake_job_new(fake_of(hv), FAKE_HV_START, spec->id, arg);
	struct fake_domain *domain = &job->domain;

	job->start_done = done;
	use_paths(job, spec->paths);
	snprintf(domain->facts.id, sizeof domain->facts.id, "%s", spec->id);
	snprintf(domain->facts.account, sizeof domain->facts.account, "%s", spec->account);
	domain->facts.expires_at_ms = spec->expires_at_ms;
	domain->has_network = spec->network != HV_NETWORK_NONE;
	domain->is_link_up = domain->has_network && !spec->is_link_down;
	domain->was_link_up = domain->is_link_up;
	domain->uid = spec->uid;
	snprintf(
		domain->agent_socket, sizeof domain->agent_socket, "%s", spec->paths->agent_socket);
	fake_jobs_start(job->fake);
}

static struct fake_job *simple_job(
	struct hv *hv, enum fake_hv_op op, const char *id, hv_done_fn done, void *arg)
{
	struct fake_job *job = fake_job_new(fake_of(hv), op, id, arg);

	job->done = done;
	return job;
}

static void fake_destroy(struct hv *hv, const char *id, hv_done_fn done, void *arg)
{
	simple_job(hv, FAKE_HV_DESTROY, id, done, arg);
	fake_jobs_start(fake_of(hv));
}

static void fake_resume(struct hv *hv, const char *id, hv_done_fn done, void *arg)
{
	simple_job(hv, FAKE_HV_RESUME, id, done, arg);
	fake_jobs_start(fake_of(hv));
}

static void fake_set_expiry(
	struct hv *hv, const char *id, int64_t expires_at_ms, hv_done_fn done, void *arg)
{
	simple_job(hv, FAKE_HV_SET_EXPIRY, id, done, arg)->expires_at_ms = expires_at_ms;
	fake_jobs_start(fake_of(hv));
}

static void fake_set_link(struct hv *hv, const char *id, bool is_up, hv_done_fn done, void *arg)
{
	simple_job(hv, FAKE_HV_SET_LINK, id, done, arg)->is_up = is_up;
	fake_jobs_start(fake_of(hv));
}

/* What there is now: a real list is older than its answer, and so is this one. */
static void gather(struct fake_job *job)
{
	struct fake_entry *entry;

	TAILQ_FOREACH (entry, &job->fake->domains, link) {
		if (!entry->domain.is_foreign) {
			job->facts = xrealloc(job->facts, job->count + 1, sizeof *job->facts);
			job->facts[job->count++] = entry->domain.facts;
		}
	}
}

static void fake_list(struct hv *hv, hv_list_fn done, void *arg)
{
	struct fake_job *job = fake_job_new(fake_of(hv), FAKE_HV_LIST, "*", arg);

	job->list_done = done;
	gather(job);
	fake_jobs_start(job->fake);
}

/* The others, and what no domain uses. */
static void gather_rest(struct fake_job *job)
{
	struct fake_entry *entry;
	struct fake_residue *residue;

	TAILQ_FOREACH (entry, &job->fake->domains, link) {
		if (entry->domain.is_foreign) {
			job->others = xrealloc(
				job->others, job->other_count + 1, sizeof *job->others);
			job->others[job->other_count++] = (struct hv_other){
				.instance = FAKE_OTHER_INSTANCE, .facts = entry->domain.facts};
		}
	}
	TAILQ_FOREACH (residue, &job->fake->residue, link) {
		if (!residue->item.id[0] || !fake_entry_find(job->fake, residue->item.id)) {
			job->residue = xrealloc(
				job->residue, job->residue_count + 1, sizeof *job->residue);
			job->residue[job->residue_count++] = residue->item;
		}
	}
}

static void fake_survey(struct hv *hv, hv_survey_fn done, void *arg)
{
	struct fake_job *job = fake_job_new(fake_of(hv), FAKE_HV_SURVEY, "*", arg);

	job->survey_done = done;
	gather(job);
	gather_rest(job);
	fake_jobs_start(job->fake);
}

static void fake_residue_remove(
	struct hv *hv, const struct hv_residue *item, hv_done_fn done, void *arg)
{
	struct fake_job *job = simple_job(hv, FAKE_HV_RESIDUE_REMOVE, item->id, done, arg);

	job->item = *item;
	fake_jobs_start(job->fake);
}

static const struct hv_ops fake_ops = {
	.open = fake_open,
	.close = fake_close,
	.info = fake_info,
	.disk_create = fake_disk_create,
	.disk_prepare = fake_disk_prepare,
	.disk_swap = fake_disk_swap,
	.disk_discard = fake_disk_discard,
	.disk_remove = fake_disk_remove,
	.start = fake_start,
	.destroy = fake_destroy,
	.resume = fake_resume,
	.set_expiry = fake_set_expiry,
	.set_link = fake_set_link,
	.list = fake_list,
	.survey = fake_survey,
	.residue_remove = fake_residue_remove,
};

/* ---- for tests ---- */

struct fake_hv *fake_hv_new(struct loop *loop)
{
	struct fake_hv *fake = xnew(struct fake_hv);

	fake->hv.ops = &fake_ops;
	fake->loop = loop;
	fake->is_ready = true;
	fake->next_pid = 5000000; /* beyond what the kernel hands out */
	fake->info = (struct hv_info){.driver = "fake",
		.acceleration = "tcg",
		.acceleration_why = "the fake hypervisor runs nothing",
		.libvirt_version = "0",
		.qemu_version = "0"};
	TAILQ_INIT(&fake->jobs);
	TAILQ_INIT(&fake->domains);
	TAILQ_INIT(&fake->residue);
	return fake;
}

void fake_hv_free(struct fake_hv *fake)
{
	ASSERT(!fake->is_open);
	fake->watch = NULL;
	free(fake->kept_in);
	fake->kept_in = NULL;
	while (!TAILQ_EMPTY(&fake->domains)) {
		fake_entry_drop(fake, TAILQ_FIRST(&fake->domains));
	}
	while (!TAILQ_EMPTY(&fake->residue)) {
		fake_residue_drop(fake, TAILQ_FIRST(&fake->residue));
	}
	free(fake);
}

struct hv *fake_hv_iface(struct fake_hv *fake)
{
	return &fake->hv;
}

void fake_hv_script(struct fake_hv *fake, enum fake_hv_op op, const struct fake_script *script)
{
	fake->scripts[op] = script ? *script : (struct fake_script){0};
}

unsigned fake_hv_calls(const struct fake_hv *fake, enum fake_hv_op op)
{
	return fake->calls[op];
}

void fake_hv_set_ready(struct fake_hv *fake, bool is_ready)
{
	fake->is_ready = is_ready;
	if (fake->is_open) {
		loop_cancel_deferred(fake->loop, on_ready_turn, fake);
		loop_defer(fake->loop, on_ready_turn, fake);
	}
}

bool fake_hv_is_open(const struct fake_hv *fake)
{
	return fake->is_open;
}

struct fake_domain *fake_hv_find(struct fake_hv *fake, const char *id)
{
	struct fake_entry *entry = fake_entry_find(fake, id);

	return entry ? &entry->domain : NULL;
}

size_t fake_hv_count(const struct fake_hv *fake)
{
	struct fake_entry *entry;
	size_t count = 0;

	TAILQ_FOREACH (entry, &fake->domains, link) {
		count++;
	}
	return count;
}

struct fake_domain *fake_hv_at(struct fake_hv *fake, size_t index)
{
	struct fake_entry *entry = TAILQ_FIRST(&fake->domains);

	while (entry && index-- > 0) {
		entry = TAILQ_NEXT(entry, link);
	}
	ASSERT(entry != NULL);
	return &entry->domain;
}

struct fake_domain *fake_hv_add(struct fake_hv *fake, const char *id)
{
	struct fake_domain domain = {.facts.state = HV_DOMAIN_RUNNING};

	snprintf(domain.facts.id, sizeof domain.facts.id, "%s", id);
	return &fake_entry_add(fake, &domain)->domain;
}

void fake_hv_add_residue(struct fake_hv *fake, enum hv_residue_kind kind, const char *id,
	const char *name, int64_t since_ms)
{
	struct fake_residue *residue = xnew(struct fake_residue);

	residue->item.kind = kind;
	residue->item.since_ms = since_ms;
	snprintf(residue->item.id, sizeof residue->item.id, "%s", id);
	snprintf(residue->item.name, sizeof residue->item.name, "%s", name);
	TAILQ_INSERT_TAIL(&fake->residue, residue, link);
}

size_t fake_hv_residue_count(const struct fake_hv *fake)
{
	struct fake_residue *residue;
	size_t count = 0;

	TAILQ_FOREACH (residue, &fake->residue, link) {
		count++;
	}
	return count;
}

bool fake_hv_has_residue(const struct fake_hv *fake, const char *name)
{
	return fake_residue_find(fake, name) != NULL;
}

void fake_hv_stop_domain(struct fake_hv *fake, const char *id, bool is_told)
{
	struct fake_entry *entry = fake_entry_find(fake, id);

	ASSERT(entry != NULL);
	char copy[ID_BYTES];

	snprintf(copy, sizeof copy, "%s", id);
	fake_entry_drop(fake, entry);
	if (is_told && fake->is_open) {
		fake->hooks.on_event(fake->hooks.arg, copy, HV_EVENT_STOPPED);
	}
}

void fake_hv_tell(struct fake_hv *fake, const char *id, enum hv_event event)
{
	fake->hooks.on_event(fake->hooks.arg, id, event);
}

void fake_hv_tell_late(struct fake_hv *fake, const char *id)
{
	fake->hooks.on_late(fake->hooks.arg, id);
}

void fake_hv_watch(struct fake_hv *fake, fake_hv_watch_fn fn, void *arg)
{
	fake->watch = fn;
	fake->watch_arg = arg;
}

const char *fake_hv_id_of(const struct fake_hv *fake, const char *agent_socket)
{
	struct fake_entry *entry;

	TAILQ_FOREACH (entry, &fake->domains, link) {
		if (strcmp(entry->domain.agent_socket, agent_socket) == 0) {
			return entry->domain.facts.id;
		}
	}
	return NULL;
}

bool fake_hv_is_up(const struct fake_hv *fake, const char *agent_socket)
{
	return fake_hv_id_of(fake, agent_socket) != NULL;
}
