#pragma once

/*
 * rand - random bytes and comparisons that don't tell by their time
 *
 * Thread: any.
 * Errors: none; without kernel randomness the process ends.
 */

#include <stdbool.h>
#include <stddef.h>

void rand_bytes(void *out, size_t len);
/* @digits lower-case hex digits and a terminator into @out (digits + 1 bytes). */
void rand_hex(char *out, size_t digits);
/* Compares all of both, whatever they hold. */
bool equal_constant_time(const void *a, const void *b, size_t len);
