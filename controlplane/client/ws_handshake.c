#include "client/ws_handshake.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/base64.h"
#include "base/macros.h"
#include "base/rand.h"
#include "base/xalloc.h"

#define KEY_RAW_BYTES 16
#define SHA1_BYTES    20

void ws_make_key(char out[WS_KEY_BYTES])
{
	unsigned char raw[KEY_RAW_BYTES];

	_Static_assert(BASE64_ENCODED_BYTES(KEY_RAW_BYTES) + 1 == WS_KEY_BYTES, "its length");
	rand_bytes(raw, sizeof raw);
	base64_encode(out, raw, sizeof raw);
	out[WS_KEY_BYTES - 1] = '\0';
}

void ws_make_accept(const char *key, char out[WS_ACCEPT_BYTES])
{
	_cleanup_free_ char *text = xasprintf("%s258EAFA5-E914-47DA-95CA-C5AB0DC85B11", key);
	unsigned char sum[SHA1_BYTES];

	_Static_assert(BASE64_ENCODED_BYTES(SHA1_BYTES) + 1 == WS_ACCEPT_BYTES, "its length");
	int rc = EVP_Digest(text, strlen(text), sum, NULL, EVP_sha1(), NULL);
	ASSERT(rc == 1);
	base64_encode(out, sum, sizeof sum);
	out[WS_ACCEPT_BYTES - 1] = '\0';
}

void ws_write_request(struct buffer *to, const struct ws_offer *offer)
{
	_cleanup_free_ char *head = xasprintf("GET %s HTTP/1.1\r\n"
					      "Host: %s\r\n"
					      "Upgrade: websocket\r\n"
					      "Connection: Upgrade\r\n"
					      "Sec-WebSocket-Key: %s\r\n"
					      "Sec-WebSocket-Version: 13\r\n"
					      "Sec-WebSocket-Protocol: %s\r\n"
					      "Accept: application/json\r\n"
					      "%s%s\r\n",
		offer->target, offer->host, offer->key, offer->protocol,
		offer->auth_header ? offer->auth_header : "", offer->auth_header ? "\r\n" : "");

	buffer_add_text(to, head);
}

size_t ws_head_bytes(const char *data, size_t len)
{
	const char *end = memmem(data, len, "\r\n\r\n", 4);

	return end ? (size_t)(end - data) + 4 : 0;
}

/* What of the answer matters. */
struct answer {
	const char *upgrade;
	const char *connection;
	const char *accept;
	const char *protocol;
	bool has_extensions;
};

static void take_header(char *line, struct answer *answer, struct ws_head *head)
{
	char *colon = strchr(line, ':');

	if (!colon) {
		return;
	}
	*colon = '\0';
	char *value = colon + 1 + strspn(colon + 1, " \t");

	for (size_t n = strlen(value); n > 0 && strchr(" \t", value[n - 1]); n--) {
		value[n - 1] = '\0';
	}
	if (strcasecmp(line, "Upgrade") == 0) {
		answer->upgrade = value;
	} else if (strcasecmp(line, "Connection") == 0) {
		answer->connection = value;
	} else if (strcasecmp(line, "Sec-WebSocket-Accept") == 0) {
		answer->accept = value;
	} else if (strcasecmp(line, "Sec-WebSocket-Protocol") == 0) {
		answer->protocol = value;
	} else if (strcasecmp(line, "Sec-WebSocket-Extensions") == 0) {
		answer->has_extensions = true;
	} else if (strcasecmp(line, "Content-Length") == 0) {
		head->has_length = true;
		head->length = strtoul(value, NULL, 10);
	} else if (strcasecmp(line, "X-Request-Id") == 0) {
		size_t n = strspn(value, "abcdefghijklmnopqrstuvwxyz0123456789_");

		snprintf(head->request_id, sizeof head->request_id, "%.*s", (int)n, value);
	}
}

/* Whether the list @value, separated by commas, has @token. */
static bool has_token(const char *value, const char *token)
{
	size_t len = strlen(token);

	for (const char *at = value; at && *at; at += strcspn(at, ",")) {
		at += strspn(at, ", \t");
		if (strncasecmp(at, token, len) == 0 && strchr(", \t", at[len])) {
			return true; /* strchr() finds the terminator, too */
		}
	}
	return false;
}

static int check_agreement(
	const struct answer *answer, const struct ws_offer *offer, struct err *err)
{
	char accept[WS_ACCEPT_BYTES];
	const char *fault = NULL;

	ws_make_accept(offer->key, accept);
	if (!answer->upgrade || strcasecmp(answer->upgrade, "websocket") != 0 ||
		!has_token(answer->connection, "upgrade")) {
		fault = "it doesn't switch to websocket";
	} else if (!answer->accept || strcmp(answer->accept, accept) != 0) {
		fault = "it doesn't prove that it understood";
	} else if (!answer->protocol || strcmp(answer->protocol, offer->protocol) != 0) {
		fault = "it speaks another protocol";
	} else if (answer->has_extensions) {
		fault = "it wants extensions that weren't offered";
	}
	return fault ? err_set(err, ERR_UNAVAILABLE, "the service's answer is no WebSocket: %s",
			       fault)
		     : 0;
}

int ws_read_head(const char *head, size_t len, const struct ws_offer *offer, struct ws_head *ret,
	struct err *err)
{
	_cleanup_free_ char *text = xasprintf("%.*s", (int)len, head);
	struct answer answer = {.upgrade = NULL};
	char *rest = text;
	char *line = strsep(&rest, "\n");

	*ret = (struct ws_head){.status = 0};
	if (sscanf(line, "HTTP/1.%*1d %3d", &ret->status) != 1 || ret->status < 100) {
		return err_set(err, ERR_UNAVAILABLE, "the service's answer is no HTTP");
	}
	while ((line = strsep(&rest, "\n")) != NULL) {
		line[strcspn(line, "\r")] = '\0';
		take_header(line, &answer, ret);
	}
	return ret->status == 101 ? check_agreement(&answer, offer, err) : 0;
}
