#include "tests/lib/http_files.h"

#include <linux/sockios.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/xalloc.h"
#include "http/request.h"
#include "http/server_priv.h"

/*
 * Random clients: they send requests of all kinds in pieces, stop in the middle, read or don't, end
 * their half, reset or leave, while time passes and channels break. Whatever they do, the counts
 * are right after each step, and in the end nothing is left. TEST_SEED and TEST_ROUNDS choose.
 */

#define CLIENTS     6
#define ROUNDS      8
#define ROUND_STEPS 2500

#define HEAD(method, rest)                                                                         \
	method " /v1/sandboxes/$ID" rest " HTTP/1.1\r\nHost: localhost\r\nx-api-key: $KEY\r\n"
#define OCTETS  "Content-Type: application/octet-stream\r\n"
#define CHUNKED "Transfer-Encoding: chunked\r\n\r\n"
#define EVENTS  "Accept: text/event-stream\r\n"

static const char *const requests[] = {
	"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
	"HEAD /healthz HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n",
	"GET /healthz HTTP/1.1\r\nHost: elsewhere\r\nContent-Length: 3\r\n\r\nabc",
	"\x16\x03\x01 nonsense\r\n\r\n",
	HEAD("GET", "/files?path=/tmp/large") "Accept: application/octet-stream\r\n\r\n",
	HEAD("HEAD", "/files?path=/tmp/large") "Accept: application/octet-stream\r\n\r\n",
	HEAD("GET", "/files?path=/tmp/large") "\r\n",
	HEAD("PUT", "/files?path=/tmp/x") OCTETS CHUNKED "5\r\nhello\r\n$FILL0\r\n\r\n",
	HEAD("PUT", "/files?path=/tmp/x") OCTETS CHUNKED "5\r\nhello\r\nx\r\n\r\n",
	HEAD("PUT", "/files?path=/tmp/y") OCTETS
	"Content-Length: 5\r\nExpect: 100-continue\r\n\r\nhello",
	HEAD("PUT", "/files?path=relative") OCTETS "Content-Length: 50\r\n\r\nhello",
	HEAD("POST", "/exec") "Content-Type: application/json\r\nContent-Length: 18\r\n\r\n"
			      "{\"command\":\"hang\"}",
	HEAD("POST", "/exec") EVENTS "Content-Type: application/json\r\nContent-Length: 25\r\n\r\n"
				     "{\"command\":\"bytes 100000\"}",
	HEAD("POST", "/exec?command=cat") EVENTS OCTETS CHUNKED "5\r\nhello\r\n$FILL0\r\n\r\n",
	HEAD("POST", "/exec?command=true") EVENTS OCTETS CHUNKED "5\r\nhello\r\nzz",
	HEAD("POST", "/exec?command=hang") OCTETS CHUNKED "5\r\nhello\r\n$FILL0\r\n\r\n",
	HEAD("GET", "/pty") "$HANDSHAKE\r\n$FRAMES",
	HEAD("GET", "/pty") "$HANDSHAKE\r\n$FRAMES",
};

struct actor {
	struct client *c; /* NULL: not there */
	char *text;       /* what it says */
	size_t len;
	size_t sent;
};

static struct actor actors[CLIENTS];
static uint64_t seed;
static size_t seen[HTTP_CONN_GONE]; /* connections in each state, after steps */

static unsigned pick(unsigned n)
{
	seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (unsigned)(seed >> 33) % n;
}

/* Many chunks. */
static void fill(struct evbuffer *out)
{
	for (unsigned i = pick(3) ? pick(10) : 3000; i > 0; i--) {
		evbuffer_add_printf(out, "10;x\r\n0123456789abcdef\r\n");
	}
}

/* Frames of a client, masked with zeros; some that it may not send. */
static void add_frames(struct evbuffer *out)
{
	static const unsigned char firsts[] = {
		0x81, 0x82, 0x82, 0x82, 0x02, 0x80, 0x89, 0x8a, 0x88, 0x83, 0xc1};
	static const char content[] = "hello\n\x04{\"resize\":{\"rows\":1,\"cols\":2}}";

	for (unsigned i = pick(20); i > 0; i--) {
		unsigned len = pick(2) ? 6 : pick(sizeof content);
		unsigned char head[6] = {
			firsts[pick(pick(3) ? 4 : sizeof firsts)], (unsigned char)(0x80 | len)};

		evbuffer_add(out, head, sizeof head);
		evbuffer_add(out, content, len);
	}
}

