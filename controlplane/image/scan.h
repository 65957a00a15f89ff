#pragma once

/*
 * scan - a look through the images directory
 *
 * Purpose: finds what is there and verifies what isn't known to be good; inside image/ only.
 * Owns:    its input and output: a scan shares nothing with the catalogue while a worker has it.
 * Thread:  the worker's for scan_run_blocking(), the loop's for the rest.
 * Errors:  ERR_INTERNAL: the directory can't be read. A refused image is an item, no error.
 * Uses:    base.
 */

#include <stdbool.h>
#include <sys/queue.h>

#include "image/verify.h"

/* One version of one image. */
struct scan_item {
	TAILQ_ENTRY(scan_item) link; /* scan.items */
	char *name;
	char version[IMAGE_VERSION_BYTES]; /* "": `current` names none */

	bool is_known; /* in: verified or refused before, as it was with these stamps */
	struct image_stamps stamps;

	bool is_current; /* out */
	bool is_same;    /* out: what was known still holds; else one of the next two */
	struct image *image;
	struct err refusal; /* kind ERR_NONE: not refused */
	bool is_gone;       /* out: neither current nor there */
};

TAILQ_HEAD(scan_items, scan_item);

struct scan {
	const struct images_config *config; /* outlives the scan */
	struct scan_items items;
};

struct scan *scan_new(const struct images_config *config);
void scan_free(struct scan *scan);
DEFINE_CLEANUP(struct scan *, scan_free)

/* Adds a version to look at; with @stamps, one that is known. */
void scan_add(struct scan *scan, const char *name, const char *version,
	const struct image_stamps *stamps);
/* Fills the items, and adds those that are current and weren't in it. */
int scan_run_blocking(struct scan *scan, struct err *err);
