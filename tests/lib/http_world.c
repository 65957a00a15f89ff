#include "tests/lib/http_world.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/xalloc.h"
#include "store/store_account.h"
#include "store/store_key.h"

static const struct ops_size sizes[] = {{"tiny", 1, 256, 2}, {"small", 2, 4096, 40}};

#define ANSWERS_MAX 4096
static struct answer *kept[ANSWERS_MAX];
static size_t kept_count;

static void make_account(struct http_world *h, const char *name, char id[ID_BYTES],
	char key[TOKEN_BYTES], char key_id[ID_BYTES])
{
	struct store_account account;
	struct store_key row;
	struct err err;

	if (!id[0]) {
		assert_ok(store_account_insert(h->w->store, name, clock_wall_ms(), &account, &err),
			&err);
		snprintf(id, ID_BYTES, "%s", account.id);
	}
	assert_ok(auth_key_create(h->auth, id, "test", key, &row, &err), &err);
	if (key_id) {
		snprintf(key_id, ID_BYTES, "%s", row.id);
	}
}

/* What stands on the store; the accounts are there. */
static void start_service(struct http_world *h)
{
	struct err err;
	const struct ops_parts parts = {
		.loop = h->w->loop,
		.store = h->w->store,
		.auth = h->auth,
		.quotas = h->w->quotas,
		.images = h->w->images,
		.hv = fake_hv_iface(h->w->hv),
		.sandboxes = h->w->all,
	};
	h->ops = ops_new(&parts, &h->ops_config);
	h->server = http_server_new(h->w->loop, h->ops, h->auth, &h->config);
	h->admin_path = xasprintf("%s/admin.sock", h->w->dir);
	assert_ok(http_server_listen(h->server, "127.0.0.1", 0, &h->port, &err), &err);
	assert_ok(http_server_listen_admin(h->server, h->admin_path, &err), &err);
}

struct http_world *http_world_new(const struct http_config *config)
{
	struct http_world *h = xnew(struct http_world);
	h->config = config ? *config : (struct http_config){0};
	h->w = world_new(NULL);
	h->auth = auth_new(h->w->store);
	snprintf(h->account, sizeof h->account, "%s", h->w->account);
	make_account(h, NULL, h->account, h->key, h->key_id);
	make_account(h, "rivals", h->other_account, h->other_key, NULL);
	h->ops_config = (struct ops_config){
		.sizes = sizes,
		.size_count = ARRAY_SIZE(sizes),
		.default_size = "tiny",
		.timeout_default_minutes = 15,
		.max_lifetime_minutes = 1440,
		.exec_timeout_ms = 120000,
		.exec_timeout_max_ms = 3600000,
		.exec_output_bytes = h->w->config.exec_output_cap,
		.exec_output_max_bytes = 1u << 20,
		.body_bytes = config && config->body_bytes ? config->body_bytes : 64u << 20,
		.is_egress_configured = true,
	};
	start_service(h);
	return h;
}

static void stop_service(struct http_world *h)
{
	http_server_free(h->server);
	ops_free(h->ops);
	auth_free(h->auth);
	free(h->admin_path);
}

void http_world_restart(struct http_world *h)
{
	stop_service(h);
	world_stop(h->w);
	world_start(h->w);
	h->auth = auth_new(h->w->store);
	start_service(h);
}

void http_world_free(struct http_world *h)
{
	stop_service(h);
	world_free(h->w);
	while (kept_count > 0) {
		answer_free(kept[--kept_count]);
	}
	free(h);
}

/* ---- clients ---- */

static struct client *client_make(struct http_world *h, int family, const void *to, socklen_t len)
{
	struct client *c = xnew(struct client);

	c->h = h;
	c->in = evbuffer_new();
	c->fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(c->fd >= 0);
	assert_int_equal(connect(c->fd, to, len), 0);
	assert_int_equal(fcntl(c->fd, F_SETFL, O_NONBLOCK), 0);
	return c;
}

struct client *client_new(struct http_world *h)
{
	const struct sockaddr_in to = {.sin_family = AF_INET,
		.sin_port = htons(h->port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

	return client_make(h, AF_INET, &to, sizeof to);
}

struct client *client_new_admin(struct http_world *h)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};

