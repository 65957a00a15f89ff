/* Strays beside live records: what is one, what isn't, and what is ended or finished instead. */
#include "tests/lib/strays_world.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/xalloc.h"

static void test_a_live_sandbox_is_no_stray(void **state)
{
	struct world *w = strays_world();
	const char *id = strays_leave_running(w, NULL);

	(void)state;
	strays_pass_grace();
	fake_hv_add_residue(w->hv, HV_RESIDUE_LOG, id, "its log", 1);
	fake_hv_add_residue(w->hv, HV_RESIDUE_PROCESS, id, "its process", 1);
	world_start_only(w);
	assert_int_equal(strays_reap(w).stray_count, 0);
	assert_string_equal(world_state(w, id), "running");
	assert_non_null(fake_hv_find(w->hv, id));
	world_stop(w);
	w->config.is_inspection = false;
	world_start(w);
	struct world_answer answer;

	WORLD_UNTIL(w, fake_guest_settings(w->guests, id)->times == 2);
	world_exec(w, id, "true", &answer);
	assert_int_equal(answer.kind, ERR_NONE);
	world_free(w);
}

static void test_an_expired_one_is_listed_and_removed_as_a_whole(void **state)
{
	struct world *w = strays_world();
	const char *id = strays_leave_running(w, NULL);

	(void)state;
	clock_test_advance(0, 15 * MS_PER_MINUTE + STRAYS_GRACE_MS);
	world_start_only(w);
	struct strays_found found = strays_look(w);

	assert_int_equal(found.stray_count, 1);
	assert_int_equal(found.strays[0].kind, STRAY_DOMAIN);
	assert_string_equal(found.strays[0].id, id);
	assert_string_equal(found.strays[0].account, w->account);
	assert_string_equal(world_state(w, id), "running");
	assert_int_equal(strays_reap(w).strays[0].result, STRAY_REAPED);
	assert_string_equal(world_state(w, id), "deleted");
	assert_string_equal(world_reason(w, id), "expired");
	assert_true(world_is_clean(w, id));
	world_free(w);
}

static void test_a_record_without_its_domain_is_ended(void **state)
{
	struct world *w = strays_world();
	const char *temporary = strays_leave_running(w, NULL);
	struct sandbox_create_spec spec = world_spec(w, "keep");

	(void)state;
	spec.is_temporary = false;
	const char *permanent = strays_leave_running(w, &spec);

	fake_hv_stop_domain(w->hv, temporary, false);
	fake_hv_stop_domain(w->hv, permanent, false);
	strays_pass_grace();
	world_start_only(w);
	struct strays_found found = strays_look(w);

	assert_int_equal(found.stray_count, 2);
	assert_non_null(strays_pick(&found, STRAY_RECORD, temporary));
	assert_non_null(strays_pick(&found, STRAY_RECORD, permanent));
	assert_string_equal(world_state(w, temporary), "running");
	found = strays_reap(w);
	assert_int_equal(found.strays[0].result, STRAY_REAPED);
	assert_int_equal(found.strays[1].result, STRAY_REAPED);
	assert_string_equal(world_state(w, temporary), "deleted");
	assert_true(world_is_clean(w, temporary));
	/* A permanent one keeps its disk. */
	assert_string_equal(world_state(w, permanent), "stopped");
	assert_false(world_is_clean(w, permanent));
	assert_int_equal(strays_reap(w).stray_count, 0);
	world_free(w);
}

