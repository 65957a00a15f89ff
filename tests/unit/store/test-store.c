#include "tests/lib/cm.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "store/store.h"
#include "store/store_account.h"
#include "store/store_migrate.h"
#include "store/store_sandbox.h"
#include "store/store_stmt.h"
#include "tests/lib/tmpdir.h"

static char *path;

static int make_path(void **state)
{
	int r = tmpdir_make(state);

	path = tmpdir_path("paddock.db");
	return r;
}

static int drop_path(void **state)
{
	free(path);
	return tmpdir_drop(state);
}

static struct store *open_store(void)
{
	struct err err = ERR_INIT;
	struct store *store = store_open(path, &err);

	if (!store) {
		fail_msg("open: %s", err.msg);
	}
	return store;
}

/* Opening fails with that kind and a message with @text. */
static void refuse_store(enum err_kind kind, const char *text)
{
	struct err err = ERR_INIT;

	assert_null(store_open(path, &err));
	assert_int_equal(err.kind, kind);
	assert_err_says(&err, text);
}

/* Runs SQL past the store, on a connection of its own. */
static void run_sql(const char *file, const char *sql)
{
	sqlite3 *db;
	char *text = NULL;

	assert_int_equal(sqlite3_open(file, &db), SQLITE_OK);
	if (sqlite3_exec(db, sql, NULL, NULL, &text) != SQLITE_OK) {
		fail_msg("%s", text);
	}
	sqlite3_close(db);
}

static int keep_text(void *arg, int count, char **values, char **names)
{
	(void)count;
	(void)names;
	snprintf(arg, 64, "%s", values[0] ? values[0] : "NULL");
	return 0;
}

static void expect_sql(const char *file, const char *sql, const char *expected)
{
	char text[64] = "";
	sqlite3 *db;

	assert_int_equal(sqlite3_open(file, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, sql, keep_text, text, NULL), SQLITE_OK);
	sqlite3_close(db);
	assert_string_equal(text, expected);
}

static mode_t mode_of(const char *file)
{
	struct stat st;

	assert_int_equal(stat(file, &st), 0);
	return st.st_mode & 07777;
}

static void add_account(struct store *store, const char *name)
{
	struct store_account account;
	struct err err;

	assert_ok(store_account_insert(store, name, 1, &account, &err), &err);
}

/* ---- opening ---- */

static void test_new_database_is_private_to_its_owner(void **state)
{
	mode_t old = umask(0);
	struct store *store = open_store();
	_cleanup_free_ char *wal = tmpdir_path("paddock.db-wal");

	(void)state;
	umask(old);
	assert_int_equal(mode_of(path), 0600);
	assert_int_equal(mode_of(wal), 0600);
	store_close(store);
}

static void test_wide_mode_of_an_existing_database_is_narrowed(void **state)
{
	(void)state;
	store_close(open_store());
	assert_int_equal(chmod(path, 0644), 0);
	store_close(open_store());
	assert_int_equal(mode_of(path), 0600);
}

static void test_instance_id_is_made_once(void **state)
{
	char first[STORE_INSTANCE_BYTES];
	struct store *store = open_store();

	(void)state;
	memcpy(first, store_instance(store), sizeof(first));
	assert_int_equal(strlen(first), STORE_INSTANCE_BYTES - 1);
	assert_int_equal(strspn(first, "0123456789abcdef"), STORE_INSTANCE_BYTES - 1);
	store_close(store);
	store = open_store();
	assert_string_equal(store_instance(store), first);
	store_close(store);
}

static void test_settings_are_kept_and_replaced(void **state)
{
	_cleanup_(store_close_p) struct store *store = open_store();
	struct err err = ERR_INIT;

	(void)state;
	assert_null(store_meta_get(store, "k", &err));
	assert_int_equal(err.kind, ERR_NOT_FOUND);
	assert_ok(store_meta_set(store, "k", "one", &err), &err);
	assert_ok(store_meta_set(store, "k", "two", &err), &err);
	_cleanup_free_ char *value = store_meta_get(store, "k", &err);
	assert_string_equal(value, "two");
}

