#pragma once

/*
 * strays_world - what tests of strays share
 *
 * Purpose: a world that looks as paddockd --strays does, asking it, and things to be found in it.
 * Owns:    nothing.
 * Thread:  loop.
 */

#include "sandbox/strays.h"
#include "tests/lib/world.h"

#define STRAYS_GRACE_MS 60000

struct strays_found {
	unsigned count; /* of answers */
	enum err_kind kind;
	struct stray strays[32];
	size_t stray_count;
	size_t young;
};

/* For strays_find(); @arg is a strays_found. */
void strays_on_found(void *arg, const struct strays_report *report, const struct err *err);
/* Asks, and waits for the answer. */
struct strays_found strays_ask(struct world *w, const struct strays_request *request);
/* The same, which succeeds: the list alone, and with removal. */
struct strays_found strays_look(struct world *w);
struct strays_found strays_reap(struct world *w);
/* NULL: not among them. */
const struct stray *strays_pick(
	const struct strays_found *found, enum stray_kind kind, const char *what);

/* A directory below the world's, as new by the clock of the test, which isn't the file system's. */
void strays_make_dir(struct world *w, const char *name);
bool strays_has_path(struct world *w, const char *name);

/* Nothing happens by itself in it, as in paddockd --strays. Not started. */
struct world *strays_world(void);
void strays_pass_grace(void);
/* What a daemon left: a sandbox that runs, and then nobody. @spec NULL: any. Its id. */
const char *strays_leave_running(struct world *w, const struct sandbox_create_spec *spec);
