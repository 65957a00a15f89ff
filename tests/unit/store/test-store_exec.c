#include "tests/lib/cm.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "store/store.h"
#include "store/store_exec.h"
#include "store/store_migrate.h"
#include "store/store_sandbox.h"
#include "store/store_account.h"
#include "store/store_stmt.h"
#include "tests/lib/tmpdir.h"

static struct store *store;
static char sandbox[ID_BYTES];

static void add_sandbox(void)
{
	struct store_account account;
	struct err err;

	assert_ok(store_account_insert(store, "acme", 42, &account, &err), &err);
	struct store_sandbox row = {.state = (char *)"running",
		.vcpus = 1,
		.memory_mb = 256,
		.disk_gb = 2,
		.image = (char *)"minimal",
		.image_version = (char *)"1",
		.network = (char *)"none",
		.created_at_ms = 1000};

	id_make(row.id, ID_SANDBOX);
	memcpy(row.account, account.id, ID_BYTES);
	memcpy(sandbox, row.id, ID_BYTES);
	assert_ok(store_sandbox_insert(store, &row, &err), &err);
}

static int open_new(void **state)
{
	struct err err = ERR_INIT;

	if (tmpdir_make(state) != 0) {
		return -1;
	}
	_cleanup_free_ char *path = tmpdir_path("db");

	store = store_open(path, &err);
	add_sandbox();
	return 0;
}

static int close_it(void **state)
{
	store_close(store);
	return tmpdir_drop(state);
}

static struct store_exec running(const char *id, bool is_background)
{
	struct store_exec row = {.state = STORE_EXEC_RUNNING,
		.is_background = is_background,
		.command = (char *)"sleep 1",
		.started_at_ms = 1000};

	snprintf(row.id, sizeof row.id, "%s", id);
	return row;
}

static void put(const struct store_exec *row)
{
	struct err err;

	assert_ok(store_exec_put(store, sandbox, row, &err), &err);
}

static void put_ended(const char *id, bool is_background, int64_t ended_at_ms)
{
	struct store_exec row = running(id, is_background);

	row.state = STORE_EXEC_EXITED;
	row.ended_at_ms = ended_at_ms;
	put(&row);
}

static bool is_there(const char *id)
{
	_cleanup_store_exec_ struct store_exec row = {0};
	struct err err;
	bool is = store_exec_get(store, sandbox, id, &row, &err) == 0;

	assert_true(is || err.kind == ERR_NOT_FOUND);
	return is;
}

static void test_a_row_comes_back_as_it_was_written(void **state)
{
	struct store_exec row = running("ex_a", true);
	struct store_exec got;
	struct err err;

	(void)state;
	row.has_tty = true;
	put(&row);
	assert_ok(store_exec_get(store, sandbox, "ex_a", &got, &err), &err);
	assert_int_equal(got.state, STORE_EXEC_RUNNING);
	assert_true(got.is_background && got.has_tty);
	assert_string_equal(got.command, "sleep 1");
	assert_int_equal(got.started_at_ms, 1000);
	assert_int_equal(got.ended_at_ms, 0);
	assert_null(got.runs);
	store_exec_fini(&got);

	row.state = STORE_EXEC_EXITED;
	row.ended_at_ms = 3000;
	row.exit_code = 137;
	row.signal = 9;
	row.timed_out = true;
	row.duration_ms = 2000;
	row.out = (struct store_tail){.total = 100, .bytes = (char *)"a\0b", .len = 3};
	row.err_out = (struct store_tail){.total = 1, .bytes = (char *)"c", .len = 1};
	row.runs = (unsigned char *)"\x06\0\0\0\x03\0\0\0";
	row.runs_len = 8;
	put(&row);
	assert_ok(store_exec_get(store, sandbox, "ex_a", &got, &err), &err);
	assert_int_equal(got.state, STORE_EXEC_EXITED);
	assert_int_equal(got.exit_code, 137);
	assert_int_equal(got.signal, 9);
	assert_true(got.timed_out && !got.truncated);
	assert_int_equal(got.duration_ms, 2000);
	assert_int_equal(got.out.total, 100);
	assert_int_equal(got.out.len, 3);
	assert_memory_equal(got.out.bytes, "a\0b", 3);
	assert_int_equal(got.runs_len, 8);
	assert_memory_equal(got.runs, row.runs, 8);
	store_exec_fini(&got);
}

static void test_a_list_is_newest_first_and_keeps_places(void **state)
{
	struct store_exec_list list;
	struct err err;

	(void)state;
	put(&(struct store_exec){.id = "ex_a", .started_at_ms = 9000});
	put(&(struct store_exec){.id = "ex_b", .started_at_ms = 1});
	put(&(struct store_exec){.id = "ex_c"});
	/* That it ends doesn't move it. */
	put_ended("ex_a", false, 10000);
	assert_ok(store_exec_list(store, sandbox, &list, &err), &err);
	assert_int_equal(list.count, 3);
	assert_string_equal(list.rows[0].id, "ex_c");
	assert_string_equal(list.rows[2].id, "ex_a");
	store_exec_list_fini(&list);
	assert_ok(store_exec_list_running(store, sandbox, &list, &err), &err);
	assert_int_equal(list.count, 2);
	assert_string_equal(list.rows[1].id, "ex_b");
	store_exec_list_fini(&list);
	assert_ok(store_exec_list(store, "sb_none", &list, &err), &err);
	assert_int_equal(list.count, 0);
}

