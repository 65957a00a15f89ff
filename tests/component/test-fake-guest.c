/* The fake agent's jobs: what tests of everything above it rely on. */
#include "tests/lib/world.h"

#include <signal.h>
#include <stdio.h>

#include "loop/pipe.h"
#include "proto/msg.h"

struct bench {
	struct world *w;
	const char *id;
	struct guest *guest;
};

/* What the callbacks of a call brought. */
struct got {
	unsigned done;
	enum err_kind kind;
	uint32_t status;
	bool has_result;
	struct guest_exec_result result;
	unsigned jobs;
	struct guest_job job;
	unsigned starts;
	uint64_t start;
	size_t out_len;
	size_t err_len;
	char out[8192];
	char order[64]; /* "121": runs of descriptors */
	struct guest_call *pause_at_output;
	struct guest *guest;
};

static void on_state(void *arg, enum guest_state state, const struct err *err)
{
	(void)arg;
	(void)state;
	(void)err;
}

static void bench_connect(struct bench *b)
{
	struct guest_driver *driver = fake_guest_driver(b->w->guests);
	const struct guest_hooks hooks = {.on_state = on_state};

	b->guest = driver->ops->open(
		driver, fake_hv_find(b->w->hv, b->id)->agent_socket, NULL, &hooks);
	WORLD_UNTIL(b->w, b->guest->ops->state(b->guest) == GUEST_READY);
}

static struct bench bench_new(void)
{
	struct bench b = {.w = world_new(NULL)};

	b.id = world_running(b.w, NULL);
	bench_connect(&b);
	return b;
}

static void bench_free(struct bench *b)
{
	b->guest->ops->close(b->guest);
	world_free(b->w);
}

static void on_done(void *arg, const struct guest_status *status, const struct err *err)
{
	struct got *got = arg;

	got->done++;
	got->kind = err ? err->kind : ERR_NONE;
	got->status = status ? status->status : 0;
}

static void on_exec_done(void *arg, const struct guest_exec_result *result, const struct err *err)
{
	struct got *got = arg;

	on_done(got, NULL, err);
	got->has_result = result != NULL;
	if (result) {
		got->result = *result;
	}
}

static void on_job(void *arg, const struct guest_job *job)
{
	struct got *got = arg;

	got->jobs++;
	got->job = *job;
}

static void on_start(void *arg, uint64_t offset)
{
	struct got *got = arg;

	got->starts++;
	got->start = offset;
}

static void on_output(void *arg, int fd, const void *data, size_t len)
{
	struct got *got = arg;
	size_t runs = strlen(got->order);
	size_t at = MIN(got->out_len, sizeof got->out - 1);
	size_t room = sizeof got->out - 1 - at;

	memcpy(got->out + at, data, MIN(len, room));
	got->out_len += len;
	got->err_len += fd == 2 ? len : 0;
	if ((runs == 0 || got->order[runs - 1] != '0' + fd) && runs + 1 < sizeof got->order) {
		got->order[runs] = (char)('0' + fd);
	}
	if (got->pause_at_output) {
		got->guest->ops->exec_pause(got->pause_at_output, true);
	}
}

#define EXEC_HOOKS(got)                                                                            \
	(&(struct guest_exec_hooks){.on_output = on_output, .on_done = on_exec_done, .arg = (got)})
#define JOB_HOOKS(got)                                                                             \
	(&(struct guest_job_hooks){.on_job = on_job,                                               \
		.on_start = on_start,                                                              \
		.on_output = on_output,                                                            \
		.on_done = on_done,                                                                \
		.arg = (got)})

static void start_spec(struct bench *b, const struct guest_job_spec *spec, struct got *got)
{
	struct err err;

	*got = (struct got){0};
	assert_non_null(b->guest->ops->job_start(b->guest, spec, on_done, got, &err));
	assert_int_equal(got->done, 0);
	WORLD_UNTIL(b->w, got->done == 1);
}

static void start(struct bench *b, const char *id, const char *command)
{
	const struct guest_job_spec spec = {.exec = {.id = id, .command = command}};
	struct got got;

	start_spec(b, &spec, &got);
	assert_int_equal(got.kind, ERR_NONE);
}

