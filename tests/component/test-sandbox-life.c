/* A sandbox from its creation to its removal, and what is refused, on the fakes. */
#include "tests/lib/world.h"

#include <stdio.h>

#include "base/xalloc.h"

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

static void test_the_row_says_what_was_asked_and_what_runs(void **state)
{
	struct world *w = world_new(NULL);
	char *env[] = {(char *)"A=1", NULL};
	struct sandbox_create_spec spec = world_spec(w, "alpha");

	(void)state;
	spec.metadata = "{\"k\":\"v\"}";
	spec.env = env;
	int64_t before = clock_wall_ms();
	const char *id = world_create_spec(w, &spec);

	WORLD_UNTIL(w, world_is_state(w, id, "running"));
	const struct store_sandbox *row = sandbox_row(world_find(w, id));
	const struct fake_domain *domain = fake_hv_find(w->hv, id);

	assert_string_equal(row->name, "alpha");
	assert_string_equal(row->size, "tiny");
	assert_string_equal(row->image, "minimal");
	assert_string_equal(row->network, "none");
	assert_string_equal(row->metadata, "{\"k\":\"v\"}");
	assert_true(row->created_at_ms >= before && row->ready_at_ms >= row->created_at_ms);
	assert_int_equal(row->expires_at_ms, row->created_at_ms + 15 * MS_PER_MINUTE);
	assert_int_equal(row->pid, domain->facts.pid);
	assert_int_equal(row->pid_start, domain->facts.pid_start);
	assert_int_equal(row->uid, domain->uid);
	assert_int_equal(domain->facts.expires_at_ms, row->expires_at_ms);
	assert_string_equal(domain->facts.account, w->account);
	world_free(w);
}

static void test_each_sandbox_has_a_uid_of_its_own(void **state)
{
	struct world *w = world_new(NULL);

	(void)state;
	const char *first = world_running(w, NULL);
	const char *second = world_running(w, NULL);
	uid_t first_uid = fake_hv_find(w->hv, first)->uid;

	assert_int_not_equal(first_uid, fake_hv_find(w->hv, second)->uid);
	world_destroy(w, first);
	WORLD_UNTIL(w, world_is_state(w, first, "deleted"));
	const char *third = world_running(w, NULL);

	assert_int_not_equal(fake_hv_find(w->hv, third)->uid, fake_hv_find(w->hv, second)->uid);
	world_free(w);
}

static void test_uids_that_are_all_in_use_are_unavailable(void **state)
{
	struct world *w = world_new_stopped(NULL);
	struct sandbox *sb;
	bool is_replay;
	struct err err;

	(void)state;
	w->config.uid_count = 1;
	world_start(w);
	world_create(w, NULL);
	struct sandbox_create_spec spec = world_spec(w, NULL);

	assert_err(sandbox_create(w->all, &spec, &sb, &is_replay, &err), &err, ERR_UNAVAILABLE);
	assert_int_equal(world_charged(w), 1);
	world_free(w);
}

static void test_find_knows_names_only_within_the_account(void **state)
{
	struct world *w = world_new(NULL);

	(void)state;
	const char *id = world_create(w, "alpha");

	assert_ptr_equal(sandbox_find(w->all, w->account, id), world_find(w, id));
	assert_ptr_equal(sandbox_find(w->all, w->account, "alpha"), world_find(w, id));
	assert_null(sandbox_find(w->all, "ac_ffffffffffffffffffff", id));
	assert_null(sandbox_find(w->all, "ac_ffffffffffffffffffff", "alpha"));
	assert_null(sandbox_find(w->all, NULL, "alpha"));
	assert_int_equal(sandboxes_count(w->all), 1);
	world_free(w);
}

static void test_a_live_name_is_a_conflict_that_names_the_id(void **state)
{
	struct world *w = world_new(NULL);
	struct sandbox *sb;
	bool is_replay;
	struct err err;

	(void)state;
	const char *id = world_running(w, "alpha");
	struct sandbox_create_spec spec = world_spec(w, "alpha");

	assert_err(sandbox_create(w->all, &spec, &sb, &is_replay, &err), &err, ERR_CONFLICT);
	assert_err_says(&err, id);
	assert_int_equal(world_charged(w), 1);

	world_destroy(w, id);
	WORLD_UNTIL(w, world_is_state(w, id, "deleted"));
	world_running(w, "alpha");
	world_free(w);
}

