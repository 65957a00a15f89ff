#include "tests/lib/http_files.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "base/xalloc.h"

/* Downloads whose client is slow, leaves, or comes with the next request; and those that break. */

/* A client that doesn't read holds the guest up instead of filling the daemon. The file is larger
 * than what the kernel keeps for both sockets. */
static void test_a_slow_client_holds_the_guest_up(void **state)
{
	struct client *c = client_new(h);
	const size_t len = 32u << 20;

	(void)state;
	http_files_put_large(len);
	client_request(c, "GET", http_files_at("/files?path=/tmp/large"), h->key,
		HTTP_ACCEPT_OCTETS, NULL, NULL, 0);
	WORLD_UNTIL(h->w, fake_guest_calls(h->w->guests, FAKE_GUEST_GET) == 1);
	world_run(h->w, 300);
	/* It would be through by now. */
	assert_int_equal(fake_guest_call_count(h->w->guests), 1);

	struct answer *a = client_answer(c, false);

	assert_false(a->is_cut);
	assert_int_equal(a->len, len);
	answer_free(a);
	client_free(c);
}

static void test_leaving_a_download_ends_it(void **state)
{
	struct client *c = client_new(h);

	(void)state;
	http_files_put_large(16u << 20);
	client_request(c, "GET", http_files_at("/files?path=/tmp/large"), h->key,
		HTTP_ACCEPT_OCTETS, NULL, NULL, 0);
	WORLD_UNTIL(h->w, (client_poll(c), evbuffer_get_length(c->in) > 100000));
	client_reset(c);
	WORLD_UNTIL(h->w, fake_guest_call_count(h->w->guests) == 0);
	WORLD_UNTIL(h->w, http_server_pending(h->server) == 0);
}

static void test_a_download_that_breaks_is_cut(void **state)
{
	struct client *c = client_new(h);

	(void)state;
	http_files_put_large(16u << 20);
	client_request(c, "GET", http_files_at("/files?path=/tmp/large"), h->key,
		HTTP_ACCEPT_OCTETS, NULL, NULL, 0);
	WORLD_UNTIL(h->w, (client_poll(c), evbuffer_get_length(c->in) > 100000));
	fake_guest_drop(h->w->guests, http_files_id, 0);

	struct answer *a = client_answer(c, false);

	assert_int_equal(a->status, 200);
	assert_true(a->is_cut);
	answer_free(a);
	client_free(c);
}

/* Without chunks the end of the connection is the end of the file, so it has to end otherwise. */
static void test_a_download_that_breaks_is_reset_for_old_clients(void **state)
{
	struct client *c = client_new(h);
	char bytes[65536];
	ssize_t n;

	(void)state;
	http_files_put_large(16u << 20);
	_cleanup_free_ char *text = xasprintf(
		"GET %s HTTP/1.0\r\nHost: localhost\r\nx-api-key: %s\r\n" HTTP_ACCEPT_OCTETS "\r\n",
		http_files_at("/files?path=/tmp/large"), h->key);
	client_send(c, text, strlen(text));
	WORLD_UNTIL(h->w, (client_poll(c), evbuffer_get_length(c->in) > 100000));
	fake_guest_drop(h->w->guests, http_files_id, 0);
	WORLD_UNTIL(h->w,
		(n = recv(c->fd, bytes, sizeof bytes, 0)) <= 0 && (n == 0 || errno != EAGAIN));
	assert_int_equal(n, -1);
	assert_int_equal(errno, ECONNRESET);
	client_free(c);
}

/* Its headers left before anybody knew. */
static void test_a_connection_ends_with_the_download_that_the_stop_found(void **state)
{
	struct client *c = client_new(h);

	(void)state;
	http_files_put_large(16u << 20);
	client_request(c, "GET", http_files_at("/files?path=/tmp/large"), h->key,
		HTTP_ACCEPT_OCTETS, NULL, NULL, 0);
	WORLD_UNTIL(h->w, (client_poll(c), evbuffer_get_length(c->in) > 100000));
	http_server_stop(h->server);
	client_request(c, "GET", "/healthz", NULL, NULL, NULL, NULL, 0);

	struct answer *a = client_answer(c, false);

	assert_int_equal(a->len, 16u << 20);
	answer_free(a);
	WORLD_UNTIL(h->w, (client_poll(c), c->is_eof));
	assert_int_equal(evbuffer_get_length(c->in), 0);
	client_free(c);
}

