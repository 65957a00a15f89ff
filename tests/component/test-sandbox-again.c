/* Restart and reset: what stays, what goes, and what a failure at each step leaves. */
#include "tests/lib/world.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/xalloc.h"

enum again { RESTART, RESET };

static char *disk_path(struct world *w, const char *id, const char *name)
{
	return xasprintf("%s/sandboxes/%s/disk/%s", w->dir, id, name);
}

/* What is on its disk; each fresh one has another text. */
static void read_disk(struct world *w, const char *id, char ret[32])
{
	_cleanup_free_ char *path = disk_path(w, id, "overlay.qcow2");
	_cleanup_free_ char *text = NULL;
	struct err err;

	assert_ok(fs_read(path, 32, &text, NULL, &err), &err);
	snprintf(ret, 32, "%s", text);
}

static bool has_disk(struct world *w, const char *id, const char *name)
{
	_cleanup_free_ char *path = disk_path(w, id, name);

	return access(path, F_OK) == 0;
}

static void remove_disk(struct world *w, const char *id)
{
	_cleanup_free_ char *path = disk_path(w, id, "overlay.qcow2");

	assert_int_equal(unlink(path), 0);
}

static const char *running(struct world *w, bool is_temporary)
{
	struct sandbox_create_spec spec = world_spec(w, "alpha");

	spec.is_temporary = is_temporary;
	const char *id = world_create_spec(w, &spec);

	WORLD_UNTIL(w, world_is_state(w, id, "running"));
	return id;
}

static int begin(struct world *w, const char *id, enum again again, struct err *err)
{
	struct sandbox *sb = world_find(w, id);

	assert_non_null(sb);
	return again == RESTART ? sandbox_restart(sb, err) : sandbox_reset(sb, err);
}

/* Begins it and waits for its end. */
static void do_again(struct world *w, const char *id, enum again again, struct world_answer *ret)
{
	struct err err = ERR_INIT;

	*ret = (struct world_answer){0};
	if (begin(w, id, again, &err) != 0) {
		fail_msg("%s", err.msg);
	}
	sandbox_wait_ready(world_find(w, id), world_on_wait, ret);
	WORLD_UNTIL(w, ret->count > 0);
}

static void assert_works(struct world *w, const char *id)
{
	struct world_answer answer;

	world_exec(w, id, "echo here", &answer);
	assert_int_equal(answer.kind, ERR_NONE);
	assert_string_equal(answer.out, "here\n");
}

static void test_a_restart_keeps_the_disk_and_a_reset_makes_a_fresh_one(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = running(w, true);
	struct world_answer answer;
	char before[32], after[32];

	(void)state;
	int64_t expiry = sandbox_row(world_find(w, id))->expires_at_ms;
	pid_t pid = fake_hv_find(w->hv, id)->facts.pid;

	read_disk(w, id, before);
	do_again(w, id, RESTART, &answer);
	assert_int_equal(answer.kind, ERR_NONE);
	read_disk(w, id, after);
	assert_string_equal(before, after);
	/* The guest was asked, and it is another domain now. */
	assert_int_equal(fake_guest_calls(w->guests, FAKE_GUEST_SHUTDOWN), 1);
	assert_int_not_equal(fake_hv_find(w->hv, id)->facts.pid, pid);
	assert_works(w, id);

	do_again(w, id, RESET, &answer);
	assert_int_equal(answer.kind, ERR_NONE);
	read_disk(w, id, after);
	assert_string_not_equal(before, after);
	assert_false(has_disk(w, id, "overlay.next"));
	assert_int_equal(fake_guest_calls(w->guests, FAKE_GUEST_SHUTDOWN), 1);
	assert_works(w, id);
	assert_non_null(sandbox_find(w->all, w->account, "alpha"));
	assert_int_equal(sandbox_row(world_find(w, id))->expires_at_ms, expiry);
	assert_int_equal(world_charged(w), 1);
	world_destroy(w, id);
	WORLD_UNTIL(w, world_is_state(w, id, "deleted"));
	assert_true(world_is_clean(w, id));
	world_free(w);
}

static void test_a_stopped_one_is_started_and_loses_its_reason(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = running(w, false);
	struct world_answer answer;

	(void)state;
	fake_hv_stop_domain(w->hv, id, true);
	WORLD_UNTIL(w, world_is_state(w, id, "stopped"));
	assert_string_equal(world_reason(w, id), "guest_shutdown");
	do_again(w, id, RESTART, &answer);
	assert_int_equal(answer.kind, ERR_NONE);
	assert_string_equal(world_state(w, id), "running");
	assert_string_equal(world_reason(w, id), "");
	assert_works(w, id);
	world_free(w);
}

