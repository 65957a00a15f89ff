#pragma once

/*
 * server_priv - the server, as the files of http/ see it
 *
 * Uses: server.h, conn.h.
 */

#include <event2/listener.h>

#include "base/log.h"
#include "http/conn.h"
#include "http/server.h"
#include "loop/loop.h"

#define HTTP_LISTENERS_MAX 16

/* One for TCP, one for the admin socket: which one a connection came through decides how its
 * principal is found and which routes it sees. */
struct http_door {
	struct http_server *server;
	bool is_admin;
	struct evconnlistener *listeners[HTTP_LISTENERS_MAX];
	size_t listener_count;
	size_t conn_count;
	bool is_shut;        /* accepts nobody at present: there are too many */
	struct event *rests; /* pending: accepting failed, and is tried again when it fires */
	uint64_t failure_logged_ms; /* monotonic: when that was last said; 0: never */
	unsigned failures_unlogged; /* since then */
};

/* Whether the door's listeners accept. In server.c. */
void http_door_accept(struct http_door *door, bool accepts);

struct http_server {
	struct loop *loop;
	struct ops *ops;
	struct auth *auth;
	struct http_config config;
	struct http_door tcp;
	struct http_door admin;
	char *admin_path;
	char **hosts; /* that a Host header may name, lower case */

	struct http_conns conns;
	uint64_t held_bytes; /* sum of the connections' */
	struct evbuffer
		*piece; /* of a body, on its way from a connection to its request; else empty */
	size_t pending; /* requests whose answer hasn't left */
	bool is_stopping;
	struct log_limit refusals;
	struct log_limit failures;
};
