/*
 * Random calls, faults, events, restarts of the daemon and jumps of the clocks, 100,000 steps of
 * them. What must always hold is checked after each step; in the end everything is destroyed and
 * nothing may be left. The seed is printed; TEST_SEED repeats a run, TEST_ROUNDS changes its
 * length.
 */
#include "tests/lib/world.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/xalloc.h"

#define SLOTS   6
#define ROUNDS  100000
#define FOREIGN "sb_0000000000000000000f"

static unsigned long long seed;

static unsigned pick(unsigned count)
{
	seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
	return (unsigned)(seed >> 33) % count;
}

static struct slot {
	const char *id;
	bool was_stopped; /* its domain was ended by us */
} slots[SLOTS];
/* A call to end a domain may time out and take effect later, on any. */
static bool may_be_lost;

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

static void on_extend(void *arg, struct sandbox *sb, const struct err *err)
{
	(void)arg;
	(void)sb;
	(void)err;
	answered++;
}

/* What the most depends on: starts that come late, and lists that are old when they arrive. */
static void likely_fault(struct world *w)
{
	const struct fake_script late = {.mode = FAKE_TIMEOUT, .times = 1, .late_ms = 2 + pick(10)};
	const struct fake_script old = {.times = 1, .delay_ms = 2 + pick(20)};

	if (pick(2)) {
		fake_hv_script(w->hv, FAKE_HV_START, &late);
	} else {
		fake_hv_script(w->hv, FAKE_HV_LIST, &old);
		world_reconcile(w);
	}
}

static void fault(struct world *w)
{
	static const enum fake_mode modes[] = {
		FAKE_OK, FAKE_FAIL, FAKE_EFFECT_FAIL, FAKE_TIMEOUT, FAKE_HOLD};
	const struct fake_script script = {.mode = modes[pick(ARRAY_SIZE(modes))],
		.times = 1 + pick(2),
		.skip = pick(2),
		.delay_ms = pick(20),
		.late_ms = pick(4) ? 1 + pick(40) : 0};

	if (pick(4) == 0) {
		likely_fault(w);
	} else if (pick(3) == 0) {
		fake_guest_script(w->guests, pick(FAKE_GUEST_OP_MAX), &script);
	} else {
		unsigned op = pick(FAKE_HV_OP_MAX);

		may_be_lost |= op == FAKE_HV_DESTROY && script.mode == FAKE_TIMEOUT;
		fake_hv_script(w->hv, op, &script);
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
		for (unsigned i = 0; i < SLOTS; i++) {
			slots[i].was_stopped |= slots[i].id == id;
		}
		fake_hv_stop_domain(w->hv, id, pick(2));
	}
}

static void start_again(struct world *w, const char *id)
{
	struct sandbox *sb = world_find(w, id);
	struct err err;

	if ((pick(2) ? sandbox_restart(sb, &err) : sandbox_reset(sb, &err)) != 0) {
		assert_true(err.kind == ERR_CONFLICT || err.kind == ERR_ENDED ||
			    err.kind == ERR_UNAVAILABLE);
		return;
	}
	asked++;
	sandbox_wait_ready(sb, on_wait, NULL);
}

