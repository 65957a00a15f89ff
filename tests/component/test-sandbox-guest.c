/* Operations in the guest: what they bring, how they end, what bounds them. */
#include "tests/lib/world.h"

#include <stdio.h>

#include "base/xalloc.h"
#include "loop/pipe.h"

static void test_exec_brings_outputs_apart_and_the_exit_code(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);
	struct world_answer answer;

	(void)state;
	world_exec(w, id, "warn careful", &answer);
	assert_string_equal(answer.err_out, "careful\n");
	assert_int_equal(answer.out_len, 0);
	world_exec(w, id, "exit 7", &answer);
	assert_int_equal(answer.exit_code, 7);
	world_exec(w, id, "no-such-program", &answer);
	assert_int_equal(answer.exit_code, 127);

	char *args[] = {(char *)"echo", (char *)"a", (char *)"b", NULL};
	const struct sandbox_exec_spec spec = {.args = args};
	struct err err;

	answer = (struct world_answer){0};
	assert_non_null(sandbox_exec(world_find(w, id), &spec, world_on_exec, &answer, &err));
	assert_int_equal(answer.count, 0);
	WORLD_UNTIL(w, answer.count == 1);
	assert_string_equal(answer.out, "a b\n");
	world_free(w);
}

static void test_a_command_that_times_out_is_a_result(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);
	const struct sandbox_exec_spec spec = {.command = "sleep 60000", .timeout_ms = 20};
	struct world_answer answer = {0};
	struct err err;

	(void)state;
	assert_non_null(sandbox_exec(world_find(w, id), &spec, world_on_exec, &answer, &err));
	WORLD_UNTIL(w, answer.count == 1);
	assert_int_equal(answer.kind, ERR_NONE);
	assert_true(answer.timed_out);
	world_free(w);
}

static void test_output_at_the_cap_is_whole_and_beyond_it_cut(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);
	struct world_answer answer;

	(void)state;
	world_exec(w, id, "bytes 2048", &answer);
	assert_int_equal(answer.out_len, 2048);
	assert_false(answer.truncated);
	world_exec(w, id, "bytes 2049", &answer);
	assert_int_equal(answer.out_len, 2048);
	assert_true(answer.truncated);
	world_free(w);
}

/* The guest is told a cap of 2048, and sends more. */
static bool flood(void *arg, struct guest_call *call, const struct fake_exec *exec)
{
	char block[1000] = {0};

	(void)arg;
	(void)exec;
	fake_guest_ignore_cap(call);
	for (int i = 0; i < 10; i++) {
		fake_exec_output(call, 1 + i % 2, block, sizeof block);
	}
	fake_exec_exit(call, 0);
	return true;
}

static void test_a_guest_that_ignores_the_cap_is_cut_on_the_host(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);
	struct world_answer answer;

	(void)state;
	fake_guest_set_program(w->guests, flood, NULL);
	world_exec(w, id, "flood", &answer);
	assert_int_equal(answer.out_len + answer.err_len, 2048);
	assert_true(answer.truncated);
	world_free(w);
}

static void test_stdin_reaches_the_command(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);
	struct pipe *input = pipe_new(w->loop, 64);
	const struct sandbox_exec_spec spec = {.command = "cat", .stdin_pipe = input};
	struct world_answer answer = {0};
	struct err err;

	(void)state;
	assert_non_null(sandbox_exec(world_find(w, id), &spec, world_on_exec, &answer, &err));
	assert_int_equal(pipe_write(input, "abc", 3), 3);
	world_run(w, 10);
	assert_int_equal(pipe_write(input, "def", 3), 3);
	pipe_close(input);
	WORLD_UNTIL(w, answer.count == 1);
	assert_string_equal(answer.out, "abcdef");
	pipe_writer_free(input);
	world_free(w);
}

