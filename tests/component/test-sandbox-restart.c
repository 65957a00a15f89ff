/* Reconciliation: rows, domains and files after a daemon went away, and while it runs. */
#include "tests/lib/world.h"

#include <stdio.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/xalloc.h"

#define STRAY "sb_00000000000000000001"

static void make_dir(struct world *w, const char *below_state_dir)
{
	char *path = xasprintf("%s/%s", w->dir, below_state_dir);
	struct err err;

	assert_ok(fs_mkdir_parents(path, 0700, &err), &err);
	free(path);
}

static bool has_file(struct world *w, const char *below_state_dir)
{
	char *path = xasprintf("%s/%s", w->dir, below_state_dir);
	bool is_there = access(path, F_OK) == 0;

	free(path);
	return is_there;
}

static void test_running_sandboxes_are_attached_again(void **state)
{
	struct world *w = world_new(NULL);
	const char *a = world_running(w, "alpha");
	const char *b = world_running(w, NULL);
	struct world_answer answer;
	struct err err;

	(void)state;
	unsigned told = fake_guest_settings(w->guests, a)->times;

	world_stop(w);
	assert_int_equal(fake_guest_open_count(w->guests), 0);
	assert_int_equal(fake_hv_count(w->hv), 2);
	world_start_only(w);
	assert_false(sandboxes_is_ready(w->all, &err));
	WORLD_UNTIL(w, sandboxes_is_ready(w->all, &err));
	assert_int_equal(world_charged(w), 2);
	assert_non_null(sandbox_find(w->all, w->account, "alpha"));
	/* Deadline, clock and the rest are told again. */
	WORLD_UNTIL(w, fake_guest_settings(w->guests, a)->times == told + 1);
	world_exec(w, a, "echo still here", &answer);
	assert_string_equal(answer.out, "still here\n");
	WORLD_UNTIL(w, fake_guest_settings(w->guests, b)->times == 2);
	world_exec(w, b, "true", &answer);
	assert_int_equal(answer.kind, ERR_NONE);
	world_destroy(w, a);
	world_destroy(w, b);
	WORLD_UNTIL(w, sandboxes_count(w->all) == 0);
	assert_true(world_is_clean(w, a) && world_is_clean(w, b));
	world_free(w);
}

static void test_of_three_one_expired_meanwhile(void **state)
{
	struct world *w = world_new(NULL);
	struct sandbox_create_spec spec = world_spec(w, NULL);
	struct world_answer answer;

	(void)state;
	spec.timeout_minutes = 60;
	const char *a = world_create_spec(w, &spec);
	const char *b = world_create_spec(w, &spec);

	WORLD_UNTIL(w, world_is_state(w, a, "running") && world_is_state(w, b, "running"));
	const char *due = world_running(w, NULL);

	world_stop(w);
	clock_test_advance(0, 20 * MS_PER_MINUTE);
	world_start(w);
	WORLD_UNTIL(w, world_is_state(w, due, "deleted"));
	assert_string_equal(world_reason(w, due), "expired");
	assert_true(world_is_clean(w, due));
	assert_int_equal(fake_hv_count(w->hv), 2);
	WORLD_UNTIL(w, fake_guest_settings(w->guests, a)->times == 2 &&
			       fake_guest_settings(w->guests, b)->times == 2);
	world_exec(w, a, "true", &answer);
	assert_int_equal(answer.kind, ERR_NONE);
	world_exec(w, b, "true", &answer);
	assert_int_equal(answer.kind, ERR_NONE);
	world_free(w);
}

static void test_one_whose_guest_ended_by_the_deadline_meanwhile_has_expired(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);

	(void)state;
	world_stop(w);
	clock_test_advance(0, 20 * MS_PER_MINUTE);
	fake_hv_stop_domain(w->hv, id, false);
	world_start(w);
	WORLD_UNTIL(w, world_is_state(w, id, "deleted"));
	assert_string_equal(world_reason(w, id), "expired");
	assert_true(world_is_clean(w, id));
	world_free(w);
}