static void act_on(struct world *w, const char *id)
{
	struct err err;

	switch (pick(14)) {
	case 0:
		sandbox_destroy(world_find(w, id), "deleted");
		break;
	case 9:
	case 10:
		start_again(w, id);
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
		/* The wall clock may be set, forwards and back. */
		if (pick(8) == 0) {
			clock_test_advance(0, ((int64_t)pick(20) - 6) * MS_PER_MINUTE);
		}
		break;
	case 5:
		if (pick(8) == 0) {
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

/* ---- what always holds ---- */

/* Quota, registry and rows speak of the same sandboxes, in the same states. */
static void check_rows(struct world *w)
{
	_cleanup_store_sandbox_list_ struct store_sandbox_list list = {0};
	size_t live = 0;
	struct err err;

	assert_ok(store_sandbox_list_owning(w->store, &list, &err), &err);
	for (size_t i = 0; i < list.count; i++) {
		const struct store_sandbox *row = list.rows[i];
		struct sandbox *sb = world_find(w, row->id);

		/* A live row owns its uid, and nobody else does. */
		assert_int_not_equal(row->uid, 0);
		for (size_t j = 0; j < i; j++) {
			assert_int_not_equal(list.rows[j]->uid, row->uid);
		}
		if (row->ended_at_ms > 0) {
			assert_null(sb);
			continue;
		}
		live++;
		assert_non_null(sb);
		assert_string_equal(row->state, sandbox_state_name(sandbox_state(sb)));
		assert_int_equal(row->expires_at_ms, sandbox_row(sb)->expires_at_ms);
	}
	assert_int_equal(sandboxes_count(w->all), live);
	assert_int_equal(world_charged(w), live);
}

/* Intent comes before the act: each domain has a row. No other row owns the user it runs as. */
static void check_domains(struct world *w)
{
	_cleanup_store_sandbox_list_ struct store_sandbox_list list = {0};
	struct err err;

	assert_ok(store_sandbox_list_owning(w->store, &list, &err), &err);
	assert_non_null(fake_hv_find(w->hv, FOREIGN));
	for (size_t i = 0; i < fake_hv_count(w->hv); i++) {
		const struct fake_domain *domain = fake_hv_at(w->hv, i);
		const char *id = domain->facts.id;

		if (domain->is_foreign) {
			continue;
		}
		_cleanup_store_sandbox_ struct store_sandbox *row = store_sandbox_get(
			w->store, id, &err);

		assert_non_null(row);
		for (size_t j = 0; j < list.count; j++) {
			assert_true(list.rows[j]->uid != domain->uid ||
				    strcmp(list.rows[j]->id, id) == 0);
		}
	}
}

/* ---- the run ---- */

static void step(struct world *w)
{
	struct slot *slot = &slots[pick(SLOTS)];
	const char *id = slot->id;

	if (!id || is_over(w, id)) {
		/* What runs is not given up without a cause. */
		if (id && strncmp(world_reason(w, id), "lost", 4) == 0) {
			assert_true(slot->was_stopped || may_be_lost);
		}
		*slot = (struct slot){.id = create(w)};
	} else if (world_find(w, id)) {
		act_on(w, id);
	}
	act(w);
	/* Mostly what is due now, at times what is due soon. */
	loop_turn_for(w->loop, pick(16) ? 0 : 4);
	check_rows(w);
	check_domains(w);
	assert_true(answered <= asked);
}

/* What says that it runs has a domain, and what is to go has gone. */
static bool is_noticed(struct world *w)
{
	for (unsigned i = 0; i < SLOTS; i++) {
		struct sandbox *sb = slots[i].id ? world_find(w, slots[i].id) : NULL;

		if (sb && (sandbox_state(sb) == SANDBOX_DELETING ||
				  (sandbox_state(sb) == SANDBOX_RUNNING &&
					  !fake_hv_find(w->hv, slots[i].id)))) {
			return false;
		}
	}
	return true;
}

/* Everything is healed and has settled: from here on nothing may be lost for a while. */
static void settle(struct world *w)
{
	heal(w);
	world_run(w, 60);
	/* What ended unnoticed is found. */
	world_reconcile(w);
	WORLD_UNTIL(w, is_noticed(w));
	for (unsigned i = 0; i < SLOTS; i++) {
		if (slots[i].id && is_over(w, slots[i].id)) {
			slots[i].id = NULL;
		}
	}
	may_be_lost = false;
}

static void test_what_must_hold_holds_after_any_sequence(void **state)
{
	const char *fixed = getenv("TEST_SEED");
	const char *wished = getenv("TEST_ROUNDS");
	unsigned rounds = wished ? (unsigned)atoi(wished) : ROUNDS;

	(void)state;
	seed = fixed ? strtoull(fixed, NULL, 10) : real_ms();
	print_message("  TEST_SEED=%llu\n", seed);
	struct world *w = world_new(NULL);

	fake_hv_add(w->hv, FOREIGN)->is_foreign = true;
	for (unsigned i = 0; i < rounds; i++) {
		if (i % 1000 == 0) {
			settle(w);
		}
		step(w);
	}

	heal(w);
	for (unsigned i = 0; i < SLOTS; i++) {
		if (slots[i].id && world_find(w, slots[i].id)) {
			sandbox_destroy(world_find(w, slots[i].id), "deleted");
		}
	}
	WORLD_UNTIL(w, sandboxes_count(w->all) == 0);
	WORLD_UNTIL(w, answered == asked);
	/* Late effects have come by now, and are found. */
	world_run(w, 100);
	world_reconcile(w);
	WORLD_UNTIL(w, fake_hv_count(w->hv) == 1);
	WORLD_UNTIL(
		w, world_count_entries(w, "sandboxes") == 0 && world_count_entries(w, "run") == 0);
	assert_int_equal(world_charged(w), 0);
	assert_int_equal(fake_guest_open_count(w->guests), 0);
	assert_non_null(fake_hv_find(w->hv, FOREIGN));
	world_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_must_hold_holds_after_any_sequence),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
