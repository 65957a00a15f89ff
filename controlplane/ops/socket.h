#pragma once

/*
 * socket - a conversation of messages, as operations hold it
 *
 * Purpose: what stands between a handler and the transport that carries its messages both ways
 *          (http: a WebSocket): the handler's hooks, and what it may ask of the transport.
 * Owns:    nothing: the socket is the transport's, the rest the call's.
 * Thread:  loop.
 * Uses:    nothing.
 *
 * A row with API_SOCKET is asked for by a client that wants to converse. Its handler refuses with
 * op_fail(), or agrees with op_reply_socket() (op.h); then
 *
 *	on_open ──► on_message, on_room … ──► drop
 *
 * Hooks come from the loop, never from within a function below. drop() of the call is the last of
 * them, once, however the conversation ends: the client closed or left, it fell silent, it broke
 * the rules, the service stops, or the handler closed and that has been sent. The socket is not to
 * be touched from then on. Without an agreement there is no on_open.
 */

#include <stdbool.h>
#include <stddef.h>

struct op_call;
struct op_socket;

/* A client's message has at most so many bytes; a longer one ends the conversation. */
#define OP_SOCKET_MESSAGE_MAX_BYTES (64 * 1024)
/* of a reason for closing; more is cut */
#define OP_SOCKET_REASON_MAX_BYTES 123

/* Why a conversation is closed: RFC 6455, section 7.4.1. */
enum op_socket_code {
	OP_SOCKET_NORMAL = 1000,
	OP_SOCKET_GOING_AWAY = 1001,
	OP_SOCKET_UNSUPPORTED = 1003, /* a kind of message that isn't expected */
	OP_SOCKET_POLICY = 1008,      /* a message that isn't understood */
	OP_SOCKET_INTERNAL = 1011,
};

struct op_socket_hooks {
	/* From now on messages can be sent. */
	void (*on_open)(struct op_call *call, struct op_socket *socket);
	/* A whole message; text is UTF-8, without a terminator. @data is valid for this call. */
	void (*on_message)(struct op_call *call, bool is_text, const char *data, size_t len);
	/* op_socket_room() was 0, and half of what it can be is free again. */
	void (*on_room)(struct op_call *call);
};

/* How many bytes may be sent now. What is made faster than the client reads waits at its source. */
size_t op_socket_room(const struct op_socket *socket);
/*
 * Sends a message; text must be UTF-8. Bulk keeps to op_socket_room(); a few words about the
 * conversation (its start, its end) needn't. After op_socket_close() nothing is sent any more.
 */
void op_socket_send(struct op_socket *socket, bool is_text, const void *data, size_t len);
/* While paused no message comes, and the client is held up once what lies between is full. That it
 * leaves is seen all the same. */
void op_socket_pause(struct op_socket *socket, bool is_paused);
/* Says goodbye once all that was sent has left: no hook is called after this but drop(). @reason is
 * UTF-8, for people. Again is fine: the first one stays. */
void op_socket_close(struct op_socket *socket, enum op_socket_code code, const char *reason);

/* ---- for transports ---- */

struct op_socket_class {
	size_t (*room)(const struct op_socket *socket);
	void (*send)(struct op_socket *socket, bool is_text, const void *data, size_t len);
	void (*pause)(struct op_socket *socket, bool is_paused);
	void (*close)(struct op_socket *socket, enum op_socket_code code, const char *reason);
};

/* The first member of the transport's own. */
struct op_socket {
	const struct op_socket_class *class;
};
