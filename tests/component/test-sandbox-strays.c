/* Strays: each kind, young and old, listed and removed, with the daemon's passes and without. */
#include "tests/lib/strays_world.h"

#include <stdio.h>
#include <stdlib.h>

#define STRAY "sb_00000000000000000001"
#define OTHER "sb_00000000000000000002"

/* ---- kinds ---- */

struct kind_case {
	enum stray_kind kind;
	const char *what;
	const char *id;
	void (*make)(struct world *w);
	bool (*is_there)(struct world *w);
};

static void make_domain(struct world *w)
{
	snprintf(fake_hv_add(w->hv, STRAY)->facts.account, HV_ACCOUNT_BYTES, "ac_%020d", 7);
	strays_make_dir(w, "sandboxes/" STRAY "/disk");
}

static bool has_domain(struct world *w)
{
	return fake_hv_find(w->hv, STRAY) || strays_has_path(w, "sandboxes/" STRAY);
}

static void make_disk(struct world *w)
{
	strays_make_dir(w, "sandboxes/" STRAY "/disk");
	strays_make_dir(w, "run/00000000000000000001");
}

static bool has_disk(struct world *w)
{
	return strays_has_path(w, "sandboxes/" STRAY) ||
	       strays_has_path(w, "run/00000000000000000001");
}

static void make_sockets(struct world *w)
{
	strays_make_dir(w, "run/00000000000000000001");
}

static bool has_sockets(struct world *w)
{
	return strays_has_path(w, "run/00000000000000000001");
}

static void make_process(struct world *w)
{
	fake_hv_add_residue(w->hv, HV_RESIDUE_PROCESS, STRAY, "a process", clock_wall_ms());
	strays_make_dir(w, "sandboxes/" STRAY "/disk");
}

static bool has_process(struct world *w)
{
	return fake_hv_has_residue(w->hv, "a process") || strays_has_path(w, "sandboxes/" STRAY);
}

static void make_probe(struct world *w)
{
	fake_hv_add_residue(w->hv, HV_RESIDUE_PROCESS, "", "a probe", clock_wall_ms());
}

static bool has_probe(struct world *w)
{
	return fake_hv_has_residue(w->hv, "a probe");
}

static void make_log(struct world *w)
{
	fake_hv_add_residue(w->hv, HV_RESIDUE_LOG, STRAY, "a log", clock_wall_ms());
}

static bool has_log(struct world *w)
{
	return fake_hv_has_residue(w->hv, "a log");
}

static void make_leftover(struct world *w)
{
	fake_hv_add_residue(w->hv, HV_RESIDUE_DIRECTORY, "", "a directory", clock_wall_ms());
}

static bool has_leftover(struct world *w)
{
	return fake_hv_has_residue(w->hv, "a directory");
}

static const struct kind_case kinds[] = {
	{STRAY_DOMAIN, STRAY, STRAY, make_domain, has_domain},
	{STRAY_DISK, "sandboxes/" STRAY, STRAY, make_disk, has_disk},
	{STRAY_SOCKETS, "run/00000000000000000001", STRAY, make_sockets, has_sockets},
	{STRAY_PROCESS, "a process", STRAY, make_process, has_process},
	{STRAY_PROCESS, "a probe", "", make_probe, has_probe},
	{STRAY_LOG, "a log", STRAY, make_log, has_log},
	{STRAY_LEFTOVER, "a directory", "", make_leftover, has_leftover},
};

static void test_each_kind_is_listed_when_it_is_old_enough_and_removed_when_asked(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		const struct kind_case *kind = &kinds[i];
		struct world *w = strays_world();

		world_start_only(w);
		kind->make(w);
		struct strays_found young = strays_reap(w);

		assert_int_equal(young.stray_count, 0);
		assert_int_equal(young.young, 1);
		assert_true(kind->is_there(w));

		strays_pass_grace();
		struct strays_found old = strays_look(w);
		const struct stray *stray = strays_pick(&old, kind->kind, kind->what);

		assert_int_equal(old.stray_count, 1);
		assert_int_equal(old.young, 0);
		assert_non_null(stray);
		assert_string_equal(stray->id, kind->id);
		assert_string_equal(stray->instance, "");
		assert_non_null(stray->reason);
		assert_int_equal(stray->result, STRAY_LEFT);
		assert_true(kind->is_there(w));

		struct strays_found reaped = strays_reap(w);

		assert_int_equal(reaped.stray_count, 1);
		assert_int_equal(reaped.strays[0].result, STRAY_REAPED);
		assert_false(kind->is_there(w));
		assert_int_equal(strays_reap(w).stray_count, 0);
		world_free(w);
	}
}