static void test_one_whose_domain_is_gone_is_lost(void **state)
{
	struct world *w = world_new(NULL);
	struct sandbox_create_spec spec = world_spec(w, "keep");

	(void)state;
	spec.is_temporary = false;
	const char *permanent = world_create_spec(w, &spec);
	const char *temporary = world_running(w, NULL);

	WORLD_UNTIL(w, world_is_state(w, permanent, "running"));
	world_stop(w);
	fake_hv_stop_domain(w->hv, permanent, false);
	fake_hv_stop_domain(w->hv, temporary, false);
	world_start(w);
	WORLD_UNTIL(w, world_is_state(w, temporary, "deleted"));
	assert_string_equal(world_reason(w, temporary), "lost");
	assert_true(world_is_clean(w, temporary));
	assert_string_equal(world_state(w, permanent), "stopped");
	assert_string_equal(world_reason(w, permanent), "lost");
	assert_false(world_is_clean(w, permanent));

	/* A stopped one stays as it is over the next restart. */
	world_stop(w);
	world_start(w);
	assert_string_equal(world_state(w, permanent), "stopped");
	assert_int_equal(world_charged(w), 1);
	world_free(w);
}

/* The daemon dies while each call of a creation is under way. */
static void test_interrupted_creations_are_taken_back(void **state)
{
	static const enum fake_hv_op ops[] = {FAKE_HV_DISK_CREATE, FAKE_HV_START, FAKE_HV_OP_MAX};
	struct world *w = world_new(NULL);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
		if (ops[i] == FAKE_HV_OP_MAX) {
			fake_guest_set_hello_delay(w->guests, -1);
		} else {
			fake_hv_script(w->hv, ops[i],
				&(struct fake_script){.mode = FAKE_HOLD, .times = 1});
		}
		const char *id = world_create(w, "alpha");

		WORLD_UNTIL(w, ops[i] == FAKE_HV_OP_MAX ? fake_guest_open_count(w->guests) == 1
							: fake_hv_held(w->hv, ops[i]) == 1);
		world_stop(w);
		fake_guest_set_hello_delay(w->guests, 0);
		assert_int_equal(fake_hv_count(w->hv), ops[i] == FAKE_HV_OP_MAX);
		world_start(w);
		WORLD_UNTIL(w, world_is_state(w, id, "failed"));
		assert_string_equal(world_reason(w, id), "interrupted");
		assert_true(world_is_clean(w, id));
		assert_int_equal(world_charged(w), 0);
	}
	world_free(w);
}

static void test_interrupted_removals_are_finished(void **state)
{
	static const enum fake_hv_op ops[] = {FAKE_HV_DESTROY, FAKE_HV_DISK_REMOVE};
	struct world *w = world_new(NULL);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
		const char *id = world_running(w, NULL);

		fake_hv_script(w->hv, ops[i], &(struct fake_script){.mode = FAKE_HOLD, .times = 1});
		sandbox_destroy(world_find(w, id), "expired");
		WORLD_UNTIL(w, fake_hv_held(w->hv, ops[i]) == 1);
		world_stop(w);
		world_start(w);
		WORLD_UNTIL(w, world_is_state(w, id, "deleted"));
		assert_string_equal(world_reason(w, id), "expired");
		assert_true(world_is_clean(w, id));
		assert_int_equal(world_charged(w), 0);
	}
	world_free(w);
}

static void test_a_destroy_of_what_is_not_judged_yet_is_kept(void **state)
{
	struct world *w = world_new(NULL);
	const char *running = world_running(w, NULL);

	(void)state;
	fake_hv_script(
		w->hv, FAKE_HV_DESTROY, &(struct fake_script){.mode = FAKE_HOLD, .times = 1});
	const char *deleting = world_running(w, NULL);

	world_destroy(w, deleting);
	WORLD_UNTIL(w, fake_hv_held(w->hv, FAKE_HV_DESTROY) == 1);
	world_stop(w);
	fake_hv_set_ready(w->hv, false);
	world_start_only(w);
	world_destroy(w, running);
	world_destroy(w, deleting);
	world_run(w, 50);
	fake_hv_set_ready(w->hv, true);
	WORLD_UNTIL(w, sandboxes_count(w->all) == 0);
	assert_string_equal(world_state(w, running), "deleted");
	assert_string_equal(world_state(w, deleting), "deleted");
	assert_true(world_is_clean(w, running) && world_is_clean(w, deleting));
	world_free(w);
}

