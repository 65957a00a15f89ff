#include "client/ws.h"

#include <string.h>
#include <wslay/wslay.h>

#include "base/clock.h"
#include "base/rand.h"
#include "base/xalloc.h"
#include "client/buffer.h"
#include "client/rest_private.h"
#include "client/ws_handshake.h"

/*
 * Theory of operation. libcurl makes the connection and carries bytes (CURLOPT_CONNECT_ONLY: the
 * WebSocket support of libcurl 7.88 is experimental, and Debian's is built without). The handshake
 * blocks, with a deadline. What arrived behind the answer's head is kept in `early` and given to
 * libwslay first.
 *
 * libwslay reads as long as there is something. A guest that writes for ever would keep it busy for
 * ever, and the caller from its keyboard: each turn has a budget.
 */

#define HANDSHAKE_MS     10000
#define HEAD_MAX_BYTES   ((size_t)16 * 1024)
#define ANSWER_MAX_BYTES ((size_t)64 * 1024) /* of a refusal */
#define TURN_BYTES       ((size_t)64 * 1024)
/* Queued messages over which nothing is read: the peer asks for more answers than it takes. */
#define QUEUE_MAX ((size_t)4096)
/* What one costs beside its content. */
#define QUEUED_BYTES ((size_t)64)

struct ws {
	CURL *curl;
	curl_socket_t fd;
	wslay_event_context_ptr frames;
	ws_message_fn on_message;
	void *arg;
	char *where;
	struct buffer early;
	size_t budget;      /* bytes that this turn may still read */
	bool is_lost;       /* the connection has ended */
	bool has_given_up;  /* the caller */
	bool is_closing;    /* messages are dropped */
	uint64_t heard_ms;  /* when something came last */
	uint64_t pinged_ms; /* when we asked for something */
	char reason[128];   /* of the peer's goodbye */
	char detail[CURL_ERROR_SIZE];
};

/* ---- the connection ---- */

/* Bytes read; 0: none now; -1: the connection has ended. */
static ssize_t receive(struct ws *ws, void *out, size_t size)
{
	size_t n = 0;
	CURLcode rc = curl_easy_recv(ws->curl, out, size, &n);

	if (rc == CURLE_AGAIN) {
		return 0;
	}
	return rc == CURLE_OK && n > 0 ? (ssize_t)n : -1;
}

static ssize_t transmit(struct ws *ws, const void *data, size_t len)
{
	size_t n = 0;
	CURLcode rc = curl_easy_send(ws->curl, data, len, &n);

	if (rc == CURLE_AGAIN) {
		return 0;
	}
	return rc == CURLE_OK ? (ssize_t)n : -1;
}

/* False: not until the deadline. */
static bool wait_for(const struct ws *ws, short events, uint64_t until_ms)
{
	struct pollfd one = {.fd = ws->fd, .events = events};
	uint64_t now = clock_monotonic_ms();

	return now < until_ms && (poll(&one, 1, (int)(until_ms - now)) != 0);
}

static int broke_off(const struct ws *ws, struct err *err)
{
	return err_set(err, ERR_UNAVAILABLE, "the connection to %s broke off", ws->where);
}

/* ---- the handshake ---- */

static int send_all(struct ws *ws, const char *data, size_t len, uint64_t until_ms, struct err *err)
{
	while (len > 0) {
		ssize_t n = transmit(ws, data, len);

		if (n < 0 || (n == 0 && !wait_for(ws, POLLOUT, until_ms))) {
			return broke_off(ws, err);
		}
		data += n;
		len -= (size_t)n;
	}
	return 0;
}

/* Adds what comes to ws->early, which is to have at most @max bytes; 0 or -1. */
static int receive_more(struct ws *ws, size_t max, uint64_t until_ms, struct err *err)
{
	char piece[4096];

	for (;;) {
		ssize_t n = receive(ws, piece, MIN(sizeof piece, max - ws->early.len));

		if (n > 0) {
			buffer_add(&ws->early, piece, (size_t)n);
			return 0;
		}
		if (n < 0 || !wait_for(ws, POLLIN, until_ms)) {
			return broke_off(ws, err);
		}
	}
}

static int read_head(struct ws *ws, const struct ws_offer *offer, uint64_t until_ms,
	struct ws_head *ret, struct err *err)
{
	size_t len;

