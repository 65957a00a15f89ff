#pragma once

/*
 * rest_server - a scripted service for tests of the REST client
 *
 * Purpose: a server in a thread of its own reads one request after the other, keeps what it saw of
 *          the last one, and sends the scripted bytes.
 * Owns:    the one server, from server_set_up() to server_tear_down().
 * Thread:  the test's. It may look at the record once its call has been answered; after one that
 *          was cut short it stops the server first.
 */

#include "tests/lib/cm.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#include "client/rest_client.h"

#define KEY "pdk_secret"

struct server {
	int listener;
	unsigned port;
	char *socket;
	pthread_t thread;
	pthread_mutex_t lock;

	/* the script */
	char answer[4096];
	bool closes;     /* after the answer */
	bool skips_body; /* answers once the head is there */

	/* what was seen */
	unsigned connections;
	unsigned requests;
	char head[16384];
	char body[65536];
	size_t body_len;
};

extern struct server server;

int server_set_up(void **state);
int server_tear_down(void **state);
/* AF_INET or AF_UNIX. */
void server_start(int family);
/* Once the clients have gone, whose last connections it still reads to their end. */
void server_stop(void);

/* @headers: whole lines, or "". */
void server_script(int status, const char *headers, const char *body);
void server_script_raw(const char *bytes, bool closes);

/* A client of the TCP server; @suffix goes behind its origin. */
struct rest_client *server_client(const char *suffix);
#define _cleanup_client_ _cleanup_(rest_client_free_p)

void assert_head_has(const char *text);
void assert_head_lacks(const char *text);
