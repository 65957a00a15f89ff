#include "tests/lib/cm.h"

#include <stdlib.h>
#include <string.h>

#include "agent/chan_fsm.h"
#include "agent/guest_agent.h"
#include "proto/msg.h"

/*
 * Conversations as tables: what the guest sends, in pieces and whole, and what the machine makes of
 * it. Times are made up.
 */

static const struct chan_timing timing = {
	.sync_retry_ms = 250,
	.hello_ms = 10000,
	.ping_idle_ms = 30000,
	.ping_busy_ms = 5000,
	.pong_ms = 10000,
};

static const uint8_t nonce[FRAME_NONCE_BYTES] = "nonce of session";
static const uint8_t old_nonce[FRAME_NONCE_BYTES] = "nonce of another";

static const uint8_t fresh[FRAME_NONCE_BYTES] = "nonce of a retry";

struct bytes {
	uint8_t data[1024];
	size_t len;
};

static void add_frame(struct bytes *b, uint16_t type, uint32_t stream, const void *body, size_t len)
{
	assert_true(b->len + PROTO_HEADER_BYTES + len <= sizeof b->data);
	frame_header(b->data + b->len, type, 0, stream, (uint32_t)len);
	if (len > 0) {
		memcpy(b->data + b->len + PROTO_HEADER_BYTES, body, len);
	}
	b->len += PROTO_HEADER_BYTES + len;
}

static void add_ack(struct bytes *b, const uint8_t *of)
{
	uint8_t body[FRAME_SYNC_BYTES];

	memcpy(body, frame_magic, FRAME_MAGIC_BYTES);
	memcpy(body + FRAME_MAGIC_BYTES, of, FRAME_NONCE_BYTES);
	add_frame(b, FRAME_SYNC_ACK, 0, body, sizeof body);
}

static void add_hello(struct bytes *b)
{
	add_frame(b, FRAME_HELLO, 0, NULL, 0);
}

/* Feeds @b in pieces of @step bytes; collects the actions, CHAN_WAIT and CHAN_SKIP left out. */
struct outcome {
	enum chan_action actions[8];
	size_t n;
	struct err err;
};

static struct outcome feed(struct chan_fsm *fsm, const struct bytes *b, size_t step)
{
	struct outcome o = {.err = ERR_INIT};
	size_t pos = 0;

	for (size_t end = 0; end < b->len && fsm->state != CHAN_DOWN;) {
		end = MIN(end + step, b->len);
		for (;;) {
			struct frame frame;
			size_t used;
			enum chan_action a = chan_fsm_input(
				fsm, b->data + pos, end - pos, 1000, &frame, &used, &o.err);

			pos += used;
			assert_true(pos <= end);
			if (a == CHAN_WAIT) {
				break;
			}
			if (a != CHAN_SKIP) {
				assert_true(o.n < 8);
				o.actions[o.n++] = a;
			}
			if (a == CHAN_FAIL) {
				break;
			}
		}
	}
	return o;
}

static struct chan_fsm connected(void)
{
	struct chan_fsm fsm;

	chan_fsm_init(&fsm, &timing);
	chan_fsm_connect(&fsm, nonce, 1000);
	return fsm;
}

static struct chan_fsm ready(void)
{
	struct chan_fsm fsm = connected();
	struct bytes b = {0};

	add_ack(&b, nonce);
	add_hello(&b);
	feed(&fsm, &b, b.len);
	assert_int_equal(fsm.state, CHAN_READY);
	return fsm;
}

static void test_session_opens_with_sync_of_the_nonce(void **state)
{
	struct chan_fsm fsm = connected();
	struct frame frame;
	size_t used;

	(void)state;
	assert_int_equal(fsm.state, CHAN_SYNC);
	assert_int_equal(
		frame_parse(FRAME_SIDE_HOST, fsm.out, fsm.out_len, &frame, &used), FRAME_OK);
	assert_int_equal(frame.type, FRAME_SYNC);
	assert_memory_equal(frame.payload + FRAME_MAGIC_BYTES, nonce, FRAME_NONCE_BYTES);
}

static void test_session_becomes_ready_in_pieces_of_any_size(void **state)
{
	struct bytes b = {0};

	(void)state;
	add_ack(&b, nonce);
	add_hello(&b);
	for (size_t step = 1; step <= b.len; step++) {
		struct chan_fsm fsm = connected();
		struct outcome o = feed(&fsm, &b, step);

		assert_int_equal(o.n, 2);
		assert_int_equal(o.actions[0], CHAN_SEND);
		assert_int_equal(o.actions[1], CHAN_TAKE_HELLO);
		assert_int_equal(fsm.state, CHAN_READY);
	}
}

