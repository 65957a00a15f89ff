#pragma once

/*
 * sandbox - sandboxes and what can be done with them
 *
 * Purpose: the domain layer's face to ops/ and daemon/. It knows no HTTP, SQL, libvirt or JSON.
 * Owns:    every sandbox object; the plans; timers for expiry and reconciliation.
 * Thread:  loop. Callbacks never come from within the call that registers them.
 * Errors:  kinds as named at each function; messages are for API clients.
 * Uses:    base, loop, store, auth (quota), image, hv.h, guest.h.
 *
 * Objects of ended sandboxes leave the registry; their record is read from the store
 * (store_sandbox.h). A struct sandbox pointer is valid until the loop's next turn; who waits keeps
 * the id, not the pointer.
 */

#include <event2/buffer.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/guest.h"
#include "auth/quota.h"
#include "hv/hv.h"
#include "image/image.h"
#include "loop/loop.h"
#include "sandbox/sandbox_state.h"
#include "store/store.h"
#include "store/store_exec.h"
#include "store/store_sandbox.h"

struct sandboxes;
struct sandbox;

/* ---- the registry ---- */

struct sandboxes_config {
	const char *state_dir; /* overlays live below it */
	const char *run_dir;   /* sockets live below it */
	uid_t uid_first;       /* one uid a sandbox, from this range */
	unsigned uid_count;
	gid_t gid;                  /* QEMU's group; under KVM it must be able to open /dev/kvm */
	uint64_t boot_timeout_ms;   /* from the domain's start to the agent's HELLO */
	uint64_t deadman_margin_ms; /* guest's own timer beyond the expiry */
	uint64_t exec_output_cap;   /* bytes kept of a command's outputs, where it says nothing */
	uint64_t exec_output_max;   /* the most that one may ask for; 0: no more than that */
	unsigned max_lifetime_minutes; /* no expiry lies further ahead than this */
	bool is_network_none_default;  /* network.default=none */
	uint64_t stray_grace_ms;       /* nothing younger is a stray */
	bool is_inspection;     /* nothing is done by itself: for strays_find() without a daemon */
	char *const *guest_env; /* operator's guest.env for every sandbox */
	const char *guest_ca_pem; /* contents of guest.ca_file, or NULL */

	/* What is kept of sandboxes that ended, and of their commands. */
	unsigned records_days;    /* 0: all for ever */
	unsigned records_count;   /* in each account */
	unsigned records_pass_ms; /* from one look to the next; 0: five minutes */
	unsigned results_count;   /* last commands of each sandbox; 0: none */
	size_t result_bytes;      /* last bytes of each of their outputs */
};

struct sandboxes *sandboxes_new(struct loop *loop, const struct sandboxes_config *config,
	struct store *store, struct quotas *quotas, struct images *images, struct hv *hv,
	struct guest_driver *guests, struct err *err);
/*
 * Closes the hypervisor. Domains run on; rows stay as they are. What still waits or calls hears
 * ERR_CANCELLED, from here.
 */
void sandboxes_free(struct sandboxes *all);

/* Reads the live rows and opens the hypervisor; reconciles once that is ready. */
int sandboxes_start(struct sandboxes *all, struct err *err);
/* True once the first reconciliation is through: before it nothing may be created. */
bool sandboxes_is_ready(const struct sandboxes *all, struct err *ret_why);

/* The host filter's word. false pulls the link of every sandbox that has one; true plugs it in. */
void sandboxes_set_egress(struct sandboxes *all, bool is_available, const char *why);
bool sandboxes_has_egress(const struct sandboxes *all, const char **ret_why);

/* Live ones (not final) by id or, within @account, by name. NULL: none. */
struct sandbox *sandbox_find(struct sandboxes *all, const char *account, const char *id_or_name);
size_t sandboxes_count(const struct sandboxes *all);

/* What the API shows; the row, and for a live sandbox its very state. Valid until the next turn. */
const struct store_sandbox *sandbox_row(const struct sandbox *sb);
enum sandbox_state sandbox_state(const struct sandbox *sb);

/* ---- life ---- */

/* In rows. */
#define SANDBOX_NETWORK_NAME_NONE   "none"
#define SANDBOX_NETWORK_NAME_EGRESS "egress"

enum sandbox_network { SANDBOX_NETWORK_DEFAULT, SANDBOX_NETWORK_NONE, SANDBOX_NETWORK_EGRESS };

struct sandbox_create_spec {
	const char *account;
	const char *name; /* NULL: none */
	const char *size; /* label for the record; NULL: explicit figures */
	unsigned vcpus;
	unsigned memory_mb;
	unsigned disk_gb;
	const char *image; /* NULL: the default */
	enum sandbox_network network;
	unsigned timeout_minutes; /* 0: no expiry, unless temporary */
	bool is_temporary;
	char *const *env;            /* "NAME=VALUE" for every command */
	const char *metadata;        /* JSON object as text; opaque here */
	const char *idempotency_key; /* NULL: none */
	const char *request_hash;    /* of the whole request, with the key */
};

