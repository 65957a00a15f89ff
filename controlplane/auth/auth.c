#include "auth/auth.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rand.h"
#include "base/xalloc.h"
#include "store/store_key.h"

/*
 * Theory of operation
 *
 * A key is looked up by its hash in a unique index. What the index gives away by its timing are
 * bits of a hash of something that the caller sent; to use them he would have to find another text
 * with the same leading bits, and gains nothing when he does. The row's hash is compared as a whole
 * all the same, in constant time, so that the decision doesn't rest on the index.
 *
 * The time of last use is written at most once in TOUCH_MS for each key: the row that was read says
 * when that was. It is a courtesy; where it can't be written, requests go on and it is left alone
 * for a while, since each attempt at a locked database costs time.
 */

#define TOUCH_MS MS_PER_MINUTE

static_assert(STORE_KEY_HASH_BYTES == TOKEN_HASH_BYTES, "the store keeps whole hashes");
static_assert(STORE_KEY_HINT_BYTES == TOKEN_HINT_BYTES, "the store keeps whole hints");

struct auth {
	struct store *store;
	uint64_t touch_not_before_ms; /* monotonic */
};

const char *principal_log_name(const struct principal *principal)
{
	return principal->is_admin ? "admin" : log_dash(principal->key_id);
}

bool principal_may_log(
	const struct principal *principal, struct log_limit *limit, unsigned *ret_held_back)
{
	*ret_held_back = 0;
	return principal->is_admin || principal->key_id[0] ||
	       log_limit_allows(limit, clock_monotonic_ms(), ret_held_back);
}

struct auth *auth_new(struct store *store)
{
	struct auth *auth = xnew(struct auth);

	auth->store = store;
	return auth;
}

void auth_free(struct auth *auth)
{
	free(auth);
}

/* ---- the key in a request ---- */

static int refuse_key(struct err *err)
{
	return err_set(err, ERR_UNAUTHENTICATED, "the API key is not valid");
}

/* Copies the text between blanks. */
static int copy_token(const char *text, char out[TOKEN_BYTES], struct err *err)
{
	size_t len;

	text += strspn(text, " \t");
	len = strcspn(text, " \t");
	if (len != TOKEN_LENGTH || text[len + strspn(text + len, " \t")] != '\0') {
		return refuse_key(err);
	}
	memcpy(out, text, len);
	out[len] = '\0';
	return token_is_valid(out) ? 0 : refuse_key(err);
}

static int copy_bearer(const char *authorization, char out[TOKEN_BYTES], struct err *err)
{
	static const char scheme[] = "Bearer";
	size_t len = sizeof(scheme) - 1;

	authorization += strspn(authorization, " \t");
	if (strncasecmp(authorization, scheme, len) != 0 ||
		(authorization[len] != ' ' && authorization[len] != '\t')) {
		return err_set(err, ERR_UNAUTHENTICATED,
			"the Authorization header must be of the form: Bearer %s…", TOKEN_PREFIX);
	}
	return copy_token(authorization + len, out, err);
}

static int find_token(
	const char *authorization, const char *x_api_key, char out[TOKEN_BYTES], struct err *err)
{
	char other[TOKEN_BYTES];
	int r = 0;

	if (!authorization && !x_api_key) {
		return err_set(err, ERR_UNAUTHENTICATED,
			"an API key is needed: send Authorization: Bearer %s… or x-api-key: %s…",
			TOKEN_PREFIX, TOKEN_PREFIX);
	}
	if (!authorization) {
		return copy_token(x_api_key, out, err);
	}
	if (copy_bearer(authorization, out, err) < 0) {
		return -1;
	}
	if (x_api_key) {
		r = copy_token(x_api_key, other, err);
		if (r == 0 && !equal_constant_time(out, other, TOKEN_LENGTH)) {
			r = err_set(err, ERR_UNAUTHENTICATED,
				"Authorization and x-api-key hold different keys; send one");
		}
		explicit_bzero(other, sizeof(other));
	}
	return r;
}

