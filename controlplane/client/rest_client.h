#pragma once

/*
 * rest_client - calls to paddockd's REST API
 *
 * Purpose: turns a row of the operation table and its values into an HTTP request, and the answer
 *          back into JSON, a stream of bytes, or an error.
 * Owns:    a libcurl handle with its connection, kept alive between calls.
 * Thread:  the one that made it; calls block.
 * Errors:  ERR_UNAVAILABLE: the service can't be reached or its answer broke off (the message names
 *          the URL and what to check). ERR_INVALID: a URL, key or id that is none; a raw body that
 *          ends before read_bytes. ERR_CANCELLED: a read or write callback gave up; the response
 *          has no status then. ERR_INTERNAL: a success without a JSON object. What the service
 *          answers keeps its kind and message.
 * Uses:    base, api, libcurl.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/api.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/json.h"

struct rest_client;

struct rest_config {
	const char *url;    /* an origin, with or without /v1 at its end; NULL with a socket */
	const char *key;    /* NULL: none */
	const char *socket; /* admin socket: takes the place of url and key */
};

struct rest_client *rest_client_new(const struct rest_config *config, struct err *err);
void rest_client_free(struct rest_client *client);
DEFINE_CLEANUP(struct rest_client *, rest_client_free)

/* Up to @size bytes into @out; 0: the end; -1: give up. */
typedef long (*rest_read_fn)(void *arg, void *out, size_t size);
/* 0; 1 for what is enough: the call has succeeded, whatever might still come; -1 to give up. */
typedef int (*rest_write_fn)(void *arg, const void *data, size_t len);
/* 0, or -1 to give up. */
typedef int (*rest_ready_fn)(void *arg);

struct rest_request {
	const struct api_row *row;
	const char *id;      /* for {id} in the path; NULL where there is none */
	const char *exec_id; /* for {eid} */
	json_object *query;  /* values by field name; borrowed; NULL: none */
	json_object *body;   /* borrowed; NULL: none */
	const char *idempotency_key;

	/* A raw body instead. */
	rest_read_fn read;
	void *read_arg;
	uint64_t read_bytes; /* never more than this are read; UINT64_MAX: unknown */
	const int *read_fd;  /* read() waits until this can be read, and the answer needn't wait
				for it; NULL, and as long as it is -1: read() doesn't block */

	/* Takes a raw answer of 2xx. */
	rest_write_fn write;
	void *write_arg;
	bool wants_events; /* it is a text/event-stream */

	/* Called while the call is under way and @ready_fd can be read; NULL: nothing is. */
	rest_ready_fn ready;
	void *ready_arg;
	int ready_fd;

	unsigned timeout_s; /* 0: as long as it takes */
};

struct rest_response {
	int status;
	json_object *json;   /* NULL where the answer was raw or empty */
	char request_id[32]; /* "" when there was none */
};

#define REST_RESPONSE_INIT ((struct rest_response){.json = NULL})
void rest_response_fini(struct rest_response *response);
#define _cleanup_rest_response_ _cleanup_(rest_response_fini)

/* @ret is filled for errors of the service, too (its JSON is the error object). */
int rest_call(struct rest_client *client, const struct rest_request *request,
	struct rest_response *ret, struct err *err);
