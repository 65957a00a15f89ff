#pragma once

/*
 * fake_hv - a hypervisor in memory
 *
 * Purpose: implements hv.h for tests of everything above it, up to a whole daemon in one process.
 *          Disks are small real files at the paths that the domain layer chose, so that what is
 *          left over can be seen; each fresh one has another content. Domains are entries of a
 *          table.
 * Owns:    its domains. They outlive close(): a new registry finds them, as after a restart; and,
 *          with fake_hv_keep(), the process.
 * Thread:  loop.
 * Uses:    base, loop, hv.h.
 *
 *	struct fake_hv *hv = fake_hv_new(loop);
 *	fake_hv_script(hv, FAKE_HV_START, &(struct fake_script){.mode = FAKE_FAIL, .times = 1});
 *	… give fake_hv_iface(hv) to sandboxes_new() …
 *	assert_int_equal(fake_hv_count(hv), 0);
 *	fake_hv_free(hv);
 *
 * Calls for one id run in order, as the contract says; an answer of ERR_TIMEOUT frees the lane.
 */

#include <stdbool.h>
#include <stddef.h>

#include "hv/hv.h"
#include "loop/loop.h"

enum fake_mode {
	FAKE_OK,
	FAKE_FAIL,        /* no effect, then an error of .kind */
	FAKE_EFFECT_FAIL, /* takes effect and reports an error all the same */
	FAKE_TIMEOUT,     /* ERR_TIMEOUT after .delay_ms; takes effect .late_ms later, 0: never */
	FAKE_HOLD,        /* waits for the release function */
};

/* Of ERR_INTERNAL: what no client may read. */
#define FAKE_INTERNAL_TEXT "libvirt: open(/var/lib/paddock/run/agent.sock): Permission denied"

/* What the next calls of an operation do. */
struct fake_script {
	enum fake_mode mode;
	enum err_kind kind; /* 0: ERR_INTERNAL */
	unsigned skip;      /* so many calls are fine first */
	unsigned times;     /* then so many follow the script; 0: all */
	unsigned delay_ms;
	unsigned late_ms;
	bool acts_early; /* HOLD: takes effect before it waits (fake_hv alone) */
};

enum fake_hv_op {
	FAKE_HV_DISK_CREATE,
	FAKE_HV_DISK_PREPARE,
	FAKE_HV_DISK_SWAP,
	FAKE_HV_DISK_DISCARD,
	FAKE_HV_DISK_REMOVE,
	FAKE_HV_START,
	FAKE_HV_DESTROY,
	FAKE_HV_RESUME,
	FAKE_HV_SET_EXPIRY,
	FAKE_HV_SET_LINK,
	FAKE_HV_LIST,
	FAKE_HV_SURVEY,
	FAKE_HV_RESIDUE_REMOVE,
	FAKE_HV_OP_MAX
};

#define FAKE_OTHER_INSTANCE "ffffffffffffffff" /* whose the foreign domains are */

struct fake_hv;

struct fake_hv *fake_hv_new(struct loop *loop);
void fake_hv_free(struct fake_hv *fake);
/* Domains outlive the process, in the file at @path: those that are there are taken over. */
void fake_hv_keep(struct fake_hv *fake, const char *path);
struct hv *fake_hv_iface(struct fake_hv *fake);

/* Replaces what was scripted for @op. NULL: everything is fine again. */
void fake_hv_script(struct fake_hv *fake, enum fake_hv_op op, const struct fake_script *script);
/* Lets all held calls of @op go on; ends its script. */
void fake_hv_release(struct fake_hv *fake, enum fake_hv_op op);
/* How often @op was called; how many calls are held now. */
unsigned fake_hv_calls(const struct fake_hv *fake, enum fake_hv_op op);
unsigned fake_hv_held(const struct fake_hv *fake, enum fake_hv_op op);
/* Whether open() is answered with on_ready; changes are told to who has it open. Default: true. */
void fake_hv_set_ready(struct fake_hv *fake, bool is_ready);
bool fake_hv_is_open(const struct fake_hv *fake);

/* ---- domains ---- */

struct fake_domain {
	struct hv_facts facts;
	bool is_foreign; /* of another instance: can only be seen in surveys */
	bool has_network;
	bool is_link_up;
	bool was_link_up; /* ever */
	uid_t uid;
	char agent_socket[108];
};

/* Valid until the loop's next turn; NULL: none. */
struct fake_domain *fake_hv_find(struct fake_hv *fake, const char *id);
/* All of them, foreign ones too. */
size_t fake_hv_count(const struct fake_hv *fake);
/* The one at @index, below the count. */
struct fake_domain *fake_hv_at(struct fake_hv *fake, size_t index);
/* One that nobody asked for. */
struct fake_domain *fake_hv_add(struct fake_hv *fake, const char *id);
/* It ends by itself; @is_told: an event says so. */
void fake_hv_stop_domain(struct fake_hv *fake, const char *id, bool is_told);
/* Says that something happened, whether or not it did; or that a late call for @id came back. */
void fake_hv_tell(struct fake_hv *fake, const char *id, enum hv_event event);
void fake_hv_tell_late(struct fake_hv *fake, const char *id);

/* ---- residue ---- */

/* What outlived a domain; @id may be "". The survey tells it unless a domain of that id is there.
 */
void fake_hv_add_residue(struct fake_hv *fake, enum hv_residue_kind kind, const char *id,
	const char *name, int64_t since_ms);
size_t fake_hv_residue_count(const struct fake_hv *fake);
bool fake_hv_has_residue(const struct fake_hv *fake, const char *name);

/* For fake_guest: which channels have a machine behind them, and when that changes. */
typedef void (*fake_hv_watch_fn)(void *arg, const char *agent_socket, bool is_up);
void fake_hv_watch(struct fake_hv *fake, fake_hv_watch_fn fn, void *arg);
bool fake_hv_is_up(const struct fake_hv *fake, const char *agent_socket);
/* The domain behind a channel; NULL: none. */
const char *fake_hv_id_of(const struct fake_hv *fake, const char *agent_socket);
