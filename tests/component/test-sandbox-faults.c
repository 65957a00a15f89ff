/*
 * Every named point of every plan: the daemon is killed there (kill -9, in a process of its own)
 * and another one takes over; or what is under way there fails, hangs or takes long. Afterwards
 * nothing is stranded, lost or there twice.
 *
 * The points aren't listed here: a run without faults tells which there are. TEST_POINT restricts
 * the test to those whose name begins with it.
 */
#include "tests/lib/world.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/fs.h"
#include "base/xalloc.h"

#define POINTS_MAX    128
#define EXIT_FINISHED 7
#define KEY           "key-1"

/* Lives of one sandbox that pass all points between them. */
static const struct scenario {
	const char *name;
	const char *faults;
} scenarios[] = {
	{"a life", ""},
	{"a creation that fails", "create.configure:fail"},
	{"a restart that fails", "restart.configure:fail"},
	{"a reset that fails early", "reset.prepare:fail"},
	{"a reset that fails late", "reset.configure:fail"},
};

/* ---- the points that a scenario passes ---- */

struct points {
	char names[POINTS_MAX][64]; /* "create.disk#1" */
	size_t count;
};

static void on_point(void *arg, const char *point)
{
	struct points *points = arg;
	unsigned times = 1;
	size_t len = strlen(point);

	for (size_t i = 0; i < points->count; i++) {
		times += strncmp(points->names[i], point, len) == 0 && points->names[i][len] == '#';
	}
	assert_true(points->count < POINTS_MAX);
	snprintf(points->names[points->count++], 64, "%s#%u", point, times);
}

/* ---- a life ---- */

static int begin_create(struct world *w, struct sandbox **ret, struct err *err)
{
	struct sandbox_create_spec spec = world_spec(w, "alpha");
	bool is_replay;

	spec.is_temporary = false;
	spec.idempotency_key = KEY;
	spec.request_hash = "hash";
	return sandbox_create(w->all, &spec, ret, &is_replay, err);
}

/* The one live sandbox; NULL: there is none. */
static struct sandbox *the_one(struct world *w)
{
	return sandbox_find(w->all, w->account, "alpha");
}

static void wait_ready(struct world *w)
{
	struct world_answer answer = {0};

	sandbox_wait_ready(the_one(w), world_on_wait, &answer);
	WORLD_UNTIL(w, answer.count == 1);
}

static void again(struct world *w, int (*begin)(struct sandbox *sb, struct err *err))
{
	struct err err;

	if (the_one(w) && begin(the_one(w), &err) == 0) {
		wait_ready(w);
	}
}

/* Whatever fails on the way. */
static void live(struct world *w)
{
	struct sandbox *sb;
	struct err err;

	if (begin_create(w, &sb, &err) == 0) {
		wait_ready(w);
	}
	again(w, sandbox_restart);
	again(w, sandbox_reset);
	again(w, sandbox_restart);
	if (the_one(w)) {
		sandbox_destroy(the_one(w), "deleted");
	}
	WORLD_UNTIL(w, sandboxes_count(w->all) == 0);
}

/* ---- what must hold ---- */

static void assert_nothing_is_left(struct world *w)
{
	assert_int_equal(sandboxes_count(w->all), 0);
	WORLD_UNTIL(w, fake_hv_count(w->hv) == 0);
	WORLD_UNTIL(
		w, world_count_entries(w, "sandboxes") == 0 && world_count_entries(w, "run") == 0);
	assert_int_equal(world_charged(w), 0);
	assert_int_equal(fake_guest_open_count(w->guests), 0);
}

static bool is_settled(struct world *w)
{
	struct sandbox *sb = the_one(w);

	return !sb || sandbox_state(sb) == SANDBOX_RUNNING || sandbox_state(sb) == SANDBOX_STOPPED;
}

/* After a kill: at most one sandbox, whole, and with what its row says. */
static void assert_whole(struct world *w)
{
	WORLD_UNTIL(w, is_settled(w));
	struct sandbox *sb = the_one(w);

	assert_int_equal(sandboxes_count(w->all), sb != NULL);
	assert_int_equal(world_charged(w), sb != NULL);
	WORLD_UNTIL(w, fake_hv_count(w->hv) ==
			       (the_one(w) && sandbox_state(the_one(w)) == SANDBOX_RUNNING));
	WORLD_UNTIL(w, world_count_entries(w, "sandboxes") == (the_one(w) != NULL));
	sb = the_one(w);
	if (sb && sandbox_state(sb) == SANDBOX_RUNNING) {
		const char *id = world_keep_id(sandbox_row(sb)->id);
		struct world_answer answer;

		assert_non_null(fake_hv_find(w->hv, id));
		WORLD_UNTIL(w, fake_guest_settings(w->guests, id) != NULL);
		world_run(w, 5);
		world_exec(w, id, "echo here", &answer);
		assert_int_equal(answer.kind, ERR_NONE);
	}
}

