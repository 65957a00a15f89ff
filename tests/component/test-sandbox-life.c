/* A sandbox from its creation to its removal, on the fakes. */
#include "tests/lib/world.h"

#include <string.h>

static void test_create_runs_and_is_gone_after_destroy(void **state)
{
	struct world *w = world_new(NULL);
	struct world_answer ready = {0};
	struct world_answer gone = {0};
	struct world_answer answer;

	(void)state;
	const char *id = world_create(w, "alpha");

	assert_int_equal(sandbox_state(world_find(w, id)), SANDBOX_PROVISIONING);
	assert_string_equal(world_state(w, id), "provisioning");
	sandbox_wait_ready(world_find(w, id), world_on_wait, &ready);
	assert_int_equal(ready.count, 0);
	WORLD_UNTIL(w, ready.count == 1);
	assert_int_equal(ready.kind, ERR_NONE);
	assert_string_equal(world_state(w, id), "running");
	assert_int_equal(fake_hv_count(w->hv), 1);

	world_exec(w, id, "echo hello", &answer);
	assert_int_equal(answer.kind, ERR_NONE);
	assert_int_equal(answer.exit_code, 0);
	assert_string_equal(answer.out, "hello\n");

	sandbox_wait_gone(world_find(w, id), world_on_wait, &gone);
	world_destroy(w, id);
	world_destroy(w, id);
	assert_string_equal(world_state(w, id), "deleting");
	WORLD_UNTIL(w, gone.count == 1);
	assert_string_equal(world_state(w, id), "deleted");
	assert_string_equal(world_reason(w, id), "deleted");
	assert_true(world_is_clean(w, id));
	assert_null(world_find(w, id));
	assert_int_equal(world_charged(w), 0);
	world_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_create_runs_and_is_gone_after_destroy),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
