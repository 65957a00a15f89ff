#pragma once

/*
 * session - sync, hello and the dispatch of frames
 *
 * Purpose: turns received bytes into calls. PROTOCOL.md section "Session" is the contract.
 * Owns:    the session's state and the requests that came in part.
 * Thread:  the agent has one.
 * Uses:    port.h, stream.h.
 *
 *             SYNC                    HELLO
 *   HUNTING ────────► SYNCED ─────────────────────► READY
 *      ▲   (SYNC_ACK, HELLO sent)                     │
 *      └── bad frame, stale partial frame, ABORT, host gone, from either; SYNC: back to SYNCED
 */

/* Takes what has been received, as far as there is room to answer. */
void session_step(void);
/* The host has gone. Calls keep running for a while, in case only the daemon restarts. */
void session_host_gone(void);
/* In every turn: overdue partial frames, calls of a lost session. */
void session_tick(void);
/* A frame that had to be sent didn't fit: the host isn't keeping the rules. */
void session_give_up(const char *why);
