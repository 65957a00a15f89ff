#include "tests/lib/cm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/dial.h"
#include "agent/mux.h"
#include "base/clock.h"
#include "base/xalloc.h"
#include "fixture.h"

/* Files against a scripted peer: what goes well, and answers that are wrong. */

static void test_put_sends_the_pipe_and_counts(void **state)
{
	struct fixture f;
	struct record record = {0};
	uint8_t body[64];
	struct msg_writer w = {.buf = body, .size = sizeof body};
	size_t sent = 0;

	(void)state;
	fixture_init(&f, NULL);
	fixture_start(&f);
	struct pipe *pipe = pipe_new(f.loop, 100000);
	_cleanup_free_ uint8_t *bytes = xcalloc(1, 100000);

	assert_int_equal(pipe_write(pipe, bytes, 100000), 100000);
	pipe_close(pipe);
	pipe_writer_free(pipe);
	fixture_put(&f, &record, pipe, 100000);
	peer_expect(&f.peer, FRAME_FILE_PUT);
	while (sent < 100000) {
		sent += peer_expect(&f.peer, FRAME_DATA).length;
	}
	peer_expect(&f.peer, FRAME_CLOSE);
	msg_put_u32(&w, MSG_STATUS, STATUS_OK);
	msg_put_u64(&w, MSG_BYTES, 100000);
	peer_send(&f.peer, FRAME_END, 0, 1, body, w.len);
	fixture_wait_done(&f, &record);
	assert_int_equal(record.err.kind, ERR_NONE);
	assert_true(record.has_status);
	fixture_fini(&f);
}

static void test_put_of_another_length_than_announced_is_cancelled(void **state)
{
	(void)state;
	for (int is_long = 0; is_long < 2; is_long++) {
		struct fixture f;
		struct record record = {0};

		fixture_init(&f, NULL);
		fixture_start(&f);
		struct pipe *pipe = pipe_new(f.loop, 100);

		fixture_put(&f, &record, pipe, 10);
		peer_expect(&f.peer, FRAME_FILE_PUT);
		pipe_write(pipe, "01234567890123456789", is_long ? 11 : 9);
		pipe_close(pipe);
		pipe_writer_free(pipe);
		fixture_wait_done(&f, &record);
		assert_int_equal(record.err.kind, ERR_INVALID);
		struct frame frame;

		do {
			frame = peer_receive(&f.peer);
			assert_int_not_equal(frame.type, FRAME_CLOSE);
		} while (frame.type != FRAME_CANCEL);
		fixture_fini(&f);
	}
}

static void test_put_whose_sender_goes_away_is_cancelled(void **state)
{
	struct fixture f;
	struct record record = {0};

	(void)state;
	fixture_init(&f, NULL);
	fixture_start(&f);
	struct pipe *pipe = pipe_new(f.loop, 100);

	pipe_write(pipe, "abc", 3);
	fixture_put(&f, &record, pipe, UINT64_MAX);
	peer_expect(&f.peer, FRAME_FILE_PUT);
	peer_expect(&f.peer, FRAME_DATA);
	pipe_writer_free(pipe);
	peer_expect(&f.peer, FRAME_CANCEL);
	fixture_wait_done(&f, &record);
	assert_int_equal(record.err.kind, ERR_CANCELLED);
	fixture_fini(&f);
}

static void test_put_that_the_guest_refuses_fails_the_sender(void **state)
{
	struct fixture f;
	struct record record = {0};

	(void)state;
	fixture_init(&f, NULL);
	fixture_start(&f);
	struct pipe *pipe = pipe_new(f.loop, 100);

	fixture_put(&f, &record, pipe, UINT64_MAX);
	peer_expect(&f.peer, FRAME_FILE_PUT);
	peer_send_end(&f.peer, 1, STATUS_NO_SPACE, "No space left on device");
	fixture_wait_done(&f, &record);
	assert_int_equal(record.err.kind, ERR_GUEST);
	assert_int_equal(record.status, STATUS_NO_SPACE);
	assert_int_equal(record.sys, 2);
	assert_string_equal(record.text, "No space left on device");
	assert_int_equal(pipe_failure(pipe)->kind, ERR_GUEST);
	pipe_writer_free(pipe);
	fixture_fini(&f);
}

