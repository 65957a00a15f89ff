#pragma once

/*
 * util - clock, small files and the attributes that the agent uses
 *
 * Purpose: the agent links nothing but libc and proto/, so it brings its own few helpers.
 * Owns:    nothing.
 * Thread:  the agent has one.
 * Errors:  -1 and errno.
 * Uses:    libc.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define MIN(a, b)     ((a) < (b) ? (a) : (b))
#define MAX(a, b)     ((a) > (b) ? (a) : (b))

#define _printf_(fmt, args) __attribute__((format(printf, fmt, args)))
#define _noreturn_          __attribute__((noreturn))

/* The sanitizers neither like shared memory with a child nor small limits. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define UTIL_IS_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define UTIL_IS_SANITIZED 1
#endif
#endif
#ifndef UTIL_IS_SANITIZED
#define UTIL_IS_SANITIZED 0
#endif

/* Monotonic time. */
uint64_t now_us(void);
uint64_t now_ms(void);

/* Opens, writes @text in one piece and closes; for files of the kernel. Makes no file. */
int util_write_text(const char *path, const char *text);
/* A file of the image, made or replaced as a whole, mode 0644: on failure what was there stays. The
 * directory must be root's alone. */
int util_save(const char *path, const void *data, size_t len);
/* Reads up to @size - 1 bytes and terminates them. Returns the length. */
ssize_t util_read_text(const char *path, char *out, size_t size);
/* The first run of digits in a small file such as /proc/sys/…; 0 where there is none. */
uint64_t util_read_number(const char *path);

/* Writes all of it, whatever the interruptions; for descriptors that block. */
int util_write_all(int fd, const void *data, size_t len);

/*
 * Where commands have no share of the processor of their own, the agent runs before everything
 * else, so that no number of busy processes keeps it from ending them. (It then keeps them from
 * running, too, while it moves a large file.) Its children must go back before they do anything of
 * their own.
 */
void util_become_first(void);
void util_become_ordinary(void);

/* Closes *fd if it is open and sets it to -1. */
void util_close(int *fd);
