#include "fake_hv.h"

#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "base/fs.h"
#include "base/xalloc.h"

/*
 * Theory of operation
 *
 * A call becomes a job. Of the jobs with one id only the oldest is active: it has a timer, or is
 * held. When the timer fires the job acts and answers. One that is to time out answers first, stays
 * in the list without blocking its id (is_late), and acts when its second timer fires.
 */

struct fake_job {
	TAILQ_ENTRY(fake_job) link; /* fake_hv.jobs */
	struct fake_hv *fake;
	enum fake_hv_op op;
	char id[ID_BYTES];
	struct fake_script script;
	struct event *timer;
	bool is_active;
	bool is_late;

	struct fake_domain domain; /* START */
	char *disk_dir;
	char *overlay;
	char *run_dir;
	int64_t expires_at_ms;
	bool is_up;
	struct hv_facts *facts; /* LIST */
	size_t count;
	hv_done_fn done;
	hv_start_fn start_done;
	hv_list_fn list_done;
	void *arg;
};

struct fake_entry {
	TAILQ_ENTRY(fake_entry) link; /* fake_hv.domains */
	struct fake_domain domain;
};

struct fake_hv {
	struct hv hv;
	struct loop *loop;
	struct hv_hooks hooks;
	struct hv_info info;
	bool is_open;
	bool is_ready;
	pid_t next_pid;
	TAILQ_HEAD(, fake_job) jobs;
	TAILQ_HEAD(, fake_entry) domains;
	struct fake_script scripts[FAKE_HV_OP_MAX];
	unsigned calls[FAKE_HV_OP_MAX];
	fake_hv_watch_fn watch;
	void *watch_arg;
};

static struct fake_hv *fake_of(struct hv *hv)
{
	return (struct fake_hv *)hv;
}

static struct fake_entry *find_entry(const struct fake_hv *fake, const char *id)
{
	struct fake_entry *entry;

	TAILQ_FOREACH (entry, &fake->domains, link) {
		if (strcmp(entry->domain.facts.id, id) == 0) {
			return entry;
		}
	}
	return NULL;
}

static struct fake_entry *find_own(const struct fake_hv *fake, const char *id)
{
	struct fake_entry *entry = find_entry(fake, id);

	return entry && !entry->domain.is_foreign ? entry : NULL;
}

static void tell_watch(struct fake_hv *fake, const char *agent_socket, bool is_up)
{
	if (fake->watch && agent_socket[0] != '\0') {
		fake->watch(fake->watch_arg, agent_socket, is_up);
	}
}

static void drop_entry(struct fake_hv *fake, struct fake_entry *entry)
{
	TAILQ_REMOVE(&fake->domains, entry, link);
	tell_watch(fake, entry->domain.agent_socket, false);
	free(entry);
}

static struct fake_entry *add_entry(struct fake_hv *fake, const struct fake_domain *domain)
{
	struct fake_entry *entry = xnew(struct fake_entry);

	entry->domain = *domain;
	entry->domain.facts.pid = fake->next_pid++;
	entry->domain.facts.pid_start = (uint64_t)entry->domain.facts.pid * 10;
	TAILQ_INSERT_TAIL(&fake->domains, entry, link);
	return entry;
}

/* ---- what the operations do ---- */

static int act_disk_create(struct fake_job *job, struct err *err)
{
	if (fs_remove_tree(job->disk_dir, err) != 0 || fs_remove_tree(job->run_dir, err) != 0 ||
		fs_mkdir_parents(job->disk_dir, 0700, err) != 0 ||
		fs_mkdir_parents(job->run_dir, 0700, err) != 0) {
		return -1;
	}
	return fs_write_atomic(job->overlay, "overlay", 7, 0600, err);
}

static int act_disk_remove(struct fake_job *job, struct err *err)
{
	return fs_remove_tree(job->disk_dir, err) != 0 || fs_remove_tree(job->run_dir, err) != 0
		       ? -1
		       : 0;
}

