/* What fails, hangs or comes late on the way up and down, step by step. */
#include "tests/lib/world.h"

#include <stdio.h>

/* What can go wrong while a sandbox is created: one line for each step and manner. */
static const struct fault {
	const char *name;
	bool is_guest;
	unsigned op;
	struct fake_script script;
	enum err_kind kind; /* what who waits hears */
} faults[] = {
	{"disk fails", false, FAKE_HV_DISK_CREATE, {.mode = FAKE_FAIL, .times = 1}, ERR_INTERNAL},
	{"disk is made and fails", false, FAKE_HV_DISK_CREATE,
		{.mode = FAKE_EFFECT_FAIL, .times = 1}, ERR_INTERNAL},
	{"disk times out", false, FAKE_HV_DISK_CREATE,
		{.mode = FAKE_TIMEOUT, .times = 1, .delay_ms = 20}, ERR_TIMEOUT},
	{"disk comes late", false, FAKE_HV_DISK_CREATE,
		{.mode = FAKE_TIMEOUT, .times = 1, .delay_ms = 20, .late_ms = 150}, ERR_TIMEOUT},
	{"start fails", false, FAKE_HV_START,
		{.mode = FAKE_FAIL, .times = 1, .kind = ERR_UNAVAILABLE}, ERR_UNAVAILABLE},
	{"start works and fails", false, FAKE_HV_START, {.mode = FAKE_EFFECT_FAIL, .times = 1},
		ERR_INTERNAL},
	{"start times out", false, FAKE_HV_START,
		{.mode = FAKE_TIMEOUT, .times = 1, .delay_ms = 20}, ERR_TIMEOUT},
	{"start comes late", false, FAKE_HV_START,
		{.mode = FAKE_TIMEOUT, .times = 1, .delay_ms = 20, .late_ms = 150}, ERR_TIMEOUT},
	{"guest refuses its settings", true, FAKE_GUEST_CONFIGURE, {.mode = FAKE_FAIL, .times = 1},
		ERR_GUEST},
	{"guest hangs over its settings", true, FAKE_GUEST_CONFIGURE,
		{.mode = FAKE_TIMEOUT, .times = 1, .delay_ms = 50}, ERR_TIMEOUT},
};

static void script(struct world *w, const struct fault *fault, const struct fake_script *script)
{
	if (fault->is_guest) {
		fake_guest_script(w->guests, (enum fake_guest_op)fault->op, script);
	} else {
		fake_hv_script(w->hv, (enum fake_hv_op)fault->op, script);
	}
}

static void test_a_creation_that_fails_at_any_step_leaves_nothing(void **state)
{
	struct world *w = world_new(NULL);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(faults); i++) {
		const struct fault *fault = &faults[i];
		struct world_answer ready = {0};
		struct world_answer gone = {0};

		print_message("  %s\n", fault->name);
		script(w, fault, &fault->script);
		const char *id = world_create(w, "alpha");

		sandbox_wait_ready(world_find(w, id), world_on_wait, &ready);
		sandbox_wait_gone(world_find(w, id), world_on_wait, &gone);
		WORLD_UNTIL(w, gone.count == 1);
		assert_int_equal(ready.count, 1);
		assert_int_equal(ready.kind, fault->kind);
		assert_string_equal(world_state(w, id), "failed");
		assert_string_not_equal(world_reason(w, id), "");
		assert_int_equal(world_charged(w), 0);
		assert_int_equal(fake_guest_open_count(w->guests), 0);
		/* What comes late is found and removed as well. */
		world_run(w, fault->script.late_ms ? fault->script.late_ms + 50 : 0);
		WORLD_UNTIL(w, world_is_clean(w, id));
		/* Name and quota are free again. */
		world_destroy(w, world_running(w, "alpha"));
		WORLD_UNTIL(w, sandboxes_count(w->all) == 0);
	}
	world_free(w);
}

static void test_an_internal_error_is_not_told_to_clients(void **state)
{
	struct world *w = world_new(NULL);

	(void)state;
	fake_hv_script(w->hv, FAKE_HV_START, &(struct fake_script){.mode = FAKE_FAIL, .times = 1});
	const char *id = world_create(w, NULL);

	WORLD_UNTIL(w, world_is_state(w, id, "failed"));
	assert_string_equal(world_reason(w, id), "internal error");
	world_free(w);
}

