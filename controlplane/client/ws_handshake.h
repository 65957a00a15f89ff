#pragma once

/*
 * ws_handshake - the opening of a WebSocket, as text (RFC 6455, section 4)
 *
 * Purpose: writes the request and judges the answer's head; knows no connection.
 * Thread:  any.
 * Errors:  ERR_UNAVAILABLE: an answer that is no agreement.
 * Uses:    base, libcrypto.
 */

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "client/buffer.h"

#define WS_KEY_BYTES    (24 + 1)
#define WS_ACCEPT_BYTES (28 + 1)

/* A fresh Sec-WebSocket-Key. */
void ws_make_key(char out[WS_KEY_BYTES]);
/* The Sec-WebSocket-Accept that belongs to it. */
void ws_make_accept(const char *key, char out[WS_ACCEPT_BYTES]);

struct ws_offer {
	const char *target; /* path and query */
	const char *host;   /* with its port */
	const char *key;
	const char *protocol;
	const char *auth_header; /* a whole line; NULL: none */
};
void ws_write_request(struct buffer *to, const struct ws_offer *offer);

struct ws_head {
	int status;
	bool has_length;
	size_t length; /* Content-Length */
	char request_id[32];
};

/* Bytes of the head that @data begins with, its empty line included; 0: not all of it is there. */
size_t ws_head_bytes(const char *data, size_t len);
/* Reads a head of @len bytes; where its status is 101, checks that it agrees to @offer. */
int ws_read_head(const char *head, size_t len, const struct ws_offer *offer, struct ws_head *ret,
	struct err *err);
