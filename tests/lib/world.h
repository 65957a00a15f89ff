#pragma once

/*
 * world - a domain layer on fakes, for component tests
 *
 * Purpose: a loop, a state directory, a store, a registry and the fakes; starting, stopping and
 *          "killing" it; waiting for conditions without sleeping.
 * Owns:    all of it.
 * Thread:  loop.
 *
 *	struct world *w = world_new(NULL);
 *	const char *id = world_create(w, NULL);
 *	WORLD_UNTIL(w, fake_hv_count(w->hv) == 1);
 *	world_free(w); (asserts that nothing leaked)
 */

#include "tests/lib/cm.h"

#include "base/clock.h"
#include "fake_guest.h"
#include "fake_hv.h"
#include "fake_images.h"
#include "sandbox/sandbox.h"

#define WORLD_PATIENCE_MS 30000

struct world {
	struct loop *loop;
	char *dir;
	char *run_dir;
	struct fake_hv *hv;
	struct fake_guest *guests;
	struct images *images;
	struct sandboxes_config config;
	struct quota_amounts limits;
	char account[ID_BYTES]; /* made with the first start */

	/* NULL between world_stop() and world_start(). */
	struct store *store;
	struct quotas *quotas;
	struct sandboxes *all;
};

/* Started and ready. @limits NULL: the default ones. */
struct world *world_new(const struct quota_amounts *limits);
/* As world_new(), not started: for a test that prepares something. */
struct world *world_new_stopped(const struct quota_amounts *limits);
/*
 * The same in a directory that outlives the process: what a world there left when it was killed,
 * domains too, is found by the next one. world_free() removes it.
 */
struct world *world_new_in(const char *dir);
/* A new one for it. */
#define WORLD_DIR_BYTES 64
const char *world_make_dir(char dir[WORLD_DIR_BYTES]);
void world_start(struct world *w);
/* world_start(), without waiting until it is ready. */
void world_start_only(struct world *w);
/* The daemon goes without a word; domains and rows stay. */
void world_stop(struct world *w);
/* Everything. Fails the test when a channel, a call or a charge is left. */
void world_free(struct world *w);

/* Has the registry look at domains and files again. */
void world_reconcile(struct world *w);

/* One turn of the loop, which lasts a few milliseconds at most. */
void world_turn(struct world *w);
/* Runs the loop until @cond is true; fails the test after WORLD_PATIENCE_MS. */
#define WORLD_UNTIL(w, cond)                                                                       \
	do {                                                                                       \
		uint64_t until_ = real_ms() + WORLD_PATIENCE_MS;                                   \
		while (!(cond)) {                                                                  \
			if (real_ms() > until_) {                                                  \
				fail_msg("waited in vain for: %s", #cond);                         \
			}                                                                          \
			world_turn(w);                                                             \
		}                                                                                  \
	} while (0)
/* Runs the loop for about that long: only to see that something does not happen. */
void world_run(struct world *w, unsigned ms);
/* Milliseconds that clock_test_advance() doesn't move. */
uint64_t real_ms(void);

/* ---- sandboxes ---- */

/* A spec that is accepted; @name may be NULL. */
struct sandbox_create_spec world_spec(const struct world *w, const char *name);
/* Creates, without waiting; the test fails when it is refused. Its id; valid while w lives. */
const char *world_create(struct world *w, const char *name);
const char *world_create_spec(struct world *w, const struct sandbox_create_spec *spec);
/* A copy that lives as long as the world. */
const char *world_keep_id(const char *id);
/* Creates and waits until it runs. */
const char *world_running(struct world *w, const char *name);
void world_destroy(struct world *w, const char *id);
/* NULL when it has ended. */
struct sandbox *world_find(struct world *w, const char *id);
/* From the store: "running". Valid until the next call. */
const char *world_state(struct world *w, const char *id);
const char *world_reason(struct world *w, const char *id);
bool world_is_state(struct world *w, const char *id, const char *state);
/* Nothing real is left of it: domain, files. */
bool world_is_clean(struct world *w, const char *id);
/* In a directory below that of the state: "sandboxes", "run". */
size_t world_count_entries(struct world *w, const char *name);
/* Sandboxes that the default account is charged for. */
uint64_t world_charged(struct world *w);

/* What a callback brought. */
struct world_answer {
	unsigned count;
	enum err_kind kind; /* NONE: fine */
	char msg[320];
	int exit_code;
	bool truncated;
	bool timed_out;
	char out[4096];
	size_t out_len;
	char err_out[256];
	size_t err_len;
	int64_t expires_at_ms;
};
void world_on_wait(void *arg, struct sandbox *sb, const struct err *err);
void world_on_exec(void *arg, const struct sandbox_exec_result *result, const struct err *err);
void world_on_extend(void *arg, struct sandbox *sb, const struct err *err);
void world_on_done(void *arg, const struct guest_status *status, const struct err *err);
/* Runs a command to its end. */
void world_exec(struct world *w, const char *id, const char *command, struct world_answer *ret);
/* Starts one; the test fails when it can't. */
struct sandbox_call *world_exec_start(
	struct world *w, const char *id, const char *command, struct world_answer *ret);
