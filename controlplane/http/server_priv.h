#pragma once

/*
 * server_priv - the server, as the files of http/ see it
 *
 * Uses: server.h, conn.h.
 */

#include "base/log.h"
#include "http/conn.h"
#include "http/server.h"
#include "loop/loop.h"

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
	struct http_conn **by_fd; /* adopted ones */
	size_t by_fd_size;
	uint64_t held_bytes; /* sum of the connections' */
	size_t pending;      /* requests that wait for their answer, or whose file is being sent */
	size_t sending;      /* answers that evhttp has and that haven't left yet */
	bool is_stopping;
	struct log_limit refusals;
	struct log_limit failures;
};