static void test_a_cancelled_call_is_answered_and_an_abandoned_one_is_not(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);
	struct world_answer cancelled;
	struct world_answer abandoned;

	(void)state;
	struct sandbox_call *call = world_exec_start(w, id, "sleep 60000", &cancelled);

	world_run(w, 10);
	sandbox_call_cancel(call);
	sandbox_call_cancel(call);
	assert_int_equal(cancelled.count, 0);
	WORLD_UNTIL(w, cancelled.count == 1);
	assert_int_equal(cancelled.kind, ERR_CANCELLED);

	call = world_exec_start(w, id, "sleep 60000", &abandoned);
	world_run(w, 10);
	sandbox_call_abandon(call);
	WORLD_UNTIL(w, fake_guest_call_count(w->guests) == 0);
	assert_int_equal(abandoned.count, 0);
	world_free(w);
}

static void test_operations_at_a_time_are_limited(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);
	static struct world_answer answers[48];
	struct sandbox_call *calls[48];
	const struct sandbox_exec_spec spec = {.command = "true"};
	struct world_answer answer;
	struct err err;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
		calls[i] = world_exec_start(w, id, "hang", &answers[i]);
	}
	assert_null(sandbox_exec(world_find(w, id), &spec, world_on_exec, &answer, &err));
	assert_int_equal(err.kind, ERR_RATE);
	assert_err_says(&err, "48");
	assert_err_says(&err, "wait for one to end");
	/* Those of another sandbox aren't counted. */
	world_exec(w, world_running(w, NULL), "true", &answer);

	/* One that is abandoned counts until the guest has let go of it. */
	sandbox_call_abandon(calls[0]);
	assert_null(sandbox_exec(world_find(w, id), &spec, world_on_exec, &answer, &err));
	WORLD_UNTIL(w, fake_guest_call_count(w->guests) == 47);
	world_exec(w, id, "true", &answer);
	assert_int_equal(answer.kind, ERR_NONE);
	world_free(w);
}

static void test_before_it_runs_and_after_its_end_operations_are_refused(void **state)
{
	struct world *w = world_new(NULL);
	const struct sandbox_exec_spec spec = {.command = "true"};
	struct err err;

	(void)state;
	const char *id = world_create(w, NULL);

	assert_null(sandbox_exec(world_find(w, id), &spec, world_on_exec, NULL, &err));
	assert_int_equal(err.kind, ERR_CONFLICT);
	assert_err_says(&err, "starting");
	WORLD_UNTIL(w, world_is_state(w, id, "running"));
	sandbox_destroy(world_find(w, id), "expired");
	assert_null(sandbox_exec(world_find(w, id), &spec, world_on_exec, NULL, &err));
	assert_int_equal(err.kind, ERR_ENDED);
	assert_err_says(&err, "expired");
	world_free(w);
}

static void test_a_channel_that_is_down_is_unavailable_and_comes_back(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);
	const struct sandbox_exec_spec spec = {.command = "true"};
	struct world_answer cut;
	struct world_answer answer;
	struct err err;

	(void)state;
	unsigned told = fake_guest_settings(w->guests, id)->times;

	world_exec_start(w, id, "hang", &cut);
	world_run(w, 10);
	fake_guest_drop(w->guests, id, 100);
	WORLD_UNTIL(w, cut.count == 1);
	assert_int_equal(cut.kind, ERR_UNAVAILABLE);
	assert_null(sandbox_exec(world_find(w, id), &spec, world_on_exec, NULL, &err));
	assert_int_equal(err.kind, ERR_UNAVAILABLE);
	assert_string_equal(world_state(w, id), "running");

	/* An agent that was started anew knows nothing: it is told everything again. */
	WORLD_UNTIL(w, fake_guest_settings(w->guests, id)->times == told + 1);
	world_exec(w, id, "true", &answer);
	assert_int_equal(answer.kind, ERR_NONE);
	world_free(w);
}