static int act_start(struct fake_job *job, struct err *err)
{
	struct fake_hv *fake = job->fake;

	if (find_entry(fake, job->id)) {
		return err_set(err, ERR_CONFLICT, "a domain of that id exists");
	}
	job->domain.facts.state = HV_DOMAIN_RUNNING;
	struct fake_entry *entry = add_entry(fake, &job->domain);

	job->domain = entry->domain;
	tell_watch(fake, entry->domain.agent_socket, true);
	return 0;
}

static int act(struct fake_job *job, struct err *err)
{
	struct fake_hv *fake = job->fake;
	struct fake_entry *entry = find_own(fake, job->id);

	switch (job->op) {
	case FAKE_HV_DISK_CREATE:
		return act_disk_create(job, err);
	case FAKE_HV_DISK_REMOVE:
		return act_disk_remove(job, err);
	case FAKE_HV_START:
		return act_start(job, err);
	case FAKE_HV_DESTROY:
		if (entry) {
			drop_entry(fake, entry);
		}
		return 0;
	case FAKE_HV_LIST:
		return 0;
	case FAKE_HV_RESUME:
	case FAKE_HV_SET_EXPIRY:
	case FAKE_HV_SET_LINK:
	case FAKE_HV_OP_MAX:
	default:
		break;
	}
	if (!entry) {
		return err_set(err, ERR_NOT_FOUND, "no such domain");
	}
	if (job->op == FAKE_HV_RESUME) {
		entry->domain.facts.state = HV_DOMAIN_RUNNING;
	} else if (job->op == FAKE_HV_SET_EXPIRY) {
		entry->domain.facts.expires_at_ms = job->expires_at_ms;
	} else {
		entry->domain.is_link_up = job->is_up;
		entry->domain.was_link_up |= job->is_up;
	}
	return 0;
}

/* ---- jobs ---- */

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

static void answer(struct fake_job *job, const struct err *err)
{
	if (job->op == FAKE_HV_LIST) {
		if (err) {
			job->list_done(job->arg, NULL, 0, err);
		} else {
			job->list_done(job->arg, job->facts, job->count, NULL);
		}
	} else if (job->op == FAKE_HV_START) {
		job->start_done(job->arg, err ? NULL : &job->domain.facts, err);
	} else {
		job->done(job->arg, err);
	}
}

static void job_free(struct fake_job *job)
{
	TAILQ_REMOVE(&job->fake->jobs, job, link);
	event_free(job->timer);
	free(job->disk_dir);
	free(job->overlay);
	free(job->run_dir);
	free(job->facts);
	free(job);
}

static void arm(struct fake_job *job, unsigned ms)
{
	struct timeval tv = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};

	evtimer_add(job->timer, &tv);
}

/* Starts every job that nothing of its id is before. */
static void activate(struct fake_hv *fake)
{
	struct fake_job *job;

	TAILQ_FOREACH (job, &fake->jobs, link) {
		struct fake_job *earlier;
		bool is_blocked = job->is_active || job->is_late;

		TAILQ_FOREACH (earlier, &fake->jobs, link) {
			if (earlier == job) {
				break;
			}
			is_blocked |= !earlier->is_late && strcmp(earlier->id, job->id) == 0;
		}
		if (!is_blocked) {
			job->is_active = true;
			if (job->script.mode != FAKE_HOLD) {
				arm(job, job->script.delay_ms);
			}
		}
	}
}

