#include "http/websocket.h"

#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/base64.h"
#include "base/clock.h"
#include "base/xalloc.h"
#include "http/frames.h"
#include "http/reply.h"
#include "http/server_priv.h"
#include "ops/ops.h"
#include "ops/socket.h"

/*
 * Theory of operation. The connection's steps drive the conversation: open it, tell of room, hand
 * one message over, read on. All hooks are called from there, so from the loop. What the operation
 * asks for (send, pause, close) is written down or into the link's buffer at once, and wakes the
 * connection.
 *
 * However it ends, .is_over is set and a closing frame written where the client may still read one;
 * the next step frees the call, which tells the operation, and the connection lingers: its
 * sending half is shut, the client's own closing frame is thrown away with whatever else comes.
 */

#define GUID "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
/* Unsent bytes over which nothing more is made: a terminal's output that is older than its next key
 * is of no use. */
#define OUT_HIGH_BYTES  (128u * 1024)
#define IN_READ_BYTES   (16u * 1024)
#define PING_MS         (30u * MS_PER_SECOND)
#define KEY_BYTES       16
#define KEY_TEXT_LENGTH 24

struct http_websocket {
	struct op_socket socket; /* first */
	struct http_conn *conn;
	struct http_request *request;
	struct http_frames *frames;
	const struct op_socket_hooks *hooks;
	bool is_open;
	bool is_over;
	bool is_paused;
	bool is_full;      /* on_room() is due when there is room */
	bool is_pinged;    /* and nothing has come since */
	uint64_t heard_ms; /* monotonic: when something came last */
	uint64_t pinged_ms;
};

/* ---- handshake ---- */

int http_websocket_check(
	const struct http_head *head, const char *subprotocol, int *ret_status, struct err *err)
{
	const char *upgrade = http_head_find(head, "Upgrade");
	const char *version = http_head_find(head, "Sec-WebSocket-Version");
	const char *key = http_head_find(head, "Sec-WebSocket-Key");
	size_t key_len = key ? strlen(key) : 0;

	if (strcmp(head->method, "GET") != 0 || head->is_old || !upgrade ||
		strcasecmp(upgrade, "websocket") != 0 ||
		!http_head_has_token(head, "Connection", "upgrade")) {
		*ret_status = 426;
		return err_set(err, ERR_INVALID, "this path speaks WebSocket alone");
	}
	if (!version || strcmp(version, "13") != 0) {
		*ret_status = 426;
		return err_set(err, ERR_INVALID, "Sec-WebSocket-Version must be 13");
	}
	if (key_len != KEY_TEXT_LENGTH || !base64_is_valid(key, key_len) ||
		base64_decoded_bytes(key, key_len) != KEY_BYTES) {
		return err_set(err, ERR_INVALID, "Sec-WebSocket-Key must be %d bytes in base64",
			KEY_BYTES);
	}
	if (!http_head_has_token(head, "Sec-WebSocket-Protocol", subprotocol)) {
		return err_set(
			err, ERR_INVALID, "Sec-WebSocket-Protocol must offer %s", subprotocol);
	}
	return 0;
}

void http_websocket_accept(const char *key, char ret[HTTP_WEBSOCKET_ACCEPT_BYTES])
{
	_cleanup_free_ char *text = xasprintf("%s" GUID, key);
	unsigned char digest[EVP_MAX_MD_SIZE];
	unsigned len;
	int rc = EVP_Digest(text, strlen(text), digest, &len, EVP_sha1(), NULL);

	ASSERT(rc == 1 && BASE64_ENCODED_BYTES(len) == HTTP_WEBSOCKET_ACCEPT_BYTES - 1);
	base64_encode(ret, digest, len);
	ret[HTTP_WEBSOCKET_ACCEPT_BYTES - 1] = '\0';
}

static void agree(struct http_request *request)
{
	const struct http_head *head = &request->conn->head;
	char accept[HTTP_WEBSOCKET_ACCEPT_BYTES];
	struct http_reply reply;

	http_websocket_accept(http_head_find(head, "Sec-WebSocket-Key"), accept);
	http_reply_begin(&reply, request, 101, NULL);
	http_reply_line(&reply, "Upgrade: websocket");
	http_reply_line(&reply, "Connection: Upgrade");
	http_reply_line(&reply, "Sec-WebSocket-Accept: %s", accept);
	http_reply_line(&reply, "Sec-WebSocket-Protocol: %s", request->row->subprotocol);
	http_reply_end(&reply);
}

/* ---- what the operation asks for ---- */

static struct http_websocket *websocket_of(struct op_socket *socket)
{
	return (struct http_websocket *)socket;
}

static size_t unsent(const struct http_websocket *ws)
{
	return evbuffer_get_length(ws->conn->link.out);
}

