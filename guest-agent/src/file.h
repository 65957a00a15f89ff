#pragma once

/*
 * file - FILE_PUT, FILE_GET and FILE_LIST calls
 *
 * Purpose: the agent's half: starts a helper, moves bytes between the port and the descriptor that
 *          the helper hands over, reports what became of it.
 * Owns:    per call: the control socket, that descriptor.
 * Thread:  the agent has one.
 * Uses:    helper.h, feed.h, stream.h.
 */

#include "src/feed.h"
#include "src/util.h"

struct call_ops;
struct stream;

struct file_call {
	int ctl; /* to the helper; -1: it isn't needed any more */
	pid_t helper;
	bool is_opened;
	bool is_committed;

	/* PUT */
	struct feed in;
	bool has_size;
	uint64_t size;

	uint64_t bytes; /* that have moved */

	/* GET, LIST */
	int out_fd;
	bool is_out_ready;
	bool is_out_pollable;
	bool is_out_closed;
	uint64_t offset;
	uint64_t left; /* to be read at most */

	/* The helper's last word */
	bool is_done;
	uint32_t done_status;
	int done_sys;
	uint32_t done_flags;
};

extern const struct call_ops file_put_ops;
extern const struct call_ops file_get_ops;
extern const struct call_ops file_list_ops;