static void test_a_download_and_what_is_pipelined_behind_it(void **state)
{
	struct client *c = client_new(h);

	(void)state;
	http_files_put_large(4u << 20);
	client_request(c, "GET", http_files_at("/files?path=/tmp/large"), h->key,
		HTTP_ACCEPT_OCTETS, NULL, NULL, 0);
	client_request(c, "GET", "/healthz", NULL, NULL, NULL, NULL, 0);
	struct answer *a = client_answer(c, false);

	assert_int_equal(a->len, 4u << 20);
	answer_free(a);
	a = client_answer(c, false);
	assert_string_equal(answer_text(a, "status"), "ok");
	answer_free(a);
	client_free(c);
}

/* Who stops the server waits for answers that are on their way. */
static void test_an_unread_answer_is_pending(void **state)
{
	struct client *c = client_new(h);

	(void)state;
	http_files_put_large(15u << 20);
	client_request(
		c, "GET", http_files_at("/files?path=/tmp/large"), h->key, NULL, NULL, NULL, 0);
	WORLD_UNTIL(h->w, fake_guest_calls(h->w->guests, FAKE_GUEST_GET) == 1 &&
				  fake_guest_call_count(h->w->guests) == 0);
	world_run(h->w, 50);
	assert_int_equal(http_server_pending(h->server), 1);

	struct answer *a = client_answer(c, false);

	assert_int_equal(a->status, 200);
	assert_false(a->is_cut);
	WORLD_UNTIL(h->w, http_server_pending(h->server) == 0);
	answer_free(a);
	client_free(c);
}

/* HTTP/1.0 has no chunks: the end of the connection is the end of the answer. */
static void test_old_clients_get_files_until_the_end(void **state)
{
	static const size_t lengths[] = {0, 1, 2u << 20};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
		_cleanup_free_ char *bytes = http_files_random(lengths[i]);
		struct client *c = client_new(h);
		_cleanup_free_ char *text = NULL;

		http_files_put("/files?path=/tmp/old", bytes, lengths[i]);
		text = xasprintf(
			"GET %s HTTP/1.0\r\nHost: localhost\r\nx-api-key: %s\r\n" HTTP_ACCEPT_OCTETS
			"\r\n",
			http_files_at("/files?path=/tmp/old"), h->key);
		client_send(c, text, strlen(text));
		WORLD_UNTIL(h->w, (client_poll(c), c->is_eof));

		size_t head = (size_t)evbuffer_search(c->in, "\r\n\r\n", 4, NULL).pos + 4;

		assert_int_equal(evbuffer_get_length(c->in), head + lengths[i]);
		evbuffer_drain(c->in, head);
		if (lengths[i] > 0) {
			assert_memory_equal(evbuffer_pullup(c->in, -1), bytes, lengths[i]);
		}
		client_free(c);
	}
	assert_int_equal(http_server_pending(h->server), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, http_files_set_up, http_tear_down)
#define S(name) cmocka_unit_test_setup_teardown(name, http_files_set_up_small, http_tear_down)
		S(test_a_slow_client_holds_the_guest_up),
		T(test_leaving_a_download_ends_it),
		T(test_a_download_that_breaks_is_cut),
		T(test_a_download_that_breaks_is_reset_for_old_clients),
		T(test_a_connection_ends_with_the_download_that_the_stop_found),
		T(test_a_download_and_what_is_pipelined_behind_it),
		T(test_an_unread_answer_is_pending),
		T(test_old_clients_get_files_until_the_end),
#undef T
#undef S
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
