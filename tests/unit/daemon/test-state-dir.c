#include "tests/lib/cm.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/xalloc.h"
#include "daemon/state_dir.h"

static char base[] = "/tmp/paddock-state-XXXXXX";

static int make_base(void **state)
{
	(void)state;
	return mkdtemp(base) && chmod(base, 0711) == 0 ? 0 : -1;
}

static int drop_base(void **state)
{
	struct err err;

	(void)state;
	return fs_remove_tree(base, &err);
}

static void test_it_is_made_traversable_and_locked(void **state)
{
	_cleanup_free_ char *path = xasprintf("%s/a/b", base);
	_cleanup_free_ char *run = xasprintf("%s/a/b/run", base);
	struct err err;
	struct stat st;

	(void)state;
	umask(077);
	_cleanup_(state_dir_close_p) struct state_dir *dir = state_dir_open(path, run, &err);
	assert_non_null(dir);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0711);
	assert_int_equal(stat(run, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0711);

	/* flock() is per open file, so a second opening in this process counts as another daemon.
	 */
	assert_null(state_dir_open(path, run, &err));
	assert_int_equal(err.kind, ERR_CONFLICT);
	assert_err_says(&err, "another paddockd");
}

static void test_the_lock_goes_with_its_holder(void **state)
{
	_cleanup_free_ char *path = xasprintf("%s/c", base);
	_cleanup_free_ char *run = xasprintf("%s/c/run", base);
	struct err err;
	int status;

	(void)state;
	pid_t child = fork();
	if (child == 0) {
		_exit(state_dir_open(path, run, &err) ? 0 : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	struct state_dir *dir = state_dir_open(path, run, &err);
	assert_non_null(dir);
	state_dir_close(dir);
	dir = state_dir_open(path, run, &err);
	assert_non_null(dir);
	state_dir_close(dir);
}

static void test_a_directory_that_bars_others_is_refused_with_its_fix(void **state)
{
	_cleanup_free_ char *home = xasprintf("%s/home", base);
	_cleanup_free_ char *path = xasprintf("%s/home/state", base);
	_cleanup_free_ char *run = xasprintf("%s/home/state/run", base);
	struct err err;

	(void)state;
	assert_ok(fs_mkdir(home, 0700, &err), &err);
	assert_null(state_dir_open(path, run, &err));
	assert_int_equal(err.kind, ERR_INVALID);
	assert_err_says(&err, "chmod o+x");
	assert_err_says(&err, "/home (mode 0700)");
}

static void test_a_run_directory_is_one_instances(void **state)
{
	_cleanup_free_ char *path = xasprintf("%s/claim", base);
	_cleanup_free_ char *inside = xasprintf("%s/claim/run", base);
	_cleanup_free_ char *outside = xasprintf("%s/claim-run", base);
	struct err err;

	(void)state;
	assert_ok(fs_mkdir_parents(inside, 0711, &err), &err);
	assert_ok(fs_mkdir_parents(outside, 0711, &err), &err);
	for (int i = 0; i < 2; i++) {
		assert_ok(state_dir_claim_run(path, outside, "0123456789abcdef", &err), &err);
	}
	assert_err(state_dir_claim_run(path, outside, "ffffffffffffffff", &err), &err, ERR_INVALID);
	assert_err_says(&err, "state.run_dir");
	/* The state directory's lock is enough there, also after the loss of a database. */
	assert_ok(state_dir_claim_run(path, inside, "0123456789abcdef", &err), &err);
	assert_ok(state_dir_claim_run(path, inside, "ffffffffffffffff", &err), &err);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_it_is_made_traversable_and_locked),
		cmocka_unit_test(test_the_lock_goes_with_its_holder),
		cmocka_unit_test(test_a_directory_that_bars_others_is_refused_with_its_fix),
		cmocka_unit_test(test_a_run_directory_is_one_instances),
	};

	return cmocka_run_group_tests(tests, make_base, drop_base);
}
