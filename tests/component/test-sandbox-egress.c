/* Networks, and links that follow the host filter. */
#include "tests/lib/world.h"

#include <stdio.h>

static const char *running_with(struct world *w, enum sandbox_network network)
{
	struct sandbox_create_spec spec = world_spec(w, NULL);

	spec.network = network;
	const char *id = world_create_spec(w, &spec);

	WORLD_UNTIL(w, world_is_state(w, id, "running"));
	return id;
}

static bool is_up(struct world *w, const char *id)
{
	return fake_hv_find(w->hv, id)->is_link_up;
}

static void test_the_default_is_egress_only_while_the_filter_is_there(void **state)
{
	struct world *w = world_new(NULL);
	const char *why;

	(void)state;
	assert_false(sandboxes_has_egress(w->all, &why));
	assert_string_not_equal(why, "");
	const char *without = running_with(w, SANDBOX_NETWORK_DEFAULT);

	assert_string_equal(sandbox_row(world_find(w, without))->network, "none");
	assert_false(fake_hv_find(w->hv, without)->has_network);
	sandboxes_set_egress(w->all, true, NULL);
	const char *with = running_with(w, SANDBOX_NETWORK_DEFAULT);

	assert_string_equal(sandbox_row(world_find(w, with))->network, "egress");
	assert_true(fake_hv_find(w->hv, with)->has_network);
	assert_true(is_up(w, with));
	assert_false(fake_hv_find(w->hv, running_with(w, SANDBOX_NETWORK_NONE))->has_network);
	world_free(w);
}

static void test_the_operators_default_of_none_stands(void **state)
{
	struct world *w = world_new_stopped(NULL);

	(void)state;
	w->config.is_network_none_default = true;
	world_start(w);
	sandboxes_set_egress(w->all, true, NULL);
	assert_false(fake_hv_find(w->hv, running_with(w, SANDBOX_NETWORK_DEFAULT))->has_network);
	assert_true(fake_hv_find(w->hv, running_with(w, SANDBOX_NETWORK_EGRESS))->has_network);
	world_free(w);
}

static void test_egress_without_a_filter_is_unavailable_and_says_why(void **state)
{
	struct world *w = world_new(NULL);
	struct sandbox_create_spec spec = world_spec(w, NULL);
	struct sandbox *sb;
	bool is_replay;
	struct err err;

	(void)state;
	sandboxes_set_egress(w->all, false, "nftables refuses the table");
	spec.network = SANDBOX_NETWORK_EGRESS;
	assert_err(sandbox_create(w->all, &spec, &sb, &is_replay, &err), &err, ERR_UNAVAILABLE);
	assert_err_says(&err, "nftables refuses the table");
	assert_int_equal(world_charged(w), 0);
	world_free(w);
}

static void test_a_filter_that_goes_pulls_every_link_until_it_is_back(void **state)
{
	struct world *w = world_new(NULL);

	(void)state;
	sandboxes_set_egress(w->all, true, NULL);
	const char *a = running_with(w, SANDBOX_NETWORK_EGRESS);
	const char *b = running_with(w, SANDBOX_NETWORK_EGRESS);
	const char *none = running_with(w, SANDBOX_NETWORK_NONE);

	sandboxes_set_egress(w->all, false, "the table was deleted");
	uint64_t before = real_ms();

	WORLD_UNTIL(w, !is_up(w, a) && !is_up(w, b));
	assert_in_range(real_ms() - before, 0, 1000);
	sandboxes_set_egress(w->all, true, NULL);
	WORLD_UNTIL(w, is_up(w, a) && is_up(w, b));
	assert_false(is_up(w, none));
	assert_int_equal(fake_hv_calls(w->hv, FAKE_HV_SET_LINK), 4);
	world_free(w);
}

static void test_a_pull_that_fails_is_tried_until_it_works(void **state)
{
	static const struct fake_script scripts[] = {
		{.mode = FAKE_FAIL, .times = 3},
		{.mode = FAKE_TIMEOUT, .times = 2, .delay_ms = 30},
		{.mode = FAKE_TIMEOUT, .times = 1, .delay_ms = 30, .late_ms = 500},
	};
	struct world *w = world_new(NULL);

	(void)state;
	sandboxes_set_egress(w->all, true, NULL);
	const char *id = running_with(w, SANDBOX_NETWORK_EGRESS);

	for (size_t i = 0; i < ARRAY_SIZE(scripts); i++) {
		fake_hv_script(w->hv, FAKE_HV_SET_LINK, &scripts[i]);
		sandboxes_set_egress(w->all, false, "gone");
		WORLD_UNTIL(w, !is_up(w, id));
		sandboxes_set_egress(w->all, true, NULL);
		WORLD_UNTIL(w, is_up(w, id));
	}
	world_free(w);
}

static void test_a_plug_that_comes_late_is_pulled_again(void **state)
{
	struct world *w = world_new(NULL);

	(void)state;
	sandboxes_set_egress(w->all, true, NULL);
	const char *id = running_with(w, SANDBOX_NETWORK_EGRESS);

	sandboxes_set_egress(w->all, false, "gone");
	WORLD_UNTIL(w, !is_up(w, id));
	/* The filter is back, plugging in hangs; the filter goes again; then the plug goes in. */
	fake_hv_script(w->hv, FAKE_HV_SET_LINK,
		&(struct fake_script){
			.mode = FAKE_TIMEOUT, .times = 1, .delay_ms = 20, .late_ms = 300});
	sandboxes_set_egress(w->all, true, NULL);
	sandboxes_set_egress(w->all, false, "gone");
	WORLD_UNTIL(w, is_up(w, id));
	WORLD_UNTIL(w, !is_up(w, id));
	world_run(w, 100);
	assert_false(is_up(w, id));
	world_free(w);
}

