#include "http/server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <event2/listener.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/xalloc.h"
#include "http/request.h"
#include "http/server_priv.h"
#include "http/websocket.h"

/*
 * Theory of operation. Two doors, one for TCP and one for the admin socket, with listeners each.
 * Connections beyond connections_max are told so (conn.c); beyond a few more of those a door shuts,
 * and what comes waits in the kernel.
 *
 * Accepting fails while the process or the system has no descriptor left, and the connection stays
 * in the kernel's queue: the listener would be ready again at once, for ever. So its door rests.
 */

#define BACKLOG        512
#define REST_MS        200
#define FAILURE_LOG_MS (10u * MS_PER_SECOND)
/* Connections beyond the limit that are being told so. */
#define SURPLUS_MAX 64

static const struct http_config defaults = {
	.body_bytes = 16u << 20,
	.bodies_total_bytes = 256u << 20,
	.header_bytes = 32u << 10,
	.connections_max = 1024,
	.idle_timeout_s = 60,
	.head_timeout_s = 20,
	.stall_timeout_s = 900,
	.out_high_bytes = 1u << 20,
};

static void take_defaults(struct http_config *config)
{
#define TAKE(field) config->field = config->field ? config->field : defaults.field
	TAKE(body_bytes);
	TAKE(bodies_total_bytes);
	TAKE(header_bytes);
	TAKE(connections_max);
	TAKE(idle_timeout_s);
	TAKE(head_timeout_s);
	TAKE(stall_timeout_s);
	TAKE(out_high_bytes);
#undef TAKE
}

static void add_host(struct http_server *server, const char *host)
{
	size_t n = strv_length(server->hosts);

	server->hosts = xrealloc(server->hosts, n + 2, sizeof(char *));
	server->hosts[n] = xstrdup(host);
	server->hosts[n + 1] = NULL;
}

static void on_rested(evutil_socket_t fd, short what, void *arg);

static void door_init(struct http_door *door, struct http_server *server, bool is_admin)
{
	door->server = server;
	door->is_admin = is_admin;
	door->rests = loop_timer_new(server->loop, on_rested, door);
}

static void door_fini(struct http_door *door)
{
	for (size_t i = 0; i < door->listener_count; i++) {
		evconnlistener_free(door->listeners[i]);
	}
	event_free(door->rests);
}

struct http_server *http_server_new(
	struct loop *loop, struct ops *ops, struct auth *auth, const struct http_config *config)
{
	static const char *const loopback[] = {"localhost", "127.0.0.1", "[::1]"};
	struct http_server *server = xnew(struct http_server);

	loop_assert();
	server->loop = loop;
	server->ops = ops;
	server->auth = auth;
	server->config = *config;
	take_defaults(&server->config);
	server->piece = evbuffer_new();
	ASSERT(server->piece);
	TAILQ_INIT(&server->conns);
	for (size_t i = 0; i < ARRAY_SIZE(loopback); i++) {
		add_host(server, loopback[i]);
	}
	for (char *const *host = config->allowed_hosts; host && *host; host++) {
		add_host(server, *host);
	}
	door_init(&server->tcp, server, false);
	door_init(&server->admin, server, true);
	return server;
}

/* Those that still wait for an answer get one, if it leaves at once. */
static void end_conn(struct http_conn *conn)
{
	struct http_request *request = conn->request;
	struct err err;

	if (conn->state == HTTP_CONN_SERVE && !request->is_answered && !request->stream) {
		err_set(&err, ERR_UNAVAILABLE, "the service is stopping");
		http_request_fail(request, 0, &err);
		http_link_write(&conn->link);
	}
	http_conn_cut(conn);
}

void http_server_free(struct http_server *server)
{
	if (!server) {
		return;
	}
	server->is_stopping = true;
	while (!TAILQ_EMPTY(&server->conns)) {
		end_conn(TAILQ_FIRST(&server->conns));
	}
	ASSERT(server->pending == 0);
	door_fini(&server->tcp);
	door_fini(&server->admin);
	if (server->admin_path) {
		unlink(server->admin_path);
	}
	evbuffer_free(server->piece);
	free(server->admin_path);
	strv_free(server->hosts);
	free(server);
}

