#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/util.h"

static char dir[] = "/tmp/paddock-guest-XXXXXX";
static char path[64];

static size_t count_files(void)
{
	DIR *entries = opendir(dir);
	size_t count = 0;

	assert_non_null(entries);
	for (struct dirent *entry = readdir(entries); entry; entry = readdir(entries)) {
		count += entry->d_name[0] != '.';
	}
	closedir(entries);
	return count;
}

static void expect_content(const char *content)
{
	char text[64];

	assert_int_equal(util_read_text(path, text, sizeof text), strlen(content));
	assert_string_equal(text, content);
}

static void test_a_file_is_made_and_replaced(void **state)
{
	struct stat st;

	(void)state;
	assert_int_equal(util_save(path, "first, longer", 13), 0);
	expect_content("first, longer");
	assert_int_equal(util_save(path, "second", 6), 0);
	expect_content("second");
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0644);
	assert_int_equal(count_files(), 1);
}

/* By a limit in place of a full disk. */
static void test_a_file_that_can_not_be_written_keeps_what_it_had(void **state)
{
	struct rlimit before;

	(void)state;
	assert_int_equal(util_save(path, "127.0.0.1\tlocalhost\n", 20), 0);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	const struct rlimit small = {.rlim_cur = 10, .rlim_max = before.rlim_max};

	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	int rc = util_save(path, "127.0.0.1\tlocalhost\n127.0.1.1\tbox\n", 34);
	int error = errno;

	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
	assert_int_equal(rc, -1);
	assert_int_equal(error, EFBIG);
	expect_content("127.0.0.1\tlocalhost\n");
	assert_int_equal(count_files(), 1);
	/* Nor does what an earlier try left keep it from being written. */
	assert_int_equal(util_save(path, "x", 1), 0);
	expect_content("x");
}

static void test_a_link_in_the_place_of_a_file_is_replaced(void **state)
{
	char other[80];

	(void)state;
	snprintf(other, sizeof other, "%s/other", dir);
	assert_int_equal(util_save(other, "keep", 4), 0);
	assert_int_equal(symlink("other", path), 0);
	assert_int_equal(util_save(path, "new", 3), 0);
	expect_content("new");
	strcpy(path, other);
	expect_content("keep");
}

static int set_up(void **state)
{
	(void)state;
	strcpy(dir + strlen(dir) - 6, "XXXXXX");
	if (!mkdtemp(dir)) {
		return -1;
	}
	snprintf(path, sizeof path, "%s/hosts", dir);
	return 0;
}

static int tear_down(void **state)
{
	char name[80];

	(void)state;
	snprintf(name, sizeof name, "%s/hosts", dir);
	unlink(name);
	snprintf(name, sizeof name, "%s/other", dir);
	unlink(name);
	return rmdir(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
		T(test_a_file_is_made_and_replaced),
		T(test_a_file_that_can_not_be_written_keeps_what_it_had),
		T(test_a_link_in_the_place_of_a_file_is_replaced),
#undef T
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
