#pragma once

/*
 * server - the HTTP server
 *
 * Purpose: listeners on TCP and on the admin socket, limits, and an orderly stop. Requests go
 *          through request.c (life of a request) and rest.c (what it means).
 * Owns:    the listeners, every connection.
 * Thread:  loop.
 * Errors:  ERR_INVALID: an address that can't be used; ERR_CONFLICT: it is in use; ERR_INTERNAL.
 * Uses:    base, loop, api, auth, ops, libevent_core.
 *
 * On the admin socket root and the daemon's own user may do everything, without a key; anybody else
 * is refused. On TCP a key is needed and admin routes don't exist.
 */

#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"

struct auth;
struct http_server;
struct loop;
struct ops;

/* 0 takes the default. Strings are borrowed. */
struct http_config {
	uint64_t body_bytes;          /* of one JSON body: 16 MiB, and never more than that */
	uint64_t upload_bytes;        /* of one raw body: no limit */
	uint64_t bodies_total_bytes;  /* that all requests hold together: 256 MiB */
	size_t header_bytes;          /* of one request: 32 KiB */
	unsigned connections_max;     /* through each of the two kinds of listeners: 1024 */
	unsigned idle_timeout_s;      /* between requests, and within one that stops coming: 60 */
	unsigned head_timeout_s;      /* for all of a request's head: 20 */
	unsigned stall_timeout_s;     /* for a client that doesn't read a stream: 900 */
	uint64_t out_high_bytes;      /* a download waits while so much is unsent: 1 MiB */
	char *const *allowed_hosts;   /* besides localhost, 127.0.0.1 and [::1]; NULL: none */
	char *const *allowed_origins; /* whole origins, "https://tools.example"; NULL: none */
};

/* Borrows @loop, @ops and @auth. */
struct http_server *http_server_new(
	struct loop *loop, struct ops *ops, struct auth *auth, const struct http_config *config);
/* Cuts what is still there. */
void http_server_free(struct http_server *server); /* NULL is fine */
DEFINE_CLEANUP(struct http_server *, http_server_free)

/* @address is numeric. @port 0 takes a free one; *ret_port (may be NULL) is the port it got. */
int http_server_listen(struct http_server *server, const char *address, uint16_t port,
	uint16_t *ret_port, struct err *err);
/* Unix socket, 0600; the peer's credentials decide. A socket that nobody serves is replaced;
 * anything else at @path stays, and is ERR_CONFLICT. The path is removed again at the end. */
int http_server_listen_admin(struct http_server *server, const char *path, struct err *err);

/* No new connections; those that are open end with the answer that they wait for. */
void http_server_stop(struct http_server *server);
/* Requests that still wait for their answer, or are sending it. */
size_t http_server_pending(const struct http_server *server);
