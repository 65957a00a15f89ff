#include "tests/lib/cm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/mux.h"
#include "base/xalloc.h"
#include "fixture.h"

/* The guest driver against a scripted peer: calls that go well, and answers that are wrong. */

static void test_guest_becomes_ready_when_the_socket_appears(void **state)
{
	struct fixture f;

	(void)state;
	fixture_init(&f, NULL);
	peer_turns(&f.peer, 20);
	assert_null(f.driver->ops->hello(f.guest));
	fixture_start(&f);
	const struct guest_hello *hello = f.driver->ops->hello(f.guest);

	assert_non_null(hello);
	assert_int_equal(f.driver->ops->state(f.guest), GUEST_READY);
	assert_int_equal(hello->version, PROTO_VERSION);
	assert_string_equal(hello->software, "peer/1");
	assert_string_equal(hello->boot_id, "boot-1");
	/* Not printable: replaced. */
	assert_string_equal(hello->image, "minimal?1");
	assert_int_equal(f.down, 0);
	fixture_fini(&f);
}

static void test_calls_before_ready_are_refused(void **state)
{
	struct fixture f;
	struct guest_exec_spec exec = {.command = "true"};
	struct guest_file_spec file = {.path = "/x", .path_len = 2, .limit = 1};
	struct guest_config config = {0};
	struct err err;

	(void)state;
	fixture_init(&f, NULL);
	const struct guest_driver_ops *ops = f.driver->ops;
	struct pipe *body = pipe_new(f.loop, 10);

	assert_null(ops->exec(f.guest, &exec, &record_exec_hooks, &err));
	assert_int_equal(err.kind, ERR_UNAVAILABLE);
	assert_null(ops->put(f.guest, &file, body, record_done, NULL, &err));
	assert_null(ops->get(f.guest, &file, body, &record_get_hooks, &err));
	assert_null(ops->list(f.guest, &file, &record_list_hooks, &err));
	assert_null(ops->configure(f.guest, &config, record_done, NULL, &err));
	assert_null(ops->shutdown(f.guest, record_done, NULL, &err));
	assert_int_equal(err.kind, ERR_UNAVAILABLE);
	/* The pipe's ends weren't taken. */
	pipe_close(body);
	pipe_writer_free(body);
	pipe_reader_free(body);
	fixture_fini(&f);
}

static void test_requests_that_make_no_sense_are_refused(void **state)
{
	struct fixture f;
	char *args[] = {"true", NULL};
	char *none[] = {NULL};
	struct guest_exec_spec both = {.command = "true", .args = args};
	struct guest_exec_spec neither = {.args = none};
	struct guest_file_spec empty = {.path = "", .limit = 1};
	struct guest_file_spec nul = {.path = "a\0b", .path_len = 3, .limit = 1};
	struct guest_file_spec zero = {.path = "a", .path_len = 1};
	char name[PROTO_PATH_MAX_BYTES + 1];
	struct guest_file_spec deep = {.path = name, .path_len = sizeof name, .limit = 1};
	struct err err;

	(void)state;
	memset(name, 'a', sizeof name);
	fixture_init(&f, NULL);
	fixture_start(&f);
	const struct guest_driver_ops *ops = f.driver->ops;

	assert_null(ops->exec(f.guest, &both, &record_exec_hooks, &err));
	assert_int_equal(err.kind, ERR_INVALID);
	assert_null(ops->exec(f.guest, &neither, &record_exec_hooks, &err));
	assert_int_equal(err.kind, ERR_INVALID);
	assert_null(ops->list(f.guest, &empty, &record_list_hooks, &err));
	assert_int_equal(err.kind, ERR_INVALID);
	assert_null(ops->list(f.guest, &nul, &record_list_hooks, &err));
	assert_int_equal(err.kind, ERR_INVALID);
	assert_null(ops->list(f.guest, &zero, &record_list_hooks, &err));
	assert_int_equal(err.kind, ERR_INVALID);
	assert_null(ops->list(f.guest, &deep, &record_list_hooks, &err));
	assert_int_equal(err.kind, ERR_TOO_LARGE);
	assert_non_null(strstr(err.msg, "path"));
	deep.path_len--;
	struct record record = {0};
	struct guest_list_hooks hooks = record_list_hooks;

	hooks.arg = &record;
	assert_non_null(ops->list(f.guest, &deep, &hooks, &err));
	fixture_fini(&f);
	assert_int_equal(record.err.kind, ERR_CANCELLED);
}

