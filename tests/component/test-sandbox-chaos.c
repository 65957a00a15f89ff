/*
 * Random calls, faults, events and restarts; in the end everything is destroyed and nothing may be
 * left. The seed is printed; TEST_SEED repeats a run, TEST_ROUNDS lengthens it.
 */
#include "tests/lib/world.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/xalloc.h"

#define SLOTS 6

static unsigned long long seed;

static unsigned pick(unsigned count)
{
	seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
	return (unsigned)(seed >> 33) % count;
}

/* What was asked and not yet answered. */
static unsigned asked;
static unsigned answered;

static void on_wait(void *arg, struct sandbox *sb, const struct err *err)
{
	(void)arg;
	(void)sb;
	(void)err;
	answered++;
}

static void on_exec(void *arg, const struct sandbox_exec_result *result, const struct err *err)
{
	(void)arg;
	assert_true((result == NULL) == (err != NULL));
	answered++;
}

static void on_extend(void *arg, int64_t expires_at_ms, const struct err *err)
{
	(void)arg;
	(void)expires_at_ms;
	(void)err;
	answered++;
}

static void fault(struct world *w)
{
	static const enum fake_mode modes[] = {
		FAKE_OK, FAKE_FAIL, FAKE_EFFECT_FAIL, FAKE_TIMEOUT, FAKE_HOLD};
	const struct fake_script script = {.mode = modes[pick(ARRAY_SIZE(modes))],
		.times = 1 + pick(2),
		.skip = pick(2),
		.delay_ms = pick(20),
		.late_ms = pick(2) * (1 + pick(40))};

	if (pick(3) == 0) {
		fake_guest_script(w->guests, pick(FAKE_GUEST_OP_MAX), &script);
	} else {
		fake_hv_script(w->hv, pick(FAKE_HV_OP_MAX), &script);
	}
}

static void heal(struct world *w)
{
	for (unsigned op = 0; op < FAKE_HV_OP_MAX; op++) {
		fake_hv_release(w->hv, op);
	}
	for (unsigned op = 0; op < FAKE_GUEST_OP_MAX; op++) {
		fake_guest_release(w->guests, op);
	}
	fake_guest_set_hello_delay(w->guests, 0);
}

static const char *create(struct world *w)
{
	struct sandbox_create_spec spec = world_spec(w, NULL);
	struct sandbox *sb;
	bool is_replay;
	struct err err;

	spec.is_temporary = pick(4) > 0;
	spec.network = pick(2) ? SANDBOX_NETWORK_DEFAULT : SANDBOX_NETWORK_NONE;
	if (sandbox_create(w->all, &spec, &sb, &is_replay, &err) != 0) {
		assert_int_equal(err.kind, ERR_UNAVAILABLE);
		return NULL;
	}
	asked += 2;
	sandbox_wait_ready(sb, on_wait, NULL);
	sandbox_wait_gone(sb, on_wait, NULL);
	return world_keep_id(sandbox_row(sb)->id);
}

static void exec(struct world *w, const char *id)
{
	static const char *const commands[] = {"true", "hang", "sleep 20", "bytes 3000"};
	const struct sandbox_exec_spec spec = {.command = commands[pick(ARRAY_SIZE(commands))]};
	struct err err;
	struct sandbox_call *call = sandbox_exec(world_find(w, id), &spec, on_exec, NULL, &err);

	if (call && pick(4) == 0) {
		sandbox_call_abandon(call);
	} else if (call) {
		asked++;
		if (pick(4) == 0) {
			sandbox_call_cancel(call);
		}
	}
}

static void stop_machine(struct world *w, const char *id)
{
	struct fake_domain *domain = fake_hv_find(w->hv, id);

	if (domain) {
		fake_hv_stop_domain(w->hv, id, pick(2));
	}
}

static void act_on(struct world *w, const char *id)
{
	struct err err;

	switch (pick(9)) {
	case 0:
		sandbox_destroy(world_find(w, id), "deleted");
		break;
	case 1:
		stop_machine(w, id);
		break;
	case 2:
		asked += sandbox_extend(world_find(w, id), 1 + pick(5), on_extend, NULL, &err) == 0;
		break;
	case 3:
		if (fake_hv_find(w->hv, id) &&
			sandbox_state(world_find(w, id)) == SANDBOX_RUNNING) {
			fake_guest_drop(w->guests, id, (int)pick(30));
		}
		break;
	case 4:
		if (fake_hv_find(w->hv, id)) {
			fake_hv_find(w->hv, id)->facts.state = pick(2) ? HV_DOMAIN_PAUSED
								       : HV_DOMAIN_RUNNING;
		}
		break;
	default:
		exec(w, id);
		break;
	}
}

static void act(struct world *w)
{
	switch (pick(10)) {
	case 0:
		fault(w);
		break;
	case 1:
		heal(w);
		break;
	case 2:
		world_reconcile(w);
		break;
	case 3:
		sandboxes_set_egress(w->all, pick(2), "chaos");
		break;
	case 4:
		if (pick(4) == 0) {
			clock_test_advance(0, 5 * MS_PER_MINUTE);
		}
		break;
	case 5:
		if (pick(4) == 0) {
			/* A callback for each that was asked, and none after that. */
			world_stop(w);
			assert_int_equal(answered, asked);
			world_start_only(w);
		}
		break;
	default:
		break;
	}
}

static bool is_over(struct world *w, const char *id)
{
	const char *state = world_state(w, id);

	return strcmp(state, "deleted") == 0 || strcmp(state, "failed") == 0;
}

static size_t count_entries(struct world *w, const char *name)
{
	char path[256];
	size_t count = 0;

	snprintf(path, sizeof path, "%s/%s", w->dir, name);
	DIR *dir = opendir(path);

	assert_non_null(dir);
	for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
		count += entry->d_name[0] != '.';
	}
	closedir(dir);
	return count;
}

static void test_nothing_is_left_after_any_sequence(void **state)
{
	const char *fixed = getenv("TEST_SEED");
	const char *wished = getenv("TEST_ROUNDS");
	unsigned rounds = wished ? (unsigned)atoi(wished) : 1500;
	const char *ids[SLOTS] = {NULL};

	(void)state;
	seed = fixed ? strtoull(fixed, NULL, 10) : real_ms();
	print_message("  TEST_SEED=%llu\n", seed);
	struct world *w = world_new(NULL);

	for (unsigned i = 0; i < rounds; i++) {
		unsigned slot = pick(SLOTS);

		if (!ids[slot] || is_over(w, ids[slot])) {
			ids[slot] = create(w);
		} else if (world_find(w, ids[slot])) {
			act_on(w, ids[slot]);
		}
		act(w);
		world_turn(w);
	}

	heal(w);
	for (unsigned i = 0; i < SLOTS; i++) {
		if (ids[i] && world_find(w, ids[i])) {
			sandbox_destroy(world_find(w, ids[i]), "deleted");
		}
	}
	WORLD_UNTIL(w, sandboxes_count(w->all) == 0);
	WORLD_UNTIL(w, answered == asked);
	/* Late effects have come by now, and are found. */
	world_run(w, 100);
	world_reconcile(w);
	WORLD_UNTIL(w, fake_hv_count(w->hv) == 0);
	WORLD_UNTIL(w, count_entries(w, "sandboxes") == 0 && count_entries(w, "run") == 0);
	assert_int_equal(world_charged(w), 0);
	assert_int_equal(fake_guest_open_count(w->guests), 0);
	world_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nothing_is_left_after_any_sequence),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
