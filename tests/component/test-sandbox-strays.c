/* Strays: each kind, young and old, listed and removed, with the daemon's passes and without. */
#include "tests/lib/world.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/xalloc.h"
#include "sandbox/strays.h"

#define GRACE_MS 60000
#define STRAY    "sb_00000000000000000001"
#define OTHER    "sb_00000000000000000002"

/* ---- asking ---- */

struct found {
	unsigned count; /* of answers */
	enum err_kind kind;
	struct stray strays[32];
	size_t stray_count;
	size_t young;
};

static void on_found(void *arg, const struct strays_report *report, const struct err *err)
{
	struct found *found = arg;

	found->count++;
	found->kind = err ? err->kind : ERR_NONE;
	if (report) {
		assert_true(report->count <= ARRAY_SIZE(found->strays));
		memcpy(found->strays, report->strays, report->count * sizeof *report->strays);
		found->stray_count = report->count;
		found->young = report->young;
	}
}

static struct found ask(struct world *w, const struct strays_request *request)
{
	struct found found = {0};
	struct err err;

	assert_non_null(strays_find(w->all, request, on_found, &found, &err));
	assert_int_equal(found.count, 0);
	WORLD_UNTIL(w, found.count > 0);
	assert_int_equal(found.count, 1);
	return found;
}

static struct found look(struct world *w)
{
	struct found found = ask(w, &(struct strays_request){.ready_ms = WORLD_PATIENCE_MS});

	assert_int_equal(found.kind, ERR_NONE);
	return found;
}

static struct found reap(struct world *w)
{
	struct found found = ask(
		w, &(struct strays_request){.is_reap = true, .ready_ms = WORLD_PATIENCE_MS});

	assert_int_equal(found.kind, ERR_NONE);
	return found;
}

static const struct stray *pick_stray(
	const struct found *found, enum stray_kind kind, const char *what)
{
	for (size_t i = 0; i < found->stray_count; i++) {
		if (found->strays[i].kind == kind && strcmp(found->strays[i].what, what) == 0) {
			return &found->strays[i];
		}
	}
	return NULL;
}

/* ---- making ---- */

static char *path_in(struct world *w, const char *name)
{
	return xasprintf("%s/%s", w->dir, name);
}

/* As new by the clock of the test, which isn't the file system's. */
static void make_dir(struct world *w, const char *name)
{
	_cleanup_free_ char *path = path_in(w, name);
	int64_t now = clock_wall_ms();
	const struct timespec times[] = {
		{.tv_nsec = UTIME_OMIT}, {.tv_sec = now / 1000, .tv_nsec = now % 1000 * 1000000}};
	struct err err;

	assert_ok(fs_mkdir_parents(path, 0700, &err), &err);
	while (strlen(path) > strlen(w->dir)) {
		assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
		*strrchr(path, '/') = '\0';
	}
}

static bool has_path(struct world *w, const char *name)
{
	_cleanup_free_ char *path = path_in(w, name);

	return access(path, F_OK) == 0;
}

/* Nothing happens by itself in it, as in paddockd --strays. */
static struct world *inspection(void)
{
	struct world *w = world_new_stopped(NULL);

	w->config.stray_grace_ms = GRACE_MS;
	w->config.is_inspection = true;
	return w;
}

static void pass_grace(void)
{
	clock_test_advance(GRACE_MS, GRACE_MS);
}

/* What a daemon left: a sandbox that runs, and then nobody. */
static const char *leave_running(struct world *w, const struct sandbox_create_spec *spec)
{
	w->config.is_inspection = false;
	world_start(w);
	const char *id = spec ? world_create_spec(w, spec) : world_create(w, NULL);

	WORLD_UNTIL(w, world_is_state(w, id, "running"));
	world_stop(w);
	w->config.is_inspection = true;
	return id;
}

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
	make_dir(w, "sandboxes/" STRAY "/disk");
}

static bool has_domain(struct world *w)
{
	return fake_hv_find(w->hv, STRAY) || has_path(w, "sandboxes/" STRAY);
}

static void make_disk(struct world *w)
{
	make_dir(w, "sandboxes/" STRAY "/disk");
	make_dir(w, "run/00000000000000000001");
}

static bool has_disk(struct world *w)
{
	return has_path(w, "sandboxes/" STRAY) || has_path(w, "run/00000000000000000001");
}

static void make_sockets(struct world *w)
{
	make_dir(w, "run/00000000000000000001");
}

static bool has_sockets(struct world *w)
{
	return has_path(w, "run/00000000000000000001");
}

static void make_process(struct world *w)
{
	fake_hv_add_residue(w->hv, HV_RESIDUE_PROCESS, STRAY, "a process", clock_wall_ms());
	make_dir(w, "sandboxes/" STRAY "/disk");
}

