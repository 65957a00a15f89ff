#pragma once

/*
 * sandbox_priv - what the files of this folder share
 *
 * Purpose: the two structs and the calls between sandbox.c (registry and object), the plan's steps
 *          (sandbox_create.c, sandbox_destroy.c), the channel, and what watches over them
 *          (reaper.c, reconcile.c, egress.c, extend.c). Nobody outside of sandbox/ includes it.
 * Owns:    see each field.
 * Thread:  loop.
 * Uses:    as sandbox.h.
 *
 * A sandbox is in the registry until its state is final; the object stays until its waits have been
 * told and nobody holds it. Whoever hands it to the hypervisor as an argument outside of its plan
 * holds it meanwhile (sandbox_hold); the plan needn't, since it is what ends the sandbox.
 */

#include <event2/event.h>
#include <sys/queue.h>

#include "base/log.h"
#include "sandbox/plan.h"
#include "sandbox/reconcile_table.h"
#include "sandbox/sandbox.h"

/* Guest operations at a time in one sandbox. The agent has room for some more: a command must be
 * possible to kill when no other can be begun. */
#define SANDBOX_CALLS_MAX   48u
#define SANDBOX_STREAMS_MAX 56u /* the same, with the waits for background commands */
/* What all its commands may hold of their outputs: so many times the usual cap, or so many times
 * the largest one where that is more. */
#define SANDBOX_OUTPUT_CAPS       8
#define SANDBOX_OUTPUT_LARGE_CAPS 2
#define SANDBOX_EXTENDS_MAX       16

/* Who uses the one configure call that a channel may have under way. */
enum config_owner { CONFIG_NOBODY, CONFIG_BOOT, CONFIG_SYNC, CONFIG_EXTEND };

enum link_state { LINK_UNKNOWN, LINK_DOWN, LINK_UP };

/* Beyond creation and removal; as long as it goes on, the row has its name. */
enum sandbox_task { TASK_NONE, TASK_RESTART, TASK_RESET };

/* Of the step "stop". */
enum stop_phase { STOP_IDLE, STOP_ASKED, STOP_KILLING };

/* What of the plan waits for the channel to be READY. */
enum boot_wait { BOOT_WAITS_FOR_NOTHING, BOOT_WAITS_TO_GO_ON, BOOT_WAITS_TO_CONFIGURE };

/* Whether the host has paused the domain, see pause.c. */
enum pause_state { PAUSE_NONE, PAUSE_STANDS, PAUSE_GOES };

struct extend_request; /* extend.c */
struct exec_record;    /* exec_records.c */
struct sandbox_job;    /* job.c */
/* job_tail.c: the tails of all commands that run are there, or won't come. */
typedef void (*jobs_taken_fn)(struct sandbox *sb);
struct strays_call; /* strays.c */

struct sandbox {
	TAILQ_ENTRY(sandbox) link; /* sandboxes.live or .ended */
	struct sandboxes *all;
	struct store_sandbox *row;
	enum sandbox_state state;
	unsigned holds;
	uint64_t changed_seq; /* sandboxes.seq when the state changed last */

	struct hv_paths paths;
	struct image *image; /* while it is created */
	struct quota_charge charge;
	struct plan plan;
	char request[ID_BYTES];    /* that the plan works for, for LOG_REQUEST(); "": none */
	struct err failure;        /* why its creation failed; kind NONE: it didn't */
	char *end_reason;          /* why it is to go; NULL: it isn't */
	struct event *retry_timer; /* a row that couldn't be written, sandbox_destroy.c */
	unsigned intent_tries;
	struct event *boot_timer; /* boot.c */
	uint64_t begun_ms;        /* the plan, on the monotonic clock */

	/* sandbox_restart.c */
	enum sandbox_task task;
	enum sandbox_state task_from; /* what it was before */
	bool has_stopped;             /* the task has got as far as ending the domain */
	enum stop_phase stop_phase;
	struct event *stop_timer;

	/* channel.c */
	struct guest *guest;
	struct guest_call *config_call;
	enum config_owner config_owner;
	bool is_sync_due; /* the guest's settings may not be what they should */
	enum boot_wait boot_wait;
	struct log_limit log_limit;

	/* egress.c */
	bool has_domain;
	enum link_state link_is;
	enum link_state link_sent; /* by the call under way */
	bool is_link_call_due;
	bool is_link_overtaken; /* an earlier call may have taken effect after the one under way */
	struct event *link_timer;
	unsigned link_tries;

	/* extend.c */
	bool is_expiry_call_due;
	int64_t expiry_sent_ms;
	TAILQ_HEAD(, extend_request) extends;
	size_t extend_count;
	struct event *extend_timer;

	/* pause.c */
	enum pause_state pause;
	bool is_resume_call_due;
	unsigned pause_tries;
	struct event *pause_timer;

	bool holds_uid; /* beyond its end: a call that timed out may still use it */

