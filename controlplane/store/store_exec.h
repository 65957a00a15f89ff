#pragma once

/*
 * store_exec - the table of commands
 *
 * Purpose: a sandbox's commands that run and the last ones that ended: how, and the tails of what
 *          they said. Goes with the sandbox's row.
 * Owns:    nothing; rows are copies.
 * Thread:  loop.
 * Errors:  as store.h.
 * Uses:    base, store.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "base/id.h"

struct store;

#define STORE_EXEC_STATES(X)                                                                       \
	X(RUNNING, "running")                                                                      \
	X(EXITED, "exited") /* it ran to its end, which is known */                                \
	X(LOST, "lost")     /* how it ended isn't known */                                         \
	X(FAILED, "failed") /* it never began, or was called off */

enum store_exec_state {
#define X(id, name) STORE_EXEC_##id,
	STORE_EXEC_STATES(X)
#undef X
		STORE_EXEC_STATE_MAX
};

const char *store_exec_state_name(enum store_exec_state state);

struct store_tail {
	uint64_t total; /* bytes that came; @bytes holds the last @len of them */
	char *bytes;
	size_t len;
};

struct store_exec {
	char id[ID_BYTES]; /* ex_… */
	enum store_exec_state state;
	bool is_background;
	bool has_tty;
	char *command;         /* the first bytes of it; NULL: not known */
	int64_t started_at_ms; /* 0: not known */
	int64_t ended_at_ms;   /* 0: it runs */
	char *error;           /* LOST and FAILED: why; else NULL */
	int exit_code;         /* EXITED, as is what follows */
	int signal;            /* 0: none */
	bool timed_out;
	bool truncated;
	int64_t duration_ms;
	struct store_tail out;
	struct store_tail err_out;
	/* How the tails follow each other, as in migrations/0004-exec.sql; NULL: not known. */
	unsigned char *runs;
	size_t runs_len;
};

void store_exec_copy(const struct store_exec *row, struct store_exec *ret);
void store_exec_fini(struct store_exec *row);
#define _cleanup_store_exec_ _cleanup_(store_exec_fini)

/* A new row, the newest of its sandbox, or what has become of the one with that id. */
int store_exec_put(
	struct store *store, const char *sandbox_id, const struct store_exec *row, struct err *err);

struct store_exec_list {
	struct store_exec *rows;
	size_t count;
};
void store_exec_list_fini(struct store_exec_list *list);
#define _cleanup_store_exec_list_ _cleanup_(store_exec_list_fini)

/*
 * Of the foreground or of the background ones all but the @keep that ended last go; running ones
 * stay. Those that went are added to *gone, by id and is_background alone.
 */
int store_exec_prune(struct store *store, const char *sandbox_id, bool is_background, unsigned keep,
	struct store_exec_list *gone, struct err *err);

/* ERR_NOT_FOUND. */
int store_exec_get(struct store *store, const char *sandbox_id, const char *id,
	struct store_exec *ret, struct err *err);
/* Newest first. Empty where there is none, or no such sandbox. */
int store_exec_list(
	struct store *store, const char *sandbox_id, struct store_exec_list *ret, struct err *err);
/* Only those that run. */
int store_exec_list_running(
	struct store *store, const char *sandbox_id, struct store_exec_list *ret, struct err *err);
