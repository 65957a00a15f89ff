#include "tests/lib/cm.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/xalloc.h"
#include "netfilter/uidrange.h"

/* A host of its own: registry, /proc, /etc and state directories below a temporary directory. */
struct host {
	char root[64];
	char *registry;
	char *proc;
	char *etc;
};

static char *path_of(const struct host *host, const char *name)
{
	return xasprintf("%s/%s", host->root, name);
}

/* Instances whose filter was removed, each with a blank behind it. */
static char removed[256];

static int remove_filter(const char *instance, struct err *err)
{
	size_t len = strlen(removed);

	(void)err;
	snprintf(removed + len, sizeof removed - len, "%s ", instance);
	return 0;
}

static void put(const struct host *host, const char *name, const char *text)
{
	_cleanup_free_ char *path = path_of(host, name);
	struct err err;

	assert_ok(fs_write_atomic(path, text, strlen(text), 0644, &err), &err);
}

static void make_dir(const struct host *host, const char *name)
{
	_cleanup_free_ char *path = path_of(host, name);
	struct err err;

	assert_ok(fs_mkdir_parents(path, 0755, &err), &err);
}

static void drop(const struct host *host, const char *name)
{
	_cleanup_free_ char *path = path_of(host, name);
	struct err err;

	assert_ok(fs_remove_tree(path, &err), &err);
}

static void start_process(const struct host *host, unsigned pid, unsigned uid)
{
	char name[64];
	char text[256];

	snprintf(name, sizeof name, "proc/%u", pid);
	make_dir(host, name);
	snprintf(name, sizeof name, "proc/%u/status", pid);
	snprintf(text, sizeof text, "Name:\tqemu\nUid:\t%u\t%u\t%u\t%u\nGid:\t0\t0\t0\t0\n", uid,
		uid, uid, uid);
	put(host, name, text);
}

static int setup(void **state)
{
	struct host *host = xnew(struct host);

	strcpy(host->root, "/tmp/paddock-uidrange-XXXXXX");
	if (!mkdtemp(host->root)) {
		return -1;
	}
	host->registry = path_of(host, "run/uid-ranges");
	host->proc = path_of(host, "proc");
	host->etc = path_of(host, "etc");
	make_dir(host, "a");
	make_dir(host, "b");
	make_dir(host, "proc/self");
	make_dir(host, "etc");
	put(host, "proc/self/uid_map", "         0          0 4294967295\n");
	put(host, "etc/passwd", "root:x:0:0:root:/root:/bin/sh\n");
	start_process(host, 1, 0);
	removed[0] = '\0';
	*state = host;
	return 0;
}

static int teardown(void **state)
{
	struct host *host = *state;
	struct err err;

	assert_ok(fs_remove_tree(host->root, &err), &err);
	free(host->registry);
	free(host->proc);
	free(host->etc);
	free(host);
	return 0;
}

#define A "aaaaaaaaaaaaaaaa"
#define B "bbbbbbbbbbbbbbbb"

static int with(const struct host *host, const char *instance, const char *state_dir, uid_t first,
	unsigned count, struct uidrange *ret, struct err *err)
{
	_cleanup_free_ char *dir = path_of(host, state_dir);
	const struct uidrange_settings settings = {.instance = instance,
		.state_dir = dir,
		.first = first,
		.count = count,
		.registry = host->registry,
		.proc_dir = host->proc,
		.etc_dir = host->etc,
		.remove_filter = remove_filter};

	return ret ? uidrange_claim(&settings, ret, err) : uidrange_release(&settings, err);
}

static struct uidrange claim(const struct host *host, const char *instance, const char *state_dir)
{
	struct uidrange range;
	struct err err;

	assert_ok(with(host, instance, state_dir, 0, 1000, &range, &err), &err);
	return range;
}

static bool overlap(struct uidrange a, struct uidrange b)
{
	return a.first < b.first + b.count && b.first < a.first + a.count;
}

static void test_auto_takes_a_slot_of_the_reserved_range(void **state)
{
	struct uidrange range = claim(*state, A, "a");

	assert_int_equal(range.count, 1000);
	assert_in_range(range.first, UIDRANGE_AUTO_FIRST, UIDRANGE_AUTO_LAST - 999);
	assert_int_equal(range.first % 1000, 0);
}

static void test_the_same_instance_claims_its_own_again(void **state)
{
	struct uidrange once = claim(*state, A, "a");

	start_process(*state, 77, once.first + 3);
	struct uidrange again = claim(*state, A, "a");

	assert_int_equal(again.first, once.first);
}