static void test_a_guest_that_never_reports_fails_in_time(void **state)
{
	struct world *w = world_new_stopped(NULL);
	struct world_answer ready = {0};

	(void)state;
	w->config.boot_timeout_ms = 200;
	world_start(w);
	fake_guest_set_hello_delay(w->guests, -1);
	const char *id = world_create(w, NULL);

	sandbox_wait_ready(world_find(w, id), world_on_wait, &ready);
	WORLD_UNTIL(w, world_is_state(w, id, "failed"));
	assert_int_equal(ready.kind, ERR_TIMEOUT);
	assert_non_null(strstr(ready.msg, "1 second"));
	assert_true(world_is_clean(w, id));
	world_free(w);
}

static void test_the_time_to_boot_bounds_the_settings_too(void **state)
{
	struct world *w = world_new_stopped(NULL);

	(void)state;
	w->config.boot_timeout_ms = 300;
	world_start(w);
	fake_guest_script(
		w->guests, FAKE_GUEST_CONFIGURE, &(struct fake_script){.mode = FAKE_HOLD});
	const char *id = world_create(w, NULL);

	WORLD_UNTIL(w, world_is_state(w, id, "failed"));
	assert_true(world_is_clean(w, id));
	world_free(w);
}

static void test_a_guest_that_stops_while_it_boots_fails_at_once(void **state)
{
	struct world *w = world_new(NULL);
	struct world_answer ready = {0};

	(void)state;
	fake_guest_set_hello_delay(w->guests, -1);
	const char *id = world_create(w, NULL);

	sandbox_wait_ready(world_find(w, id), world_on_wait, &ready);
	WORLD_UNTIL(w, fake_guest_open_count(w->guests) == 1);
	fake_hv_stop_domain(w->hv, id, true);
	WORLD_UNTIL(w, world_is_state(w, id, "failed"));
	assert_int_equal(ready.kind, ERR_UNAVAILABLE);
	assert_true(world_is_clean(w, id));
	world_free(w);
}

static void test_an_agent_that_is_lost_while_it_is_configured_may_come_back(void **state)
{
	struct world *w = world_new(NULL);

	(void)state;
	fake_guest_script(w->guests, FAKE_GUEST_CONFIGURE,
		&(struct fake_script){.mode = FAKE_HOLD, .times = 1});
	const char *id = world_create(w, NULL);

	WORLD_UNTIL(w, fake_guest_calls(w->guests, FAKE_GUEST_CONFIGURE) == 1);
	fake_guest_drop(w->guests, id, 30);
	WORLD_UNTIL(w, world_is_state(w, id, "running"));
	assert_int_equal(fake_guest_calls(w->guests, FAKE_GUEST_CONFIGURE), 2);
	world_free(w);
}

/* Stops creation at each step and destroys there. */
static void test_a_destroy_at_any_step_of_the_creation_wins(void **state)
{
	static const struct fault steps[] = {
		{"disk", false, FAKE_HV_DISK_CREATE, {0}, 0},
		{"domain", false, FAKE_HV_START, {0}, 0},
		{"channel", true, FAKE_GUEST_OP_MAX, {0}, 0},
		{"configure", true, FAKE_GUEST_CONFIGURE, {0}, 0},
	};
	const struct fake_script hold = {.mode = FAKE_HOLD};
	struct world *w = world_new(NULL);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
		const struct fault *step = &steps[i];
		struct world_answer ready = {0};
		struct world_answer gone = {0};

		print_message("  %s\n", step->name);
		fake_guest_set_hello_delay(w->guests, step->op == FAKE_GUEST_OP_MAX ? -1 : 0);
		if (step->op != FAKE_GUEST_OP_MAX) {
			script(w, step, &hold);
		}
		const char *id = world_create(w, "alpha");

		sandbox_wait_ready(world_find(w, id), world_on_wait, &ready);
		sandbox_wait_gone(world_find(w, id), world_on_wait, &gone);
		if (!step->is_guest) {
			WORLD_UNTIL(w, fake_hv_held(w->hv, (enum fake_hv_op)step->op) == 1);
		} else if (step->op == FAKE_GUEST_OP_MAX) {
			WORLD_UNTIL(w, fake_guest_open_count(w->guests) == 1);
		} else {
			WORLD_UNTIL(w, fake_guest_call_count(w->guests) == 1);
		}
		world_destroy(w, id);
		assert_string_equal(world_state(w, id), "deleting");
		/* Who waits needn't wait for the removal. */
		WORLD_UNTIL(w, ready.count == 1);
		assert_int_equal(ready.kind, ERR_ENDED);
		if (!step->is_guest) {
			/* The hypervisor can't be interrupted. */
			assert_int_equal(gone.count, 0);
			fake_hv_release(w->hv, (enum fake_hv_op)step->op);
		}
		WORLD_UNTIL(w, gone.count == 1);
		assert_string_equal(world_state(w, id), "deleted");
		assert_string_equal(world_reason(w, id), "deleted");
		assert_true(world_is_clean(w, id));
		assert_int_equal(world_charged(w), 0);
		assert_int_equal(fake_guest_open_count(w->guests), 0);
		fake_guest_release(w->guests, FAKE_GUEST_CONFIGURE);
	}
	world_free(w);
}

