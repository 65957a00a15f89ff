#pragma once

/*
 * image - the catalogue of base images
 *
 * Purpose: offers what images/build made, after its files have been checked against the manifest.
 * Owns:    the records of what was verified; struct image is shared by reference counts.
 * Thread:  loop, except what is named *_blocking. Hashing happens in worker jobs.
 * Errors:  ERR_NOT_FOUND: no such image (the message lists those there are). ERR_UNAVAILABLE: being
 *          verified, or refused: `image "minimal" is refused: root.qcow2 doesn't match its
 *          manifest`. ERR_INTERNAL: the directory can't be read.
 * Uses:    base, loop, libcrypto.
 *
 *	DIR/NAME/VERSION/{vmlinuz,initrd.img,root.qcow2,manifest.json}
 *	DIR/NAME/current -> VERSION
 *
 * All of it belongs to the owner (root), nobody else may write there, and everybody may read. A
 * version never changes; a build with other inputs makes another one. Nothing here removes one, so
 *a sandbox that notes name and version finds its own again when it is restarted.
 *
 * Hashing takes a second or so; files are remembered by inode, size, mtime and ctime, and
 * image_get() compares those each time. While a new `current` is being verified the version before
 * it is served.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/cleanup.h"
#include "base/err.h"

struct loop;
struct worker_pool;

#define IMAGE_VERSION_BYTES 33 /* up to 32 lower-case hex digits */

/* Verified; never changes. Paths are absolute, of the version's own directory. */
struct image {
	unsigned refs; /* image_ref(), image_unref() */
	char *name;
	char *version;
	char *kernel;
	char *initrd;
	char *base; /* qcow2 */
	char *cmdline;
	uint64_t virtual_size_bytes; /* of base: a disk can't be smaller */
	char *kernel_version;
	char *agent_version;
	char *created; /* RFC 3339, as in the manifest */
};

struct image *image_ref(struct image *image);
void image_unref(struct image *image); /* NULL is fine */
DEFINE_CLEANUP(struct image *, image_unref)
#define _cleanup_image_ _cleanup_(image_unref_p)

struct images_config {
	const char *dir;          /* absolute; needn't exist yet */
	const char *default_name; /* for image_get() without a name */
	uid_t owner;              /* 0, save in tests */
};

struct images;

/* Borrows @loop and @pool. Nothing is offered before images_refresh(). */
struct images *images_new(
	struct loop *loop, struct worker_pool *pool, const struct images_config *config);
/* After worker_pool_free(). Who still waits hears ERR_CANCELLED from within it, and must not call
 * back. Images that others hold stay. */
void images_free(struct images *images); /* NULL is fine */
DEFINE_CLEANUP(struct images *, images_free)

typedef void (*image_done_fn)(void *arg, const struct err *err); /* err NULL: fine */

/*
 * Looks through the directory and verifies what is new or changed. done() comes once from the loop,
 * never from within the call; refused images are no error of this. Calls while one is under way
 * are answered by the next. @done may be NULL.
 */
void images_refresh(struct images *images, image_done_fn done, void *arg);
/* The first refresh has ended: what is there is known. */
bool images_is_ready(const struct images *images);
const char *images_default(const struct images *images);

/*
 * The image to use now; the caller has a reference. @name NULL: the default; @version NULL: the
 * current one. What isn't verified yet, or has changed, starts to be and is ERR_UNAVAILABLE
 * meanwhile.
 */
struct image *image_get(
	struct images *images, const char *name, const char *version, struct err *err);
/* Verifies it first where needed. done() comes once from the loop: without an error, image_get()
 * succeeds now. @done may be NULL. */
void image_prepare(struct images *images, const char *name, const char *version, image_done_fn done,
	void *arg);

/* ---- for /v1/service and `paddockctl images` ---- */

enum image_state { IMAGE_VERIFYING, IMAGE_GOOD, IMAGE_REFUSED };

struct image_status {
	const char *name;
	const char *version; /* NULL: the manifest can't be read */
	enum image_state state;
	const char *problem;       /* of a refused one: "root.qcow2 doesn't match its manifest" */
	const struct image *image; /* NULL unless good */
	bool is_current;
	bool is_default;
};
typedef void (*image_status_fn)(void *arg, const struct image_status *status);
/* By name; valid during the call. */
void images_each(const struct images *images, image_status_fn fn, void *arg);

/* ---- without a loop: doctor ---- */

/* Reads and verifies one image from the start. @version NULL: the current one. */
struct image *image_load_blocking(
	const struct images_config *config, const char *name, const char *version, struct err *err);