static void test_domains_and_files_without_a_row_are_removed(void **state)
{
	struct world *w = world_new_stopped(NULL);

	(void)state;
	make_dir(w, "sandboxes/" STRAY "/disk");
	make_dir(w, "run/00000000000000000002");
	make_dir(w, "run/not-ours");
	fake_hv_add(w->hv, STRAY);
	fake_hv_add(w->hv, "sb_00000000000000000003")->is_foreign = true;
	world_start(w);
	WORLD_UNTIL(w, !fake_hv_find(w->hv, STRAY) && !has_file(w, "sandboxes/" STRAY) &&
			       !has_file(w, "run/00000000000000000002"));
	/* Another instance's domain and foreign files stay. */
	assert_non_null(fake_hv_find(w->hv, "sb_00000000000000000003"));
	assert_true(has_file(w, "run/not-ours"));
	world_free(w);
}

static void test_the_domain_of_an_ended_row_is_removed(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);

	(void)state;
	world_destroy(w, id);
	WORLD_UNTIL(w, world_is_state(w, id, "deleted"));
	fake_hv_add(w->hv, id);
	world_reconcile(w);
	WORLD_UNTIL(w, !fake_hv_find(w->hv, id));
	assert_string_equal(world_state(w, id), "deleted");
	world_free(w);
}

static void test_a_stray_that_resists_is_tried_again(void **state)
{
	struct world *w = world_new_stopped(NULL);

	(void)state;
	make_dir(w, "sandboxes/" STRAY);
	fake_hv_add(w->hv, STRAY);
	fake_hv_script(
		w->hv, FAKE_HV_DESTROY, &(struct fake_script){.mode = FAKE_FAIL, .times = 2});
	world_start(w);
	WORLD_UNTIL(w, fake_hv_calls(w->hv, FAKE_HV_DESTROY) == 1);
	/* Files of a domain that is still there are left alone. */
	world_run(w, 30);
	assert_true(has_file(w, "sandboxes/" STRAY));
	world_reconcile(w);
	WORLD_UNTIL(w, fake_hv_calls(w->hv, FAKE_HV_DESTROY) == 2);
	world_run(w, 30);
	world_reconcile(w);
	WORLD_UNTIL(w, !fake_hv_find(w->hv, STRAY) && !has_file(w, "sandboxes/" STRAY));
	world_free(w);
}

static void test_what_can_not_be_told_yet_is_waited_for(void **state)
{
	struct world *w = world_new(NULL);
	const char *running = world_running(w, NULL);
	const char *dying = world_running(w, NULL);
	struct err err;

	(void)state;
	world_stop(w);
	fake_hv_find(w->hv, running)->facts.state = HV_DOMAIN_UNSETTLED;
	fake_hv_find(w->hv, dying)->facts.state = HV_DOMAIN_UNSETTLED;
	fake_hv_add(w->hv, STRAY)->facts.state = HV_DOMAIN_UNSETTLED;
	world_start_only(w);
	world_run(w, 500);
	assert_false(sandboxes_is_ready(w->all, &err));
	assert_string_equal(world_state(w, running), "running");
	assert_int_equal(fake_hv_calls(w->hv, FAKE_HV_DESTROY), 0);
	fake_hv_find(w->hv, running)->facts.state = HV_DOMAIN_RUNNING;
	fake_hv_find(w->hv, dying)->facts.state = HV_DOMAIN_SHUTOFF;
	fake_hv_find(w->hv, STRAY)->facts.state = HV_DOMAIN_RUNNING;
	WORLD_UNTIL(w, sandboxes_is_ready(w->all, &err));
	WORLD_UNTIL(w, world_is_state(w, dying, "deleted") && !fake_hv_find(w->hv, STRAY));
	assert_string_equal(world_reason(w, dying), "lost");
	assert_string_equal(world_state(w, running), "running");
	world_free(w);
}