static void test_hello_is_what_it_sends_after_the_ack(void **state)
{
	struct chan_fsm fsm = connected();
	struct bytes b = {0};
	struct frame frame;
	size_t used;

	(void)state;
	add_ack(&b, nonce);
	feed(&fsm, &b, b.len);
	assert_int_equal(fsm.state, CHAN_HELLO);
	assert_int_equal(
		frame_parse(FRAME_SIDE_HOST, fsm.out, fsm.out_len, &frame, &used), FRAME_OK);
	assert_int_equal(frame.type, FRAME_HELLO);
	assert_int_equal(used, fsm.out_len);
}

static void test_sync_discards_what_came_before_its_own_ack(void **state)
{
	(void)state;
	for (int which = 0; which < 4; which++) {
		struct bytes b = {0};

		switch (which) {
		case 0: /* text, and a byte that begins like the magic */
			memset(b.data, 0xff, 100);
			b.len = 100;
			break;
		case 1: /* frames of an earlier session */
			add_frame(&b, FRAME_END, 7, "x", 1);
			add_frame(&b, FRAME_HELLO, 0, "x", 1);
			add_frame(&b, FRAME_ABORT, 0, NULL, 0);
			break;
		case 2: /* earlier acks */
			add_ack(&b, old_nonce);
			add_ack(&b, old_nonce);
			break;
		default: /* an earlier ack, cut off before its nonce and in its nonce */
			add_ack(&b, old_nonce);
			b.len -= FRAME_NONCE_BYTES;
			add_ack(&b, old_nonce);
			b.len -= 3;
			break;
		}
		add_ack(&b, nonce);
		add_hello(&b);
		for (size_t step = 1; step <= b.len; step += 5) {
			struct chan_fsm fsm = connected();
			struct outcome o = feed(&fsm, &b, step);

			assert_int_equal(fsm.state, CHAN_READY);
			assert_int_equal(o.n, 2);
		}
	}
}

static void test_more_acks_do_not_restart_the_session(void **state)
{
	struct chan_fsm fsm = connected();
	struct bytes b = {0};

	(void)state;
	add_ack(&b, nonce);
	add_ack(&b, nonce);
	add_hello(&b);
	add_ack(&b, nonce);
	add_ack(&b, old_nonce);
	struct outcome o = feed(&fsm, &b, b.len);

	assert_int_equal(o.n, 2);
	assert_int_equal(fsm.state, CHAN_READY);
}

static void test_violations_end_the_session(void **state)
{
	static const struct {
		const char *what;
		uint16_t type;
		uint32_t stream;
		size_t len;
		bool in_hello; /* else in READY */
	} cases[] = {
		{"a call before HELLO", FRAME_END, 1, 0, true},
		{"a second HELLO", FRAME_HELLO, 0, 0, false},
		{"a type only the host sends", FRAME_SYNC, 0, FRAME_SYNC_BYTES, false},
		{"a PING from the guest", FRAME_PING, 0, 0, false},
		{"an unknown type", 99, 0, 0, false},
		{"an unknown type in HELLO", 99, 0, 0, true},
		{"a PONG that is too long", FRAME_PONG, 0, 65, false},
		{"a call that the guest makes", FRAME_EXEC, 1, 0, false},
		{"END on stream 0", FRAME_END, 0, 0, false},
		{"PONG on a call's stream", FRAME_PONG, 1, 0, false},
		{"a WINDOW of 3 bytes", FRAME_WINDOW, 1, 3, false},
		{"empty DATA", FRAME_DATA, 1, 0, false},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct chan_fsm fsm = cases[i].in_hello ? connected() : ready();
		struct bytes b = {0};
		static const uint8_t zeros[128];

		if (cases[i].in_hello) {
			add_ack(&b, nonce);
			feed(&fsm, &b, b.len);
			b.len = 0;
		}
		add_frame(&b, cases[i].type, cases[i].stream, zeros, cases[i].len);
		struct outcome o = feed(&fsm, &b, b.len);

		if (o.n != 1 || o.actions[0] != CHAN_FAIL) {
			fail_msg("%s passes", cases[i].what);
		}
		assert_int_equal(o.err.kind, ERR_UNAVAILABLE);
		assert_int_equal(fsm.state, CHAN_DOWN);
	}
}

static void test_payload_at_the_limit_waits_and_beyond_it_fails(void **state)
{
	(void)state;
	for (uint32_t more = 0; more < 2; more++) {
		struct chan_fsm fsm = ready();
		struct bytes b = {.len = PROTO_HEADER_BYTES};

		frame_header(b.data, FRAME_END, 0, 1, PROTO_PAYLOAD_MAX_BYTES + more);
		struct outcome o = feed(&fsm, &b, b.len);

		assert_int_equal(o.n, more);
		assert_int_equal(fsm.state, more ? CHAN_DOWN : CHAN_READY);
	}
}