static void test_the_range_survives_the_loss_of_the_registry(void **state)
{
	struct uidrange once = claim(*state, A, "a");

	drop(*state, "run");
	start_process(*state, 77, once.first + 3);
	assert_int_equal(claim(*state, A, "a").first, once.first);
}

static void test_two_instances_never_overlap(void **state)
{
	struct uidrange a = claim(*state, A, "a");
	struct uidrange b = claim(*state, B, "b");

	assert_false(overlap(a, b));
	assert_string_equal(removed, "");
}

static void test_a_fixed_range_of_another_is_refused_by_name(void **state)
{
	struct uidrange a = claim(*state, A, "a");
	struct uidrange range;
	struct err err;

	assert_err(with(*state, B, "b", a.first + 999, 10, &range, &err), &err, ERR_CONFLICT);
	assert_err_says(&err, "/a (");
	assert_err_says(&err, "network.uid_first");
	assert_ok(with(*state, B, "b", a.first + 1000, 10, &range, &err), &err);
}

static void test_a_claim_stays_while_its_state_directory_has_it(void **state)
{
	struct uidrange a = claim(*state, A, "a");
	struct uidrange range;
	struct err err;

	assert_err(with(*state, B, "b", a.first, 1000, &range, &err), &err, ERR_CONFLICT);
}

static void test_a_stale_claim_is_dropped_when_no_process_is_left(void **state)
{
	struct uidrange a = claim(*state, A, "a");
	struct uidrange range;
	struct err err;

	drop(*state, "a");
	start_process(*state, 77, a.first + 999);
	assert_err(with(*state, B, "b", a.first, 1000, &range, &err), &err, ERR_CONFLICT);
	assert_string_equal(removed, "");
	drop(*state, "proc/77");
	assert_ok(with(*state, B, "b", a.first, 1000, &range, &err), &err);
	assert_int_equal(range.first, a.first);
	assert_string_equal(removed, A " ");
}

static void test_a_claim_is_stale_when_its_directory_was_made_anew(void **state)
{
	struct uidrange a = claim(*state, A, "a");
	struct uidrange range;
	struct err err;

	drop(*state, "a");
	make_dir(*state, "a");
	assert_ok(with(*state, B, "a", a.first, 1000, &range, &err), &err);
	assert_int_equal(range.first, a.first);
}

static void test_auto_avoids_processes_users_and_subordinate_uids(void **state)
{
	struct uidrange first = claim(*state, A, "a");
	struct uidrange range;
	struct err err;
	char text[128];

	/* B's own slot is found out, then filled by each kind of user in turn. */
	for (int i = 0; i < 3; i++) {
		range = claim(*state, B, "b");
		assert_false(overlap(first, range));
		assert_ok(with(*state, B, "b", 0, 0, NULL, &err), &err);
		if (i == 0) {
			start_process(*state, 78, range.first);
		} else if (i == 1) {
			snprintf(text, sizeof text, "u:x:%u:1::/:/bin/sh\n", range.first + 999);
			put(*state, "etc/passwd", text);
		} else {
			snprintf(text, sizeof text, "u:%u:2\n", range.first - 1);
			put(*state, "etc/subuid", text);
		}
		assert_int_not_equal(claim(*state, B, "b").first, range.first);
		assert_ok(with(*state, B, "b", 0, 0, NULL, &err), &err);
	}
}

static void test_auto_tells_when_nothing_is_free(void **state)
{
	struct uidrange range;
	struct err err;

	put(*state, "etc/subuid", "everything:100000:500000\n");
	assert_err(with(*state, A, "a", 0, 1000, &range, &err), &err, ERR_UNAVAILABLE);
	assert_err_says(&err, "network.uid_first");
}

static void test_another_range_is_refused_while_sandboxes_run_in_the_old_one(void **state)
{
	struct uidrange a = claim(*state, A, "a");
	struct uidrange range;
	struct err err;

	start_process(*state, 77, a.first + 500);
	assert_err(with(*state, A, "a", 200000, 1000, &range, &err), &err, ERR_CONFLICT);
	assert_err_says(&err, "still run");
	assert_err(with(*state, A, "a", a.first, 500, &range, &err), &err, ERR_CONFLICT);
	assert_ok(with(*state, A, "a", a.first, 501, &range, &err), &err);
	drop(*state, "proc/77");
	assert_ok(with(*state, A, "a", 200000, 1000, &range, &err), &err);
	assert_int_equal(range.first, 200000);
}