static void expand(struct evbuffer *out, const char *text)
{
	_cleanup_free_ char *handshake = http_handshake(api_row(API_PTY));

	while (*text) {
		size_t word = *text == '$' ? 1 + strspn(text + 1, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") : 0;

		if (word == 0) {
			evbuffer_add(out, text++, 1);
			continue;
		}
		if (strncmp(text, "$KEY", word) == 0) {
			evbuffer_add_printf(out, "%s", h->key);
		} else if (strncmp(text, "$ID", word) == 0) {
			evbuffer_add_printf(out, "%s", http_files_id);
		} else if (strncmp(text, "$HANDSHAKE", word) == 0) {
			evbuffer_add_printf(out, "%s", handshake);
		} else if (strncmp(text, "$FRAMES", word) == 0) {
			add_frames(out);
		} else {
			fill(out);
		}
		text += word;
	}
}

/* ---- what they do ---- */

static void leave(struct actor *actor)
{
	int unsent = 0;

	/* An orderly end waits behind bytes that the server doesn't take at present. */
	ioctl(actor->c->fd, SIOCOUTQ, &unsent);
	if (pick(2) || unsent > 0) {
		client_reset(actor->c);
	} else {
		client_free(actor->c);
	}
	free(actor->text);
	*actor = (struct actor){.c = NULL};
}

static void think(struct actor *actor)
{
	struct evbuffer *out = evbuffer_new();

	for (unsigned i = pick(3) + 1; i > 0; i--) {
		expand(out, requests[pick(ARRAY_SIZE(requests))]);
	}
	free(actor->text);
	actor->len = evbuffer_get_length(out);
	actor->text = xmemdup(evbuffer_pullup(out, -1), actor->len);
	actor->sent = 0;
	evbuffer_free(out);
}

/* A piece of what it has to say, as far as that goes without waiting. */
static void speak(struct actor *actor)
{
	if (actor->sent == actor->len && actor->text && pick(4) == 0) {
		leave(actor);
		return;
	}
	if (actor->sent == actor->len) {
		think(actor);
	}
	size_t left = actor->len - actor->sent;
	size_t n = pick(3) ? MIN(left, (size_t)pick(200) + 1) : left;
	ssize_t sent = send(
		actor->c->fd, actor->text + actor->sent, n, MSG_DONTWAIT | MSG_NOSIGNAL);

	actor->sent += sent > 0 ? (size_t)sent : 0;
}

static void act(struct actor *actor)
{
	if (!actor->c) {
		actor->c = pick(8) ? client_new(h) : client_new_admin(h);
		return;
	}
	switch (pick(24)) {
	case 0:
		leave(actor);
		break;
	case 1:
		shutdown(actor->c->fd, SHUT_WR);
		break;
	case 2:
	case 3:
	case 4:
	case 5:
	case 6:
		client_poll(actor->c);
		evbuffer_drain(actor->c->in, evbuffer_get_length(actor->c->in));
		if (actor->c->is_eof) {
			leave(actor);
		}
		break;
	default:
		speak(actor);
	}
}

static void disturb(void)
{
	switch (pick(60)) {
	case 0:
		fake_guest_drop(h->w->guests, http_files_id, 0);
		break;
	case 1:
	case 2:
		clock_test_advance(pick(70) * 1000, 0);
		break;
	default:
		break;
	}
}

/* ---- what holds ---- */

static void check_counts(void)
{
	size_t pending = 0;
	uint64_t held = 0;
	size_t counts[2] = {0, 0};
	struct http_conn *conn;

	TAILQ_FOREACH (conn, &h->server->conns, entry) {
		bool has_request = conn->state == HTTP_CONN_SERVE ||
				   conn->state == HTTP_CONN_SOCKET;

		assert_int_not_equal(conn->state, HTTP_CONN_GONE);
		assert_int_equal(conn->request != NULL, has_request);
		assert_int_equal(conn->websocket != NULL, conn->state == HTTP_CONN_SOCKET);
		assert_true(evbuffer_get_length(conn->link.in) <= 2 * HTTP_LINK_READ_MAX_BYTES);
		assert_true(has_request || conn->held_bytes == 0);
		pending += has_request;
		seen[conn->state]++;
		held += conn->held_bytes;
		counts[conn->door->is_admin]++;
	}
	assert_int_equal(pending, h->server->pending);
	assert_int_equal(held, h->server->held_bytes);
	assert_int_equal(counts[0], h->server->tcp.conn_count);
	assert_int_equal(counts[1], h->server->admin.conn_count);
	assert_int_equal(evbuffer_get_length(h->server->piece), 0);
}

static void play(unsigned steps)
{
	for (unsigned i = 0; i < steps; i++) {
		act(&actors[pick(CLIENTS)]);
		disturb();
		for (unsigned turns = pick(4); turns > 0; turns--) {
			loop_turn_for(h->w->loop, pick(20) ? 0 : 3);
		}
		check_counts();
	}
	for (size_t i = 0; i < CLIENTS; i++) {
		if (actors[i].c) {
			leave(&actors[i]);
		}
	}
	/* What lingers is over when its client has gone. */
	WORLD_UNTIL(h->w, TAILQ_EMPTY(&h->server->conns));
	check_counts();
	/* Terminals go on without their clients, as long as their machine does. */
	assert_int_equal(http_json(h, "DELETE", http_files_at(""), h->key, NULL)->status, 200);
	WORLD_UNTIL(h->w, fake_guest_call_count(h->w->guests) == 0);
}

static uint64_t setting(const char *name, uint64_t usual)
{
	const char *text = getenv(name);

	return text ? strtoull(text, NULL, 10) : usual;
}

static void test_random_clients_leave_nothing(void **state)
{
	uint64_t first = setting("TEST_SEED", 1);
	uint64_t rounds = setting("TEST_ROUNDS", ROUNDS);

	for (uint64_t i = 0; i < rounds; i++) {
		print_message("seed %llu\n", (unsigned long long)(first + i));
		seed = first + i;
		http_files_set_up(state);
		http_files_put_large(1 << 20);
		play(ROUND_STEPS);
		http_tear_down(state);
	}
	for (size_t i = 0; i < ARRAY_SIZE(seen); i++) {
		print_message("state %zu: %zu\n", i, seen[i]);
		assert_true(seen[i] > 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random_clients_leave_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
