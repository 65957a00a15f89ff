/* A database that can't be written: nothing is forgotten, everything ends well once it can. */
#include "tests/lib/world.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/xalloc.h"
#include "sandbox/paths.h"
#include "store/store_internal.h"
#include "store/store_stmt.h"
#include "tests/lib/small_disk.h"

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

/* ---- no waiting for ever ---- */

static void test_a_removal_goes_on_without_its_row_in_the_end(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);

	(void)state;
	sqlite3 *db = lock_store(w);

	world_destroy(w, id);
	WORLD_UNTIL(w, world_is_clean(w, id));
	assert_string_equal(world_state(w, id), "running");
	assert_int_equal(world_charged(w), 1);
	unlock_store(db);
	WORLD_UNTIL(w, world_is_state(w, id, "deleted"));
	assert_string_equal(world_reason(w, id), "deleted");
	assert_int_equal(world_charged(w), 0);
	world_free(w);
}

static void test_an_expiry_goes_on_without_its_row_in_the_end(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);
	const char *other = world_running(w, NULL);
	struct world_answer answer;

	(void)state;
	struct sandbox_create_spec spec = world_spec(w, NULL);

	spec.timeout_minutes = 60;
	const char *later = world_create_spec(w, &spec);

	WORLD_UNTIL(w, world_is_state(w, later, "running"));
	sqlite3 *db = lock_store(w);

	clock_test_advance(20 * MS_PER_MINUTE, 20 * MS_PER_MINUTE);
	WORLD_UNTIL(w, world_is_clean(w, id) && world_is_clean(w, other));
	/* Who isn't due works on. */
	world_exec(w, later, "true", &answer);
	assert_int_equal(answer.kind, ERR_NONE);
	unlock_store(db);
	WORLD_UNTIL(w, world_is_state(w, id, "deleted") && world_is_state(w, other, "deleted"));
	assert_string_equal(world_reason(w, id), "expired");
	assert_int_equal(world_charged(w), 1);
	world_free(w);
}

static void test_a_removal_without_its_row_survives_a_crash(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);

	(void)state;
	sqlite3 *db = lock_store(w);

	world_destroy(w, id);
	WORLD_UNTIL(w, world_is_clean(w, id));
	world_stop(w);
	unlock_store(db);
	world_start(w);
	WORLD_UNTIL(w, world_is_state(w, id, "deleted"));
	assert_true(world_is_clean(w, id));
	assert_int_equal(world_charged(w), 0);
	world_free(w);
}

/* Each write may wait for a lock; all of them together must not add up. */
static void test_many_that_are_due_do_not_stall_the_loop(void **state)
{
	enum { COUNT = 40 };
	const struct quota_amounts limits = {COUNT, COUNT * 2, COUNT * 8192, COUNT * 100};
	struct world *w = world_new(&limits);
	const char *ids[COUNT];
	uint64_t longest = 0;

	(void)state;
	for (int i = 0; i < COUNT; i++) {
		ids[i] = world_running(w, NULL);
	}
	sqlite3 *db = lock_store(w);

	clock_test_advance(20 * MS_PER_MINUTE, 20 * MS_PER_MINUTE);
	for (uint64_t until = real_ms() + 2500; real_ms() < until;) {
		uint64_t start = real_ms();

		world_turn(w);
		longest = MAX(longest, real_ms() - start);
	}
	/* One by one it would be 4 s. */
	assert_in_range(longest, 50, 1000);
	unlock_store(db);
	for (int i = 0; i < COUNT; i++) {
		WORLD_UNTIL(w, world_is_state(w, ids[i], "deleted"));
	}
	world_free(w);
}

/* ---- a full disk ---- */

static struct world *world_on_small_disk(void)
{
	struct world *w = world_new_stopped(NULL);

	assert_int_equal(small_disk_mount(w->dir, 4), 0);
	world_start(w);
	return w;
}

static void free_world_on_small_disk(struct world *w)
{
	world_stop(w);
	assert_int_equal(umount2(w->dir, MNT_DETACH), 0);
	world_free(w);
}

/* Nothing can be written: @path takes the disk's room, and the database's log has none of its own.
 */
static void fill_disk(struct world *w, const char *path)
{
	_cleanup_free_ char *big = xcalloc(1, 4096);
	struct err err = ERR_INIT;

	assert_int_equal(small_disk_fill(path), 0);
	memset(big, 'x', 4095);
	while (store_meta_set(w->store, "filler", big, &err) == 0) {
	}
	assert_int_equal(err.kind, ERR_UNAVAILABLE);
	assert_err_says(&err, "full");
}

