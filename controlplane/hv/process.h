#pragma once

/*
 * process - the QEMU process of a domain
 *
 * Purpose: finds it, watches it and, where libvirt doesn't, stops or ends it. A number alone is
 *          never trusted: a process is its number together with its start time, and before a signal
 *          is sent a descriptor pins it and the command line must name the domain.
 * Owns:    nothing.
 * Thread:  any; process_wait_blocking() on a worker.
 * Errors:  ERR_NOT_FOUND: there is no such process (any more). ERR_UNAVAILABLE: that can't be told
 *          now, for want of descriptors or memory; it is never taken for gone. ERR_INTERNAL: else.
 * Uses:    base.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

struct process {
	pid_t pid;      /* 0: not known */
	uint64_t start; /* field 22 of /proc/PID/stat */
};

/* The process that @pid_file names, if it runs the domain @name. */
int process_find(const char *pid_file, const char *name, struct process *ret, struct err *err);
/* False once it has exited: gone, a zombie that nobody reaps, or its number another's. True as long
 * as that can't be told. */
bool process_is_alive(const struct process *process);
/*
 * A pidfd of @process, which runs the domain @name. Close it.
 */
int process_open(const struct process *process, const char *name, int *ret_fd, struct err *err);
/* When it began, by the wall clock; 0: can't be told. */
int64_t process_started_at_ms(const struct process *process);

/* ---- QEMU processes that nobody may know of ---- */

#define PROCESS_DOMAIN_BYTES 64

struct process_found {
	struct process process;
	char domain[PROCESS_DOMAIN_BYTES]; /* what -name calls it; "": nothing, as a probe */
	char *args;                        /* each with its NUL */
	size_t len;
};

/*
 * All live QEMU processes whose command line names the directory @root or something below it.
 * process_scan_fini() frees the list.
 */
int process_scan(const char *root, struct process_found **ret, size_t *ret_count, struct err *err);
void process_scan_fini(struct process_found *found, size_t count);
/* Whether the arguments name @path: all of its components, and as a whole path. */
bool process_args_name(const char *args, size_t len, const char *path);
/* A pidfd of @process, which is a QEMU whose command line names @root. Close it. @ret_domain: as
 * process_found.domain. */
int process_open_below(const struct process *process, const char *root,
	char ret_domain[PROCESS_DOMAIN_BYTES], int *ret_fd, struct err *err);

/* True when the process of @pidfd ended within @timeout_ms. */
bool process_wait_blocking(int pidfd, uint64_t timeout_ms);
void process_kill(int pidfd);
/* Nothing of it runs between the two, not even what libvirt asks of it. */
void process_stop(int pidfd);
void process_continue(int pidfd);
