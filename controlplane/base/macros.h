#pragma once

/*
 * macros - attributes, assertions and small arithmetic
 *
 * Purpose: what every file may need and no header of the system gives.
 * Errors:  ASSERT ends the process: a failed assertion is a fault of the program, never of its
 * input. Sandboxes survive that: their QEMU processes belong to libvirt, and reconcile repairs.
 */

#include <stddef.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

#define MIN(a, b)                                                                                  \
	({                                                                                         \
		__typeof__(a) min_a_ = (a);                                                        \
		__typeof__(b) min_b_ = (b);                                                        \
		min_a_ < min_b_ ? min_a_ : min_b_;                                                 \
	})
#define MAX(a, b)                                                                                  \
	({                                                                                         \
		__typeof__(a) max_a_ = (a);                                                        \
		__typeof__(b) max_b_ = (b);                                                        \
		max_a_ > max_b_ ? max_a_ : max_b_;                                                 \
	})

#define _printf_(fmt, args) __attribute__((format(printf, fmt, args)))
#define _must_check_        __attribute__((warn_unused_result))
#define _unused_            __attribute__((unused))
#define _noreturn_          __attribute__((noreturn))

_noreturn_ void assert_failed(const char *expr, const char *file, int line);

/* Compiled in always. */
#define ASSERT(expr)                                                                               \
	do {                                                                                       \
		if (__builtin_expect(!(expr), 0)) {                                                \
			assert_failed(#expr, __FILE__, __LINE__);                                  \
		}                                                                                  \
	} while (0)