/*
 * Checks, charges the quota and writes the row; the rest goes on by itself. *ret is the new sandbox
 * (PROVISIONING), or the one that the same idempotency key made before (*ret_is_replay). A key is
 * remembered for as long as the record of what it made is kept; a creation that fails frees it at
 * once, for any request.
 * ERR_INVALID (also: no such image), ERR_QUOTA, ERR_CONFLICT (live name: the message has its id;
 * key with another request), ERR_ENDED (what the key made is over: the message has its id),
 * ERR_UNAVAILABLE (not ready, no capacity, image not verified, egress asked for without a filter,
 * the name's last owner is still being removed).
 */
int sandbox_create(struct sandboxes *all, const struct sandbox_create_spec *spec,
	struct sandbox **ret, bool *ret_is_replay, struct err *err);

/*
 * Called once: with NULL when it runs, with the reason as soon as it never will (a creation that
 * failed may still be being taken back then: sandbox_wait_gone() tells the end of that).
 */
typedef void (*sandbox_wait_fn)(void *arg, struct sandbox *sb, const struct err *err);
struct sandbox_wait;
struct sandbox_wait *sandbox_wait_ready(struct sandbox *sb, sandbox_wait_fn fn, void *arg);
/* Called once the sandbox is DELETED or FAILED and nothing is left. sb is valid during the call. */
struct sandbox_wait *sandbox_wait_gone(struct sandbox *sb, sandbox_wait_fn fn, void *arg);
/* The caller lost interest: no call will come. */
void sandbox_wait_cancel(struct sandbox_wait *wait);

/* Begins the removal, from any state; again is fine. @reason: "deleted", "expired", … */
void sandbox_destroy(struct sandbox *sb, const char *reason);

/*
 * Ends the virtual machine (the guest is asked to power off first) and starts it again, with its
 * disk; also one that is STOPPED. Id, name and expiry stay. sandbox_wait_ready() tells the end: a
 * failure leaves it STOPPED. ERR_CONFLICT (something else is under way, or its disk is gone),
 * ERR_ENDED, ERR_UNAVAILABLE (hypervisor, image).
 */
int sandbox_restart(struct sandbox *sb, struct err *err);
/* The same with a fresh disk. One that fails before it has the fresh disk changes nothing. */
int sandbox_reset(struct sandbox *sb, struct err *err);

/*
 * Moves the expiry by @minutes, never beyond now + max_lifetime: guest's timer first, then the row;
 * the domain's metadata follow. Several at once are done one after the other.
 * ERR_INVALID (names the limit), ERR_CONFLICT (still starting), ERR_ENDED (the reaper was first),
 * ERR_RATE (too many wait), ERR_TIMEOUT (the guest didn't say it within 2 s: the old expiry
 * stands).
 */
typedef void (*sandbox_extend_fn)(void *arg, struct sandbox *sb, const struct err *err);
int sandbox_extend(
	struct sandbox *sb, unsigned minutes, sandbox_extend_fn fn, void *arg, struct err *err);

/*
 * ---- guest operations ----
 *
 * RUNNING only, else ERR_CONFLICT (still starting, or stopped) or ERR_ENDED. ERR_UNAVAILABLE: the
 * agent doesn't answer. ERR_RATE: too many are under way in this sandbox. One that is under way
 * when the sandbox ends gets ERR_ENDED. Callbacks come from the loop; from within
 * sandboxes_free(), too.
 */

struct sandbox_exec_spec {
	char *const *args; /* or */
	const char *command;
	const char *shell; /* for the command; NULL: the image's */
	const char *cwd;
	char *const *env;
	uint64_t timeout_ms;
	uint64_t output_cap;     /* bytes of both outputs together; 0: as configured */
	struct pipe *stdin_pipe; /* reader's end, taken on success; NULL: none */
};

/* What is kept of an output: all of it, or the first and the last bytes. */
struct sandbox_output {
	struct evbuffer *bytes;
	uint64_t total;      /* bytes that the command wrote */
	uint64_t omitted;    /* so many of them are missing, … */
	uint64_t omitted_at; /* … before this one of those that are kept */
};

struct sandbox_exec_result {
	const char *id;
	struct sandbox_output out; /* of a stream: the counts alone */
	struct sandbox_output err_out;
	struct guest_exec_result guest;
};

typedef void (*sandbox_exec_fn)(
	void *arg, const struct sandbox_exec_result *result, const struct err *err);

