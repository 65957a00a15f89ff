#pragma once

/*
 * loop - epoll with typed references
 *
 * Purpose: one place that waits. An event names its receiver by kind, slot and the slot's
 *          generation, never by a pointer: an event that was already fetched for a descriptor since
 *          closed finds another generation and is dropped.
 * Owns:    the epoll descriptor.
 * Thread:  the agent has one.
 * Errors:  -1 and errno.
 * Uses:    util.h.
 *
 * All descriptors are watched edge-triggered. Their owners keep a ready flag that an event sets and
 * EAGAIN clears. So a reader without credit costs no system call, and a hung-up port or pipe that
 * nobody may read yet doesn't spin.
 */

#include "src/util.h"

enum loop_kind {
	LOOP_PORT = 1,
	LOOP_SIGNAL,
	LOOP_DEADMAN,
	LOOP_DRAIN,
	LOOP_STREAM_IN,  /* write end of a command's stdin or of a file's pipe */
	LOOP_STREAM_OUT, /* stdout, file contents, list */
	LOOP_STREAM_ERR,
	LOOP_STREAM_HELPER, /* control socket of a file helper */
	LOOP_JOB_OUT,       /* stdout of a job, or its terminal */
	LOOP_JOB_ERR,
};

struct loop_ref {
	enum loop_kind kind;
	unsigned slot;
	uint32_t generation;
};

int loop_init(void);
/* Watches @fd for @events (EPOLLIN, EPOLLOUT) until it is closed. */
int loop_watch(int fd, uint32_t events, struct loop_ref ref);
/* Only for descriptors whose pipe is open elsewhere past our close. */
void loop_forget(int fd);

/* Makes the next wait return at once: there is work that no event will announce. */
void loop_kick(void);
/* Deadlines are asked for anew in every turn: the earliest of those noted since the last wait. */
void loop_note_deadline(uint64_t at_ms);

/* Waits, then calls @on_event for each. */
typedef void (*loop_event_fn)(struct loop_ref ref, uint32_t events);
void loop_turn(loop_event_fn on_event);