	snprintf(to.sun_path, sizeof to.sun_path, "%s", h->admin_path);
	return client_make(h, AF_UNIX, &to, sizeof to);
}

void client_free(struct client *c)
{
	close(c->fd);
	evbuffer_free(c->in);
	free(c);
}

void client_reset(struct client *c)
{
	const struct linger now = {.l_onoff = 1};

	assert_int_equal(setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now), 0);
	client_free(c);
}

bool client_send(struct client *c, const void *data, size_t len)
{
	const char *bytes = data;

	while (len > 0) {
		ssize_t n = send(c->fd, bytes, len, MSG_NOSIGNAL);

		if (n < 0 && errno != EAGAIN) {
			return false;
		}
		if (n < 0) {
			client_poll(c);
			if (c->is_eof) {
				return false;
			}
			world_turn(c->h->w);
			continue;
		}
		bytes += n;
		len -= (size_t)n;
	}
	return true;
}

void client_request(struct client *c, const char *method, const char *target, const char *key,
	const char *more, const char *type, const void *body, size_t len)
{
	struct evbuffer *head = evbuffer_new();

	evbuffer_add_printf(
		head, "%s %s HTTP/1.1\r\nHost: localhost:%u\r\n", method, target, c->h->port);
	if (key) {
		evbuffer_add_printf(head, "Authorization: Bearer %s\r\n", key);
	}
	if (type) {
		evbuffer_add_printf(head, "Content-Type: %s\r\n", type);
	}
	if (body) {
		evbuffer_add_printf(head, "Content-Length: %zu\r\n", len);
	}
	evbuffer_add_printf(head, "%s\r\n", more ? more : "");
	client_send(c, evbuffer_pullup(head, -1), evbuffer_get_length(head));
	evbuffer_free(head);
	if (body) {
		client_send(c, body, len);
	}
}

char *http_handshake(const struct api_row *row)
{
	return row->flags & API_SOCKET ? xasprintf("Connection: Upgrade\r\nUpgrade: websocket\r\n"
						   "Sec-WebSocket-Version: 13\r\n"
						   "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
						   "Sec-WebSocket-Protocol: %s\r\n",
						 row->subprotocol)
				       : NULL;
}

void client_poll(struct client *c)
{
	char bytes[65536];
	ssize_t n;

	while (!c->is_eof && (n = recv(c->fd, bytes, sizeof bytes, 0)) != -1) {
		c->is_eof = n == 0;
		evbuffer_add(c->in, bytes, (size_t)n);
	}
	c->is_eof = c->is_eof || errno != EAGAIN;
}

/* Waits until @len bytes are there, or the end. */
static bool have_bytes(struct client *c, size_t len)
{
	WORLD_UNTIL(c->h->w, (client_poll(c), evbuffer_get_length(c->in) >= len || c->is_eof));
	return evbuffer_get_length(c->in) >= len;
}

static bool is_there(struct client *c, const char *text)
{
	client_poll(c);
	return evbuffer_search(c->in, text, strlen(text), NULL).pos >= 0;
}

static char *take_through(struct client *c, const char *end)
{
	WORLD_UNTIL(c->h->w, is_there(c, end) || c->is_eof);
	struct evbuffer_ptr at = evbuffer_search(c->in, end, strlen(end), NULL);

	if (at.pos < 0) {
		return NULL;
	}
	size_t len = (size_t)at.pos + strlen(end);
	char *text = xcalloc(len + 1, 1);

	evbuffer_remove(c->in, text, len);
	return text;
}

static void take_body(struct client *c, struct answer *a, size_t len, struct evbuffer *body)
{
	a->is_cut = !have_bytes(c, len);
	evbuffer_remove_buffer(c->in, body, len);
}

static void take_chunks(struct client *c, struct answer *a, struct evbuffer *body)
{
	for (;;) {
		_cleanup_free_ char *line = take_through(c, "\r\n");
		size_t len = line ? strtoul(line, NULL, 16) : 0;

		if (!line) {
			a->is_cut = true;
			return;
		}
		take_body(c, a, len, body);
		if (a->is_cut || !have_bytes(c, 2)) {
			a->is_cut = true;
			return;
		}
		evbuffer_drain(c->in, 2);
		if (len == 0) {
			return;
		}
	}
}