static void test_put_that_is_fine_too_early_or_miscounted_is_not_fine(void **state)
{
	(void)state;
	/* 0: counts more; 1: before the end was sent; 2: counts nothing */
	for (int which = 0; which < 3; which++) {
		bool is_early = which == 1;
		struct fixture f;
		struct record record = {0};
		uint8_t body[64];
		struct msg_writer w = {.buf = body, .size = sizeof body};

		fixture_init(&f, NULL);
		fixture_start(&f);
		struct pipe *pipe = pipe_new(f.loop, 100);

		pipe_write(pipe, "abc", 3);
		fixture_put(&f, &record, pipe, UINT64_MAX);
		peer_expect(&f.peer, FRAME_FILE_PUT);
		peer_expect(&f.peer, FRAME_DATA);
		if (!is_early) {
			pipe_close(pipe);
			peer_expect(&f.peer, FRAME_CLOSE);
		}
		msg_put_u32(&w, MSG_STATUS, STATUS_OK);
		if (which != 2) {
			msg_put_u64(&w, MSG_BYTES, is_early ? 3 : 4);
		}
		peer_send(&f.peer, FRAME_END, 0, 1, body, w.len);
		fixture_wait_down(&f, 1);
		assert_int_equal(record.done, 1);
		assert_int_equal(record.err.kind, ERR_UNAVAILABLE);
		pipe_writer_free(pipe);
		fixture_fini(&f);
	}
}

/* A second before the epoch. */
#define MTIME_NS (UINT64_MAX - 1000000000u + 1)

static void send_info(struct peer *peer, uint32_t stream)
{
	uint8_t body[64];
	struct msg_writer w = {.buf = body, .size = sizeof body};

	msg_put_u64(&w, MSG_SIZE, 1000);
	msg_put_u32(&w, MSG_MODE, 0100644);
	msg_put_u64(&w, MSG_MTIME_NS, MTIME_NS);
	peer_send(peer, FRAME_STARTED, 0, stream, body, w.len);
}

static void send_file_end(struct peer *peer, uint32_t stream, uint64_t bytes)
{
	uint8_t body[64];
	struct msg_writer w = {.buf = body, .size = sizeof body};

	msg_put_u32(&w, MSG_STATUS, STATUS_OK);
	msg_put_u64(&w, MSG_BYTES, bytes);
	peer_send(peer, FRAME_END, 0, stream, body, w.len);
}

static void test_get_is_done_once_the_pipe_has_it_all(void **state)
{
	struct fixture f;
	struct record record = {0};
	uint8_t bytes[1000] = {0};

	(void)state;
	fixture_init(&f, NULL);
	fixture_start(&f);
	struct pipe *pipe = pipe_new(f.loop, 300);

	fixture_get(&f, &record, pipe);
	peer_expect(&f.peer, FRAME_FILE_GET);
	send_info(&f.peer, 1);
	peer_send(&f.peer, FRAME_DATA, FRAME_CHANNEL_OUT, 1, bytes, sizeof bytes);
	send_file_end(&f.peer, 1, 1000);
	peer_turns(&f.peer, 20);
	assert_int_equal(record.infos, 1);
	assert_true(record.info.size == 1000);
	assert_int_equal(record.info.mode, 0644);
	assert_true(record.info.mtime_ms == -1000);
	assert_int_equal(pipe_available(pipe), 300);
	assert_int_equal(record.done, 0);
	for (size_t n = 0; n < 1000;) {
		n += pipe_read(pipe, bytes, sizeof bytes);
		peer_turns(&f.peer, 3);
	}
	assert_int_equal(record.done, 1);
	assert_int_equal(record.err.kind, ERR_NONE);
	assert_true(pipe_is_end(pipe));
	pipe_reader_free(pipe);
	fixture_fini(&f);
}

