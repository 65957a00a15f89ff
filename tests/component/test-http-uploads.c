#include "tests/lib/http_check.h"
#include "tests/lib/http_files.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "base/xalloc.h"
#include "http/server_priv.h"

/* Bodies on their way in: as they come, at the pace of who takes them, and not at all where the
 * request is refused. */

#define MIB (1u << 20)
/* What one upload may make the server hold: its pipe, and what has just been read. */
#define UPLOAD_MAX_BYTES (512u * 1024)

/* With the head of a PUT sent, nothing of its body. @more: Content-Length or the like. */
static struct client *begin_put(const char *target, const char *key, const char *more)
{
	struct client *c = client_new(h);

	client_request(c, "PUT", http_files_at(target), key, more, HTTP_OCTETS, NULL, 0);
	return c;
}

static void expect_answer(struct client *c, int status)
{
	struct answer *a = client_answer(c, false);

	if (a->status != status) {
		fail_msg("%d, not %d: %s", a->status, status, a->body);
	}
	assert_true(status < 400 || !http_check_error(a));
	answer_free(a);
}

static void expect_end(struct client *c)
{
	WORLD_UNTIL(h->w, (client_poll(c), c->is_eof));
	assert_int_equal(evbuffer_get_length(c->in), 0);
	client_free(c);
}

/* As much as goes in until nobody takes any more for a while; returns how much. */
static size_t send_until_full(struct client *c, size_t max)
{
	static char bytes[65536];
	size_t sent = 0;

	for (unsigned idle = 0; idle < 50 && sent < max; idle++) {
		ssize_t n = send(c->fd, bytes, MIN(sizeof bytes, max - sent), MSG_NOSIGNAL);

		if (n > 0) {
			sent += (size_t)n;
			idle = 0;
		}
		world_turn(h->w);
	}
	return sent;
}

/* ---- through ---- */

/* Content-Length or chunks around @mib MiB of zeros; returns the most that was allocated on top. */
static size_t send_mib(struct client *c, size_t mib, bool is_chunked)
{
	_cleanup_free_ char *bytes = xcalloc(MIB, 1);
	size_t before = mallinfo2().uordblks;
	size_t most = 0;

	for (size_t i = 0; i < mib; i++) {
		if (is_chunked) {
			client_send(c, "100000\r\n", 8);
		}
		assert_true(client_send(c, bytes, MIB));
		if (is_chunked) {
			client_send(c, "\r\n", 2);
		}
		most = MAX(most, mallinfo2().uordblks - before);
	}
	if (is_chunked) {
		client_send(c, "0\r\n\r\n", 5);
	}
	return (ssize_t)most > 0 ? most : 0;
}

static void pass_large(bool is_chunked)
{
	const char *text = getenv("TEST_MIB");
	size_t mib = text ? strtoul(text, NULL, 10) : 1024;
	_cleanup_free_ char *length = xasprintf("Content-Length: %zu\r\n", mib * MIB);

	fake_guest_discard(h->w->guests);
	struct client *c = begin_put("/files?path=/tmp/x", h->key,
		is_chunked ? "Transfer-Encoding: chunked\r\n" : length);
	size_t most = send_mib(c, mib, is_chunked);
	struct answer *a = client_answer(c, false);

	assert_int_equal(a->status, 200);
	assert_true(strtoull(answer_text(a, "size_bytes"), NULL, 10) == mib * MIB);
	assert_true(fake_guest_discarded(h->w->guests) == mib * MIB);
	assert_in_range(most, 0, 2 * UPLOAD_MAX_BYTES);
	answer_free(a);
	/* And the connection goes on. */
	client_request(c, "GET", "/healthz", NULL, NULL, NULL, NULL, 0);
	expect_answer(c, 200);
	client_free(c);
}

static void test_a_large_file_passes_through(void **state)
{
	(void)state;
	pass_large(false);
}

static void test_a_large_file_in_chunks_passes_through(void **state)
{
	(void)state;
	pass_large(true);
}

