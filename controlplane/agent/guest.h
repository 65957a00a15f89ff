#pragma once

/*
 * guest - the agent in a sandbox as the domain layer sees it
 *
 * Purpose: typed calls to the in-guest agent. guest_agent.h makes the real one (channel, mux); the
 *          tests' fake implements the same table.
 * Owns:    per guest: the channel's socket, the calls under way, the console's ring.
 * Thread:  loop. Callbacks never come from within a call. done() comes exactly once, also after
 *          cancel() and when the channel is lost.
 * Errors:  ERR_UNAVAILABLE: channel not ready, or lost. ERR_RATE: as many calls, or jobs, as the
 *          guest has at once. ERR_CONFLICT: its agent is too old for that. ERR_TIMEOUT: the guest
 *          didn't answer. ERR_GUEST: the guest says no; struct guest_status has its word.
 *          ERR_CANCELLED.
 * Uses:    base, loop.
 *
 * The guest is hostile: what comes from it is bounded by the implementation, and what breaks the
 * protocol drops this one channel (on_state with GUEST_DOWN, then a new attempt after a pause).
 */

#include <event2/buffer.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "loop/pipe.h"

enum guest_state {
	GUEST_CONNECTING, /* no HELLO yet */
	GUEST_READY,      /* calls are possible */
	GUEST_DOWN,       /* lost; connecting again by itself */
};

/* From the guest's HELLO. Text is printable and bounded. */
struct guest_hello {
	uint32_t version;
	uint64_t features;
	char software[64];
	char boot_id[64];
	char image[128];
};

struct guest_hooks {
	/* @err tells why for GUEST_DOWN. */
	void (*on_state)(void *arg, enum guest_state state, const struct err *err);
	void *arg;
};

/* The guest's last word on a call; valid during the callback. */
struct guest_status {
	uint32_t status; /* enum msg_status of the protocol */
	int sys;         /* errno in the guest, 0: none */
	const char *text;
};

struct guest_config {
	int64_t wall_ms;      /* 0: leave the clock */
	const char *hostname; /* NULL: leave */
	uint64_t deadline_ms; /* power off after this much time; 0: never */
	bool has_deadline;    /* false: leave */
	bool reset_env;       /* env below replaces what was configured before */
	char *const *env;     /* "NAME=VALUE"; NULL: none */
	const char *ca_pem;   /* NULL: none */
	bool reseed;          /* fresh entropy from the host */
};

struct guest_exec_spec {
	/* By which signal() and the job calls name it: 1 to 63 letters, digits, '_', '-'; NULL:
	 * none can. */
	const char *id;
	char *const *args;   /* argv, or NULL and … */
	const char *command; /* … this, for the shell; neither, with has_tty: a login shell */
	const char *shell;   /* program that takes it after -c; NULL: the image's bash, else sh */
	const char *cwd;     /* NULL: /workspace */
	char *const *env;
	uint64_t
		timeout_ms; /* 0: none. The guest enforces it; the host again, some seconds later */
	uint64_t output_cap; /* bytes of both outputs together; the rest is counted and dropped */
	uint64_t tail_cap;   /* but for so many last bytes of each, which come before the end */
	bool as_root;
	struct pipe *stdin_pipe; /* the call takes the reader's end; NULL: no stdin */
};

struct guest_exec_result {
	int exit_code; /* 128 + signal where one ended it */
	int signal;
	bool timed_out;
	bool truncated;
	uint64_t stdout_bytes; /* true counts */
	uint64_t stderr_bytes;
	uint64_t stdout_tail; /* so many of the bytes that came last belong behind a gap */
	uint64_t stderr_tail;
	uint64_t duration_us;
};

