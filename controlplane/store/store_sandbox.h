#pragma once

/*
 * store_sandbox - the table of sandboxes
 *
 * Purpose: one row for each sandbox that was ever asked for. It says what was asked, what it is
 *          now and why it ended.
 * Owns:    nothing; rows are copies.
 * Thread:  loop.
 * Errors:  as store.h.
 * Uses:    base, store.
 *
 * A row is *live* until it has ended_at_ms; only among live rows of an account is a name unique. It
 * owns its uid until a change releases that, which may be later than its end: not before everything
 * that belongs to the uid is gone. States, reasons, sizes and networks are the domain's words; here
 * they are text.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "base/id.h"

struct store;

/* Times are wall-clock milliseconds, 0: not (yet). Strings are the row's own. */
struct store_sandbox {
	char id[ID_BYTES];
	char account[ID_BYTES];
	char *name; /* NULL: none */
	char *state;
	char *reason; /* NULL: none; why it ended or failed */
	char *task;   /* what is being done to it beyond its state, NULL: nothing */

	char *size; /* label; NULL when the figures were given one by one */
	unsigned vcpus;
	unsigned memory_mb;
	unsigned disk_gb;
	char *image;
	char *image_version;
	char *network;
	bool is_temporary;

	char *env; /* "K=V" entries, each with its NUL; NULL: none */
	size_t env_len;
	char *metadata; /* text of a JSON object; NULL: none */

	int64_t created_at_ms;
	int64_t ready_at_ms;
	int64_t expires_at_ms; /* 0: never */
	int64_t ended_at_ms;

	char *idempotency_key; /* NULL: none; unique in the account, ended rows included */
	char *request_hash;    /* of what was asked with the key; NULL without one */

	uid_t uid; /* 0: owns none (any more) */
	pid_t pid; /* 0: no process; with pid_start an identity */
	uint64_t pid_start;
};

void store_sandbox_free(struct store_sandbox *row); /* NULL is fine */
DEFINE_CLEANUP(struct store_sandbox *, store_sandbox_free)
#define _cleanup_store_sandbox_ _cleanup_(store_sandbox_free_p)

/* ERR_CONFLICT says which of id, name, idempotency key or uid is taken. */
int store_sandbox_insert(struct store *store, const struct store_sandbox *row, struct err *err);

/* ---- one row: the caller frees it; ERR_NOT_FOUND ---- */

struct store_sandbox *store_sandbox_get(struct store *store, const char *id, struct err *err);
/* The live one of that name. */
struct store_sandbox *store_sandbox_get_by_name(
	struct store *store, const char *account, const char *name, struct err *err);
/* Live or ended. */
struct store_sandbox *store_sandbox_get_by_idempotency(
	struct store *store, const char *account, const char *idempotency_key, struct err *err);

/* ---- changes: ERR_NOT_FOUND ---- */

/* A step in a sandbox's life, written at once. */
struct store_sandbox_change {
	const char *state;
	const char *reason;  /* NULL: leave it; "": none any more */
	const char *task;    /* written as it is, NULL too */
	int64_t ready_at_ms; /* 0: leave it */
	int64_t ended_at_ms; /* 0: leave it; a row that ended never becomes live again */
	pid_t pid;           /* written as it is, 0 too */
	uint64_t pid_start;
	bool releases_uid;
};
int store_sandbox_set_state(struct store *store, const char *id,
	const struct store_sandbox_change *change, struct err *err);
/* Its idempotency key may be used again. Fine where it has none. */
int store_sandbox_release_key(struct store *store, const char *id, struct err *err);
/* ERR_ENDED when the row ended. */
int store_sandbox_set_expiry(
	struct store *store, const char *id, int64_t expires_at_ms, struct err *err);

/* ---- many rows ---- */

struct store_sandbox_list {
	struct store_sandbox **rows;
	size_t count;
	bool has_more; /* there are rows after that position */
	/* The last row that was looked at. */
	char last_id[ID_BYTES];
	int64_t last_created_at_ms;
};
void store_sandbox_list_fini(struct store_sandbox_list *list);
#define _cleanup_store_sandbox_list_ _cleanup_(store_sandbox_list_fini)

#define STORE_PAGE_MAX 1000

struct store_sandbox_query {
	const char *account;  /* NULL: all */
	const char *state;    /* NULL: any */
	const char *metadata; /* JSON object: rows that hold each of its members; NULL: any */
	bool is_live_only;
	/* Page after this row (older ones); NULL: from the newest. */
	const char *after_id;
	int64_t after_created_at_ms;
	unsigned limit; /* 1 … STORE_PAGE_MAX */
};
/*
 * Newest first, by (created_at_ms, id). Stable: rows made meanwhile don't shift the pages. With
 * @metadata a page may end before it is full, even empty, and still have more: only so much is
 * looked through in one go.
 */
int store_sandbox_list(struct store *store, const struct store_sandbox_query *query,
	struct store_sandbox_list *ret, struct err *err);
/* For the start: all that are live, and those that ended and still own a uid. Oldest first. */
int store_sandbox_list_owning(struct store *store, struct store_sandbox_list *ret, struct err *err);

/* The lowest uid in [first, first + count) that no row owns. ERR_UNAVAILABLE: all are in use. */
int store_sandbox_find_uid(
	struct store *store, uid_t first, unsigned count, uid_t *ret, struct err *err);

/*
 * Deletes at most @max rows that ended before @ended_before_ms and own nothing: the records would
 * grow without bound otherwise. *ret_count: how many went.
 */
int store_sandbox_prune(struct store *store, int64_t ended_before_ms, unsigned max,
	unsigned *ret_count, struct err *err);
/* The same for the oldest of those that @account has beyond @keep. */
int store_sandbox_prune_account(struct store *store, const char *account, unsigned keep,
	unsigned max, unsigned *ret_count, struct err *err);