/*
 * A guest operation under way; valid until its callback. Cancel: the guest stops it; the callback
 * comes all the same.
 */
struct sandbox_call;
void sandbox_call_cancel(struct sandbox_call *call);
/* The caller is gone: cancels, and no callback comes any more. */
void sandbox_call_abandon(struct sandbox_call *call);
/* The same, but it goes on to its end. */
void sandbox_call_leave(struct sandbox_call *call);

/* Keeps the outputs, up to the cap, until the command ends. */
struct sandbox_call *sandbox_exec(struct sandbox *sb, const struct sandbox_exec_spec *spec,
	sandbox_exec_fn fn, void *arg, struct err *err);

struct sandbox_exec_hooks {
	/* The guest runs it, by this id; before the others, but for a failure. */
	void (*on_started)(void *arg, const char *id);
	/* Bytes of stdout (1) or stderr (2), as they come. */
	void (*on_output)(void *arg, int fd, const void *data, size_t len);
	sandbox_exec_fn on_done;
	void *arg;
};

/* Hands the outputs on and keeps nothing. Here the cap, 0 being none, cuts them off. */
struct sandbox_call *sandbox_exec_stream(struct sandbox *sb, const struct sandbox_exec_spec *spec,
	const struct sandbox_exec_hooks *hooks, struct err *err);
/* While paused, what is on its way still comes, a window of each output (guest.h), and in the end
 * the command waits at its full pipe. */
void sandbox_exec_pause(struct sandbox_call *call, bool is_paused);

/* ---- records of commands ---- */

/*
 * Of a sandbox, live or ended: the commands that run and the last ones that ended, newest first.
 * Nothing where there is no such record. Errors as store.h.
 */
int sandbox_execs(
	struct sandboxes *all, const char *id, struct store_exec_list *ret, struct err *err);
/* One of them; ERR_NOT_FOUND. */
int sandbox_exec_get(struct sandboxes *all, const char *id, const char *exec_id,
	struct store_exec *ret, struct err *err);

/*
 * Calls @fn once, when that command has ended, or the service stops: look again. NULL: it doesn't
 * run.
 */
typedef void (*sandbox_exec_wait_fn)(void *arg);
struct sandbox_exec_wait;
struct sandbox_exec_wait *sandbox_exec_wait(
	struct sandbox *sb, const char *exec_id, sandbox_exec_wait_fn fn, void *arg);
/* Before it is called. */
void sandbox_exec_wait_cancel(struct sandbox_exec_wait *wait);

/* ---- background commands ---- */

/*
 * Called once: with NULL when it runs. The record is written by then, so that it is found again
 * whatever happens to the daemon. A failure means that it doesn't run, or not for long.
 */
typedef void (*sandbox_job_fn)(
	void *arg, const char *exec_id, const struct guest_status *status, const struct err *err);
struct sandbox_job;
/* The id is made here. Valid until the callback. ERR_RATE: too many run. */
struct sandbox_job *sandbox_job_start(struct sandbox *sb, const struct guest_job_spec *spec,
	sandbox_job_fn fn, void *arg, struct err *err);
/* The caller is gone: no callback comes any more; the command goes on. */
void sandbox_job_leave(struct sandbox_job *job);

/* What guest.h says of job_read(); sandbox_exec_pause() is for it, too. ERR_RATE: too many wait. */
struct sandbox_call *sandbox_job_read(struct sandbox *sb, const struct guest_read_spec *spec,
	const struct guest_job_hooks *hooks, struct err *err);
/* Takes the reader's end of @input on success. */
struct sandbox_call *sandbox_job_input(struct sandbox *sb, const char *exec_id, struct pipe *input,
	bool closes, guest_done_fn done, void *arg, struct err *err);
struct sandbox_call *sandbox_job_resize(struct sandbox *sb, const char *exec_id, unsigned rows,
	unsigned cols, guest_done_fn done, void *arg, struct err *err);
/* Of any command that runs, foreground ones too. */
struct sandbox_call *sandbox_exec_signal(struct sandbox *sb, const char *exec_id, int signal,
	guest_done_fn done, void *arg, struct err *err);

/* ---- files ---- */

/* Takes the reader's end of @body on success. */
struct sandbox_call *sandbox_file_put(struct sandbox *sb, const struct guest_file_spec *spec,
	struct pipe *body, guest_done_fn done, void *arg, struct err *err);
/* Takes the writer's end of @body on success. */
struct sandbox_call *sandbox_file_get(struct sandbox *sb, const struct guest_file_spec *spec,
	struct pipe *body, const struct guest_get_hooks *hooks, struct err *err);
struct sandbox_call *sandbox_file_list(struct sandbox *sb, const struct guest_file_spec *spec,
	const struct guest_list_hooks *hooks, struct err *err);
