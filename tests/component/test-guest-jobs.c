/* Jobs, terminals and signals: the host side against the real agent. */
#include "agent_rig.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "loop/pipe.h"

static void assert_fine(const struct record *record)
{
	assert_string_equal(record->err.kind == ERR_NONE ? "" : record->err.msg, "");
}

static void start_spec(struct rig *rig, const struct guest_job_spec *spec, struct record *record)
{
	struct err err = ERR_INIT;

	*record = (struct record){0};
	assert_non_null(
		rig->f.driver->ops->job_start(rig->f.guest, spec, record_done, record, &err));
	fixture_wait_done(&rig->f, record);
}

static void start(struct rig *rig, const char *id, const char *command)
{
	const struct guest_job_spec spec = {
		.exec = {.id = id, .command = command}, .keep_stdin = true};
	struct record record;

	start_spec(rig, &spec, &record);
	assert_fine(&record);
}

static void wait_for_job(struct rig *rig, const char *id, struct record *record)
{
	struct guest_exec_hooks hooks = record_exec_hooks;
	struct err err = ERR_INIT;

	*record = (struct record){0};
	hooks.arg = record;
	assert_non_null(rig->f.driver->ops->job_wait(rig->f.guest, id, &hooks, &err));
	fixture_wait_done(&rig->f, record);
}

static struct guest_call *begin_read(
	struct rig *rig, const struct guest_read_spec *spec, struct record *record)
{
	struct guest_job_hooks hooks = record_job_hooks;
	struct err err = ERR_INIT;

	*record = (struct record){0};
	hooks.arg = record;
	struct guest_call *call = rig->f.driver->ops->job_read(rig->f.guest, spec, &hooks, &err);

	assert_non_null(call);
	return call;
}

static void read_all(struct rig *rig, const char *id, struct record *record)
{
	const struct guest_read_spec spec = {.id = id, .max = UINT64_MAX};

	begin_read(rig, &spec, record);
	fixture_wait_done(&rig->f, record);
}

static void give_input(
	struct rig *rig, const char *id, const char *text, bool closes, struct record *record)
{
	struct pipe *pipe = pipe_new(rig->f.loop, 1000);
	struct err err = ERR_INIT;

	*record = (struct record){0};
	assert_int_equal(pipe_write(pipe, text, strlen(text)), strlen(text));
	pipe_close(pipe);
	pipe_writer_free(pipe);
	assert_non_null(rig->f.driver->ops->job_input(
		rig->f.guest, id, pipe, closes, record_done, record, &err));
	fixture_wait_done(&rig->f, record);
}

static void test_a_job_from_its_start_to_its_end(void **state)
{
	struct rig rig;
	struct record record;
	struct err err;
	struct guest_job_hooks hooks = record_job_hooks;

	(void)state;
	rig_init(&rig);
	start(&rig, "ex_1", "cat; echo err >&2; exit 7");
	give_input(&rig, "ex_1", "one ", false, &record);
	assert_fine(&record);
	give_input(&rig, "ex_1", "two", true, &record);
	assert_fine(&record);
	wait_for_job(&rig, "ex_1", &record);
	assert_fine(&record);
	assert_int_equal(record.result.exit_code, 7);
	assert_int_equal(record.result.stdout_bytes, 7);
	assert_int_equal(record.result.stderr_bytes, 4);
	read_all(&rig, "ex_1", &record);
	assert_fine(&record);
	assert_string_equal(record.head[1], "one two");
	assert_string_equal(record.head[2], "err\n");
	assert_int_equal(record.starts, 1);
	assert_int_equal(record.start, 0);
	assert_false(record.job.is_running);
	assert_int_equal(record.job.end_offset, 11);

	record = (struct record){0};
	hooks.arg = &record;
	assert_non_null(rig.f.driver->ops->job_list(rig.f.guest, &hooks, &err));
	fixture_wait_done(&rig.f, &record);
	assert_fine(&record);
	assert_int_equal(record.jobs, 1);
	assert_string_equal(record.job.id, "ex_1");
	assert_int_equal(record.job.result.exit_code, 7);

	record = (struct record){0};
	assert_non_null(
		rig.f.driver->ops->job_forget(rig.f.guest, "ex_1", record_done, &record, &err));
	fixture_wait_done(&rig.f, &record);
	assert_fine(&record);
	wait_for_job(&rig, "ex_1", &record);
	assert_int_equal(record.err.kind, ERR_GUEST);
	rig_fini(&rig);
}