static void test_link_in_place_of_the_database_is_refused(void **state)
{
	_cleanup_free_ char *target = tmpdir_path("elsewhere.db");

	(void)state;
	assert_int_equal(symlink(target, path), 0);
	refuse_store(ERR_INTERNAL, "not a file of ours");
}

static void test_directory_may_be_reached_through_a_link(void **state)
{
	_cleanup_free_ char *link = tmpdir_path("link");
	_cleanup_free_ char *through = xasprintf("%s/paddock.db", link);
	struct err err = ERR_INIT;

	(void)state;
	assert_int_equal(symlink(tmpdir, link), 0);
	_cleanup_(store_close_p) struct store *store = store_open(through, &err);
	assert_non_null(store);
}

static void test_foreign_database_is_refused_untouched(void **state)
{
	(void)state;
	run_sql(path, "CREATE TABLE t (x)");
	refuse_store(ERR_INTERNAL, "not a database of paddockd");
	expect_sql(path, "SELECT count(*) FROM sqlite_schema", "1");
	expect_sql(path, "PRAGMA journal_mode", "delete");
}

static void test_newer_schema_is_refused_with_both_versions(void **state)
{
	(void)state;
	store_close(open_store());
	run_sql(path, "PRAGMA user_version = 999");
	refuse_store(ERR_INTERNAL, "schema version 999");
	assert_true(store_migration_count < 999);
}

/* ---- damage ---- */

static void overwrite(const char *file, long offset, const char *bytes, size_t len)
{
	_cleanup_close_ int fd = open(file, O_WRONLY);

	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, bytes, len, offset), len);
}

static void test_damaged_header_is_refused(void **state)
{
	(void)state;
	store_close(open_store());
	overwrite(path, 0, "garbage garbage!", 16);
	refuse_store(ERR_INTERNAL, "is damaged");
}

static void test_damaged_page_is_refused(void **state)
{
	static char zeros[4096];
	struct store *store = open_store();

	(void)state;
	for (int i = 0; i < 200; i++) {
		_cleanup_free_ char *name = xasprintf("account-%d", i);

		add_account(store, name);
	}
	store_close(store);
	memset(zeros, 0x5a, sizeof(zeros));
	/* The second page is the root of a table in any layout. */
	overwrite(path, 4096, zeros, sizeof(zeros));
	refuse_store(ERR_INTERNAL, "there is no backup");
}

static void test_refusal_of_a_damaged_file_names_the_newest_backup(void **state)
{
	static const struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
	_cleanup_free_ char *older = tmpdir_path("paddock.db.backup-9");
	_cleanup_free_ char *newer = tmpdir_path("paddock.db.backup-10");
	_cleanup_free_ char *partial = tmpdir_path("paddock.db.backup-11.partial");
	struct err err;

	(void)state;
	store_close(open_store());
	overwrite(path, 0, "garbage garbage!", 16);
	assert_ok(fs_write_atomic(older, "", 0, 0600, &err), &err);
	assert_int_equal(utimensat(AT_FDCWD, older, old, 0), 0);
	assert_ok(fs_write_atomic(newer, "", 0, 0600, &err), &err);
	assert_ok(fs_write_atomic(partial, "", 0, 0600, &err), &err);
	refuse_store(ERR_INTERNAL, "copy /tmp");
	refuse_store(ERR_INTERNAL, "backup-10 in its place");
}

/* ---- locks and a full disk ---- */

