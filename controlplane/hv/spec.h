#pragma once

/*
 * spec - copies of specifications and paths
 *
 * Purpose: what a job keeps while the caller's own may go.
 * Owns:    the copy.
 * Thread:  any.
 * Uses:    base, hv.h.
 */

#include "base/cleanup.h"
#include "hv/hv.h"

struct hv_spec *hv_spec_dup(const struct hv_spec *spec);
void hv_spec_free(struct hv_spec *spec);
DEFINE_CLEANUP(struct hv_spec *, hv_spec_free)

struct hv_paths *hv_paths_dup(const struct hv_paths *paths);
void hv_paths_free(struct hv_paths *paths);
DEFINE_CLEANUP(struct hv_paths *, hv_paths_free)