static void test_a_destroy_before_the_first_step_wins(void **state)
{
	struct world *w = world_new(NULL);

	(void)state;
	const char *id = world_create(w, NULL);

	world_destroy(w, id);
	WORLD_UNTIL(w, world_is_state(w, id, "deleted"));
	assert_int_equal(fake_hv_calls(w->hv, FAKE_HV_START), 0);
	assert_true(world_is_clean(w, id));
	world_free(w);
}

static void test_a_destroy_while_a_failure_is_taken_back_ends_as_deleted(void **state)
{
	struct world *w = world_new(NULL);
	struct world_answer ready = {0};

	(void)state;
	fake_hv_script(w->hv, FAKE_HV_START, &(struct fake_script){.mode = FAKE_FAIL, .times = 1});
	fake_hv_script(w->hv, FAKE_HV_DESTROY, &(struct fake_script){.mode = FAKE_HOLD});
	const char *id = world_create(w, NULL);

	sandbox_wait_ready(world_find(w, id), world_on_wait, &ready);
	WORLD_UNTIL(w, fake_hv_held(w->hv, FAKE_HV_DESTROY) == 1);
	WORLD_UNTIL(w, ready.count == 1);
	assert_int_equal(ready.kind, ERR_INTERNAL);
	struct err err;
	const struct sandbox_exec_spec exec = {.command = "true"};

	assert_null(sandbox_exec(world_find(w, id), &exec, world_on_exec, NULL, &err));
	assert_int_equal(err.kind, ERR_ENDED);
	world_destroy(w, id);
	fake_hv_release(w->hv, FAKE_HV_DESTROY);
	WORLD_UNTIL(w, world_is_state(w, id, "deleted"));
	world_free(w);
}

/* Each call of the removal, each way to go wrong: it ends well all the same. */
static void test_a_removal_is_never_given_up(void **state)
{
	static const enum fake_hv_op ops[] = {FAKE_HV_DESTROY, FAKE_HV_DISK_REMOVE};
	static const struct fake_script scripts[] = {
		{.mode = FAKE_FAIL, .times = 3},
		{.mode = FAKE_EFFECT_FAIL, .times = 1},
		{.mode = FAKE_TIMEOUT, .times = 2, .delay_ms = 30},
		{.mode = FAKE_TIMEOUT, .times = 1, .delay_ms = 30, .late_ms = 100},
		{.mode = FAKE_FAIL, .kind = ERR_UNAVAILABLE, .times = 1},
	};
	struct world *w = world_new(NULL);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(ops) * ARRAY_SIZE(scripts); i++) {
		const char *id = world_running(w, NULL);

		fake_hv_script(w->hv, ops[i % ARRAY_SIZE(ops)], &scripts[i / ARRAY_SIZE(ops)]);
		world_destroy(w, id);
		WORLD_UNTIL(w, world_is_state(w, id, "deleted"));
		assert_true(world_is_clean(w, id));
		assert_int_equal(world_charged(w), 0);
	}
	world_free(w);
}

static void test_a_hypervisor_that_is_back_is_used_at_once(void **state)
{
	struct world *w = world_new(NULL);

	(void)state;
	const char *id = world_running(w, NULL);

	fake_hv_set_ready(w->hv, false);
	world_destroy(w, id);
	/* Five tries: the next one would come after 8 s. */
	WORLD_UNTIL(w, fake_hv_calls(w->hv, FAKE_HV_DESTROY) == 5);
	fake_hv_set_ready(w->hv, true);
	uint64_t before = real_ms();

	WORLD_UNTIL(w, world_is_state(w, id, "deleted"));
	assert_in_range(real_ms() - before, 0, 3500);
	world_free(w);
}

