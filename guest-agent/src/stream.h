#pragma once

/*
 * stream - the open calls of a session and their windows
 *
 * Purpose: one slot a call, from its first frame to END. Keeps the credit of each channel, builds
 *          STARTED, CLOSE, WINDOW and END.
 * Owns:    the slots; a slot's call state belongs to its call_ops.
 * Thread:  the agent has one.
 * Uses:    proto/, port.h; exec.h, file.h and job-call.h for the size of their state.
 *
 *      free ──stream_open──► running ──stream_end──► free
 *                               │
 *                               └──abandon (session lost)──► free
 */

#include "proto/frame.h"
#include "proto/msg.h"
#include "src/exec.h"
#include "src/file.h"
#include "src/job-call.h"
#include "src/loop.h"

struct stream;

/* One row for each type of call. NULL: the call has no use for it. */
struct call_ops {
	uint16_t type;
	const char *name;
	/* Takes the request; may end the stream. @body lives only for the call. */
	void (*start)(struct stream *s, const uint8_t *body, size_t len);
	/* DATA on IN, within the window. Gives credit back with stream_in_done(). */
	void (*data)(struct stream *s, const uint8_t *data, size_t len);
	void (*in_closed)(struct stream *s);
	/* A descriptor became ready. */
	void (*event)(struct stream *s, enum loop_kind kind);
	/* Does what can be done now; may end the stream. Called in every turn. */
	void (*pump)(struct stream *s);
	/* The process s->pid has ended and been waited for. */
	void (*exited)(struct stream *s, int wait_status);
	/* deadline_ms has passed. */
	void (*timer)(struct stream *s);
	void (*cancel)(struct stream *s);
	/* The session is lost: lets go of everything, answers nobody. */
	void (*abandon)(struct stream *s);
};

struct stream {
	uint32_t id; /* 0: free */
	unsigned slot;
	uint32_t generation;
	const struct call_ops *ops;
	bool is_in_closed;
	uint32_t in_credit; /* what the host may still send */
	uint32_t in_owed;   /* consumed, not yet given back */
	uint32_t out_credit[FRAME_CHANNEL_MAX];
	uint64_t deadline_ms; /* 0: none */
	pid_t pid;            /* whose end the call waits for; 0: none */
	union {
		struct exec exec;
		struct file_call file;
		struct job_call job;
	};
};

/* NULL when all are in use. */
struct stream *stream_open(uint32_t id, const struct call_ops *ops);
struct stream *stream_find(uint32_t id);
/* The stream that an event is for; NULL when it has ended. */
struct stream *stream_of_event(struct loop_ref ref);
struct loop_ref stream_ref(const struct stream *s, enum loop_kind kind);
unsigned stream_count(void);

/* @len bytes of IN were used up. */
void stream_in_done(struct stream *s, size_t len);
/* False when that is more than the channel may hold. */
bool stream_add_credit(struct stream *s, enum frame_channel channel, uint32_t credit);

/*
 * Moves bytes from @fd to a channel as credit and room allow, at most @limit. Returns what read()
 * returned last; 0 bytes wanted, credit or room missing: -1 with EAGAIN and *ret_blocked.
 */
ssize_t stream_pump_out(
	struct stream *s, enum frame_channel channel, int fd, size_t limit, bool *ret_blocked);

/* As many of the bytes as credit and room allow, in one frame; returns how many. */
size_t stream_put_data(
	struct stream *s, enum frame_channel channel, const uint8_t *data, size_t len);
/* Whether @len bytes could be sent on that channel now, in one frame. */
bool stream_has_room(struct stream *s, enum frame_channel channel, size_t len);

void stream_close_channel(struct stream *s, enum frame_channel channel);

/* What END says. */
struct stream_result {
	uint32_t status;
	int sys; /* errno; 0: none */
	char text[PROTO_TEXT_MAX_BYTES + 1];
	bool is_exec; /* EXIT_CODE and SIGNAL */
	uint32_t exit_code;
	uint32_t signal;
	uint32_t flags;
	bool has_counts; /* OUT_BYTES and ERR_BYTES */
	uint64_t out_bytes;
	uint64_t err_bytes;
	uint64_t duration_us;
	uint64_t out_tail;
	uint64_t err_tail;
	bool has_bytes;
	uint64_t bytes;
	bool has_offset;
	uint64_t offset;
	uint64_t realtime_ns; /* 0: not told */
};
/* Sends END and frees the slot. The call has let go of its things. */
void stream_end(struct stream *s, const struct stream_result *result);
/* END for a call that failed. */
void stream_fail(struct stream *s, uint32_t status, int sys, const char *fmt, ...) _printf_(4, 5);
/* END for a request that got no slot. */
void stream_refuse(uint32_t id, uint32_t status, const char *text);

/* The status that an errno of a file or process call means. */
uint32_t stream_status_of(int sys);

/* True when @pid belonged to a call. */
bool stream_child_exited(pid_t pid, int wait_status);
/* Each running stream: deadlines, then pump. */
void stream_run_all(void);
void stream_abandon_all(void);
