#pragma once

/*
 * accel - KVM or TCG
 *
 * Purpose: decides how guests are run and says why.
 * Owns:    nothing.
 * Thread:  any; reads two small files of the kernel.
 * Errors:  ERR_UNAVAILABLE: KVM was asked for by name and isn't there.
 * Uses:    base.
 */

#include <stdbool.h>

#include "base/err.h"

enum hv_accel { HV_ACCEL_AUTO, HV_ACCEL_KVM, HV_ACCEL_TCG };

/* Where to look; tests inject their own. */
struct accel_host {
	const char *machine; /* as uname -m says */
	const char *cpuinfo;
	const char *kvm;
};
#define ACCEL_WHY_BYTES 200

struct accel_choice {
	bool is_kvm;
	char why[ACCEL_WHY_BYTES]; /* one sentence */
};

/* "auto", "kvm" or "tcg". */
int accel_parse(const char *text, enum hv_accel *ret, struct err *err);
/* @host NULL: this machine. */
int accel_choose(enum hv_accel wanted, const struct accel_host *host, struct accel_choice *ret,
	struct err *err);
