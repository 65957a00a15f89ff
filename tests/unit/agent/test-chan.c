#include "tests/lib/cm.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/dial.h"
#include "base/clock.h"
#include "base/xalloc.h"
#include "fixture.h"

/* The channel itself: the first SYNC, what waits ahead of whom, silence, loss. */

static void test_upload_does_not_delay_an_exec(void **state)
{
	struct fixture f;
	struct record record = {0};
	struct record exec = {0};
	_cleanup_free_ uint8_t *bytes = xcalloc(1, 8u << 20);
	uint8_t credit[4];
	size_t ahead = 0;
	struct frame frame;

	(void)state;
	fixture_init(&f, NULL);
	fixture_start(&f);
	struct pipe *pipe = pipe_new(f.loop, 8u << 20);

	pipe_write(pipe, bytes, 8u << 20);
	fixture_put(&f, &record, pipe, UINT64_MAX);
	peer_expect(&f.peer, FRAME_FILE_PUT);
	put_le32(credit, PROTO_WINDOW_MAX_BYTES - PROTO_WINDOW_INITIAL_BYTES);
	peer_send(&f.peer, FRAME_WINDOW, FRAME_CHANNEL_IN, 1, credit, sizeof credit);
	/* The guest reads nothing for a while: the socket fills up. */
	peer_turns(&f.peer, 50);
	fixture_exec(&f, &exec, "x");
	for (frame = peer_receive(&f.peer); frame.type == FRAME_DATA;
		frame = peer_receive(&f.peer)) {
		ahead += frame.length;
	}
	assert_int_equal(frame.type, FRAME_EXEC);
	/* What the socket holds and the frame that waits for it. */
	if (ahead > 4 * PROTO_PAYLOAD_MAX_BYTES) {
		fail_msg("%zu bytes ahead of an exec", ahead);
	}
	pipe_writer_free(pipe);
	fixture_fini(&f);
}

static void test_idle_guest_costs_little(void **state)
{
	struct fixture f;
	struct record record = {0};

	(void)state;
	fixture_init(&f, &fixture_patient);
	peer_listen(&f.peer);
	peer_accept(&f.peer);
	/* What is read into is there by now; its pages come with what is read. */
	struct frame frame = peer_receive(&f.peer);
	size_t before = mallinfo2().uordblks;

	assert_int_equal(frame.type, FRAME_SYNC);
	f.peer.in_used = 0;
	peer_answer_sync(&f.peer);
	peer_expect(&f.peer, FRAME_HELLO);
	fixture_wait_ready(&f, 1);
	fixture_exec(&f, &record, "x");
	peer_expect(&f.peer, FRAME_EXEC);
	peer_send_exit(&f.peer, 1, 0, 0);
	fixture_wait_done(&f, &record);
	peer_turns(&f.peer, 5);
	size_t after = mallinfo2().uordblks;

	/* README.md says 10 KiB. */
	if (after > before + 10 * 1024) {
		fail_msg("%zu bytes are kept after a call", after - before);
	}
	fixture_fini(&f);
}

static void test_silent_guest_is_pinged_and_dropped(void **state)
{
	struct fixture f;
	struct record record = {0};
	struct frame frame;

	(void)state;
	fixture_init(&f, &fixture_timing);
	fixture_start(&f);
	fixture_exec(&f, &record, "x");
	peer_expect(&f.peer, FRAME_EXEC);
	do {
		frame = peer_receive(&f.peer);
	} while (frame.type != FRAME_PING);
	assert_int_equal(f.down, 0);
	fixture_wait_down(&f, 1);
	assert_int_equal(f.down_err.kind, ERR_TIMEOUT);
	assert_int_equal(record.done, 1);
	fixture_fini(&f);
}

static void test_first_sync_waits_for_the_port_without_copies(void **state)
{
	struct fixture f;
	uint8_t ack[FRAME_SYNC_BYTES];

	(void)state;
	fixture_init(&f, &fixture_timing);
	peer_listen(&f.peer);
	peer_accept(&f.peer);
	/* QEMU doesn't read while the guest boots: ten times the retry. */
	uint64_t end = clock_monotonic_ms() + 200;

	while (clock_monotonic_ms() < end) {
		peer_turns(&f.peer, 1);
	}
	struct frame frame = peer_expect(&f.peer, FRAME_SYNC);

	memcpy(ack, frame.payload, sizeof ack);
	assert_int_equal(f.peer.in_len, f.peer.in_used);
	/* It was taken but not answered: now another comes. */
	frame = peer_expect(&f.peer, FRAME_SYNC);
	assert_memory_not_equal(frame.payload, ack, sizeof ack);
	fixture_fini(&f);
}

static void test_last_words_before_a_hang_up_are_heard(void **state)
{
	struct fixture f;
	struct record put = {0};
	struct record exec = {0};
	_cleanup_free_ uint8_t *bytes = xcalloc(1, 1u << 20);
	uint8_t credit[4];

	(void)state;
	fixture_init(&f, NULL);
	fixture_start(&f);
	struct pipe *pipe = pipe_new(f.loop, 1u << 20);

	fixture_exec(&f, &exec, "x");
	peer_expect(&f.peer, FRAME_EXEC);
	/* There is more to write than the socket takes when the other side goes. */
	pipe_write(pipe, bytes, 1u << 20);
	fixture_put(&f, &put, pipe, UINT64_MAX);
	peer_expect(&f.peer, FRAME_FILE_PUT);
	put_le32(credit, 1u << 20);
	peer_send(&f.peer, FRAME_WINDOW, FRAME_CHANNEL_IN, 2, credit, sizeof credit);
	peer_turns(&f.peer, 5);
	peer_send_exit(&f.peer, 1, 5, 0);
	peer_hang_up(&f.peer);
	fixture_wait_down(&f, 1);
	assert_int_equal(exec.err.kind, ERR_NONE);
	assert_int_equal(exec.result.exit_code, 5);
	assert_int_equal(put.err.kind, ERR_UNAVAILABLE);
	pipe_writer_free(pipe);
	fixture_fini(&f);
}

static void test_socket_that_can_not_be_is_told_once(void **state)
{
	struct fixture f;
	struct guest_hooks hooks = {.on_state = fixture_on_state, .arg = &f};
	char path[DIAL_PATH_MAX_BYTES + 2];

	(void)state;
	memset(path, 'a', sizeof path - 1);
	path[sizeof path - 1] = '\0';
	fixture_init(&f, NULL);
	f.driver->ops->close(f.guest);
	f.guest = f.driver->ops->open(f.driver, path, path, &hooks);
	fixture_wait_down(&f, 1);
	assert_int_equal(f.down_err.kind, ERR_INTERNAL);
	peer_turns(&f.peer, 50);
	assert_int_equal(f.down, 1);
	fixture_fini(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_upload_does_not_delay_an_exec),
		cmocka_unit_test(test_idle_guest_costs_little),
		cmocka_unit_test(test_silent_guest_is_pinged_and_dropped),
		cmocka_unit_test(test_first_sync_waits_for_the_port_without_copies),
		cmocka_unit_test(test_last_words_before_a_hang_up_are_heard),
		cmocka_unit_test(test_socket_that_can_not_be_is_told_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
