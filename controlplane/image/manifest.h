#pragma once

/*
 * manifest - what images/build says about an image
 *
 * Purpose: reads the text of a manifest.json; inside image/ only.
 * Owns:    nothing.
 * Thread:  any.
 * Errors:  ERR_UNAVAILABLE with what is wrong, as verify.h.
 * Uses:    base.
 */

#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"

#define MANIFEST_MAX_BYTES (4 * 1024 * 1024) /* the list of packages makes it long */

struct manifest_file {
	char sha256[65]; /* hex */
	uint64_t size;
};

struct manifest {
	char *name;
	char *version;
	char *cmdline;
	char *kernel_version;
	char *agent_version;
	char *created;
	uint64_t virtual_size_bytes;
	struct manifest_file files[3]; /* by enum image_file */
};

extern const char *const manifest_file_names[3];

/* *ret must be zeroed; manifest_fini() in any case. */
int manifest_parse(const char *text, size_t len, struct manifest *ret, struct err *err);
void manifest_fini(struct manifest *manifest);
#define _cleanup_manifest_ _cleanup_(manifest_fini)

/* @len bytes as lower-case hex. */
void manifest_hex(const void *data, size_t len, char *out);
