#include "http/conn.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/xalloc.h"
#include "http/request.h"
#include "http/server_priv.h"
#include "http/stream.h"
#include "http/websocket.h"
#include "loop/bytes.h"

/*
 * Theory of operation. Whatever happens to a connection (bytes, room, an answer, a time-out) ends
 * in http_conn_turn(), which takes steps while there are any to take. A step reads no more than the
 * state has a use for: nothing while a call waits, no more of a body than its reader has room for.
 * What isn't read stays in the kernel and holds the client up; link.h sees all the same when it
 * leaves. Requests that come one behind the other are served one behind the other.
 *
 * Nothing is freed under a caller's feet: a connection that ends becomes GONE, and its memory goes
 * with the loop's next turn.
 */

#define HEAD_READ_BYTES 4096u
#define BODY_READ_BYTES (64u * 1024)
/* Of one connection, before others have their turn. A request takes a few steps. */
#define TURN_BYTES (64u * 1024)
#define TURN_STEPS 64

/* A JSON body is held in memory, so all of it comes within so long. */
#define ARRIVAL_MS (600u * MS_PER_SECOND)
/* A raw one takes as long as it takes, but it goes on: so many bytes in each such time. */
#define RATE_MS    (120u * MS_PER_SECOND)
#define RATE_BYTES 1024u
/* What is left of a body when its request has been answered: so much is worth keeping the
 * connection for. */
#define DROP_MAX_BYTES (64u * 1024)
/* Of a connection that has ended: without a byte, and in all. */
#define LINGER_IDLE_MS (5u * MS_PER_SECOND)
#define LINGER_MS      (60u * MS_PER_SECOND)
#define LINGER_BYTES   (256u * 1024 * 1024)

#define NEVER UINT64_MAX

static uint64_t idle_ms(const struct http_conn *conn)
{
	return (uint64_t)conn->server->config.idle_timeout_s * MS_PER_SECOND;
}

static uint64_t head_ms(const struct http_conn *conn)
{
	return (uint64_t)conn->server->config.head_timeout_s * MS_PER_SECOND;
}

/* ---- counting ---- */

bool http_conn_charge(struct http_conn *conn, uint64_t bytes)
{
	struct http_server *server = conn->server;

	if (server->held_bytes + bytes > server->config.bodies_total_bytes) {
		return false;
	}
	conn->held_bytes += bytes;
	server->held_bytes += bytes;
	return true;
}

static void uncharge(struct http_conn *conn)
{
	conn->server->held_bytes -= conn->held_bytes;
	conn->held_bytes = 0;
}

/* ---- ends ---- */

static void on_turn_due(void *arg)
{
	struct http_conn *conn = arg;

	conn->is_turn_due = false;
	http_conn_turn(conn);
}

/* Behind the link's end, which is what tells orderly ends from others. */
static void bury(struct http_conn *conn)
{
	struct http_server *server = conn->server;

	conn->state = HTTP_CONN_GONE;
	http_request_free(steal_ptr(&conn->request));
	http_websocket_free(steal_ptr(&conn->websocket));
	http_head_fini(&conn->head);
	event_free(conn->timer);
	uncharge(conn);
	TAILQ_REMOVE(&server->conns, conn, entry);
	conn->door->conn_count--;
	if (!server->is_stopping) {
		http_door_accept(conn->door, true);
	}
	loop_cancel_deferred(server->loop, on_turn_due, conn);
	loop_defer(server->loop, free, conn);
}

void http_conn_cut(struct http_conn *conn)
{
	if (conn->state != HTTP_CONN_GONE) {
		http_link_close(&conn->link);
		bury(conn);
	}
}

void http_conn_break(struct http_conn *conn)
{
	if (conn->state != HTTP_CONN_GONE) {
		http_link_reset(&conn->link);
		bury(conn);
	}
}

void http_conn_linger(struct http_conn *conn)
{
	http_request_free(steal_ptr(&conn->request));
	http_websocket_free(steal_ptr(&conn->websocket));
	uncharge(conn);
	conn->state = HTTP_CONN_LINGER;
	conn->since_ms = clock_monotonic_ms();
	conn->progress_ms = conn->since_ms;
	conn->drained_bytes = 0;
}

static void await_request(struct http_conn *conn)
{
	if (conn->server->is_stopping) {
		http_conn_linger(conn);
		return;
	}
	conn->state = HTTP_CONN_HEAD;
	conn->progress_ms = clock_monotonic_ms();
	http_head_reset(&conn->head);
}