/* A process that holds the lock until its pipe closes: what an admin's shell may do. */
static int hold_lock(const char *sql, pid_t *ret_pid)
{
	int ready[2];
	int release[2];
	char byte = 'x';

	assert_int_equal(pipe(ready), 0);
	assert_int_equal(pipe(release), 0);
	*ret_pid = fork();
	if (*ret_pid == 0) {
		sqlite3 *db;

		close(release[1]);
		if (sqlite3_open(path, &db) != SQLITE_OK ||
			sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK ||
			write(ready[1], &byte, 1) != 1) {
			_exit(1);
		}
		_exit(read(release[0], &byte, 1) == 0 ? 0 : 1);
	}
	close(ready[1]);
	close(release[0]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	return release[1];
}

static void release_lock(int fd, pid_t pid)
{
	int status;

	close(fd);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void test_writes_to_a_locked_database_are_unavailable_soon(void **state)
{
	_cleanup_(store_close_p) struct store *store = open_store();
	struct store_account account;
	struct err err;
	pid_t pid;

	(void)state;
	int fd = hold_lock("BEGIN EXCLUSIVE", &pid);
	uint64_t start = clock_monotonic_ms();

	/* Each for itself they would wait for 10 s. */
	for (int i = 0; i < 100; i++) {
		assert_err(
			store_account_insert(store, "a", 1, &account, &err), &err, ERR_UNAVAILABLE);
		assert_err_says(&err, "locked");
	}
	assert_in_range(clock_monotonic_ms() - start, 50, 5000);

	/* Reading goes on, and writing once the lock is gone. */
	assert_err(store_account_get(store, "ac_1", &account, &err), &err, ERR_NOT_FOUND);
	release_lock(fd, pid);
	assert_ok(store_account_insert(store, "a", 1, &account, &err), &err);
}

static void test_opening_a_locked_database_is_unavailable_soon(void **state)
{
	pid_t pid;

	(void)state;
	store_close(open_store());
	int fd = hold_lock("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE", &pid);
	uint64_t start = clock_monotonic_ms();

	refuse_store(ERR_UNAVAILABLE, "locked");
	assert_in_range(clock_monotonic_ms() - start, 50, 5000);
	release_lock(fd, pid);
	store_close(open_store());
}

static void test_full_disk_is_unavailable_and_loses_nothing(void **state)
{
	struct store *store = open_store();
	_cleanup_free_ char *big = xcalloc(1, 1024 * 1024 + 1);
	struct err err;

	(void)state;
	memset(big, 'x', 1024 * 1024);
	assert_ok(store_meta_set(store, "k", "before", &err), &err);
	store_close(store);
	/* The file may not grow: sqlite answers as it does when the disk is full. */
	store = open_store();
	assert_ok(store_exec(store, "PRAGMA max_page_count = 1", &err), &err);
	assert_err(store_meta_set(store, "k", big, &err), &err, ERR_UNAVAILABLE);
	assert_err_says(&err, "full");
	_cleanup_free_ char *value = store_meta_get(store, "k", &err);
	assert_string_equal(value, "before");
	store_close(store);
}

/* ---- transactions ---- */

static void insert_then_give_up(struct store *store)
{
	_cleanup_store_tx_ struct store_tx tx = STORE_TX_INIT;
	struct err err;

	assert_ok(store_begin(store, &tx, &err), &err);
	add_account(store, "lost");
}

static void test_transaction_that_is_left_is_undone(void **state)
{
	_cleanup_(store_close_p) struct store *store = open_store();
	struct store_account account;
	struct err err;

	(void)state;
	insert_then_give_up(store);
	assert_err(store_account_get_by_name(store, "lost", &account, &err), &err, ERR_NOT_FOUND);
}

static void test_transaction_that_is_committed_stays(void **state)
{
	struct store *store = open_store();
	struct store_tx tx = STORE_TX_INIT;
	struct store_account account;
	struct err err;

	(void)state;
	assert_ok(store_begin(store, &tx, &err), &err);
	add_account(store, "kept");
	add_account(store, "too");
	assert_ok(store_commit(&tx, &err), &err);
	store_rollback(&tx);
	store_close(store);

	store = open_store();
	assert_ok(store_account_get_by_name(store, "kept", &account, &err), &err);
	assert_ok(store_account_get_by_name(store, "too", &account, &err), &err);
	store_close(store);
}

static void fill_disk_in_transaction(struct store *store)
{
	_cleanup_store_tx_ struct store_tx tx = STORE_TX_INIT;
	_cleanup_free_ char *big = xcalloc(1, 1024 * 1024 + 1);
	struct err err;

	memset(big, 'x', 1024 * 1024);
	assert_ok(store_begin(store, &tx, &err), &err);
	add_account(store, "lost");
	assert_err(store_meta_set(store, "k", big, &err), &err, ERR_UNAVAILABLE);
}

static void test_transaction_is_undone_when_the_disk_fills(void **state)
{
	_cleanup_(store_close_p) struct store *store = open_store();
	struct store_account account;
	struct err err;

	(void)state;
	assert_ok(store_exec(store, "PRAGMA max_page_count = 1", &err), &err);
	fill_disk_in_transaction(store);
	assert_err(store_account_get_by_name(store, "lost", &account, &err), &err, ERR_NOT_FOUND);
	insert_then_give_up(store);
	add_account(store, "kept");
}

static void test_failed_statement_leaves_the_transaction_usable(void **state)
{
	_cleanup_(store_close_p) struct store *store = open_store();
	struct store_tx tx = STORE_TX_INIT;
	struct store_account account;
	struct err err;

	(void)state;
	assert_ok(store_begin(store, &tx, &err), &err);
	add_account(store, "one");
	assert_err(store_account_insert(store, "one", 1, &account, &err), &err, ERR_CONFLICT);
	add_account(store, "two");
	assert_ok(store_commit(&tx, &err), &err);
	assert_ok(store_account_get_by_name(store, "two", &account, &err), &err);
}

/* ---- migrations ---- */

static void make_fixture(const char *file)
{
	_cleanup_free_ char *sql = NULL;
	struct err err;

	assert_ok(fs_read(FIXTURE_0001, 1024 * 1024, &sql, NULL, &err), &err);
	run_sql(file, sql);
}

static struct store *open_with(const char *second, const char *third, struct err *err)
{
	const char *migrations[] = {store_migrations[0], second, third};

	*err = ERR_INIT;
	return store_open_with(path, migrations, third ? 3 : 2, err);
}

static void test_file_made_by_the_first_release_opens(void **state)
{
	struct store_account account;
	struct err err = ERR_INIT;

	(void)state;
	make_fixture(path);
	_cleanup_(store_close_p) struct store *store = open_store();

	assert_string_equal(store_instance(store), "00112233445566aa");
	assert_ok(store_account_get_by_name(store, "acme", &account, &err), &err);
	_cleanup_store_sandbox_ struct store_sandbox *row = store_sandbox_get_by_name(
		store, account.id, "web", &err);
	assert_non_null(row);
	assert_string_equal(row->state, "running");
	assert_int_equal(row->uid, 300001);
}

static void test_migration_keeps_rows_and_a_backup_of_what_was(void **state)
{
	_cleanup_free_ char *backup = tmpdir_path("paddock.db.backup-1");
	struct err err;

	(void)state;
	make_fixture(path);
	struct store *store = open_with(
		"ALTER TABLE account ADD COLUMN note TEXT", "CREATE TABLE extra (x) ", &err);
	assert_non_null(store);
	store_close(store);

	expect_sql(path, "PRAGMA user_version", "3");
	expect_sql(path, "SELECT name FROM account WHERE note IS NULL", "acme");
	expect_sql(backup, "PRAGMA user_version", "1");
	expect_sql(backup, "SELECT name FROM account", "acme");
	expect_sql(backup, "SELECT count(*) FROM pragma_table_info('account')", "4");
	assert_int_equal(mode_of(backup), 0600);

	/* The backup serves as it is. */
	assert_int_equal(rename(backup, path), 0);
	store_close(open_store());
}

static void test_new_database_needs_no_backup(void **state)
{
	_cleanup_free_ char *backup = tmpdir_path("paddock.db.backup-0");

	(void)state;
	store_close(open_store());
	assert_int_equal(access(backup, F_OK), -1);
}

static void test_failed_migration_stops_at_the_last_good_version(void **state)
{
	struct err err;

	(void)state;
	make_fixture(path);
	assert_null(open_with("CREATE TABLE extra (x)", "CREATE TABLE more (x); nonsense", &err));
	assert_int_equal(err.kind, ERR_INTERNAL);
	assert_err_says(&err, "to version 3");
	expect_sql(path, "PRAGMA user_version", "2");
	expect_sql(path, "SELECT count(*) FROM sqlite_schema WHERE name = 'more'", "0");

	/* With the fault gone it goes on from there. */
	struct store *store = open_with("CREATE TABLE extra (x)", "CREATE TABLE more (x)", &err);
	assert_non_null(store);
	store_close(store);
	expect_sql(path, "PRAGMA user_version", "3");
}

static void test_migration_that_breaks_a_reference_is_undone(void **state)
{
	struct err err;

	(void)state;
	make_fixture(path);
	assert_null(open_with("DELETE FROM account", NULL, &err));
	assert_err_says(&err, "refers to rows that don't exist");
	expect_sql(path, "SELECT count(*) FROM account", "1");
	expect_sql(path, "PRAGMA user_version", "1");
}

static void test_migrations_give_what_the_fixture_says(void **state)
{
	_cleanup_free_ char *old = tmpdir_path("fixture.db");
	_cleanup_free_ char *attach = xasprintf("ATTACH '%s' AS old", old);
	char text[64] = "";
	sqlite3 *db;

	(void)state;
	make_fixture(old);
	const char *first[] = {store_migrations[0]};
	struct err err = ERR_INIT;
	store_close(store_open_with(path, first, 1, &err));
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, attach, NULL, NULL, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db,
				 "SELECT count(*) FROM (SELECT name, sql FROM main.sqlite_schema"
				 " EXCEPT SELECT name, sql FROM old.sqlite_schema)",
				 keep_text, text, NULL),
		SQLITE_OK);
	sqlite3_close(db);
	assert_string_equal(text, "0");
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, make_path, drop_path)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_new_database_is_private_to_its_owner),
		TEST(test_wide_mode_of_an_existing_database_is_narrowed),
		TEST(test_instance_id_is_made_once),
		TEST(test_settings_are_kept_and_replaced),
		TEST(test_link_in_place_of_the_database_is_refused),
		TEST(test_directory_may_be_reached_through_a_link),
		TEST(test_foreign_database_is_refused_untouched),
		TEST(test_newer_schema_is_refused_with_both_versions),
		TEST(test_damaged_header_is_refused),
		TEST(test_damaged_page_is_refused),
		TEST(test_refusal_of_a_damaged_file_names_the_newest_backup),
		TEST(test_writes_to_a_locked_database_are_unavailable_soon),
		TEST(test_opening_a_locked_database_is_unavailable_soon),
		TEST(test_full_disk_is_unavailable_and_loses_nothing),
		TEST(test_transaction_that_is_left_is_undone),
		TEST(test_transaction_that_is_committed_stays),
		TEST(test_transaction_is_undone_when_the_disk_fills),
		TEST(test_failed_statement_leaves_the_transaction_usable),
		TEST(test_file_made_by_the_first_release_opens),
		TEST(test_migration_keeps_rows_and_a_backup_of_what_was),
		TEST(test_new_database_needs_no_backup),
		TEST(test_failed_migration_stops_at_the_last_good_version),
		TEST(test_migration_that_breaks_a_reference_is_undone),
		TEST(test_migrations_give_what_the_fixture_says),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