/* ---- exec ---- */

static void test_exec_gives_output_and_exit_code(void **state)
{
	struct fixture f;
	struct record record = {0};
	uint8_t body[128];
	struct msg_writer w = {.buf = body, .size = sizeof body};

	(void)state;
	fixture_init(&f, NULL);
	fixture_start(&f);
	fixture_exec(&f, &record, "echo hi");
	struct frame frame = peer_expect(&f.peer, FRAME_EXEC);

	assert_int_equal(frame.stream, 1);
	peer_send(&f.peer, FRAME_STARTED, 0, 1, NULL, 0);
	peer_send(&f.peer, FRAME_DATA, FRAME_CHANNEL_OUT, 1, "hi\n", 3);
	peer_send(&f.peer, FRAME_DATA, FRAME_CHANNEL_ERR, 1, "oh\n", 3);
	msg_put_u32(&w, MSG_STATUS, STATUS_OK);
	/* Known, so that it makes no difference; and not known, but not needed either. */
	msg_put_u32(&w, MSG_CRITICAL | MSG_EXIT_CODE, 7);
	msg_put_u32(&w, 0x7000, 0);
	msg_put_u64(&w, MSG_OUT_BYTES, 3);
	msg_put_u64(&w, MSG_ERR_BYTES, 3);
	peer_send(&f.peer, FRAME_END, 0, 1, body, w.len);
	fixture_wait_done(&f, &record);
	assert_int_equal(record.err.kind, ERR_NONE);
	assert_true(record.has_result);
	assert_int_equal(record.result.exit_code, 7);
	assert_false(record.result.truncated);
	assert_string_equal(record.head[1], "hi\n");
	assert_string_equal(record.head[2], "oh\n");
	assert_int_equal(record.started, 1);
	fixture_fini(&f);
	assert_int_equal(record.done, 1);
}

static void test_exec_sends_all_of_its_spec(void **state)
{
	struct fixture f;
	struct record record = {0};
	char *args[] = {"sh", "-c", "x", NULL};
	char *env[] = {"A=1", "B=2", NULL};
	struct pipe *in;
	struct err err;
	unsigned n_args = 0;
	unsigned n_env = 0;

	(void)state;
	fixture_init(&f, NULL);
	fixture_start(&f);
	in = pipe_new(f.loop, 100);
	struct guest_exec_spec spec = {.args = args,
		.env = env,
		.cwd = "/tmp",
		.timeout_ms = 5000,
		.output_cap = 1000,
		.as_root = true,
		.stdin_pipe = in};
	struct guest_exec_hooks hooks = record_exec_hooks;

	hooks.arg = &record;
	assert_non_null(f.driver->ops->exec(f.guest, &spec, &hooks, &err));
	struct frame frame = peer_expect(&f.peer, FRAME_EXEC);
	struct msg_reader r = {.buf = frame.payload, .len = frame.length};

	for (struct msg_field m; msg_next(&r, &m);) {
		switch (m.tag) {
		case MSG_ARG:
			n_args++;
			break;
		case MSG_ENV:
			n_env++;
			break;
		case MSG_CWD:
			assert_memory_equal(m.data, "/tmp", 4);
			break;
		case MSG_TIMEOUT_MS:
			assert_true(msg_u64(&r, &m) == 5000);
			break;
		case MSG_OUTPUT_CAP:
			assert_true(msg_u64(&r, &m) == 1000);
			break;
		case MSG_EXEC_FLAGS:
			assert_int_equal(msg_u32(&r, &m), MSG_EXEC_ROOT | MSG_EXEC_STDIN);
			break;
		default:
			fail_msg("tag %u", m.tag);
		}
	}
	assert_false(r.bad);
	assert_int_equal(n_args, 3);
	assert_int_equal(n_env, 2);
	/* stdin: bytes, then the end. */
	assert_int_equal(pipe_write(in, "abc", 3), 3);
	frame = peer_expect(&f.peer, FRAME_DATA);
	assert_memory_equal(frame.payload, "abc", 3);
	assert_true(peer_is_silent(&f.peer));
	pipe_close(in);
	pipe_writer_free(in);
	peer_expect(&f.peer, FRAME_CLOSE);
	peer_send_exit(&f.peer, 1, 0, 0);
	fixture_wait_done(&f, &record);
	assert_int_equal(record.err.kind, ERR_NONE);
	fixture_fini(&f);
}

