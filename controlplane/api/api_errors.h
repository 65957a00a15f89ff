#pragma once

/*
 * api_errors - what a failure is called outside
 *
 * Purpose: the only map between kinds of errors, their names on the wire, HTTP statuses,
 *          when to try again, and the CLI's exit codes.
 * Owns:    nothing.
 * Thread:  any.
 * Uses:    base.
 */

#include <stdbool.h>

#include "base/err.h"

struct api_error {
	const char *type;       /* "not_found" */
	int status;             /* HTTP */
	int exit_code;          /* of paddockctl */
	unsigned retry_after_s; /* 0: waiting doesn't help */
	const char *doc;
};

/* ERR_GUEST alone says little: use api_error_of_guest() where the guest's word is known. */
const struct api_error *api_error_of(enum err_kind kind);

/*
 * What the guest's refusal @code ("is_directory", the names of msg_status_name()) is outside. An
 * unknown one is ERR_INTERNAL's. The code itself goes out beside the type.
 */
enum err_kind api_error_of_guest(const char *code);

/* The kind that @type stands for; ERR_INTERNAL for one that isn't known. For clients. */
enum err_kind api_error_parse(const char *type);

/* X(code, kind, doc) for docs/api.md. */
#define API_GUEST_CODES(X)                                                                         \
	X("invalid", INVALID, "the guest could not make sense of the request")                     \
	X("not_found", NOT_FOUND, "no such file or directory")                                     \
	X("permission", FORBIDDEN, "the sandbox's user may not do that")                           \
	X("exists", CONFLICT, "something is there already")                                        \
	X("is_directory", INVALID, "a directory where a file was wanted")                          \
	X("not_directory", INVALID, "something in the path is no directory")                       \
	X("no_space", CONFLICT, "the sandbox's disk is full")                                      \
	X("read_only", FORBIDDEN, "a read-only file system")                                       \
	X("name_too_long", INVALID, "a name or the path is too long")                              \
	X("loop", INVALID, "too many symbolic links")                                              \
	X("not_regular", INVALID, "a device, fifo or socket where a file was wanted")              \
	X("busy", UNAVAILABLE, "the guest is out of processes, memory or streams; try again")      \
	X("unsupported", UNAVAILABLE, "the image's agent is too old for this")                     \
	X("cancelled", CANCELLED, "the call was cancelled")                                        \
	X("io", UNAVAILABLE, "the guest's disk failed")                                            \
	X("internal", UNAVAILABLE, "the agent failed")

struct api_guest_code {
	const char *code;
	enum err_kind kind;
	const char *doc;
};
/* The last has no code. */
extern const struct api_guest_code api_guest_codes[];

#define API_EXIT_OK       0
#define API_EXIT_INTERNAL 125 /* as with other runners of commands: not the command's own */
