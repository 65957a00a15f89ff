#pragma once

/*
 * command - a process, its tree and its outputs
 *
 * Purpose: what EXEC calls and jobs have in common: start with pipes or a terminal, time-out,
 *          signals, and how it is known to be over.
 * Owns:    the command's cgroup until command_release(); the list of those that have an id.
 * Thread:  the agent has one.
 * Uses:    spawn.h, tree.h, drain.h, env.h, pty.h, exec-request.h, stream.h.
 */

#include "proto/limits.h"
#include "src/tree.h"
#include "src/util.h"

struct exec_request;
struct stream;

enum command_ending {
	COMMAND_RUNNING,
	COMMAND_TERMINATING, /* SIGTERM sent to all; SIGKILL at kill_at_ms */
	COMMAND_KILLING, /* SIGKILL sent to all; waiting until they are gone, not beyond kill_at_ms
			  */
	COMMAND_GONE,    /* none is left */
};

struct command {
	char id[PROTO_ID_MAX_BYTES + 1]; /* "": none */
	pid_t pid;                       /* also the session and process group */
	struct tree *tree;
	bool has_exited;
	int wait_status;
	enum command_ending ending;
	uint64_t kill_at_ms;
	uint64_t grace_ms;
	uint64_t deadline_ms; /* when command_timer() is to be called; 0: never */
	uint32_t end_flags;   /* enum msg_end_flag */
	uint64_t started_us;
	uint64_t ended_us;
};

/* Our ends; -1: none. */
struct command_pipes {
	int in;
	int out;
	int err;
};

/* Opens what every command shares. */
int command_init(void);
/* Starts what @q asks for. False: @s has been ended with the reason, and nothing is left. */
bool command_start(struct command *c, struct stream *s, struct exec_request *q,
	struct command_pipes *ret_pipes);
/* What is left of it runs on, by itself. */
void command_release(struct command *c);

/* NULL: none has that id. */
struct command *command_find(const char *id);

/* Its first process has ended and been waited for. */
void command_exited(struct command *c, int wait_status);
/* deadline_ms has passed. True: just now its last process was seen to be gone. */
bool command_timer(struct command *c);
/* To all of its processes. */
void command_signal(struct command *c, int signal);
/* SIGKILL, until none is left; then it is over. */
void command_kill(struct command *c);
/* Nothing of it runs that its end would have to wait for. */
bool command_is_over(const struct command *c);
uint32_t command_exit_code(const struct command *c);
/* The signal it died of; 0: none. */
uint32_t command_exit_signal(const struct command *c);

/* ---- one output ---- */

struct output {
	int fd; /* -1: at its end */
	bool is_tty;
	bool is_ready;
	size_t left; /* after the command has ended: what was in the pipe then */
	uint64_t bytes;
};

/* Notes what is in the pipe: the rest that belongs to the command. */
void output_note_left(struct output *o);
/* Nothing of it is left to be read. */
bool output_is_drained(const struct output *o);
/* Reads into a buffer that the next call reuses. As read(), but a terminal that is gone gives 0. */
ssize_t output_read(struct output *o, size_t limit, const uint8_t **ret_data);
/* Whatever still holds the pipe may go on writing. */
void output_let_go(struct output *o);
