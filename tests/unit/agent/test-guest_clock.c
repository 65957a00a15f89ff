#include "tests/lib/cm.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/timex.h>

#include "agent/clock_policy.h"
#include "base/clock.h"
#include "fixture.h"

/*
 * A guest whose clock is off, as the real driver sees it. Another test may set the host's clock at
 * any moment (by 1 ns), so a look may come sooner than its time.
 */

#define SECOND_US INT64_C(1000000)

static void start(struct fixture *f, uint64_t features)
{
	fixture_init(f, &fixture_patient);
	f->peer.features = features;
	fixture_start(f);
}

struct question {
	uint32_t stream;
	size_t len;
	int64_t shift_us; /* 0: it only looks */
};

static struct question next_question(struct fixture *f)
{
	struct frame frame = peer_expect(&f->peer, FRAME_CONFIGURE);
	struct msg_reader r = {.buf = frame.payload, .len = frame.length};
	struct question q = {.stream = frame.stream, .len = frame.length};

	for (struct msg_field field; msg_next(&r, &field);) {
		assert_int_equal(field.tag, MSG_CLOCK_SHIFT_NS);
		q.shift_us = (int64_t)msg_u64(&r, &field) / 1000;
	}
	assert_false(r.bad);
	return q;
}

static void answer(struct fixture *f, const struct question *q, int64_t ahead_us)
{
	uint8_t body[64];
	struct msg_writer w = {.buf = body, .size = sizeof body};

	msg_put_u32(&w, MSG_STATUS, STATUS_OK);
	msg_put_u64(&w, MSG_REALTIME_NS, (uint64_t)(clock_wall_us() + ahead_us) * 1000);
	peer_send(&f->peer, FRAME_END, 0, q->stream, body, w.len);
}

static void test_a_clock_that_is_off_is_moved_and_looked_at_again(void **state)
{
	struct fixture f;

	(void)state;
	start(&f, PROTO_FEATURE_CLOCK);
	struct question q = next_question(&f);

	assert_int_equal(q.len, 0);
	answer(&f, &q, 3600 * SECOND_US);
	q = next_question(&f);
	assert_in_range(-q.shift_us, 3599 * SECOND_US, 3601 * SECOND_US);
	answer(&f, &q, 0);
	uint64_t moved_ms = clock_monotonic_ms();

	q = next_question(&f);
	assert_int_equal(q.len, 0);
	assert_true(clock_monotonic_ms() - moved_ms < CLOCK_LOOK_MS / 2);
	fixture_fini(&f);
}

static void test_a_guest_that_cannot_tell_is_not_asked(void **state)
{
	struct fixture f;
	uint64_t end_ms = clock_monotonic_ms() + 3 * CLOCK_SOON_MS;

	(void)state;
	start(&f, PROTO_FEATURE_CGROUP);
	while (clock_monotonic_ms() < end_ms) {
		loop_turn_for(f.loop, 100);
	}
	assert_true(peer_is_silent(&f.peer));
	fixture_fini(&f);
}

static void test_a_look_that_fails_costs_nothing(void **state)
{
	struct fixture f;

	(void)state;
	start(&f, PROTO_FEATURE_CLOCK);
	struct question q = next_question(&f);

	peer_send_end(&f.peer, q.stream, STATUS_INTERNAL, "no clock");
	peer_hang_up(&f.peer);
	fixture_wait_down(&f, 1);
	/* The next session looks again. */
	peer_start_session(&f.peer);
	q = next_question(&f);
	assert_int_equal(q.len, 0);
	fixture_fini(&f);
}

static void test_setting_the_hosts_clock_has_every_guest_looked_at(void **state)
{
	struct fixture f;
	struct timex by_little = {.modes = ADJ_SETOFFSET | ADJ_NANO, .time.tv_usec = 1};

	(void)state;
	start(&f, PROTO_FEATURE_CLOCK);
	struct question q = next_question(&f);

	answer(&f, &q, 0);
	if (adjtimex(&by_little) < 0) {
		assert_int_equal(errno, EPERM);
		fixture_fini(&f);
		skip();
	}
	uint64_t set_ms = clock_monotonic_ms();

	q = next_question(&f);
	assert_int_equal(q.len, 0);
	assert_true(clock_monotonic_ms() - set_ms < CLOCK_LOOK_MS / 2);
	fixture_fini(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_clock_that_is_off_is_moved_and_looked_at_again),
		cmocka_unit_test(test_a_guest_that_cannot_tell_is_not_asked),
		cmocka_unit_test(test_a_look_that_fails_costs_nothing),
		cmocka_unit_test(test_setting_the_hosts_clock_has_every_guest_looked_at),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