static void test_exec_that_the_guest_refuses_is_a_guest_error(void **state)
{
	struct fixture f;
	struct record record = {0};

	(void)state;
	fixture_init(&f, NULL);
	fixture_start(&f);
	fixture_exec(&f, &record, "x");
	peer_expect(&f.peer, FRAME_EXEC);
	peer_send_end(&f.peer, 1, STATUS_NOT_FOUND, "cwd: no such\ndirectory");
	fixture_wait_done(&f, &record);
	assert_int_equal(record.err.kind, ERR_GUEST);
	assert_string_equal(record.err.msg, "cwd: no such?directory");
	assert_false(record.has_result);
	assert_int_equal(f.driver->ops->state(f.guest), GUEST_READY);
	fixture_fini(&f);
}

static void test_output_that_did_not_come_is_reported_as_truncated(void **state)
{
	struct fixture f;
	struct record record = {0};

	(void)state;
	fixture_init(&f, NULL);
	fixture_start(&f);
	fixture_exec(&f, &record, "x");
	peer_expect(&f.peer, FRAME_EXEC);
	peer_send(&f.peer, FRAME_DATA, FRAME_CHANNEL_OUT, 1, "abc", 3);
	peer_send_exit(&f.peer, 1, 0, 4);
	fixture_wait_done(&f, &record);
	assert_true(record.has_result);
	assert_true(record.result.truncated);
	assert_true(record.result.stdout_bytes == 4);
	fixture_fini(&f);
}

static void test_paused_exec_keeps_its_credit_back(void **state)
{
	struct fixture f;
	struct record record = {0};
	_cleanup_free_ uint8_t *part = xcalloc(1, PROTO_PAYLOAD_MAX_BYTES);

	(void)state;
	fixture_init(&f, NULL);
	fixture_start(&f);
	struct guest_call *call = fixture_exec(&f, &record, "x");

	peer_expect(&f.peer, FRAME_EXEC);
	f.driver->ops->exec_pause(call, true);
	for (int i = 0; i < 4; i++) {
		peer_send(&f.peer, FRAME_DATA, FRAME_CHANNEL_OUT, 1, part, PROTO_PAYLOAD_MAX_BYTES);
	}
	assert_true(peer_is_silent(&f.peer));
	f.driver->ops->exec_pause(call, false);
	struct frame frame = peer_expect(&f.peer, FRAME_WINDOW);

	assert_int_equal(get_le32(frame.payload), PROTO_WINDOW_INITIAL_BYTES);
	assert_int_equal(record.output[1], PROTO_WINDOW_INITIAL_BYTES);
	fixture_fini(&f);
}

/* What a broken guest may answer to an exec whose cap is 1 MiB; each must drop the channel. */
static void send_bad_exec(struct peer *peer, int which)
{
	uint8_t body[256];
	struct msg_writer w = {.buf = body, .size = sizeof body};

	msg_put_u32(&w, MSG_STATUS, STATUS_OK);
	switch (which) {
	case 0: /* no exit code */
		break;
	case 1:
		msg_put_u32(&w, MSG_EXIT_CODE, 256);
		break;
	case 2:
		msg_put_u32(&w, MSG_EXIT_CODE, 0);
		msg_put_u32(&w, MSG_SIGNAL, 65);
		break;
	case 3: /* counts less than came */
		peer_send(peer, FRAME_DATA, FRAME_CHANNEL_OUT, 1, "abc", 3);
		msg_put_u32(&w, MSG_EXIT_CODE, 0);
		msg_put_u64(&w, MSG_OUT_BYTES, 2);
		break;
	case 4: /* no status */
		w.len = 0;
		break;
	case 5: /* a number of the wrong size */
		msg_put_u64(&w, MSG_EXIT_CODE, 0);
		break;
	case 6: /* a field that is longer than the rest */
		msg_put_u32(&w, MSG_EXIT_CODE, 0);
		put_le32(body + w.len - 8, 5);
		break;
	case 10: /* something that must be understood */
		msg_put_u32(&w, MSG_EXIT_CODE, 0);
		msg_put_u32(&w, MSG_CRITICAL | 0x7000, 0);
		break;
	case 11: /* nobody cancelled it */
		msg_put_u32(&w, MSG_EXIT_CODE, 137);
		msg_put_u32(&w, MSG_END_FLAGS, MSG_END_CANCELLED);
		break;
	case 12:
		w.len = 0;
		msg_put_u32(&w, MSG_STATUS, STATUS_CANCELLED);
		break;
	case 7: /* another's call */
		peer_send(peer, FRAME_DATA, FRAME_CHANNEL_OUT, 2, "abc", 3);
		return;
	case 8: /* garbage */
		peer_send_raw(peer, "GET / HTTP/1.1\r\n\r\n", 18);
		return;
	default:
		peer_send(peer, FRAME_ABORT, 0, 0, NULL, 0);
		return;
	}
	peer_send(peer, FRAME_END, 0, 1, body, w.len);
}