	TAILQ_HEAD(, sandbox_wait) waits;
	bool is_telling;
	TAILQ_HEAD(, sandbox_call) calls;
	size_t call_count;
	uint64_t output_held; /* exec.c: bytes of the commands under way */

	/* exec_records.c */
	TAILQ_HEAD(, exec_record) records; /* of commands that run, and not yet written */
	unsigned records_due;
	TAILQ_HEAD(, sandbox_exec_wait) exec_waits;

	/* job.c */
	TAILQ_HEAD(, sandbox_job) jobs;
	unsigned job_count;
	bool is_job_list_due; /* the guest may have others than we know of */
	bool is_job_list_going;
	unsigned tails_pending; /* calls under way for them, job_tail.c */
	jobs_taken_fn tails_done;
	struct event *tails_timer;
	unsigned waiting_reads; /* job_calls.c */
};

TAILQ_HEAD(sandbox_list, sandbox);

struct sandboxes {
	struct loop *loop;
	struct sandboxes_config config; /* strings are copies */
	uint64_t outputs_cap;           /* of the commands of a sandbox together */
	struct store *store;
	struct quotas *quotas;
	struct images *images;
	struct hv *hv;
	struct guest_driver *guests;
	struct sandbox_list live;
	struct sandbox_list ended; /* held, or waits not yet told */
	size_t count;
	uint64_t seq;

	bool is_hv_open;
	bool is_closing;
	bool is_hv_ready;
	struct err hv_why;

	/* egress.c */
	bool has_egress;
	char *egress_why;

	struct log_limit row_log; /* sandbox_destroy.c, exec_records.c */
	struct event *records_write_timer;
	uint64_t exec_ends; /* exec_records.c */

	/* records.c */
	struct event *records_timer;
	char records_account[ID_BYTES]; /* whose turn it is; empty: nobody's yet */
	uint64_t records_pruned;

	struct event *reaper_timer;

	/* reconcile.c */
	struct event *reconcile_timer;
	bool is_reconciling;
	bool is_reconcile_wanted;
	bool is_reconciled; /* once */
	uint64_t reconcile_seq;
	uint64_t reconcile_at_ms;    /* when the timer fires */
	uint64_t reconcile_since_ms; /* the first pass began */

	/* strays.c */
	TAILQ_HEAD(, strays_call) strays_calls; /* the first one is under way */
	struct event *strays_timer;
	uint64_t strays_at_ms;            /* when it fires */
	TAILQ_HEAD(, held_uid) held_uids; /* held_uids.c */
};

/* ---- sandbox.c ---- */

/* Takes @row. In the registry from now on. */
struct sandbox *sandbox_new(
	struct sandboxes *all, struct store_sandbox *row, enum sandbox_state state);
struct sandbox *sandbox_find_id(struct sandboxes *all, const char *id);
void sandbox_hold(struct sandbox *sb);
void sandbox_release(struct sandbox *sb);
/* Tells, with the next turn, the waits that the present state answers. */
void sandbox_tell_waits(struct sandbox *sb);
/* Whoever waits now for it to run hears @err, whatever becomes of the sandbox. */
void sandbox_fail_waits(struct sandbox *sb, const struct err *err);
/* The state is final: out of the registry; freed as soon as that may be. */
void sandbox_retire(struct sandbox *sb);
/* 0 when guest operations are legal. */
int sandbox_check_running(const struct sandbox *sb, struct err *err);
bool sandbox_is_due(const struct sandbox *sb, int64_t now_ms);
/* Its plan is under way, or is about to be: it isn't judged. */
bool sandbox_is_busy(const struct sandbox *sb);
/* Its removal was asked for. (A creation that failed is none: see failure.) */
bool sandbox_is_going(const struct sandbox *sb);

/* ---- boot.c: the steps that lead to a running guest ---- */

void boot_init(struct sandbox *sb);
void boot_fini(struct sandbox *sb);
void boot_fill_spec(const struct sandbox *sb, struct hv_spec *spec);
/* As hv_done_fn: the answer of a call that makes something, the plan's. One that timed out may
 * still take effect, with the sandbox's uid. */
void boot_made(void *arg, const struct err *err);
void boot_run_domain(void *arg);
void boot_run_channel(void *arg);
void boot_run_configure(void *arg);
void boot_run_record(void *arg);
/* Ends channel or configure. */
void boot_stop(void *arg);
/* The domain ended: when the plan waits for the guest, it needn't any longer. */
void boot_domain_ended(struct sandbox *sb);
/* What the channel tells the plan. */
void boot_guest_ready(struct sandbox *sb);
void boot_configured(struct sandbox *sb, const struct err *err);

/* ---- sandbox_create.c ---- */

void sandbox_use_create_plan(struct sandbox *sb);

/* ---- sandbox_restart.c ---- */

