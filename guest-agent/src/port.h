#pragma once

/*
 * port - the byte channel to the host
 *
 * Purpose: finds and opens the virtio-serial port (or what a test gives instead), keeps one
 *          receive and one transmit buffer, and notices when the host comes and goes.
 * Owns:    the descriptor and both buffers; nothing here ever grows.
 * Thread:  the agent has one.
 * Uses:    proto/limits.h, loop.h, options.h.
 *
 * Room to send: DATA may be put only into port_room_for_data(), which leaves PORT_TX_RESERVE_BYTES
 * for control frames. Requests are only taken while that reserve is free, and what 64 streams can
 * answer without being asked again (END, CLOSE, WINDOW) fits into it. So a host that writes and
 * never reads stalls itself.
 */

#include "proto/frame.h"
#include "src/util.h"

#define PORT_TX_RESERVE_BYTES (64u * 1024u)

/* Opens it or arranges for another try; port_tick() carries on. */
void port_start(void);
void port_on_event(uint32_t events);
/* To be called in every turn: retries after a back-off. True when the host has just gone. */
bool port_tick(void);

/* Reads what there is, as far as it fits. True when bytes came. */
bool port_fill(void);
/* The bytes received and not yet consumed. */
const uint8_t *port_received(size_t *ret_len);
void port_consume(size_t len);
/* When the last byte came. */
uint64_t port_last_byte_ms(void);

/* Whether another request may be taken. */
bool port_has_reserve(void);
/* Where the payload of one DATA frame may be put: *ret_size bytes, 0 when there is no room now. */
uint8_t *port_room_for_data(size_t *ret_size);
/* Completes the DATA frame whose payload of @len bytes was put there. */
void port_commit_data(uint32_t stream, enum frame_channel channel, size_t len);
/* Queues a frame. */
void port_put(uint16_t type, uint16_t flags, uint32_t stream, const void *payload, size_t len);
/* While there is no session, nothing that calls put is sent. */
void port_set_muted(bool is_muted);
/* Forgets what hasn't been sent: only before a SYNC_ACK. */
void port_drop_unsent(void);
/* Sends as much as the port takes. */
void port_flush(void);
/* All of it, but for at most @limit_ms: before the machine goes. */
void port_flush_blocking(uint64_t limit_ms);
/* True when a control frame didn't fit; the session must be given up. Clears it. */
bool port_take_overflow(void);