struct answer *client_answer(struct client *c, bool is_head)
{
	struct answer *a = xnew(struct answer);
	struct evbuffer *body = evbuffer_new();
	const char *header;
	struct err err;

	a->headers = take_through(c, "\r\n\r\n");
	if (!a->headers) {
		fail_msg("the server closed the connection without an answer");
	}
	assert_int_equal(sscanf(a->headers, "HTTP/1.%*d %d", &a->status), 1);
	if (is_head) {
		/* nothing follows */
	} else if ((header = answer_header(a, "Content-Length"))) {
		take_body(c, a, strtoul(header, NULL, 10), body);
	} else if ((header = answer_header(a, "Transfer-Encoding"))) {
		take_chunks(c, a, body);
	} else if (strncmp(a->headers, "HTTP/1.0", 8) == 0) {
		WORLD_UNTIL(c->h->w, (client_poll(c), c->is_eof));
		evbuffer_add_buffer(body, c->in);
	}
	a->len = evbuffer_get_length(body);
	a->body = xcalloc(a->len + 1, 1);
	evbuffer_remove(body, a->body, a->len);
	evbuffer_free(body);
	if (a->body[0] == '{') {
		a->json = json_parse(a->body, a->len, &err);
	}
	return a;
}

void answer_free(struct answer *a)
{
	free(a->headers);
	free(a->body);
	json_object_put(a->json);
	free(a);
}

const char *answer_header(const struct answer *a, const char *name)
{
	static char value[512];
	size_t len = strlen(name);

	for (const char *line = strstr(a->headers, "\r\n"); line; line = strstr(line, "\r\n")) {
		line += 2;
		if (strncasecmp(line, name, len) == 0 && line[len] == ':') {
			snprintf(value, sizeof value, "%.*s", (int)strcspn(line + len + 2, "\r"),
				line + len + 2);
			return value;
		}
	}
	return NULL;
}

const char *answer_text(const struct answer *a, const char *path)
{
	json_object *obj = a->json;
	_cleanup_free_ char *copy = xstrdup(path);
	char *rest = copy;

	for (char *name; obj && (name = strsep(&rest, "."));) {
		if (json_object_get_type(obj) == json_type_array) {
			obj = json_object_array_get_idx(obj, strtoul(name, NULL, 10));
		} else if (!json_object_object_get_ex(obj, name, &obj)) {
			return NULL;
		}
	}
	return obj ? json_object_get_string(obj) : NULL;
}

/* ---- one request ---- */

static struct answer *exchange(struct client *c, const char *method, const char *target,
	const char *key, const char *more, const char *type, const void *body, size_t len)
{
	client_request(c, method, target, key, more, type, body, len);
	struct answer *a = client_answer(c, strcmp(method, "HEAD") == 0);

	client_free(c);
	assert_true(kept_count < ANSWERS_MAX);
	kept[kept_count++] = a;
	return a;
}

struct answer *http_request(struct http_world *h, const char *method, const char *target,
	const char *key, const char *more, const char *type, const void *body, size_t len)
{
	return exchange(client_new(h), method, target, key, more, type, body, len);
}

struct answer *http_get(struct http_world *h, const char *key, const char *target)
{
	return http_request(h, "GET", target, key, NULL, NULL, NULL, 0);
}

struct answer *http_json(struct http_world *h, const char *method, const char *target,
	const char *key, const char *json)
{
	return http_request(h, method, target, key, NULL, json ? "application/json" : NULL, json,
		json ? strlen(json) : 0);
}

struct answer *http_admin(
	struct http_world *h, const char *method, const char *target, const char *json)
{
	return exchange(client_new_admin(h), method, target, NULL, NULL,
		json ? "application/json" : NULL, json, json ? strlen(json) : 0);
}

const char *http_running(struct http_world *h, const char *name)
{
	_cleanup_free_ char *body = name ? xasprintf("{\"name\":\"%s\"}", name) : xstrdup("{}");
	struct answer *a = http_json(h, "POST", "/v1/sandboxes", h->key, body);

	if (a->status != 201) {
		fail_msg("create: %s", a->body);
	}
	return answer_text(a, "id");
}
