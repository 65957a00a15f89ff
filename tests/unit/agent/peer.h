#pragma once

/*
 * peer - the other end of a guest's channel, played by a test
 *
 * Purpose: listens where QEMU would, reads what the host sends frame by frame, and sends what the
 *          test says. Everything in one thread: waiting pumps the loop.
 * Errors:  a condition that doesn't come true within PEER_PATIENCE_MS fails the test.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/macros.h"
#include "loop/loop.h"
#include "proto/frame.h"
#include "proto/msg.h"

#define PEER_PATIENCE_MS 20000u

struct peer {
	struct loop *loop;
	char dir[64];
	char path[96];
	int listen_fd;
	int fd;
	uint8_t *in;
	size_t in_len;
	size_t in_used;
	uint8_t nonce[FRAME_NONCE_BYTES];
	uint64_t features; /* said in HELLO; at first all but CLOCK */
};

void peer_init(struct peer *peer, struct loop *loop);
void peer_fini(struct peer *peer);
void peer_listen(struct peer *peer);
/* Waits until the host has connected. */
void peer_accept(struct peer *peer);
void peer_hang_up(struct peer *peer);

/* Takes SYNC; answers it and says HELLO. */
void peer_answer_sync(struct peer *peer);
/* Accept, SYNC, HELLO: the session stands after it. */
void peer_start_session(struct peer *peer);

/* Takes the next frame, whatever it is; payload is valid until the next call. */
struct frame peer_receive(struct peer *peer);
/* The next frame that isn't a PING; it must be of @type. */
struct frame peer_expect(struct peer *peer, uint16_t type);
/* True when the host has sent nothing that wasn't taken, after some turns. */
bool peer_is_silent(struct peer *peer);

void peer_send_raw(struct peer *peer, const void *data, size_t len);
void peer_send(struct peer *peer, uint16_t type, uint16_t flags, uint32_t stream, const void *body,
	size_t len);
void peer_send_hello(struct peer *peer);
void peer_send_end(struct peer *peer, uint32_t stream, uint32_t status, const char *text);
/* @out_bytes is the count that END reports. */
void peer_send_exit(struct peer *peer, uint32_t stream, uint32_t exit_code, uint64_t out_bytes);

/* Pumps the loop until @is_true(@arg). */
void peer_wait(struct peer *peer, bool (*is_true)(const void *arg), const void *arg);
/* Some turns of the loop. */
void peer_turns(struct peer *peer, unsigned n);
