#pragma once

/*
 * paths - where a sandbox's files are
 *
 *	<state_dir>/sandboxes/<id>/disk/overlay.qcow2
 *	<run_dir>/<the id's digits>/agent
 *	<run_dir>/<the id's digits>/console
 *
 * Purpose: the layout, in one place; and what of it is there, for reconcile.
 * Owns:    the strings of a struct hv_paths.
 * Thread:  loop. Directory reads are short: an entry for each sandbox.
 * Errors:  ERR_INTERNAL; a socket path that is too long names the directory to shorten.
 * Uses:    base, hv.h.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "hv/hv.h"

#define PATHS_SOCKET_MAX 107 /* sun_path less its terminator */

/* Makes <state_dir>/sandboxes and <run_dir> (0711), and checks that sockets will fit. */
int paths_prepare(const char *state_dir, const char *run_dir, struct err *err);

void paths_init(struct hv_paths *paths, const char *state_dir, const char *run_dir, const char *id);
void paths_fini(struct hv_paths *paths);

/* The directory around disk_dir, which is the daemon's own. */
int paths_make_home(const char *state_dir, const char *id, struct err *err);
int paths_remove_home(const char *state_dir, const char *id, struct err *err);

/* When something in them changed last, wall clock; 0: none is there. @ret_has_home: not only the
 * run directory is. */
int64_t paths_changed_ms(
	const char *state_dir, const char *run_dir, const char *id, bool *ret_has_home);

/* Ids of all sandboxes that have a directory, each once. What isn't named like one is left out. */
struct paths_list {
	char (*ids)[ID_BYTES];
	size_t count;
};
int paths_list(const char *state_dir, const char *run_dir, struct paths_list *ret, struct err *err);
void paths_list_fini(struct paths_list *list);