	while ((len = ws->early.len > 0 ? ws_head_bytes(ws->early.data, ws->early.len) : 0) == 0) {
		if (ws->early.len == HEAD_MAX_BYTES) {
			return err_set(
				err, ERR_UNAVAILABLE, "the answer of %s has no end", ws->where);
		}
		if (receive_more(ws, HEAD_MAX_BYTES, until_ms, err) != 0) {
			return -1;
		}
	}
	int rc = ws_read_head(ws->early.data, len, offer, ret, err);

	buffer_drop(&ws->early, len);
	return rc;
}

/* The service said no, and why. */
static int read_refusal(struct ws *ws, const struct ws_head *head, uint64_t until_ms,
	struct rest_response *ret, struct err *err)
{
	size_t len = MIN(head->has_length ? head->length : ANSWER_MAX_BYTES, ANSWER_MAX_BYTES);

	while (ws->early.len < len && receive_more(ws, len, until_ms, err) == 0) {
	}
	if (ws->early.len > 0) {
		ret->json = json_parse_answer(ws->early.data, MIN(len, ws->early.len), err);
	}
	return rest_refused(ret, err);
}

static int shake_hands(
	struct ws *ws, const struct ws_offer *offer, struct rest_response *ret, struct err *err)
{
	uint64_t until_ms = clock_monotonic_ms() + HANDSHAKE_MS;
	_cleanup_buffer_ struct buffer request = {0};
	struct ws_head head;

	ws_write_request(&request, offer);
	if (send_all(ws, request.data, request.len, until_ms, err) != 0 ||
		read_head(ws, offer, until_ms, &head, err) != 0) {
		return -1;
	}
	ret->status = head.status;
	snprintf(ret->request_id, sizeof ret->request_id, "%s", head.request_id);
	return head.status == 101 ? 0 : read_refusal(ws, &head, until_ms, ret, err);
}

/* "host:port" of @url, as it goes into the header. The caller frees. */
static char *host_of(CURLU *url)
{
	char *host = NULL;
	char *port = NULL;

	curl_url_get(url, CURLUPART_HOST, &host, 0);
	curl_url_get(url, CURLUPART_PORT, &port, 0);
	char *text = xasprintf("%s%s%s", host ? host : "", port ? ":" : "", port ? port : "");

	curl_free(host);
	curl_free(port);
	return text;
}

static int agree(struct ws *ws, struct rest_client *client, const struct rest_request *request,
	const char *address, struct rest_response *ret, struct err *err)
{
	char key[WS_KEY_BYTES];
	CURLU *url = curl_url();
	int rc = -1;

	ws_make_key(key);
	if (curl_url_set(url, CURLUPART_URL, address, CURLU_PATH_AS_IS) != CURLUE_OK) {
		err_set(err, ERR_INVALID, "%s is no URL", client->origin);
	} else {
		_cleanup_free_ char *host = host_of(url);
		struct ws_offer offer = {
			/* Behind "scheme://", the first slash begins the path. */
			.target = strchr(strstr(address, "://") + 3, '/'),
			.host = host,
			.key = key,
			.protocol = request->row->subprotocol,
			.auth_header = client->auth_header,
		};
		rc = shake_hands(ws, &offer, ret, err);
	}
	curl_url_cleanup(url);
	return rc;
}

