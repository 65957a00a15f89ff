#pragma once

/*
 * strays - what is real without a live record, and live records without anything real
 *
 * Purpose: the one place that knows the kinds of strays: finds them, tells them, removes them. The
 *          daemon's own passes, the operation `strays` and `paddockd --strays` are the same code.
 * Owns:    the calls under way.
 * Thread:  loop.
 * Errors:  ERR_UNAVAILABLE: the hypervisor isn't ready, or what is from before isn't checked yet.
 *          ERR_RATE: too many are waiting. Else as the hypervisor and the store say.
 * Uses:    base, store, hv.h, sandbox.h.
 *
 * Never touched: what is younger than the grace period, what doesn't carry this instance's mark,
 * and anything of a sandbox with a live record, except through that sandbox.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/id.h"
#include "hv/hv.h"

struct sandboxes;

/* X(KIND, "name", what it is) */
#define STRAY_KINDS(X)                                                                             \
	X(DOMAIN, "domain", "a virtual machine without a live record, or past its expiry")         \
	X(RECORD, "record", "a live record without its virtual machine")                           \
	X(DISK, "disk", "a sandbox's directory")                                                   \
	X(SOCKETS, "sockets", "a directory of sockets")                                            \
	X(PROCESS, "process", "a QEMU that the hypervisor doesn't know")                           \
	X(LOG, "log", "the log of a virtual machine")                                              \
	X(LEFTOVER, "leftover", "a file or directory that the hypervisor forgot")

enum stray_kind {
#define X(id, name, doc) STRAY_##id,
	STRAY_KINDS(X)
#undef X
		STRAY_KIND_MAX
};
const char *stray_kind_name(enum stray_kind kind);

enum stray_result { STRAY_LEFT, STRAY_REAPED, STRAY_FAILED };

struct stray {
	enum stray_kind kind;
	char id[ID_BYTES];                /* of the sandbox; "": can't be told */
	char account[ID_BYTES];           /* the owner; "": can't be told */
	char instance[HV_INSTANCE_BYTES]; /* of another instance; "": of ours */
	char what[HV_RESIDUE_NAME_BYTES]; /* a path, or what else people know it by */
	int64_t since_ms;                 /* wall clock: what its age counts from */
	const char *reason;
	bool is_lost;              /* RECORD: neither domain nor disk is left of it */
	struct hv_residue residue; /* PROCESS, LOG, LEFTOVER */
	enum stray_result result;
	struct err err; /* FAILED */
};

struct strays_report {
	const struct stray *strays;
	size_t count;
	size_t young; /* more that are younger than the grace period */
};

struct strays_request {
	bool is_reap;
	bool wants_others; /* of other instances; they are never removed */
	/* How long to wait for the hypervisor; 0: not at all. */
	uint64_t ready_ms;
};

/* @report: valid during the call. */
typedef void (*strays_fn)(void *arg, const struct strays_report *report, const struct err *err);
struct strays_call;

/* fn() comes once, from the loop, later. */
struct strays_call *strays_find(struct sandboxes *all, const struct strays_request *request,
	strays_fn fn, void *arg, struct err *err);
/* The caller is gone: no call comes. What is being removed is removed, and nothing more. */
void strays_abandon(struct strays_call *call);