/* All of it is here: that the channel goes then takes nothing away. */
static void test_get_that_has_ended_outlives_the_channel(void **state)
{
	struct fixture f;
	struct record whole = {0};
	struct record half = {0};
	uint8_t bytes[1000];

	(void)state;
	memset(bytes, 7, sizeof bytes);
	fixture_init(&f, &fixture_patient);
	fixture_start(&f);
	struct pipe *pipe = pipe_new(f.loop, 300);
	struct pipe *cut = pipe_new(f.loop, 300);

	fixture_get(&f, &whole, pipe);
	peer_expect(&f.peer, FRAME_FILE_GET);
	send_info(&f.peer, 1);
	peer_send(&f.peer, FRAME_DATA, FRAME_CHANNEL_OUT, 1, bytes, sizeof bytes);
	send_file_end(&f.peer, 1, 1000);
	fixture_get(&f, &half, cut);
	peer_expect(&f.peer, FRAME_FILE_GET);
	send_info(&f.peer, 2);
	peer_send(&f.peer, FRAME_DATA, FRAME_CHANNEL_OUT, 2, bytes, sizeof bytes);
	peer_turns(&f.peer, 20);
	assert_int_equal(half.infos, 1);
	peer_hang_up(&f.peer);
	fixture_wait_down(&f, 1);
	assert_int_equal(half.done, 1);
	assert_int_equal(half.err.kind, ERR_UNAVAILABLE);
	assert_int_equal(pipe_failure(cut)->kind, ERR_UNAVAILABLE);
	pipe_reader_free(cut);
	assert_int_equal(whole.done, 0);
	assert_null(pipe_failure(pipe));
	/* And the next session has nothing to do with it. */
	peer_start_session(&f.peer);
	fixture_wait_ready(&f, 2);
	size_t n = 0;
	while (n < 1000) {
		n += pipe_read(pipe, bytes, sizeof bytes);
		peer_turns(&f.peer, 3);
	}
	assert_int_equal(n, 1000);
	assert_int_equal(whole.done, 1);
	assert_int_equal(whole.err.kind, ERR_NONE);
	assert_true(pipe_is_end(pipe));
	pipe_reader_free(pipe);
	fixture_fini(&f);
}

static void test_get_that_has_ended_ends_with_the_guest(void **state)
{
	struct fixture f;
	struct record record = {0};
	uint8_t bytes[1000] = {0};

	(void)state;
	fixture_init(&f, &fixture_patient);
	fixture_start(&f);
	struct pipe *pipe = pipe_new(f.loop, 300);
	struct guest_call *call = fixture_get(&f, &record, pipe);

	peer_expect(&f.peer, FRAME_FILE_GET);
	send_info(&f.peer, 1);
	peer_send(&f.peer, FRAME_DATA, FRAME_CHANNEL_OUT, 1, bytes, sizeof bytes);
	send_file_end(&f.peer, 1, 1000);
	peer_turns(&f.peer, 20);
	peer_hang_up(&f.peer);
	fixture_wait_down(&f, 1);
	assert_int_equal(record.done, 0);
	f.driver->ops->cancel(call);
	fixture_wait_done(&f, &record);
	assert_int_equal(record.err.kind, ERR_CANCELLED);
	assert_int_equal(pipe_failure(pipe)->kind, ERR_CANCELLED);
	pipe_reader_free(pipe);
	pipe = pipe_new(f.loop, 300);
	record = (struct record){0};
	peer_start_session(&f.peer);
	fixture_wait_ready(&f, 2);
	fixture_get(&f, &record, pipe);
	peer_expect(&f.peer, FRAME_FILE_GET);
	send_info(&f.peer, 1);
	peer_send(&f.peer, FRAME_DATA, FRAME_CHANNEL_OUT, 1, bytes, sizeof bytes);
	send_file_end(&f.peer, 1, 1000);
	peer_turns(&f.peer, 20);
	peer_hang_up(&f.peer);
	fixture_wait_down(&f, 2);
	assert_int_equal(record.done, 0);
	f.driver->ops->close(steal_ptr(&f.guest));
	assert_int_equal(record.done, 1);
	assert_int_equal(pipe_failure(pipe)->kind, ERR_CANCELLED);
	pipe_reader_free(pipe);
	fixture_fini(&f);
}

static void test_get_gives_credit_only_as_the_pipe_drains(void **state)
{
	struct fixture f;
	struct record record = {0};
	_cleanup_free_ uint8_t *part = xcalloc(1, PROTO_PAYLOAD_MAX_BYTES);

	(void)state;
	fixture_init(&f, NULL);
	fixture_start(&f);
	struct pipe *pipe = pipe_new(f.loop, PROTO_PAYLOAD_MAX_BYTES);

	fixture_get(&f, &record, pipe);
	peer_expect(&f.peer, FRAME_FILE_GET);
	send_info(&f.peer, 1);
	for (int i = 0; i < 4; i++) {
		peer_send(&f.peer, FRAME_DATA, FRAME_CHANNEL_OUT, 1, part, PROTO_PAYLOAD_MAX_BYTES);
	}
	assert_true(peer_is_silent(&f.peer));
	assert_int_equal(pipe_read(pipe, part, PROTO_PAYLOAD_MAX_BYTES), PROTO_PAYLOAD_MAX_BYTES);
	struct frame frame = peer_expect(&f.peer, FRAME_WINDOW);

	assert_int_equal(get_le32(frame.payload), 2 * PROTO_PAYLOAD_MAX_BYTES);
	pipe_reader_free(pipe);
	/* The receiver has gone: the guest is told. */
	peer_expect(&f.peer, FRAME_CANCEL);
	fixture_wait_done(&f, &record);
	assert_int_equal(record.err.kind, ERR_CANCELLED);
	fixture_fini(&f);
}