static void test_a_follower_gets_all_however_often_it_pauses(void **state)
{
	struct rig rig;
	struct record record;
	const struct guest_read_spec spec = {.id = "ex_1", .max = UINT64_MAX, .is_followed = true};

	(void)state;
	rig_init(&rig);
	start(&rig, "ex_1", "read x; head -c 5000000 /dev/zero; echo end >&2");
	struct guest_call *call = begin_read(&rig, &spec, &record);
	struct record typed;

	await(rig.f.loop, record.starts == 1, 20000);
	rig.f.driver->ops->exec_pause(call, true);
	give_input(&rig, "ex_1", "go\n", true, &typed);
	assert_fine(&typed);
	await(rig.f.loop, record.output[1] == PROTO_WINDOW_INITIAL_BYTES, 20000);
	while (record.done == 0) {
		rig.f.driver->ops->exec_pause(call, false);
		peer_turns(&rig.f.peer, 1);
		if (record.done == 0) {
			rig.f.driver->ops->exec_pause(call, true);
			peer_turns(&rig.f.peer, 1);
		}
	}
	assert_fine(&record);
	assert_int_equal(record.output[1], 5000000);
	assert_int_equal(record.output[2], 4);
	assert_int_equal(record.starts, 1);
	rig_fini(&rig);
}

static void test_cancelled_readers_leave_the_job_alone(void **state)
{
	struct rig rig;
	struct record waiter = {0};
	struct record reader;
	struct record record;
	struct guest_exec_hooks hooks = record_exec_hooks;
	const struct guest_read_spec spec = {.id = "ex_1", .max = UINT64_MAX, .is_followed = true};
	struct err err = ERR_INIT;

	(void)state;
	rig_init(&rig);
	start(&rig, "ex_1", "cat");
	hooks.arg = &waiter;
	struct guest_call *wait = rig.f.driver->ops->job_wait(rig.f.guest, "ex_1", &hooks, &err);
	struct guest_call *read = begin_read(&rig, &spec, &reader);

	await(rig.f.loop, reader.starts == 1, 20000);
	rig.f.driver->ops->cancel(wait);
	rig.f.driver->ops->cancel(read);
	fixture_wait_done(&rig.f, &waiter);
	fixture_wait_done(&rig.f, &reader);
	assert_int_equal(waiter.err.kind, ERR_CANCELLED);
	assert_int_equal(reader.err.kind, ERR_CANCELLED);
	give_input(&rig, "ex_1", "alive", true, &record);
	wait_for_job(&rig, "ex_1", &record);
	assert_int_equal(record.result.exit_code, 0);
	assert_int_equal(record.result.stdout_bytes, 5);
	rig_fini(&rig);
}

static void test_signals_reach_jobs_and_calls(void **state)
{
	struct rig rig;
	struct record run = {0};
	struct record record = {0};
	const struct guest_exec_spec spec = {
		.id = "ex_2", .command = "exec sleep 1000", .output_cap = 100};
	struct guest_exec_hooks hooks = record_exec_hooks;
	struct err err = ERR_INIT;

	(void)state;
	rig_init(&rig);
	start(&rig, "ex_1", "exec sleep 1000");
	hooks.arg = &run;
	assert_non_null(rig.f.driver->ops->exec(rig.f.guest, &spec, &hooks, &err));
	await(rig.f.loop, run.started == 1, 20000);
	assert_non_null(rig.f.driver->ops->signal(
		rig.f.guest, "ex_2", SIGKILL, record_done, &record, &err));
	fixture_wait_done(&rig.f, &run);
	assert_int_equal(run.result.signal, SIGKILL);
	record = (struct record){0};
	assert_non_null(rig.f.driver->ops->signal(
		rig.f.guest, "ex_1", SIGTERM, record_done, &record, &err));
	wait_for_job(&rig, "ex_1", &run);
	assert_int_equal(run.result.exit_code, 128 + SIGTERM);
	record = (struct record){0};
	assert_non_null(rig.f.driver->ops->signal(
		rig.f.guest, "ex_1", SIGTERM, record_done, &record, &err));
	fixture_wait_done(&rig.f, &record);
	assert_int_equal(record.err.kind, ERR_GUEST);
	assert_int_equal(record.status, STATUS_NOT_FOUND);
	assert_null(rig.f.driver->ops->signal(
		rig.f.guest, "no such", SIGTERM, record_done, &record, &err));
	assert_int_equal(err.kind, ERR_INVALID);
	rig_fini(&rig);
}