static void test_a_late_plug_that_overtakes_a_pull_is_pulled_again(void **state)
{
	struct world *w = world_new(NULL);

	(void)state;
	sandboxes_set_egress(w->all, true, NULL);
	const char *id = running_with(w, SANDBOX_NETWORK_EGRESS);

	sandboxes_set_egress(w->all, false, "gone");
	WORLD_UNTIL(w, !is_up(w, id));
	fake_hv_script(w->hv, FAKE_HV_SET_LINK,
		&(struct fake_script){
			.mode = FAKE_TIMEOUT, .times = 1, .delay_ms = 20, .late_ms = 300});
	sandboxes_set_egress(w->all, true, NULL);
	world_turn(w);
	/* The pull is done, and its answer on its way, when the plug goes in after all. */
	fake_hv_script(w->hv, FAKE_HV_SET_LINK,
		&(struct fake_script){.mode = FAKE_HOLD, .times = 1, .acts_early = true});
	sandboxes_set_egress(w->all, false, "gone");
	WORLD_UNTIL(w, fake_hv_held(w->hv, FAKE_HV_SET_LINK) == 1);
	WORLD_UNTIL(w, is_up(w, id));
	fake_hv_release(w->hv, FAKE_HV_SET_LINK);
	WORLD_UNTIL(w, !is_up(w, id));
	world_free(w);
}

static void test_a_filter_that_goes_while_a_domain_starts_counts(void **state)
{
	struct world *w = world_new(NULL);
	struct sandbox_create_spec spec = world_spec(w, NULL);

	(void)state;
	sandboxes_set_egress(w->all, true, NULL);
	spec.network = SANDBOX_NETWORK_EGRESS;
	fake_hv_script(w->hv, FAKE_HV_START, &(struct fake_script){.mode = FAKE_HOLD});
	const char *id = world_create_spec(w, &spec);

	WORLD_UNTIL(w, fake_hv_held(w->hv, FAKE_HV_START) == 1);
	sandboxes_set_egress(w->all, false, "gone");
	fake_hv_release(w->hv, FAKE_HV_START);
	WORLD_UNTIL(w, world_is_state(w, id, "running") && !is_up(w, id));

	/* One that starts now starts without. */
	fake_hv_script(w->hv, FAKE_HV_DISK_CREATE, &(struct fake_script){.mode = FAKE_HOLD});
	sandboxes_set_egress(w->all, true, NULL);
	const char *other = world_create_spec(w, &spec);

	WORLD_UNTIL(w, fake_hv_held(w->hv, FAKE_HV_DISK_CREATE) == 1);
	sandboxes_set_egress(w->all, false, "gone");
	WORLD_UNTIL(w, !is_up(w, id));
	fake_hv_release(w->hv, FAKE_HV_DISK_CREATE);
	WORLD_UNTIL(w, world_is_state(w, other, "running"));
	assert_false(fake_hv_find(w->hv, other)->was_link_up);
	world_free(w);
}

static void test_after_a_restart_links_are_put_right(void **state)
{
	struct world *w = world_new(NULL);

	(void)state;
	sandboxes_set_egress(w->all, true, NULL);
	const char *id = running_with(w, SANDBOX_NETWORK_EGRESS);

	world_stop(w);
	assert_true(is_up(w, id));
	world_start(w);
	/* No filter: nothing says that it is in place. */
	WORLD_UNTIL(w, !is_up(w, id));
	sandboxes_set_egress(w->all, true, NULL);
	WORLD_UNTIL(w, is_up(w, id));
	world_free(w);
}

static void test_a_link_that_can_not_be_pulled_does_not_hold_up_a_destroy(void **state)
{
	struct world *w = world_new(NULL);

	(void)state;
	sandboxes_set_egress(w->all, true, NULL);
	const char *id = running_with(w, SANDBOX_NETWORK_EGRESS);

	fake_hv_script(w->hv, FAKE_HV_SET_LINK, &(struct fake_script){.mode = FAKE_FAIL});
	sandboxes_set_egress(w->all, false, "gone");
	world_run(w, 50);
	world_destroy(w, id);
	WORLD_UNTIL(w, world_is_state(w, id, "deleted"));
	unsigned calls = fake_hv_calls(w->hv, FAKE_HV_SET_LINK);

	world_run(w, 500);
	assert_int_equal(fake_hv_calls(w->hv, FAKE_HV_SET_LINK), calls);
	world_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_default_is_egress_only_while_the_filter_is_there),
		cmocka_unit_test(test_the_operators_default_of_none_stands),
		cmocka_unit_test(test_egress_without_a_filter_is_unavailable_and_says_why),
		cmocka_unit_test(test_a_filter_that_goes_pulls_every_link_until_it_is_back),
		cmocka_unit_test(test_a_pull_that_fails_is_tried_until_it_works),
		cmocka_unit_test(test_a_plug_that_comes_late_is_pulled_again),
		cmocka_unit_test(test_a_late_plug_that_overtakes_a_pull_is_pulled_again),
		cmocka_unit_test(test_a_filter_that_goes_while_a_domain_starts_counts),
		cmocka_unit_test(test_after_a_restart_links_are_put_right),
		cmocka_unit_test(test_a_link_that_can_not_be_pulled_does_not_hold_up_a_destroy),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