static void test_the_daemon_removes_each_kind_by_itself_and_not_before_its_time(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		struct world *w = world_new_stopped(NULL);

		w->config.stray_grace_ms = STRAYS_GRACE_MS;
		kinds[i].make(w);
		world_start(w);
		unsigned surveys = fake_hv_calls(w->hv, FAKE_HV_SURVEY);

		world_reconcile(w);
		WORLD_UNTIL(w, fake_hv_calls(w->hv, FAKE_HV_SURVEY) > surveys);
		world_run(w, 30);
		assert_true(kinds[i].is_there(w));
		strays_pass_grace();
		world_reconcile(w);
		WORLD_UNTIL(w, !kinds[i].is_there(w));
		world_free(w);
	}
}

static void test_the_owner_is_the_domains_or_the_records(void **state)
{
	struct world *w = strays_world();
	const char *id = strays_leave_running(w, NULL);

	(void)state;
	w->config.is_inspection = false;
	world_start(w);
	world_destroy(w, id);
	WORLD_UNTIL(w, world_is_state(w, id, "deleted"));
	world_stop(w);
	w->config.is_inspection = true;
	make_domain(w);
	fake_hv_add_residue(
		w->hv, HV_RESIDUE_LOG, id, "its log", clock_wall_ms() - 10 * STRAYS_GRACE_MS);
	world_start_only(w);
	/* It has been a stray only since its record ended. */
	assert_int_equal(strays_look(w).stray_count, 0);
	assert_int_equal(strays_look(w).young, 2);
	strays_pass_grace();
	struct strays_found found = strays_look(w);

	assert_int_equal(found.stray_count, 2);
	assert_string_equal(
		strays_pick(&found, STRAY_DOMAIN, STRAY)->account, "ac_00000000000000000007");
	assert_string_equal(strays_pick(&found, STRAY_LOG, "its log")->account, w->account);
	world_free(w);
}
/* ---- others ---- */

static void test_other_instances_are_listed_on_request_and_never_removed(void **state)
{
	struct world *w = strays_world();

	(void)state;
	fake_hv_add(w->hv, STRAY)->is_foreign = true;
	fake_hv_add(w->hv, OTHER)->is_foreign = true;
	fake_hv_find(w->hv, OTHER)->facts.expires_at_ms = 1;
	/* In our directories, but a domain uses it. */
	strays_make_dir(w, "sandboxes/" STRAY "/disk");
	strays_pass_grace();
	world_start_only(w);
	assert_int_equal(strays_look(w).stray_count, 0);
	struct strays_found found = strays_ask(
		w, &(struct strays_request){
			   .is_reap = true, .wants_others = true, .ready_ms = WORLD_PATIENCE_MS});

	assert_int_equal(found.stray_count, 2);
	for (size_t i = 0; i < found.stray_count; i++) {
		assert_string_equal(found.strays[i].instance, FAKE_OTHER_INSTANCE);
		assert_int_equal(found.strays[i].result, STRAY_LEFT);
	}
	assert_string_equal(strays_pick(&found, STRAY_DOMAIN, OTHER)->reason,
		"of another instance, and expired");
	assert_int_equal(fake_hv_count(w->hv), 2);
	assert_true(strays_has_path(w, "sandboxes/" STRAY));
	world_free(w);
}

/* ---- failures ---- */

static void test_one_that_resists_is_told_and_the_rest_go(void **state)
{
	struct world *w = strays_world();

	(void)state;
	make_domain(w);
	make_log(w);
	make_leftover(w);
	strays_pass_grace();
	fake_hv_script(w->hv, FAKE_HV_DESTROY,
		&(struct fake_script){.mode = FAKE_FAIL, .kind = ERR_TIMEOUT, .times = 1});
	world_start_only(w);
	struct strays_found found = strays_reap(w);

	/* The log is its domain's. */
	assert_int_equal(found.stray_count, 2);
	assert_int_equal(strays_pick(&found, STRAY_DOMAIN, STRAY)->result, STRAY_FAILED);
	assert_int_equal(strays_pick(&found, STRAY_DOMAIN, STRAY)->err.kind, ERR_TIMEOUT);
	/* The files of what still runs stay. */
	assert_true(strays_has_path(w, "sandboxes/" STRAY));
	assert_false(has_leftover(w));
	found = strays_reap(w);
	assert_int_equal(strays_pick(&found, STRAY_DOMAIN, STRAY)->result, STRAY_REAPED);
	assert_false(has_domain(w));
	world_free(w);
}