static void test_an_idempotency_key_makes_one_sandbox(void **state)
{
	struct world *w = world_new(NULL);
	struct sandbox_create_spec spec = world_spec(w, NULL);
	struct sandbox *sb;
	bool is_replay = false;
	struct err err;

	(void)state;
	spec.idempotency_key = "key-1";
	spec.request_hash = "aaaa";
	const char *id = world_create_spec(w, &spec);

	assert_ok(sandbox_create(w->all, &spec, &sb, &is_replay, &err), &err);
	assert_true(is_replay);
	assert_string_equal(sandbox_row(sb)->id, id);
	WORLD_UNTIL(w, world_is_state(w, id, "running"));
	assert_ok(sandbox_create(w->all, &spec, &sb, &is_replay, &err), &err);
	assert_true(is_replay);
	assert_int_equal(world_charged(w), 1);

	spec.request_hash = "bbbb";
	assert_err(sandbox_create(w->all, &spec, &sb, &is_replay, &err), &err, ERR_CONFLICT);
	assert_err_says(&err, id);

	/* It holds over a restart, and when the sandbox is over. */
	spec.request_hash = "aaaa";
	world_stop(w);
	world_start(w);
	assert_ok(sandbox_create(w->all, &spec, &sb, &is_replay, &err), &err);
	assert_string_equal(sandbox_row(sb)->id, id);
	world_destroy(w, id);
	WORLD_UNTIL(w, world_is_state(w, id, "deleted"));
	assert_err(sandbox_create(w->all, &spec, &sb, &is_replay, &err), &err, ERR_ENDED);
	assert_err_says(&err, id);
	world_free(w);
}

static void refused(struct world *w, const struct sandbox_create_spec *spec, enum err_kind kind,
	const char *text)
{
	struct sandbox *sb;
	bool is_replay;
	struct err err;

	assert_err(sandbox_create(w->all, spec, &sb, &is_replay, &err), &err, kind);
	assert_err_says(&err, text);
	assert_int_equal(world_charged(w), 0);
	assert_int_equal(sandboxes_count(w->all), 0);
}

static void test_wrong_requests_are_refused_and_charge_nothing(void **state)
{
	struct world *w = world_new(NULL);
	struct sandbox_create_spec spec;

	(void)state;
	spec = world_spec(w, "Not_a_name");
	refused(w, &spec, ERR_INVALID, "name");
	spec = world_spec(w, NULL);
	spec.timeout_minutes = 1441;
	refused(w, &spec, ERR_INVALID, "1440");
	spec.timeout_minutes = 0;
	refused(w, &spec, ERR_INVALID, "timeout_minutes");
	spec = world_spec(w, NULL);
	spec.vcpus = 0;
	refused(w, &spec, ERR_INVALID, "vcpus");
	spec = world_spec(w, NULL);
	spec.disk_gb = 1;
	refused(w, &spec, ERR_INVALID, "at least 2");
	spec = world_spec(w, NULL);
	spec.image = "plan9";
	refused(w, &spec, ERR_NOT_FOUND, "minimal");
	world_free(w);
}

static void test_nothing_is_created_before_the_hypervisor_is_ready(void **state)
{
	struct world *w = world_new_stopped(NULL);
	struct sandbox_create_spec spec;
	struct err err;

	(void)state;
	fake_hv_set_ready(w->hv, false);
	world_start_only(w);
	spec = world_spec(w, NULL);
	refused(w, &spec, ERR_UNAVAILABLE, "hypervisor");
	world_run(w, 30);
	refused(w, &spec, ERR_UNAVAILABLE, "hypervisor");
	fake_hv_set_ready(w->hv, true);
	WORLD_UNTIL(w, sandboxes_is_ready(w->all, &err));
	world_running(w, NULL);
	fake_hv_set_ready(w->hv, false);
	WORLD_UNTIL(w, !sandboxes_is_ready(w->all, &err));
	world_free(w);
}

static size_t count_state(struct world *w, const char *const *ids, size_t count, const char *name)
{
	size_t hits = 0;

	for (size_t i = 0; i < count; i++) {
		hits += world_is_state(w, ids[i], name);
	}
	return hits;
}

