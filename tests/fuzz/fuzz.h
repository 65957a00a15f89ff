#pragma once

/*
 * fuzz - what the fuzz targets share
 *
 * Purpose: a target takes bytes that might come from anybody, and aborts where something isn't as
 *          it must be. It is linked with libFuzzer (-Dfuzzers=true), or with replay.c, which gives
 *          it the files of its corpus: that is an ordinary test.
 * Thread:  one.
 */

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/*
 * How a stream is cut: the same bytes must mean the same, however they come. 0 doesn't cut; others
 * are seeds. Returns how many of @left bytes come next.
 */
#define FUZZ_WAYS 3
static inline size_t fuzz_piece(unsigned way, size_t at, size_t left)
{
	if (way == 0) {
		return left;
	}
	size_t n = way == 1 ? 1 : (at * 7 + 3) % 13 + 1;

	return n < left ? n : left;
}