static void test_chunks_of_all_sizes_are_one_file(void **state)
{
	static const size_t sizes[] = {1, 2, 15, 16, 4095, 4096, 65535, 65537, 300000};
	struct client *c = begin_put(
		"/files?path=/tmp/x", h->key, "Transfer-Encoding: chunked\r\n");
	_cleanup_free_ char *bytes = http_files_random(500000);
	size_t len = 0;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		char line[40];
		int n = snprintf(line, sizeof line, "%zX;a=\"b\"\r\n", sizes[i]);

		client_send(c, line, (size_t)n);
		client_send(c, bytes + len, sizes[i]);
		client_send(c, "\r\n", 2);
		len += sizes[i];
	}
	client_send(c, "0\r\nX-Sum: 1\r\n\r\n", 15);
	struct answer *a = client_answer(c, false);

	assert_int_equal(a->status, 200);
	assert_int_equal(strtoul(answer_text(a, "size_bytes"), NULL, 10), len);
	answer_free(a);
	a = http_files_get("/files?path=/tmp/x");
	assert_int_equal(a->len, len);
	assert_memory_equal(a->body, bytes, len);
	client_free(c);
}

static void test_stdin_may_come_in_chunks(void **state)
{
	struct client *c = client_new(h);

	(void)state;
	client_request(c, "POST", http_files_at("/exec?command=cat"), h->key,
		"Transfer-Encoding: chunked\r\n", HTTP_OCTETS, NULL, 0);
	client_send(c, "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", 21);
	struct answer *a = client_answer(c, false);

	assert_string_equal(answer_text(a, "stdout"), "abcde");
	answer_free(a);
	client_free(c);
}

static void test_uploads_may_be_pipelined(void **state)
{
	struct client *c = client_new(h);
	_cleanup_free_ char *bytes = http_files_random(400000);

	(void)state;
	for (int i = 0; i < 3; i++) {
		client_request(c, "PUT", http_files_at("/files?path=/tmp/x"), h->key, NULL,
			HTTP_OCTETS, bytes, 400000);
		client_request(c, "GET", "/healthz", NULL, NULL, NULL, NULL, 0);
	}
	for (int i = 0; i < 6; i++) {
		expect_answer(c, 200);
	}
	client_free(c);
}

/* ---- pace ---- */

static void test_who_takes_nothing_holds_the_client_up(void **state)
{
	const size_t len = 64 * MIB;
	struct client *c;

	(void)state;
	fake_guest_script(h->w->guests, FAKE_GUEST_PUT, &(struct fake_script){.mode = FAKE_HOLD});
	fake_guest_discard(h->w->guests);
	WORLD_UNTIL(h->w, h->server->tcp.conn_count == 0);
	c = begin_put("/files?path=/tmp/x", h->key, "Content-Length: 67108864\r\n");
	size_t sent = send_until_full(c, len);

	/* The rest is in the kernel's buffers. */
	assert_in_range(sent, 1, len - 1);
	assert_in_range(TAILQ_FIRST(&h->server->conns)->link.read_bytes, 100000, UPLOAD_MAX_BYTES);
	fake_guest_release(h->w->guests, FAKE_GUEST_PUT);
	_cleanup_free_ char *rest = xcalloc(len - sent, 1);

	client_send(c, rest, len - sent);
	expect_answer(c, 200);
	assert_int_equal(fake_guest_discarded(h->w->guests), len);
	client_free(c);
}

static void test_uploads_together_are_bounded(void **state)
{
	struct client *clients[20];
	unsigned refused = 0;

	(void)state;
	fake_guest_script(h->w->guests, FAKE_GUEST_PUT, &(struct fake_script){.mode = FAKE_HOLD});
	for (size_t i = 0; i < ARRAY_SIZE(clients); i++) {
		clients[i] = begin_put("/files?path=/x", h->key, "Content-Length: 1000000\r\n");
		world_run(h->w, 10);
		client_poll(clients[i]);
		refused += evbuffer_get_length(clients[i]->in) > 0;
	}
	/* 4 MiB are 16 times 256 KiB. */
	assert_int_equal(refused, 4);
	expect_answer(clients[19], 503);
	for (size_t i = 0; i < ARRAY_SIZE(clients); i++) {
		client_free(clients[i]);
	}
	WORLD_UNTIL(h->w, h->server->tcp.conn_count == 0);
	assert_int_equal(h->server->held_bytes, 0);
	WORLD_UNTIL(h->w, fake_guest_call_count(h->w->guests) == 0);
}

/* ---- refused by the head ---- */

#define HUGE "Content-Length: 1000000000000\r\n"

