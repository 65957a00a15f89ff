/* Expiry, extension, and who wins when they meet. */
#include "tests/lib/world.h"

#include <stdio.h>

#define MINUTE MS_PER_MINUTE

/* Time passes for the wall clock alone: what the reaper has to notice by itself. */
static void pass(int64_t ms)
{
	clock_test_advance(0, ms);
}

static int64_t expiry_of(struct world *w, const char *id)
{
	struct err err;
	struct store_sandbox *row = store_sandbox_get(w->store, id, &err);

	assert_non_null(row);
	int64_t at = row->expires_at_ms;

	store_sandbox_free(row);
	return at;
}

static void test_what_is_due_is_gone_within_two_seconds(void **state)
{
	struct world *w = world_new(NULL);
	const char *due = world_running(w, NULL);
	struct sandbox_create_spec spec = world_spec(w, NULL);

	(void)state;
	spec.timeout_minutes = 16;
	const char *later = world_create_spec(w, &spec);

	WORLD_UNTIL(w, world_is_state(w, later, "running"));
	pass(15 * MINUTE - 1000);
	world_run(w, 100);
	assert_string_equal(world_state(w, due), "running");
	pass(1000);
	uint64_t before = real_ms();

	WORLD_UNTIL(w, world_is_state(w, due, "deleted") && world_is_clean(w, due));
	assert_in_range(real_ms() - before, 0, 2000);
	assert_string_equal(world_reason(w, due), "expired");
	assert_string_equal(world_state(w, later), "running");
	world_free(w);
}

static void test_it_expires_by_itself_too(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);

	(void)state;
	pass(15 * MINUTE - 1500);
	world_run(w, 200);
	assert_string_equal(world_state(w, id), "running");
	WORLD_UNTIL(w, world_is_state(w, id, "deleted"));
	assert_in_range(clock_wall_ms() - expiry_of(w, id), 0, 2000);
	world_free(w);
}

static void test_a_clock_that_is_set_back_postpones_the_end(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);

	(void)state;
	pass(-60 * MINUTE);
	world_run(w, 1200);
	assert_string_equal(world_state(w, id), "running");
	pass(75 * MINUTE);
	WORLD_UNTIL(w, world_is_state(w, id, "deleted"));
	world_free(w);
}

static void test_one_that_is_still_starting_expires_as_well(void **state)
{
	struct world *w = world_new(NULL);
	struct world_answer ready = {0};

	(void)state;
	fake_guest_set_hello_delay(w->guests, -1);
	const char *id = world_create(w, NULL);

	sandbox_wait_ready(world_find(w, id), world_on_wait, &ready);
	WORLD_UNTIL(w, fake_guest_open_count(w->guests) == 1);
	pass(15 * MINUTE);
	WORLD_UNTIL(w, world_is_state(w, id, "deleted"));
	assert_string_equal(world_reason(w, id), "expired");
	assert_int_equal(ready.kind, ERR_ENDED);
	world_free(w);
}

static void test_an_end_after_the_due_time_counts_as_expiry(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);

	(void)state;
	/* The guest's own timer is faster than the reaper's next look. */
	world_run(w, 20);
	pass(15 * MINUTE);
	fake_hv_stop_domain(w->hv, id, true);
	WORLD_UNTIL(w, world_is_state(w, id, "deleted"));
	assert_string_equal(world_reason(w, id), "expired");
	world_free(w);
}

static void extend(struct world *w, const char *id, unsigned minutes, struct world_answer *answer)
{
	struct err err;

	*answer = (struct world_answer){0};
	assert_ok(sandbox_extend(world_find(w, id), minutes, world_on_extend, answer, &err), &err);
	assert_int_equal(answer->count, 0);
}

static void test_extend_reaches_guest_row_and_metadata(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);
	struct world_answer answer;

	(void)state;
	int64_t old = expiry_of(w, id);
	int64_t wanted = old + 10 * MINUTE;

	extend(w, id, 10, &answer);
	WORLD_UNTIL(w, answer.count == 1);
	assert_int_equal(answer.kind, ERR_NONE);
	assert_int_equal(answer.expires_at_ms, wanted);
	assert_int_equal(expiry_of(w, id), wanted);
	assert_in_range(fake_guest_settings(w->guests, id)->deadline_ms, 24 * MINUTE,
		25 * MINUTE + w->config.deadman_margin_ms);
	WORLD_UNTIL(w, fake_hv_find(w->hv, id)->facts.expires_at_ms == wanted);

	/* It lives past the old one, and not past the new one. */
	pass(16 * MINUTE);
	world_run(w, 1200);
	assert_string_equal(world_state(w, id), "running");
	pass(9 * MINUTE);
	WORLD_UNTIL(w, world_is_state(w, id, "deleted"));
	world_free(w);
}