static void test_a_guest_that_does_not_power_off_is_not_waited_for_long(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = running(w, true);
	struct world_answer answer;

	(void)state;
	/* It says no; the driver gives it up; it says nothing at all, up to the end of the grace.
	 */
	static const enum fake_mode modes[] = {FAKE_FAIL, FAKE_TIMEOUT, FAKE_HOLD};

	for (size_t i = 0; i < ARRAY_SIZE(modes); i++) {
		fake_guest_script(w->guests, FAKE_GUEST_SHUTDOWN,
			&(struct fake_script){.mode = modes[i], .times = 1, .delay_ms = 20});
		do_again(w, id, RESTART, &answer);
		assert_int_equal(answer.kind, ERR_NONE);
	}
	assert_works(w, id);
	world_free(w);
}

static void test_only_what_is_at_rest_can_be_restarted(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_create(w, NULL);
	struct err err;

	(void)state;
	assert_err(begin(w, id, RESTART, &err), &err, ERR_CONFLICT);
	WORLD_UNTIL(w, world_is_state(w, id, "running"));
	world_run(w, 20);
	fake_hv_script(w->hv, FAKE_HV_START, &(struct fake_script){.mode = FAKE_HOLD, .times = 1});
	assert_ok(begin(w, id, RESTART, &err), &err);
	assert_err(begin(w, id, RESET, &err), &err, ERR_CONFLICT);
	assert_non_null(strstr(err.msg, "is being restarted"));
	WORLD_UNTIL(w, fake_hv_held(w->hv, FAKE_HV_START) == 1);

	/* What else is asked for meanwhile. */
	const struct sandbox_exec_spec exec = {.command = "true"};
	struct world_answer answer = {0};

	assert_null(sandbox_exec(world_find(w, id), &exec, world_on_exec, &answer, &err));
	assert_int_equal(err.kind, ERR_CONFLICT);
	assert_err(sandbox_extend(world_find(w, id), 1, world_on_extend, &answer, &err), &err,
		ERR_CONFLICT);
	fake_hv_release(w->hv, FAKE_HV_START);
	WORLD_UNTIL(w, world_is_state(w, id, "running"));
	world_destroy(w, id);
	assert_err(begin(w, id, RESTART, &err), &err, ERR_ENDED);
	WORLD_UNTIL(w, sandboxes_count(w->all) == 0);
	world_free(w);
}

static void test_one_without_its_disk_can_only_be_reset(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = running(w, false);
	struct world_answer answer;
	struct err err;

	(void)state;
	remove_disk(w, id);
	world_run(w, 20);
	assert_err(begin(w, id, RESTART, &err), &err, ERR_CONFLICT);
	assert_non_null(strstr(err.msg, "disk"));
	do_again(w, id, RESET, &answer);
	assert_int_equal(answer.kind, ERR_NONE);
	assert_true(has_disk(w, id, "overlay.qcow2"));
	assert_works(w, id);
	world_free(w);
}

/* A call of the hypervisor that fails; what is left then. */
static const struct {
	enum again again;
	enum fake_hv_op op;
	const char *state;
	bool is_disk_fresh;
} failures[] = {
	{RESTART, FAKE_HV_DESTROY, "stopped", false},
	{RESTART, FAKE_HV_START, "stopped", false},
	{RESET, FAKE_HV_DISK_PREPARE, "running", false},
	{RESET, FAKE_HV_DESTROY, "stopped", false},
	{RESET, FAKE_HV_DISK_SWAP, "stopped", false},
	{RESET, FAKE_HV_START, "stopped", true},
};

static void test_a_failure_leaves_a_state_that_can_be_started_from(void **state)
{
	static const enum fake_mode modes[] = {FAKE_FAIL, FAKE_EFFECT_FAIL, FAKE_TIMEOUT};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(failures) * ARRAY_SIZE(modes); i++) {
		size_t at = i / ARRAY_SIZE(modes);
		enum fake_mode mode = modes[i % ARRAY_SIZE(modes)];
		struct world *w = world_new(NULL);
		const char *id = running(w, i % 2);
		struct world_answer answer;
		char before[32], after[32];

		read_disk(w, id, before);
		fake_hv_script(w->hv, failures[at].op,
			&(struct fake_script){
				.mode = mode, .times = 1, .kind = ERR_UNAVAILABLE, .delay_ms = 5});
		do_again(w, id, failures[at].again, &answer);
		assert_int_not_equal(answer.kind, ERR_NONE);
		assert_string_equal(world_state(w, id), failures[at].state);
		assert_false(has_disk(w, id, "overlay.next"));
		read_disk(w, id, after);
		/* A swap that takes effect and fails all the same is one. */
		bool is_swap_done = failures[at].op == FAKE_HV_DISK_SWAP &&
				    mode == FAKE_EFFECT_FAIL;

		assert_int_equal(
			strcmp(before, after) != 0, failures[at].is_disk_fresh || is_swap_done);
		if (strcmp(failures[at].state, "stopped") == 0) {
			assert_null(fake_hv_find(w->hv, id));
			assert_non_null(strstr(world_reason(w, id), "re"));
			do_again(w, id, RESTART, &answer);
			assert_int_equal(answer.kind, ERR_NONE);
		}
		assert_works(w, id);
		world_free(w);
	}
}