static void test_a_refused_request_is_answered_before_its_body(void **state)
{
	static const struct {
		int status;
		const char *method, *target, *more, *type;
		bool has_key;
	} rows[] = {
		{401, "PUT", "/v1/sandboxes/$/files?path=/x", HUGE, HTTP_OCTETS, false},
		{401, "POST", "/v1/sandboxes", HUGE, "application/json", false},
		{403, "PUT", "/v1/sandboxes/$/files?path=/x",
			HUGE "Origin: https://evil.example\r\n", HTTP_OCTETS, true},
		{404, "PUT", "/v1/nothing", HUGE, HTTP_OCTETS, true},
		{404, "PUT", "/v1/sandboxes/sb_00000000000000000000/files?path=/x", HUGE,
			HTTP_OCTETS, true},
		{405, "PUT", "/v1/sandboxes", HUGE, HTTP_OCTETS, true},
		{400, "PUT", "/v1/sandboxes/$/files?path=/x&nonsense=1", HUGE, HTTP_OCTETS, true},
		{400, "PUT", "/v1/sandboxes/$/files", HUGE, HTTP_OCTETS, true},
		{400, "PUT", "/v1/sandboxes/$/files?path=/x", HUGE, "text/plain", true},
		{400, "PUT", "/v1/sandboxes/$/files?path=/x", HUGE "Content-Encoding: gzip\r\n",
			HTTP_OCTETS, true},
		{400, "POST", "/v1/sandboxes/$/extend", HUGE, HTTP_OCTETS, true},
		{413, "PUT", "/v1/sandboxes/$/files?path=/x", HUGE, "application/json", true},
		{413, "POST", "/v1/sandboxes", HUGE, "application/json", true},
		{401, "PUT", "/v1/sandboxes/$/files?path=/x", "Transfer-Encoding: chunked\r\n",
			HTTP_OCTETS, false},
	};
	static const char *const expectations[] = {"", "Expect: 100-continue\r\n"};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows) * 2; i++) {
		const char *mark = strchr(rows[i / 2].target, '$');
		_cleanup_free_ char *target = mark ? xasprintf("%.*s%s%s",
							     (int)(mark - rows[i / 2].target),
							     rows[i / 2].target, http_files_id,
							     mark + 1)
						   : xstrdup(rows[i / 2].target);
		_cleanup_free_ char *more = xasprintf(
			"%s%s", rows[i / 2].more, expectations[i % 2]);
		struct client *c = client_new(h);

		client_request(c, rows[i / 2].method, target, rows[i / 2].has_key ? h->key : NULL,
			more, rows[i / 2].type, NULL, 0);
		struct answer *a = client_answer(c, false);

		if (a->status != rows[i / 2].status) {
			fail_msg("%s: %d, not %d: %s", target, a->status, rows[i / 2].status,
				a->body);
		}
		assert_null(http_check_error(a));
		assert_string_equal(answer_header(a, "Connection"), "close");
		answer_free(a);
		expect_end(c);
	}
	assert_int_equal(fake_guest_calls(h->w->guests, FAKE_GUEST_PUT), 0);
}

/* Its sender sees the answer, whatever it still sends. */
static void test_who_sends_on_sees_the_refusal(void **state)
{
	struct client *c = begin_put("/files?path=/x", NULL, HUGE);

	(void)state;
	assert_int_equal(send_until_full(c, 16 * MIB), 16 * MIB);
	expect_answer(c, 401);
	client_free(c);
}

static void test_a_small_refused_body_keeps_the_connection(void **state)
{
	struct client *c = client_new(h);

	(void)state;
	for (int i = 0; i < 3; i++) {
		client_request(c, "POST", "/v1/sandboxes", NULL, "Content-Length: 2\r\n",
			"application/json", NULL, 0);
		expect_answer(c, 401);
		client_send(c, "{}", 2);
	}
	client_request(c, "GET", "/healthz", NULL, NULL, NULL, NULL, 0);
	expect_answer(c, 200);
	client_free(c);
}

/* ---- answered before the end ---- */

static void test_an_early_answer_ends_the_reading(void **state)
{
	struct client *c;

	(void)state;
	fake_guest_script(h->w->guests, FAKE_GUEST_PUT, &(struct fake_script){.mode = FAKE_FAIL});
	c = begin_put("/files?path=/x", h->key, "Content-Length: 500000\r\n");
	struct answer *a = client_answer(c, false);

	assert_in_range(a->status, 400, 599);
	assert_null(http_check_error(a));
	assert_string_equal(answer_header(a, "Connection"), "close");
	answer_free(a);
	expect_end(c);
	WORLD_UNTIL(h->w, h->server->held_bytes == 0);
}

