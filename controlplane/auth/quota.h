#pragma once

/*
 * quota - what each account, and all of them together, may hold
 *
 * Purpose: charges are checked and made in one step, before anything else is.
 * Owns:    the counters. They live in memory alone: at the start each live sandbox is charged again
 *          with quota_restore().
 * Thread:  loop.
 * Errors:  ERR_QUOTA: the account's limit, named in the message. ERR_UNAVAILABLE: the host's.
 * Uses:    base.
 */

#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"

struct quotas;

/* What a sandbox takes; also what an account may have at a time. */
struct quota_amounts {
	uint64_t sandboxes; /* 1 for a sandbox */
	uint64_t vcpus;
	uint64_t memory_mb;
	uint64_t disk_gb;
};

#define QUOTA_DEFAULT_LIMITS                                                                       \
	((struct quota_amounts){                                                                   \
		.sandboxes = 20, .vcpus = 80, .memory_mb = 160 * 1024, .disk_gb = 1600})

/* MiB that QEMU takes beside the guest's memory, measured. */
#define QUOTA_QEMU_OVERHEAD_MB 40

/* All accounts together. The cost of a sandbox is its memory and the overhead. */
struct quota_host {
	uint64_t memory_mb;      /* of the machine; 0: no limit */
	unsigned overcommit_pct; /* 100: just what is there */
	unsigned overhead_mb;    /* for each: QUOTA_QEMU_OVERHEAD_MB and, under TCG, its tb-cache */
};

struct quotas *quotas_new(const struct quota_amounts *limits, const struct quota_host *host);
/* Every charge must have been refunded. */
void quotas_free(struct quotas *quotas); /* NULL is fine */
DEFINE_CLEANUP(struct quotas *, quotas_free)

/* From now on, for what is charged already too: acceleration is only known once libvirt is. */
void quotas_set_host(struct quotas *quotas, const struct quota_host *host);

/* Embedded in what it accounts for; zeroed: nothing charged. */
struct quota_charge {
	struct quotas *quotas; /* NULL: nothing charged */
	struct quota_account *account;
	struct quota_amounts amounts;
};

/* All of @want or nothing. @charge must be empty. @account is an id. */
int quota_charge(struct quotas *quotas, const char *account, const struct quota_amounts *want,
	struct quota_charge *charge, struct err *err);
/* For what exists already: counts, and never refuses. */
void quota_restore(struct quotas *quotas, const char *account, const struct quota_amounts *want,
	struct quota_charge *charge);
/* Empty afterwards; an empty one is fine. */
void quota_refund(struct quota_charge *charge);

void quotas_used(const struct quotas *quotas, const char *account, struct quota_amounts *ret);
const struct quota_amounts *quotas_limits(const struct quotas *quotas);
