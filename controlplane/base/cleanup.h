#pragma once

/*
 * cleanup - scope-bound ownership
 *
 * Purpose: _cleanup_(f) runs f(&variable) at the end of the scope; steal_ptr() and steal_fd() hand
 *          ownership on.
 */

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define _cleanup_(f) __attribute__((cleanup(f)))

/* Defines f_p(type **), for _cleanup_. */
#define DEFINE_CLEANUP(type, f)                                                                    \
	static inline void f##_p(type *p)                                                          \
	{                                                                                          \
		if (*p) {                                                                          \
			f(*p);                                                                     \
		}                                                                                  \
	}

static inline void free_p(void *p)
{
	free(*(void **)p);
}

static inline void close_p(const int *fd)
{
	if (*fd >= 0) {
		close(*fd);
	}
}

DEFINE_CLEANUP(FILE *, fclose)

#define _cleanup_free_   _cleanup_(free_p)
#define _cleanup_close_  _cleanup_(close_p)
#define _cleanup_fclose_ _cleanup_(fclose_p)

#define steal_ptr(p)                                                                               \
	({                                                                                         \
		__typeof__(*(p)) stolen_ = *(p);                                                   \
		*(p) = NULL;                                                                       \
		stolen_;                                                                           \
	})

static inline int steal_fd(int *fd)
{
	int stolen = *fd;

	*fd = -1;
	return stolen;
}