static bool has_process(struct world *w)
{
	return fake_hv_has_residue(w->hv, "a process") || has_path(w, "sandboxes/" STRAY);
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
		struct world *w = inspection();

		world_start_only(w);
		kind->make(w);
		struct found young = reap(w);

		assert_int_equal(young.stray_count, 0);
		assert_int_equal(young.young, 1);
		assert_true(kind->is_there(w));

		pass_grace();
		struct found old = look(w);
		const struct stray *stray = pick_stray(&old, kind->kind, kind->what);

		assert_int_equal(old.stray_count, 1);
		assert_int_equal(old.young, 0);
		assert_non_null(stray);
		assert_string_equal(stray->id, kind->id);
		assert_string_equal(stray->instance, "");
		assert_non_null(stray->reason);
		assert_int_equal(stray->result, STRAY_LEFT);
		assert_true(kind->is_there(w));

		struct found reaped = reap(w);

		assert_int_equal(reaped.stray_count, 1);
		assert_int_equal(reaped.strays[0].result, STRAY_REAPED);
		assert_false(kind->is_there(w));
		assert_int_equal(reap(w).stray_count, 0);
		world_free(w);
	}
}

static void test_the_daemon_removes_each_kind_by_itself_and_not_before_its_time(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		struct world *w = world_new_stopped(NULL);

		w->config.stray_grace_ms = GRACE_MS;
		kinds[i].make(w);
		world_start(w);
		unsigned surveys = fake_hv_calls(w->hv, FAKE_HV_SURVEY);

		world_reconcile(w);
		WORLD_UNTIL(w, fake_hv_calls(w->hv, FAKE_HV_SURVEY) > surveys);
		world_run(w, 30);
		assert_true(kinds[i].is_there(w));
		pass_grace();
		world_reconcile(w);
		WORLD_UNTIL(w, !kinds[i].is_there(w));
		world_free(w);
	}
}

static void test_the_owner_is_the_domains_or_the_records(void **state)
{
	struct world *w = inspection();
	const char *id = leave_running(w, NULL);

	(void)state;
	w->config.is_inspection = false;
	world_start(w);
	world_destroy(w, id);
	WORLD_UNTIL(w, world_is_state(w, id, "deleted"));
	world_stop(w);
	w->config.is_inspection = true;
	make_domain(w);
	fake_hv_add_residue(w->hv, HV_RESIDUE_LOG, id, "its log", clock_wall_ms() - 10 * GRACE_MS);
	world_start_only(w);
	/* It has been a stray only since its record ended. */
	assert_int_equal(look(w).stray_count, 0);
	assert_int_equal(look(w).young, 2);
	pass_grace();
	struct found found = look(w);

	assert_int_equal(found.stray_count, 2);
	assert_string_equal(
		pick_stray(&found, STRAY_DOMAIN, STRAY)->account, "ac_00000000000000000007");
	assert_string_equal(pick_stray(&found, STRAY_LOG, "its log")->account, w->account);
	world_free(w);
}

/* ---- live records ---- */

static void test_a_live_sandbox_is_no_stray(void **state)
{
	struct world *w = inspection();
	const char *id = leave_running(w, NULL);

	(void)state;
	pass_grace();
	fake_hv_add_residue(w->hv, HV_RESIDUE_LOG, id, "its log", 1);
	fake_hv_add_residue(w->hv, HV_RESIDUE_PROCESS, id, "its process", 1);
	world_start_only(w);
	assert_int_equal(reap(w).stray_count, 0);
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
	struct world *w = inspection();
	const char *id = leave_running(w, NULL);

	(void)state;
	clock_test_advance(0, 15 * MS_PER_MINUTE + GRACE_MS);
	world_start_only(w);
	struct found found = look(w);

	assert_int_equal(found.stray_count, 1);
	assert_int_equal(found.strays[0].kind, STRAY_DOMAIN);
	assert_string_equal(found.strays[0].id, id);
	assert_string_equal(found.strays[0].account, w->account);
	assert_string_equal(world_state(w, id), "running");
	assert_int_equal(reap(w).strays[0].result, STRAY_REAPED);
	assert_string_equal(world_state(w, id), "deleted");
	assert_string_equal(world_reason(w, id), "expired");
	assert_true(world_is_clean(w, id));
	world_free(w);
}