static void wait_for(struct bench *b, const char *id, struct got *got)
{
	struct err err;

	*got = (struct got){0};
	assert_non_null(b->guest->ops->job_wait(b->guest, id, EXEC_HOOKS(got), &err));
	WORLD_UNTIL(b->w, got->done == 1);
}

static struct guest_call *begin_read(
	struct bench *b, const struct guest_read_spec *spec, struct got *got)
{
	struct err err;

	*got = (struct got){.guest = b->guest};
	struct guest_call *call = b->guest->ops->job_read(b->guest, spec, JOB_HOOKS(got), &err);

	assert_non_null(call);
	return call;
}

static void read_all(struct bench *b, const char *id, struct got *got)
{
	const struct guest_read_spec spec = {.id = id, .max = UINT64_MAX};

	begin_read(b, &spec, got);
	WORLD_UNTIL(b->w, got->done == 1);
}

static bool talk(void *arg, struct guest_call *call, const struct fake_exec *exec)
{
	(void)arg;
	if (strcmp(exec->command, "talk") != 0) {
		return false;
	}
	fake_exec_output(call, 1, "one", 3);
	fake_exec_output(call, 2, "two", 3);
	fake_exec_output(call, 1, "three", 5);
	fake_exec_exit(call, 3);
	return true;
}

static void test_a_job_outlives_its_channel_and_keeps_order_and_result(void **state)
{
	struct bench b = bench_new();
	struct got got;

	(void)state;
	fake_guest_set_program(b.w->guests, talk, NULL);
	start(&b, "ex_1", "talk");
	b.guest->ops->close(b.guest);
	bench_connect(&b);
	wait_for(&b, "ex_1", &got);
	assert_true(got.has_result);
	assert_int_equal(got.result.exit_code, 3);
	assert_int_equal(got.result.stdout_bytes, 8);
	read_all(&b, "ex_1", &got);
	assert_string_equal(got.out, "onetwothree");
	assert_string_equal(got.order, "121");
	assert_int_equal(got.jobs, 1);
	assert_false(got.job.is_running);
	assert_int_equal(got.job.end_offset, 11);
	fake_guest_set_program(b.w->guests, NULL, NULL);
	bench_free(&b);
}

static void test_a_ring_without_a_reader_drops_its_oldest_and_counts(void **state)
{
	struct bench b = bench_new();
	struct got got;

	(void)state;
	fake_guest_set_ring(b.w->guests, 1000);
	start(&b, "ex_1", "bytes 5000");
	wait_for(&b, "ex_1", &got);
	read_all(&b, "ex_1", &got);
	assert_int_equal(got.start, 4000);
	assert_int_equal(got.out_len, 1000);
	assert_int_equal(got.job.first_offset, 4000);

	const struct guest_read_spec beyond = {.id = "ex_1", .offset = 5001, .max = 10};

	begin_read(&b, &beyond, &got);
	WORLD_UNTIL(b.w, got.done == 1);
	assert_int_equal(got.kind, ERR_GUEST);
	bench_free(&b);
}

static void test_a_paused_follower_blocks_the_job_and_loses_nothing(void **state)
{
	struct bench b = bench_new();
	const struct guest_read_spec spec = {.id = "ex_1", .max = UINT64_MAX, .is_followed = true};
	struct got slow;
	struct got got;
	struct err err;

	(void)state;
	fake_guest_set_ring(b.w->guests, 5000);
	const struct guest_job_spec job = {
		.exec = {.id = "ex_1", .command = "cat"}, .keep_stdin = true};

	start_spec(&b, &job, &got);
	struct guest_call *call = begin_read(&b, &spec, &slow);

	WORLD_UNTIL(b.w, slow.starts == 1);
	slow.pause_at_output = call;

	struct pipe *input = pipe_new(b.w->loop, 100000);
	char block[60000] = {0};

	assert_int_equal(pipe_write(input, block, sizeof block), sizeof block);
	pipe_close(input);
	got = (struct got){0};
	assert_non_null(b.guest->ops->job_input(b.guest, "ex_1", input, true, on_done, &got, &err));
	pipe_writer_free(input);
	WORLD_UNTIL(b.w, got.done == 1);
	WORLD_UNTIL(b.w, slow.out_len > 0);
	world_run(b.w, 20);
	assert_true(slow.out_len < sizeof block);
	assert_true(fake_guest_job(b.w->guests, b.id, "ex_1")->is_running);
	assert_true(fake_guest_job(b.w->guests, b.id, "ex_1")->held > 0);

	slow.pause_at_output = NULL;
	b.guest->ops->exec_pause(call, false);
	WORLD_UNTIL(b.w, slow.done == 1);
	assert_int_equal(slow.out_len, sizeof block);
	assert_int_equal(slow.starts, 1);
	bench_free(&b);
}

