#include "peer.h"

#include "tests/lib/cm.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cleanup.h"
#include "base/xalloc.h"

#define IN_BYTES (4u * 1024u * 1024u)

void peer_init(struct peer *peer, struct loop *loop)
{
	*peer = (struct peer){.loop = loop,
		.listen_fd = -1,
		.fd = -1,
		.features = PROTO_FEATURE_CGROUP | PROTO_FEATURE_JOBS | PROTO_FEATURE_PTY};
	strcpy(peer->dir, "/tmp/paddock-peer-XXXXXX");
	assert_non_null(mkdtemp(peer->dir));
	snprintf(peer->path, sizeof peer->path, "%s/agent.sock", peer->dir);
	peer->in = xcalloc(1, IN_BYTES);
}

void peer_fini(struct peer *peer)
{
	peer_hang_up(peer);
	if (peer->listen_fd >= 0) {
		close(steal_fd(&peer->listen_fd));
	}
	unlink(peer->path);
	rmdir(peer->dir);
	free(steal_ptr(&peer->in));
}

void peer_listen(struct peer *peer)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};

	strcpy(addr.sun_path, peer->path);
	peer->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	assert_true(peer->listen_fd >= 0);
	assert_int_equal(bind(peer->listen_fd, (const struct sockaddr *)&addr, sizeof addr), 0);
	assert_int_equal(listen(peer->listen_fd, 4), 0);
}

/* Our own descriptors aren't in the loop: don't stay there for long. */
static void turn(struct peer *peer)
{
	loop_turn_for(peer->loop, 1);
}

void peer_turns(struct peer *peer, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		turn(peer);
	}
}

void peer_wait(struct peer *peer, bool (*is_true)(const void *arg), const void *arg)
{
	uint64_t end = clock_monotonic_ms() + PEER_PATIENCE_MS;

	while (!is_true(arg)) {
		assert_true(clock_monotonic_ms() < end);
		turn(peer);
	}
}

