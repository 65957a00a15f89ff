#include "tests/lib/cm.h"

#include <semaphore.h>

#include "base/clock.h"
#include "loop/loop.h"
#include "loop/worker.h"
#include "tests/unit/image/fixture.h"

#define PATIENCE_MS 30000
#define QUEUE_MAX   4

static struct loop *loop;
static struct worker_pool *pool;
static struct images *images;

static int open_all(void **state)
{
	static const struct worker_limits limits = {.threads = 1, .queue_max = QUEUE_MAX};
	struct err err = ERR_INIT;

	if (tmpdir_make(state) != 0) {
		return -1;
	}
	struct images_config config = fixture_config();

	loop = loop_new(&err);
	pool = loop ? worker_pool_new(loop, "images", &limits, &err) : NULL;
	images = pool ? images_new(loop, pool, &config) : NULL;
	return images ? 0 : -1;
}

static int close_all(void **state)
{
	worker_pool_free(pool, PATIENCE_MS);
	images_free(images);
	loop_free(loop);
	return tmpdir_drop(state);
}

struct outcome {
	unsigned calls;
	struct err err;
};

static void on_done(void *arg, const struct err *err)
{
	struct outcome *outcome = arg;

	outcome->calls++;
	outcome->err = err ? *err : ERR_INIT;
}

static void refresh(void)
{
	struct outcome outcome = {0};

	images_refresh(images, on_done, &outcome);
	assert_int_equal(outcome.calls, 0);
	await(loop, outcome.calls == 1, PATIENCE_MS);
	assert_int_equal(outcome.err.kind, ERR_NONE);
}

static void prepare(const char *name, const char *version, struct outcome *ret)
{
	*ret = (struct outcome){0};
	image_prepare(images, name, version, on_done, ret);
	assert_int_equal(ret->calls, 0);
	await(loop, ret->calls == 1, PATIENCE_MS);
}

static void expect_version(const char *name, const char *version, const char *expected)
{
	struct err err = ERR_INIT;
	_cleanup_image_ struct image *image = image_get(images, name, version, &err);

	if (!image) {
		fail_msg("%s", err.msg);
	}
	assert_string_equal(image->version, expected);
}

static void expect_failure(
	const char *name, const char *version, enum err_kind kind, const char *text)
{
	struct err err = ERR_INIT;

	assert_null(image_get(images, name, version, &err));
	assert_int_equal(err.kind, kind);
	assert_err_says(&err, text);
}

struct listing {
	char text[512];
};

static void on_status(void *arg, const struct image_status *status)
{
	static const char *const states[] = {"verifying", "good", "refused"};
	struct listing *listing = arg;
	size_t len = strlen(listing->text);

	assert_int_equal(status->image != NULL, status->state == IMAGE_GOOD);
	snprintf(listing->text + len, sizeof(listing->text) - len, "%s%s%s %s%s%s; ", status->name,
		status->is_current ? "" : " (old)", status->is_default ? " (default)" : "",
		states[status->state], status->problem ? ": " : "",
		status->problem ? status->problem : "");
}

static void expect_list(const char *expected)
{
	struct listing listing = {""};

	images_each(images, on_status, &listing);
	assert_string_equal(listing.text, expected);
}

/* ---- what is offered ---- */

static void test_nothing_is_offered_before_it_was_verified(void **state)
{
	char version[FIXTURE_VERSION_BYTES];

	(void)state;
	fixture_image("minimal", "base", version);
	assert_false(images_is_ready(images));
	expect_failure(NULL, NULL, ERR_UNAVAILABLE, "is being verified");
	refresh();
	assert_true(images_is_ready(images));
	expect_version(NULL, NULL, version);
	expect_version("minimal", version, version);
}

static void test_absent_directory_is_an_empty_catalogue(void **state)
{
	struct images_config config = fixture_config();
	_cleanup_free_ char *nowhere = tmpdir_path("nowhere");
	struct outcome outcome = {0};
	struct err err = ERR_INIT;

	(void)state;
	config.dir = nowhere;
	struct images *empty = images_new(loop, pool, &config);

	images_refresh(empty, on_done, &outcome);
	await(loop, outcome.calls == 1, PATIENCE_MS);
	assert_int_equal(outcome.err.kind, ERR_NONE);
	assert_true(images_is_ready(empty));
	assert_null(image_get(empty, NULL, NULL, &err));
	assert_int_equal(err.kind, ERR_NOT_FOUND);
	assert_err_says(&err, "there are: none");
	images_free(empty);
}

