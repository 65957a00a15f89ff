#include "ws_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/xalloc.h"
#include "client/ws_handshake.h"
#include "tests/lib/tmpdir.h"

struct ws_server peer;

static bool read_all(int fd, void *out, size_t len)
{
	return len == 0 || recv(fd, out, len, MSG_WAITALL) == (ssize_t)len;
}

static bool send_all(int fd, const void *data, size_t len)
{
	return send(fd, data, len, MSG_NOSIGNAL) == (ssize_t)len;
}

static bool read_head(int fd)
{
	char byte;

	while (peer.head.len == 0 || ws_head_bytes(peer.head.data, peer.head.len) == 0) {
		if (!read_all(fd, &byte, 1)) {
			return false;
		}
		buffer_add(&peer.head, &byte, 1);
	}
	return true;
}

static bool agree(int fd)
{
	const char *header = strstr(peer.head.data, "Sec-WebSocket-Key: ");
	char key[WS_KEY_BYTES] = "";
	char accept[WS_ACCEPT_BYTES];
	_cleanup_buffer_ struct buffer answer = {0};

	if (header) {
		snprintf(key, sizeof key, "%s", header + 19);
	}
	ws_make_accept(key, accept);
	_cleanup_free_ char *text = xasprintf("HTTP/1.1 101 Switching Protocols\r\n"
					      "Upgrade: websocket\r\nConnection: Upgrade\r\n"
					      "Sec-WebSocket-Accept: %s\r\n"
					      "Sec-WebSocket-Protocol: test.v1\r\n\r\n",
		accept);

	buffer_add_text(&answer, text);
	if (peer.sends.len > 0) {
		buffer_add(&answer, peer.sends.data, peer.sends.len);
	}
	return send_all(fd, answer.data, answer.len);
}

static bool flood(int fd)
{
	static const char bytes[32768];
	const unsigned char head[4] = {0x82, 126, sizeof bytes >> 8, sizeof bytes & 0xff};

	for (size_t i = 0; i < peer.floods; i++) {
		if (!send_all(fd, head, sizeof head) || !send_all(fd, bytes, sizeof bytes)) {
			return false;
		}
	}
	return true;
}

static void record(unsigned opcode, const char *payload, size_t len)
{
	static const char *const names[16] = {[0] = "more",
		[1] = "text",
		[2] = "binary",
		[8] = "close",
		[9] = "ping",
		[10] = "pong"};

	buffer_add_text(&peer.frames, names[opcode] ? names[opcode] : "unknown");
	buffer_add_text(&peer.frames, ":");
	if (len > 0) {
		buffer_add(&peer.frames, payload, len);
	}
	buffer_add_text(&peer.frames, ";");
}

static bool read_frame(int fd)
{
	unsigned char head[2];
	unsigned char long_length[8] = {0};
	unsigned char mask[4] = {0};
	size_t len;

	if (!read_all(fd, head, 2)) {
		return false;
	}
	len = head[1] & 0x7f;
	if (len > 125) {
		size_t n = len == 126 ? 2 : 8;

		if (!read_all(fd, long_length, n)) {
			return false;
		}
		len = 0;
		for (size_t i = 0; i < n; i++) {
			len = len << 8 | long_length[i];
		}
	}
	bool is_masked = head[1] & 0x80;

	peer.has_unmasked = peer.has_unmasked || !is_masked;
	_cleanup_free_ char *payload = xcalloc(1, len + 1);
	if ((is_masked && !read_all(fd, mask, 4)) || !read_all(fd, payload, len)) {
		return false;
	}
	for (size_t i = 0; i < len; i++) {
		payload[i] = (char)(payload[i] ^ mask[i % 4]);
	}
	record(head[0] & 0x0f, payload, len);
	return (head[0] & 0x0f) != 8 || peer.is_deaf || send_all(fd, "\x88\x02\x03\xe8", 4);
}

static void *server_main(void *arg)
{
	const struct timeval limit = {.tv_sec = 20};
	int fd = accept(peer.listener, NULL, NULL);

	(void)arg;
	if (fd < 0) {
		return NULL;
	}
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
	if (read_head(fd)) {
		bool goes_on = peer.refusal ? send_all(fd, peer.refusal, strlen(peer.refusal))
					    : agree(fd) && flood(fd);

		if (peer.leaves) {
			shutdown(fd, SHUT_WR);
		}
		while (goes_on && read_frame(fd)) {
		}
	}
	close(fd);
	return NULL;
}

int ws_server_set_up(void **state)
{
	memset(&peer, 0, sizeof peer);
	return tmpdir_make(state);
}

void ws_server_start(int family)
{
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	struct sockaddr_un un = {.sun_family = AF_UNIX};
	socklen_t len = sizeof in;

	peer.listener = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(peer.listener >= 0);
	if (family == AF_UNIX) {
		peer.socket = tmpdir_path("sock");
		snprintf(un.sun_path, sizeof un.sun_path, "%s", peer.socket);
		assert_int_equal(bind(peer.listener, (struct sockaddr *)&un, sizeof un), 0);
	} else {
		assert_int_equal(bind(peer.listener, (struct sockaddr *)&in, sizeof in), 0);
		getsockname(peer.listener, (struct sockaddr *)&in, &len);
		peer.port = ntohs(in.sin_port);
	}
	assert_int_equal(listen(peer.listener, 1), 0);
	assert_int_equal(pthread_create(&peer.thread, NULL, server_main, NULL), 0);
}

void ws_server_stop(void)
{
	if (peer.thread) {
		shutdown(peer.listener, SHUT_RDWR);
		pthread_join(peer.thread, NULL);
		close(peer.listener);
		peer.thread = 0;
	}
}

int ws_server_tear_down(void **state)
{
	ws_server_stop();
	free(peer.socket);
	buffer_fini(&peer.sends);
	buffer_fini(&peer.head);
	buffer_fini(&peer.frames);
	return tmpdir_drop(state);
}

void ws_server_sends(unsigned char first_byte, const void *data, size_t len)
{
	unsigned char head[4] = {first_byte, (unsigned char)len};
	size_t n = 2;

	if (len > 125) {
		head[1] = 126;
		head[2] = (unsigned char)(len >> 8);
		head[3] = (unsigned char)len;
		n = 4;
	}
	buffer_add(&peer.sends, head, n);
	buffer_add(&peer.sends, data, len);
}

struct rest_client *ws_server_client(void)
{
	_cleanup_free_ char *url = xasprintf("http://127.0.0.1:%u/v1", peer.port);
	struct rest_config config = {.url = url, .key = "pdk_secret", .socket = peer.socket};
	struct err err = ERR_INIT;
	struct rest_client *client = rest_client_new(&config, &err);

	assert_non_null(client);
	return client;
}