static void test_twenty_at_once_within_a_quota_of_twenty(void **state)
{
	struct world *w = world_new(NULL);
	const char *ids[20];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(ids); i++) {
		ids[i] = world_create(w, NULL);
	}
	WORLD_UNTIL(w, count_state(w, ids, ARRAY_SIZE(ids), "running") == ARRAY_SIZE(ids));
	assert_int_equal(fake_hv_count(w->hv), 20);
	for (size_t i = 0; i < ARRAY_SIZE(ids); i++) {
		world_destroy(w, ids[i]);
	}
	WORLD_UNTIL(w, count_state(w, ids, ARRAY_SIZE(ids), "deleted") == ARRAY_SIZE(ids));
	assert_int_equal(fake_hv_count(w->hv), 0);
	assert_int_equal(world_charged(w), 0);
	world_free(w);
}

static void test_twenty_at_once_within_a_quota_of_five(void **state)
{
	struct quota_amounts limits = QUOTA_DEFAULT_LIMITS;
	unsigned fine = 0;
	unsigned over = 0;

	(void)state;
	limits.sandboxes = 5;
	struct world *w = world_new(&limits);

	for (unsigned i = 0; i < 20; i++) {
		struct sandbox_create_spec spec = world_spec(w, NULL);
		struct sandbox *sb;
		bool is_replay;
		struct err err = ERR_INIT;

		if (sandbox_create(w->all, &spec, &sb, &is_replay, &err) == 0) {
			fine++;
			continue;
		}
		assert_int_equal(err.kind, ERR_QUOTA);
		assert_err_says(&err, "5");
		over++;
	}
	assert_int_equal(fine, 5);
	assert_int_equal(over, 15);
	WORLD_UNTIL(w, fake_hv_count(w->hv) == 5);
	world_free(w);
}

static void test_a_cancelled_wait_hears_nothing(void **state)
{
	struct world *w = world_new(NULL);
	struct world_answer dropped = {0};
	struct world_answer kept = {0};
	struct world_answer gone = {0};

	(void)state;
	const char *id = world_create(w, NULL);
	struct sandbox_wait *wait = sandbox_wait_ready(world_find(w, id), world_on_wait, &dropped);

	sandbox_wait_ready(world_find(w, id), world_on_wait, &kept);
	sandbox_wait_cancel(wait);
	WORLD_UNTIL(w, kept.count == 1);
	wait = sandbox_wait_gone(world_find(w, id), world_on_wait, &gone);
	world_destroy(w, id);
	sandbox_wait_cancel(wait);
	WORLD_UNTIL(w, world_is_state(w, id, "deleted"));
	world_run(w, 20);
	assert_int_equal(dropped.count, 0);
	assert_int_equal(gone.count, 0);
	world_free(w);
}

static void test_a_wait_for_what_is_so_already_is_answered(void **state)
{
	struct world *w = world_new(NULL);
	struct world_answer ready = {0};

	(void)state;
	const char *id = world_running(w, NULL);

	sandbox_wait_ready(world_find(w, id), world_on_wait, &ready);
	assert_int_equal(ready.count, 0);
	WORLD_UNTIL(w, ready.count == 1);
	assert_int_equal(ready.kind, ERR_NONE);
	world_free(w);
}

static void test_a_shutdown_answers_who_waits(void **state)
{
	struct world *w = world_new(NULL);
	struct world_answer ready = {0};
	struct world_answer gone = {0};
	struct world_answer exec;

	(void)state;
	fake_hv_script(
		w->hv, FAKE_HV_DISK_CREATE, &(struct fake_script){.mode = FAKE_HOLD, .skip = 1});
	const char *running = world_running(w, NULL);
	const char *starting = world_create(w, NULL);

	sandbox_wait_ready(world_find(w, starting), world_on_wait, &ready);
	sandbox_wait_gone(world_find(w, running), world_on_wait, &gone);
	world_exec_start(w, running, "hang", &exec);
	WORLD_UNTIL(w, fake_hv_held(w->hv, FAKE_HV_DISK_CREATE) == 1);
	world_stop(w);
	assert_int_equal(ready.kind, ERR_CANCELLED);
	assert_int_equal(gone.kind, ERR_CANCELLED);
	assert_int_equal(exec.kind, ERR_CANCELLED);
	assert_int_equal(fake_hv_count(w->hv), 1);
	world_free(w);
}

