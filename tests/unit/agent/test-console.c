#include "tests/lib/cm.h"

#include <stdlib.h>
#include <string.h>

#include "agent/console.h"
#include "base/xalloc.h"
#include "peer.h"

struct rig {
	struct loop *loop;
	struct peer peer;
	struct console *console;
	size_t wanted;
};

static size_t held(const struct console *console)
{
	struct evbuffer *buf = evbuffer_new();

	console_copy(console, buf, SIZE_MAX);
	size_t n = evbuffer_get_length(buf);

	evbuffer_free(buf);
	return n;
}

static bool has_wanted(const void *arg)
{
	const struct rig *rig = arg;

	return held(rig->console) >= rig->wanted;
}

static void rig_init(struct rig *rig)
{
	struct err err;

	*rig = (struct rig){0};
	rig->loop = loop_new(&err);
	assert_non_null(rig->loop);
	peer_init(&rig->peer, rig->loop);
	rig->console = console_new(rig->loop, rig->peer.path);
	peer_turns(&rig->peer, 3);
	peer_listen(&rig->peer);
	peer_accept(&rig->peer);
}

static void rig_fini(struct rig *rig)
{
	console_free(rig->console);
	peer_fini(&rig->peer);
	loop_free(rig->loop);
}

static void assert_tail(const struct console *console, size_t max, const char *text)
{
	struct evbuffer *buf = evbuffer_new();

	console_copy(console, buf, max);
	assert_int_equal(evbuffer_get_length(buf), strlen(text));
	assert_memory_equal(evbuffer_pullup(buf, -1), text, strlen(text));
	evbuffer_free(buf);
}

static void test_console_keeps_what_was_written_last(void **state)
{
	struct rig rig;

	(void)state;
	rig_init(&rig);
	assert_int_equal(held(rig.console), 0);
	peer_send_raw(&rig.peer, "Linux version\n", 14);
	rig.wanted = 14;
	peer_wait(&rig.peer, has_wanted, &rig);
	assert_tail(rig.console, 100, "Linux version\n");
	assert_tail(rig.console, 8, "version\n");
	assert_tail(rig.console, 0, "");
	rig_fini(&rig);
}

static void test_console_is_a_ring_with_the_newest_bytes(void **state)
{
	struct rig rig;
	_cleanup_free_ char *flood = xcalloc(1, 3 * CONSOLE_RING_BYTES + 1000);

	(void)state;
	memset(flood, 'x', 3 * CONSOLE_RING_BYTES + 1000);
	rig_init(&rig);
	peer_send_raw(&rig.peer, flood, 3 * CONSOLE_RING_BYTES + 1000);
	peer_send_raw(&rig.peer, "login: ", 7);
	struct evbuffer *buf = evbuffer_new();

	for (bool is_there = false; !is_there;) {
		peer_turns(&rig.peer, 1);
		evbuffer_drain(buf, evbuffer_get_length(buf));
		console_copy(rig.console, buf, 7);
		is_there = evbuffer_get_length(buf) == 7 &&
			   memcmp(evbuffer_pullup(buf, -1), "login: ", 7) == 0;
	}
	evbuffer_free(buf);
	assert_int_equal(held(rig.console), CONSOLE_RING_BYTES);
	assert_tail(rig.console, 10, "xxxlogin: ");
	rig_fini(&rig);
}

static void test_console_connects_again_and_keeps_what_it_had(void **state)
{
	struct rig rig;

	(void)state;
	rig_init(&rig);
	peer_send_raw(&rig.peer, "one ", 4);
	rig.wanted = 4;
	peer_wait(&rig.peer, has_wanted, &rig);
	peer_hang_up(&rig.peer);
	peer_accept(&rig.peer);
	peer_send_raw(&rig.peer, "two", 3);
	rig.wanted = 7;
	peer_wait(&rig.peer, has_wanted, &rig);
	assert_tail(rig.console, 100, "one two");
	rig_fini(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_console_keeps_what_was_written_last),
		cmocka_unit_test(test_console_is_a_ring_with_the_newest_bytes),
		cmocka_unit_test(test_console_connects_again_and_keeps_what_it_had),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