static void test_unknown_names_are_told_what_there_is(void **state)
{
	char version[FIXTURE_VERSION_BYTES];

	(void)state;
	fixture_image("minimal", "base", version);
	fixture_image("default", "big base", version);
	refresh();
	expect_failure("other", NULL, ERR_NOT_FOUND, "there are: default, minimal");
	expect_failure("../minimal", NULL, ERR_NOT_FOUND, "not the name of an image");
	expect_failure("minimal", "../x", ERR_NOT_FOUND, "there are");
	expect_failure("minimal", "0123456789abcdef", ERR_NOT_FOUND, "is not there");
}

static void test_damaged_image_is_refused_by_name_and_others_arent(void **state)
{
	char version[FIXTURE_VERSION_BYTES];
	char other[FIXTURE_VERSION_BYTES];

	(void)state;
	fixture_image("minimal", "base", version);
	fixture_image("default", "big base", other);
	_cleanup_free_ char *path = fixture_path("minimal", version, "root.qcow2");
	fixture_damage(path);
	refresh();
	expect_failure("minimal", NULL, ERR_UNAVAILABLE,
		"image \"minimal\" is refused: root.qcow2 doesn't match its manifest");
	expect_version("default", NULL, other);
	expect_list("default good; "
		    "minimal (default) refused: root.qcow2 doesn't match its manifest; ");
}

static void test_current_that_names_no_version_is_refused(void **state)
{
	char version[FIXTURE_VERSION_BYTES];

	(void)state;
	fixture_image("minimal", "base", version);
	fixture_set_current("minimal", "/etc");
	refresh();
	expect_failure(NULL, NULL, ERR_UNAVAILABLE, "\"current\" is not a link to a version");
	expect_list("minimal (default) refused: \"current\" is not a link to a version; ");
	fixture_set_current("minimal", version);
	refresh();
	expect_version(NULL, NULL, version);
	expect_list("minimal (default) good; ");
}

/* ---- changes under way ---- */

static void test_damage_after_verification_is_found_at_the_next_use(void **state)
{
	char version[FIXTURE_VERSION_BYTES];
	struct outcome outcome;

	(void)state;
	fixture_image("minimal", "base", version);
	refresh();
	_cleanup_free_ char *path = fixture_path("minimal", version, "root.qcow2");
	fixture_damage(path);
	expect_failure(NULL, NULL, ERR_UNAVAILABLE, "is being verified");
	prepare(NULL, NULL, &outcome);
	assert_int_equal(outcome.err.kind, ERR_UNAVAILABLE);
	assert_err_says(&outcome.err, "image \"minimal\" is refused: root.qcow2");

	/* Put right, it is found to be, too. */
	fixture_damage(path);
	prepare(NULL, NULL, &outcome);
	assert_int_equal(outcome.err.kind, ERR_NONE);
	expect_version(NULL, NULL, version);
}

static void test_touched_but_equal_files_are_good_again(void **state)
{
	char version[FIXTURE_VERSION_BYTES];
	struct outcome outcome;

	(void)state;
	fixture_image("minimal", "base", version);
	refresh();
	_cleanup_free_ char *path = fixture_path("minimal", version, "root.qcow2");
	fixture_write(path, "base");
	expect_failure(NULL, NULL, ERR_UNAVAILABLE, "is being verified");
	prepare(NULL, NULL, &outcome);
	assert_int_equal(outcome.err.kind, ERR_NONE);
	expect_version(NULL, NULL, version);
}