/* The last byte of its answer has left. */
static void end_request(struct http_conn *conn)
{
	if (conn->closes) {
		http_conn_linger(conn);
		return;
	}
	http_request_free(steal_ptr(&conn->request));
	uncharge(conn);
	if (http_body_is_end(&conn->body)) {
		await_request(conn);
	} else {
		conn->state = HTTP_CONN_DROP;
		conn->since_ms = clock_monotonic_ms();
		conn->progress_ms = conn->since_ms;
	}
}

/* ---- bytes that come and go ---- */

/* True when some have left. */
static bool flush(struct http_conn *conn)
{
	if (http_link_write(&conn->link) == 0) {
		return false;
	}
	conn->progress_ms = clock_monotonic_ms();
	return true;
}

/* Bytes are there, or have been read now: @max at most. */
static bool have_input(struct http_conn *conn, size_t max)
{
	if (evbuffer_get_length(conn->link.in) == 0 && http_link_read(&conn->link, max) == 0) {
		return false;
	}
	conn->progress_ms = clock_monotonic_ms();
	return true;
}

static bool step_head(struct http_conn *conn)
{
	struct evbuffer_iovec piece;

	if (!have_input(conn, HEAD_READ_BYTES)) {
		if (conn->link.is_end) {
			http_conn_cut(conn);
		}
		return false;
	}
	if (http_head_is_fresh(&conn->head)) {
		conn->since_ms = conn->progress_ms;
	}
	evbuffer_peek(conn->link.in, -1, NULL, &piece, 1);
	evbuffer_drain(conn->link.in, http_head_take(&conn->head, piece.iov_base, piece.iov_len));
	if (conn->head.state == HTTP_HEAD_OVER) {
		http_request_begin(conn);
	} else if (conn->head.state == HTTP_HEAD_BAD) {
		struct err err;

		err_set(&err, ERR_INVALID, "%s", conn->head.problem);
		http_request_refuse(conn, 0, &err);
	}
	return true;
}

static void take_framing(struct http_conn *conn)
{
	struct evbuffer_iovec piece;

	evbuffer_peek(conn->link.in, -1, NULL, &piece, 1);
	evbuffer_drain(conn->link.in, http_body_frame(&conn->body, piece.iov_base, piece.iov_len));
}

static bool has_more_body(const struct http_conn *conn)
{
	return evbuffer_get_length(conn->link.in) > 0 && !http_body_is_end(&conn->body) &&
	       !conn->body.problem;
}

/* Throws away what has come of a body. */
static void drop_body(struct http_conn *conn)
{
	while (has_more_body(conn)) {
		uint64_t content = http_body_content(&conn->body);
		size_t n = MIN(content, evbuffer_get_length(conn->link.in));

		if (n > 0) {
			evbuffer_drain(conn->link.in, n);
			http_body_took(&conn->body, n);
		} else {
			take_framing(conn);
		}
	}
}

/* There is no saying so in the middle of an answer. */
static void fail_body(struct http_conn *conn, enum err_kind kind, const char *why)
{
	struct err err;

	if (conn->request->stream) {
		http_conn_break(conn);
		return;
	}
	err_set(&err, kind, "%s", why);
	conn->closes = true;
	http_request_fail(conn->request, 0, &err);
}

/* Hands what has come to the request, for as long as that wants it. */
static void take_body(struct http_conn *conn)
{
	struct http_request *request = conn->request;
	struct evbuffer *piece = conn->server->piece;
	size_t room;

	while (has_more_body(conn) && (room = http_request_room(request)) > 0) {
		uint64_t content = http_body_content(&conn->body);
		size_t there = MIN(room, evbuffer_get_length(conn->link.in));
		size_t n = MIN(content, there);

		if (n == 0) {
			take_framing(conn);
			continue;
		}
		bytes_move(conn->link.in, piece, n);
		http_body_took(&conn->body, n);
		conn->window_bytes += n;
		http_request_take(request, piece);
	}
	if (request->is_answered) {
		return;
	}
	if (conn->body.problem) {
		fail_body(conn, ERR_INVALID, conn->body.problem);
	} else if (http_body_is_end(&conn->body)) {
		http_request_body_end(request);
	}
}

static void restart_window(struct http_conn *conn)
{
	conn->window_ms = conn->progress_ms;
	conn->window_bytes = 0;
}

/* Drops that keep to the idle time-out may not keep a connection for ever. Beside a stream they
 * may: that is a conversation, and ends where the client doesn't read. */
