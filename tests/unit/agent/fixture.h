#pragma once

/*
 * fixture - a guest of the real driver with a scripted peer, and a record of what it called back
 */

#include "agent/guest_agent.h"
#include "base/err.h"
#include "loop/pipe.h"
#include "peer.h"

struct record {
	unsigned done;
	struct err err; /* kind ERR_NONE: fine */
	bool has_status;
	uint32_t status;
	int sys;
	char text[256];
	unsigned started; /* on_started() of an exec */
	bool has_result;
	struct guest_exec_result result;
	uint64_t output[3];
	char head[3][64]; /* first bytes of each output */
	unsigned entries;
	bool is_cut;
	unsigned infos;
	struct guest_file_info info; /* of a get, or of the last entry */
	unsigned jobs;
	struct guest_job job; /* the last one */
	unsigned starts;
	uint64_t start;   /* the last on_start() */
	bool inside_call; /* a callback came from within a call */
};

struct fixture {
	struct loop *loop;
	struct guest_driver *driver;
	struct guest *guest;
	struct peer peer;
	unsigned ready;
	unsigned down;
	struct err down_err;
	bool in_call;
};

extern const struct guest_timing fixture_timing;  /* short, for tests of time-outs */
extern const struct guest_timing fixture_patient; /* long, but comes back at once */

/* The hook that counts into the fixture. */
void fixture_on_state(void *arg, enum guest_state state, const struct err *err);
void fixture_init(struct fixture *f, const struct guest_timing *timing);
void fixture_fini(struct fixture *f);
/* Opens a guest and brings its session up. */
void fixture_start(struct fixture *f);
void fixture_wait_ready(struct fixture *f, unsigned n);
void fixture_wait_down(struct fixture *f, unsigned n);
void fixture_wait_done(struct fixture *f, const struct record *record);

void record_done(void *arg, const struct guest_status *status, const struct err *err);
extern const struct guest_exec_hooks record_exec_hooks;
extern const struct guest_list_hooks record_list_hooks;
extern const struct guest_get_hooks record_get_hooks;
extern const struct guest_job_hooks record_job_hooks;

/* Each with the fixture's guest; asserts that it starts. */
struct guest_call *fixture_exec(struct fixture *f, struct record *record, const char *command);
struct guest_call *fixture_put(
	struct fixture *f, struct record *record, struct pipe *body, uint64_t length);
struct guest_call *fixture_get(struct fixture *f, struct record *record, struct pipe *body);
struct guest_call *fixture_list(struct fixture *f, struct record *record, uint32_t limit);
