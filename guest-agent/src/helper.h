#pragma once

/*
 * helper - a short-lived child that touches files with the rights of the sandbox user
 *
 * Purpose: the agent itself never resolves a path of the user's. A helper opens, lists or replaces
 *          and hands descriptors back, so a path that blocks, a directory that never ends or a
 *          permission that is missing is the helper's problem.
 * Owns:    nothing in the agent; the child owns a temporary file until it is committed.
 * Thread:  the child has one of its own.
 * Uses:    options.h.
 *
 * The control socket keeps message boundaries. The helper sends:
 *   HELPER_OPENED  with a descriptor; the agent reads from or writes to it
 *   HELPER_DONE    how it ended
 * The agent sends one byte to commit a PUT; if it closes the socket instead, nothing is replaced.
 */

#include "proto/limits.h"
#include "src/util.h"

/* A list comes in packets of whole entries, none longer. */
#define HELPER_LIST_PACKET_BYTES 16384u

enum helper_kind { HELPER_PUT, HELPER_GET, HELPER_LIST };

struct helper_job {
	enum helper_kind kind;
	char path[2 * PROTO_PATH_MAX_BYTES + 2]; /* absolute */
	bool has_mode;
	uint32_t mode;
	uint32_t flags; /* enum msg_file_flag */
	bool has_offset;
	uint64_t offset;
	uint64_t length; /* GET: UINT64_MAX: up to the end */
	uint32_t limit;  /* LIST */
};

enum helper_message_kind { HELPER_OPENED = 1, HELPER_DONE = 2 };

struct helper_message {
	uint32_t kind;
	uint32_t status;      /* enum msg_status; only where sys doesn't tell it all */
	int32_t sys;          /* errno */
	uint32_t flags;       /* DONE of LIST: enum msg_end_flag */
	uint32_t is_pollable; /* OPENED: a pipe or socket; otherwise a file that can't block */
	uint32_t mode;
	uint64_t size;
	uint64_t mtime_ns;
};

/* Forks it. Returns the control socket, non-blocking, or -1. */
int helper_start(const struct helper_job *job, pid_t *ret_pid);
/* Takes a message. 1: there is one; 0: the helper is gone; -1: EAGAIN. *ret_fd: -1 or ours. */
int helper_receive(int ctl, struct helper_message *ret, int *ret_fd);

/* The jobs, in the child; they end it. */
_noreturn_ void helper_run_put(int ctl, const struct helper_job *job);
_noreturn_ void helper_run_get(int ctl, const struct helper_job *job);
_noreturn_ void helper_run_list(int ctl, const struct helper_job *job);
/* For them. */
void helper_send(int ctl, const struct helper_message *message, int fd);
_noreturn_ void helper_fail(int ctl, int sys);
_noreturn_ void helper_refuse(int ctl, uint32_t status);
