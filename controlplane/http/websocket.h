#pragma once

/*
 * websocket - a conversation as the answer to a request
 *
 * Purpose: the handshake of RFC 6455, and what stands between an operation's hooks (ops/socket.h)
 *          and the connection that carries its messages.
 * Owns:    the conversation, from its beginning to the connection's LINGER.
 * Thread:  loop.
 * Uses:    base, ops, frames.h, request.h, libcrypto.
 */

#include "http/request.h"

struct http_websocket;
struct op_socket_hooks;

/* A handshake that offers @subprotocol. -1: @err, and 426 in *ret_status where it is none at all.
 */
int http_websocket_check(
	const struct http_head *head, const char *subprotocol, int *ret_status, struct err *err);
#define HTTP_WEBSOCKET_ACCEPT_BYTES 29
/* What a handshake with @key is answered with. */
void http_websocket_accept(const char *key, char ret[HTTP_WEBSOCKET_ACCEPT_BYTES]);

/* The call of @request agreed to converse. */
void http_websocket_begin(struct http_request *request, const struct op_socket_hooks *hooks);
/* The daemon stops: says goodbye. */
void http_websocket_stop(struct http_websocket *websocket);

/* ---- for conn.c ---- */

/* As the steps there: true when there may be more to do. */
bool http_websocket_step(struct http_websocket *websocket);
/* When something has to be heard of the client; UINT64_MAX: never. */
uint64_t http_websocket_deadline(const struct http_websocket *websocket);
/* That time has come. */
void http_websocket_expire(struct http_websocket *websocket);
void http_websocket_free(struct http_websocket *websocket); /* NULL is fine */