/*
 * A job is a command that needs nobody: its output goes into a ring in the guest, which keeps the
 * last bytes of both streams in the order they were written. Offsets count all bytes from the
 * first, dropped ones included. Jobs outlive the channel and whoever started them; ended ones are
 * kept until job_forget(), or until the guest needs their place.
 *
 * A full ring drops its oldest bytes, but while somebody follows it nothing that the foremost
 * follower hasn't had: then the job waits at its full pipe.
 */
struct guest_job_spec {
	struct guest_exec_spec
		exec;    /* id is needed; output_cap, tail_cap and stdin_pipe aren't used */
	bool keep_stdin; /* stdin stays open for job_input(); else it is /dev/null */
	bool has_tty;    /* a terminal of its own; its output is all stdout */
	unsigned rows;   /* with has_tty */
	unsigned cols;
};

struct guest_job {
	char id[64];
	bool is_running;
	bool has_tty;
	uint64_t first_offset; /* of what is still kept */
	uint64_t end_offset;
	struct guest_exec_result result; /* once it has ended */
};

struct guest_read_spec {
	const char *id;
	uint64_t offset;  /* below first_offset: from there; beyond end_offset: ERR_GUEST */
	uint64_t max;     /* bytes; UINT64_MAX: all there are */
	uint64_t wait_ms; /* until there is a first byte, or the end; 0: don't */
	bool is_followed; /* go on until the job ends; wait_ms isn't looked at */
};

struct guest_file_spec {
	const char *path; /* path_len bytes, any but NUL */
	size_t path_len;
	uint32_t mode; /* PUT; 0: the guest's default */
	bool make_parents;
	bool append;
	bool recursive;  /* LIST */
	uint32_t limit;  /* LIST: entries, not 0 */
	uint64_t offset; /* GET, PUT */
	uint64_t length; /* GET; UINT64_MAX: to the end. PUT: bytes that will come, or UINT64_MAX */
};

struct guest_file_info {
	uint64_t size;
	uint32_t mode;
	int64_t mtime_ms;
};

struct guest_entry {
	const char *name; /* name_len bytes, relative to the listed path */
	size_t name_len;
	char type; /* f d l o */
	uint64_t size;
	uint32_t mode;
	int64_t mtime_ms;
};

struct guest;
struct guest_call;

/* err NULL: fine. status is set with ERR_GUEST. */
typedef void (*guest_done_fn)(void *arg, const struct guest_status *status, const struct err *err);

struct guest_exec_hooks {
	/* The command runs; at most once, and before what follows. NULL: nobody asks. */
	void (*on_started)(void *arg);
	/* Bytes of stdout (1) or stderr (2). Taking nothing more: exec_pause(); what is under way,
	 * a window of each, still comes.
	 */
	void (*on_output)(void *arg, int fd, const void *data, size_t len);
	/* @result is NULL where the guest reported none; with ERR_CANCELLED it may be there. */
	void (*on_done)(void *arg, const struct guest_exec_result *result, const struct err *err);
	void *arg;
};

struct guest_list_hooks {
	void (*on_entry)(void *arg, const struct guest_entry *entry);
	void (*on_done)(
		void *arg, bool is_cut, const struct guest_status *status, const struct err *err);
	void *arg;
};

struct guest_get_hooks {
	/* Before the first byte. */
	void (*on_info)(void *arg, const struct guest_file_info *info);
	guest_done_fn on_done; /* the pipe is closed or failed by then */
	void *arg;
};

struct guest_job_hooks {
	/* For job_list(), each; for job_read(), once, before the first byte: as it is now, or NULL:
	 * nobody asks. */
	void (*on_job)(void *arg, const struct guest_job *job);
	/* job_read(): the offset of the byte that comes next; at the beginning, and after a gap,
	 * where this reader was too slow for the ring. */
	void (*on_start)(void *arg, uint64_t offset);
	/* Bytes of stdout (1) or stderr (2) in the order they were written. */
	void (*on_output)(void *arg, int fd, const void *data, size_t len);
	guest_done_fn on_done;
	void *arg;
};

struct guest_driver;