static void test_a_record_without_its_domain_is_ended(void **state)
{
	struct world *w = inspection();
	const char *temporary = leave_running(w, NULL);
	struct sandbox_create_spec spec = world_spec(w, "keep");

	(void)state;
	spec.is_temporary = false;
	const char *permanent = leave_running(w, &spec);

	fake_hv_stop_domain(w->hv, temporary, false);
	fake_hv_stop_domain(w->hv, permanent, false);
	pass_grace();
	world_start_only(w);
	struct found found = look(w);

	assert_int_equal(found.stray_count, 2);
	assert_non_null(pick_stray(&found, STRAY_RECORD, temporary));
	assert_non_null(pick_stray(&found, STRAY_RECORD, permanent));
	assert_string_equal(world_state(w, temporary), "running");
	found = reap(w);
	assert_int_equal(found.strays[0].result, STRAY_REAPED);
	assert_int_equal(found.strays[1].result, STRAY_REAPED);
	assert_string_equal(world_state(w, temporary), "deleted");
	assert_true(world_is_clean(w, temporary));
	/* A permanent one keeps its disk. */
	assert_string_equal(world_state(w, permanent), "stopped");
	assert_false(world_is_clean(w, permanent));
	assert_int_equal(reap(w).stray_count, 0);
	world_free(w);
}

static void test_a_stopped_one_has_no_process_and_keeps_its_files(void **state)
{
	struct world *w = inspection();
	struct sandbox_create_spec spec = world_spec(w, "keep");
	_cleanup_free_ char *home = NULL;

	(void)state;
	spec.is_temporary = false;
	const char *id = leave_running(w, &spec);

	home = xasprintf("sandboxes/%s", id);
	fake_hv_stop_domain(w->hv, id, false);
	pass_grace();
	world_start_only(w);
	reap(w);
	assert_string_equal(world_state(w, id), "stopped");
	fake_hv_add_residue(w->hv, HV_RESIDUE_PROCESS, id, "its process", 1);
	fake_hv_add_residue(w->hv, HV_RESIDUE_LOG, id, "its log", 1);
	struct found found = reap(w);

	assert_int_equal(found.stray_count, 1);
	assert_int_equal(found.strays[0].kind, STRAY_PROCESS);
	assert_false(fake_hv_has_residue(w->hv, "its process"));
	assert_true(fake_hv_has_residue(w->hv, "its log"));
	assert_true(has_path(w, home));
	world_free(w);
}

static void test_interrupted_creations_and_removals_are_finished(void **state)
{
	static const enum fake_hv_op ops[] = {FAKE_HV_START, FAKE_HV_DESTROY};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(ops); i++) {
		struct world *w = inspection();

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
		pass_grace();
		world_start_only(w);
		struct found found = reap(w);

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
	pass_grace();
	assert_int_equal(reap(w).stray_count, 0);
	assert_string_equal(world_state(w, starting), "provisioning");
	/* A survey from before it ran says that it has no domain. */
	fake_hv_script(w->hv, FAKE_HV_SURVEY, &(struct fake_script){.mode = FAKE_HOLD, .times = 1});
	struct found found = {0};
	struct err err;

	assert_non_null(strays_find(
		w->all, &(struct strays_request){.is_reap = true}, on_found, &found, &err));
	WORLD_UNTIL(w, fake_hv_held(w->hv, FAKE_HV_SURVEY) == 1);
	fake_hv_release(w->hv, FAKE_HV_START);
	WORLD_UNTIL(w, world_is_state(w, starting, "running"));
	fake_hv_release(w->hv, FAKE_HV_SURVEY);
	WORLD_UNTIL(w, found.count == 1);
	assert_int_equal(found.stray_count, 0);
	assert_string_equal(world_state(w, starting), "running");
	world_free(w);
}

/* ---- others ---- */

static void test_other_instances_are_listed_on_request_and_never_removed(void **state)
{
	struct world *w = inspection();

	(void)state;
	fake_hv_add(w->hv, STRAY)->is_foreign = true;
	fake_hv_add(w->hv, OTHER)->is_foreign = true;
	fake_hv_find(w->hv, OTHER)->facts.expires_at_ms = 1;
	/* In our directories, but a domain uses it. */
	make_dir(w, "sandboxes/" STRAY "/disk");
	pass_grace();
	world_start_only(w);
	assert_int_equal(look(w).stray_count, 0);
	struct found found = ask(
		w, &(struct strays_request){
			   .is_reap = true, .wants_others = true, .ready_ms = WORLD_PATIENCE_MS});

	assert_int_equal(found.stray_count, 2);
	for (size_t i = 0; i < found.stray_count; i++) {
		assert_string_equal(found.strays[i].instance, FAKE_OTHER_INSTANCE);
		assert_int_equal(found.strays[i].result, STRAY_LEFT);
	}
	assert_string_equal(pick_stray(&found, STRAY_DOMAIN, OTHER)->reason,
		"of another instance, and expired");
	assert_int_equal(fake_hv_count(w->hv), 2);
	assert_true(has_path(w, "sandboxes/" STRAY));
	world_free(w);
}