static void check_rate(struct http_conn *conn)
{
	if (conn->request->stream || conn->progress_ms - conn->window_ms < RATE_MS) {
		return;
	}
	if (conn->window_bytes < RATE_BYTES) {
		fail_body(conn, ERR_TIMEOUT, "the body of the request comes too slowly");
	}
	restart_window(conn);
}

static void send_continue(struct http_conn *conn)
{
	static const char text[] = "HTTP/1.1 100 Continue\r\n\r\n";

	conn->is_continue_owed = false;
	if (evbuffer_get_length(conn->link.in) == 0) {
		evbuffer_add(conn->link.out, text, sizeof text - 1);
		flush(conn);
	}
}

static bool step_body(struct http_conn *conn)
{
	size_t room = http_request_room(conn->request);

	if (room == 0) {
		conn->is_held = true;
		return false;
	}
	if (conn->is_held) {
		conn->is_held = false;
		conn->progress_ms = clock_monotonic_ms();
		restart_window(conn);
	}
	if (conn->is_continue_owed) {
		send_continue(conn);
	}
	if (!have_input(conn, MIN(room, (size_t)BODY_READ_BYTES))) {
		return false;
	}
	take_body(conn);
	if (conn->state == HTTP_CONN_SERVE && conn->request->upload) {
		check_rate(conn);
	}
	return true;
}

static bool step_serve(struct http_conn *conn)
{
	struct http_request *request = conn->request;

	if (request->stream) {
		http_stream_pump(request->stream);
		if (conn->state != HTTP_CONN_SERVE) {
			return false;
		}
		if (flush(conn)) {
			return true;
		}
	}
	if (request->is_answered) {
		if (evbuffer_get_length(conn->link.out) > 0) {
			return flush(conn);
		}
		end_request(conn);
		return true;
	}
	if (!http_body_is_end(&conn->body) && step_body(conn)) {
		return true;
	}
	if (conn->link.has_left) {
		http_conn_cut(conn);
	}
	return false;
}

static bool step_drop(struct http_conn *conn)
{
	if (!have_input(conn, BODY_READ_BYTES)) {
		if (conn->link.is_end) {
			http_conn_cut(conn);
		}
		return false;
	}
	drop_body(conn);
	if (http_body_is_end(&conn->body)) {
		await_request(conn);
	}
	return true;
}

static bool step_linger(struct http_conn *conn)
{
	struct evbuffer *in = conn->link.in;

	if (evbuffer_get_length(conn->link.out) > 0) {
		return false;
	}
	if (!conn->has_shut) {
		conn->has_shut = true;
		http_link_shut(&conn->link);
	}
	if (!have_input(conn, BODY_READ_BYTES)) {
		if (conn->link.is_end) {
			http_conn_cut(conn);
		}
		return false;
	}
	conn->drained_bytes += evbuffer_get_length(in);
	evbuffer_drain(in, evbuffer_get_length(in));
	if (conn->drained_bytes > LINGER_BYTES) {
		http_conn_cut(conn);
	}
	return true;
}

static bool step(struct http_conn *conn)
{
	if (conn->state == HTTP_CONN_GONE) {
		return false;
	}
	flush(conn);
	if (conn->link.is_broken) {
		http_conn_cut(conn);
		return false;
	}
	switch (conn->state) {
	case HTTP_CONN_HEAD:
		return step_head(conn);
	case HTTP_CONN_SERVE:
		return step_serve(conn);
	case HTTP_CONN_DROP:
		return step_drop(conn);
	case HTTP_CONN_SOCKET:
		return http_websocket_step(conn->websocket);
	case HTTP_CONN_LINGER:
		return step_linger(conn);
	case HTTP_CONN_GONE:
	default:
		return false;
	}
}

/* ---- time ---- */

/* Somebody may page through a stream; its source waits meanwhile. Other answers are held here. */
static uint64_t stall_ms(const struct http_conn *conn)
{
	return conn->request && conn->request->is_streamed
		       ? (uint64_t)conn->server->config.stall_timeout_s * MS_PER_SECOND
		       : idle_ms(conn);
}

static uint64_t deadline_of(const struct http_conn *conn)
{
	uint64_t idle = conn->progress_ms + idle_ms(conn);

	if (conn->is_sending) {
		return conn->progress_ms + stall_ms(conn);
	}
	switch (conn->state) {
	case HTTP_CONN_HEAD:
		return http_head_is_fresh(&conn->head) ? idle
						       : MIN(idle, conn->since_ms + head_ms(conn));
	case HTTP_CONN_SERVE:
		if (http_body_is_end(&conn->body) || http_request_room(conn->request) == 0) {
			return NEVER;
		}
		return conn->request->json ? MIN(idle, conn->since_ms + ARRIVAL_MS) : idle;
	case HTTP_CONN_DROP:
		return MIN(idle, conn->since_ms + LINGER_MS);
	case HTTP_CONN_LINGER:
		return MIN(conn->progress_ms + LINGER_IDLE_MS, conn->since_ms + LINGER_MS);
	case HTTP_CONN_SOCKET:
		return http_websocket_deadline(conn->websocket);
	case HTTP_CONN_GONE:
	default:
		return NEVER;
	}
}

