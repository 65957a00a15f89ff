#pragma once

/*
 * ws - a WebSocket to paddockd
 *
 * Purpose: turns a row of the operation table into a conversation of messages: libcurl connects
 *          (TCP, TLS, a proxy, the admin socket), this shakes hands, libwslay frames.
 * Owns:    a connection of its own, and what is queued to be sent.
 * Thread:  the one that made it. Opening blocks; afterwards the caller polls.
 * Errors:  ERR_UNAVAILABLE: the service can't be reached, broke off, fell silent or doesn't speak
 *          as it must; the peer said goodbye (the message has its reason). ERR_CANCELLED: the
 *          caller's function gave up. What the service refuses keeps its kind and message.
 * Uses:    base, api, libcurl, libwslay, libcrypto.
 *
 * Messages of others are believed only after the handshake proved that the peer speaks WebSocket
 * and the row's subprotocol. A peer from which nothing came for WS_SILENCE_MS, though it was
 * pinged, has gone.
 */

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "client/rest_client.h"

/* A longer one ends the conversation. */
#define WS_MESSAGE_MAX_BYTES ((size_t)1024 * 1024)
#define WS_PING_MS           20000
#define WS_SILENCE_MS        60000

struct ws;

/* A whole message; text is UTF-8, without a terminator. 0, or -1 to give up. */
typedef int (*ws_message_fn)(void *arg, bool is_text, const char *data, size_t len);

/* Row, id, exec_id and query of @request; @ret is filled as rest_call() does. */
struct ws *ws_open(struct rest_client *client, const struct rest_request *request,
	ws_message_fn on_message, void *arg, struct rest_response *ret, struct err *err);
void ws_free(struct ws *ws);
DEFINE_CLEANUP(struct ws *, ws_free)

/* What to poll for before the next ws_turn(), and for how long at most. */
void ws_poll(const struct ws *ws, struct pollfd *ret, int *timeout_ms);
/* Receives and sends what is possible now. */
int ws_turn(struct ws *ws, struct err *err);

/* Queues a message. */
void ws_send(struct ws *ws, bool is_text, const void *data, size_t len);
/* Bytes that are still queued, with what messages cost beside their content. */
size_t ws_queued(const struct ws *ws);
/* Says goodbye and waits for the answer, or until @timeout_ms are over; messages that come
 * meanwhile are dropped. */
void ws_close(struct ws *ws, int timeout_ms);