/*
 * Nothing that was answered is lost: what "row.running.done" has said, stays until it is asked to
 * go. And the key of the creation makes the sandbox once: it is free where that only failed.
 */
static void assert_once(struct world *w, const struct points *points, size_t at)
{
	bool is_there = false;
	bool is_known = false; /* it ran, or somebody deleted it */
	struct sandbox *sb;
	struct err err = ERR_INIT;

	for (size_t i = 0; i <= at; i++) {
		const char *name = points->names[i];

		if (strncmp(name, "row.running.done", 16) == 0) {
			is_there = is_known = true;
		} else if (strncmp(name, "row.deleting.done", 17) == 0) {
			is_there = false;
			is_known = true;
		}
	}
	struct sandbox *before = the_one(w);

	if (is_there != (before != NULL)) {
		fail_msg("after a kill at %s there %s", points->names[at],
			is_there ? "is no sandbox" : "is one");
	}
	if (begin_create(w, &sb, &err) == 0) {
		assert_true(before ? sb == before : !is_known);
	} else if (!is_known || err.kind != ERR_ENDED) {
		fail_msg("after a kill at %s: %s", points->names[at], err.msg);
	}
}

/* ---- the runs ---- */

static bool is_wished(const char *point)
{
	const char *wish = getenv("TEST_POINT");

	return !wish || strncmp(point, wish, strlen(wish)) == 0;
}

static void trace(const struct scenario *scenario, struct points *ret)
{
	struct world *w = world_new(NULL);

	*ret = (struct points){.count = 0};
	fault_set(scenario->faults);
	fault_watch(on_point, ret);
	live(w);
	fault_watch(NULL, NULL);
	fault_set(NULL);
	assert_nothing_is_left(w);
	world_free(w);
	assert_true(ret->count > 10);
}

/* A process that lives until the point. */
static void run_killed(const char *dir, const char *faults)
{
	pid_t child = fork();
	int status;

	assert_true(child >= 0);
	if (child == 0) {
		struct world *w = world_new_in(dir);

		world_start(w);
		fault_set(faults);
		live(w);
		_exit(EXIT_FINISHED);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) {
		fail_msg("%s: status %#x instead of a kill", faults, (unsigned)status);
	}
}

static void test_a_kill_at_any_point_is_repaired(void **state)
{
	static struct points points;
	unsigned runs = 0;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(scenarios); i++) {
		trace(&scenarios[i], &points);
		for (size_t at = 0; at < points.count; at++) {
			char dir[WORLD_DIR_BYTES];
			char faults[160];

			if (!is_wished(points.names[at])) {
				continue;
			}
			snprintf(faults, sizeof faults, "%s:kill%s%s", points.names[at],
				scenarios[i].faults[0] ? "," : "", scenarios[i].faults);
			run_killed(world_make_dir(dir), faults);
			struct world *w = world_new_in(dir);

			world_start(w);
			assert_whole(w);
			assert_once(w, &points, at);
			/* And it can be used on: the same name, the same key. */
			live(w);
			assert_nothing_is_left(w);
			world_free(w);
			runs++;
		}
		print_message("  %s: %zu points\n", scenarios[i].name, points.count);
	}
	assert_true(runs > 0);
}

static void test_what_fails_hangs_or_is_slow_anywhere_leaves_nothing(void **state)
{
	static const char *const actions[] = {"fail", "hang", "delay"};
	static struct points points;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(scenarios); i++) {
		trace(&scenarios[i], &points);
		for (size_t at = 0; at < points.count * ARRAY_SIZE(actions); at++) {
			const char *point = points.names[at % points.count];
			const char *action = actions[at / points.count];
			char faults[160];

			/* Of those only the step itself can hang or be slow. */
			if (!is_wished(point) || (strcmp(action, "fail") != 0 &&
							 (strstr(point, ".done") ||
								 strncmp(point, "row.", 4) == 0))) {
				continue;
			}
			snprintf(faults, sizeof faults, "%s:%s%s%s", point, action,
				scenarios[i].faults[0] ? "," : "", scenarios[i].faults);
			struct world *w = world_new(NULL);

			fault_set(faults);
			live(w);
			fault_set(NULL);
			assert_nothing_is_left(w);
			world_free(w);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_kill_at_any_point_is_repaired),
		cmocka_unit_test(test_what_fails_hangs_or_is_slow_anywhere_leaves_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