static void test_a_login_shell_on_a_terminal(void **state)
{
	struct rig rig;
	struct record record;
	const struct guest_job_spec spec = {
		.exec = {.id = "ex_1", .shell = "sh"}, .has_tty = true, .rows = 30, .cols = 90};
	struct err err = ERR_INIT;

	(void)state;
	rig_init(&rig);
	start_spec(&rig, &spec, &record);
	assert_fine(&record);
	record = (struct record){0};
	assert_non_null(rig.f.driver->ops->job_resize(
		rig.f.guest, "ex_1", 31, 91, record_done, &record, &err));
	fixture_wait_done(&rig.f, &record);
	assert_fine(&record);
	give_input(&rig, "ex_1", "stty size >size; exit 3\n", false, &record);
	assert_fine(&record);
	wait_for_job(&rig, "ex_1", &record);
	assert_int_equal(record.result.exit_code, 3);
	assert_int_equal(record.result.stderr_bytes, 0);

	char path[128];
	char text[16] = "";

	snprintf(path, sizeof path, "%s/size", rig.workspace);
	_cleanup_fclose_ FILE *file = fopen(path, "r");

	assert_non_null(file);
	assert_non_null(fgets(text, sizeof text, file));
	assert_string_equal(text, "31 91\n");
	give_input(&rig, "ex_1", "more", false, &record);
	assert_int_equal(record.err.kind, ERR_GUEST);
	rig_fini(&rig);
}

static void test_head_tail_and_shell_of_a_call(void **state)
{
	struct rig rig;
	struct record record = {0};
	const struct guest_exec_spec spec = {.command = "echo 0123456789; echo abc >&2; exit 4",
		.shell = "/bin/sh",
		.output_cap = 4,
		.tail_cap = 3};
	struct guest_exec_hooks hooks = record_exec_hooks;
	struct err err = ERR_INIT;

	(void)state;
	rig_init(&rig);
	hooks.arg = &record;
	assert_non_null(rig.f.driver->ops->exec(rig.f.guest, &spec, &hooks, &err));
	fixture_wait_done(&rig.f, &record);
	assert_fine(&record);
	assert_int_equal(record.result.exit_code, 4);
	assert_true(record.result.truncated);
	assert_int_equal(record.output[1] + record.output[2],
		4 + record.result.stdout_tail + record.result.stderr_tail);
	assert_int_equal(record.result.stdout_bytes, 11);
	assert_int_equal(record.result.stderr_bytes, 4);
	rig_fini(&rig);
}

static void test_more_jobs_than_there_may_be(void **state)
{
	struct rig rig;
	struct record record;
	const struct guest_job_spec spec = {.exec = {.id = "ex_more", .command = "true"}};
	char id[16];

	(void)state;
	rig_init(&rig);
	for (unsigned i = 0; i < PROTO_JOBS_RUNNING_MAX; i++) {
		snprintf(id, sizeof id, "ex_%u", i);
		start(&rig, id, "exec sleep 1000");
	}
	start_spec(&rig, &spec, &record);
	assert_int_equal(record.err.kind, ERR_RATE);
	for (unsigned i = 0; i < PROTO_JOBS_RUNNING_MAX; i++) {
		struct err err;

		snprintf(id, sizeof id, "ex_%u", i);
		record = (struct record){0};
		assert_non_null(rig.f.driver->ops->signal(
			rig.f.guest, id, SIGKILL, record_done, &record, &err));
		fixture_wait_done(&rig.f, &record);
		assert_fine(&record);
	}
	rig_fini(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_job_from_its_start_to_its_end),
		cmocka_unit_test(test_a_follower_gets_all_however_often_it_pauses),
		cmocka_unit_test(test_cancelled_readers_leave_the_job_alone),
		cmocka_unit_test(test_signals_reach_jobs_and_calls),
		cmocka_unit_test(test_a_login_shell_on_a_terminal),
		cmocka_unit_test(test_head_tail_and_shell_of_a_call),
		cmocka_unit_test(test_more_jobs_than_there_may_be),
	};

	return cmocka_run_group_tests_name("guest-jobs", tests, NULL, NULL);
}
