#pragma once

/*
 * frame - the outermost layer of the guest protocol
 *
 * Purpose: header layout, message types, and an incremental parser: bytes in, frames out.
 *          PROTOCOL.md is the contract; this is its C form.
 * Owns:    nothing; the parser borrows the caller's buffer.
 * Thread:  any; no state outside the arguments.
 * Errors:  enum frame_result.
 * Uses:    limits.h.
 *
 * On the wire (little endian):
 *
 *   0       4      6       8        12
 *   +-------+------+-------+--------+----------------+
 *   |length | type | flags | stream | payload[length]|
 *   +-------+------+-------+--------+----------------+
 *
 * length counts the payload alone. Stream 0 carries the session (SYNC..PONG), the others one call
 * each. The host opens them with rising numbers that are never used again within a session.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/limits.h"

/* X(number, NAME, direction) - numbers are never reused. */
#define FRAME_TYPES(X)                                                                             \
	/* session, stream 0 */                                                                    \
	X(1, SYNC, HOST)      /* magic, nonce: start over; legal at any time */                    \
	X(2, SYNC_ACK, GUEST) /* magic, the same nonce */                                          \
	X(3, HELLO, BOTH)     /* version, features, limits; first frame after SYNC */              \
	X(4, ABORT, BOTH)     /* status, text: the sender gives the session up */                  \
	X(5, PING, HOST)      /* up to 64 bytes */                                                 \
	X(6, PONG, GUEST)     /* the same bytes */                                                 \
	/* calls: the first frame of a stream */                                                   \
	X(16, EXEC, HOST)                                                                          \
	X(17, FILE_PUT, HOST)                                                                      \
	X(18, FILE_GET, HOST)                                                                      \
	X(19, FILE_LIST, HOST)                                                                     \
	X(20, CONFIGURE, HOST)                                                                     \
	X(21, SHUTDOWN, HOST)                                                                      \
	/* calls that PROTO_FEATURE_JOBS announces */                                              \
	X(22, SIGNAL, HOST) /* to the tree of a running command, by its id */                      \
	X(23, JOB_START, HOST)                                                                     \
	X(24, JOB_WAIT, HOST)                                                                      \
	X(25, JOB_READ, HOST)                                                                      \
	X(26, JOB_INPUT, HOST)                                                                     \
	X(27, JOB_RESIZE, HOST)                                                                    \
	X(28, JOB_LIST, HOST)                                                                      \
	X(29, JOB_FORGET, HOST)                                                                    \
	/* within a stream */                                                                      \
	X(32, DATA, BOTH)     /* bytes of a channel, within its window */                          \
	X(33, CLOSE, BOTH)    /* no more DATA on that channel */                                   \
	X(34, WINDOW, BOTH)   /* u32: more credit for that channel */                              \
	X(35, CANCEL, HOST)   /* end the call soon; END still follows */                           \
	X(36, STARTED, GUEST) /* the call is under way; see msg.h */                               \
	X(37, END, GUEST)     /* result; nothing follows on this stream */                         \
	X(38, GAP, GUEST)     /* u64: JOB_READ goes on at that offset; what lies before is gone */

enum frame_type {
#define X(number, name, dir) FRAME_##name = number,
	FRAME_TYPES(X)
#undef X
};

enum frame_side { FRAME_SIDE_HOST = 1, FRAME_SIDE_GUEST = 2, FRAME_SIDE_BOTH = 3 };

/* Flags. The low byte is the channel of DATA, CLOSE and WINDOW; other bits must be zero. */
#define FRAME_CHANNEL_MASK 0x00ffu
#define FRAME_MORE         0x0100u /* calls only: the body goes on in the next frame of this stream */

enum frame_channel {
	FRAME_CHANNEL_IN = 0,  /* host to guest: stdin, file contents */
	FRAME_CHANNEL_OUT = 1, /* guest to host: stdout, file contents, list entries */
	FRAME_CHANNEL_ERR = 2, /* guest to host: stderr */
	FRAME_CHANNEL_MAX
};

/* SYNC and SYNC_ACK: 16 bytes of magic and 16 of nonce. */
#define FRAME_MAGIC_BYTES 16u
#define FRAME_NONCE_BYTES 16u
#define FRAME_SYNC_BYTES  (FRAME_MAGIC_BYTES + FRAME_NONCE_BYTES)
extern const uint8_t frame_magic[FRAME_MAGIC_BYTES];

struct frame {
	uint16_t type;
	uint16_t flags;
	uint32_t stream;
	uint32_t length;
	const uint8_t *payload; /* into the buffer that was parsed */
};

enum frame_result {
	FRAME_OK,         /* *ret is filled, *ret_used bytes belong to it */
	FRAME_INCOMPLETE, /* more bytes are needed; nothing used */
	FRAME_BAD,        /* the peer broke the protocol: hunt for SYNC or drop it */
};

/*
 * Takes one frame off the front of @buf. @from is the side that sent it: a type that this side may
 * not send, an unknown type, an excessive length, stray flags, or a stream that doesn't fit the
 * type (0 for the session, other than 0 for calls) is FRAME_BAD. Sizes of fixed-size payloads
 * (SYNC, WINDOW, PING, PONG, CLOSE, CANCEL) are checked here too.
 */
enum frame_result frame_parse(
	enum frame_side from, const uint8_t *buf, size_t len, struct frame *ret, size_t *ret_used);

/*
 * Looks for a SYNC (from the host) or SYNC_ACK (from the guest) in @buf, whatever surrounds it.
 * FRAME_OK: found at *ret_offset. FRAME_INCOMPLETE: the first *ret_offset bytes can't be part of
 * one and may be dropped; keep the rest.
 */
enum frame_result frame_hunt(
	enum frame_side from, const uint8_t *buf, size_t len, size_t *ret_offset);

/* Writes a header into PROTO_HEADER_BYTES at @out. */
void frame_header(uint8_t *out, uint16_t type, uint16_t flags, uint32_t stream, uint32_t length);

/* "EXEC", or NULL for a number that no type has. */
const char *frame_type_name(uint16_t type);
/* True for EXEC..JOB_FORGET. */
bool frame_type_is_call(uint16_t type);

/* Little-endian access, unaligned. */
uint16_t get_le16(const uint8_t *p);
uint32_t get_le32(const uint8_t *p);
uint64_t get_le64(const uint8_t *p);
void put_le16(uint8_t *p, uint16_t v);
void put_le32(uint8_t *p, uint32_t v);
void put_le64(uint8_t *p, uint64_t v);
