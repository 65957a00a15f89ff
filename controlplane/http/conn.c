#include "http/conn.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#include "api/api_errors.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/json.h"
#include "base/xalloc.h"
#include "http/reply.h"
#include "http/request.h"
#include "http/server_priv.h"
#include "ops/ops.h"

/*
 * Theory of operation. evhttp asks for a bufferevent for each connection that it accepts, and later
 * names a connection only by an evhttp_connection, which can't carry a pointer of ours. So:
 *
 * - http_conn_new() makes bufferevent and object, and watches the input buffer. evhttp's own object
 *   doesn't exist yet.
 * - http_conn_adopt() runs with the first bytes, at the latest in the loop's next turn. evhttp has
 * put itself into the bufferevent's callbacks by then: their argument is the evhttp_connection. It
 * gets our close callback, which evhttp calls once, whatever ends the connection; and the object is
 * found by its descriptor from then on. Until then we hold a reference to the bufferevent; if
 * evhttp has freed it meanwhile, its callbacks are gone, which shows.
 *
 * evhttp buffers whole bodies, and tells of a request once all of it is there. What comes in is
 * counted here as it comes, and its head is looked at (head.h). Over one of the limits the
 * connection is taken away from evhttp: it gets an answer in JSON, its sending side is shut, and
 * what the client still sends is thrown away for a while, since closing at once would reset the
 * connection and the client might never see the answer.
 */

/* Request line, headers and chunk headers, on top of the body. */
#define OVERHEAD_BYTES (256u * 1024)
/* Connections beyond the limit that are being told so; what comes then waits in the kernel. */
#define SURPLUS_MAX 64
/* From a request's first byte to its last: drops may not keep a connection for ever. */
#define ARRIVAL_MS (600u * MS_PER_SECOND)
/* After a refusal: without a byte, and in all. */
#define LINGER_SECONDS 5
#define LINGER_MS      (60u * MS_PER_SECOND)
#define LINGER_BYTES   (256u * 1024 * 1024)

static void sending_ended(struct http_conn *conn)
{
	if (conn->is_sending) {
		conn->is_sending = false;
		conn->door->server->sending--;
	}
}

static void conn_free(struct http_conn *conn)
{
	struct http_server *server = conn->door->server;

	sending_ended(conn);
	server->held_bytes -= conn->held_bytes;
	TAILQ_REMOVE(&server->conns, conn, link);
	conn->door->conn_count--;
	if (!server->is_stopping) {
		http_door_accept(conn->door, true);
	}
	free(conn);
}

static void on_close(struct evhttp_connection *evcon, void *arg)
{
	struct http_conn *conn = arg;
	struct http_server *server = conn->door->server;

	evhttp_connection_set_closecb(evcon, NULL, NULL);
	server->by_fd[conn->fd] = NULL;
	loop_cancel_deferred(server->loop, http_conn_refuse, conn);
	if (conn->request) {
		http_request_lost(conn->request);
	}
	conn_free(conn);
}

static void index_by_fd(struct http_server *server, struct http_conn *conn)
{
	size_t fd = (size_t)conn->fd;

	if (fd >= server->by_fd_size) {
		size_t size = MAX(fd + 1, server->by_fd_size * 2);

		server->by_fd = xrealloc(server->by_fd, size, sizeof server->by_fd[0]);
		memset(server->by_fd + server->by_fd_size, 0,
			(size - server->by_fd_size) * sizeof server->by_fd[0]);
		server->by_fd_size = size;
	}
	ASSERT(server->by_fd[fd] == NULL);
	server->by_fd[fd] = conn;
}

/* A download's headers and its first bytes are two writes: the second mustn't wait for the client's
 * acknowledgement of the first. */
