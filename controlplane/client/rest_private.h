#pragma once

/*
 * rest_private - what the parts of the REST client share
 *
 * Owns:    see rest_client.h.
 * Thread:  the client's.
 * Uses:    base, api, libcurl.
 */

#include <curl/curl.h>

#include "client/rest_client.h"

struct rest_client {
	CURL *curl;
	CURLM *multi;      /* drives it, and keeps its connection */
	char *origin;      /* "http://127.0.0.1:8470" */
	char *where;       /* for messages */
	char *auth_header; /* a whole line; NULL: none */
	char *socket;
};

/* The whole URL with path and query. The caller frees. */
char *rest_url(const struct rest_client *client, const struct rest_request *request);

/* What every connection is made with; @detail has CURL_ERROR_SIZE bytes. */
void rest_set_connection(const struct rest_client *client, CURL *curl, char *detail);

/* ERR_UNAVAILABLE: why the service couldn't be reached, and what to check. */
int rest_unreachable(
	const struct rest_client *client, CURLcode rc, const char *detail, struct err *err);

/* From {"error":{"type","message"}} to a kind and its message. */
int rest_refused(const struct rest_response *response, struct err *err);
