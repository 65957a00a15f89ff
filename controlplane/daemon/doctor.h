#pragma once

/*
 * doctor - what is wrong with this host, and how to fix it
 *
 * Purpose: the findings of `paddockctl doctor` and `paddockd --doctor`.
 * Owns:    nothing.
 * Thread:  doctor_run_blocking() on any but the loop while that runs: it reads disks and hashes
 * images. Errors:  none: what can't be found out is a finding. Uses:    base, image, hv/accel.h,
 * netfilter.
 */

#include <stdbool.h>

#include "base/json.h"

struct config;

/* What only a running daemon knows; text is copied by the caller for the thread. */
struct doctor_live {
	bool is_running;
	bool is_hv_ready;
	char hv_driver[128];
	char hv_version[128];
	char hv_problem[320];
	char acceleration[16];
	char acceleration_why[256];
	bool is_filter_active;
	char filter_reason[320];
	char filter_fix[320];
	unsigned filter_breaches;
};

/*
 * Array of {"check", "level": ok|warning|error, "text", "fix"}. The order is that of the checks, so
 * that the first error is the one to mend first. @live NULL: no daemon runs; the checks look
 * themselves.
 */
json_object *doctor_run_blocking(const struct config *config, const struct doctor_live *live);

/* For a terminal. True when nothing is an error. */
bool doctor_print(json_object *findings);