void peer_accept(struct peer *peer)
{
	uint64_t end = clock_monotonic_ms() + PEER_PATIENCE_MS;

	assert_true(peer->fd < 0);
	for (;;) {
		peer->fd = accept4(peer->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (peer->fd >= 0) {
			break;
		}
		assert_int_equal(errno, EAGAIN);
		assert_true(clock_monotonic_ms() < end);
		turn(peer);
	}
	peer->in_len = 0;
	peer->in_used = 0;
}

void peer_hang_up(struct peer *peer)
{
	if (peer->fd >= 0) {
		close(steal_fd(&peer->fd));
	}
}

static void read_some(struct peer *peer)
{
	ssize_t n = read(peer->fd, peer->in + peer->in_len, IN_BYTES - peer->in_len);

	if (n < 0) {
		assert_int_equal(errno, EAGAIN);
		return;
	}
	assert_true(n > 0);
	peer->in_len += (size_t)n;
}

struct frame peer_receive(struct peer *peer)
{
	uint64_t end = clock_monotonic_ms() + PEER_PATIENCE_MS;
	struct frame frame;
	size_t used;

	memmove(peer->in, peer->in + peer->in_used, peer->in_len - peer->in_used);
	peer->in_len -= peer->in_used;
	peer->in_used = 0;
	for (;;) {
		enum frame_result result = frame_parse(
			FRAME_SIDE_HOST, peer->in, peer->in_len, &frame, &used);

		if (result == FRAME_OK) {
			break;
		}
		assert_int_equal(result, FRAME_INCOMPLETE);
		assert_true(clock_monotonic_ms() < end);
		turn(peer);
		read_some(peer);
	}
	peer->in_used = used;
	return frame;
}

struct frame peer_expect(struct peer *peer, uint16_t type)
{
	struct frame frame;

	do {
		frame = peer_receive(peer);
	} while (frame.type == FRAME_PING);
	assert_string_equal(frame_type_name(frame.type), frame_type_name(type));
	return frame;
}

bool peer_is_silent(struct peer *peer)
{
	uint8_t byte;

	peer_turns(peer, 20);
	return peer->in_len == peer->in_used && recv(peer->fd, &byte, 1, MSG_PEEK) < 0;
}

void peer_send_raw(struct peer *peer, const void *data, size_t len)
{
	const uint8_t *p = data;
	uint64_t end = clock_monotonic_ms() + PEER_PATIENCE_MS;

	while (len > 0) {
		ssize_t n = send(peer->fd, p, len, MSG_NOSIGNAL);

		if (n < 0 && errno == EAGAIN) {
			assert_true(clock_monotonic_ms() < end);
			turn(peer);
			continue;
		}
		if (n < 0) {
			/* The host has hung up; what the test expects next tells. */
			return;
		}
		p += n;
		len -= (size_t)n;
	}
}

void peer_send(struct peer *peer, uint16_t type, uint16_t flags, uint32_t stream, const void *body,
	size_t len)
{
	_cleanup_free_ uint8_t *raw = xcalloc(1, PROTO_HEADER_BYTES + len);

	frame_header(raw, type, flags, stream, (uint32_t)len);
	if (len > 0) {
		memcpy(raw + PROTO_HEADER_BYTES, body, len);
	}
	peer_send_raw(peer, raw, PROTO_HEADER_BYTES + len);
}

void peer_send_hello(struct peer *peer)
{
	uint8_t body[256];
	struct msg_writer w = {.buf = body, .size = sizeof body};

	msg_put_u32(&w, MSG_VERSION, PROTO_VERSION);
	msg_put_u64(&w, MSG_FEATURES, peer->features);
	msg_put_text(&w, MSG_SOFTWARE, "peer/1");
	msg_put_text(&w, MSG_BOOT_ID, "boot-1");
	msg_put_text(&w, MSG_IMAGE, "minimal\n1");
	peer_send(peer, FRAME_HELLO, 0, 0, body, w.len);
}

void peer_answer_sync(struct peer *peer)
{
	struct frame frame = peer_expect(peer, FRAME_SYNC);
	uint8_t ack[FRAME_SYNC_BYTES];

	memcpy(ack, frame.payload, sizeof ack);
	memcpy(peer->nonce, ack + FRAME_MAGIC_BYTES, FRAME_NONCE_BYTES);
	peer_send(peer, FRAME_SYNC_ACK, 0, 0, ack, sizeof ack);
	peer_send_hello(peer);
}

void peer_start_session(struct peer *peer)
{
	struct frame frame;

	peer_accept(peer);
	peer_answer_sync(peer);
	do {
		frame = peer_receive(peer);
	} while (frame.type == FRAME_SYNC);
	assert_int_equal(frame.type, FRAME_HELLO);
}

void peer_send_end(struct peer *peer, uint32_t stream, uint32_t status, const char *text)
{
	uint8_t body[512];
	struct msg_writer w = {.buf = body, .size = sizeof body};

	msg_put_u32(&w, MSG_STATUS, status);
	if (text) {
		msg_put_text(&w, MSG_TEXT, text);
		msg_put_u32(&w, MSG_ERRNO, 2);
	}
	peer_send(peer, FRAME_END, 0, stream, body, w.len);
}

void peer_send_exit(struct peer *peer, uint32_t stream, uint32_t exit_code, uint64_t out_bytes)
{
	uint8_t body[512];
	struct msg_writer w = {.buf = body, .size = sizeof body};

	msg_put_u32(&w, MSG_STATUS, STATUS_OK);
	msg_put_u32(&w, MSG_EXIT_CODE, exit_code);
	msg_put_u64(&w, MSG_OUT_BYTES, out_bytes);
	msg_put_u64(&w, MSG_DURATION_US, 1234);
	peer_send(peer, FRAME_END, 0, stream, body, w.len);
}