static void test_release_waits_for_the_last_process(void **state)
{
	struct uidrange a = claim(*state, A, "a");
	struct uidrange range;
	struct err err;

	start_process(*state, 77, a.first);
	assert_err(with(*state, A, "a", 0, 0, NULL, &err), &err, ERR_CONFLICT);
	drop(*state, "proc/77");
	assert_ok(with(*state, A, "a", 0, 0, NULL, &err), &err);
	assert_ok(with(*state, A, "a", 0, 0, NULL, &err), &err);
	assert_ok(with(*state, B, "b", a.first, 1000, &range, &err), &err);
}

static void test_a_container_without_those_uids_is_told_so(void **state)
{
	struct uidrange range;
	struct err err;

	put(*state, "proc/self/uid_map", "0 100000 65536\n");
	assert_err(with(*state, A, "a", 0, 1000, &range, &err), &err, ERR_UNAVAILABLE);
	assert_err_says(&err, "container");
	assert_ok(with(*state, A, "a", 64536, 1000, &range, &err), &err);
}

static void test_a_damaged_claim_is_named_rather_than_overlooked(void **state)
{
	static const char *const texts[] = {"", "{", "[]", "{\"first\":300000}",
		"{\"instance\":\"" A "\",\"state_dir\":\"/a\",\"first\":0,\"count\":1000}",
		"{\"instance\":\"" A "\",\"state_dir\":\"/a\",\"first\":4294967295,\"count\":2}",
		"{\"instance\":\"" B "\",\"state_dir\":\"/a\",\"first\":300000,\"count\":1000}"};
	struct uidrange range;
	struct err err;

	claim(*state, B, "b");
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		put(*state, "run/uid-ranges/" A, texts[i]);
		assert_err(with(*state, B, "b", 0, 1000, &range, &err), &err, ERR_INTERNAL);
		assert_err_says(&err, "run/uid-ranges/" A);
	}
}

static void *hold_lock(void *arg)
{
	struct host *host = arg;
	_cleanup_free_ char *path = path_of(host, "run/uid-ranges/lock");
	_cleanup_close_ int fd = open(path, O_RDWR | O_CLOEXEC);

	if (fd < 0 || flock(fd, LOCK_EX) != 0) {
		return (void *)1;
	}
	put(host, "locked", "");
	usleep(200000);
	put(host, "run/uid-ranges/" A,
		"{\"instance\":\"" A
		"\",\"state_dir\":\"/nowhere\",\"first\":200000,\"count\":10}");
	start_process(host, 77, 200000);
	return NULL;
}

static void test_a_claim_waits_for_the_lock(void **state)
{
	struct host *host = *state;
	_cleanup_free_ char *locked = path_of(host, "locked");
	struct uidrange range;
	pthread_t thread;
	struct err err;
	void *failure;

	claim(host, B, "b");
	assert_int_equal(pthread_create(&thread, NULL, hold_lock, host), 0);
	while (access(locked, F_OK) != 0) {
		usleep(1000);
	}
	/* It sees what the other wrote under the lock. */
	assert_err(with(host, B, "b", 200005, 10, &range, &err), &err, ERR_CONFLICT);
	assert_int_equal(pthread_join(thread, &failure), 0);
	assert_null(failure);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

/* Taken for gone, it would lose its uids to somebody else. */
static void test_a_process_that_can_t_be_read_isn_t_taken_for_gone(void **state)
{
	struct host *host = *state;
	struct uidrange range;
	struct err err;

	make_dir(host, "proc/77");
	assert_ok(with(host, A, "a", 0, 1000, &range, &err), &err);
	make_dir(host, "proc/77/status");
	assert_err(with(host, B, "b", 0, 1000, &range, &err), &err, ERR_INTERNAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_auto_takes_a_slot_of_the_reserved_range),
		TEST(test_the_same_instance_claims_its_own_again),
		TEST(test_the_range_survives_the_loss_of_the_registry),
		TEST(test_two_instances_never_overlap),
		TEST(test_a_fixed_range_of_another_is_refused_by_name),
		TEST(test_a_claim_stays_while_its_state_directory_has_it),
		TEST(test_a_stale_claim_is_dropped_when_no_process_is_left),
		TEST(test_a_claim_is_stale_when_its_directory_was_made_anew),
		TEST(test_auto_avoids_processes_users_and_subordinate_uids),
		TEST(test_auto_tells_when_nothing_is_free),
		TEST(test_another_range_is_refused_while_sandboxes_run_in_the_old_one),
		TEST(test_release_waits_for_the_last_process),
		TEST(test_a_container_without_those_uids_is_told_so),
		TEST(test_a_damaged_claim_is_named_rather_than_overlooked),
		TEST(test_a_claim_waits_for_the_lock),
		TEST(test_a_process_that_can_t_be_read_isn_t_taken_for_gone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