static void finish(struct fake_job *job)
{
	struct fake_hv *fake = job->fake;
	struct err err = ERR_INIT;

	if (job->script.mode != FAKE_FAIL) {
		(void)act(job, &err);
	}
	if (err.kind == ERR_NONE && job->script.mode != FAKE_OK && job->script.mode != FAKE_HOLD) {
		err_set(&err, job->script.kind ? job->script.kind : ERR_INTERNAL,
			"scripted failure");
	}
	if (job->is_late) {
		if (fake->is_open) {
			fake->hooks.on_late(fake->hooks.arg, job->id);
		}
	} else {
		answer(job, err.kind == ERR_NONE ? NULL : &err);
	}
	job_free(job);
	activate(fake);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct fake_job *job = arg;
	struct fake_hv *fake = job->fake;

	(void)fd;
	(void)what;
	if (job->script.mode != FAKE_TIMEOUT || job->is_late) {
		finish(job);
		return;
	}
	struct err err;
	unsigned late_ms = job->script.late_ms;

	err_set(&err, ERR_TIMEOUT, "the hypervisor didn't answer in time");
	job->is_late = true;
	answer(job, &err);
	/* The answer may have closed the hypervisor, but that waits for the next turn. */
	if (late_ms > 0) {
		arm(job, late_ms);
	} else {
		job_free(job);
	}
	activate(fake);
}

static struct fake_job *job_new(struct fake_hv *fake, enum fake_hv_op op, const char *id, void *arg)
{
	struct fake_job *job = xnew(struct fake_job);
	struct fake_script *script = &fake->scripts[op];

	loop_assert();
	ASSERT(fake->is_open);
	fake->calls[op]++;
	job->fake = fake;
	job->op = op;
	job->arg = arg;
	snprintf(job->id, sizeof job->id, "%s", id);
	if (script->mode != FAKE_OK && script->skip > 0) {
		script->skip--;
	} else {
		job->script = *script;
		if (script->times > 0 && --script->times == 0) {
			*script = (struct fake_script){0};
		}
	}
	if (!fake->is_ready) {
		job->script = (struct fake_script){.mode = FAKE_FAIL, .kind = ERR_UNAVAILABLE};
	}
	job->timer = evtimer_new(loop_base(fake->loop), on_timer, job);
	TAILQ_INSERT_TAIL(&fake->jobs, job, link);
	return job;
}

static void use_paths(struct fake_job *job, const struct hv_paths *paths)
{
	job->disk_dir = xstrdup(paths->disk_dir);
	job->overlay = xstrdup(paths->overlay);
	job->run_dir = xstrdup(paths->run_dir);
}

/* ---- the interface ---- */

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
		job_free(TAILQ_FIRST(&fake->jobs));
	}
}

static const struct hv_info *fake_info(const struct hv *hv)
{
	return &((const struct fake_hv *)hv)->info;
}

static void fake_disk_create(struct hv *hv, const struct hv_spec *spec, hv_done_fn done, void *arg)
{
	struct fake_job *job = job_new(fake_of(hv), FAKE_HV_DISK_CREATE, spec->id, arg);

	job->done = done;
	use_paths(job, spec->paths);
	activate(job->fake);
}

static void fake_disk_remove(
	struct hv *hv, const char *id, const struct hv_paths *paths, hv_done_fn done, void *arg)
{
	struct fake_job *job = job_new(fake_of(hv), FAKE_HV_DISK_REMOVE, id, arg);

	job->done = done;
	use_paths(job, paths);
	activate(job->fake);
}

static void fake_start(struct hv *hv, const struct hv_spec *spec, hv_start_fn done, void *arg)
{
	struct fake_job *job = job_new(fake_of(hv), FAKE_HV_START, spec->id, arg);
	struct fake_domain *domain = &job->domain;

	job->start_done = done;
	snprintf(domain->facts.id, sizeof domain->facts.id, "%s", spec->id);
	snprintf(domain->facts.account, sizeof domain->facts.account, "%s", spec->account);
	domain->facts.expires_at_ms = spec->expires_at_ms;
	domain->has_network = spec->network != HV_NETWORK_NONE;
	domain->is_link_up = domain->has_network && !spec->is_link_down;
	domain->was_link_up = domain->is_link_up;
	domain->uid = spec->uid;
	snprintf(
		domain->agent_socket, sizeof domain->agent_socket, "%s", spec->paths->agent_socket);
	activate(job->fake);
}

static struct fake_job *simple_job(
	struct hv *hv, enum fake_hv_op op, const char *id, hv_done_fn done, void *arg)
{
	struct fake_job *job = job_new(fake_of(hv), op, id, arg);