/* Silence ends a connection without a word: nobody listens. Who still sends is told. */
static void expire(struct http_conn *conn, uint64_t now)
{
	bool is_silent = conn->is_sending || now >= conn->progress_ms + idle_ms(conn);
	struct err err;

	if (conn->state == HTTP_CONN_SOCKET && !conn->is_sending) {
		http_websocket_expire(conn->websocket);
	} else if (conn->state == HTTP_CONN_HEAD && !is_silent) {
		err_set(&err, ERR_TIMEOUT, "the head of the request took more than %u s to arrive",
			conn->server->config.head_timeout_s);
		http_request_refuse(conn, 0, &err);
	} else if (conn->state == HTTP_CONN_SERVE && !is_silent) {
		fail_body(conn, ERR_TIMEOUT, "the body of the request took too long to arrive");
	} else {
		http_conn_cut(conn);
		return;
	}
	http_conn_wake(conn);
}

/* The timer is moved back only when it fires: mostly a deadline moves on before that. */
static void keep_time(struct http_conn *conn)
{
	bool is_sending = evbuffer_get_length(conn->link.out) > 0;
	uint64_t now = clock_monotonic_ms();

	if (is_sending && !conn->is_sending) {
		conn->progress_ms = now;
	}
	conn->is_sending = is_sending;
	uint64_t deadline = deadline_of(conn);

	if (now >= deadline) {
		expire(conn, now);
	} else if (deadline != NEVER && (conn->armed_ms == 0 || deadline < conn->armed_ms)) {
		conn->armed_ms = deadline;
		loop_timer_set(conn->timer, deadline - now);
	}
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct http_conn *conn = arg;

	(void)fd;
	(void)what;
	conn->armed_ms = 0;
	http_conn_turn(conn);
}

/* ---- turns ---- */

void http_conn_wake(struct http_conn *conn)
{
	if (!conn->is_turn_due && conn->state != HTTP_CONN_GONE) {
		conn->is_turn_due = true;
		loop_defer(conn->server->loop, on_turn_due, conn);
	}
}

void http_conn_turn(struct http_conn *conn)
{
	uint64_t before = conn->link.read_bytes;

	for (unsigned steps = 1; step(conn); steps++) {
		if (steps == TURN_STEPS || conn->link.read_bytes - before > TURN_BYTES) {
			http_conn_wake(conn);
			break;
		}
	}
	if (conn->state != HTTP_CONN_GONE) {
		keep_time(conn);
	}
}

static void on_link(void *arg)
{
	http_conn_turn(arg);
}

/* ---- for request.c and server.c ---- */

void http_conn_answers(struct http_conn *conn, bool wants_body)
{
	if (!wants_body) {
		drop_body(conn);
	}
	conn->closes |= conn->server->is_stopping || conn->body.problem;
	if (!http_body_is_end(&conn->body) &&
		(conn->body.is_chunked || conn->body.left > DROP_MAX_BYTES ||
			conn->is_continue_owed)) {
		conn->closes = true;
	}
	conn->is_continue_owed = false;
}

bool http_conn_is_idle(const struct http_conn *conn)
{
	return conn->state == HTTP_CONN_HEAD && http_head_is_fresh(&conn->head);
}

void http_conn_new(struct http_door *door, int fd, bool is_surplus)
{
	struct http_server *server = door->server;
	struct http_conn *conn = xnew(struct http_conn);

	conn->door = door;
	conn->server = server;
	TAILQ_INSERT_TAIL(&server->conns, conn, entry);
	door->conn_count++;
	http_link_init(&conn->link, server->loop, fd, on_link, conn);
	if (!door->is_admin) {
		http_link_set_tcp(&conn->link);
	}
	http_head_init(&conn->head, server->config.header_bytes);
	http_body_init(&conn->body, false, 0);
	conn->timer = loop_timer_new(server->loop, on_timer, conn);
	await_request(conn);
	if (is_surplus) {
		struct err err;

		err_set(&err, ERR_UNAVAILABLE, "too much is under way; try again");
		http_request_refuse(conn, 0, &err);
	}
	keep_time(conn);
}
