/* A database that can't be written: nothing is forgotten, everything ends well once it can. */
#include "tests/lib/world.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/xalloc.h"

/* Another program has the database: each write fails until it lets go. */
static sqlite3 *lock_store(struct world *w)
{
	char *path = xasprintf("%s/paddock.db", w->dir);
	sqlite3 *db;

	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
	free(path);
	return db;
}

static void unlock_store(sqlite3 *db)
{
	sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
	sqlite3_close(db);
}

static void test_a_creation_without_a_row_begins_nothing(void **state)
{
	struct world *w = world_new(NULL);
	struct sandbox_create_spec spec = world_spec(w, NULL);
	struct sandbox *sb;
	bool is_replay;
	struct err err;

	(void)state;
	sqlite3 *db = lock_store(w);

	assert_err(sandbox_create(w->all, &spec, &sb, &is_replay, &err), &err, ERR_UNAVAILABLE);
	assert_int_equal(world_charged(w), 0);
	assert_int_equal(sandboxes_count(w->all), 0);
	world_run(w, 20);
	assert_int_equal(fake_hv_calls(w->hv, FAKE_HV_DISK_CREATE), 0);
	unlock_store(db);
	world_running(w, NULL);
	world_free(w);
}

static void test_what_can_not_be_noted_as_running_is_taken_back(void **state)
{
	struct world *w = world_new(NULL);
	struct world_answer ready = {0};

	(void)state;
	fake_guest_script(
		w->guests, FAKE_GUEST_CONFIGURE, &(struct fake_script){.mode = FAKE_HOLD});
	const char *id = world_create(w, NULL);

	sandbox_wait_ready(world_find(w, id), world_on_wait, &ready);
	WORLD_UNTIL(w, fake_guest_call_count(w->guests) == 1);
	sqlite3 *db = lock_store(w);

	fake_guest_release(w->guests, FAKE_GUEST_CONFIGURE);
	WORLD_UNTIL(w, ready.count == 1 && world_is_clean(w, id));
	assert_int_equal(ready.kind, ERR_UNAVAILABLE);
	/* That it failed can't be noted either: it stays charged until then. */
	world_run(w, 1200);
	assert_int_equal(world_charged(w), 1);
	unlock_store(db);
	WORLD_UNTIL(w, world_is_state(w, id, "failed"));
	assert_int_equal(world_charged(w), 0);
	world_free(w);
}

static void test_nothing_is_removed_before_the_row_says_so(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);
	const struct sandbox_exec_spec exec = {.command = "true"};
	struct err err;

	(void)state;
	sqlite3 *db = lock_store(w);

	world_destroy(w, id);
	world_destroy(w, id);
	assert_null(sandbox_exec(world_find(w, id), &exec, world_on_exec, NULL, &err));
	assert_int_equal(err.kind, ERR_ENDED);
	world_run(w, 1200);
	assert_string_equal(world_state(w, id), "running");
	assert_non_null(fake_hv_find(w->hv, id));
	unlock_store(db);
	WORLD_UNTIL(w, world_is_state(w, id, "deleted"));
	assert_true(world_is_clean(w, id));
	world_free(w);
}

static void test_an_end_that_can_not_be_noted_keeps_the_charge(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);

	(void)state;
	fake_hv_script(w->hv, FAKE_HV_DISK_REMOVE, &(struct fake_script){.mode = FAKE_HOLD});
	world_destroy(w, id);
	WORLD_UNTIL(w, fake_hv_held(w->hv, FAKE_HV_DISK_REMOVE) == 1);
	sqlite3 *db = lock_store(w);

	fake_hv_release(w->hv, FAKE_HV_DISK_REMOVE);
	WORLD_UNTIL(w, world_is_clean(w, id));
	world_run(w, 200);
	assert_int_equal(world_charged(w), 1);
	assert_string_equal(world_state(w, id), "deleting");
	unlock_store(db);
	WORLD_UNTIL(w, world_is_state(w, id, "deleted"));
	assert_int_equal(world_charged(w), 0);
	world_free(w);
}

static void test_an_extension_that_can_not_be_noted_is_none(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);
	struct world_answer answer = {0};
	struct err err;

	(void)state;
	int64_t old = sandbox_row(world_find(w, id))->expires_at_ms;
	sqlite3 *db = lock_store(w);

	assert_ok(sandbox_extend(world_find(w, id), 10, world_on_extend, &answer, &err), &err);
	WORLD_UNTIL(w, answer.count == 1);
	assert_int_equal(answer.kind, ERR_UNAVAILABLE);
	assert_int_equal(answer.expires_at_ms, old);
	assert_int_equal(fake_hv_find(w->hv, id)->facts.expires_at_ms, old);
	/* The guest had taken it: it is told the deadline that stands. */
	WORLD_UNTIL(w, fake_guest_settings(w->guests, id)->times == 3);
	assert_in_range(fake_guest_settings(w->guests, id)->deadline_ms, 13 * MS_PER_MINUTE,
		15 * MS_PER_MINUTE + w->config.deadman_margin_ms);
	unlock_store(db);
	world_free(w);
}

static void test_a_stop_that_can_not_be_noted_is_found_again(void **state)
{
	struct world *w = world_new(NULL);
	struct sandbox_create_spec spec = world_spec(w, NULL);

	(void)state;
	spec.is_temporary = false;
	const char *id = world_create_spec(w, &spec);

	WORLD_UNTIL(w, world_is_state(w, id, "running"));
	sqlite3 *db = lock_store(w);

	fake_hv_stop_domain(w->hv, id, true);
	assert_string_equal(world_state(w, id), "running");
	unlock_store(db);
	world_reconcile(w);
	WORLD_UNTIL(w, world_is_state(w, id, "stopped"));
	world_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_creation_without_a_row_begins_nothing),
		cmocka_unit_test(test_what_can_not_be_noted_as_running_is_taken_back),
		cmocka_unit_test(test_nothing_is_removed_before_the_row_says_so),
		cmocka_unit_test(test_an_end_that_can_not_be_noted_keeps_the_charge),
		cmocka_unit_test(test_an_extension_that_can_not_be_noted_is_none),
		cmocka_unit_test(test_a_stop_that_can_not_be_noted_is_found_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