static void test_many_are_removed_with_one_call(void **state)
{
	struct world *w = strays_world();

	(void)state;
	for (unsigned i = 0; i < 20; i++) {
		char name[32];

		snprintf(name, sizeof name, "directory %u", i);
		fake_hv_add_residue(w->hv, HV_RESIDUE_DIRECTORY, "", name, 1);
	}
	world_start_only(w);
	assert_int_equal(strays_reap(w).stray_count, 20);
	assert_int_equal(strays_look(w).stray_count, 0);
	world_free(w);
}

static void test_failing_surveys_and_an_absent_hypervisor_are_errors(void **state)
{
	struct world *w = strays_world();
	struct strays_found found;

	(void)state;
	fake_hv_set_ready(w->hv, false);
	world_start_only(w);
	found = strays_ask(w, &(struct strays_request){0});
	assert_int_equal(found.kind, ERR_UNAVAILABLE);
	found = strays_ask(w, &(struct strays_request){.ready_ms = 50});
	assert_int_equal(found.kind, ERR_UNAVAILABLE);
	found = (struct strays_found){0};
	struct err err;

	assert_non_null(strays_find(w->all, &(struct strays_request){.ready_ms = WORLD_PATIENCE_MS},
		strays_on_found, &found, &err));
	world_run(w, 20);
	fake_hv_set_ready(w->hv, true);
	WORLD_UNTIL(w, found.count == 1);
	assert_int_equal(found.kind, ERR_NONE);
	fake_hv_script(w->hv, FAKE_HV_SURVEY,
		&(struct fake_script){.mode = FAKE_FAIL, .kind = ERR_TIMEOUT, .times = 1});
	found = strays_ask(w, &(struct strays_request){0});
	assert_int_equal(found.kind, ERR_TIMEOUT);
	world_free(w);
}

static void test_callers_may_go_and_are_not_without_number(void **state)
{
	struct world *w = strays_world();
	struct strays_found found = {0};
	struct strays_call *calls[9];
	const struct strays_request request = {.is_reap = true};
	struct err err;

	(void)state;
	make_domain(w);
	strays_pass_grace();
	world_start_only(w);
	WORLD_UNTIL(w, strays_look(w).stray_count == 1);
	fake_hv_script(w->hv, FAKE_HV_SURVEY, &(struct fake_script){.mode = FAKE_HOLD, .times = 1});
	for (size_t i = 0; i < 8; i++) {
		calls[i] = strays_find(w->all, &request, strays_on_found, &found, &err);
		assert_non_null(calls[i]);
	}
	calls[8] = strays_find(w->all, &request, strays_on_found, &found, &err);
	assert_null(calls[8]);
	assert_int_equal(err.kind, ERR_RATE);
	WORLD_UNTIL(w, fake_hv_held(w->hv, FAKE_HV_SURVEY) == 1);
	for (size_t i = 0; i < 7; i++) {
		strays_abandon(calls[i]);
	}
	fake_hv_release(w->hv, FAKE_HV_SURVEY);
	WORLD_UNTIL(w, found.count == 1);
	assert_int_equal(found.stray_count, 1);
	/* The end of everything answers who waits. */
	fake_hv_script(w->hv, FAKE_HV_SURVEY, &(struct fake_script){.mode = FAKE_HOLD, .times = 1});
	assert_non_null(strays_find(w->all, &request, strays_on_found, &found, &err));
	WORLD_UNTIL(w, fake_hv_held(w->hv, FAKE_HV_SURVEY) == 1);
	world_stop(w);
	assert_int_equal(found.count, 2);
	assert_int_equal(found.kind, ERR_CANCELLED);
	world_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			test_each_kind_is_listed_when_it_is_old_enough_and_removed_when_asked),
		cmocka_unit_test(
			test_the_daemon_removes_each_kind_by_itself_and_not_before_its_time),
		cmocka_unit_test(test_the_owner_is_the_domains_or_the_records),
		cmocka_unit_test(test_other_instances_are_listed_on_request_and_never_removed),
		cmocka_unit_test(test_one_that_resists_is_told_and_the_rest_go),
		cmocka_unit_test(test_many_are_removed_with_one_call),
		cmocka_unit_test(test_failing_surveys_and_an_absent_hypervisor_are_errors),
		cmocka_unit_test(test_callers_may_go_and_are_not_without_number),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
