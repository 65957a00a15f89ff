#pragma once

/*
 * err - the error value
 *
 * Purpose: one way to fail, from a system call up to the HTTP answer.
 * Owns:    nothing: a value in the caller's frame, no allocation, so it works out of memory and in
 *          worker threads.
 * Thread:  any.
 *
 * Fallible functions return 0 or -1 (or a pointer, NULL on failure) and take struct err * last; it
 * may not be NULL. The kind is the contract: callers branch on it. The message is for people: for
 * every kind but ERR_INTERNAL it is written for the caller of the API and holds no path and no
 * secret; that of ERR_INTERNAL goes to the log alone.
 */

#include "base/macros.h"

/* X(NAME, "name"). api/api_errors.c maps them to the types and statuses of the API. */
#define ERR_KINDS(X)                                                                               \
	X(NONE, "none")                                                                            \
	X(INVALID, "invalid")                 /* the request is wrong */                           \
	X(UNAUTHENTICATED, "unauthenticated") /* no or a bad key */                                \
	X(FORBIDDEN, "forbidden")             /* a good key that may not do this */                \
	X(NOT_FOUND, "not_found")                                                                  \
	X(CONFLICT, "conflict")                                                                    \
	X(ENDED, "ended") /* the sandbox is over */                                                \
	X(TOO_LARGE, "too_large")                                                                  \
	X(QUOTA, "quota") /* the account's limit */                                                \
	X(RATE, "rate")   /* too fast: try again later */                                          \
	X(CREDIT, "credit")                                                                        \
	X(TIMEOUT, "timeout")                                                                      \
	X(CANCELLED, "cancelled")                                                                  \
	X(UNAVAILABLE, "unavailable") /* not now: a part is down or full */                        \
	X(GUEST, "guest")             /* the guest says no (file errors and the like) */           \
	X(INTERNAL, "internal")       /* ours; the text is for the log */

enum err_kind {
#define X(id, name) ERR_##id,
	ERR_KINDS(X)
#undef X
		ERR_KIND_MAX
};

struct err {
	enum err_kind kind;
	int sys;          /* errno or a library's code, 0 if none; logged, never sent */
	const char *file; /* where it was raised */
	int line;
	char msg[320];
};

#define ERR_INIT ((struct err){.kind = ERR_NONE})

/* Each returns -1, so that `return err_set(…)` reads well. */
#define err_set(err, kind, ...) err_set_at(err, kind, 0, __FILE__, __LINE__, __VA_ARGS__)
/* ERR_INTERNAL with the text of @sys (an errno) appended. */
#define err_sys(err, sys, ...) err_sys_at(err, sys, __FILE__, __LINE__, __VA_ARGS__)
/* Puts context before the message, keeps the kind. */
#define err_wrap(err, ...) err_wrap_at(err, __VA_ARGS__)

int err_set_at(struct err *err, enum err_kind kind, int sys, const char *file, int line,
	const char *fmt, ...) _printf_(6, 7);
int err_sys_at(struct err *err, int sys, const char *file, int line, const char *fmt, ...)
	_printf_(5, 6);
int err_wrap_at(struct err *err, const char *fmt, ...) _printf_(2, 3);

const char *err_kind_name(enum err_kind kind);