/* ---- doors ---- */

static void switch_listeners(struct http_door *door)
{
	bool accepts = !door->is_shut && !evtimer_pending(door->rests, NULL);

	for (size_t i = 0; i < door->listener_count; i++) {
		if (accepts) {
			evconnlistener_enable(door->listeners[i]);
		} else {
			evconnlistener_disable(door->listeners[i]);
		}
	}
}

void http_door_accept(struct http_door *door, bool accepts)
{
	if (door->is_shut == accepts) {
		door->is_shut = !accepts;
		switch_listeners(door);
	}
}

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *address,
	int len, void *arg)
{
	struct http_door *door = arg;
	unsigned max = door->server->config.connections_max;

	(void)listener;
	(void)address;
	(void)len;
	http_conn_new(door, fd, door->conn_count >= max);
	if (door->conn_count >= max + SURPLUS_MAX) {
		http_door_accept(door, false);
	}
}

/* ---- accepting that fails ---- */

static void on_rested(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	switch_listeners(arg);
}

/* It lasts as long as the cause does: one line now and then says enough. */
static void log_accept_error(struct http_door *door, int error)
{
	uint64_t now_ms = clock_monotonic_ms();

	if (door->failure_logged_ms && now_ms - door->failure_logged_ms < FAILURE_LOG_MS) {
		door->failures_unlogged++;
		return;
	}
	log_warn("connections can't be accepted", "admin=%d errno=%d held_back=%u", door->is_admin,
		error, door->failures_unlogged);
	door->failure_logged_ms = now_ms;
	door->failures_unlogged = 0;
}

static void on_accept_error(struct evconnlistener *listener, void *arg)
{
	const int error = errno;
	struct http_door *door = arg;

	(void)listener;
	log_accept_error(door, error);
	loop_timer_set(door->rests, REST_MS);
	switch_listeners(door);
}

/* ---- listening ---- */

/* @mode: of a unix socket's path; 0: TCP. */
static int bound_socket(const struct sockaddr *address, socklen_t len, mode_t mode,
	const char *shown, struct err *err)
{
	const int on = 1;
	_cleanup_close_ int fd = socket(
		address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0) {
		return err_sys(err, errno, "socket for %s", shown);
	}
	/* The path takes its mode from the socket, so it is never there with another. */
	if (mode ? fchmod(fd, mode) < 0
		 : setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0) {
		return err_sys(err, errno, "prepare the socket for %s", shown);
	}
	if (bind(fd, address, len) < 0 || listen(fd, BACKLOG) < 0) {
		return errno == EADDRINUSE ? err_set(err, ERR_CONFLICT,
						     "%s is in use by another program", shown)
					   : err_sys(err, errno, "listen on %s", shown);
	}
	return steal_fd(&fd);
}

static int listen_on(struct http_door *door, int fd, struct err *err)
{
	struct evconnlistener *listener;

	if (door->listener_count == HTTP_LISTENERS_MAX) {
		close(fd);
		return err_set(err, ERR_INVALID, "at most %d addresses can be listened on",
			HTTP_LISTENERS_MAX);
	}
	listener = evconnlistener_new(loop_base(door->server->loop), on_accept, door,
		LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC | LEV_OPT_DISABLED, 0, fd);
	if (!listener) {
		close(fd);
		return err_set(err, ERR_INTERNAL, "no memory for a listener");
	}
	evconnlistener_set_error_cb(listener, on_accept_error);
	door->listeners[door->listener_count++] = listener;
	switch_listeners(door);
	return 0;
}