static void test_what_never_settles_does_not_hold_up_the_service_for_ever(void **state)
{
	struct world *w = world_new_stopped(NULL);
	struct err err;

	(void)state;
	fake_hv_add(w->hv, STRAY)->facts.state = HV_DOMAIN_UNSETTLED;
	world_start_only(w);
	WORLD_UNTIL(w, fake_hv_calls(w->hv, FAKE_HV_LIST) >= 2);
	assert_false(sandboxes_is_ready(w->all, &err));
	clock_test_advance(60000, 60000);
	WORLD_UNTIL(w, sandboxes_is_ready(w->all, &err));
	assert_non_null(fake_hv_find(w->hv, STRAY));
	world_free(w);
}

static void test_a_list_that_fails_is_asked_for_again(void **state)
{
	struct world *w = world_new_stopped(NULL);

	(void)state;
	fake_hv_script(w->hv, FAKE_HV_LIST,
		&(struct fake_script){.mode = FAKE_TIMEOUT, .times = 1, .delay_ms = 10});
	world_start(w);
	assert_int_equal(fake_hv_calls(w->hv, FAKE_HV_LIST), 2);
	world_free(w);
}

static void test_a_paused_domain_is_resumed(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);

	(void)state;
	fake_hv_find(w->hv, id)->facts.state = HV_DOMAIN_PAUSED;
	fake_hv_script(w->hv, FAKE_HV_RESUME, &(struct fake_script){.mode = FAKE_FAIL, .times = 1});
	world_reconcile(w);
	WORLD_UNTIL(w, fake_hv_calls(w->hv, FAKE_HV_RESUME) == 1);
	world_run(w, 20);
	assert_int_equal(fake_hv_find(w->hv, id)->facts.state, HV_DOMAIN_PAUSED);
	/* By itself, and without an event: the list tells. */
	WORLD_UNTIL(w, fake_hv_find(w->hv, id)->facts.state == HV_DOMAIN_RUNNING);
	world_reconcile(w);
	WORLD_UNTIL(w, !sandbox_row(world_find(w, id))->reason);
	assert_string_equal(world_state(w, id), "running");
	assert_int_equal(fake_hv_calls(w->hv, FAKE_HV_RESUME), 2);
	world_free(w);
}

static void test_what_is_paused_says_so_and_goes_on_by_itself(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);
	struct world_answer answer;
	struct err err;

	(void)state;
	fake_hv_find(w->hv, id)->facts.state = HV_DOMAIN_PAUSED;
	fake_hv_tell(w->hv, id, HV_EVENT_PAUSED);
	fake_hv_tell(w->hv, id, HV_EVENT_PAUSED);
	assert_non_null(strstr(sandbox_row(world_find(w, id))->reason, "paused"));
	assert_null(sandbox_exec(world_find(w, id), &(struct sandbox_exec_spec){.command = "true"},
		NULL, NULL, &err));
	assert_int_equal(err.kind, ERR_UNAVAILABLE);
	assert_non_null(strstr(err.msg, "paused"));
	/* There is no room yet: it goes, and stands again at once. That is the same pause. */
	WORLD_UNTIL(w, fake_hv_find(w->hv, id)->facts.state == HV_DOMAIN_RUNNING);
	fake_hv_find(w->hv, id)->facts.state = HV_DOMAIN_PAUSED;
	fake_hv_tell(w->hv, id, HV_EVENT_PAUSED);
	assert_non_null(strstr(sandbox_row(world_find(w, id))->reason, "paused"));
	WORLD_UNTIL(w, fake_hv_calls(w->hv, FAKE_HV_RESUME) == 2);
	WORLD_UNTIL(w, !sandbox_row(world_find(w, id))->reason);
	world_exec(w, id, "echo here", &answer);
	assert_int_equal(answer.kind, ERR_NONE);
	world_run(w, 700);
	assert_int_equal(fake_hv_calls(w->hv, FAKE_HV_RESUME), 2);
	world_free(w);
}

