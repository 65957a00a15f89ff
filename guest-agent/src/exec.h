#pragma once

/*
 * exec - EXEC calls
 *
 * Purpose: runs one command: feeds its stdin, carries its output, ends it on time-out and CANCEL,
 *          reports how it ended.
 * Owns:    per call: three pipe ends and the command's cgroup until END.
 * Thread:  the agent has one.
 * Uses:    feed.h, spawn.h, tree.h, drain.h, env.h, stream.h.
 */

#include "src/feed.h"
#include "src/tree.h"
#include "src/util.h"

struct call_ops;
struct stream;

/* One output of the command. */
struct exec_output {
	int fd; /* -1: at its end */
	bool is_ready;
	size_t left; /* after the command has ended: what was in the pipe then */
	uint64_t bytes;
};

enum exec_ending {
	EXEC_RUNNING,
	EXEC_TERMINATING, /* SIGTERM sent to all; SIGKILL at kill_at_ms */
	EXEC_KILLING, /* SIGKILL sent to all; waiting until they are gone, not beyond kill_at_ms */
	EXEC_GONE,    /* none is left */
};

struct exec {
	pid_t pid; /* also the session and process group */
	struct tree *tree;
	bool has_exited;
	int wait_status;
	enum exec_ending ending;
	uint64_t kill_at_ms;
	uint64_t grace_ms;
	uint32_t end_flags;
	uint64_t started_us;
	uint64_t ended_us;

	struct feed in;
	struct exec_output out;
	struct exec_output err;
	uint64_t cap_left;
};

extern const struct call_ops exec_ops;

/* Opens what every command shares. */
int exec_init(void);