static void test_a_guest_that_does_not_come_back_leaves_it_stopped(void **state)
{
	struct world *w = world_new_stopped(NULL);

	(void)state;
	w->config.boot_timeout_ms = 200;
	world_start(w);
	const char *id = running(w, false);
	struct world_answer answer;

	fake_guest_set_hello_delay(w->guests, -1);
	do_again(w, id, RESTART, &answer);
	assert_int_equal(answer.kind, ERR_TIMEOUT);
	assert_string_equal(world_state(w, id), "stopped");
	assert_null(fake_hv_find(w->hv, id));
	fake_guest_set_hello_delay(w->guests, 0);
	do_again(w, id, RESTART, &answer);
	assert_int_equal(answer.kind, ERR_NONE);
	world_free(w);
}

/* At each call of the hypervisor while it goes on. */
static void test_a_removal_in_the_middle_leaves_nothing(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(failures); i++) {
		struct world *w = world_new(NULL);
		const char *id = running(w, false);
		struct world_answer answer = {0};
		struct err err;

		fake_hv_script(w->hv, failures[i].op,
			&(struct fake_script){.mode = FAKE_HOLD, .times = 1});
		assert_ok(begin(w, id, failures[i].again, &err), &err);
		sandbox_wait_ready(world_find(w, id), world_on_wait, &answer);
		WORLD_UNTIL(w, fake_hv_held(w->hv, failures[i].op) == 1);
		world_destroy(w, id);
		WORLD_UNTIL(w, answer.count == 1);
		assert_int_equal(answer.kind, ERR_ENDED);
		fake_hv_release(w->hv, failures[i].op);
		WORLD_UNTIL(w, sandboxes_count(w->all) == 0);
		assert_string_equal(world_state(w, id), "deleted");
		assert_string_equal(world_reason(w, id), "deleted");
		assert_true(world_is_clean(w, id));
		assert_int_equal(world_charged(w), 0);
		world_free(w);
	}
}

/* The same with a daemon that dies there: it is done again, and to its end. */
static void test_an_interrupted_one_is_done_once_more(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(failures); i++) {
		struct world *w = world_new(NULL);
		const char *id = running(w, true);
		char before[32], after[32];
		struct err err;

		read_disk(w, id, before);
		fake_hv_script(w->hv, failures[i].op,
			&(struct fake_script){.mode = FAKE_HOLD, .times = 1});
		assert_ok(begin(w, id, failures[i].again, &err), &err);
		WORLD_UNTIL(w, fake_hv_held(w->hv, failures[i].op) == 1);
		world_stop(w);
		fake_hv_release(w->hv, failures[i].op);
		world_start(w);
		WORLD_UNTIL(w, world_is_state(w, id, "running"));
		WORLD_UNTIL(w, fake_guest_settings(w->guests, id) != NULL);
		read_disk(w, id, after);
		assert_int_equal(strcmp(before, after) != 0, failures[i].again == RESET);
		assert_false(has_disk(w, id, "overlay.next"));
		assert_works(w, id);
		assert_int_equal(fake_hv_count(w->hv), 1);
		world_free(w);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_restart_keeps_the_disk_and_a_reset_makes_a_fresh_one),
		cmocka_unit_test(test_a_stopped_one_is_started_and_loses_its_reason),
		cmocka_unit_test(test_a_guest_that_does_not_power_off_is_not_waited_for_long),
		cmocka_unit_test(test_only_what_is_at_rest_can_be_restarted),
		cmocka_unit_test(test_one_without_its_disk_can_only_be_reset),
		cmocka_unit_test(test_a_failure_leaves_a_state_that_can_be_started_from),
		cmocka_unit_test(test_a_guest_that_does_not_come_back_leaves_it_stopped),
		cmocka_unit_test(test_a_removal_in_the_middle_leaves_nothing),
		cmocka_unit_test(test_an_interrupted_one_is_done_once_more),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
