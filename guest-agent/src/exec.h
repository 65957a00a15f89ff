#pragma once

/*
 * exec - EXEC calls
 *
 * Purpose: runs one command for the length of the call: feeds its stdin, carries its output, ends
 *          it on CANCEL, reports how it ended.
 * Owns:    per call: three pipe ends, and what is kept of output beyond the cap.
 * Thread:  the agent has one.
 * Uses:    command.h, feed.h, ring.h, stream.h.
 */

#include "src/command.h"
#include "src/feed.h"
#include "src/ring.h"

struct call_ops;
struct stream;

struct exec {
	struct command command;
	struct feed in;
	struct output out;
	struct output err;
	uint64_t cap_left;
	struct ring tails[2];  /* of stdout and stderr, once the cap is reached */
	uint64_t tail_sent[2]; /* offsets in them */
	bool is_sending_tails;
};

extern const struct call_ops exec_ops;