static void test_extensions_at_once_add_up(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);
	struct world_answer answers[16];
	struct err err;

	(void)state;
	int64_t old = expiry_of(w, id);

	for (size_t i = 0; i < ARRAY_SIZE(answers); i++) {
		extend(w, id, 5, &answers[i]);
	}
	assert_err(
		sandbox_extend(world_find(w, id), 5, world_on_extend, NULL, &err), &err, ERR_RATE);
	for (size_t i = 0; i < ARRAY_SIZE(answers); i++) {
		WORLD_UNTIL(w, answers[i].count == 1);
		assert_int_equal(answers[i].expires_at_ms, old + (int64_t)(i + 1) * 5 * MINUTE);
	}
	WORLD_UNTIL(w, fake_hv_find(w->hv, id)->facts.expires_at_ms == old + 80 * MINUTE);
	world_free(w);
}

static void test_no_expiry_lies_beyond_the_limit(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);
	struct world_answer first;
	struct world_answer second;
	struct err err;

	(void)state;
	assert_err(sandbox_extend(world_find(w, id), 1426, world_on_extend, NULL, &err), &err,
		ERR_INVALID);
	assert_err_says(&err, "1440 minutes");
	assert_err(sandbox_extend(world_find(w, id), 0, world_on_extend, NULL, &err), &err,
		ERR_INVALID);
	/* Each alone would do, both together don't. */
	extend(w, id, 1000, &first);
	extend(w, id, 1000, &second);
	WORLD_UNTIL(w, second.count == 1);
	assert_int_equal(first.kind, ERR_NONE);
	assert_int_equal(second.kind, ERR_INVALID);
	world_free(w);
}

static void test_what_has_no_expiry_can_not_be_extended(void **state)
{
	struct world *w = world_new(NULL);
	struct sandbox_create_spec spec = world_spec(w, NULL);
	struct err err;

	(void)state;
	spec.is_temporary = false;
	spec.timeout_minutes = 0;
	const char *id = world_create_spec(w, &spec);

	assert_err(sandbox_extend(world_find(w, id), 1, world_on_extend, NULL, &err), &err,
		ERR_INVALID);
	world_free(w);
}

static void test_while_it_starts_it_can_not_be_extended(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_create(w, NULL);
	struct err err;

	(void)state;
	assert_err(sandbox_extend(world_find(w, id), 1, world_on_extend, NULL, &err), &err,
		ERR_CONFLICT);
	world_free(w);
}

static void test_a_guest_that_keeps_silent_leaves_the_expiry(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);
	struct world_answer answer;

	(void)state;
	int64_t old = expiry_of(w, id);

	fake_guest_script(
		w->guests, FAKE_GUEST_CONFIGURE, &(struct fake_script){.mode = FAKE_HOLD});
	uint64_t before = real_ms();

	extend(w, id, 10, &answer);
	WORLD_UNTIL(w, answer.count == 1);
	assert_int_equal(answer.kind, ERR_TIMEOUT);
	assert_in_range(real_ms() - before, 1900, 6000);
	assert_int_equal(answer.expires_at_ms, old);
	assert_int_equal(expiry_of(w, id), old);
	assert_int_equal(fake_hv_find(w->hv, id)->facts.expires_at_ms, old);

	/* Once it answers it is told the deadline that stands, and can be extended again. */
	unsigned told = fake_guest_settings(w->guests, id)->times;

	fake_guest_release(w->guests, FAKE_GUEST_CONFIGURE);
	WORLD_UNTIL(w, fake_guest_settings(w->guests, id)->times > told);
	assert_in_range(fake_guest_settings(w->guests, id)->deadline_ms, 13 * MINUTE,
		15 * MINUTE + w->config.deadman_margin_ms);
	extend(w, id, 10, &answer);
	WORLD_UNTIL(w, answer.count == 1);
	assert_int_equal(answer.kind, ERR_NONE);
	assert_int_equal(expiry_of(w, id), old + 10 * MINUTE);
	world_free(w);
}