static void test_old_version_serves_until_the_new_one_is_verified(void **state)
{
	char old[FIXTURE_VERSION_BYTES];
	char new[FIXTURE_VERSION_BYTES];
	struct outcome outcome;

	(void)state;
	fixture_image("minimal", "base", old);
	refresh();
	fixture_image("minimal", "new base", new);
	assert_string_not_equal(old, new);
	expect_version(NULL, NULL, old);
	prepare(NULL, NULL, &outcome);
	assert_int_equal(outcome.err.kind, ERR_NONE);
	expect_version(NULL, NULL, new);
	/* The old one stays for those that were made from it. */
	expect_version("minimal", old, old);

	/* And back again, without a pause. */
	fixture_set_current("minimal", old);
	expect_version(NULL, NULL, old);
}

static void test_damaged_new_version_isnt_hidden_by_the_old_one(void **state)
{
	char old[FIXTURE_VERSION_BYTES];
	char new[FIXTURE_VERSION_BYTES];

	(void)state;
	fixture_image("minimal", "base", old);
	refresh();
	fixture_image("minimal", "new base", new);
	_cleanup_free_ char *path = fixture_path("minimal", new, "vmlinuz");
	fixture_damage(path);
	refresh();
	expect_failure(NULL, NULL, ERR_UNAVAILABLE, "vmlinuz doesn't match");
	expect_version("minimal", old, old);
}

static void test_version_of_an_older_sandbox_is_found_after_a_restart(void **state)
{
	char old[FIXTURE_VERSION_BYTES];
	char new[FIXTURE_VERSION_BYTES];
	struct outcome outcome;

	(void)state;
	fixture_image("minimal", "base", old);
	fixture_image("minimal", "new base", new);
	refresh();
	expect_list("minimal (default) good; ");
	prepare("minimal", old, &outcome);
	assert_int_equal(outcome.err.kind, ERR_NONE);
	expect_version("minimal", old, old);
	prepare("minimal", "0123456789abcdef", &outcome);
	assert_int_equal(outcome.err.kind, ERR_NOT_FOUND);
	prepare("../x", NULL, &outcome);
	assert_int_equal(outcome.err.kind, ERR_NOT_FOUND);
}

static void test_removed_version_leaves_the_catalogue(void **state)
{
	char old[FIXTURE_VERSION_BYTES];
	char new[FIXTURE_VERSION_BYTES];
	struct err err;

	(void)state;
	fixture_image("minimal", "base", old);
	refresh();
	fixture_image("minimal", "new base", new);
	refresh();
	_cleanup_free_ char *dir = xasprintf("%s/minimal/%s", tmpdir, old);
	assert_ok(fs_remove_tree(dir, &err), &err);
	refresh();
	expect_list("minimal (default) good; ");
	expect_failure("minimal", old, ERR_NOT_FOUND, "is not there");
}

static void test_image_outlives_its_entry(void **state)
{
	char version[FIXTURE_VERSION_BYTES];
	struct err err = ERR_INIT;

	(void)state;
	fixture_image("minimal", "base", version);
	refresh();
	_cleanup_image_ struct image *image = image_get(images, NULL, NULL, &err);
	assert_non_null(image);
	_cleanup_free_ char *home = tmpdir_path("minimal");
	assert_ok(fs_remove_tree(home, &err), &err);
	refresh();
	expect_list("");
	assert_string_equal(image->version, version);
}

/* ---- waiting ---- */

static void test_each_waiter_is_called_once(void **state)
{
	char version[FIXTURE_VERSION_BYTES];
	struct outcome outcomes[6] = {0};

	(void)state;
	fixture_image("minimal", "base", version);
	for (size_t i = 0; i < ARRAY_SIZE(outcomes); i++) {
		if (i % 2) {
			images_refresh(images, on_done, &outcomes[i]);
		} else {
			image_prepare(images, NULL, NULL, on_done, &outcomes[i]);
		}
	}
	await(loop, outcomes[5].calls == 1 && outcomes[0].calls == 1, PATIENCE_MS);
	refresh();
	for (size_t i = 0; i < ARRAY_SIZE(outcomes); i++) {
		assert_int_equal(outcomes[i].calls, 1);
		assert_int_equal(outcomes[i].err.kind, ERR_NONE);
	}
}