static void send_at_once(const struct http_conn *conn)
{
	const int on = 1;

	if (!conn->door->is_admin) {
		setsockopt(conn->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	}
}

/* From the loop, not from within evhttp's reading. */
static void refuse_later(struct http_conn *conn, enum err_kind kind)
{
	if (conn->refusal == ERR_NONE) {
		conn->refusal = kind;
		loop_defer(conn->door->server->loop, http_conn_refuse, conn);
	}
}

void http_conn_adopt(void *arg)
{
	struct http_conn *conn = arg;
	struct http_server *server = conn->door->server;
	struct bufferevent *bev = conn->bev;
	void *evcon = NULL;

	loop_cancel_deferred(server->loop, http_conn_adopt, conn);
	bufferevent_getcb(bev, NULL, NULL, NULL, &evcon);
	if (!evcon) {
		conn_free(conn);
	} else {
		conn->evcon = evcon;
		conn->fd = bufferevent_getfd(bev);
		evhttp_connection_set_closecb(conn->evcon, on_close, conn);
		index_by_fd(server, conn);
		send_at_once(conn);
		if (conn->is_surplus) {
			refuse_later(conn, ERR_UNAVAILABLE);
		}
	}
	bufferevent_decref(bev);
}

/* The last @len bytes of @input are new; those of a head are looked at before evhttp takes them. */
static void scan_head(struct http_conn *conn, struct evbuffer *input, size_t len)
{
	struct evbuffer_iovec piece;
	struct evbuffer_ptr at;
	int ret = evbuffer_ptr_set(input, &at, evbuffer_get_length(input) - len, EVBUFFER_PTR_SET);

	ASSERT(ret == 0);
	while (len > 0 && conn->head.state != HTTP_HEAD_OVER &&
		evbuffer_peek(input, -1, &at, &piece, 1) > 0) {
		http_head_scan(&conn->head, piece.iov_base, piece.iov_len);
		len -= MIN(len, piece.iov_len);
		if (len > 0) {
			evbuffer_ptr_set(input, &at, piece.iov_len, EVBUFFER_PTR_ADD);
		}
	}
}

static void on_input(struct evbuffer *input, const struct evbuffer_cb_info *info, void *arg)
{
	struct http_conn *conn = arg;
	struct http_server *server = conn->door->server;

	if (info->n_added == 0) {
		return;
	}
	if (!conn->evcon) {
		http_conn_adopt(conn);
	}
	scan_head(conn, input, info->n_added);
	if (conn->refusal != ERR_NONE) {
		return;
	}
	if (conn->held_bytes == 0) {
		conn->since_ms = clock_monotonic_ms();
	}
	if (!http_conn_charge(conn, info->n_added)) {
		refuse_later(conn, ERR_UNAVAILABLE);
	} else if (clock_monotonic_ms() - conn->since_ms > ARRIVAL_MS) {
		refuse_later(conn, ERR_TIMEOUT);
	} else if (conn->held_bytes > server->config.body_bytes + OVERHEAD_BYTES) {
		refuse_later(conn, ERR_TOO_LARGE);
	}
}

struct bufferevent *http_conn_new(struct event_base *base, void *arg)
{
	struct http_door *door = arg;
	struct http_server *server = door->server;
	struct bufferevent *bev = bufferevent_socket_new(base, -1, BEV_OPT_CLOSE_ON_FREE);

	if (!bev) {
		return NULL;
	}
	struct http_conn *conn = xnew(struct http_conn);

	conn->door = door;
	conn->bev = bev;
	conn->fd = -1;
	TAILQ_INSERT_TAIL(&server->conns, conn, link);
	door->conn_count++;
	conn->is_surplus = door->conn_count > server->config.connections_max;
	if (door->conn_count >= server->config.connections_max + SURPLUS_MAX) {
		http_door_accept(door, false);
	}
	evbuffer_add_cb(bufferevent_get_input(bev), on_input, conn);
	bufferevent_incref(bev);
	loop_defer(server->loop, http_conn_adopt, conn);
	return bev;
}

struct http_conn *http_conn_of(struct http_door *door, struct evhttp_request *evreq)
{
	struct http_server *server = door->server;
	struct evhttp_connection *evcon = evhttp_request_get_connection(evreq);
	size_t fd = (size_t)bufferevent_getfd(evhttp_connection_get_bufferevent(evcon));

	ASSERT(fd < server->by_fd_size && server->by_fd[fd] && server->by_fd[fd]->evcon == evcon);
	return server->by_fd[fd];
}

/* ---- a request's turns ---- */

/* evhttp gives one time-out to both directions, and while it sends it reads as well, to see the end
 * of a connection. */
static void set_timeouts(struct http_conn *conn, bool is_clients_turn)
{
	const struct timeval idle = {.tv_sec = conn->door->server->config.idle_timeout_s};

	bufferevent_set_timeouts(conn->bev, is_clients_turn ? &idle : NULL, &idle);
}

void http_conn_arrived(struct http_conn *conn)
{
	set_timeouts(conn, false);
}

/* ---- counting ---- */

bool http_conn_charge(struct http_conn *conn, uint64_t bytes)
{
	struct http_server *server = conn->door->server;

	if (server->held_bytes + bytes > server->config.bodies_total_bytes) {
		return false;
	}
	conn->held_bytes += bytes;
	server->held_bytes += bytes;
	return true;
}

static void uncharge(struct http_conn *conn, uint64_t bytes)
{
	bytes = MIN(bytes, conn->held_bytes);
	conn->held_bytes -= bytes;
	conn->door->server->held_bytes -= bytes;
}

void http_conn_sent(struct http_conn *conn)
{
	struct http_server *server = conn->door->server;
	struct evbuffer *input = bufferevent_get_input(conn->bev);
	uint64_t left = evbuffer_get_length(input);

	conn->head = HTTP_HEAD_INIT;
	scan_head(conn, input, left);
	sending_ended(conn);
	uncharge(conn, conn->held_bytes);
	conn->held_bytes = MIN(left, server->config.bodies_total_bytes - server->held_bytes);
	server->held_bytes += conn->held_bytes;
	conn->since_ms = clock_monotonic_ms();
	set_timeouts(conn, true);
}

/* ---- ends that aren't evhttp's ---- */

bool http_conn_is_idle(const struct http_conn *conn)
{
	return conn->evcon && !conn->request && !conn->is_sending && conn->held_bytes == 0;
}

void http_conn_break(struct http_conn *conn)
{
	const struct sockaddr none = {.sa_family = AF_UNSPEC};

	/* A reset, at once: evhttp would shut its side in order first. Unix sockets have none. */
	connect(conn->fd, &none, sizeof none);
	http_conn_cut(conn);
}

void http_conn_cut(struct http_conn *conn)
{
	/* Calls on_close(). */
	evhttp_connection_free(conn->evcon);
}

/* A read that evhttp had put off by then comes here as well, with evhttp's argument. */
static void on_linger_read(struct bufferevent *bev, void *unreliable)
{
	void *own;
	struct evbuffer *input = bufferevent_get_input(bev);

	(void)unreliable;
	bufferevent_getcb(bev, NULL, NULL, NULL, &own);
	struct http_conn *conn = own;

	conn->drained_bytes += evbuffer_get_length(input);
	evbuffer_drain(input, evbuffer_get_length(input));
	if (conn->drained_bytes > LINGER_BYTES ||
		clock_monotonic_ms() - conn->since_ms > LINGER_MS) {
		http_conn_cut(conn);
	}
}

static void on_linger_written(struct bufferevent *bev, void *arg)
{
	(void)arg;
	shutdown(bufferevent_getfd(bev), SHUT_WR);
}

static void on_linger_end(struct bufferevent *bev, short what, void *arg)
{
	(void)bev;
	(void)what;
	http_conn_cut(arg);
}

void http_conn_reject(struct http_conn *conn)
{
	refuse_later(conn, ERR_INVALID);
}

void http_conn_explain(const struct http_conn *conn, struct err *err)
{
	if (conn->refusal == ERR_TOO_LARGE) {
		err_set(err, ERR_TOO_LARGE, "the body must have at most %llu bytes",
			(unsigned long long)conn->door->server->config.body_bytes);
	} else if (conn->refusal == ERR_TIMEOUT) {
		err_set(err, ERR_TIMEOUT, "the request took more than %u s to arrive",
			ARRIVAL_MS / MS_PER_SECOND);
	} else if (conn->refusal == ERR_INVALID) {
		err_set(err, ERR_INVALID, "CONNECT is for proxies; this is none");
	} else {
		err_set(err, ERR_UNAVAILABLE, "too much is under way; try again");
	}
}

static void write_refusal(struct http_conn *conn)
{
	struct err err;
	char id[ID_BYTES];
	size_t len;
	struct evbuffer *out = bufferevent_get_output(conn->bev);

	id_make(id, ID_REQUEST);
	http_conn_explain(conn, &err);
	const struct api_error *error = api_error_of(err.kind);
	_cleanup_json_ json_object *body = op_error_json(&err, id);
	const char *text = json_text(body, &len);

	evbuffer_add_printf(out,
		"HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n"
		"X-Request-Id: %s\r\nConnection: close\r\n",
		error->status, http_reason(error->status), len, id);
	if (error->retry_after_s > 0) {
		evbuffer_add_printf(out, "Retry-After: %u\r\n", error->retry_after_s);
	}
	evbuffer_add_printf(out, "\r\n%s", text);
	http_log_refusal(conn->door->server, NULL, id, error->status, &err);
}

void http_conn_refuse(void *arg)
{
	struct http_conn *conn = arg;
	struct timeval linger = {.tv_sec = LINGER_SECONDS};
	struct evbuffer *input = bufferevent_get_input(conn->bev);

	/* Too much came behind a request whose answer is being sent: nothing can be said between.
	 */
	if (conn->request || evbuffer_get_length(bufferevent_get_output(conn->bev)) > 0) {
		http_conn_cut(conn);
		return;
	}
	conn->since_ms = clock_monotonic_ms();
	bufferevent_setcb(conn->bev, on_linger_read, on_linger_written, on_linger_end, conn);
	uncharge(conn, evbuffer_get_length(input));
	evbuffer_drain(input, evbuffer_get_length(input));
	write_refusal(conn);
	bufferevent_set_timeouts(conn->bev, &linger, &linger);
	bufferevent_enable(conn->bev, EV_READ | EV_WRITE);
}
