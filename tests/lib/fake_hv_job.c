#include <stdio.h>
#include <unistd.h>

#include "base/fs.h"
#include "tests/lib/fake_hv_priv.h"

/*
 * Theory of operation
 *
 * A call becomes a job. Of the jobs with one id only the oldest is active: it has a timer, or is
 * held. When the timer fires the job acts and answers. One that is to time out answers first, stays
 * in the list without blocking its id (is_late), and acts when its second timer fires.
 */

static struct fake_entry *find_own(const struct fake_hv *fake, const char *id)
{
	struct fake_entry *entry = fake_entry_find(fake, id);

	return entry && !entry->domain.is_foreign ? entry : NULL;
}

/* ---- what the operations do ---- */

static int write_disk(struct fake_job *job, const char *path, struct err *err)
{
	_cleanup_free_ char *text = xasprintf("disk %u", job->fake->next_disk++);

	return fs_write_atomic(path, text, strlen(text), 0600, err);
}

static int act_disk_create(struct fake_job *job, struct err *err)
{
	if (fs_remove_tree(job->disk_dir, err) != 0 || fs_remove_tree(job->run_dir, err) != 0 ||
		fs_mkdir_parents(job->disk_dir, 0700, err) != 0 ||
		fs_mkdir_parents(job->run_dir, 0700, err) != 0) {
		return -1;
	}
	return write_disk(job, job->overlay, err);
}

static int act_disk_swap(struct fake_job *job, struct err *err)
{
	if (rename(job->overlay_next, job->overlay) != 0) {
		return err_set(err, ERR_NOT_FOUND, "no fresh disk is prepared");
	}
	return 0;
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

	if (fake_entry_find(fake, job->id)) {
		return err_set(err, ERR_CONFLICT, "a domain of that id exists");
	}
	/* A late one had opened it while it was there. */
	if (!job->is_late && access(job->overlay, F_OK) != 0) {
		return err_set(err, ERR_INTERNAL, "can't open %s", job->overlay);
	}
	job->domain.facts.state = HV_DOMAIN_RUNNING;
	struct fake_entry *entry = fake_entry_add(fake, &job->domain);

	job->domain = entry->domain;
	fake_watch_tell(fake, entry->domain.agent_socket, true);
	return 0;
}

static int act_residue_remove(struct fake_job *job, struct err *err)
{
	struct fake_residue *residue = fake_residue_find(job->fake, job->item.name);

	if (job->id[0] && fake_entry_find(job->fake, job->id)) {
		return err_set(err, ERR_CONFLICT, "a domain uses it");
	}
	if (residue) {
		fake_residue_drop(job->fake, residue);
	}
	return 0;
}

static int act(struct fake_job *job, struct err *err)
{
	struct fake_hv *fake = job->fake;
	struct fake_entry *entry = find_own(fake, job->id);

	switch (job->op) {
	case FAKE_HV_DISK_CREATE:
		return act_disk_create(job, err);
	case FAKE_HV_DISK_PREPARE:
		return write_disk(job, job->overlay_next, err);
	case FAKE_HV_DISK_SWAP:
		return act_disk_swap(job, err);
	case FAKE_HV_DISK_DISCARD:
		return fs_remove(job->overlay_next, err);
	case FAKE_HV_DISK_REMOVE:
		return act_disk_remove(job, err);
	case FAKE_HV_START:
		return act_start(job, err);
	case FAKE_HV_DESTROY:
		if (entry) {
			fake_entry_drop(fake, entry);
		}
		return 0;
	case FAKE_HV_LIST:
	case FAKE_HV_SURVEY:
		return 0;
	case FAKE_HV_RESIDUE_REMOVE:
		return act_residue_remove(job, err);
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
		bool was_paused = entry->domain.facts.state == HV_DOMAIN_PAUSED;

		entry->domain.facts.state = HV_DOMAIN_RUNNING;
		if (was_paused && fake->is_open) {
			fake->hooks.on_event(fake->hooks.arg, job->id, HV_EVENT_RESUMED);
		}
	} else if (job->op == FAKE_HV_SET_EXPIRY) {
		entry->domain.facts.expires_at_ms = job->expires_at_ms;
	} else {
		entry->domain.is_link_up = job->is_up;
		entry->domain.was_link_up |= job->is_up;
	}
	return 0;
}

/* ---- jobs ---- */

static void answer_survey(struct fake_job *job, const struct err *err)
{
	const struct hv_survey survey = {.domains = job->facts,
		.domain_count = job->count,
		.others = job->others,
		.other_count = job->other_count,
		.residue = job->residue,
		.residue_count = job->residue_count};

	job->survey_done(job->arg, err ? NULL : &survey, err);
}

static void answer(struct fake_job *job, const struct err *err)
{
	if (job->op == FAKE_HV_SURVEY) {
		answer_survey(job, err);
	} else if (job->op == FAKE_HV_LIST) {
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

void fake_job_free(struct fake_job *job)
{
	TAILQ_REMOVE(&job->fake->jobs, job, link);
	event_free(job->timer);
	free(job->disk_dir);
	free(job->overlay);
	free(job->overlay_next);
	free(job->run_dir);
	free(job->facts);
	free(job->others);
	free(job->residue);
	free(job);
}

static void arm(struct fake_job *job, unsigned ms)
{
	struct timeval tv = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};

	evtimer_add(job->timer, &tv);
}

void fake_jobs_start(struct fake_hv *fake)
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
			if (job->script.acts_early) {
				(void)act(job, &(struct err){0});
			}
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

	if (job->script.mode != FAKE_FAIL && !job->script.acts_early) {
		(void)act(job, &err);
		fake_save(fake);
	}
	if (err.kind == ERR_NONE && job->script.mode != FAKE_OK && job->script.mode != FAKE_HOLD) {
		enum err_kind kind = job->script.kind ? job->script.kind : ERR_INTERNAL;

		err_set(&err, kind, "%s",
			kind == ERR_INTERNAL ? FAKE_INTERNAL_TEXT : "scripted failure");
	}
	if (job->is_late) {
		if (fake->is_open) {
			fake->hooks.on_late(fake->hooks.arg, job->id);
		}
	} else {
		answer(job, err.kind == ERR_NONE ? NULL : &err);
	}
	fake_job_free(job);
	fake_jobs_start(fake);
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
		fake_job_free(job);
	}
	fake_jobs_start(fake);
}

struct fake_job *fake_job_new(struct fake_hv *fake, enum fake_hv_op op, const char *id, void *arg)
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

/* ---- for tests ---- */

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

unsigned fake_hv_held(const struct fake_hv *fake, enum fake_hv_op op)
{
	struct fake_job *job;
	unsigned count = 0;

	TAILQ_FOREACH (job, &fake->jobs, link) {
		count += job->op == op && job->script.mode == FAKE_HOLD;
	}
	return count;
}
