#pragma once

/*
 * ws_server - a scripted WebSocket peer for tests of the client
 *
 * Purpose: a server in a thread of its own accepts one connection, agrees or answers otherwise,
 *          sends the scripted bytes, and records the frames that come until the peer leaves.
 * Owns:    the one server, from ws_server_set_up() to ws_server_tear_down().
 * Thread:  the test's. What was seen may be looked at after ws_server_stop().
 */

#include "tests/lib/cm.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "client/buffer.h"
#include "client/ws.h"

struct ws_server {
	int listener;
	unsigned port;
	char *socket;
	pthread_t thread;

	/* the script */
	const char *refusal; /* sent in place of an agreement */
	struct buffer sends; /* behind the agreement, in one piece with it */
	size_t floods;       /* sends that many binary messages of 32 KiB more */
	bool leaves;         /* closes the connection after that */
	bool is_deaf;        /* doesn't answer a goodbye */

	/* what was seen */
	struct buffer head;
	struct buffer frames; /* "binary:hello;ping:;close:…;" */
	bool has_unmasked;
};

extern struct ws_server peer;

int ws_server_set_up(void **state);
int ws_server_tear_down(void **state);
/* AF_INET or AF_UNIX. */
void ws_server_start(int family);
/* Once the client has gone. */
void ws_server_stop(void);
/* Adds a frame to the script. */
void ws_server_sends(unsigned char first_byte, const void *data, size_t len);

/* A client, and a socket of it that was opened at the row that has one. */
struct rest_client *ws_server_client(void);
