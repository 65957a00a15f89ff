#pragma once

/*
 * env - environment variables of a sandbox
 *
 * Purpose: the packed form that the row keeps ("K=V", NUL, "K=V", NUL), and the union of the
 *          operator's variables and the sandbox's own, which win.
 * Thread:  any.
 * Uses:    base.
 */

#include <stddef.h>

/* NULL and 0 for none. The caller frees. */
char *env_pack(char *const *env, size_t *ret_len);
/* NULL-terminated; the caller frees with strv_free(). */
char **env_merge(char *const *operators, const char *packed, size_t packed_len);
