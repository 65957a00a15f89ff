#pragma once

/*
 * rpc - calls to an agent: from a request to exactly one last word
 *
 * Purpose: what all calls have in common: start, deadlines, cancel, loss of the channel, the end.
 *          guest_exec.c, guest_file.c, guest_job.c and guest_sys.c build their calls on it.
 * Owns:    the calls under way and, until the next turn, those that are done.
 * Thread:  loop. ops->done() comes exactly once, from the loop, never from within a call but
 *          rpc_close().
 * Errors:  ERR_UNAVAILABLE, ERR_TIMEOUT, ERR_CANCELLED, ERR_GUEST.
 * Uses:    chan, mux; base, loop, proto. Private to this folder.
 */

#include <event2/event.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "agent/chan.h"
#include "agent/guest.h"
#include "agent/guest_agent.h"
#include "agent/mux.h"
#include "base/err.h"
#include "proto/limits.h"
#include "proto/msg.h"

/* END, decoded. Numbers are the guest's word; what contradicts itself never gets here. */
struct call_end {
	uint32_t status;
	int sys;
	char text[PROTO_TEXT_MAX_BYTES + 1];
	uint32_t flags; /* enum msg_end_flag */
	bool has_exit_code;
	uint32_t exit_code;
	uint32_t signal;
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

/* Each may be NULL but done. Those with an error value return -1 when the guest broke the rules. */
struct call_ops {
	int (*on_started)(
		struct guest_call *call, const uint8_t *body, size_t len, struct err *err);
	int (*on_data)(struct guest_call *call, unsigned channel, const uint8_t *data, size_t len,
		struct err *err);
	int (*on_gap)(struct guest_call *call, uint64_t offset, struct err *err);
	/* call->end is set; ends with rpc_finish(), now or later. NULL: by its status alone. */
	int (*on_end)(struct guest_call *call, struct err *err);
	size_t (*pull)(struct guest_call *call, uint8_t *out, size_t max, bool *ret_is_end);
	/* True: the next move is the guest's. NULL: always. */
	bool (*is_guests_turn)(const struct guest_call *call);
	/* Lets go of pipes; comes before done(). @err as for done(). */
	void (*release)(struct guest_call *call, const struct err *err);
	void (*done)(struct guest_call *call, const struct err *err);
};

/* First member of each kind of call. */
struct guest_call {
	TAILQ_ENTRY(guest_call) link; /* rpc.calls or rpc.dead */
	struct rpc *rpc;
	const struct call_ops *ops;
	struct mux_stream *stream; /* NULL once the guest has ended it */
	struct event *timer;
	uint64_t deadline_ms; /* 0: none */
	uint64_t idle_ms;     /* 0: none */
	uint64_t progress_ms; /* last sign of it */
	bool is_cancelled;
	bool is_ended; /* end is set */
	bool is_done;
	struct call_end end;
	struct err failure; /* waits for the loop; kind ERR_NONE: not */
};

TAILQ_HEAD(call_list, guest_call);

struct rpc {
	struct loop *loop;
	struct chan *chan;
	const struct guest_timing *timing;
	struct mux mux;
	struct call_list calls;
	struct call_list dead;
	struct event *orphans_timer; /* runs while there are more than MUX_ORPHANS_MAX */
	bool is_ready;
	bool is_closed;
};

/* @chan may be set after it. */
void rpc_init(struct rpc *rpc, struct loop *loop, const struct guest_timing *timing);
/* Ends all calls with ERR_CANCELLED, from here. */
void rpc_close(struct rpc *rpc);
/* After rpc_close(), in a later turn. */
void rpc_fini(struct rpc *rpc);

/* From the channel. */
void rpc_ready(struct rpc *rpc);
int rpc_frame(struct rpc *rpc, const struct frame *frame, struct err *err);
void rpc_lost(struct rpc *rpc, const struct err *err);
size_t rpc_fill(struct rpc *rpc, uint8_t *out);

struct rpc_request {
	uint16_t type;
	struct request *body;
	const struct call_ops *ops;
	uint64_t timeout_ms; /* 0: none */
	uint64_t idle_ms;    /* 0: none */
	bool has_input;
	bool is_reserved;
};

/*
 * @call is zeroed and malloc'ed; taken on success only, as is the body. It's freed in the turn
 * after it's done.
 */
int rpc_start(struct rpc *rpc, struct guest_call *call, const struct rpc_request *request,
	struct err *err);
/* The last word; err NULL: fine. Only from the loop. What the guest still sends is dropped. */
void rpc_finish(struct guest_call *call, const struct err *err);
/* The same, from the next turn, unless the call has ended by then. From anywhere. */
void rpc_finish_later(struct guest_call *call, const struct err *err);
void rpc_cancel(struct guest_call *call);
/* Input is there. */
void rpc_poke(struct guest_call *call);
/* Output is done with. */
void rpc_consume(struct guest_call *call, unsigned channel, size_t len);
/* The guest's word on a call, for callbacks. */
struct guest_status rpc_status(const struct guest_call *call);
/* "The agent broke the protocol: …", ERR_UNAVAILABLE. */
int rpc_violation(struct err *err, const char *what);
