/* Commands and files: the host side against the real agent. */
#include "agent_rig.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/rand.h"
#include "base/xalloc.h"

static struct guest_call *start_exec(struct rig *rig, struct record *record, const char *command,
	uint64_t timeout_ms, struct pipe *in)
{
	struct guest_exec_spec spec = {.command = command,
		.timeout_ms = timeout_ms,
		.output_cap = 1 << 20,
		.stdin_pipe = in};
	struct guest_exec_hooks hooks = record_exec_hooks;
	struct err err = ERR_INIT;

	hooks.arg = record;
	struct guest_call *call = rig->f.driver->ops->exec(rig->f.guest, &spec, &hooks, &err);

	assert_string_equal(err.kind == ERR_NONE ? "" : err.msg, "");
	assert_non_null(call);
	return call;
}

static void assert_fine(const struct record *record)
{
	assert_string_equal(record->err.kind == ERR_NONE ? "" : record->err.msg, "");
}

static void test_exec_runs_and_reports(void **state)
{
	struct rig rig;
	struct record record = {0};

	(void)state;
	rig_init(&rig);
	assert_int_equal(rig.f.driver->ops->hello(rig.f.guest)->version, PROTO_VERSION);
	start_exec(&rig, &record, "echo out; echo err >&2; exit 7", 10000, NULL);
	fixture_wait_done(&rig.f, &record);
	assert_fine(&record);
	assert_int_equal(record.result.exit_code, 7);
	assert_string_equal(record.head[1], "out\n");
	assert_string_equal(record.head[2], "err\n");
	assert_false(record.result.truncated);
	assert_int_equal(record.result.stdout_bytes, 4);
	rig_fini(&rig);
}

static void test_stdin_reaches_the_command(void **state)
{
	struct rig rig;
	struct record record = {0};

	(void)state;
	rig_init(&rig);
	struct pipe *in = pipe_new(rig.f.loop, 1 << 20);
	_cleanup_free_ uint8_t *bytes = xcalloc(1, 1 << 20);

	assert_int_equal(pipe_write(in, bytes, 1 << 20), 1 << 20);
	pipe_close(in);
	pipe_writer_free(in);
	start_exec(&rig, &record, "wc -c", 20000, in);
	fixture_wait_done(&rig.f, &record);
	assert_fine(&record);
	assert_string_equal(record.head[1], "1048576\n");
	rig_fini(&rig);
}

static void test_output_beyond_the_cap_is_counted(void **state)
{
	struct rig rig;
	struct record record = {0};

	(void)state;
	rig_init(&rig);
	start_exec(&rig, &record, "head -c 3000000 /dev/zero", 20000, NULL);
	fixture_wait_done(&rig.f, &record);
	assert_fine(&record);
	assert_true(record.result.truncated);
	assert_int_equal(record.output[1], 1 << 20);
	assert_int_equal(record.result.stdout_bytes, 3000000);
	rig_fini(&rig);
}

static void test_command_that_times_out_is_ended_in_the_guest(void **state)
{
	struct rig rig;
	struct record record = {0};

	(void)state;
	rig_init(&rig);
	start_exec(&rig, &record, "sleep 1000", 100, NULL);
	fixture_wait_done(&rig.f, &record);
	assert_fine(&record);
	assert_true(record.result.timed_out);
	assert_int_equal(record.result.signal, SIGTERM);
	rig_fini(&rig);
}

static void test_cancelled_command_ends_soon(void **state)
{
	struct rig rig;
	struct record record = {0};

	(void)state;
	rig_init(&rig);
	struct guest_call *call = start_exec(&rig, &record, "echo on; sleep 1000", 0, NULL);

	while (record.output[1] == 0) {
		peer_turns(&rig.f.peer, 1);
	}
	rig.f.driver->ops->cancel(call);
	fixture_wait_done(&rig.f, &record);
	assert_int_equal(record.err.kind, ERR_CANCELLED);
	assert_true(record.has_result);
	rig_fini(&rig);
}

static void test_configure_is_fine(void **state)
{
	struct rig rig;
	struct record configured = {0};
	struct record record = {0};
	char *env[] = {"GREETING=hello", NULL};
	struct guest_config config = {.env = env, .wall_ms = clock_wall_ms(), .reseed = true};
	struct err err;

	(void)state;
	rig_init(&rig);
	assert_non_null(
		rig.f.driver->ops->configure(rig.f.guest, &config, record_done, &configured, &err));
	start_exec(&rig, &record, "echo $GREETING", 10000, NULL);
	fixture_wait_done(&rig.f, &record);
	assert_int_equal(configured.done, 1);
	assert_fine(&configured);
	assert_string_equal(record.head[1], "hello\n");
	rig_fini(&rig);
}