static void test_wrong_answers_drop_the_channel_and_fail_the_call(void **state)
{
	(void)state;
	for (int which = 0; which < 13; which++) {
		struct fixture f;
		struct record record = {0};
		struct record other = {0};

		fixture_init(&f, &fixture_patient);
		fixture_start(&f);
		fixture_exec(&f, &record, "x");
		peer_expect(&f.peer, FRAME_EXEC);
		send_bad_exec(&f.peer, which);
		fixture_wait_down(&f, 1);
		assert_int_equal(record.done, 1);
		assert_int_equal(record.err.kind, ERR_UNAVAILABLE);
		assert_false(record.has_result);
		assert_int_equal(f.down_err.kind, ERR_UNAVAILABLE);
		/* It comes back, with a session of its own. */
		uint8_t nonce[FRAME_NONCE_BYTES];

		memcpy(nonce, f.peer.nonce, sizeof nonce);
		peer_hang_up(&f.peer);
		peer_start_session(&f.peer);
		fixture_wait_ready(&f, 2);
		assert_memory_not_equal(nonce, f.peer.nonce, sizeof nonce);
		fixture_exec(&f, &other, "y");
		struct frame frame = peer_expect(&f.peer, FRAME_EXEC);

		assert_int_equal(frame.stream, 1);
		fixture_fini(&f);
		assert_int_equal(record.done, 1);
	}
}

static void test_output_beyond_the_cap_drops_the_channel(void **state)
{
	_cleanup_free_ uint8_t *part = xcalloc(1, PROTO_PAYLOAD_MAX_BYTES);

	(void)state;
	for (int more = 0; more < 2; more++) {
		struct fixture f;
		struct record record = {0};

		fixture_init(&f, NULL);
		fixture_start(&f);
		fixture_exec(&f, &record, "x");
		peer_expect(&f.peer, FRAME_EXEC);
		/* 1 MiB exactly, over both channels. */
		for (int i = 0; i < 16; i++) {
			peer_send(&f.peer, FRAME_DATA,
				i % 2 ? FRAME_CHANNEL_OUT : FRAME_CHANNEL_ERR, 1, part,
				PROTO_PAYLOAD_MAX_BYTES);
			peer_turns(&f.peer, 2);
		}
		if (more) {
			peer_send(&f.peer, FRAME_DATA, FRAME_CHANNEL_OUT, 1, part, 1);
			fixture_wait_down(&f, 1);
		} else {
			peer_send_end(&f.peer, 1, STATUS_IO, "x");
			fixture_wait_done(&f, &record);
			assert_int_equal(f.down, 0);
		}
		assert_int_equal(record.done, 1);
		assert_int_equal(record.output[1] + record.output[2], 1 << 20);
		fixture_fini(&f);
	}
}

/* ---- configure, shutdown ---- */

