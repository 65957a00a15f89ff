#pragma once

/*
 * fs - small file operations
 *
 * Purpose: capped reads, atomic writes, directories. Descriptors are close-on-exec.
 * Thread:  any; they block on the disk, so only short ones belong on the loop.
 * Errors:  ERR_NOT_FOUND where the file isn't there, ERR_TOO_LARGE over the cap, else ERR_INTERNAL.
 *          Messages hold paths: wrap or replace them before they go to a client.
 */

#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"

/* Whole file, at most @max bytes, with a terminator after it. The caller frees *ret. */
int fs_read(const char *path, size_t max, char **ret, size_t *ret_len, struct err *err);
/* Temporary file beside it, fsync, rename: the old or the new content, never a part. */
int fs_write_atomic(const char *path, const void *data, size_t len, mode_t mode, struct err *err);
/* Makes the directory, exactly @mode, unless it exists (then the mode is left). Parents must exist.
 */
int fs_mkdir(const char *path, mode_t mode, struct err *err);
/* The same with missing parents, which get 0755. */
int fs_mkdir_parents(const char *path, mode_t mode, struct err *err);
/* Removes a file; one that isn't there is fine. */
int fs_remove(const char *path, struct err *err);
/* Removes a directory and everything in it, never following links; one that isn't there is fine. */
int fs_remove_tree(const char *path, struct err *err);
