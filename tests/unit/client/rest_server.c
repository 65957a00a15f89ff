#include "rest_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/xalloc.h"
#include "tests/lib/tmpdir.h"

struct server server;

/* ---- the server's side ---- */

static size_t read_some(int fd, char *out, size_t size)
{
	ssize_t n = recv(fd, out, size, 0);

	return n > 0 ? (size_t)n : 0;
}

/* One line, CR LF included; false: the peer has gone. */
static bool read_line(int fd, char *out, size_t size)
{
	for (size_t n = 0; n + 1 < size; n++) {
		if (read_some(fd, out + n, 1) == 0) {
			return false;
		}
		if (out[n] == '\n') {
			out[n + 1] = '\0';
			return true;
		}
	}
	return false;
}

static bool read_bytes(int fd, size_t len)
{
	while (len > 0 && server.body_len < sizeof server.body) {
		size_t room = MIN(len, sizeof server.body - server.body_len);
		size_t n = read_some(fd, server.body + server.body_len, room);

		if (n == 0) {
			return false;
		}
		server.body_len += n;
		len -= n;
	}
	return len == 0;
}

static bool read_chunks(int fd)
{
	char line[64];

	for (;;) {
		size_t len = read_line(fd, line, sizeof line) ? strtoul(line, NULL, 16) : 0;

		if (!read_bytes(fd, len) || !read_line(fd, line, sizeof line)) {
			return false;
		}
		if (len == 0) {
			return true;
		}
	}
}

static bool read_request(int fd)
{
	char line[8192];
	size_t used = 0;

	server.head[0] = '\0';
	server.body_len = 0;
	do {
		if (!read_line(fd, line, sizeof line) ||
			used + strlen(line) >= sizeof server.head) {
			return false;
		}
		strcpy(server.head + used, line);
		used += strlen(line);
	} while (strcmp(line, "\r\n") != 0);
	if (server.skips_body) {
		return true;
	}
	const char *length = strstr(server.head, "\r\nContent-Length: ");

	if (strstr(server.head, "\r\nTransfer-Encoding: chunked\r\n")) {
		return read_chunks(fd);
	}
	return !length || read_bytes(fd, strtoul(length + 18, NULL, 10));
}

/* A whole request at a time: a client that is killed leaves a half one, which isn't counted. */
static void serve(int fd)
{
	char byte;

	while (recv(fd, &byte, 1, MSG_PEEK) == 1) {
		pthread_mutex_lock(&server.lock);
		bool is_whole = read_request(fd);

		server.requests += is_whole;
		bool goes_on = is_whole &&
			       send(fd, server.answer, strlen(server.answer), MSG_NOSIGNAL) > 0 &&
			       !server.closes;
		if (!goes_on) {
			shutdown(fd, SHUT_WR);
		}
		pthread_mutex_unlock(&server.lock);
		if (!goes_on) {
			char rest[4096];

			while (read_some(fd, rest, sizeof rest) > 0) {
			}
			return;
		}
	}
}

static void *server_main(void *arg)
{
	const struct timeval limit = {.tv_sec = 20};

	(void)arg;
	for (;;) {
		int fd = accept(server.listener, NULL, NULL);

		if (fd < 0) {
			return NULL;
		}
		setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
		pthread_mutex_lock(&server.lock);
		server.connections++;
		pthread_mutex_unlock(&server.lock);
		serve(fd);
		close(fd);
	}
}

void server_start(int family)
{
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	struct sockaddr_un un = {.sun_family = AF_UNIX};
	socklen_t len = sizeof in;

	server.listener = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(server.listener >= 0);
	if (family == AF_UNIX) {
		server.socket = tmpdir_path("sock");
		snprintf(un.sun_path, sizeof un.sun_path, "%s", server.socket);
		assert_int_equal(bind(server.listener, (struct sockaddr *)&un, sizeof un), 0);
	} else {
		assert_int_equal(bind(server.listener, (struct sockaddr *)&in, sizeof in), 0);
		getsockname(server.listener, (struct sockaddr *)&in, &len);
		server.port = ntohs(in.sin_port);
	}
	assert_int_equal(listen(server.listener, 8), 0);
	assert_int_equal(pthread_create(&server.thread, NULL, server_main, NULL), 0);
}

int server_set_up(void **state)
{
	memset(&server, 0, sizeof server);
	pthread_mutex_init(&server.lock, NULL);
	return tmpdir_make(state);
}

void server_stop(void)
{
	if (server.thread) {
		shutdown(server.listener, SHUT_RDWR);
		pthread_join(server.thread, NULL);
		close(server.listener);
		server.thread = 0;
	}
}

int server_tear_down(void **state)
{
	server_stop();
	free(server.socket);
	pthread_mutex_destroy(&server.lock);
	return tmpdir_drop(state);
}

/* ---- the tests' side ---- */

void server_script(int status, const char *headers, const char *body)
{
	pthread_mutex_lock(&server.lock);
	snprintf(server.answer, sizeof server.answer,
		"HTTP/1.1 %d Whatever\r\nContent-Length: %zu\r\n%s\r\n%s", status, strlen(body),
		headers, body);
	pthread_mutex_unlock(&server.lock);
}

void server_script_raw(const char *bytes, bool closes)
{
	pthread_mutex_lock(&server.lock);
	snprintf(server.answer, sizeof server.answer, "%s", bytes);
	server.closes = closes;
	pthread_mutex_unlock(&server.lock);
}

struct rest_client *server_client(const char *suffix)
{
	_cleanup_free_ char *url = xasprintf("http://127.0.0.1:%u%s", server.port, suffix);
	struct rest_config config = {.url = url, .key = KEY};
	struct err err = ERR_INIT;
	struct rest_client *client = rest_client_new(&config, &err);

	assert_non_null(client);
	return client;
}

void assert_head_has(const char *text)
{
	if (!strstr(server.head, text)) {
		fail_msg("\"%s\" is not in:\n%s", text, server.head);
	}
}

void assert_head_lacks(const char *text)
{
	if (strcasestr(server.head, text)) {
		fail_msg("\"%s\" is in:\n%s", text, server.head);
	}
}
