#pragma once

/*
 * xalloc - small allocations that can't fail
 *
 * Purpose: for objects whose size the program decides. What a client or a guest sizes is checked
 *          against a limit first; then these are fine too.
 * Errors:  end the process when there is no memory: the kernel overcommits, so this hardly ever is
 *          where its lack shows, and reconcile makes a restart safe.
 */

#include <stddef.h>

#include "base/macros.h"

void *xcalloc(size_t count, size_t size) _must_check_; /* zeroed */
void *xrealloc(void *p, size_t count, size_t size) _must_check_;
void *xmemdup(const void *p, size_t len) _must_check_;
char *xstrdup(const char *s) _must_check_; /* NULL gives NULL */
char *xasprintf(const char *fmt, ...) _printf_(1, 2) _must_check_;

#define xnew(type) ((type *)xcalloc(1, sizeof(type)))

/* NULL-terminated array of strings, deep copy and free; NULL is the empty one. */
char **strv_dup(char *const *strv) _must_check_;
void strv_free(char **strv);
size_t strv_length(char *const *strv);
