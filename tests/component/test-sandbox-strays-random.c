/*
 * Whatever happens in whichever order, reaping never takes anything of a live sandbox, and in the
 * end every stray is gone. The seed is printed; TEST_SEED repeats a run, TEST_ROUNDS lengthens it.
 */
#include "tests/lib/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/xalloc.h"
#include "sandbox/strays.h"

#define SLOTS 5

static unsigned long long seed;

static unsigned pick(unsigned count)
{
	seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
	return (unsigned)(seed >> 33) % count;
}

/* A sandbox that ran and that nothing was done to since is to have all that it had. */
struct slot {
	const char *id; /* NULL: none */
	bool is_running;
	bool is_touched;
};

static struct slot slots[SLOTS];
static unsigned asked;
static unsigned answered;

static char *log_of(const char *id)
{
	return xasprintf("log/%s", id);
}

static void on_found(void *arg, const struct strays_report *report, const struct err *err)
{
	(void)arg;
	assert_true((report == NULL) == (err != NULL));
	answered++;
}

static bool exists(struct world *w, const char *format, const char *name)
{
	_cleanup_free_ char *below = xasprintf("%s/%s/%s", w->dir, format, name);

	return access(below, F_OK) == 0;
}

static void assert_untouched(struct world *w, const char *id)
{
	_cleanup_free_ char *log = log_of(id);
	_cleanup_free_ char *overlay = xasprintf("%s/disk/overlay.qcow2", id);
	const char *digits = id + strlen(ID_SANDBOX);

	const char *gone = !fake_hv_find(w->hv, id)            ? "domain"
			   : !exists(w, "sandboxes", overlay)  ? "disk"
			   : !exists(w, "run", digits)         ? "sockets"
			   : !fake_hv_has_residue(w->hv, log)  ? "log"
			   : !world_is_state(w, id, "running") ? "record"
							       : NULL;

	if (gone) {
		fail_msg("%s of %s, which ran, is gone or another (%s, %s)", gone, id,
			world_state(w, id), world_reason(w, id));
	}
}

static void check(struct world *w)
{
	for (size_t i = 0; i < SLOTS; i++) {
		if (slots[i].is_running) {
			assert_untouched(w, slots[i].id);
		}
	}
}

/* ---- what happens ---- */

static void create(struct world *w, struct slot *slot)
{
	struct sandbox_create_spec spec = world_spec(w, NULL);
	struct sandbox *sb;
	bool is_replay;
	struct err err;

	spec.is_temporary = false;
	spec.timeout_minutes = 0;
	if (sandbox_create(w->all, &spec, &sb, &is_replay, &err) == 0) {
		slot->id = world_keep_id(sandbox_row(sb)->id);
	}
}

static void act_on(struct world *w, struct slot *slot)
{
	_cleanup_free_ char *log = log_of(slot->id);

	if (!slot->is_running && !slot->is_touched && world_is_state(w, slot->id, "running")) {
		slot->is_running = true;
		if (!fake_hv_has_residue(w->hv, log)) {
			fake_hv_add_residue(w->hv, HV_RESIDUE_LOG, slot->id, log, 1);
		}
		return;
	}
	if (!world_find(w, slot->id)) {
		*slot = (struct slot){0};
		return;
	}
	if (pick(6) == 0) {
		slot->is_running = false;
		slot->is_touched = true;
		if (pick(3) == 0 && fake_hv_find(w->hv, slot->id)) {
			fake_hv_stop_domain(w->hv, slot->id, pick(2));
		} else {
			sandbox_destroy(world_find(w, slot->id), "deleted");
		}
	}
}

static void fault(struct world *w)
{
	static const enum fake_mode modes[] = {
		FAKE_OK, FAKE_FAIL, FAKE_EFFECT_FAIL, FAKE_TIMEOUT, FAKE_HOLD};
	static const enum fake_hv_op ops[] = {FAKE_HV_SURVEY, FAKE_HV_SURVEY, FAKE_HV_LIST,
		FAKE_HV_DISK_REMOVE, FAKE_HV_DESTROY, FAKE_HV_START, FAKE_HV_RESIDUE_REMOVE};
	const struct fake_script script = {.mode = modes[pick(ARRAY_SIZE(modes))],
		.times = 1 + pick(2),
		.delay_ms = pick(20),
		.late_ms = pick(2) * (1 + pick(40))};

	fake_hv_script(w->hv, ops[pick(ARRAY_SIZE(ops))], &script);
}

static void heal(struct world *w)
{
	for (unsigned op = 0; op < FAKE_HV_OP_MAX; op++) {
		fake_hv_release(w->hv, op);
	}
}