static void test_pruning_keeps_those_that_ended_last_and_all_that_run(void **state)
{
	struct store_exec_list gone = {0};
	struct store_exec row = running("ex_runs", true);
	struct err err;

	(void)state;
	struct store_exec first = running("ex_long", true);

	put(&first);
	put(&row);
	put_ended("ex_1", true, 8000);
	put_ended("ex_2", true, 9000);
	put_ended("ex_fore", false, 10);
	put_ended("ex_long", true, 1000); /* ended last, when the clock had been set back */
	assert_ok(store_exec_prune(store, sandbox, true, 2, &gone, &err), &err);
	assert_int_equal(gone.count, 1);
	assert_string_equal(gone.rows[0].id, "ex_1");
	assert_true(gone.rows[0].is_background);
	assert_true(is_there("ex_long") && is_there("ex_2") && is_there("ex_runs") &&
		    is_there("ex_fore"));
	assert_false(is_there("ex_1"));
	/* Added to what is there. */
	assert_ok(store_exec_prune(store, sandbox, false, 0, &gone, &err), &err);
	assert_int_equal(gone.count, 2);
	assert_string_equal(gone.rows[1].id, "ex_fore");
	assert_false(gone.rows[1].is_background);
	store_exec_list_fini(&gone);
}

static void test_a_row_that_contradicts_itself_is_refused(void **state)
{
	struct store_exec row = running("ex_a", true);
	struct err err;

	(void)state;
	row.ended_at_ms = 5; /* and runs */
	assert_int_equal(store_exec_put(store, sandbox, &row, &err), -1);
	row.state = STORE_EXEC_LOST; /* without a reason */
	assert_int_equal(store_exec_put(store, sandbox, &row, &err), -1);
	row.error = (char *)"the service was restarted";
	put(&row);
}

static void run_sql(const char *path, const char *sql)
{
	sqlite3 *db;
	char *text = NULL;

	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	if (sqlite3_exec(db, sql, NULL, NULL, &text) != SQLITE_OK) {
		fail_msg("%s", text);
	}
	sqlite3_close(db);
}

/* What an older release left. */
static void test_results_of_before_are_kept(void **state)
{
	_cleanup_free_ char *path = tmpdir_path("old");
	struct store_exec_list list;
	struct err err = ERR_INIT;

	(void)state;
	store_close(store_open_with(path, store_migrations, 3, &err));
	assert_string_equal(err.msg, "");
	run_sql(path,
		"INSERT INTO account VALUES ('ac_1', 'acme', 1, 0);"
		"INSERT INTO sandbox (id, account_id, state, vcpus, memory_mb, disk_gb, image,"
		" image_version, network, temporary, created_at) VALUES ('sb_1', 'ac_1', 'running',"
		" 1, 256, 2, 'minimal', '1', 'none', 1, 1);"
		"INSERT INTO exec_result VALUES ('sb_1', 1, 'ex_1', 5000, 7, NULL, 0, 1, 2000, "
		"NULL,"
		" 12, x'6162', 0, NULL);"
		"INSERT INTO exec_result VALUES ('sb_1', 2, 'ex_2', 6000, NULL, NULL, 0, 0, NULL,"
		" 'gone', 0, NULL, 0, NULL)");
	struct store *old = store_open(path, &err);

	assert_non_null(old);
	assert_ok(store_exec_list(old, "sb_1", &list, &err), &err);
	assert_int_equal(list.count, 2);
	assert_int_equal(list.rows[0].state, STORE_EXEC_LOST);
	assert_string_equal(list.rows[0].error, "gone");
	assert_int_equal(list.rows[0].started_at_ms, 0);
	assert_int_equal(list.rows[1].state, STORE_EXEC_EXITED);
	assert_int_equal(list.rows[1].exit_code, 7);
	assert_int_equal(list.rows[1].started_at_ms, 3000);
	assert_int_equal(list.rows[1].ended_at_ms, 5000);
	assert_true(list.rows[1].truncated);
	assert_null(list.rows[1].command);
	assert_int_equal(list.rows[1].out.total, 12);
	assert_memory_equal(list.rows[1].out.bytes, "ab", 2);
	store_exec_list_fini(&list);
	store_close(old);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_new, close_it)
		TEST(test_a_row_comes_back_as_it_was_written),
		TEST(test_a_list_is_newest_first_and_keeps_places),
		TEST(test_pruning_keeps_those_that_ended_last_and_all_that_run),
		TEST(test_a_row_that_contradicts_itself_is_refused),
		TEST(test_results_of_before_are_kept),
#undef TEST
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