static socklen_t parse_address(const char *address, uint16_t port, struct sockaddr_storage *ret,
	char host[INET6_ADDRSTRLEN + 2])
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)ret;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)ret;
	char text[INET6_ADDRSTRLEN];

	memset(ret, 0, sizeof *ret);
	if (inet_pton(AF_INET, address, &v4->sin_addr) == 1) {
		v4->sin_family = AF_INET;
		v4->sin_port = htons(port);
		inet_ntop(AF_INET, &v4->sin_addr, host, INET6_ADDRSTRLEN);
		return sizeof *v4;
	}
	if (inet_pton(AF_INET6, address, &v6->sin6_addr) == 1) {
		v6->sin6_family = AF_INET6;
		v6->sin6_port = htons(port);
		inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof text);
		snprintf(host, INET6_ADDRSTRLEN + 2, "[%s]", text);
		return sizeof *v6;
	}
	return 0;
}

static uint16_t port_of(evutil_socket_t fd)
{
	struct sockaddr_storage address;
	socklen_t len = sizeof address;

	if (getsockname(fd, (struct sockaddr *)&address, &len) < 0) {
		return 0;
	}
	return ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&address)->sin6_port
						   : ((struct sockaddr_in *)&address)->sin_port);
}

int http_server_listen(struct http_server *server, const char *address, uint16_t port,
	uint16_t *ret_port, struct err *err)
{
	struct sockaddr_storage storage;
	char host[INET6_ADDRSTRLEN + 2];
	char shown[INET6_ADDRSTRLEN + 16];
	socklen_t len = parse_address(address, port, &storage, host);

	if (len == 0) {
		return err_set(err, ERR_INVALID, "\"%s\" is not a numeric IP address to listen on",
			address);
	}
	snprintf(shown, sizeof shown, "%s:%u", host, port);
	int fd = bound_socket((struct sockaddr *)&storage, len, 0, shown, err);

	if (fd < 0 || listen_on(&server->tcp, fd, err) < 0) {
		return -1;
	}
	add_host(server, host); /* who connects to it by its number says so */
	if (ret_port) {
		*ret_port = port_of(fd);
	}
	return 0;
}

static int remove_stale(const struct sockaddr_un *address, struct err *err)
{
	struct stat st;

	if (lstat(address->sun_path, &st) < 0) {
		return 0; /* bind() tells what else is wrong */
	}
	if (!S_ISSOCK(st.st_mode)) {
		return err_set(err, ERR_CONFLICT, "%s is there already and is no socket",
			address->sun_path);
	}
	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0) {
		return err_sys(err, errno, "socket for %s", address->sun_path);
	}
	if (connect(fd, (const struct sockaddr *)address, sizeof *address) == 0 ||
		errno == EAGAIN) {
		return err_set(
			err, ERR_CONFLICT, "%s is in use by another program", address->sun_path);
	}
	unlink(address->sun_path);
	return 0;
}

int http_server_listen_admin(struct http_server *server, const char *path, struct err *err)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	if (strlen(path) >= sizeof address.sun_path) {
		return err_set(err, ERR_INVALID,
			"the admin socket's path must have at most %zu bytes",
			sizeof address.sun_path - 1);
	}
	memcpy(address.sun_path, path, strlen(path) + 1);
	if (remove_stale(&address, err) < 0) {
		return -1;
	}
	int fd = bound_socket((struct sockaddr *)&address, sizeof address, 0600, path, err);

	if (fd < 0) {
		return -1;
	}
	server->admin_path = xstrdup(path);
	return listen_on(&server->admin, fd, err);
}

void http_server_stop(struct http_server *server)
{
	struct http_conn *conn;
	struct http_conn *next;

	server->is_stopping = true;
	http_door_accept(&server->tcp, false);
	http_door_accept(&server->admin, false);
	for (conn = TAILQ_FIRST(&server->conns); conn; conn = next) {
		next = TAILQ_NEXT(conn, entry);
		if (http_conn_is_idle(conn)) {
			http_conn_cut(conn);
		} else if (conn->state == HTTP_CONN_SOCKET) {
			http_websocket_stop(conn->websocket);
		}
	}
}

size_t http_server_pending(const struct http_server *server)
{
	return server->pending;
}
