#pragma once

/*
 * held_uids - user ids that outlive their sandbox
 *
 * Purpose: a call of the hypervisor that timed out may still make a file or a domain which belongs
 *          to a sandbox's uid, after everything was taken back. Such a uid stays with the ended row
 *          until that can't happen any more.
 * Owns:    what is known of each: its sandbox's id and since when it is held.
 * Thread:  loop.
 * Errors:  as the store says.
 * Uses:    sandbox_priv.h, stray_judge.h.
 */

#include "sandbox/stray_judge.h"

/* By the monotonic clock: setting the other one ends no hanging call. */
#define HELD_UID_MS (10 * MS_PER_MINUTE)

void held_uids_init(struct sandboxes *all);
void held_uids_fini(struct sandboxes *all);
/* The row of @id has ended, and owns its uid on. */
void held_uids_add(struct sandboxes *all, const char *id);
/* Gives back those that were held for long enough and of which the survey saw nothing. */
int held_uids_release(struct sandboxes *all, const struct hv_survey *survey,
	const struct paths_list *files, struct err *err);
