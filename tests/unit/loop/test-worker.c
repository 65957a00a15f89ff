#include "tests/lib/cm.h"

#include <semaphore.h>

#include "base/clock.h"
#include "base/xalloc.h"
#include "loop/worker.h"

/* A deadline by which a free thread has taken the job, on a busy machine, too. */
#define TAKEN_MS 1000

struct fixture {
	struct loop *loop;
	struct worker_pool *pool;
	int done;
	int late;
	struct err last; /* of the last done(); kind ERR_NONE: fine */
	sem_t gate;      /* jobs that wait_at_gate pass one by one */
};

struct job {
	struct worker_job job;
	struct fixture *f;
	int input;
	int result;
};

static void setup(struct fixture *f, unsigned threads, unsigned spares, unsigned queue_max)
{
	struct worker_limits limits = {
		.threads = threads, .spares = spares, .queue_max = queue_max};
	struct err err;

	memset(f, 0, sizeof *f);
	f->loop = loop_new(&err);
	f->pool = worker_pool_new(f->loop, "test", &limits, &err);
	assert_non_null(f->pool);
	sem_init(&f->gate, 0, 0);
}

static void teardown(struct fixture *f)
{
	if (f->pool) {
		assert_true(worker_pool_free(f->pool, 10000));
	}
	loop_free(f->loop);
	sem_destroy(&f->gate);
}

static void square(struct worker_job *job)
{
	struct job *j = container_of(job, struct job, job);

	assert_false(loop_is_current());
	j->result = j->input * j->input;
	if (j->input == 13) {
		err_set(&job->err, ERR_INTERNAL, "unlucky");
	}
}

static void wait_at_gate(struct worker_job *job)
{
	struct job *j = container_of(job, struct job, job);

	while (sem_wait(&j->f->gate) != 0) {
	}
	j->result = 1;
}

static void on_done(struct worker_job *job, const struct err *err)
{
	struct job *j = container_of(job, struct job, job);

	assert_true(loop_is_current());
	j->f->done++;
	j->f->last = err ? *err : ERR_INIT;
	if (job->is_abandoned) {
		return;
	}
	if (!err && job->run == square) {
		assert_int_equal(j->result, j->input * j->input);
	}
	free(j);
}

static void on_late(struct worker_job *job)
{
	struct job *j = container_of(job, struct job, job);

	assert_int_equal(j->result, 1);
	j->f->late++;
	free(j);
}

static struct job *make_job(struct fixture *f, void (*run)(struct worker_job *))
{
	struct job *j = xnew(struct job);

	j->f = f;
	j->job.run = run;
	j->job.done = on_done;
	j->job.late = on_late;
	return j;
}

static struct job *submit(
	struct fixture *f, void (*run)(struct worker_job *), int input, uint64_t deadline_ms)
{
	struct job *j = make_job(f, run);
	struct err err;

	j->input = input;
	j->job.deadline_ms = deadline_ms;
	assert_ok(worker_submit(f->pool, &j->job, &err), &err);
	return j;
}

static void test_each_job_is_done_once_on_the_loop(void **state)
{
	struct fixture f;

	(void)state;
	setup(&f, 4, 0, 1000);
	for (int i = 0; i < 500; i++) {
		submit(&f, square, i == 13 ? 0 : i, 0);
	}
	assert_int_equal(f.done, 0);
	await(f.loop, f.done == 500, 20000);
	teardown(&f);
	assert_int_equal(f.done, 500);
}

static void test_a_failure_travels_with_the_job(void **state)
{
	struct fixture f;

	(void)state;
	setup(&f, 1, 0, 10);
	submit(&f, square, 13, 0);
	await(f.loop, f.done == 1, 10000);
	assert_int_equal(f.last.kind, ERR_INTERNAL);
	teardown(&f);
}

static bool all_threads_are_busy(struct fixture *f)
{
	struct worker_stats stats;

	worker_pool_stats(f->pool, &stats);
	return stats.running == 1 && stats.waiting == 0;
}

static void test_a_full_queue_refuses(void **state)
{
	struct fixture f;
	struct err err;

	(void)state;
	setup(&f, 1, 0, 2);
	submit(&f, wait_at_gate, 0, 0);
	await(f.loop, all_threads_are_busy(&f), 10000);
	submit(&f, square, 1, 0);
	submit(&f, square, 2, 0);
	struct job *j = make_job(&f, square);
	assert_err(worker_submit(f.pool, &j->job, &err), &err, ERR_UNAVAILABLE);
	assert_err_says(&err, "waiting for the test;");
	free(j);
	sem_post(&f.gate);
	await(f.loop, f.done == 3, 10000);
	teardown(&f);
}

static void test_a_hanging_job_is_answered_and_its_thread_replaced(void **state)
{
	struct fixture f;
	struct worker_stats stats;

	(void)state;
	setup(&f, 1, 1, 10);
	submit(&f, wait_at_gate, 0, TAKEN_MS);
	await(f.loop, f.done == 1, 10000);
	assert_int_equal(f.last.kind, ERR_TIMEOUT);
	assert_string_equal(f.last.msg, "the test didn't answer in time");
	worker_pool_stats(f.pool, &stats);
	assert_int_equal(stats.hanging, 1);

	submit(&f, square, 3, 0);
	await(f.loop, f.done == 2, 10000);
	assert_int_equal(f.last.kind, ERR_NONE);
	assert_int_equal(f.late, 0);

	sem_post(&f.gate);
	await(f.loop, f.late == 1, 10000);
	assert_int_equal(f.done, 2);
	await(f.loop, (worker_pool_stats(f.pool, &stats), stats.threads == 1), 10000);
	assert_int_equal(stats.hanging, 0);
	teardown(&f);
}