static size_t socket_room(const struct op_socket *socket)
{
	const struct http_websocket *ws = (const struct http_websocket *)socket;

	return ws->is_over || unsent(ws) >= OUT_HIGH_BYTES ? 0 : OUT_HIGH_BYTES - unsent(ws);
}

static void socket_send(struct op_socket *socket, bool is_text, const void *data, size_t len)
{
	struct http_websocket *ws = websocket_of(socket);

	if (ws->is_over) {
		return;
	}
	http_frames_send(ws->frames, is_text, data, len);
	ws->request->sent_bytes += len;
	ws->is_full |= unsent(ws) >= OUT_HIGH_BYTES;
	http_link_write(&ws->conn->link);
	http_conn_wake(ws->conn);
}

static void socket_pause(struct op_socket *socket, bool is_paused)
{
	struct http_websocket *ws = websocket_of(socket);

	if (ws->is_paused && !is_paused) {
		ws->heard_ms = clock_monotonic_ms();
		ws->is_pinged = false;
	}
	ws->is_paused = is_paused;
	http_conn_wake(ws->conn);
}

static void close_with(struct http_websocket *ws, unsigned code, const char *reason)
{
	if (!ws->is_over) {
		http_frames_close(ws->frames, code, reason);
		ws->is_over = true;
		http_conn_wake(ws->conn);
	}
}

static void socket_close(struct op_socket *socket, enum op_socket_code code, const char *reason)
{
	close_with(websocket_of(socket), code, reason);
}

static const struct op_socket_class class = {
	.room = socket_room,
	.send = socket_send,
	.pause = socket_pause,
	.close = socket_close,
};

/* ---- the conversation ---- */

void http_websocket_begin(struct http_request *request, const struct op_socket_hooks *hooks)
{
	struct http_conn *conn = request->conn;
	struct http_websocket *ws = xnew(struct http_websocket);

	ws->socket.class = &class;
	ws->conn = conn;
	ws->request = request;
	ws->hooks = hooks;
	ws->frames = http_frames_new(conn->link.in, conn->link.out, OP_SOCKET_MESSAGE_MAX_BYTES);
	ws->heard_ms = clock_monotonic_ms();
	conn->websocket = ws;
	conn->state = HTTP_CONN_SOCKET;
	agree(request);
	http_conn_wake(conn);
}

void http_websocket_free(struct http_websocket *ws)
{
	if (ws) {
		http_frames_free(ws->frames);
		free(ws);
	}
}

void http_websocket_stop(struct http_websocket *ws)
{
	close_with(ws, OP_SOCKET_GOING_AWAY, "the service is stopping");
}

static void heard(struct http_websocket *ws)
{
	ws->heard_ms = clock_monotonic_ms();
	ws->is_pinged = false;
}

static bool read_on(struct http_websocket *ws)
{
	if (http_link_read(&ws->conn->link, IN_READ_BYTES) > 0) {
		heard(ws);
		return true;
	}
	ws->is_over |= ws->conn->link.is_end;
	return ws->is_over;
}

static bool step_in(struct http_websocket *ws)
{
	struct http_frames_message message;

	switch (http_frames_next(ws->frames, OUT_HIGH_BYTES, &message)) {
	case HTTP_FRAMES_MESSAGE:
		ws->hooks->on_message(
			ws->request->call, message.is_text, message.text, message.len);
		return true;
	case HTTP_FRAMES_CLOSED:
		close_with(ws, message.code, NULL);
		return true;
	case HTTP_FRAMES_BROKEN:
		close_with(ws, message.code, message.text);
		return true;
	case HTTP_FRAMES_MORE:
	default:
		return read_on(ws);
	}
}

bool http_websocket_step(struct http_websocket *ws)
{
	if (ws->is_over) {
		http_conn_linger(ws->conn); /* frees this */
		return true;
	}
	if (!ws->is_open) {
		ws->is_open = true;
		ws->hooks->on_open(ws->request->call, &ws->socket);
		return true;
	}
	if (ws->is_full && unsent(ws) <= OUT_HIGH_BYTES / 2) {
		ws->is_full = false;
		ws->hooks->on_room(ws->request->call);
		return true;
	}
	if (!ws->is_paused) {
		return step_in(ws);
	}
	ws->is_over = ws->conn->link.has_left;
	return ws->is_over;
}

uint64_t http_websocket_deadline(const struct http_websocket *ws)
{
	/* Who isn't listened to can't be told from who is silent. */
	if (ws->is_paused) {
		return UINT64_MAX;
	}
	return (ws->is_pinged ? ws->pinged_ms : ws->heard_ms) + PING_MS;
}

void http_websocket_expire(struct http_websocket *ws)
{
	if (ws->is_pinged) {
		http_conn_cut(ws->conn); /* frees this */
		return;
	}
	ws->is_pinged = true;
	ws->pinged_ms = clock_monotonic_ms();
	http_frames_ping(ws->frames);
}