static void test_an_early_answer_reaches_who_sends_on(void **state)
{
	struct client *c;
	_cleanup_free_ char *bytes = xcalloc(MIB, 1);

	(void)state;
	fake_guest_script(h->w->guests, FAKE_GUEST_PUT, &(struct fake_script){.mode = FAKE_HOLD});
	c = begin_put("/files?path=/x", h->key, "Content-Length: 1000000\r\n");
	send_until_full(c, 900000);
	fake_guest_drop(h->w->guests, http_files_id, 0);
	client_send(c, bytes, 50000);
	struct answer *a = client_answer(c, false);

	assert_in_range(a->status, 500, 599);
	answer_free(a);
	client_free(c);
}

/* ---- 100-continue ---- */

static void test_a_body_is_asked_for_once_it_is_wanted(void **state)
{
	struct client *c = begin_put(
		"/files?path=/tmp/x", h->key, "Expect: 100-continue\r\nContent-Length: 3\r\n");

	(void)state;
	struct answer *a = client_answer(c, true);

	assert_int_equal(a->status, 100);
	answer_free(a);
	client_send(c, "abc", 3);
	expect_answer(c, 200);
	client_free(c);
}

/* ---- bodies that break off ---- */

static void test_what_breaks_off_is_never_taken_for_a_file(void **state)
{
	static const char *const heads[] = {
		"Content-Length: 1000\r\n", "Transfer-Encoding: chunked\r\n"};
	static const char *const bodies[] = {"0123456789", "a\r\n0123456789\r\n",
		"a\r\n0123456789\r\n0\r\n", "a\r\n0123456789\r\n0\r\nA: b\r\n"};

	(void)state;
	for (size_t i = 0; i < 3 * (1 + 3); i++) {
		bool is_chunked = i % 4 > 0;
		struct client *c = begin_put("/files?path=/tmp/x", h->key, heads[is_chunked]);

		client_send(c, bodies[i % 4], strlen(bodies[i % 4]));
		WORLD_UNTIL(h->w, fake_guest_call_count(h->w->guests) == 1);
		world_run(h->w, 10);
		if (i / 4 == 0) {
			client_free(c);
		} else if (i / 4 == 1) {
			client_reset(c);
		} else {
			shutdown(c->fd, SHUT_WR);
			expect_end(c);
		}
		WORLD_UNTIL(h->w, fake_guest_call_count(h->w->guests) == 0);
		assert_int_equal(http_files_get("/files?path=/tmp/x")->status, 404);
	}
}

static void test_odd_chunks_end_an_upload(void **state)
{
	struct client *c = begin_put(
		"/files?path=/tmp/x", h->key, "Transfer-Encoding: chunked\r\n");

	(void)state;
	client_send(c, "3\r\nabc\r\n", 8);
	WORLD_UNTIL(h->w, fake_guest_call_count(h->w->guests) == 1);
	client_send(c, "x\r\n", 3);
	expect_answer(c, 400);
	expect_end(c);
	WORLD_UNTIL(h->w, fake_guest_call_count(h->w->guests) == 0);
	assert_int_equal(http_files_get("/files?path=/tmp/x")->status, 404);
}

static void test_chunks_over_the_limit_end_an_upload(void **state)
{
	struct client *c = begin_put(
		"/files?path=/tmp/x", h->key, "Transfer-Encoding: chunked\r\n");
	_cleanup_free_ char *bytes = xcalloc(2 * MIB, 1);

	(void)state;
	client_send(c, "200000\r\n", 8);
	client_send(c, bytes, 2 * MIB);
	expect_answer(c, 413);
	client_free(c);
	WORLD_UNTIL(h->w, fake_guest_call_count(h->w->guests) == 0);
	assert_int_equal(http_files_get("/files?path=/tmp/x")->status, 404);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, http_files_set_up, http_tear_down)
#define S(name) cmocka_unit_test_setup_teardown(name, http_files_set_up_small, http_tear_down)
		T(test_a_large_file_passes_through),
		T(test_a_large_file_in_chunks_passes_through),
		T(test_chunks_of_all_sizes_are_one_file),
		T(test_stdin_may_come_in_chunks),
		T(test_uploads_may_be_pipelined),
		T(test_who_takes_nothing_holds_the_client_up),
		S(test_uploads_together_are_bounded),
		T(test_a_refused_request_is_answered_before_its_body),
		T(test_who_sends_on_sees_the_refusal),
		T(test_a_small_refused_body_keeps_the_connection),
		T(test_an_early_answer_ends_the_reading),
		T(test_an_early_answer_reaches_who_sends_on),
		T(test_a_body_is_asked_for_once_it_is_wanted),
		T(test_what_breaks_off_is_never_taken_for_a_file),
		T(test_odd_chunks_end_an_upload),
		S(test_chunks_over_the_limit_end_an_upload),
#undef T
#undef S
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
