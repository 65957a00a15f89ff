#pragma once

/*
 * env - the environment of commands
 *
 * Purpose: base, then what CONFIGURE gave, then what the call gives; a later value replaces an
 *          earlier one of the same name.
 * Owns:    the configured variables, at most PROTO_ENV_MAX and ENV_CONFIGURED_MAX_BYTES.
 * Thread:  the agent has one.
 * Uses:    options.h, proto/limits.h.
 */

#include "proto/limits.h"
#include "src/util.h"

#define ENV_CONFIGURED_MAX_BYTES (256u * 1024u)
#define ENV_BASE_MAX             16u
/* TERM, where nobody says otherwise. */
#define ENV_NO_TERMINAL "dumb"

struct env {
	size_t count;
	char *vars[ENV_BASE_MAX + 2 * PROTO_ENV_MAX + 1]; /* NULL-terminated */
};

void env_init(void);

/* NAME=VALUE, where NAME isn't empty and nothing is NUL. */
bool env_is_valid(const char *var, size_t len);

void env_reset_configured(void);
/* False when a limit is reached. Copies. */
bool env_configure(const char *var, size_t len);

/* From now on programs are pointed to @bundle (all CAs) and @extra (ours alone). */
void env_set_ca(const char *bundle, const char *extra);

/* Fills @env with base and configured variables; it borrows them. */
void env_begin(struct env *env, bool is_root);
/* Borrows @var. False when there are too many. */
bool env_put(struct env *env, char *var);
/* Value of @name; NULL when it isn't set. */
const char *env_get(const struct env *env, const char *name);

/* The image's shell. */
const char *env_shell(void);