static void test_get_that_is_cut_short_or_too_long_is_an_error(void **state)
{
	(void)state;
	for (int which = 0; which < 4; which++) {
		struct fixture f;
		struct record record = {0};
		struct guest_file_spec spec = {.path = "/x", .path_len = 2, .length = 3};
		struct guest_get_hooks hooks = record_get_hooks;
		struct err err;

		fixture_init(&f, NULL);
		fixture_start(&f);
		struct pipe *pipe = pipe_new(f.loop, 100);

		hooks.arg = &record;
		assert_non_null(f.driver->ops->get(f.guest, &spec, pipe, &hooks, &err));
		peer_expect(&f.peer, FRAME_FILE_GET);
		if (which != 0) {
			send_info(&f.peer, 1);
		}
		/* 0: no STARTED; 1: more than asked for; 2: counts more; 3: no END */
		peer_send(&f.peer, FRAME_DATA, FRAME_CHANNEL_OUT, 1, "abcd", which == 1 ? 4 : 2);
		if (which == 2) {
			send_file_end(&f.peer, 1, 3);
		} else if (which == 3) {
			peer_send(&f.peer, FRAME_CLOSE, FRAME_CHANNEL_OUT, 1, NULL, 0);
			peer_turns(&f.peer, 5);
			assert_int_equal(record.done, 0);
			peer_hang_up(&f.peer);
		}
		fixture_wait_down(&f, 1);
		assert_int_equal(record.done, 1);
		assert_int_equal(record.err.kind, ERR_UNAVAILABLE);
		assert_int_equal(pipe_failure(pipe)->kind, ERR_UNAVAILABLE);
		pipe_reader_free(pipe);
		fixture_fini(&f);
	}
}

static size_t put_entry(uint8_t *out, size_t size, const char *name, uint8_t type)
{
	struct msg_writer w = {.buf = out, .size = size};
	struct msg_entry entry = {.mode = 0100644,
		.size = 5,
		.mtime_ns = MTIME_NS,
		.type = type,
		.name = name,
		.name_len = strlen(name)};

	assert_true(msg_entry_put(&w, &entry));
	return w.len;
}

static void test_list_hands_on_entries_up_to_its_limit(void **state)
{
	(void)state;
	for (uint32_t limit = 2; limit <= 3; limit++) {
		struct fixture f;
		struct record record = {0};
		uint8_t body[512];
		size_t len = 0;

		fixture_init(&f, NULL);
		fixture_start(&f);
		fixture_list(&f, &record, limit);
		peer_expect(&f.peer, FRAME_FILE_LIST);
		len += put_entry(body + len, sizeof body - len, "a", ENTRY_FILE);
		len += put_entry(body + len, sizeof body - len, "b/c", ENTRY_DIR);
		len += put_entry(body + len, sizeof body - len, "\xff", ENTRY_OTHER);
		peer_send(&f.peer, FRAME_DATA, FRAME_CHANNEL_OUT, 1, body, len);
		if (limit == 3) {
			peer_send_end(&f.peer, 1, STATUS_OK, NULL);
			fixture_wait_done(&f, &record);
			assert_int_equal(record.err.kind, ERR_NONE);
			assert_false(record.is_cut);
			assert_int_equal(record.entries, 3);
			assert_true(record.info.mtime_ms == -1000);
		} else {
			fixture_wait_down(&f, 1);
			assert_int_equal(record.err.kind, ERR_UNAVAILABLE);
			assert_int_equal(record.entries, 2);
		}
		assert_int_equal(record.done, 1);
		fixture_fini(&f);
	}
}