static void note_use(struct auth *auth, const struct store_key *key)
{
	int64_t now = clock_wall_ms();
	struct err err = ERR_INIT;

	/* A time in the future comes from a clock that was set back. */
	if (key->last_used_at_ms <= now && now - key->last_used_at_ms < TOUCH_MS) {
		return;
	}
	if (clock_monotonic_ms() < auth->touch_not_before_ms) {
		return;
	}
	if (store_key_touch(auth->store, key->id, now, &err) < 0) {
		auth->touch_not_before_ms = clock_monotonic_ms() + TOUCH_MS;
	}
}

static int by_token(struct auth *auth, const char *token, struct principal *ret, struct err *err)
{
	uint8_t hash[TOKEN_HASH_BYTES];
	struct store_account account;
	struct store_key key;

	token_hash(token, hash);
	if (store_key_get_by_hash(auth->store, hash, &key, &account, err) < 0) {
		return err->kind == ERR_NOT_FOUND ? refuse_key(err) : -1;
	}
	if (!equal_constant_time(hash, key.hash, sizeof(hash)) || key.revoked_at_ms ||
		account.is_disabled) {
		return refuse_key(err);
	}
	note_use(auth, &key);

	*ret = (struct principal){.scopes = AUTH_SCOPE_USER};
	memcpy(ret->account_id, account.id, sizeof(account.id));
	memcpy(ret->account_name, account.name, sizeof(account.name));
	memcpy(ret->key_id, key.id, sizeof(key.id));
	return 0;
}

int auth_by_header(struct auth *auth, const char *authorization, const char *x_api_key,
	struct principal *ret, struct err *err)
{
	char token[TOKEN_BYTES];
	int r = find_token(authorization, x_api_key, token, err);

	if (r == 0) {
		r = by_token(auth, token, ret, err);
	}
	explicit_bzero(token, sizeof(token));
	return r;
}

/* ---- the admin socket ---- */

int auth_by_peer(struct auth *auth, int fd, struct principal *ret, struct err *err)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	(void)auth;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0) {
		return err_sys(err, errno, "ask for the peer of the admin socket");
	}
	/* A socket that isn't a unix one has uid -1 here. */
	if (peer.uid != 0 && peer.uid != geteuid()) {
		return err_set(err, ERR_FORBIDDEN,
			"the admin socket is for root and the user that paddockd runs as");
	}
	*ret = (struct principal){
		.scopes = AUTH_SCOPE_USER | AUTH_SCOPE_ADMIN,
		.is_admin = true,
	};
	return 0;
}

/* ---- keys ---- */

int auth_key_create(struct auth *auth, const char *account, const char *name,
	char ret_token[TOKEN_BYTES], struct store_key *ret, struct err *err)
{
	struct store_key key = {.created_at_ms = clock_wall_ms()};
	char token[TOKEN_BYTES];
	int r;

	if (*name && !name_is_valid(name)) {
		return err_set(err, ERR_INVALID,
			"a key's name has 1 to %d lower-case letters, digits and dashes, with none "
			"of the dashes at an end",
			NAME_MAX_BYTES);
	}
	if (strlen(account) >= sizeof(key.account)) {
		return err_set(err, ERR_NOT_FOUND, "there is no such account");
	}
	id_make(key.id, ID_KEY);
	memcpy(key.account, account, strlen(account) + 1);
	memcpy(key.name, name, strlen(name) + 1);
	token_mint(token);
	token_hash(token, key.hash);
	token_hint(token, key.hint);
	r = store_key_insert(auth->store, &key, err);
	if (r == 0) {
		memcpy(ret_token, token, sizeof(token));
		*ret = key;
	}
	explicit_bzero(token, sizeof(token));
	return r;
}

int auth_key_revoke(struct auth *auth, const char *key_id, struct err *err)
{
	return store_key_revoke(auth->store, key_id, clock_wall_ms(), err);
}