static void litter(struct world *w)
{
	char id[ID_BYTES];
	struct err err;

	id_make(id, ID_SANDBOX);
	_cleanup_free_ char *path = pick(2) ? xasprintf("%s/sandboxes/%s/disk", w->dir, id)
					    : xasprintf(
						      "%s/%s", w->run_dir, id + strlen(ID_SANDBOX));
	_cleanup_free_ char *name = xasprintf("litter/%s", id);

	switch (pick(4)) {
	case 0:
		fake_hv_add(w->hv, id);
		break;
	case 1:
		fake_hv_add_residue(w->hv, HV_RESIDUE_PROCESS, id, name, 1);
		break;
	case 2:
		fake_hv_add_residue(w->hv, HV_RESIDUE_DIRECTORY, "", name, 1);
		break;
	default:
		assert_ok(fs_mkdir_parents(path, 0700, &err), &err);
		break;
	}
}

static void ask(struct world *w)
{
	const struct strays_request request = {.is_reap = true, .wants_others = pick(2)};
	struct err err;
	struct strays_call *call = strays_find(w->all, &request, on_found, NULL, &err);

	if (call && pick(4) == 0) {
		strays_abandon(call);
	} else if (call) {
		asked++;
	} else {
		assert_int_equal(err.kind, ERR_RATE);
	}
}

/* The daemon dies; now and then somebody looks before it is started again. */
static void restart(struct world *w)
{
	const struct strays_request request = {.is_reap = true, .ready_ms = WORLD_PATIENCE_MS};
	struct err err;

	world_stop(w);
	assert_int_equal(answered, asked);
	if (pick(2)) {
		w->config.is_inspection = true;
		world_start_only(w);
		heal(w);
		asked++;
		assert_non_null(strays_find(w->all, &request, on_found, NULL, &err));
		if (pick(4) > 0) {
			WORLD_UNTIL(w, answered == asked);
		}
		check(w);
		world_stop(w);
		w->config.is_inspection = false;
	}
	world_start_only(w);
}

static void act(struct world *w)
{
	switch (pick(12)) {
	case 0:
	case 1:
		fault(w);
		break;
	case 2:
		heal(w);
		break;
	case 3:
		litter(w);
		break;
	case 4:
	case 5:
		ask(w);
		break;
	case 6:
		world_reconcile(w);
		break;
	case 7:
		if (pick(3) == 0) {
			/* The wall clock alone: somebody set it, forwards or backwards. */
			clock_test_advance(0, ((int64_t)pick(5) - 2) * 3600 * 1000);
		}
		break;
	case 8:
		if (pick(3) == 0) {
			restart(w);
		}
		break;
	default:
		break;
	}
}

static bool is_clean(struct world *w)
{
	return fake_hv_count(w->hv) == 0 && fake_hv_residue_count(w->hv) == 0 &&
	       world_count_entries(w, "sandboxes") == 0 && world_count_entries(w, "run") == 0;
}

static void test_reaping_takes_every_stray_and_nothing_of_the_living(void **state)
{
	const char *fixed = getenv("TEST_SEED");
	const char *wished = getenv("TEST_ROUNDS");
	unsigned rounds = wished ? (unsigned)atoi(wished) : 2000;
	unsigned ran = 0;

	(void)state;
	seed = fixed ? strtoull(fixed, NULL, 10) : real_ms();
	print_message("  TEST_SEED=%llu\n", seed);
	struct world *w = world_new(NULL);

	for (unsigned i = 0; i < rounds; i++) {
		struct slot *slot = &slots[pick(SLOTS)];

		if (!slot->id) {
			create(w, slot);
		} else {
			act_on(w, slot);
		}
		act(w);
		world_turn(w);
		check(w);
		ran += slot->is_running;
	}
	/* It was about something. */
	assert_true(ran > rounds / 20);

	heal(w);
	for (size_t i = 0; i < SLOTS; i++) {
		if (slots[i].id && world_find(w, slots[i].id)) {
			sandbox_destroy(world_find(w, slots[i].id), "deleted");
		}
	}
	WORLD_UNTIL(w, sandboxes_count(w->all) == 0 && answered == asked);
	/* Whatever the clock was set to: all of it is old now. */
	clock_test_advance(0, (int64_t)rounds * 2 * 3600 * 1000);
	world_run(w, 100);
	WORLD_UNTIL(w, (world_reconcile(w), is_clean(w)));
	assert_int_equal(world_charged(w), 0);
	world_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reaping_takes_every_stray_and_nothing_of_the_living),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
