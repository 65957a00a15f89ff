#pragma once

/*
 * exec_records - the records of a sandbox's commands
 *
 * Purpose: which commands run and how the last ones ended, for who asks after the sandbox, the
 *          connection that waited, or the daemon is gone.
 * Owns:    records of commands that run and what hasn't been written yet; the rest is in
 *          store_exec.h. Waits for a command's end.
 * Thread:  loop.
 * Errors:  as store.h.
 * Uses:    sandbox_priv.h.
 */

#include "sandbox/sandbox_priv.h"

struct exec_record {
	TAILQ_ENTRY(exec_record) link; /* sandbox.records, in the order they began */
	struct sandbox *sb;
	struct store_exec row;
	uint64_t end_no; /* of all that ended, whatever the clock said */
	bool is_stored;  /* the row is there … */
	bool is_due;     /* … but isn't so, or there is none yet */
};

void exec_records_init(struct sandboxes *all);
void exec_records_fini(struct sandboxes *all);
/* What its rows say is running, from before the daemon's restart. */
int exec_records_load(struct sandbox *sb, struct err *err);
/* Of one sandbox: what its rows say is running. Waits are told, nothing is written. */
void exec_records_free(struct sandbox *sb);

/*
 * A command begins. The record has the first bytes of @command, or of @args joined by blanks. Its
 * row is written within a second, unless it has ended by then and others push it out.
 */
struct exec_record *exec_record_begin(struct sandbox *sb, const char *id, char *const *args,
	const char *command, bool is_background);
/* Writes it now. What fails is tried again like any other. */
int exec_record_write(struct exec_record *record, struct err *err);
/*
 * It ended: takes from @end what tells how (state, error, result, tails). Whoever waits is told.
 * The record is gone when this returns.
 */
void exec_record_end(struct exec_record *record, struct store_exec *end);
/* The same for one without a result. */
void exec_record_fail(struct exec_record *record, enum store_exec_state state, const char *why);
/* It never was: nothing of it was written. */
void exec_record_drop(struct exec_record *record);

/* One that runs; NULL: none. */
struct exec_record *exec_record_find(const struct sandbox *sb, const char *id);

/*
 * Writes what is due, within the caller's transaction; exec_records_written() once that is
 * committed. Rows that went for it are added to *gone.
 */
int exec_records_write(struct sandbox *sb, struct store_exec_list *gone, struct err *err);
void exec_records_written(struct sandbox *sb, const struct store_exec_list *gone);
