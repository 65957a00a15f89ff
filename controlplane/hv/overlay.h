#pragma once

/*
 * overlay - a sandbox's directories and disk
 *
 * Purpose: makes and removes them.
 *
 *   disk_dir   0711 the daemon's   the overlay, 0600 and the sandbox's uid: QEMU opens its disk by
 *                                  name, but can neither add nor rename anything beside it
 *   run_dir    0700 the daemon's   the sockets: libvirt makes them and hands QEMU the descriptors,
 *                                  so not even QEMU needs to enter
 *
 * Owns:    nothing.
 * Thread:  worker.
 * Errors:  ERR_UNAVAILABLE: the host's disk is full. ERR_INTERNAL: else.
 * Uses:    base, loop (to check the thread), hv.h, qemu-img.
 */

#include <stdbool.h>

#include "hv/hv.h"

/* Replaces whatever is there. The parents of both directories must exist. */
int overlay_create_blocking(const struct hv_spec *spec, struct err *err);
/* The same disk anew as paths.overlay_next, beside the one in use. */
int overlay_prepare_blocking(const struct hv_spec *spec, struct err *err);
/* ERR_NOT_FOUND: none was prepared. */
int overlay_swap_blocking(const struct hv_paths *paths, struct err *err);
int overlay_discard_blocking(const struct hv_paths *paths, struct err *err);
/* Makes the run directory alone, empty. */
int overlay_prepare_run_blocking(const struct hv_paths *paths, struct err *err);
/* Removes both directories; none there is fine. */
int overlay_remove_blocking(const struct hv_paths *paths, struct err *err);
/* Whether the last word of qemu-img's output is that there is no room: on the disk, or in a quota.
 */
bool overlay_says_full(const char *output);