static void test_the_guest_is_told_what_it_should_know(void **state)
{
	struct world *w = world_new_stopped(NULL);
	char *operators[] = {(char *)"PIP_INDEX_URL=http://mirror", (char *)"A=0", NULL};
	char *own[] = {(char *)"A=1", NULL};
	struct world_answer answer;

	(void)state;
	w->config.guest_env = operators;
	w->config.guest_ca_pem = "PEM";
	world_start(w);
	struct sandbox_create_spec spec = world_spec(w, "alpha");

	spec.env = own;
	const char *id = world_create_spec(w, &spec);

	WORLD_UNTIL(w, world_is_state(w, id, "running"));
	const struct fake_settings *told = fake_guest_settings(w->guests, id);

	assert_string_equal(told->hostname, "alpha");
	assert_true(told->was_seeded);
	assert_string_equal(told->ca_pem, "PEM");
	assert_true(told->wall_ms > clock_wall_ms() - 60000);
	assert_true(told->has_deadline);
	assert_in_range(told->deadline_ms, 14 * 60000, 15 * 60000 + w->config.deadman_margin_ms);
	world_exec(w, id, "env PIP_INDEX_URL", &answer);
	assert_string_equal(answer.out, "http://mirror");
	world_exec(w, id, "env A", &answer);
	assert_string_equal(answer.out, "1");

	/* A sandbox without a name has a host name without an underscore. */
	const char *other = world_running(w, NULL);

	assert_null(strchr(fake_guest_settings(w->guests, other)->hostname, '_'));
	world_free(w);
}

static void test_a_permanent_sandbox_has_no_deadline(void **state)
{
	struct world *w = world_new(NULL);
	struct sandbox_create_spec spec = world_spec(w, "keep");

	(void)state;
	spec.is_temporary = false;
	spec.timeout_minutes = 0;
	const char *id = world_create_spec(w, &spec);

	WORLD_UNTIL(w, world_is_state(w, id, "running"));
	assert_int_equal(sandbox_row(world_find(w, id))->expires_at_ms, 0);
	assert_true(fake_guest_settings(w->guests, id)->has_deadline);
	assert_int_equal(fake_guest_settings(w->guests, id)->deadline_ms, 0);

	/* It stops when its guest does, and stays; it can still be deleted. */
	fake_hv_stop_domain(w->hv, id, true);
	WORLD_UNTIL(w, world_is_state(w, id, "stopped"));
	assert_string_equal(world_reason(w, id), "guest_shutdown");
	assert_false(world_is_clean(w, id));
	assert_int_equal(world_charged(w), 1);
	struct err err;
	const struct sandbox_exec_spec exec = {.command = "true"};

	assert_null(sandbox_exec(world_find(w, id), &exec, world_on_exec, NULL, &err));
	assert_int_equal(err.kind, ERR_CONFLICT);
	world_destroy(w, id);
	WORLD_UNTIL(w, world_is_state(w, id, "deleted"));
	assert_true(world_is_clean(w, id));
	world_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_create_runs_and_is_gone_after_destroy),
		cmocka_unit_test(test_the_row_says_what_was_asked_and_what_runs),
		cmocka_unit_test(test_each_sandbox_has_a_uid_of_its_own),
		cmocka_unit_test(test_uids_that_are_all_in_use_are_unavailable),
		cmocka_unit_test(test_find_knows_names_only_within_the_account),
		cmocka_unit_test(test_a_live_name_is_a_conflict_that_names_the_id),
		cmocka_unit_test(test_an_idempotency_key_makes_one_sandbox),
		cmocka_unit_test(test_wrong_requests_are_refused_and_charge_nothing),
		cmocka_unit_test(test_nothing_is_created_before_the_hypervisor_is_ready),
		cmocka_unit_test(test_twenty_at_once_within_a_quota_of_twenty),
		cmocka_unit_test(test_twenty_at_once_within_a_quota_of_five),
		cmocka_unit_test(test_a_cancelled_wait_hears_nothing),
		cmocka_unit_test(test_a_wait_for_what_is_so_already_is_answered),
		cmocka_unit_test(test_a_shutdown_answers_who_waits),
		cmocka_unit_test(test_the_guest_is_told_what_it_should_know),
		cmocka_unit_test(test_a_permanent_sandbox_has_no_deadline),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