static void test_malformed_entries_drop_the_channel(void **state)
{
	(void)state;
	for (int which = 0; which < 3; which++) {
		struct fixture f;
		struct record record = {0};
		uint8_t body[128];
		size_t len = put_entry(body, sizeof body, "a", which == 0 ? 'x' : ENTRY_FILE);

		fixture_init(&f, NULL);
		fixture_start(&f);
		fixture_list(&f, &record, 10);
		peer_expect(&f.peer, FRAME_FILE_LIST);
		if (which == 1) {
			put_le32(body, (uint32_t)len + 1);
		} else if (which == 2) {
			len--;
		}
		peer_send(&f.peer, FRAME_DATA, FRAME_CHANNEL_OUT, 1, body, len);
		fixture_wait_down(&f, 1);
		assert_int_equal(record.done, 1);
		assert_int_equal(record.entries, 0);
		fixture_fini(&f);
	}
}

static void test_names_that_lead_out_of_the_directory_drop_the_channel(void **state)
{
	static const char *const names[] = {
		"/etc/passwd", "..", "../x", "a/../../x", "a/..", ".", "a//b", "a/", "./a"};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		struct fixture f;
		struct record record = {0};
		uint8_t body[128];
		size_t len = put_entry(body, sizeof body, "..a/b../...", ENTRY_FILE);

		len += put_entry(body + len, sizeof body - len, names[i], ENTRY_FILE);
		fixture_init(&f, NULL);
		fixture_start(&f);
		fixture_list(&f, &record, 10);
		peer_expect(&f.peer, FRAME_FILE_LIST);
		peer_send(&f.peer, FRAME_DATA, FRAME_CHANNEL_OUT, 1, body, len);
		fixture_wait_down(&f, 1);
		assert_int_equal(record.done, 1);
		assert_int_equal(record.entries, 1);
		fixture_fini(&f);
	}
}

static void test_list_of_too_many_bytes_is_cut_and_fine(void **state)
{
	struct fixture f;
	struct record record = {0};
	_cleanup_free_ uint8_t *body = xcalloc(1, PROTO_PAYLOAD_MAX_BYTES);
	char name[4001];
	struct frame frame;
	size_t len = 0;

	(void)state;
	memset(name, 'n', sizeof name - 1);
	name[sizeof name - 1] = '\0';
	while (PROTO_PAYLOAD_MAX_BYTES - len > 4100) {
		len += put_entry(body + len, PROTO_PAYLOAD_MAX_BYTES - len, name, ENTRY_FILE);
	}
	fixture_init(&f, NULL);
	fixture_start(&f);
	fixture_list(&f, &record, 1000000);
	peer_expect(&f.peer, FRAME_FILE_LIST);
	for (size_t window = PROTO_WINDOW_INITIAL_BYTES;; window += get_le32(frame.payload)) {
		for (; window >= len; window -= len) {
			peer_send(&f.peer, FRAME_DATA, FRAME_CHANNEL_OUT, 1, body, len);
		}
		frame = peer_receive(&f.peer);
		if (frame.type != FRAME_WINDOW) {
			break;
		}
	}
	assert_int_equal(frame.type, FRAME_CANCEL);
	assert_true(record.entries * 4028u <= 16u << 20);
	peer_send_end(&f.peer, 1, STATUS_CANCELLED, "cancelled");
	fixture_wait_done(&f, &record);
	assert_int_equal(record.err.kind, ERR_NONE);
	assert_true(record.is_cut);
	fixture_fini(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_put_sends_the_pipe_and_counts),
		cmocka_unit_test(test_put_of_another_length_than_announced_is_cancelled),
		cmocka_unit_test(test_put_whose_sender_goes_away_is_cancelled),
		cmocka_unit_test(test_put_that_the_guest_refuses_fails_the_sender),
		cmocka_unit_test(test_put_that_is_fine_too_early_or_miscounted_is_not_fine),
		cmocka_unit_test(test_get_is_done_once_the_pipe_has_it_all),
		cmocka_unit_test(test_get_that_has_ended_outlives_the_channel),
		cmocka_unit_test(test_get_that_has_ended_ends_with_the_guest),
		cmocka_unit_test(test_get_gives_credit_only_as_the_pipe_drains),
		cmocka_unit_test(test_get_that_is_cut_short_or_too_long_is_an_error),
		cmocka_unit_test(test_list_hands_on_entries_up_to_its_limit),
		cmocka_unit_test(test_malformed_entries_drop_the_channel),
		cmocka_unit_test(test_names_that_lead_out_of_the_directory_drop_the_channel),
		cmocka_unit_test(test_list_of_too_many_bytes_is_cut_and_fine),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
