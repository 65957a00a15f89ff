#pragma once

/*
 * clock - time
 *
 * Purpose: monotonic milliseconds for deadlines, wall-clock milliseconds for what people and
 *          records see, and RFC 3339 text.
 * Thread:  any. The test override is for single-threaded tests.
 */

#include <stdint.h>

#include "base/err.h"

#define MS_PER_SECOND 1000
#define MS_PER_MINUTE 60000

/* CLOCK_BOOTTIME: goes on while the host sleeps, never jumps. */
uint64_t clock_monotonic_ms(void);
uint64_t clock_monotonic_us(void);
/* CLOCK_REALTIME, since the epoch. Expiries are kept in this. */
int64_t clock_wall_ms(void);
int64_t clock_wall_us(void);

#define CLOCK_TEXT_BYTES 32
/* "2026-01-31T12:00:00.250Z"; returns @out. */
const char *clock_format(int64_t wall_ms, char out[CLOCK_TEXT_BYTES]);

/* Tests: adds to both clocks from now on (may be negative for the wall clock alone). */
void clock_test_advance(int64_t monotonic_ms, int64_t wall_ms);
