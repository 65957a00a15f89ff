#pragma once

/*
 * conn - connections
 *
 * Purpose: from the bytes of a connection to requests, one after the other, and what a connection
 *          may cost in time and memory.
 * Owns:    the link, the parsers of head and body, and the request that is being served.
 * Thread:  loop.
 * Uses:    base, loop, ops.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/err.h"
#include "http/body.h"
#include "http/head.h"
#include "http/link.h"

struct http_door;
struct http_request;
struct http_server;
struct http_websocket;

/*
 * HEAD    a request is awaited, or its head comes. Left when the head is over: to SERVE.
 * SERVE   .request is being served: its body comes, its call waits, its answer leaves. Left when
 *         the answer has left: to HEAD, to DROP where a little of the body is still to come, to
 *         LINGER where the connection ends; to SOCKET where the answer is a conversation.
 * DROP    the rest of a body that nobody wants comes: to HEAD.
 * SOCKET  .websocket has the bytes of both directions; .request holds its call: to LINGER.
 * LINGER  the last has been said. What still comes is thrown away, since closing on unread bytes
 *         resets the connection and the client might never see the answer: to GONE.
 * GONE    closed; the object goes with the loop's next turn.
 */
enum http_conn_state {
	HTTP_CONN_HEAD,
	HTTP_CONN_SERVE,
	HTTP_CONN_DROP,
	HTTP_CONN_SOCKET,
	HTTP_CONN_LINGER,
	HTTP_CONN_GONE,
};

struct http_conn {
	struct http_door *door;
	struct http_server *server;
	enum http_conn_state state;
	struct http_link link;
	struct http_head head;
	struct http_body body;
	struct http_request *request;     /* in SERVE and SOCKET */
	struct http_websocket *websocket; /* in SOCKET */
	bool closes;                      /* the connection ends with this answer */
	bool is_continue_owed;            /* the client waits for "100 Continue" with its body */
	bool is_turn_due;                 /* deferred */
	bool has_shut;                    /* LINGER: our half has been ended */
	bool is_held;                     /* the body's reader had no room lately */
	bool is_sending;                  /* bytes wait to be sent */

	struct event *timer;
	uint64_t armed_ms;    /* monotonic: when the timer fires; 0: it isn't set */
	uint64_t since_ms;    /* when this head, body or lingering began */
	uint64_t progress_ms; /* when something came or went that was waited for */
	uint64_t window_ms;   /* since when .window_bytes are counted */
	uint64_t window_bytes;
	uint64_t drained_bytes; /* DROP, LINGER */

	uint64_t held_bytes; /* of server.held_bytes: body, and answer that hasn't left yet */
	TAILQ_ENTRY(http_conn) entry; /* http_server.conns */
};
TAILQ_HEAD(http_conns, http_conn);

/* A connection that the door has accepted; takes @fd. @is_surplus: it is told so, and no more. */
void http_conn_new(struct http_door *door, int fd, bool is_surplus);

/* Goes on with whatever can go on, in the loop's next turn: for what runs within a call's. */
void http_conn_wake(struct http_conn *conn);
/* The same at once: for what comes from the loop. */
void http_conn_turn(struct http_conn *conn);

/* Counts @bytes on top. False: that is over the total, and nothing was counted. */
bool http_conn_charge(struct http_conn *conn, uint64_t bytes);

/* The answer begins: whether the connection can go on behind it is settled now, in .closes. With
 * much of a body unread it can't. @wants_body: what still comes of it is read along with the
 * answer. */
void http_conn_answers(struct http_conn *conn, bool wants_body);
/* The last has been said, or is in the link's buffer: the request and its conversation are over. */
void http_conn_linger(struct http_conn *conn);
/* Nothing of a request has come, and no answer is on its way. */
bool http_conn_is_idle(const struct http_conn *conn);
/* Closes here and now; the request, if there is one, is lost. */
void http_conn_cut(struct http_conn *conn);
/* The same within an answer, so that the client doesn't take what it has for the whole. */
void http_conn_break(struct http_conn *conn);
