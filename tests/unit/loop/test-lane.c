#include "tests/lib/cm.h"

#include <semaphore.h>

#include "base/clock.h"
#include "base/xalloc.h"
#include "loop/lane.h"

struct fixture {
	struct loop *loop;
	struct worker_pool *pool;
	struct lanes *lanes;
	sem_t gate;
	char trace[64]; /* letters of jobs in the order of done() */
	int late;
};

struct job {
	struct lane_job lane;
	struct fixture *f;
	char letter;
	bool waits;
};

static void setup(struct fixture *f)
{
	struct worker_limits limits = {.threads = 2, .spares = 2, .queue_max = 100};
	struct err err;

	memset(f, 0, sizeof *f);
	f->loop = loop_new(&err);
	f->pool = worker_pool_new(f->loop, "test", &limits, &err);
	f->lanes = lanes_new(f->loop, f->pool);
	sem_init(&f->gate, 0, 0);
}

static void teardown(struct fixture *f)
{
	assert_true(worker_pool_free(f->pool, 10000));
	lanes_free(f->lanes);
	loop_free(f->loop);
	sem_destroy(&f->gate);
}

static void run(struct worker_job *job)
{
	struct job *j = container_of(job, struct job, lane.job);

	while (j->waits && sem_wait(&j->f->gate) != 0) {
	}
}

static void on_done(struct worker_job *job, const struct err *err)
{
	struct job *j = container_of(job, struct job, lane.job);
	size_t n = strlen(j->f->trace);

	j->f->trace[n] = (char)(err ? j->letter - 'a' + 'A' : j->letter);
	if (!job->is_abandoned) {
		free(j);
	}
}

static void on_late(struct worker_job *job)
{
	struct job *j = container_of(job, struct job, lane.job);

	j->f->late++;
	free(j);
}

static int submit(struct fixture *f, const char *key, char letter, bool waits, uint64_t deadline_ms,
	struct err *err)
{
	struct job *j = xnew(struct job);

	j->f = f;
	j->letter = letter;
	j->waits = waits;
	j->lane.job.run = run;
	j->lane.job.done = on_done;
	j->lane.job.late = on_late;
	j->lane.job.deadline_ms = deadline_ms;
	if (lane_submit(f->lanes, key, &j->lane, err) != 0) {
		free(j);
		return -1;
	}
	return 0;
}

static void test_jobs_of_one_lane_keep_their_order(void **state)
{
	struct fixture f;
	struct err err;

	(void)state;
	setup(&f);
	for (char c = 'a'; c < 'k'; c++) {
		assert_ok(submit(&f, "sb_1", c, false, 0, &err), &err);
	}
	await(f.loop, strlen(f.trace) == 10, 10000);
	assert_string_equal(f.trace, "abcdefghij");
	teardown(&f);
}

static void test_a_stuck_lane_leaves_others_alone(void **state)
{
	struct fixture f;
	struct err err;

	(void)state;
	setup(&f);
	assert_ok(submit(&f, "sb_1", 'a', true, 0, &err), &err);
	assert_ok(submit(&f, "sb_1", 'b', false, 0, &err), &err);
	assert_ok(submit(&f, "sb_2", 'x', false, 0, &err), &err);
	assert_ok(submit(&f, "sb_3", 'y', false, 0, &err), &err);
	await(f.loop, strlen(f.trace) == 2, 10000);
	assert_string_equal(f.trace, "xy");
	sem_post(&f.gate);
	await(f.loop, strlen(f.trace) == 4, 10000);
	assert_string_equal(f.trace, "xyab");
	teardown(&f);
}

static void test_an_abandoned_job_frees_its_lane(void **state)
{
	struct fixture f;
	struct err err;

	(void)state;
	setup(&f);
	assert_ok(submit(&f, "sb_1", 'a', true, 50, &err), &err);
	assert_ok(submit(&f, "sb_1", 'b', false, 0, &err), &err);
	await(f.loop, strlen(f.trace) == 2, 10000);
	assert_string_equal(f.trace, "Ab");
	assert_int_equal(f.late, 0);
	sem_post(&f.gate);
	await(f.loop, f.late == 1, 10000);
	teardown(&f);
}

static void test_a_lane_is_bounded(void **state)
{
	struct fixture f;
	struct err err;

	(void)state;
	setup(&f);
	assert_ok(submit(&f, "sb_1", 'a', true, 0, &err), &err);
	for (int i = 0; i < LANE_JOBS_MAX; i++) {
		assert_ok(submit(&f, "sb_1", 'b', false, 0, &err), &err);
	}
	assert_err(submit(&f, "sb_1", 'c', false, 0, &err), &err, ERR_UNAVAILABLE);
	sem_post(&f.gate);
	await(f.loop, strlen(f.trace) == LANE_JOBS_MAX + 1, 10000);
	teardown(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_jobs_of_one_lane_keep_their_order),
		cmocka_unit_test(test_a_stuck_lane_leaves_others_alone),
		cmocka_unit_test(test_an_abandoned_job_frees_its_lane),
		cmocka_unit_test(test_a_lane_is_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
