#pragma once

/*
 * fake_hv_priv - what fake_hv.c (domains, the interface's table, what tests call) and
 * fake_hv_job.c (calls under way and their scripts) share
 */

#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "base/xalloc.h"
#include "tests/lib/fake_hv.h"

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
	char *overlay_next;
	char *run_dir;
	int64_t expires_at_ms;
	bool is_up;
	struct hv_facts *facts; /* LIST, SURVEY */
	size_t count;
	struct hv_other *others; /* SURVEY */
	size_t other_count;
	struct hv_residue *residue;
	size_t residue_count;
	struct hv_residue item; /* RESIDUE_REMOVE */
	hv_done_fn done;
	hv_start_fn start_done;
	hv_list_fn list_done;
	hv_survey_fn survey_done;
	void *arg;
};

struct fake_entry {
	TAILQ_ENTRY(fake_entry) link; /* fake_hv.domains */
	struct fake_domain domain;
};

struct fake_residue {
	TAILQ_ENTRY(fake_residue) link; /* fake_hv.residue */
	struct hv_residue item;
};

struct fake_hv {
	struct hv hv;
	struct loop *loop;
	struct hv_hooks hooks;
	struct hv_info info;
	bool is_open;
	bool is_ready;
	pid_t next_pid;
	unsigned next_disk;
	TAILQ_HEAD(, fake_job) jobs;
	TAILQ_HEAD(, fake_entry) domains;
	TAILQ_HEAD(, fake_residue) residue;
	struct fake_script scripts[FAKE_HV_OP_MAX];
	unsigned calls[FAKE_HV_OP_MAX];
	char *kept_in; /* NULL: nowhere */
	fake_hv_watch_fn watch;
	void *watch_arg;
};

/* fake_hv.c */
struct fake_entry *fake_entry_find(const struct fake_hv *fake, const char *id);
struct fake_entry *fake_entry_add(struct fake_hv *fake, const struct fake_domain *domain);
void fake_entry_drop(struct fake_hv *fake, struct fake_entry *entry);
/* Where domains outlive the process: after every change. */
void fake_save(const struct fake_hv *fake);
struct fake_residue *fake_residue_find(const struct fake_hv *fake, const char *name);
void fake_residue_drop(struct fake_hv *fake, struct fake_residue *residue);
void fake_watch_tell(struct fake_hv *fake, const char *agent_socket, bool is_up);

/* fake_hv_job.c: a call is made with fake_job_new(), filled, and let go by fake_jobs_start(). */
struct fake_job *fake_job_new(struct fake_hv *fake, enum fake_hv_op op, const char *id, void *arg);
void fake_job_free(struct fake_job *job);
/* Starts every job that nothing of its id is before. */
void fake_jobs_start(struct fake_hv *fake);