static void test_a_read_waits_for_a_byte_or_the_end_or_its_time(void **state)
{
	struct bench b = bench_new();
	const struct guest_job_spec job = {
		.exec = {.id = "ex_1"}, .has_tty = true, .rows = 24, .cols = 80};
	struct guest_read_spec spec = {.id = "ex_1", .max = UINT64_MAX, .wait_ms = 20};
	struct got got;
	struct got typed = {0};
	struct err err;

	(void)state;
	start_spec(&b, &job, &got);
	begin_read(&b, &spec, &got);
	WORLD_UNTIL(b.w, got.done == 1);
	assert_int_equal(got.out_len, 0);

	spec.wait_ms = 60000;
	begin_read(&b, &spec, &got);
	world_run(b.w, 10);
	assert_int_equal(got.done, 0);

	struct pipe *input = pipe_new(b.w->loop, 100);

	pipe_write(input, "ls\n", 3);
	pipe_close(input);
	assert_non_null(
		b.guest->ops->job_input(b.guest, "ex_1", input, false, on_done, &typed, &err));
	pipe_writer_free(input);
	WORLD_UNTIL(b.w, got.done == 1 && typed.done == 1);
	assert_string_equal(got.out, "ls\n");

	spec.offset = 3;
	begin_read(&b, &spec, &got);
	typed = (struct got){0};
	assert_non_null(b.guest->ops->signal(b.guest, "ex_1", SIGHUP, on_done, &typed, &err));
	WORLD_UNTIL(b.w, got.done == 1 && typed.done == 1);
	wait_for(&b, "ex_1", &got);
	assert_int_equal(got.result.signal, SIGHUP);
	bench_free(&b);
}

static void test_resize_signal_list_and_forget(void **state)
{
	struct bench b = bench_new();
	const struct guest_job_spec job = {.exec = {.id = "ex_1", .command = "winsize"},
		.has_tty = true,
		.rows = 24,
		.cols = 80};
	struct got got;
	struct err err;

	(void)state;
	start_spec(&b, &job, &got);
	start(&b, "ex_2", "true");
	got = (struct got){0};
	assert_non_null(b.guest->ops->job_resize(b.guest, "ex_1", 50, 132, on_done, &got, &err));
	WORLD_UNTIL(b.w, got.done == 1);
	read_all(&b, "ex_1", &got);
	assert_string_equal(got.out, "24 80\n50 132\n");

	got = (struct got){0};
	assert_non_null(b.guest->ops->job_list(b.guest, JOB_HOOKS(&got), &err));
	WORLD_UNTIL(b.w, got.done == 1);
	assert_int_equal(got.jobs, 2);

	got = (struct got){0};
	assert_non_null(b.guest->ops->job_forget(b.guest, "ex_1", on_done, &got, &err));
	WORLD_UNTIL(b.w, got.done == 1);
	assert_int_equal(got.kind, ERR_GUEST);
	wait_for(&b, "ex_2", &got);
	got = (struct got){0};
	assert_non_null(b.guest->ops->job_forget(b.guest, "ex_2", on_done, &got, &err));
	WORLD_UNTIL(b.w, got.done == 1);
	assert_int_equal(got.kind, ERR_NONE);
	wait_for(&b, "ex_2", &got);
	assert_int_equal(got.kind, ERR_GUEST);
	assert_int_equal(fake_guest_job_count(b.w->guests, b.id), 1);
	bench_free(&b);
}

