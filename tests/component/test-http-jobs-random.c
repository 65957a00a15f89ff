/*
 * Random histories of clients that ask for commands, their output, their ends and their terminals,
 * and leave at any moment, while channels are lost and sandbox and service start anew. Whatever
 * they were in the middle of, nothing of it is left once they are gone, and the service goes on.
 *
 * TEST_SEED repeats a history, TEST_ROUNDS makes it longer.
 */
#include "tests/lib/http_fixture.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rand.h"
#include "base/xalloc.h"

#define CLIENTS_MAX 24

static struct client *clients[CLIENTS_MAX];
static const char *sandbox_id;
static unsigned random_state;

static unsigned roll(unsigned below)
{
	random_state = random_state * 1664525 + 1013904223;
	return (random_state >> 8) % below;
}

/* ---- clients ---- */

static const struct asked {
	const char *method;
	const char *rest; /* behind …/exec; %s: a command's id */
	const char *body;
	bool wants_events;
} requests[] = {
	{"POST", "", "{\"command\":\"hang\"}", false},
	{"POST", "", "{\"command\":\"sleep 3\"}", false},
	{"POST", "", "{\"command\":\"bytes 900000\"}", true},
	{"POST", "", "{\"command\":\"hang\"}", true},
	{"POST", "", "{\"command\":\"cat\",\"stdin\":\"x\"}", true},
	{"POST", "", "{\"command\":\"hang\",\"background\":true}", false},
	{"POST", "", "{\"command\":\"cat\",\"background\":true,\"keep_stdin\":true}", false},
	{"POST", "", "{\"command\":\"bytes 200000\",\"background\":true}", false},
	{"GET", "", NULL, false},
	{"GET", "/%s?wait_ms=60000", NULL, false},
	{"GET", "/%s/output?wait_ms=60000", NULL, false},
	{"GET", "/%s/output", NULL, true},
	{"GET", "/%s/output?offset=100", NULL, true},
	{"HEAD", "/%s/output", NULL, true},
	{"POST", "/%s/stdin", "{\"data\":\"to be read\"}", false},
	{"POST", "/%s/stdin", "{\"data\":\"the end\",\"close\":true}", false},
	{"POST", "/%s/kill", "{}", false},
	{"POST", "/%s/kill", "{\"signal\":\"TERM\"}", false},
};

static char *some_id(void)
{
	char at[32];
	struct answer *a = http_get(h, h->key, http_at(sandbox_id, "/exec"));

	snprintf(at, sizeof at, "data.%u.id", roll(6));
	const char *id = answer_text(a, at);

	return xstrdup(id ? id : "ex_00000000000000000000");
}

static void ask(struct client *c, const struct asked *asked)
{
	_cleanup_free_ char *id = some_id();
	_cleanup_free_ char *format = xasprintf("/v1/sandboxes/%s/exec%s", sandbox_id, asked->rest);
	char *slot = strstr(format, "%s");
	_cleanup_free_ char *target = slot ? xasprintf("%.*s%s%s", (int)(slot - format), format, id,
						     slot + 2)
					   : xstrdup(format);

	client_request(c, asked->method, target, h->key,
		asked->wants_events ? "Accept: text/event-stream\r\n" : NULL,
		asked->body ? "application/json" : NULL, asked->body,
		asked->body ? strlen(asked->body) : 0);
}

static void ask_for_terminal(struct client *c)
{
	_cleanup_free_ char *id = some_id();
	_cleanup_free_ char *target =
		roll(2) ? xasprintf("/v1/sandboxes/%s/pty", sandbox_id)
			: xasprintf("/v1/sandboxes/%s/pty?exec=%s&rows=2&cols=3", sandbox_id, id);
	_cleanup_free_ char *handshake = http_handshake(api_row(API_PTY));

	client_request(c, "GET", target, h->key, handshake, NULL, NULL, 0);
}

static void come(void)
{
	struct client **c = &clients[roll(CLIENTS_MAX)];
	size_t which = roll(ARRAY_SIZE(requests) + 3);

	if (*c) {
		return;
	}
	*c = client_new(h);
	if (which < ARRAY_SIZE(requests)) {
		ask(*c, &requests[which]);
	} else {
		ask_for_terminal(*c);
	}
}