struct guest_driver_ops {
	/* Connects to the channel in the background, for as long as it takes. */
	struct guest *(*open)(struct guest_driver *driver, const char *agent_socket,
		const char *console_socket, const struct guest_hooks *hooks);
	/* Ends all calls with ERR_CANCELLED, from here (the one exception); no callback after it.
	 */
	void (*close)(struct guest *guest);
	enum guest_state (*state)(const struct guest *guest);
	/* NULL before the first HELLO. */
	const struct guest_hello *(*hello)(const struct guest *guest);
	/* The last @max bytes of the serial console. Copied into @to. */
	void (*console)(const struct guest *guest, struct evbuffer *to, size_t max);

	/* Each returns NULL with @err set when the call can't even start; then no callback comes.
	 */
	struct guest_call *(*configure)(struct guest *guest, const struct guest_config *config,
		guest_done_fn done, void *arg, struct err *err);
	struct guest_call *(*exec)(struct guest *guest, const struct guest_exec_spec *spec,
		const struct guest_exec_hooks *hooks, struct err *err);
	/* Takes the reader's end of @body, on success only. */
	struct guest_call *(*put)(struct guest *guest, const struct guest_file_spec *spec,
		struct pipe *body, guest_done_fn done, void *arg, struct err *err);
	/* Takes the writer's end of @body, on success only. */
	struct guest_call *(*get)(struct guest *guest, const struct guest_file_spec *spec,
		struct pipe *body, const struct guest_get_hooks *hooks, struct err *err);
	struct guest_call *(*list)(struct guest *guest, const struct guest_file_spec *spec,
		const struct guest_list_hooks *hooks, struct err *err);
	/* Clean power-off. */
	struct guest_call *(*shutdown)(
		struct guest *guest, guest_done_fn done, void *arg, struct err *err);

	/* Asks the guest to stop it; done follows (soon, or with ERR_TIMEOUT). */
	void (*cancel)(struct guest_call *call);
	/* Withholds credit from the outputs of an exec() or job_read(), and gives it again. */
	void (*exec_pause)(struct guest_call *call, bool is_paused);

	/* To the whole tree of a running command, exec() or job, by its id. */
	struct guest_call *(*signal)(struct guest *guest, const char *id, int signal,
		guest_done_fn done, void *arg, struct err *err);

	/* Done when the job runs, or couldn't be started. */
	struct guest_call *(*job_start)(struct guest *guest, const struct guest_job_spec *spec,
		guest_done_fn done, void *arg, struct err *err);
	/* Done with the result when it has ended; on_output isn't used. cancel() ends the waiting
	 * and leaves the job alone. */
	struct guest_call *(*job_wait)(struct guest *guest, const char *id,
		const struct guest_exec_hooks *hooks, struct err *err);
	struct guest_call *(*job_read)(struct guest *guest, const struct guest_read_spec *spec,
		const struct guest_job_hooks *hooks, struct err *err);
	/* Takes the reader's end of @input, on success only. @closes: stdin ends behind it. Done
	 * when the job's stdin has taken all; ERR_GUEST when it has none, or no longer. */
	struct guest_call *(*job_input)(struct guest *guest, const char *id, struct pipe *input,
		bool closes, guest_done_fn done, void *arg, struct err *err);
	struct guest_call *(*job_resize)(struct guest *guest, const char *id, unsigned rows,
		unsigned cols, guest_done_fn done, void *arg, struct err *err);
	struct guest_call *(*job_list)(
		struct guest *guest, const struct guest_job_hooks *hooks, struct err *err);
	/* Drops an ended job's output and result. */
	struct guest_call *(*job_forget)(struct guest *guest, const char *id, guest_done_fn done,
		void *arg, struct err *err);
};

/* First member of every implementation of driver and of guest. */
struct guest_driver {
	const struct guest_driver_ops *ops;
};
struct guest {
	const struct guest_driver_ops *ops;
};