static void test_a_hanging_call_delays_nobody_else(void **state)
{
	static const enum fake_hv_op ops[] = {
		FAKE_HV_DISK_CREATE, FAKE_HV_START, FAKE_HV_DESTROY, FAKE_HV_DISK_REMOVE};
	const struct fake_script hang = {.mode = FAKE_HOLD, .times = 1};
	struct world *w = world_new(NULL);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
		struct world_answer answer;

		fake_hv_script(w->hv, ops[i], &hang);
		const char *stuck = world_create(w, NULL);

		if (i >= 2) {
			WORLD_UNTIL(w, world_is_state(w, stuck, "running"));
			world_destroy(w, stuck);
		}
		WORLD_UNTIL(w, fake_hv_held(w->hv, ops[i]) == 1);
		const char *other = world_running(w, NULL);

		world_exec(w, other, "echo fine", &answer);
		assert_string_equal(answer.out, "fine\n");
		world_destroy(w, other);
		WORLD_UNTIL(w, world_is_state(w, other, "deleted"));
		world_destroy(w, stuck);
		fake_hv_release(w->hv, ops[i]);
		WORLD_UNTIL(w, world_is_state(w, stuck, "deleted"));
	}
	world_free(w);
}

static uid_t uid_of(struct world *w, const char *id)
{
	struct err err;
	_cleanup_store_sandbox_ struct store_sandbox *row = store_sandbox_get(w->store, id, &err);

	assert_non_null(row);
	return row->uid;
}

static void test_a_uid_that_a_late_call_may_use_is_given_to_nobody(void **state)
{
	struct world *w = world_new(NULL);

	(void)state;
	fake_hv_script(w->hv, FAKE_HV_START,
		&(struct fake_script){
			.mode = FAKE_TIMEOUT, .times = 1, .delay_ms = 20, .late_ms = 200});
	const char *id = world_create(w, NULL);
	uid_t uid = uid_of(w, id);

	WORLD_UNTIL(w, world_is_state(w, id, "failed"));
	assert_int_equal(uid_of(w, id), uid);
	const char *other = world_running(w, NULL);

	assert_int_not_equal(fake_hv_find(w->hv, other)->uid, uid);
	/* The late domain runs as that uid until it is found. */
	WORLD_UNTIL(w, fake_hv_find(w->hv, id));
	WORLD_UNTIL(w, world_is_clean(w, id));
	world_reconcile(w);
	world_run(w, 50);
	assert_int_equal(uid_of(w, id), uid);

	/* Neither a restart nor a clock that is set gives it away, but time does. */
	world_stop(w);
	clock_test_advance(0, 11 * MS_PER_MINUTE);
	world_start(w);
	world_run(w, 50);
	assert_int_equal(uid_of(w, id), uid);
	clock_test_advance(11 * MS_PER_MINUTE, 0);
	world_reconcile(w);
	WORLD_UNTIL(w, uid_of(w, id) == 0);
	assert_string_equal(world_state(w, id), "failed");
	world_free(w);
}

static void test_a_uid_of_an_ordinary_end_is_free_at_once(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);

	(void)state;
	world_destroy(w, id);
	WORLD_UNTIL(w, world_is_state(w, id, "deleted"));
	assert_int_equal(uid_of(w, id), 0);
	world_free(w);
}

static void test_a_start_that_never_comes_back_can_be_destroyed(void **state)
{
	struct world *w = world_new(NULL);

	(void)state;
	fake_hv_script(w->hv, FAKE_HV_START,
		&(struct fake_script){.mode = FAKE_TIMEOUT, .times = 1, .delay_ms = 100});
	const char *id = world_create(w, NULL);

	WORLD_UNTIL(w, fake_hv_calls(w->hv, FAKE_HV_START) == 1);
	world_destroy(w, id);
	WORLD_UNTIL(w, world_is_state(w, id, "deleted"));
	assert_true(world_is_clean(w, id));
	world_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_creation_that_fails_at_any_step_leaves_nothing),
		cmocka_unit_test(test_an_internal_error_is_not_told_to_clients),
		cmocka_unit_test(test_a_guest_that_never_reports_fails_in_time),
		cmocka_unit_test(test_the_time_to_boot_bounds_the_settings_too),
		cmocka_unit_test(test_a_guest_that_stops_while_it_boots_fails_at_once),
		cmocka_unit_test(test_an_agent_that_is_lost_while_it_is_configured_may_come_back),
		cmocka_unit_test(test_a_destroy_at_any_step_of_the_creation_wins),
		cmocka_unit_test(test_a_destroy_before_the_first_step_wins),
		cmocka_unit_test(test_a_destroy_while_a_failure_is_taken_back_ends_as_deleted),
		cmocka_unit_test(test_a_removal_is_never_given_up),
		cmocka_unit_test(test_a_hypervisor_that_is_back_is_used_at_once),
		cmocka_unit_test(test_a_hanging_call_delays_nobody_else),
		cmocka_unit_test(test_a_uid_that_a_late_call_may_use_is_given_to_nobody),
		cmocka_unit_test(test_a_uid_of_an_ordinary_end_is_free_at_once),
		cmocka_unit_test(test_a_start_that_never_comes_back_can_be_destroyed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