static void test_spares_are_bounded(void **state)
{
	struct fixture f;
	struct worker_stats stats;

	(void)state;
	setup(&f, 1, 1, 10);
	submit(&f, wait_at_gate, 0, TAKEN_MS);
	await(f.loop, f.done == 1, 10000);
	submit(&f, wait_at_gate, 0, TAKEN_MS);
	await(f.loop, f.done == 2, 10000);
	/* Both threads hang: a third job waits until its deadline. */
	submit(&f, square, 1, 30);
	await(f.loop, f.done == 3, 10000);
	assert_int_equal(f.last.kind, ERR_TIMEOUT);
	assert_string_equal(f.last.msg, "the test is busy");
	worker_pool_stats(f.pool, &stats);
	assert_int_equal(stats.threads, 2);
	sem_post(&f.gate);
	sem_post(&f.gate);
	await(f.loop, f.late == 2, 10000);
	teardown(&f);
}

/* ---- stalls ---- */

static void setup_stalling(struct fixture *f, unsigned threads, unsigned spares)
{
	struct worker_limits limits = {
		.threads = threads, .spares = spares, .queue_max = 10, .stall_ms = 50};
	struct err err;

	setup(f, threads, spares, 10);
	assert_true(worker_pool_free(f->pool, 10000));
	f->pool = worker_pool_new(f->loop, "test", &limits, &err);
	assert_non_null(f->pool);
}

static struct worker_stats stats_of(const struct fixture *f)
{
	struct worker_stats stats;

	worker_pool_stats(f->pool, &stats);
	return stats;
}

static void test_a_job_behind_long_ones_is_taken_long_before_their_deadlines(void **state)
{
	struct fixture f;

	(void)state;
	setup_stalling(&f, 2, 4);
	submit(&f, wait_at_gate, 0, 600000);
	submit(&f, wait_at_gate, 0, 600000);
	await(f.loop, stats_of(&f).running == 2, 10000);
	submit(&f, square, 3, 600000);
	await(f.loop, f.done == 1, 10000);
	assert_int_equal(f.last.kind, ERR_NONE);
	/* One spare was enough, and nothing was given up. */
	assert_int_equal(stats_of(&f).threads, 3);
	assert_int_equal(stats_of(&f).hanging, 0);
	sem_post(&f.gate);
	sem_post(&f.gate);
	await(f.loop, f.done == 3, 10000);
	await(f.loop, stats_of(&f).threads == 2, 10000);
	teardown(&f);
}

static void test_long_jobs_alone_need_no_spare(void **state)
{
	struct fixture f;

	(void)state;
	setup_stalling(&f, 2, 4);
	submit(&f, wait_at_gate, 0, 600000);
	submit(&f, wait_at_gate, 0, 600000);
	await(f.loop, stats_of(&f).running == 2, 10000);
	for (uint64_t until = clock_monotonic_ms() + 300; clock_monotonic_ms() < until;) {
		loop_turn_for(f.loop, 20);
	}
	assert_int_equal(stats_of(&f).threads, 2);
	sem_post(&f.gate);
	sem_post(&f.gate);
	await(f.loop, f.done == 2, 10000);
	teardown(&f);
}

static void test_spares_for_stalls_and_for_hanging_jobs_have_one_bound(void **state)
{
	struct fixture f;

	(void)state;
	setup_stalling(&f, 1, 2);
	/* The third that is taken leaves nobody; the first is given up while a spare stands in. */
	submit(&f, wait_at_gate, 0, 2 * TAKEN_MS);
	for (int i = 0; i < 3; i++) {
		submit(&f, wait_at_gate, 0, 600000);
	}
	await(f.loop, f.done == 1, 10000);
	assert_int_equal(f.last.kind, ERR_TIMEOUT);
	await(f.loop, stats_of(&f).running == 3, 10000);
	for (uint64_t until = clock_monotonic_ms() + 300; clock_monotonic_ms() < until;) {
		loop_turn_for(f.loop, 20);
		assert_in_range(stats_of(&f).threads, 1, 3);
	}
	assert_int_equal(stats_of(&f).waiting, 1);
	for (int i = 0; i < 4; i++) {
		sem_post(&f.gate);
	}
	await(f.loop, f.done == 4 && f.late == 1, 10000);
	await(f.loop, stats_of(&f).threads == 1, 10000);
	teardown(&f);
}

static void test_freeing_the_pool_ends_what_waits(void **state)
{
	struct fixture f;

	(void)state;
	setup(&f, 1, 0, 10);
	submit(&f, wait_at_gate, 0, 0);
	await(f.loop, all_threads_are_busy(&f), 10000);
	submit(&f, square, 1, 0);
	submit(&f, square, 1, 5000);
	sem_post(&f.gate);
	assert_true(worker_pool_free(f.pool, 10000));
	f.pool = NULL;
	assert_int_equal(f.done, 3);
	teardown(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_job_is_done_once_on_the_loop),
		cmocka_unit_test(test_a_failure_travels_with_the_job),
		cmocka_unit_test(test_a_full_queue_refuses),
		cmocka_unit_test(test_a_hanging_job_is_answered_and_its_thread_replaced),
		cmocka_unit_test(test_spares_are_bounded),
		cmocka_unit_test(test_a_job_behind_long_ones_is_taken_long_before_their_deadlines),
		cmocka_unit_test(test_long_jobs_alone_need_no_spare),
		cmocka_unit_test(test_spares_for_stalls_and_for_hanging_jobs_have_one_bound),
		cmocka_unit_test(test_freeing_the_pool_ends_what_waits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