static void test_settings_that_failed_are_sent_again_with_the_next_hello(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);

	(void)state;
	unsigned told = fake_guest_settings(w->guests, id)->times;

	fake_guest_script(w->guests, FAKE_GUEST_CONFIGURE,
		&(struct fake_script){.mode = FAKE_FAIL, .times = 1});
	fake_guest_drop(w->guests, id, 0);
	world_run(w, 50);
	assert_int_equal(fake_guest_settings(w->guests, id)->times, told);
	fake_guest_drop(w->guests, id, 0);
	WORLD_UNTIL(w, fake_guest_settings(w->guests, id)->times == told + 1);
	world_free(w);
}

static void test_a_destroy_ends_what_hangs_in_the_guest(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);
	struct world_answer exec;
	struct world_answer get = {0};
	struct err err;

	(void)state;
	fake_guest_script(w->guests, FAKE_GUEST_LIST, &(struct fake_script){.mode = FAKE_HOLD});
	world_exec_start(w, id, "hang", &exec);
	struct pipe *body = pipe_new(w->loop, 64);
	const struct guest_file_spec spec = {.path = "/a", .path_len = 2};

	/* A PUT whose body never ends. */
	assert_non_null(
		sandbox_file_put(world_find(w, id), &spec, body, world_on_done, &get, &err));
	world_run(w, 10);
	world_destroy(w, id);
	assert_int_equal(exec.count, 0);
	WORLD_UNTIL(w, world_is_state(w, id, "deleted"));
	assert_int_equal(exec.count, 1);
	assert_int_equal(exec.kind, ERR_ENDED);
	assert_int_equal(get.count, 1);
	assert_int_equal(get.kind, ERR_ENDED);
	assert_true(world_is_clean(w, id));
	pipe_writer_free(body);
	world_free(w);
}

/* A callback that starts another operation and ends the others: nothing of that may trip. */
struct meddler {
	struct world *w;
	const char *id;
	struct sandbox_call *other;
	unsigned count;
	struct err err;
};

static void on_meddle(void *arg, const struct sandbox_exec_result *result, const struct err *err)
{
	struct meddler *meddler = arg;
	const struct sandbox_exec_spec spec = {.command = "true"};

	(void)result;
	(void)err;
	meddler->count++;
	if (meddler->other) {
		sandbox_call_abandon(meddler->other);
	}
	struct sandbox *sb = world_find(meddler->w, meddler->id);

	if (sb) {
		assert_null(sandbox_exec(sb, &spec, on_meddle, meddler, &meddler->err));
		sandbox_destroy(sb, "again");
	}
}

static void test_callbacks_may_meddle_while_a_sandbox_ends(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);
	const struct sandbox_exec_spec spec = {.command = "hang"};
	struct meddler meddler = {.w = w, .id = id};
	struct world_answer answer;
	struct err err;

	(void)state;
	assert_non_null(sandbox_exec(world_find(w, id), &spec, on_meddle, &meddler, &err));
	meddler.other = world_exec_start(w, id, "hang", &answer);
	world_destroy(w, id);
	WORLD_UNTIL(w, world_is_state(w, id, "deleted"));
	assert_int_equal(meddler.count, 1);
	assert_int_equal(meddler.err.kind, ERR_ENDED);
	assert_int_equal(answer.count, 0);
	assert_string_equal(world_reason(w, id), "deleted");
	world_free(w);
}

static void put(struct world *w, const char *id, const char *path, const char *text)
{
	struct pipe *body = pipe_new(w->loop, 4096);
	const struct guest_file_spec spec = {
		.path = path, .path_len = strlen(path), .length = strlen(text)};
	struct world_answer answer = {0};
	struct err err;

	assert_non_null(
		sandbox_file_put(world_find(w, id), &spec, body, world_on_done, &answer, &err));
	assert_int_equal(pipe_write(body, text, strlen(text)), strlen(text));
	pipe_close(body);
	pipe_writer_free(body);
	WORLD_UNTIL(w, answer.count == 1);
	assert_int_equal(answer.kind, ERR_NONE);
}

struct reading {
	struct pipe *body;
	struct evbuffer *bytes;
	uint64_t size;
	struct world_answer answer;
	uint32_t status;
};