static void test_configure_sends_what_is_set_and_nothing_else(void **state)
{
	struct fixture f;
	struct record record = {0};
	char *env[] = {"A=1", NULL};
	struct guest_config config = {
		.wall_ms = 1700000000123, .has_deadline = true, .env = env, .reseed = true};
	struct err err;
	unsigned seen = 0;

	(void)state;
	fixture_init(&f, NULL);
	fixture_start(&f);
	assert_non_null(f.driver->ops->configure(f.guest, &config, record_done, &record, &err));
	struct frame frame = peer_expect(&f.peer, FRAME_CONFIGURE);
	struct msg_reader r = {.buf = frame.payload, .len = frame.length};

	for (struct msg_field m; msg_next(&r, &m); seen++) {
		switch (m.tag) {
		case MSG_REALTIME_NS:
			assert_true(msg_u64(&r, &m) == 1700000000123000000u);
			break;
		case MSG_ENTROPY:
			assert_true(m.len >= 32);
			break;
		case MSG_DEADLINE_MS:
			assert_true(msg_u64(&r, &m) == 0);
			break;
		case MSG_ENV:
			break;
		default:
			fail_msg("tag %u", m.tag);
		}
	}
	assert_int_equal(seen, 4);
	peer_send_end(&f.peer, 1, STATUS_OK, NULL);
	fixture_wait_done(&f, &record);
	assert_int_equal(record.err.kind, ERR_NONE);
	fixture_fini(&f);
}

static void test_large_request_goes_in_parts(void **state)
{
	struct fixture f;
	struct record record = {0};
	_cleanup_free_ char *pem = xcalloc(1, PROTO_CA_MAX_BYTES + 2);
	struct guest_config config = {.ca_pem = pem};
	struct err err;
	size_t len = 0;
	struct frame frame;

	(void)state;
	memset(pem, 'A', PROTO_CA_MAX_BYTES + 1);
	fixture_init(&f, NULL);
	fixture_start(&f);
	assert_null(f.driver->ops->configure(f.guest, &config, record_done, &record, &err));
	assert_int_equal(err.kind, ERR_TOO_LARGE);
	pem[PROTO_CA_MAX_BYTES] = '\0';
	assert_non_null(f.driver->ops->configure(f.guest, &config, record_done, &record, &err));
	do {
		frame = peer_expect(&f.peer, FRAME_CONFIGURE);
		len += frame.length;
	} while (frame.flags & FRAME_MORE);
	assert_int_equal(len, PROTO_CA_MAX_BYTES + MSG_FIELD_HEADER_BYTES);
	fixture_fini(&f);
}

static void test_calls_are_capped_but_shutdown_still_goes(void **state)
{
	struct fixture f;
	struct record record = {0};
	struct record last = {0};
	struct guest_exec_spec spec = {.command = "x"};
	struct guest_exec_hooks hooks = record_exec_hooks;
	struct err err;
	unsigned n = 0;

	(void)state;
	hooks.arg = &record;
	fixture_init(&f, NULL);
	fixture_start(&f);
	while (f.driver->ops->exec(f.guest, &spec, &hooks, &err)) {
		n++;
	}
	assert_int_equal(n, PROTO_STREAMS_MAX - MUX_STREAMS_RESERVED);
	assert_int_equal(err.kind, ERR_RATE);
	assert_non_null(f.driver->ops->shutdown(f.guest, record_done, &last, &err));
	for (unsigned i = 0; i < n; i++) {
		peer_expect(&f.peer, FRAME_EXEC);
	}
	peer_expect(&f.peer, FRAME_SHUTDOWN);
	fixture_fini(&f);
	assert_int_equal(record.done, n);
	assert_int_equal(last.done, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_guest_becomes_ready_when_the_socket_appears),
		cmocka_unit_test(test_calls_before_ready_are_refused),
		cmocka_unit_test(test_requests_that_make_no_sense_are_refused),
		cmocka_unit_test(test_exec_gives_output_and_exit_code),
		cmocka_unit_test(test_exec_sends_all_of_its_spec),
		cmocka_unit_test(test_exec_that_the_guest_refuses_is_a_guest_error),
		cmocka_unit_test(test_output_that_did_not_come_is_reported_as_truncated),
		cmocka_unit_test(test_paused_exec_keeps_its_credit_back),
		cmocka_unit_test(test_wrong_answers_drop_the_channel_and_fail_the_call),
		cmocka_unit_test(test_output_beyond_the_cap_drops_the_channel),
		cmocka_unit_test(test_configure_sends_what_is_set_and_nothing_else),
		cmocka_unit_test(test_large_request_goes_in_parts),
		cmocka_unit_test(test_calls_are_capped_but_shutdown_still_goes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