static void test_a_channel_that_comes_back_in_time_is_early_enough(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);
	struct world_answer answer;

	(void)state;
	fake_guest_drop(w->guests, id, 200);
	extend(w, id, 10, &answer);
	WORLD_UNTIL(w, answer.count == 1);
	assert_int_equal(answer.kind, ERR_NONE);

	/* The one under way ends with the channel; the next waits for it to come back. */
	struct world_answer next;

	fake_guest_script(w->guests, FAKE_GUEST_CONFIGURE,
		&(struct fake_script){.mode = FAKE_HOLD, .times = 1});
	extend(w, id, 10, &answer);
	extend(w, id, 10, &next);
	WORLD_UNTIL(w, fake_guest_call_count(w->guests) == 1);
	fake_guest_drop(w->guests, id, 100);
	WORLD_UNTIL(w, answer.count == 1 && next.count == 1);
	assert_int_equal(answer.kind, ERR_UNAVAILABLE);
	assert_int_equal(next.kind, ERR_NONE);

	fake_guest_drop(w->guests, id, -1);
	extend(w, id, 10, &answer);
	WORLD_UNTIL(w, answer.count == 1);
	assert_int_equal(answer.kind, ERR_TIMEOUT);
	world_free(w);
}

static void test_the_reaper_wins_over_an_extension_that_waits(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);
	struct world_answer waiting;
	struct world_answer queued;
	struct err err;

	(void)state;
	fake_guest_script(
		w->guests, FAKE_GUEST_CONFIGURE, &(struct fake_script){.mode = FAKE_HOLD});
	fake_hv_script(w->hv, FAKE_HV_DESTROY, &(struct fake_script){.mode = FAKE_HOLD});
	extend(w, id, 10, &waiting);
	extend(w, id, 10, &queued);
	WORLD_UNTIL(w, fake_guest_call_count(w->guests) == 1);
	pass(15 * MINUTE);
	WORLD_UNTIL(w, world_is_state(w, id, "deleting"));
	assert_int_equal(waiting.kind, ERR_ENDED);
	assert_int_equal(queued.kind, ERR_ENDED);
	assert_err(sandbox_extend(world_find(w, id), 10, world_on_extend, NULL, &err), &err,
		ERR_ENDED);
	fake_hv_release(w->hv, FAKE_HV_DESTROY);
	WORLD_UNTIL(w, world_is_state(w, id, "deleted"));
	assert_int_equal(waiting.count, 1);
	assert_int_equal(queued.count, 1);
	world_free(w);
}

static void test_metadata_that_could_not_be_written_are_put_right_later(void **state)
{
	struct world *w = world_new(NULL);
	const char *id = world_running(w, NULL);
	struct world_answer answer;

	(void)state;
	/* A hypervisor that hangs doesn't hold up the answer. */
	fake_hv_script(w->hv, FAKE_HV_SET_EXPIRY,
		&(struct fake_script){.mode = FAKE_FAIL, .times = 1, .delay_ms = 300});
	extend(w, id, 10, &answer);
	WORLD_UNTIL(w, answer.count == 1);
	assert_int_equal(answer.kind, ERR_NONE);
	int64_t wanted = expiry_of(w, id);

	world_run(w, 400);
	assert_int_not_equal(fake_hv_find(w->hv, id)->facts.expires_at_ms, wanted);
	world_reconcile(w);
	WORLD_UNTIL(w, fake_hv_find(w->hv, id)->facts.expires_at_ms == wanted);
	world_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_is_due_is_gone_within_two_seconds),
		cmocka_unit_test(test_it_expires_by_itself_too),
		cmocka_unit_test(test_a_clock_that_is_set_back_postpones_the_end),
		cmocka_unit_test(test_one_that_is_still_starting_expires_as_well),
		cmocka_unit_test(test_an_end_after_the_due_time_counts_as_expiry),
		cmocka_unit_test(test_extend_reaches_guest_row_and_metadata),
		cmocka_unit_test(test_extensions_at_once_add_up),
		cmocka_unit_test(test_no_expiry_lies_beyond_the_limit),
		cmocka_unit_test(test_what_has_no_expiry_can_not_be_extended),
		cmocka_unit_test(test_while_it_starts_it_can_not_be_extended),
		cmocka_unit_test(test_a_guest_that_keeps_silent_leaves_the_expiry),
		cmocka_unit_test(test_a_channel_that_comes_back_in_time_is_early_enough),
		cmocka_unit_test(test_the_reaper_wins_over_an_extension_that_waits),
		cmocka_unit_test(test_metadata_that_could_not_be_written_are_put_right_later),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