static void test_abort_gives_the_guests_reason_as_safe_text(void **state)
{
	struct chan_fsm fsm = ready();
	struct bytes b = {0};
	uint8_t body[64];
	struct msg_writer w = {.buf = body, .size = sizeof body};

	(void)state;
	msg_put_u32(&w, MSG_STATUS, STATUS_INTERNAL);
	msg_put_text(&w, MSG_TEXT, "no\nmore\x1b[1m");
	add_frame(&b, FRAME_ABORT, 0, body, w.len);
	struct outcome o = feed(&fsm, &b, b.len);

	assert_int_equal(o.actions[0], CHAN_FAIL);
	assert_non_null(strstr(o.err.msg, "internal"));
	assert_non_null(strstr(o.err.msg, "no?more?[1m"));
}

static void test_frames_of_calls_are_handed_on(void **state)
{
	struct chan_fsm fsm = ready();
	struct bytes b = {0};

	(void)state;
	add_frame(&b, FRAME_END, 3, "abc", 3);
	add_frame(&b, FRAME_PONG, 0, NULL, 0);
	add_frame(&b, FRAME_DATA, 3, "abc", 3);
	b.data[PROTO_HEADER_BYTES + 3 + PROTO_HEADER_BYTES + 6] = FRAME_CHANNEL_OUT;
	struct outcome o = feed(&fsm, &b, 4);

	assert_int_equal(o.n, 2);
	assert_int_equal(o.actions[0], CHAN_TAKE_FRAME);
	assert_int_equal(o.actions[1], CHAN_TAKE_FRAME);
}

static void test_sync_is_repeated_only_once_the_first_was_taken(void **state)
{
	struct chan_fsm fsm = connected();
	struct err err = ERR_INIT;

	(void)state;
	fsm.out_len = 0;
	assert_int_equal(chan_fsm_due(&fsm), 1250);
	assert_int_equal(chan_fsm_tick(&fsm, 1249, true, fresh, &err), CHAN_WAIT);
	assert_int_equal(chan_fsm_tick(&fsm, 1250, false, fresh, &err), CHAN_WAIT);
	assert_int_equal(fsm.out_len, 0);
	assert_int_equal(chan_fsm_due(&fsm), 1500);
	assert_int_equal(chan_fsm_tick(&fsm, 1500, true, fresh, &err), CHAN_SEND);
	assert_int_equal(fsm.out_len, PROTO_HEADER_BYTES + FRAME_SYNC_BYTES);
	assert_memory_equal(
		fsm.out + PROTO_HEADER_BYTES + FRAME_MAGIC_BYTES, fresh, FRAME_NONCE_BYTES);
	assert_int_equal(chan_fsm_due(&fsm), 2000);
	/* However long the guest boots. */
	for (int i = 0; i < 1000; i++) {
		uint64_t due = chan_fsm_due(&fsm);

		assert_int_equal(chan_fsm_tick(&fsm, due, true, fresh, &err), CHAN_SEND);
		assert_true(chan_fsm_due(&fsm) <= due + CHAN_SYNC_RETRY_MAX_MS);
	}
}

static void test_only_the_latest_sync_counts(void **state)
{
	struct chan_fsm fsm = connected();
	struct err err = ERR_INIT;
	struct bytes b = {0};

	(void)state;
	assert_int_equal(chan_fsm_tick(&fsm, 1250, true, fresh, &err), CHAN_SEND);
	/* The guest answers each, and each time starts over. */
	add_ack(&b, nonce);
	add_hello(&b);
	struct outcome o = feed(&fsm, &b, b.len);

	assert_int_equal(o.n, 0);
	assert_int_equal(fsm.state, CHAN_SYNC);
	b.len = 0;
	add_ack(&b, fresh);
	add_hello(&b);
	feed(&fsm, &b, b.len);
	assert_int_equal(fsm.state, CHAN_READY);
}

static void test_missing_hello_times_out(void **state)
{
	struct chan_fsm fsm = connected();
	struct bytes b = {0};
	struct err err = ERR_INIT;

	(void)state;
	add_ack(&b, nonce);
	feed(&fsm, &b, b.len);
	assert_int_equal(chan_fsm_tick(&fsm, 10999, true, fresh, &err), CHAN_WAIT);
	assert_int_equal(chan_fsm_tick(&fsm, 11000, true, fresh, &err), CHAN_FAIL);
	assert_int_equal(err.kind, ERR_TIMEOUT);
	assert_int_equal(fsm.state, CHAN_DOWN);
	assert_true(chan_fsm_due(&fsm) == UINT64_MAX);
}

