#pragma once

/*
 * verify - one image against its manifest
 *
 * Purpose: reads a version's manifest, checks owners, modes, sizes and sums; inside image/ only.
 * Owns:    nothing.
 * Thread:  any for *_blocking (hashing takes a second or so), loop for the rest (a few stat calls).
 * Errors:  ERR_UNAVAILABLE with what is wrong ("root.qcow2 doesn't match its manifest"), without
 *          the image's name and without paths.
 * Uses:    base, libcrypto.
 */

#include <stdbool.h>
#include <sys/stat.h>

#include "image/image.h"

enum image_file {
	IMAGE_FILE_KERNEL,
	IMAGE_FILE_INITRD,
	IMAGE_FILE_BASE,
	IMAGE_FILE_MANIFEST,
	IMAGE_FILE_MAX
};

/* What tells that a file is still the one that was read. Zeroed: isn't there. */
struct image_stamp {
	dev_t dev;
	ino_t ino;
	uid_t uid;
	mode_t mode;
	off_t size;
	struct timespec mtime;
	struct timespec ctime;
};

struct image_stamps {
	struct image_stamp dirs[3]; /* DIR, NAME, VERSION: identity, owner and mode alone */
	struct image_stamp files[IMAGE_FILE_MAX];
};

/* What is there now. */
void image_stamps_take(const struct images_config *config, const char *name, const char *version,
	struct image_stamps *ret);
bool image_stamps_equal(const struct image_stamps *a, const struct image_stamps *b);

/* 1: *ret is the version that `current` names; 0: there is no such image; -1: it names none. */
int image_current(const struct images_config *config, const char *name,
	char ret[IMAGE_VERSION_BYTES], struct err *err);
bool image_version_is_valid(const char *version);

/* *ret_stamps is set in any case: a refusal holds until they change. */
struct image *image_verify_blocking(const struct images_config *config, const char *name,
	const char *version, struct image_stamps *ret_stamps, struct err *err);