/* ---- files ---- */

#define FILE_BYTES (64u << 20)

static void put_file(struct rig *rig, const uint8_t *bytes, size_t len, struct record *record)
{
	struct pipe *body = pipe_new(rig->f.loop, 256 * 1024);
	struct guest_file_spec spec = {
		.path = "dir/file", .path_len = 8, .make_parents = true, .length = len};
	struct err err;

	assert_non_null(
		rig->f.driver->ops->put(rig->f.guest, &spec, body, record_done, record, &err));
	for (size_t sent = 0; sent < len && record->done == 0;) {
		size_t n = pipe_write(body, bytes + sent, len - sent);

		sent += n;
		loop_turn_for(rig->f.loop, n > 0 ? 0 : 100);
	}
	pipe_close(body);
	pipe_writer_free(body);
	fixture_wait_done(&rig->f, record);
}

static size_t get_file(struct rig *rig, uint8_t *bytes, size_t len, struct record *record)
{
	struct pipe *body = pipe_new(rig->f.loop, 256 * 1024);
	struct guest_file_spec spec = {.path = "dir/file", .path_len = 8, .length = UINT64_MAX};
	struct guest_get_hooks hooks = record_get_hooks;
	struct err err;
	size_t got = 0;

	hooks.arg = record;
	assert_non_null(rig->f.driver->ops->get(rig->f.guest, &spec, body, &hooks, &err));
	while (!pipe_is_end(body) && !pipe_failure(body)) {
		size_t n = pipe_read(body, bytes + got, len - got);

		got += n;
		loop_turn_for(rig->f.loop, n > 0 ? 0 : 100);
	}
	pipe_reader_free(body);
	fixture_wait_done(&rig->f, record);
	return got;
}

static void test_large_file_goes_up_and_comes_back_equal(void **state)
{
	struct rig rig;
	struct record put = {0};
	struct record get = {0};
	_cleanup_free_ uint8_t *up = xcalloc(1, FILE_BYTES);
	_cleanup_free_ uint8_t *down = xcalloc(1, FILE_BYTES);

	(void)state;
	rand_bytes(up, FILE_BYTES);
	rig_init(&rig);
	uint64_t start = clock_monotonic_ms();

	put_file(&rig, up, FILE_BYTES, &put);
	uint64_t middle = clock_monotonic_ms();

	assert_fine(&put);
	assert_int_equal(get_file(&rig, down, FILE_BYTES, &get), FILE_BYTES);
	uint64_t end = clock_monotonic_ms();

	assert_fine(&get);
	assert_int_equal(get.info.size, FILE_BYTES);
	assert_memory_equal(up, down, FILE_BYTES);
	printf("up %u MB/s, down %u MB/s\n", (unsigned)(FILE_BYTES / 1000 / (middle - start + 1)),
		(unsigned)(FILE_BYTES / 1000 / (end - middle + 1)));
	rig_fini(&rig);
}

static void test_missing_file_and_refused_path_say_why(void **state)
{
	struct rig rig;
	struct record get = {0};
	struct record put = {0};

	(void)state;
	rig_init(&rig);
	struct pipe *out = pipe_new(rig.f.loop, 100);

	fixture_get(&rig.f, &get, out);
	fixture_wait_done(&rig.f, &get);
	assert_int_equal(get.err.kind, ERR_GUEST);
	assert_int_equal(get.status, STATUS_NOT_FOUND);
	assert_int_equal(pipe_failure(out)->kind, ERR_GUEST);
	pipe_reader_free(out);
	struct guest_file_spec spec = {
		.path = "/proc/nothing", .path_len = 13, .length = UINT64_MAX};
	struct pipe *in = pipe_new(rig.f.loop, 100);
	struct err err;

	assert_non_null(rig.f.driver->ops->put(rig.f.guest, &spec, in, record_done, &put, &err));
	pipe_write(in, "x", 1);
	pipe_close(in);
	pipe_writer_free(in);
	fixture_wait_done(&rig.f, &put);
	assert_int_equal(put.err.kind, ERR_GUEST);
	assert_int_not_equal(put.status, STATUS_OK);
	rig_fini(&rig);
}