/* ---- failures ---- */

static void test_one_that_resists_is_told_and_the_rest_go(void **state)
{
	struct world *w = inspection();

	(void)state;
	make_domain(w);
	make_log(w);
	make_leftover(w);
	pass_grace();
	fake_hv_script(w->hv, FAKE_HV_DESTROY,
		&(struct fake_script){.mode = FAKE_FAIL, .kind = ERR_TIMEOUT, .times = 1});
	world_start_only(w);
	struct found found = reap(w);

	/* The log is its domain's. */
	assert_int_equal(found.stray_count, 2);
	assert_int_equal(pick_stray(&found, STRAY_DOMAIN, STRAY)->result, STRAY_FAILED);
	assert_int_equal(pick_stray(&found, STRAY_DOMAIN, STRAY)->err.kind, ERR_TIMEOUT);
	/* The files of what still runs stay. */
	assert_true(has_path(w, "sandboxes/" STRAY));
	assert_false(has_leftover(w));
	found = reap(w);
	assert_int_equal(pick_stray(&found, STRAY_DOMAIN, STRAY)->result, STRAY_REAPED);
	assert_false(has_domain(w));
	world_free(w);
}

static void test_many_are_removed_with_one_call(void **state)
{
	struct world *w = inspection();

	(void)state;
	for (unsigned i = 0; i < 20; i++) {
		char name[32];

		snprintf(name, sizeof name, "directory %u", i);
		fake_hv_add_residue(w->hv, HV_RESIDUE_DIRECTORY, "", name, 1);
	}
	world_start_only(w);
	assert_int_equal(reap(w).stray_count, 20);
	assert_int_equal(look(w).stray_count, 0);
	world_free(w);
}

static void test_failing_surveys_and_an_absent_hypervisor_are_errors(void **state)
{
	struct world *w = inspection();
	struct found found;

	(void)state;
	fake_hv_set_ready(w->hv, false);
	world_start_only(w);
	found = ask(w, &(struct strays_request){0});
	assert_int_equal(found.kind, ERR_UNAVAILABLE);
	found = ask(w, &(struct strays_request){.ready_ms = 50});
	assert_int_equal(found.kind, ERR_UNAVAILABLE);
	found = (struct found){0};
	struct err err;

	assert_non_null(strays_find(w->all, &(struct strays_request){.ready_ms = WORLD_PATIENCE_MS},
		on_found, &found, &err));
	world_run(w, 20);
	fake_hv_set_ready(w->hv, true);
	WORLD_UNTIL(w, found.count == 1);
	assert_int_equal(found.kind, ERR_NONE);
	fake_hv_script(w->hv, FAKE_HV_SURVEY,
		&(struct fake_script){.mode = FAKE_FAIL, .kind = ERR_TIMEOUT, .times = 1});
	found = ask(w, &(struct strays_request){0});
	assert_int_equal(found.kind, ERR_TIMEOUT);
	world_free(w);
}

static void test_callers_may_go_and_are_not_without_number(void **state)
{
	struct world *w = inspection();
	struct found found = {0};
	struct strays_call *calls[9];
	const struct strays_request request = {.is_reap = true};
	struct err err;

	(void)state;
	make_domain(w);
	pass_grace();
	world_start_only(w);
	WORLD_UNTIL(w, look(w).stray_count == 1);
	fake_hv_script(w->hv, FAKE_HV_SURVEY, &(struct fake_script){.mode = FAKE_HOLD, .times = 1});
	for (size_t i = 0; i < 8; i++) {
		calls[i] = strays_find(w->all, &request, on_found, &found, &err);
		assert_non_null(calls[i]);
	}
	calls[8] = strays_find(w->all, &request, on_found, &found, &err);
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
	assert_non_null(strays_find(w->all, &request, on_found, &found, &err));
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
		cmocka_unit_test(test_a_live_sandbox_is_no_stray),
		cmocka_unit_test(test_an_expired_one_is_listed_and_removed_as_a_whole),
		cmocka_unit_test(test_a_record_without_its_domain_is_ended),
		cmocka_unit_test(test_a_stopped_one_has_no_process_and_keeps_its_files),
		cmocka_unit_test(test_interrupted_creations_and_removals_are_finished),
		cmocka_unit_test(test_with_a_daemon_what_is_worked_on_is_left_alone),
		cmocka_unit_test(test_other_instances_are_listed_on_request_and_never_removed),
		cmocka_unit_test(test_one_that_resists_is_told_and_the_rest_go),
		cmocka_unit_test(test_many_are_removed_with_one_call),
		cmocka_unit_test(test_failing_surveys_and_an_absent_hypervisor_are_errors),
		cmocka_unit_test(test_callers_may_go_and_are_not_without_number),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