static void on_info(void *arg, const struct guest_file_info *info)
{
	((struct reading *)arg)->size = info->size;
}

static void on_data(void *arg)
{
	struct reading *reading = arg;

	pipe_read_buffer(reading->body, reading->bytes, SIZE_MAX);
}

static void on_get_done(void *arg, const struct guest_status *status, const struct err *err)
{
	struct reading *reading = arg;

	reading->status = status ? status->status : 0;
	world_on_done(&reading->answer, status, err);
}

static void get(struct world *w, const char *id, const char *path, struct reading *reading)
{
	const struct guest_file_spec spec = {
		.path = path, .path_len = strlen(path), .length = UINT64_MAX};
	const struct guest_get_hooks hooks = {
		.on_info = on_info, .on_done = on_get_done, .arg = reading};
	struct err err;

	*reading = (struct reading){.body = pipe_new(w->loop, 4), .bytes = evbuffer_new()};
	pipe_set_reader(reading->body, on_data, reading);
	assert_non_null(sandbox_file_get(world_find(w, id), &spec, reading->body, &hooks, &err));
	WORLD_UNTIL(w, reading->answer.count == 1);
	world_run(w, 10);
	pipe_reader_free(reading->body);
}

static void test_a_file_goes_in_and_comes_back_through_a_small_pipe(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);
	struct reading reading;

	(void)state;
	put(w, id, "/workspace/a", "content of a file");
	get(w, id, "/workspace/a", &reading);
	assert_int_equal(reading.answer.kind, ERR_NONE);
	assert_int_equal(reading.size, 17);
	assert_int_equal(evbuffer_get_length(reading.bytes), 17);
	assert_memory_equal(evbuffer_pullup(reading.bytes, -1), "content of a file", 17);
	evbuffer_free(reading.bytes);

	get(w, id, "/workspace/none", &reading);
	assert_int_equal(reading.answer.kind, ERR_GUEST);
	assert_int_not_equal(reading.status, 0);
	evbuffer_free(reading.bytes);
	world_free(w);
}

struct listing {
	unsigned entries;
	struct world_answer answer;
};

static void on_entry(void *arg, const struct guest_entry *entry)
{
	assert_int_equal(entry->type, 'f');
	((struct listing *)arg)->entries++;
}

static void on_list_done(
	void *arg, bool is_cut, const struct guest_status *status, const struct err *err)
{
	assert_false(is_cut);
	world_on_done(&((struct listing *)arg)->answer, status, err);
}

static void test_a_directory_is_listed(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);
	struct listing listing = {0};
	const struct guest_list_hooks hooks = {on_entry, on_list_done, &listing};
	const struct guest_file_spec spec = {.path = "/workspace", .path_len = 10, .limit = 100};
	struct err err;

	(void)state;
	put(w, id, "/workspace/a", "1");
	put(w, id, "/workspace/b", "2");
	assert_non_null(sandbox_file_list(world_find(w, id), &spec, &hooks, &err));
	WORLD_UNTIL(w, listing.answer.count == 1);
	assert_int_equal(listing.entries, 2);
	world_free(w);
}

static void test_a_body_whose_sender_goes_away_is_an_error(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);
	struct pipe *body = pipe_new(w->loop, 64);
	const struct guest_file_spec spec = {.path = "/a", .path_len = 2};
	struct world_answer answer = {0};
	struct err err;

	(void)state;
	assert_non_null(
		sandbox_file_put(world_find(w, id), &spec, body, world_on_done, &answer, &err));
	pipe_write(body, "half", 4);
	world_run(w, 10);
	pipe_writer_free(body);
	WORLD_UNTIL(w, answer.count == 1);
	assert_int_equal(answer.kind, ERR_CANCELLED);
	world_free(w);
}

