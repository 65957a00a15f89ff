#pragma once

/*
 * hv_libvirt - the hypervisor interface over libvirt and QEMU
 *
 * Purpose: implements hv_ops. Each call becomes a job in its sandbox's lane; a worker thread makes
 *          the libvirt calls; the result comes back to the loop.
 * Owns:    worker pool, lanes, connection, what is known of domains.
 * Thread:  loop. One at a time in a process: libvirt's event loop and embedded driver are global.
 * Errors:  of the constructor: ERR_INVALID: a setting is wrong. ERR_UNAVAILABLE: kvm was asked for
 *          and isn't there. ERR_INTERNAL: no thread.
 * Uses:    base, loop, the rest of this folder.
 */

#include "hv/accel.h"
#include "hv/hv.h"
#include "loop/loop.h"

struct hv_libvirt_deadlines {
	uint64_t open_ms;   /* one attempt to connect; the first may probe QEMU for seconds */
	uint64_t settle_ms; /* of it, how long re-attached domains may take to settle */
	uint64_t disk_ms;
	uint64_t start_ms;
	uint64_t pull_ms; /* a network cable that must not be plugged any more */
	uint64_t call_ms; /* everything else */
};
#define HV_LIBVIRT_DEADLINES                                                                       \
	((struct hv_libvirt_deadlines){.open_ms = 120000,                                          \
		.settle_ms = 30000,                                                                \
		.disk_ms = 30000,                                                                  \
		.start_ms = 60000,                                                                 \
		.pull_ms = 500,                                                                    \
		.call_ms = 20000})

struct hv_libvirt_config {
	const char *uri;      /* "qemu:///system" or "qemu:///embed?root=/DIR" */
	const char *instance; /* 16 hex digits */
	enum hv_accel accel;
	unsigned workers;      /* 0: one for each core, at most 4; more only gets slower */
	unsigned tb_cache_mib; /* translation buffer of each guest under TCG */
	const char *emulator;  /* NULL: libvirt's choice */
	struct hv_libvirt_deadlines deadlines;
};

/* Copies what it keeps of @config. */
struct hv *hv_libvirt_new(
	struct loop *loop, const struct hv_libvirt_config *config, struct err *err);
/* Closes first if need be. Where a call still hangs, what it uses stays. NULL is fine. */
void hv_libvirt_free(struct hv *hv);