static void test_waiter_that_comes_during_a_scan_sees_what_came_before_it(void **state)
{
	char version[FIXTURE_VERSION_BYTES];
	struct outcome first = {0};
	struct outcome second = {0};

	(void)state;
	images_refresh(images, on_done, &first);
	/* Made after that scan was started, which may or may not see it. */
	fixture_image("minimal", "base", version);
	image_prepare(images, NULL, NULL, on_done, &second);
	await(loop, second.calls == 1, PATIENCE_MS);
	assert_int_equal(first.calls, 1);
	assert_int_equal(second.err.kind, ERR_NONE);
	expect_version(NULL, NULL, version);
}

static sem_t gate;

static void block(struct worker_job *job)
{
	(void)job;
	sem_wait(&gate);
}

static size_t blocked;

static void on_blocked(struct worker_job *job, const struct err *err)
{
	(void)job;
	(void)err;
	blocked++;
}

static bool is_running(void)
{
	struct worker_stats stats;

	worker_pool_stats(pool, &stats);
	return stats.running == 1;
}

static void submit_block(struct worker_job *job)
{
	struct err err;

	job->run = block;
	job->done = on_blocked;
	assert_ok(worker_submit(pool, job, &err), &err);
}

static void test_full_pool_is_told_to_the_waiter_later(void **state)
{
	struct worker_job jobs[1 + QUEUE_MAX] = {0};
	struct outcome outcome = {0};

	(void)state;
	assert_int_equal(sem_init(&gate, 0, 0), 0);
	submit_block(&jobs[0]);
	await(loop, is_running(), PATIENCE_MS);
	for (size_t i = 1; i < ARRAY_SIZE(jobs); i++) {
		submit_block(&jobs[i]);
	}
	images_refresh(images, on_done, &outcome);
	assert_int_equal(outcome.calls, 0);
	await(loop, outcome.calls == 1, PATIENCE_MS);
	assert_int_equal(outcome.err.kind, ERR_UNAVAILABLE);
	assert_false(images_is_ready(images));

	for (size_t i = 0; i < ARRAY_SIZE(jobs); i++) {
		sem_post(&gate);
	}
	await(loop, blocked == ARRAY_SIZE(jobs), PATIENCE_MS);
	refresh();
	sem_destroy(&gate);
}

static struct outcome at_shutdown;
static struct outcome behind_at_shutdown;

static void test_shutdown_answers_who_waits(void **state)
{
	char version[FIXTURE_VERSION_BYTES];

	(void)state;
	fixture_image("minimal", "base", version);
	images_refresh(images, on_done, &at_shutdown);
	/* This one is for the next scan, for which there is no pool any more. */
	image_prepare(images, "minimal", NULL, on_done, &behind_at_shutdown);
	/* close_all() frees pool and catalogue while this is under way. */
}

static int close_all_and_look(void **state)
{
	int r = close_all(state);

	return at_shutdown.calls == 1 && behind_at_shutdown.calls == 1 &&
			       behind_at_shutdown.err.kind == ERR_CANCELLED
		       ? r
		       : -1;
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, open_all, close_all)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_nothing_is_offered_before_it_was_verified),
		TEST(test_absent_directory_is_an_empty_catalogue),
		TEST(test_unknown_names_are_told_what_there_is),
		TEST(test_damaged_image_is_refused_by_name_and_others_arent),
		TEST(test_current_that_names_no_version_is_refused),
		TEST(test_damage_after_verification_is_found_at_the_next_use),
		TEST(test_touched_but_equal_files_are_good_again),
		TEST(test_old_version_serves_until_the_new_one_is_verified),
		TEST(test_damaged_new_version_isnt_hidden_by_the_old_one),
		TEST(test_version_of_an_older_sandbox_is_found_after_a_restart),
		TEST(test_removed_version_leaves_the_catalogue),
		TEST(test_image_outlives_its_entry),
		TEST(test_each_waiter_is_called_once),
		TEST(test_waiter_that_comes_during_a_scan_sees_what_came_before_it),
		TEST(test_full_pool_is_told_to_the_waiter_later),
		cmocka_unit_test_setup_teardown(
			test_shutdown_answers_who_waits, open_all, close_all_and_look),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