static void test_a_full_disk_refuses_creations_and_nothing_else(void **state)
{
	struct world *w = world_on_small_disk();
	const char *id = world_running(w, NULL);
	struct sandbox_create_spec spec = world_spec(w, NULL);
	_cleanup_free_ char *filler = xasprintf("%s/filler", w->dir);
	struct world_answer answer;
	struct sandbox *sb;
	bool is_replay;
	struct err err;

	(void)state;
	fill_disk(w, filler);
	assert_err(sandbox_create(w->all, &spec, &sb, &is_replay, &err), &err, ERR_UNAVAILABLE);
	assert_err_says(&err, "full");
	assert_int_equal(sandboxes_count(w->all), 1);
	assert_int_equal(world_charged(w), 1);
	world_exec(w, id, "true", &answer);
	assert_int_equal(answer.kind, ERR_NONE);
	assert_int_equal(unlink(filler), 0);
	world_running(w, NULL);
	free_world_on_small_disk(w);
}

/* What fills the disk is what has to go: its removal can't wait for a row. */
static void test_a_disk_full_of_overlays_is_freed_by_a_removal(void **state)
{
	struct world *w = world_on_small_disk();
	const char *id = world_running(w, NULL);
	struct hv_paths paths;

	(void)state;
	paths_init(&paths, w->dir, w->run_dir, id);
	assert_int_equal(access(paths.overlay, F_OK), 0);
	fill_disk(w, paths.overlay);
	world_destroy(w, id);
	WORLD_UNTIL(w, world_is_state(w, id, "deleted"));
	assert_true(world_is_clean(w, id));
	assert_int_equal(world_charged(w), 0);
	world_running(w, NULL);
	paths_fini(&paths);
	free_world_on_small_disk(w);
}

/* ---- damage ---- */

/* Overwrites all pages but the first, as they are on disk, and lets go of those in memory. */
static void damage_store(struct world *w)
{
	static char garbage[4096];
	_cleanup_free_ char *path = xasprintf("%s/paddock.db", w->dir);
	_cleanup_close_ int fd = open(path, O_RDWR | O_CLOEXEC);
	struct err err = ERR_INIT;
	struct stat st;

	memset(garbage, 0x5a, sizeof garbage);
	assert_ok(store_exec(w->store, "PRAGMA wal_checkpoint(TRUNCATE)", &err), &err);
	assert_true(fd >= 0 && fstat(fd, &st) == 0);
	for (off_t at = sizeof garbage; at < st.st_size; at += (off_t)sizeof garbage) {
		assert_int_equal(pwrite(fd, garbage, sizeof garbage, at), sizeof garbage);
	}
	sqlite3_db_release_memory(w->store->db);
}

static void test_a_database_that_turns_out_damaged_ends_nothing_but_records(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);
	struct sandbox_create_spec spec = world_spec(w, NULL);
	_cleanup_free_ char *path = xasprintf("%s/paddock.db", w->dir);
	_cleanup_free_ char *backup = xasprintf("%s.backup-1", path);
	struct world_answer answer;
	struct sandbox *sb;
	bool is_replay;
	struct err err = ERR_INIT;

	(void)state;
	assert_ok(fs_write_atomic(backup, "", 0, 0600, &err), &err);
	damage_store(w);
	assert_err(sandbox_create(w->all, &spec, &sb, &is_replay, &err), &err, ERR_UNAVAILABLE);
	assert_err_says(&err, "database is damaged");
	assert_err(store_meta_set(w->store, "a", "b", &err), &err, ERR_UNAVAILABLE);
	assert_false(sandboxes_is_ready(w->all, &err));
	assert_int_equal(err.kind, ERR_UNAVAILABLE);
	/* Its sandbox works, and goes when it should. */
	world_exec(w, id, "true", &answer);
	assert_int_equal(answer.kind, ERR_NONE);
	world_destroy(w, id);
	WORLD_UNTIL(w, fake_hv_count(w->hv) == 0);
	world_stop(w);
	/* A start says what to do. */
	assert_null(store_open(path, &err));
	assert_err_says(&err, "is damaged");
	assert_err_says(&err, "paddock.db.backup-1 in its place");
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
		cmocka_unit_test(test_a_removal_goes_on_without_its_row_in_the_end),
		cmocka_unit_test(test_an_expiry_goes_on_without_its_row_in_the_end),
		cmocka_unit_test(test_a_removal_without_its_row_survives_a_crash),
		cmocka_unit_test(test_many_that_are_due_do_not_stall_the_loop),
		cmocka_unit_test(test_a_full_disk_refuses_creations_and_nothing_else),
		cmocka_unit_test(test_a_disk_full_of_overlays_is_freed_by_a_removal),
		cmocka_unit_test(test_a_database_that_turns_out_damaged_ends_nothing_but_records),
	};

	assert_int_equal(small_disk_enter(), 0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
