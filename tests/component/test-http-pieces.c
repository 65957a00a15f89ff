#include "tests/lib/http_check.h"
#include "tests/lib/http_files.h"

#include <malloc.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>

#include "base/xalloc.h"
#include "http/server_priv.h"

/*
 * A stream of bytes means the same however it is cut, and costs about the same: not what each piece
 * was read with.
 */

/* ---- what libevent's buffers hold ---- */

static size_t held_bytes;

static void *count_malloc(size_t size)
{
	void *p = malloc(size);

	held_bytes += malloc_usable_size(p);
	return p;
}

static void *count_realloc(void *old, size_t size)
{
	held_bytes -= malloc_usable_size(old);
	void *p = realloc(old, size);

	held_bytes += malloc_usable_size(p);
	return p;
}

static void count_free(void *p)
{
	held_bytes -= malloc_usable_size(p);
	free(p);
}

static void send_now(struct client *c, const void *data, size_t len)
{
	static const int on = 1;

	setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	assert_true(client_send(c, data, len));
}

/* @len bytes, one by one, behind @head; returns what they cost. */
static size_t cost_of_drops(struct client *c, const char *head, size_t len)
{
	size_t before;
	uint64_t read_before;
	struct http_conn *conn;

	send_now(c, head, strlen(head));
	world_run(h->w, 20);
	conn = TAILQ_FIRST(&h->server->conns);
	before = held_bytes;
	for (size_t i = 0; i < len; i++) {
		read_before = conn->link.read_bytes;
		send_now(c, " ", 1);
		WORLD_UNTIL(h->w, conn->link.read_bytes > read_before);
	}
	return held_bytes - MIN(before, held_bytes);
}

#define DROPS 2000

static void test_drops_of_json_cost_no_more_than_a_piece(void **state)
{
	struct client *c = client_new(h);
	_cleanup_free_ char *head = xasprintf(
		"POST /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n"
		"Content-Type: application/json\r\nContent-Length: 100000\r\n\r\n",
		h->key);

	(void)state;
	assert_true(cost_of_drops(c, head, DROPS) < 64 * 1024);
	client_free(c);
}

static void test_drops_of_a_file_cost_no_more_than_a_piece(void **state)
{
	const struct fake_script stalls = {.mode = FAKE_HOLD, .times = 1};
	struct client *c = client_new(h);
	_cleanup_free_ char *head = xasprintf(
		"PUT /v1/sandboxes/%s/files?path=/x HTTP/1.1\r\nHost: localhost\r\n"
		"Authorization: Bearer %s\r\nContent-Type: application/octet-stream\r\n"
		"Content-Length: 100000\r\n\r\n",
		http_files_id, h->key);

	(void)state;
	fake_guest_script(h->w->guests, FAKE_GUEST_PUT, &stalls);
	assert_true(cost_of_drops(c, head, DROPS) < 64 * 1024);
	client_free(c);
}

/* ---- what is answered ---- */

#define HOST "Host: localhost\r\n"

/* Requests that the same connection takes one behind the other; and at last one that ends it. */
static const char stream[] =
	"GET /healthz HTTP/1.1\r\n" HOST "X-A:  b \t\r\n\r\n"
	"HEAD /healthz HTTP/1.1\r\n" HOST "\r\n"
	"POST /v1/sandboxes HTTP/1.1\r\n" HOST "Authorization: Bearer $KEY\r\n"
	"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
	"6 ;a=b\r\n{\"wait\r\n4\r\n\":1}\r\n0\r\nX-T: u\r\n\r\n"
	"POST /v1/sandboxes HTTP/1.1\r\n" HOST "Content-Length: 12\r\n\r\nnobody reads"
	"POST /v1/sandboxes HTTP/1.1\r\n" HOST "Authorization: Bearer $KEY\r\n"
	"Content-Type: application/json\r\nContent-Length: 10\r\n\r\n{\"wait\":1}"
	"GET /nothing HTTP/1.1\r\n" HOST "\r\n"
	"GET /healthz HTTP/1.1\r\n" HOST "Content-Length: 1\r\n\r\nx"
	"GET /healthz HTTP/1.1\r\n" HOST "\r\n";

/* The answers without what differs between two of them. */
static char *digest(struct client *c)
{
	struct evbuffer *out = evbuffer_new();
	static const bool is_head[] = {false, true, false, false, false, false, false};
	char *ret;

	for (size_t i = 0; i < ARRAY_SIZE(is_head); i++) {
		struct answer *a = client_answer(c, is_head[i]);
		const char *message = a->json ? answer_text(a, "error.message") : NULL;

		evbuffer_add_printf(out, "%d %s\n", a->status, message ? message : "-");
		answer_free(a);
	}
	WORLD_UNTIL(h->w, (client_poll(c), c->is_eof));
	evbuffer_add_printf(out, "%zu more", evbuffer_get_length(c->in));
	evbuffer_add(out, "", 1);
	ret = xstrdup((const char *)evbuffer_pullup(out, -1));
	evbuffer_free(out);
	return ret;
}

static char *answers_to(const char *bytes, size_t len, size_t cut, size_t second)
{
	struct client *c = client_new(h);
	char *ret;

	send_now(c, bytes, cut);
	world_turn(h->w);
	world_turn(h->w);
	/* The other end may have gone when the last request's first bytes have been seen. */
	if (second > cut) {
		client_send(c, bytes + cut, second - cut);
		world_turn(h->w);
		world_turn(h->w);
	}
	client_send(c, bytes + MAX(cut, second), len - MAX(cut, second));
	ret = digest(c);
	client_free(c);
	return ret;
}

static char *with_key(const char *text)
{
	struct evbuffer *out = evbuffer_new();
	const char *mark;
	char *ret;

	while ((mark = strstr(text, "$KEY")) != NULL) {
		evbuffer_add_printf(out, "%.*s%s", (int)(mark - text), text, h->key);
		text = mark + 4;
	}
	evbuffer_add(out, text, strlen(text) + 1);
	ret = xstrdup((const char *)evbuffer_pullup(out, -1));
	evbuffer_free(out);
	return ret;
}

static void test_a_stream_is_answered_alike_wherever_it_is_cut(void **state)
{
	_cleanup_free_ char *bytes = with_key(stream);
	size_t len = strlen(bytes);
	_cleanup_free_ char *expected = answers_to(bytes, len, len, len);

	(void)state;
	assert_non_null(strstr(expected, "200 -\n200 -\n400 "));
	for (size_t cut = 1; cut < len; cut++) {
		_cleanup_free_ char *once = answers_to(bytes, len, cut, cut);
		_cleanup_free_ char *twice = answers_to(
			bytes, len, cut, MIN(cut + cut % 7 + 1, len));

		assert_string_equal(once, expected);
		assert_string_equal(twice, expected);
	}
	assert_int_equal(http_server_pending(h->server), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, http_files_set_up, http_tear_down)
		T(test_drops_of_json_cost_no_more_than_a_piece),
		T(test_drops_of_a_file_cost_no_more_than_a_piece),
		T(test_a_stream_is_answered_alike_wherever_it_is_cut),
#undef T
	};

	event_set_mem_functions(count_malloc, count_realloc, count_free);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
