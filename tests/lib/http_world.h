#pragma once

/*
 * http_world - a whole daemon's inside on fakes, behind a real socket
 *
 * Purpose: world.h, and on top of it keys of two accounts, operations and an HTTP server; clients
 *          that run in the same thread and turn the loop while they wait.
 * Owns:    all of it.
 * Thread:  loop.
 *
 *	struct http_world *h = http_world_new(NULL);
 *	struct answer *a = http_get(h, h->key, "/v1/sandboxes");
 *	assert_int_equal(a->status, 200);
 *	http_world_free(h); (asserts that nothing leaked)
 */

#include "tests/lib/world.h"

#include "auth/auth.h"
#include "base/json.h"
#include "http/server.h"
#include "ops/ops.h"

struct http_world {
	struct world *w;
	struct auth *auth;
	struct ops *ops;
	struct http_server *server;
	struct ops_config ops_config;
	struct http_config config;
	uint16_t port;
	char *admin_path;
	char account[ID_BYTES];
	char other_account[ID_BYTES];
	char key_id[ID_BYTES];
	char key[TOKEN_BYTES];
	char other_key[TOKEN_BYTES]; /* of the other account */
};

/* @config NULL: the defaults. */
struct http_world *http_world_new(const struct http_config *config);
void http_world_free(struct http_world *h);
/* As if the daemon had been killed and started again; on another port. */
void http_world_restart(struct http_world *h);

/* ---- clients ---- */

struct client {
	struct http_world *h;
	int fd;
	struct evbuffer *in; /* came and isn't part of an answer yet */
	bool is_eof;         /* the server closed, or reset */
};

struct client *client_new(struct http_world *h);
struct client *client_new_admin(struct http_world *h);
void client_free(struct client *c); /* closes */
/* Closes with a reset instead of an orderly end. */
void client_reset(struct client *c);
/* All of it; turns the loop while the socket is full. False: the server closed it meanwhile. */
bool client_send(struct client *c, const void *data, size_t len);
/* A request with the usual headers. @key, @type, @body NULL: without; @more: further header lines.
 */
void client_request(struct client *c, const char *method, const char *target, const char *key,
	const char *more, const char *type, const void *body, size_t len);
/* The header lines by which @row's conversation is asked for; NULL: it has none. The caller frees.
 */
char *http_handshake(const struct api_row *row);
/* Takes in what there is. */
void client_poll(struct client *c);

struct answer {
	int status;
	char *headers; /* with the status line */
	char *body;    /* with a terminator */
	size_t len;
	bool is_cut;       /* the connection ended before the answer did */
	json_object *json; /* NULL: the body is none */
};

/* The next answer; @is_head: it has no body. Fails the test when none comes in time. */
struct answer *client_answer(struct client *c, bool is_head);
void answer_free(struct answer *a);
/* Value of a header, or NULL; valid until the next call. */
const char *answer_header(const struct answer *a, const char *name);
/* Text at "a.b" in the JSON; numbers and booleans as text; NULL: null, or not there. */
const char *answer_text(const struct answer *a, const char *path);

/* ---- one request on a connection of its own; the answer lives until the world is freed ---- */

struct answer *http_request(struct http_world *h, const char *method, const char *target,
	const char *key, const char *more, const char *type, const void *body, size_t len);
struct answer *http_get(struct http_world *h, const char *key, const char *target);
struct answer *http_json(struct http_world *h, const char *method, const char *target,
	const char *key, const char *json);
/* On the admin socket. */
struct answer *http_admin(
	struct http_world *h, const char *method, const char *target, const char *json);

/* Id of a running sandbox of the first account; @name may be NULL. */
const char *http_running(struct http_world *h, const char *name);
