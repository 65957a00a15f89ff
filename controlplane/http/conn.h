#pragma once

/*
 * conn - connections
 *
 * Purpose: an object for each connection of evhttp, which has none to hang things on; counts what
 *          the connection makes us hold, and refuses what is too much.
 * Owns:    the object, from evhttp's accept to its close. The connection itself is evhttp's.
 * Thread:  loop.
 * Uses:    base, loop, libevent_extra.
 */

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/http.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "base/err.h"
#include "http/head.h"

struct http_request;
struct http_server;

/* One for TCP, one for the admin socket: evhttp's callbacks get it. */
struct http_door {
	struct http_server *server;
	struct evhttp *http;
	bool is_admin;
	size_t conn_count;
	bool is_shut;        /* accepts nobody at present: there are too many */
	struct event *rests; /* pending: accepting failed, and is tried again when it fires */
	uint64_t failure_logged_ms; /* monotonic: when that was last said; 0: never */
	unsigned failures_unlogged; /* since then */
	LIST_ENTRY(http_door) link; /* all doors of the process */
};

struct http_conn {
	struct http_door *door;
	struct bufferevent *bev;
	struct evhttp_connection *evcon; /* NULL until the object has been adopted */
	int fd;
	bool is_surplus;        /* there were as many as there may be */
	bool is_sending;        /* an answer that was handed to evhttp */
	uint64_t held_bytes;    /* body, and answer that hasn't left yet */
	enum err_kind refusal;  /* ERR_NONE, or why this connection is being ended */
	struct http_head head;  /* of the request that comes, or has come */
	uint64_t since_ms;      /* monotonic: when the request began to come, or the refusal */
	uint64_t drained_bytes; /* after a refusal */
	struct http_request *request; /* which waits for its answer, or is sending it */
	TAILQ_ENTRY(http_conn) link;  /* http_server.conns */
};
TAILQ_HEAD(http_conns, http_conn);

/* Whether the door's listeners accept. In server.c. */
void http_door_accept(struct http_door *door, bool accepts);

/* For evhttp_set_bevcb(): @arg is the door. */
struct bufferevent *http_conn_new(struct event_base *base, void *arg);
/* Deferred by this file alone, and for those that are left when evhttp has gone. @arg is the conn.
 */
void http_conn_adopt(void *arg);
/* The object of the connection that @evreq came on. */
struct http_conn *http_conn_of(struct http_door *door, struct evhttp_request *evreq);

/* Counts @bytes on top. False: that is over the total, and nothing was counted. */
bool http_conn_charge(struct http_conn *conn, uint64_t bytes);
/* All of a request is there: until its answer has left, the client needn't say anything. */
void http_conn_arrived(struct http_conn *conn);
/* The last byte of an answer has left: what is held now is what has been read of the next request.
 */
void http_conn_sent(struct http_conn *conn);

/* Refuses @conn for a request that evhttp would answer and not close behind; it gets no other
 * answer. */
void http_conn_reject(struct http_conn *conn);
/* Why @conn was refused, for its client. */
void http_conn_explain(const struct http_conn *conn, struct err *err);
/* Deferred by this file alone: answers and ends a connection over a limit. @arg is the conn. */
void http_conn_refuse(void *arg);

/* Nothing of a request has come, and no answer is on its way. */
bool http_conn_is_idle(const struct http_conn *conn);
/* Cuts it here and now: no answer, or no more of it. @conn is gone afterwards. */
void http_conn_cut(struct http_conn *conn);
/* The same within an answer, so that HTTP/1.0, where the connection's end is the answer's, doesn't
 * take what there is for the whole. */
void http_conn_break(struct http_conn *conn);
