#include "tests/lib/cm.h"

#include <semaphore.h>

#include "daemon/doctor.h"
#include "daemon/doctor_job.h"
#include "loop/loop.h"
#include "loop/worker.h"
#include "netfilter/netfilter.h"
#include "tests/lib/fake_hv.h"

/* The examination waits here until it may go on. */
static sem_t may_go_on;

json_object *doctor_run_blocking(const struct config *config, const struct doctor_live *live)
{
	(void)config;
	(void)live;
	while (sem_wait(&may_go_on) != 0) {
	}
	return json_object_new_array();
}

void netfilter_status(const struct netfilter *nf, struct netfilter_status *ret)
{
	(void)nf;
	*ret = (struct netfilter_status){0};
}

struct outcome {
	unsigned answered;
	unsigned refused;
};

static void on_done(void *arg, json_object *findings, const struct err *err)
{
	struct outcome *outcome = arg;

	outcome->answered += findings != NULL;
	outcome->refused += err && err->kind == ERR_UNAVAILABLE;
	json_object_put(findings);
}

/* Whoever asks isn't ready for an answer from within. */
static void test_even_a_refusal_comes_later(void **state)
{
	const struct worker_limits limits = {.threads = 1, .queue_max = 1};
	struct outcome outcome = {0};
	struct err err;
	struct loop *loop = loop_new(&err);
	struct worker_pool *pool = worker_pool_new(loop, "test", &limits, &err);
	struct fake_hv *hv = fake_hv_new(loop);

	(void)state;
	assert_int_equal(sem_init(&may_go_on, 0, 0), 0);
	for (int i = 0; i < 4; i++) {
		doctor_job_submit(loop, pool, NULL, fake_hv_iface(hv), NULL, on_done, &outcome);
	}
	assert_int_equal(outcome.refused, 0);
	for (int i = 0; i < 4; i++) {
		sem_post(&may_go_on);
	}
	while (outcome.answered + outcome.refused < 4) {
		loop_turn_for(loop, 10);
	}
	assert_in_range(outcome.refused, 2, 3);
	fake_hv_free(hv);
	assert_true(worker_pool_free(pool, 10000));
	loop_free(loop);
	sem_destroy(&may_go_on);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_even_a_refusal_comes_later),
	};

	return cmocka_run_group_tests_name("doctor_job", tests, NULL, NULL);
}