static void leave(struct client **c)
{
	if (*c && roll(2)) {
		client_reset(*c);
	} else if (*c) {
		client_free(*c);
	}
	*c = NULL;
}

static void go(void)
{
	leave(&clients[roll(CLIENTS_MAX)]);
}

static void read_some(void)
{
	struct client *c = clients[roll(CLIENTS_MAX)];

	if (c) {
		client_poll(c);
	}
}

static void leave_all(void)
{
	for (size_t i = 0; i < CLIENTS_MAX; i++) {
		leave(&clients[i]);
	}
}

/* ---- what happens meanwhile ---- */

/* In the middle of a restart there is no machine. */
static void drop_channel(void)
{
	if (fake_hv_find(h->w->hv, sandbox_id)) {
		fake_guest_drop(h->w->guests, sandbox_id, (int)roll(20));
	}
}

static void restart_agent(void)
{
	if (fake_hv_find(h->w->hv, sandbox_id)) {
		fake_guest_restart_agent(h->w->guests, sandbox_id);
	}
}

static void restart_sandbox(void)
{
	struct err err;

	(void)sandbox_restart(world_find(h->w, sandbox_id), &err);
}

static void restart_service(void)
{
	http_world_restart(h);
	leave_all();
}

static void let_pass(void)
{
	world_run(h->w, roll(6));
}

/* ---- */

static unsigned count_running(void)
{
	_cleanup_store_exec_list_ struct store_exec_list list = {0};
	unsigned count = 0;
	struct err err;

	assert_ok(sandbox_execs(h->w->all, sandbox_id, &list, &err), &err);
	for (size_t i = 0; i < list.count; i++) {
		count += list.rows[i].state == STORE_EXEC_RUNNING && list.rows[i].is_background;
		/* Their clients are gone. */
		if (list.rows[i].state == STORE_EXEC_RUNNING && !list.rows[i].is_background) {
			return UINT_MAX;
		}
	}
	return count;
}

/* But for the waits for what runs. */
static void expect_nothing_left(void)
{
	leave_all();
	WORLD_UNTIL(h->w, world_is_state(h->w, sandbox_id, "running"));
	WORLD_UNTIL(h->w, fake_guest_call_count(h->w->guests) == count_running());
}

static void test_clients_leave_nothing_behind(void **state)
{
	static const struct {
		void (*fn)(void);
		unsigned weight;
	} steps[] = {{come, 40}, {go, 16}, {read_some, 16}, {let_pass, 30}, {drop_channel, 2},
		{restart_agent, 1}, {restart_sandbox, 1}, {restart_service, 1}};
	const char *seed = getenv("TEST_SEED");
	const char *rounds = getenv("TEST_ROUNDS");
	unsigned count = rounds ? (unsigned)strtoul(rounds, NULL, 10) : 600;
	unsigned total = 0;

	(void)state;
	rand_bytes(&random_state, sizeof random_state);
	random_state = seed ? (unsigned)strtoul(seed, NULL, 10) : random_state;
	print_message("TEST_SEED=%u\n", random_state);
	h->w->config.results_count = 5;
	h->w->config.result_bytes = 64;
	http_world_restart(h);
	struct sandbox_create_spec spec = world_spec(h->w, NULL);

	spec.account = h->account;
	spec.is_temporary = false;
	sandbox_id = world_create_spec(h->w, &spec);
	WORLD_UNTIL(h->w, world_is_state(h->w, sandbox_id, "running"));
	for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
		total += steps[i].weight;
	}
	for (unsigned i = 0; i < count; i++) {
		unsigned left = roll(total);
		size_t step = 0;

		while (left >= steps[step].weight) {
			left -= steps[step++].weight;
		}
		steps[step].fn();
		if (roll(100) == 0) {
			expect_nothing_left();
		}
	}
	expect_nothing_left();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			test_clients_leave_nothing_behind, http_set_up, http_tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