static void test_one_that_is_paused_can_be_restarted_and_removed(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);
	struct err err;

	(void)state;
	fake_hv_tell(w->hv, id, HV_EVENT_PAUSED);
	assert_int_equal(sandbox_restart(world_find(w, id), &err), 0);
	WORLD_UNTIL(w, world_is_state(w, id, "running"));
	assert_null(sandbox_row(world_find(w, id))->reason);
	fake_hv_tell(w->hv, id, HV_EVENT_PAUSED);
	world_destroy(w, id);
	WORLD_UNTIL(w, world_is_state(w, id, "deleted"));
	world_run(w, 700);
	assert_int_equal(fake_hv_calls(w->hv, FAKE_HV_RESUME), 0);
	world_free(w);
}

static void test_a_list_from_before_a_start_condemns_nobody(void **state)
{
	struct world *w = world_new(NULL);
	const char *other = world_running(w, NULL);

	(void)state;
	/* The answer says what there was when it was asked for: no domain of `id`. */
	fake_hv_script(w->hv, FAKE_HV_LIST, &(struct fake_script){.mode = FAKE_HOLD});
	world_reconcile(w);
	WORLD_UNTIL(w, fake_hv_held(w->hv, FAKE_HV_LIST) == 1);
	const char *id = world_running(w, NULL);

	fake_hv_release(w->hv, FAKE_HV_LIST);
	world_run(w, 50);
	assert_string_equal(world_state(w, id), "running");
	assert_string_equal(world_state(w, other), "running");
	world_free(w);
}

static void test_a_domain_that_vanishes_unnoticed_is_found(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);

	(void)state;
	fake_hv_stop_domain(w->hv, id, false);
	world_reconcile(w);
	WORLD_UNTIL(w, world_is_state(w, id, "deleted"));
	assert_string_equal(world_reason(w, id), "lost");
	assert_true(world_is_clean(w, id));
	world_free(w);
}

static void test_events_for_what_is_unknown_or_ending_are_fine(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);

	(void)state;
	fake_hv_tell(w->hv, STRAY, HV_EVENT_STOPPED);
	fake_hv_tell(w->hv, id, HV_EVENT_PAUSED);
	fake_hv_tell(w->hv, id, HV_EVENT_RESUMED);
	assert_string_equal(world_state(w, id), "running");
	world_destroy(w, id);
	fake_hv_tell(w->hv, id, HV_EVENT_STOPPED);
	WORLD_UNTIL(w, world_is_state(w, id, "deleted"));
	fake_hv_tell(w->hv, id, HV_EVENT_STOPPED);
	assert_string_equal(world_reason(w, id), "deleted");
	world_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_running_sandboxes_are_attached_again),
		cmocka_unit_test(test_of_three_one_expired_meanwhile),
		cmocka_unit_test(test_one_whose_guest_ended_by_the_deadline_meanwhile_has_expired),
		cmocka_unit_test(test_one_whose_domain_is_gone_is_lost),
		cmocka_unit_test(test_interrupted_creations_are_taken_back),
		cmocka_unit_test(test_interrupted_removals_are_finished),
		cmocka_unit_test(test_a_destroy_of_what_is_not_judged_yet_is_kept),
		cmocka_unit_test(test_domains_and_files_without_a_row_are_removed),
		cmocka_unit_test(test_the_domain_of_an_ended_row_is_removed),
		cmocka_unit_test(test_a_stray_that_resists_is_tried_again),
		cmocka_unit_test(test_what_can_not_be_told_yet_is_waited_for),
		cmocka_unit_test(test_what_never_settles_does_not_hold_up_the_service_for_ever),
		cmocka_unit_test(test_a_list_that_fails_is_asked_for_again),
		cmocka_unit_test(test_a_paused_domain_is_resumed),
		cmocka_unit_test(test_what_is_paused_says_so_and_goes_on_by_itself),
		cmocka_unit_test(test_one_that_is_paused_can_be_restarted_and_removed),
		cmocka_unit_test(test_a_list_from_before_a_start_condemns_nobody),
		cmocka_unit_test(test_a_domain_that_vanishes_unnoticed_is_found),
		cmocka_unit_test(test_events_for_what_is_unknown_or_ending_are_fine),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