static void test_silent_guest_is_pinged_and_then_given_up(void **state)
{
	struct chan_fsm fsm = ready();
	struct err err = ERR_INIT;
	struct bytes pong = {0};

	(void)state;
	assert_int_equal(chan_fsm_due(&fsm), 31000);
	assert_int_equal(chan_fsm_tick(&fsm, 31000, true, fresh, &err), CHAN_SEND);
	assert_int_equal(get_le16(fsm.out + 4), FRAME_PING);
	assert_int_equal(chan_fsm_due(&fsm), 41000);
	/* An answer: feed() says it comes at 1000. */
	add_frame(&pong, FRAME_PONG, 0, NULL, 0);
	feed(&fsm, &pong, pong.len);
	assert_int_equal(chan_fsm_due(&fsm), 31000);
	assert_int_equal(chan_fsm_tick(&fsm, 31000, true, fresh, &err), CHAN_SEND);
	assert_int_equal(chan_fsm_tick(&fsm, 40999, true, fresh, &err), CHAN_WAIT);
	assert_int_equal(chan_fsm_tick(&fsm, 41000, true, fresh, &err), CHAN_FAIL);
	assert_int_equal(err.kind, ERR_TIMEOUT);
}

static void test_calls_under_way_shorten_the_silence(void **state)
{
	struct chan_fsm fsm = ready();

	(void)state;
	chan_fsm_set_busy(&fsm, true, 20000);
	assert_int_equal(chan_fsm_due(&fsm), 25000);
	/* A second call doesn't put it off. */
	chan_fsm_set_busy(&fsm, true, 24000);
	assert_int_equal(chan_fsm_due(&fsm), 25000);
	chan_fsm_set_busy(&fsm, false, 24000);
	assert_int_equal(chan_fsm_due(&fsm), 50000);
}

static void test_guest_that_frees_a_held_command_is_waited_for(void **state)
{
	struct chan_fsm fsm = ready();
	struct err err = ERR_INIT;
	uint64_t now = 1000;

	(void)state;
	fsm.timing = &guest_timing_default.chan;
	chan_fsm_set_busy(&fsm, true, now);
	/* The PING may reach it just before the call that holds it. */
	assert_int_equal(chan_fsm_tick(&fsm, chan_fsm_due(&fsm), true, fresh, &err), CHAN_SEND);
	now += guest_timing_default.chan.ping_busy_ms + PROTO_SILENCE_MAX_MS;
	assert_int_equal(chan_fsm_tick(&fsm, now, true, fresh, &err), CHAN_WAIT);
}

static void test_random_bytes_never_get_beyond_the_rules(void **state)
{
	uint64_t seed = 42;

	(void)state;
	for (int round = 0; round < 3000; round++) {
		struct chan_fsm fsm = round % 2 ? ready() : connected();
		struct bytes b = {0};

		for (size_t i = 0; i < 200; i++) {
			seed = seed * 6364136223846793005u + 1442695040888963407u;
			b.data[b.len++] = (uint8_t)(seed >> 56) & (round % 3 ? 0x1f : 0xff);
		}
		struct outcome o = {.err = ERR_INIT};
		struct frame frame;
		size_t pos = 0;

		for (int i = 0; i < 64 && fsm.state != CHAN_DOWN; i++) {
			size_t used;
			enum chan_action a = chan_fsm_input(
				&fsm, b.data + pos, b.len - pos, 0, &frame, &used, &o.err);

			pos += used;
			assert_true(pos <= b.len);
			if (a == CHAN_TAKE_FRAME) {
				assert_true(frame.payload + frame.length <= b.data + b.len);
			}
			if (a == CHAN_WAIT) {
				break;
			}
		}
		/* Nobody guesses a nonce. */
		assert_true(round % 2 || fsm.state == CHAN_SYNC);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_session_opens_with_sync_of_the_nonce),
		cmocka_unit_test(test_session_becomes_ready_in_pieces_of_any_size),
		cmocka_unit_test(test_hello_is_what_it_sends_after_the_ack),
		cmocka_unit_test(test_sync_discards_what_came_before_its_own_ack),
		cmocka_unit_test(test_more_acks_do_not_restart_the_session),
		cmocka_unit_test(test_violations_end_the_session),
		cmocka_unit_test(test_payload_at_the_limit_waits_and_beyond_it_fails),
		cmocka_unit_test(test_abort_gives_the_guests_reason_as_safe_text),
		cmocka_unit_test(test_frames_of_calls_are_handed_on),
		cmocka_unit_test(test_sync_is_repeated_only_once_the_first_was_taken),
		cmocka_unit_test(test_only_the_latest_sync_counts),
		cmocka_unit_test(test_missing_hello_times_out),
		cmocka_unit_test(test_silent_guest_is_pinged_and_then_given_up),
		cmocka_unit_test(test_calls_under_way_shorten_the_silence),
		cmocka_unit_test(test_guest_that_frees_a_held_command_is_waited_for),
		cmocka_unit_test(test_random_bytes_never_get_beyond_the_rules),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