static void test_as_many_jobs_run_as_there_may_be_and_the_oldest_ended_goes(void **state)
{
	struct bench b = bench_new();
	const struct guest_job_spec one_more = {.exec = {.id = "ex_more", .command = "hang"}};
	struct got got;
	char id[16];

	(void)state;
	for (unsigned i = 0; i < FAKE_JOBS_ENDED_MAX + 1; i++) {
		snprintf(id, sizeof id, "ex_e%u", i);
		start(&b, id, "true");
		wait_for(&b, id, &got);
	}
	assert_int_equal(fake_guest_job_count(b.w->guests, b.id), FAKE_JOBS_ENDED_MAX);
	assert_null(fake_guest_job(b.w->guests, b.id, "ex_e0"));
	for (unsigned i = 0; i < FAKE_JOBS_RUNNING_MAX; i++) {
		snprintf(id, sizeof id, "ex_r%u", i);
		start(&b, id, "hang");
	}
	start_spec(&b, &one_more, &got);
	assert_int_equal(got.kind, ERR_RATE);
	bench_free(&b);
}

static void test_a_signal_by_id_ends_a_foreground_command(void **state)
{
	struct bench b = bench_new();
	const struct guest_exec_spec spec = {
		.id = "ex_1", .command = "hang", .output_cap = UINT64_MAX};
	struct got run = {0};
	struct got got = {0};
	struct err err;

	(void)state;
	assert_non_null(b.guest->ops->exec(b.guest, &spec, EXEC_HOOKS(&run), &err));
	world_run(b.w, 10);
	assert_non_null(b.guest->ops->signal(b.guest, "ex_1", SIGTERM, on_done, &got, &err));
	WORLD_UNTIL(b.w, run.done == 1 && got.done == 1);
	assert_int_equal(run.result.exit_code, 128 + SIGTERM);
	assert_non_null(b.guest->ops->signal(b.guest, "ex_1", SIGTERM, on_done, &got, &err));
	WORLD_UNTIL(b.w, got.done == 2);
	assert_int_equal(got.kind, ERR_GUEST);
	assert_int_equal(got.status, STATUS_NOT_FOUND);
	bench_free(&b);
}

static void test_head_and_tail_of_a_foreground_command(void **state)
{
	struct bench b = bench_new();
	const struct guest_exec_spec spec = {
		.command = "bytes 1000", .output_cap = 100, .tail_cap = 50};
	struct got got = {0};
	struct err err;

	(void)state;
	assert_non_null(b.guest->ops->exec(b.guest, &spec, EXEC_HOOKS(&got), &err));
	WORLD_UNTIL(b.w, got.done == 1);
	assert_int_equal(got.out_len, 150);
	assert_int_equal(got.result.stdout_tail, 50);
	assert_int_equal(got.result.stdout_bytes, 1000);
	assert_true(got.result.truncated);
	bench_free(&b);
}

static void test_a_job_that_was_started_runs_though_the_answer_never_came(void **state)
{
	struct bench b = bench_new();
	const struct guest_job_spec spec = {.exec = {.id = "ex_1", .command = "hang"}};
	struct got got;

	(void)state;
	fake_guest_script(b.w->guests, FAKE_GUEST_JOB_START,
		&(struct fake_script){.mode = FAKE_EFFECT_FAIL, .kind = ERR_TIMEOUT, .times = 1});
	start_spec(&b, &spec, &got);
	assert_int_equal(got.kind, ERR_TIMEOUT);
	assert_true(fake_guest_job(b.w->guests, b.id, "ex_1")->is_running);
	bench_free(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_job_outlives_its_channel_and_keeps_order_and_result),
		cmocka_unit_test(test_a_ring_without_a_reader_drops_its_oldest_and_counts),
		cmocka_unit_test(test_a_paused_follower_blocks_the_job_and_loses_nothing),
		cmocka_unit_test(test_a_read_waits_for_a_byte_or_the_end_or_its_time),
		cmocka_unit_test(test_resize_signal_list_and_forget),
		cmocka_unit_test(test_as_many_jobs_run_as_there_may_be_and_the_oldest_ended_goes),
		cmocka_unit_test(test_a_signal_by_id_ends_a_foreground_command),
		cmocka_unit_test(test_head_and_tail_of_a_foreground_command),
		cmocka_unit_test(test_a_job_that_was_started_runs_though_the_answer_never_came),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
