#pragma once

/*
 * stray_judge - which of all that there is are strays
 *
 * Purpose: compares a survey with the registry, the rows and the directories. It changes nothing.
 * Owns:    a list of verdicts.
 * Thread:  loop.
 * Errors:  as the store and the directories say; then nothing is judged at all.
 * Uses:    sandbox_priv.h.
 *
 * A survey is a little old when it arrives. Sandboxes that somebody works on, or whose state has
 * changed since, aren't judged. What has no live record stays without one, since ids are never used
 * twice; and it has been a stray only since its record ended.
 */

#include "sandbox/paths.h"
#include "sandbox/sandbox_priv.h"
#include "sandbox/strays.h"

struct stray_list {
	struct stray *items;
	size_t count;
	size_t young;
	int64_t next_ms; /* until the next one comes of age; INT64_MAX: none is young */
};

struct stray_scope {
	bool has_rows;   /* live records, too */
	bool has_others; /* domains of other instances */
	uint64_t seq;    /* sandboxes.seq when the survey was asked for */
};

int stray_judge(struct sandboxes *all, const struct hv_survey *survey,
	const struct paths_list *files, const struct stray_scope *scope, struct stray_list *ret,
	struct err *err);
void stray_list_fini(struct stray_list *list);

/* Something of that id is there that could use its user id. */
bool stray_is_present(
	const struct hv_survey *survey, const struct paths_list *files, const char *id);
