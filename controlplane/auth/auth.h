#pragma once

/*
 * auth - who is calling
 *
 * Purpose: from a header or a socket's peer to a principal; makes and revokes keys.
 * Owns:    nothing but when each key's use was last written down.
 * Thread:  loop.
 * Errors:  ERR_UNAUTHENTICATED: no key, one that is unknown or revoked, or a disabled account, all
 *          alike to the caller. ERR_FORBIDDEN: a peer who is no administrator. Else as store.h.
 * Uses:    base, store, libcrypto.
 *
 * Nothing is cached: each request looks its key up in the store by the indexed hash (microseconds),
 * so a key stops with the statement that revokes it, whoever ran it.
 */

#include <stdbool.h>
#include <stdint.h>

#include "auth/token.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/id.h"
#include "base/log.h"

struct store;
struct store_key;

enum auth_scope {
	AUTH_SCOPE_USER = 1 << 0,  /* the account's own sandboxes */
	AUTH_SCOPE_ADMIN = 1 << 1, /* accounts, keys, images, every sandbox */
};

/* A value: copied into what outlives the request. */
struct principal {
	char account_id[ID_BYTES]; /* "" for an administrator */
	char account_name[NAME_MAX_BYTES + 1];
	char key_id[ID_BYTES]; /* "" for an administrator */
	unsigned scopes;       /* of enum auth_scope */
	bool is_admin;         /* came through the admin socket */
};

/* For the field `by` of a log line: "admin", the key's id, or "-". */
const char *principal_log_name(const struct principal *principal);
/*
 * Whether a line about what it asked for may be written: who needs no key could write lines without
 * end. *ret_held_back: lines that weren't since the last one.
 */
bool principal_may_log(
	const struct principal *principal, struct log_limit *limit, unsigned *ret_held_back);

struct auth;

/* Borrows @store. */
struct auth *auth_new(struct store *store);
void auth_free(struct auth *auth); /* NULL is fine */
DEFINE_CLEANUP(struct auth *, auth_free)

/*
 * Values of the headers `Authorization: Bearer KEY` and `x-api-key: KEY`, NULL where absent. Both
 * given must be equal.
 */
int auth_by_header(struct auth *auth, const char *authorization, const char *x_api_key,
	struct principal *ret, struct err *err);
/* Peer of a unix socket: root and the user that paddockd runs as are administrators. */
int auth_by_peer(struct auth *auth, int fd, struct principal *ret, struct err *err);

/*
 * Makes a key for @account (an id). @name is a label: "" or name_is_valid(). The text of the key
 * goes to ret_token and is nowhere else from then on: hand it out and wipe it.
 * ERR_NOT_FOUND: no such account.
 */
int auth_key_create(struct auth *auth, const char *account, const char *name,
	char ret_token[TOKEN_BYTES], struct store_key *ret, struct err *err);
/* From the next request on it is refused. Again: fine. ERR_NOT_FOUND. */
int auth_key_revoke(struct auth *auth, const char *key_id, struct err *err);