	job->done = done;
	return job;
}

static void fake_destroy(struct hv *hv, const char *id, hv_done_fn done, void *arg)
{
	simple_job(hv, FAKE_HV_DESTROY, id, done, arg);
	activate(fake_of(hv));
}

static void fake_resume(struct hv *hv, const char *id, hv_done_fn done, void *arg)
{
	simple_job(hv, FAKE_HV_RESUME, id, done, arg);
	activate(fake_of(hv));
}

static void fake_set_expiry(
	struct hv *hv, const char *id, int64_t expires_at_ms, hv_done_fn done, void *arg)
{
	simple_job(hv, FAKE_HV_SET_EXPIRY, id, done, arg)->expires_at_ms = expires_at_ms;
	activate(fake_of(hv));
}

static void fake_set_link(struct hv *hv, const char *id, bool is_up, hv_done_fn done, void *arg)
{
	simple_job(hv, FAKE_HV_SET_LINK, id, done, arg)->is_up = is_up;
	activate(fake_of(hv));
}

static void fake_list(struct hv *hv, hv_list_fn done, void *arg)
{
	struct fake_job *job = job_new(fake_of(hv), FAKE_HV_LIST, "*", arg);

	job->list_done = done;
	gather(job);
	activate(job->fake);
}

static const struct hv_ops fake_ops = {
	.open = fake_open,
	.close = fake_close,
	.info = fake_info,
	.disk_create = fake_disk_create,
	.disk_remove = fake_disk_remove,
	.start = fake_start,
	.destroy = fake_destroy,
	.resume = fake_resume,
	.set_expiry = fake_set_expiry,
	.set_link = fake_set_link,
	.list = fake_list,
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
	return fake;
}

void fake_hv_free(struct fake_hv *fake)
{
	ASSERT(!fake->is_open);
	fake->watch = NULL;
	while (!TAILQ_EMPTY(&fake->domains)) {
		drop_entry(fake, TAILQ_FIRST(&fake->domains));
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

void fake_hv_release(struct fake_hv *fake, enum fake_hv_op op)
{
	struct fake_job *job;

	fake_hv_script(fake, op, NULL);
	TAILQ_FOREACH (job, &fake->jobs, link) {
		if (job->op == op && job->script.mode == FAKE_HOLD) {
			job->script.mode = FAKE_OK;
			if (job->is_active) {
				arm(job, 0);
			}
		}
	}
}

unsigned fake_hv_calls(const struct fake_hv *fake, enum fake_hv_op op)
{
	return fake->calls[op];
}

unsigned fake_hv_held(const struct fake_hv *fake, enum fake_hv_op op)
{
	struct fake_job *job;
	unsigned count = 0;

	TAILQ_FOREACH (job, &fake->jobs, link) {
		count += job->op == op && job->script.mode == FAKE_HOLD;
	}
	return count;
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
	struct fake_entry *entry = find_entry(fake, id);

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

struct fake_domain *fake_hv_add(struct fake_hv *fake, const char *id)
{
	struct fake_domain domain = {.facts.state = HV_DOMAIN_RUNNING};

	snprintf(domain.facts.id, sizeof domain.facts.id, "%s", id);
	return &add_entry(fake, &domain)->domain;
}

void fake_hv_stop_domain(struct fake_hv *fake, const char *id, bool is_told)
{
	struct fake_entry *entry = find_entry(fake, id);

	ASSERT(entry != NULL);
	char copy[ID_BYTES];

	snprintf(copy, sizeof copy, "%s", id);
	drop_entry(fake, entry);
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

bool fake_hv_is_up(const struct fake_hv *fake, const char *agent_socket)
{
	struct fake_entry *entry;

	TAILQ_FOREACH (entry, &fake->domains, link) {
		if (strcmp(entry->domain.agent_socket, agent_socket) == 0) {
			return true;
		}
	}
	return false;
}
