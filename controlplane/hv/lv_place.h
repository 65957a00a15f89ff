#pragma once

/*
 * lv_place - which libvirt, and where it keeps its files
 *
 * Purpose: reads the URI; prepares the root of the embedded driver.
 * Owns:    the strings.
 * Thread:  any; lv_place_prepare_blocking() on a worker.
 * Errors:  ERR_INVALID: a URI that isn't supported, a root that is unfit; the message says why.
 * Uses:    base, loop (to check the thread).
 */

#include <stdbool.h>

#include "base/cleanup.h"
#include "base/err.h"

struct lv_place {
	char *uri;
	char *root;        /* of the embedded driver; NULL: a libvirtd elsewhere */
	char *pid_dir;     /* holds NAME.pid of each running domain */
	char *log_dir;     /* holds NAME.log; NULL: libvirtd's own affair, while the domain lives */
	char *old_log_dir; /* holds the logs of domains that ended */
};

/* "qemu:///system" or "qemu:///embed?root=/DIR". */
struct lv_place *lv_place_new(const char *uri, struct err *err);
void lv_place_free(struct lv_place *place);
DEFINE_CLEANUP(struct lv_place *, lv_place_free)

/* For people: the URI without the path. */
const char *lv_place_label(const struct lv_place *place);
/* Embedded: makes the root and writes the driver's configuration. Else nothing. */
int lv_place_prepare_blocking(const struct lv_place *place, struct err *err);