static void test_a_stopped_one_has_no_process_and_keeps_its_files(void **state)
{
	struct world *w = strays_world();
	struct sandbox_create_spec spec = world_spec(w, "keep");
	_cleanup_free_ char *home = NULL;

	(void)state;
	spec.is_temporary = false;
	const char *id = strays_leave_running(w, &spec);

	home = xasprintf("sandboxes/%s", id);
	fake_hv_stop_domain(w->hv, id, false);
	strays_pass_grace();
	world_start_only(w);
	strays_reap(w);
	assert_string_equal(world_state(w, id), "stopped");
	fake_hv_add_residue(w->hv, HV_RESIDUE_PROCESS, id, "its process", 1);
	fake_hv_add_residue(w->hv, HV_RESIDUE_LOG, id, "its log", 1);
	struct strays_found found = strays_reap(w);

	assert_int_equal(found.stray_count, 1);
	assert_int_equal(found.strays[0].kind, STRAY_PROCESS);
	assert_false(fake_hv_has_residue(w->hv, "its process"));
	assert_true(fake_hv_has_residue(w->hv, "its log"));
	assert_true(strays_has_path(w, home));
	world_free(w);
}

static void test_interrupted_creations_and_removals_are_finished(void **state)
{
	static const enum fake_hv_op ops[] = {FAKE_HV_START, FAKE_HV_DESTROY};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
		struct world *w = strays_world();

		w->config.is_inspection = false;
		world_start(w);
		fake_hv_script(w->hv, ops[i], &(struct fake_script){.mode = FAKE_HOLD, .times = 1});
		const char *id = world_create(w, NULL);

		if (ops[i] == FAKE_HV_DESTROY) {
			WORLD_UNTIL(w, world_is_state(w, id, "running"));
			world_destroy(w, id);
		}
		WORLD_UNTIL(w, fake_hv_held(w->hv, ops[i]) == 1);
		world_stop(w);
		w->config.is_inspection = true;
		strays_pass_grace();
		world_start_only(w);
		struct strays_found found = strays_reap(w);

		assert_int_equal(found.stray_count, 1);
		assert_int_equal(found.strays[0].kind, STRAY_RECORD);
		assert_int_equal(found.strays[0].result, STRAY_REAPED);
		assert_string_equal(
			world_state(w, id), ops[i] == FAKE_HV_START ? "failed" : "deleted");
		assert_true(world_is_clean(w, id));
		world_free(w);
	}
}

static void test_with_a_daemon_what_is_worked_on_is_left_alone(void **state)
{
	struct world *w = world_new_stopped(NULL);

	(void)state;
	w->config.stray_grace_ms = 1;
	world_start(w);
	fake_hv_script(w->hv, FAKE_HV_START, &(struct fake_script){.mode = FAKE_HOLD, .times = 1});
	const char *starting = world_create(w, NULL);

	WORLD_UNTIL(w, fake_hv_held(w->hv, FAKE_HV_START) == 1);
	strays_pass_grace();
	assert_int_equal(strays_reap(w).stray_count, 0);
	assert_string_equal(world_state(w, starting), "provisioning");
	/* A survey from before it ran says that it has no domain. */
	fake_hv_script(w->hv, FAKE_HV_SURVEY, &(struct fake_script){.mode = FAKE_HOLD, .times = 1});
	struct strays_found found = {0};
	struct err err;

	assert_non_null(strays_find(
		w->all, &(struct strays_request){.is_reap = true}, strays_on_found, &found, &err));
	WORLD_UNTIL(w, fake_hv_held(w->hv, FAKE_HV_SURVEY) == 1);
	fake_hv_release(w->hv, FAKE_HV_START);
	WORLD_UNTIL(w, world_is_state(w, starting, "running"));
	fake_hv_release(w->hv, FAKE_HV_SURVEY);
	WORLD_UNTIL(w, found.count == 1);
	assert_int_equal(found.stray_count, 0);
	assert_string_equal(world_state(w, starting), "running");
	world_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_live_sandbox_is_no_stray),
		cmocka_unit_test(test_an_expired_one_is_listed_and_removed_as_a_whole),
		cmocka_unit_test(test_a_record_without_its_domain_is_ended),
		cmocka_unit_test(test_a_stopped_one_has_no_process_and_keeps_its_files),
		cmocka_unit_test(test_interrupted_creations_and_removals_are_finished),
		cmocka_unit_test(test_with_a_daemon_what_is_worked_on_is_left_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
