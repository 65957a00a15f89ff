#pragma once

/*
 * fake_guest - agents in memory
 *
 * Purpose: implements guest.h for tests of everything above it. Behind each running domain of a
 *          fake_hv there is a machine with files and settings; a channel to it says hello, runs
 *          small programs and moves files.
 * Owns:    machines and open channels. A machine lives as long as its domain, so a channel that is
 *          opened again finds its files and jobs.
 * Thread:  loop.
 * Uses:    base, loop, guest.h, fake_hv, proto (numbers of statuses).
 *
 *	struct fake_guest *guests = fake_guest_new(loop, hv);
 *	… give fake_guest_driver(guests) to sandboxes_new() …
 *	fake_guest_free(guests); (before the fake_hv; asserts that every channel was closed)
 *
 * Programs, as a command or as args joined by blanks:
 *   true, false, exit N, kill N, echo TEXT, warn TEXT (to stderr), cat (stdin to stdout),
 *   bytes N (N times 'x'), env NAME, sleep MS, stubborn MS (a sleep that only KILL ends),
 *   hang (never answers, but to signals), winsize (of its terminal, at its start and after changes)
 * anything else ends with 127. fake_guest_set_program() puts an own function before them.
 *
 * A job runs the same ones. "cat" goes on until its stdin is closed. A terminal without a command
 * has a "shell" that echoes what is written to it and ends at a Ctrl-D.
 */

#include "agent/guest.h"
#include "fake_hv.h"

enum fake_guest_op {
	FAKE_GUEST_CONFIGURE,
	FAKE_GUEST_EXEC,
	FAKE_GUEST_PUT,
	FAKE_GUEST_GET,
	FAKE_GUEST_LIST,
	FAKE_GUEST_SHUTDOWN,
	FAKE_GUEST_SIGNAL,
	FAKE_GUEST_JOB_START,
	FAKE_GUEST_JOB_WAIT,
	FAKE_GUEST_JOB_READ,
	FAKE_GUEST_JOB_INPUT,
	FAKE_GUEST_JOB_RESIZE,
	FAKE_GUEST_JOB_LIST,
	FAKE_GUEST_JOB_FORGET,
	FAKE_GUEST_OP_MAX
};

struct fake_guest;

struct fake_guest *fake_guest_new(struct loop *loop, struct fake_hv *hv);
void fake_guest_free(struct fake_guest *fake);
struct guest_driver *fake_guest_driver(struct fake_guest *fake);

/* As in fake_hv.h: FAIL is ERR_GUEST unless .kind says another; TIMEOUT is an agent that hangs and
 * that the driver gives up after .delay_ms; HOLD waits for fake_guest_release(). */
void fake_guest_script(
	struct fake_guest *fake, enum fake_guest_op op, const struct fake_script *script);
void fake_guest_release(struct fake_guest *fake, enum fake_guest_op op);
unsigned fake_guest_calls(const struct fake_guest *fake, enum fake_guest_op op);

/* From a machine's start, or the channel's, to its hello. Below 0: it never says it. Default 0. */
void fake_guest_set_hello_delay(struct fake_guest *fake, int ms);
/* Breaks the channel to machine @id, if there is one; it is back after @back_ms, below 0: never. */
void fake_guest_drop(struct fake_guest *fake, const char *id, int back_ms);

/* The channel breaks, and what is there a moment later knows of no jobs. */
void fake_guest_restart_agent(struct fake_guest *fake, const char *id);

/* A hostile guest: it goes on with what is cancelled, to the end. */
void fake_guest_ignore_cancel(struct fake_guest *fake);

/* What is put from now on is counted and thrown away, for more than a test has memory for. */
void fake_guest_discard(struct fake_guest *fake);
uint64_t fake_guest_discarded(const struct fake_guest *fake);

size_t fake_guest_open_count(const struct fake_guest *fake);
size_t fake_guest_call_count(const struct fake_guest *fake);

/* ---- jobs ---- */

#define FAKE_JOBS_RUNNING_MAX 32u
#define FAKE_JOBS_ENDED_MAX   64u

/* What a ring holds while the job runs (1 MiB), and after its end at most. */
void fake_guest_set_ring(struct fake_guest *fake, size_t bytes);

struct fake_job_view {
	bool is_running;
	char shell[64]; /* "": none was asked for */
	unsigned rows;
	unsigned cols;
	int signal;  /* the last one it got */
	size_t held; /* written by the program, not yet in the ring: it is blocked */
};
/* NULL: machine @id has no such job. Valid until the next turn. */
const struct fake_job_view *fake_guest_job(
	struct fake_guest *fake, const char *id, const char *eid);
size_t fake_guest_job_count(struct fake_guest *fake, const char *id);

/* ---- settings ---- */

/* What machine @id was told; NULL: nothing yet. Valid until the next turn. */
struct fake_settings {
	unsigned times;
	char hostname[128];
	int64_t wall_ms;
	bool has_deadline;
	uint64_t deadline_ms;
	char **env;
	char *ca_pem;
	bool was_seeded;
};
const struct fake_settings *fake_guest_settings(struct fake_guest *fake, const char *id);

/* ---- own programs ---- */

struct fake_exec {
	const char *id;      /* "": none */
	const char *command; /* args joined by blanks */
	const char *shell;   /* NULL: none was asked for */
	char *const *env;
	uint64_t timeout_ms;
	struct evbuffer *input; /* all of stdin */
};
/* True: it is this program's. It calls the two below, now or later. */
typedef bool (*fake_program_fn)(void *arg, struct guest_call *call, const struct fake_exec *exec);
void fake_guest_set_program(struct fake_guest *fake, fake_program_fn fn, void *arg);
void fake_exec_output(struct guest_call *call, int fd, const void *data, size_t len);
/* A hostile guest: what follows is handed on whatever its amount. */
void fake_guest_ignore_cap(struct guest_call *call);
/* Its reader is behind: what it writes now is held by the fake. */
bool fake_exec_is_paused(const struct guest_call *call);
void fake_exec_exit(struct guest_call *call, int code);