/* Prints as much as one command may, all at once, and never ends. */
static bool print_and_stay(void *arg, struct guest_call *call, const struct fake_exec *exec)
{
	static const char block[2048];

	(void)arg;
	(void)exec;
	fake_guest_ignore_cap(call);
	fake_exec_output(call, 1, block, sizeof block);
	return true;
}

static void test_outputs_of_all_commands_together_are_bounded(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);
	static struct world_answer answers[9];
	struct world_answer answer;

	(void)state;
	fake_guest_set_program(w->guests, print_and_stay, NULL);
	for (size_t i = 0; i < 7; i++) {
		world_exec_start(w, id, "x", &answers[i]);
	}
	WORLD_UNTIL(w, fake_guest_calls(w->guests, FAKE_GUEST_EXEC) == 7);
	world_run(w, 20);
	fake_guest_set_program(w->guests, NULL, NULL);
	world_exec(w, id, "bytes 2048", &answer);
	assert_int_equal(answer.out_len, 2048);
	assert_false(answer.truncated);

	fake_guest_set_program(w->guests, print_and_stay, NULL);
	world_exec_start(w, id, "x", &answers[7]);
	world_run(w, 20);
	fake_guest_set_program(w->guests, NULL, NULL);
	world_exec(w, id, "bytes 1", &answer);
	assert_int_equal(answer.out_len, 0);
	assert_true(answer.truncated);
	/* Another sandbox has room of its own. */
	world_exec(w, world_running(w, NULL), "bytes 2048", &answer);
	assert_false(answer.truncated);
	world_free(w);
}

static void test_a_machine_that_is_killed_is_lost(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);

	(void)state;
	fake_hv_stop_domain(w->hv, id, false);
	fake_hv_tell(w->hv, id, HV_EVENT_LOST);
	WORLD_UNTIL(w, world_is_state(w, id, "deleted"));
	assert_string_equal(world_reason(w, id), "lost");
	world_free(w);
}

static void test_a_guest_that_powers_off_ends_its_sandbox(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);
	struct world_answer exec;

	(void)state;
	world_exec_start(w, id, "hang", &exec);
	fake_hv_stop_domain(w->hv, id, true);
	WORLD_UNTIL(w, world_is_state(w, id, "deleted"));
	assert_string_equal(world_reason(w, id), "guest_shutdown");
	assert_int_equal(exec.count, 1);
	assert_int_not_equal(exec.kind, ERR_NONE);
	assert_true(world_is_clean(w, id));
	assert_int_equal(world_charged(w), 0);
	world_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_exec_brings_outputs_apart_and_the_exit_code),
		cmocka_unit_test(test_a_command_that_times_out_is_a_result),
		cmocka_unit_test(test_output_at_the_cap_is_whole_and_beyond_it_cut),
		cmocka_unit_test(test_a_guest_that_ignores_the_cap_is_cut_on_the_host),
		cmocka_unit_test(test_stdin_reaches_the_command),
		cmocka_unit_test(test_a_cancelled_call_is_answered_and_an_abandoned_one_is_not),
		cmocka_unit_test(test_operations_at_a_time_are_limited),
		cmocka_unit_test(test_before_it_runs_and_after_its_end_operations_are_refused),
		cmocka_unit_test(test_a_channel_that_is_down_is_unavailable_and_comes_back),
		cmocka_unit_test(test_settings_that_failed_are_sent_again_with_the_next_hello),
		cmocka_unit_test(test_a_destroy_ends_what_hangs_in_the_guest),
		cmocka_unit_test(test_callbacks_may_meddle_while_a_sandbox_ends),
		cmocka_unit_test(test_a_file_goes_in_and_comes_back_through_a_small_pipe),
		cmocka_unit_test(test_a_directory_is_listed),
		cmocka_unit_test(test_a_body_whose_sender_goes_away_is_an_error),
		cmocka_unit_test(test_outputs_of_all_commands_together_are_bounded),
		cmocka_unit_test(test_a_machine_that_is_killed_is_lost),
		cmocka_unit_test(test_a_guest_that_powers_off_ends_its_sandbox),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
