#pragma once

/*
 * store_stmt - statements
 *
 * Purpose: prepared once, bound by name, stepped; inside store/ only.
 * Owns:    the cache of prepared statements, which is the store's.
 * Thread:  loop.
 * Errors:  as store.h: this is the one place that translates sqlite's.
 * Uses:    base, sqlite3.
 *
 *	_cleanup_stmt_ struct stmt stmt = stmt_make(store, "SELECT … WHERE id = :id");
 *
 *	stmt_bind_text(&stmt, ":id", id);
 *	if (stmt_find(&stmt, "no such …", err) < 0) {
 *		return -1;
 *	}
 *	… stmt_int(&stmt, 0) …
 *
 * A failure to prepare or bind shows when the statement is stepped.
 */

#include <sqlite3.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/cleanup.h"
#include "base/err.h"

struct store;

struct stmt {
	struct store *store;
	sqlite3_stmt *handle; /* the cache's */
	const char *sql;
	int rc; /* the first failure */
};

/* @sql is a literal: the cache knows it by its address. */
struct stmt stmt_make(struct store *store, const char *sql);
/* Back into the cache. */
void stmt_fini(struct stmt *stmt);
#define _cleanup_stmt_ _cleanup_(stmt_fini)

/* ---- binding; what is bound must outlive the statement ---- */

void stmt_bind_int(struct stmt *stmt, const char *name, int64_t value);
void stmt_bind_int_or_null(struct stmt *stmt, const char *name, int64_t value); /* 0: NULL */
void stmt_bind_text(struct stmt *stmt, const char *name, const char *value);    /* NULL: NULL */
void stmt_bind_blob(struct stmt *stmt, const char *name, const void *value, size_t len);

/* ---- running ---- */

/* 1: a row, 0: no more, -1: failed. */
int stmt_step(struct stmt *stmt, struct err *err);
/* One that gives no rows. */
int stmt_run(struct stmt *stmt, struct err *err);
/* The first row; ERR_NOT_FOUND with @missing where there is none. */
int stmt_find(struct stmt *stmt, const char *missing, struct err *err);
/* One that changes rows; ERR_NOT_FOUND with @missing where it changed none. */
int stmt_change(struct stmt *stmt, const char *missing, struct err *err);

/* Rows that the last one changed. */
int stmt_changes(const struct stmt *stmt);

/* ---- the row ---- */

int64_t stmt_int(struct stmt *stmt, int column);                 /* NULL: 0 */
char *stmt_text(struct stmt *stmt, int column);                  /* a copy; NULL: NULL */
void *stmt_blob(struct stmt *stmt, int column, size_t *ret_len); /* a copy; NULL: NULL, 0 */
/* Not a copy: until the next step; NULL: NULL. */
const char *stmt_peek_text(struct stmt *stmt, int column, size_t *ret_len);
/* Into an array. What doesn't fit reads as empty (zeros): we never write such a thing. */
void stmt_text_into(struct stmt *stmt, int column, char *out, size_t size);
void stmt_blob_into(struct stmt *stmt, int column, void *out, size_t len);

/* ---- for store.c and store_migrate.c ---- */

/* Translates @rc; @what is being done. Returns -1. */
int store_fail(struct store *store, int rc, const char *what, struct err *err);
/* What a caller is told of a damaged file; returns -1. */
int store_refuse_damaged(struct err *err);
/* Runs a script of constant SQL. */
int store_exec(struct store *store, const char *sql, struct err *err);