static int connect_to(
	struct ws *ws, const struct rest_client *client, const char *url, struct err *err)
{
	rest_set_connection(client, ws->curl, ws->detail);
	curl_easy_setopt(ws->curl, CURLOPT_URL, url);
	curl_easy_setopt(ws->curl, CURLOPT_CONNECT_ONLY, 1L);
	/* Through a proxy only as a tunnel, and TLS must not agree upon HTTP/2. */
	curl_easy_setopt(ws->curl, CURLOPT_HTTPPROXYTUNNEL, 1L);
	curl_easy_setopt(ws->curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	CURLcode rc = curl_easy_perform(ws->curl);

	if (rc == CURLE_OK) {
		rc = curl_easy_getinfo(ws->curl, CURLINFO_ACTIVESOCKET, &ws->fd);
	}
	return rc == CURLE_OK ? 0 : rest_unreachable(client, rc, ws->detail, err);
}

/* ---- libwslay's side ---- */

static ssize_t on_receive(
	wslay_event_context_ptr frames, uint8_t *out, size_t size, int flags, void *arg)
{
	struct ws *ws = arg;
	size_t room = MIN(size, ws->budget);
	ssize_t n = 0;

	(void)flags;
	if (ws->early.len > 0) {
		n = (ssize_t)MIN(room, ws->early.len);
		memcpy(out, ws->early.data, (size_t)n);
		buffer_drop(&ws->early, (size_t)n);
	} else if (room > 0) {
		n = receive(ws, out, room);
	}
	if (n > 0) {
		ws->budget -= (size_t)n;
		ws->heard_ms = clock_monotonic_ms();
		return n;
	}
	ws->is_lost = ws->is_lost || n < 0;
	wslay_event_set_error(frames, n < 0 ? WSLAY_ERR_CALLBACK_FAILURE : WSLAY_ERR_WOULDBLOCK);
	return -1;
}

static ssize_t on_transmit(
	wslay_event_context_ptr frames, const uint8_t *data, size_t len, int flags, void *arg)
{
	struct ws *ws = arg;
	ssize_t n = transmit(ws, data, len);

	(void)flags;
	if (n > 0) {
		return n;
	}
	ws->is_lost = ws->is_lost || n < 0;
	wslay_event_set_error(frames, n < 0 ? WSLAY_ERR_CALLBACK_FAILURE : WSLAY_ERR_WOULDBLOCK);
	return -1;
}

static int on_mask(wslay_event_context_ptr frames, uint8_t *out, size_t len, void *arg)
{
	(void)frames;
	(void)arg;
	rand_bytes(out, len);
	return 0;
}

static void on_message(
	wslay_event_context_ptr frames, const struct wslay_event_on_msg_recv_arg *got, void *arg)
{
	struct ws *ws = arg;
	bool is_text = got->opcode == WSLAY_TEXT_FRAME;

	(void)frames;
	if (got->opcode == WSLAY_CONNECTION_CLOSE && got->msg_length > 2) {
		/* The reason stands behind the code. */
		snprintf(ws->reason, sizeof ws->reason, "%.*s", (int)got->msg_length - 2,
			(const char *)got->msg + 2);
	}
	if ((is_text || got->opcode == WSLAY_BINARY_FRAME) && !ws->is_closing &&
		!ws->has_given_up) {
		ws->has_given_up = ws->on_message(ws->arg, is_text, (const char *)got->msg,
					   got->msg_length) != 0;
	}
}

/* ---- the caller's side ---- */

static bool may_read(const struct ws *ws)
{
	return wslay_event_get_queued_msg_count(ws->frames) < QUEUE_MAX;
}

struct ws *ws_open(struct rest_client *client, const struct rest_request *request,
	ws_message_fn message_fn, void *arg, struct rest_response *ret, struct err *err)
{
	static const struct wslay_event_callbacks callbacks = {
		.recv_callback = on_receive,
		.send_callback = on_transmit,
		.genmask_callback = on_mask,
		.on_msg_recv_callback = on_message,
	};

	if ((request->id && !request->id[0]) || (request->exec_id && !request->exec_id[0])) {
		err_set(err, ERR_INVALID, "the id is empty");
		return NULL;
	}
	_cleanup_free_ char *url = rest_url(client, request);
	struct ws *ws = xnew(struct ws);

	ws->curl = curl_easy_init();
	ASSERT(ws->curl != NULL);
	ws->on_message = message_fn;
	ws->arg = arg;
	ws->where = xstrdup(client->where);
	if (connect_to(ws, client, url, err) != 0 ||
		agree(ws, client, request, url, ret, err) != 0) {
		ws_free(ws);
		return NULL;
	}
	int rc = wslay_event_context_client_init(&ws->frames, &callbacks, ws);
	ASSERT(rc == 0);
	wslay_event_config_set_max_recv_msg_length(ws->frames, WS_MESSAGE_MAX_BYTES);
	ws->heard_ms = ws->pinged_ms = clock_monotonic_ms();
	return ws;
}

void ws_free(struct ws *ws)
{
	if (!ws) {
		return;
	}
	if (ws->frames) {
		wslay_event_context_free(ws->frames);
	}
	curl_easy_cleanup(ws->curl);
	buffer_fini(&ws->early);
	free(ws->where);
	free(ws);
}

void ws_poll(const struct ws *ws, struct pollfd *ret, int *timeout_ms)
{
	bool has_more = may_read(ws) && (ws->budget == 0 || ws->early.len > 0);
	int most = has_more ? 0 : WS_PING_MS / 2;

	*ret = (struct pollfd){.fd = ws->fd,
		.events = (short)((may_read(ws) ? POLLIN : 0) |
				  (wslay_event_want_write(ws->frames) ? POLLOUT : 0))};
	if (*timeout_ms < 0 || *timeout_ms > most) {
		*timeout_ms = most;
	}
}

static int check_silence(struct ws *ws, struct err *err)
{
	uint64_t now = clock_monotonic_ms();

	if (now - ws->heard_ms >= WS_SILENCE_MS) {
		return err_set(err, ERR_UNAVAILABLE, "%s has been silent for %d s", ws->where,
			WS_SILENCE_MS / MS_PER_SECOND);
	}
	if (now - ws->heard_ms >= WS_PING_MS && now - ws->pinged_ms >= WS_PING_MS) {
		struct wslay_event_msg ping = {.opcode = WSLAY_PING};

		wslay_event_queue_msg(ws->frames, &ping);
		ws->pinged_ms = now;
	}
	return 0;
}

int ws_turn(struct ws *ws, struct err *err)
{
	ws->budget = TURN_BYTES;
	bool is_fine = !may_read(ws) || wslay_event_recv(ws->frames) == 0;

	if (ws->has_given_up) {
		return err_set(err, ERR_CANCELLED, "given up");
	}
	/* The answer to a goodbye, or to what breaks the rules, still goes out. */
	is_fine = wslay_event_send(ws->frames) == 0 && is_fine;
	if (wslay_event_get_close_received(ws->frames)) {
		return err_set(err, ERR_UNAVAILABLE, "%s closed the connection%s%s", ws->where,
			ws->reason[0] ? ": " : "", ws->reason);
	}
	if (ws->is_lost) {
		return broke_off(ws, err);
	}
	if (!is_fine || !wslay_event_want_read(ws->frames)) {
		return err_set(err, ERR_UNAVAILABLE, "%s breaks the rules of WebSocket", ws->where);
	}
	return check_silence(ws, err);
}

void ws_send(struct ws *ws, bool is_text, const void *data, size_t len)
{
	struct wslay_event_msg message = {
		.opcode = is_text ? WSLAY_TEXT_FRAME : WSLAY_BINARY_FRAME,
		.msg = data,
		.msg_length = len,
	};

	/* Fails only once the end has been said, which the next turn tells. */
	(void)wslay_event_queue_msg(ws->frames, &message);
}

size_t ws_queued(const struct ws *ws)
{
	return wslay_event_get_queued_msg_length(ws->frames) +
	       wslay_event_get_queued_msg_count(ws->frames) * QUEUED_BYTES;
}

/* Turns until @is_over; false: it failed, or the deadline came first. */
static bool turn_until(struct ws *ws, bool (*is_over)(const struct ws *ws), uint64_t until_ms)
{
	struct err err;

	while (!is_over(ws)) {
		if (ws_turn(ws, &err) != 0 || clock_monotonic_ms() >= until_ms) {
			return false;
		}
		struct pollfd fd;
		int timeout = -1;

		ws_poll(ws, &fd, &timeout);
		if (timeout > 0 && !is_over(ws)) {
			wait_for(ws, fd.events, until_ms);
		}
	}
	return true;
}

static bool is_flushed(const struct ws *ws)
{
	return ws_queued(ws) == 0;
}

static bool is_never(const struct ws *ws)
{
	(void)ws;
	return false;
}

void ws_close(struct ws *ws, int timeout_ms)
{
	uint64_t until_ms = clock_monotonic_ms() + (uint64_t)timeout_ms;

	/* A goodbye overtakes what is queued, and nothing follows it. */
	ws->is_closing = true;
	if (turn_until(ws, is_flushed, until_ms)) {
		wslay_event_queue_close(ws->frames, WSLAY_CODE_NORMAL_CLOSURE, NULL, 0);
		turn_until(ws, is_never, until_ms);
	}
}
