#pragma once

/*
 * cm - cmocka with the headers that it wants before it, and assertions on struct err
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"

/* @call succeeds; prints the error when it doesn't. */
#define assert_ok(call, err)                                                                       \
	do {                                                                                       \
		(err)->kind = ERR_NONE;                                                            \
		if ((call) != 0) {                                                                 \
			fail_msg("%s: %s: %s", #call, err_kind_name((err)->kind), (err)->msg);     \
		}                                                                                  \
	} while (0)

/* @call fails with that kind. */
#define assert_err(call, err, expected)                                                            \
	do {                                                                                       \
		(err)->kind = ERR_NONE;                                                            \
		if ((call) == 0) {                                                                 \
			fail_msg("%s: succeeded", #call);                                          \
		}                                                                                  \
		if ((err)->kind != (expected)) {                                                   \
			fail_msg("%s: %s, not %s: %s", #call, err_kind_name((err)->kind),          \
				err_kind_name(expected), (err)->msg);                              \
		}                                                                                  \
	} while (0)

/* The message of @err contains @text. */
#define assert_err_says(err, text)                                                                 \
	do {                                                                                       \
		if (!strstr((err)->msg, text)) {                                                   \
			fail_msg("\"%s\" doesn't say \"%s\"", (err)->msg, text);                   \
		}                                                                                  \
	} while (0)

/* Turns the loop until @condition holds; fails after @ms. Needs loop/loop.h and base/clock.h. */
#define await(loop, condition, ms)                                                                 \
	do {                                                                                       \
		uint64_t await_until_ = clock_monotonic_ms() + (ms);                               \
		while (!(condition)) {                                                             \
			if (clock_monotonic_ms() > await_until_) {                                 \
				fail_msg("not within %d ms: %s", (int)(ms), #condition);           \
			}                                                                          \
			loop_turn_for(loop, 20);                                                   \
		}                                                                                  \
	} while (0)