void restart_init(struct sandbox *sb);
void restart_fini(struct sandbox *sb);
const char *restart_task_name(enum sandbox_task task); /* NULL: TASK_NONE */
enum sandbox_task restart_parse_task(const char *name);
/* The plan is through, or taken back. */
void restart_done(struct sandbox *sb);
void restart_unwound(struct sandbox *sb);
/* The row says that one was under way when the daemon ended: once more, from the start. */
void restart_redo(struct sandbox *sb, bool has_domain);
/* The domain that is being stopped has ended. */
void restart_domain_ended(struct sandbox *sb);

/* ---- sandbox_destroy.c: undoing it ---- */

/* As hv_done_fn: the answer of a step is the plan's. */
void sandbox_step_answered(void *arg, const struct err *err);
/* Destroys the domain; done() gets @sb. */
void sandbox_end_domain(struct sandbox *sb, hv_done_fn done);
void sandbox_undo_channel(void *arg);
void sandbox_undo_domain(void *arg);
void sandbox_undo_disk(void *arg);
void sandbox_plan_init(struct sandbox *sb);
void sandbox_plan_fini(struct sandbox *sb);
/* The row couldn't be written: again, in a moment. */
void sandbox_retry_row(struct sandbox *sb, const struct err *err);
/* Goes on with the removal of a row that says DELETING, or undoes an interrupted creation. */
void sandbox_resume_end(struct sandbox *sb, const char *interrupted);
/* The domain ended without being asked to. */
void sandbox_domain_ended(struct sandbox *sb, const char *reason);

/* ---- channel.c ---- */

void channel_open(struct sandbox *sb);
/* Ends every call and the channel. None is fine. */
void channel_close(struct sandbox *sb);
bool channel_is_ready(const struct sandbox *sb);
/* Starts the one configure call; ERR_CONFLICT when there is one under way. */
int channel_configure(struct sandbox *sb, enum config_owner owner,
	const struct guest_config *config, struct err *err);
/* The owner doesn't wait for it any longer. */
void channel_disown_config(struct sandbox *sb);
/* The same with everything that the guest should know. */
int channel_configure_all(struct sandbox *sb, enum config_owner owner, struct err *err);
/* What the guest's own timer is to be set to for that expiry; 0: never. */
uint64_t channel_deadline_ms(const struct sandbox *sb, int64_t expires_at_ms);
/* Sends the settings as soon as that is possible. */
void channel_sync(struct sandbox *sb);

/* ---- extend.c ---- */

void extend_init(struct sandbox *sb);
void extend_fini(struct sandbox *sb);
/* The guest's answer to CONFIG_EXTEND. */
void extend_configured(struct sandbox *sb, const struct err *err);
/* Goes on with the first one, when that is possible now. */
void extend_kick(struct sandbox *sb);
void extend_kick_later(struct sandbox *sb);
/* All that wait are answered with @err. */
void extend_end_all(struct sandbox *sb, const struct err *err);
/* The domain's metadata say @expires_at_ms: put them right where the row says something else. */
void extend_fix_metadata(struct sandbox *sb, int64_t expires_at_ms);

/* ---- egress.c ---- */

void egress_init(struct sandbox *sb);
void egress_fini(struct sandbox *sb);
/* Makes the link of a domain what it should be. */
void egress_update(struct sandbox *sb);
/* A call for it that had timed out may have taken effect. */
void egress_lost_track(struct sandbox *sb);
bool sandbox_has_network(const struct sandbox *sb);

/* ---- pause.c: a domain that the host has paused ---- */

void pause_init(struct sandbox *sb);
void pause_fini(struct sandbox *sb);
/* It stands: it is resumed until it goes. Twice is fine. */
void pause_begun(struct sandbox *sb);
/* It goes, or has done so all the time. */
void pause_over(struct sandbox *sb);
/* The domain is about to end, or has. */
void pause_forget(struct sandbox *sb);
/* -1: the guest can't answer now, for that. */
int pause_check(const struct sandbox *sb, struct err *err);

/* ---- reaper.c ---- */

void reaper_init(struct sandboxes *all);
/* An expiry is new or has changed. */
void reaper_kick(struct sandboxes *all);
void reaper_fini(struct sandboxes *all);

/* ---- records.c ---- */

void records_init(struct sandboxes *all);
void records_start(struct sandboxes *all);
void records_fini(struct sandboxes *all);

/* ---- reconcile.c ---- */

#define RECONCILE_LOST_REASON "lost: its disk is gone"

/* What is to be done about a live one with that domain; NULL: none. Looks at its disk. */
enum reconcile_action reconcile_judge(const struct sandbox *sb, const struct hv_facts *own);
void reconcile_init(struct sandboxes *all);
void reconcile_soon(struct sandboxes *all, unsigned ms);
void reconcile_fini(struct sandboxes *all);

/* ---- strays.c ---- */

void strays_init(struct sandboxes *all);
/* A pass of our own, once everything is checked. */
void strays_soon(struct sandboxes *all, unsigned ms);
/* Calls that wait for the hypervisor may go on. */
void strays_kick(struct sandboxes *all);
void strays_fini(struct sandboxes *all);