static void test_list_gives_entries_and_says_when_it_is_cut(void **state)
{
	struct rig rig;
	struct record exec = {0};
	struct record all = {0};
	struct record some = {0};
	struct guest_file_spec spec = {
		.path = ".", .path_len = 1, .recursive = true, .limit = 5000};
	struct guest_list_hooks hooks = record_list_hooks;
	struct err err;

	(void)state;
	rig_init(&rig);
	start_exec(&rig, &exec, "mkdir d; for i in $(seq 3000); do : > d/$i; done; ln -s d l",
		60000, NULL);
	fixture_wait_done(&rig.f, &exec);
	assert_fine(&exec);
	hooks.arg = &all;
	assert_non_null(rig.f.driver->ops->list(rig.f.guest, &spec, &hooks, &err));
	fixture_wait_done(&rig.f, &all);
	assert_fine(&all);
	assert_int_equal(all.entries, 3002);
	assert_false(all.is_cut);
	hooks.arg = &some;
	spec.limit = 10;
	assert_non_null(rig.f.driver->ops->list(rig.f.guest, &spec, &hooks, &err));
	fixture_wait_done(&rig.f, &some);
	assert_fine(&some);
	assert_int_equal(some.entries, 10);
	assert_true(some.is_cut);
	rig_fini(&rig);
}

static void test_exec_is_quick_beside_an_upload(void **state)
{
	struct rig rig;
	struct record put = {0};
	_cleanup_free_ uint8_t *bytes = xcalloc(1, 1 << 20);
	struct guest_file_spec spec = {.path = "big", .path_len = 3, .length = UINT64_MAX};
	struct err err;

	(void)state;
	rig_init(&rig);
	struct pipe *body = pipe_new(rig.f.loop, 1 << 20);

	assert_non_null(rig.f.driver->ops->put(rig.f.guest, &spec, body, record_done, &put, &err));
	for (int i = 0; i < 5; i++) {
		struct record record = {0};

		start_exec(&rig, &record, "echo x", 10000, NULL);
		while (record.done == 0) {
			pipe_write(body, bytes, 1 << 20);
			loop_turn_for(rig.f.loop, 100);
		}
		assert_fine(&record);
	}
	pipe_close(body);
	pipe_writer_free(body);
	fixture_wait_done(&rig.f, &put);
	assert_fine(&put);
	rig_fini(&rig);
}

/* ---- loss ---- */

static void test_killed_agent_fails_the_call_and_another_serves_the_next(void **state)
{
	struct rig rig;
	struct record record = {0};
	struct record next = {0};

	(void)state;
	rig_init(&rig);
	start_exec(&rig, &record, "echo on; sleep 5", 0, NULL);
	while (record.output[1] == 0) {
		peer_turns(&rig.f.peer, 1);
	}
	rig_end_agent(&rig);
	fixture_wait_done(&rig.f, &record);
	assert_int_equal(record.err.kind, ERR_UNAVAILABLE);
	assert_false(record.has_result);
	fixture_wait_down(&rig.f, 1);
	rig_spawn_agent(&rig);
	fixture_wait_ready(&rig.f, 2);
	start_exec(&rig, &next, "echo again", 10000, NULL);
	fixture_wait_done(&rig.f, &next);
	assert_fine(&next);
	assert_string_equal(next.head[1], "again\n");
	rig_fini(&rig);
	assert_int_equal(record.done, 1);
}

static void test_stopped_agent_is_noticed(void **state)
{
	struct rig rig;
	struct record record = {0};
	struct guest_timing timing = fixture_patient;

	(void)state;
	timing.chan.ping_busy_ms = 200;
	timing.chan.pong_ms = 1000;
	rig = (struct rig){0};
	strcpy(rig.workspace, "/tmp");
	fixture_init(&rig.f, &timing);
	peer_listen(&rig.f.peer);
	rig_spawn_agent(&rig);
	fixture_wait_ready(&rig.f, 1);
	kill(rig.agent, SIGSTOP);
	start_exec(&rig, &record, "true", 0, NULL);
	fixture_wait_down(&rig.f, 1);
	assert_int_equal(rig.f.down_err.kind, ERR_TIMEOUT);
	assert_int_equal(record.done, 1);
	fixture_fini(&rig.f);
	rig_end_agent(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_exec_runs_and_reports),
		cmocka_unit_test(test_stdin_reaches_the_command),
		cmocka_unit_test(test_output_beyond_the_cap_is_counted),
		cmocka_unit_test(test_command_that_times_out_is_ended_in_the_guest),
		cmocka_unit_test(test_cancelled_command_ends_soon),
		cmocka_unit_test(test_configure_is_fine),
		cmocka_unit_test(test_large_file_goes_up_and_comes_back_equal),
		cmocka_unit_test(test_missing_file_and_refused_path_say_why),
		cmocka_unit_test(test_list_gives_entries_and_says_when_it_is_cut),
		cmocka_unit_test(test_exec_is_quick_beside_an_upload),
		cmocka_unit_test(test_killed_agent_fails_the_call_and_another_serves_the_next),
		cmocka_unit_test(test_stopped_agent_is_noticed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
