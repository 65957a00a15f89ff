#include "tests/lib/cm.h"

#include "base/cleanup.h"
#include "store/store.h"
#include "store/store_account.h"
#include "store/store_sandbox.h"
#include "tests/lib/tmpdir.h"

static struct store *store;
static char *path;
static struct store_account acme;
static struct store_account other;

static int open_new(void **state)
{
	struct err err = ERR_INIT;

	if (tmpdir_make(state) != 0) {
		return -1;
	}
	path = tmpdir_path("db");
	store = store_open(path, &err);
	if (!store || store_account_insert(store, "acme", 1, &acme, &err) < 0 ||
		store_account_insert(store, "other", 1, &other, &err) < 0) {
		return -1;
	}
	return 0;
}

static int close_it(void **state)
{
	store_close(store);
	free(path);
	return tmpdir_drop(state);
}

/* The least that a row needs; strings are literals, so it is never freed. */
static struct store_sandbox plain_row(const char *id, const char *account)
{
	struct store_sandbox row = {
		.state = (char *)"provisioning",
		.vcpus = 1,
		.memory_mb = 256,
		.disk_gb = 2,
		.image = (char *)"minimal",
		.image_version = (char *)"681a6057bbc1bccf",
		.network = (char *)"none",
		.created_at_ms = 1000,
	};

	memcpy(row.id, id, strlen(id) + 1);
	memcpy(row.account, account, strlen(account) + 1);
	return row;
}

static void add(const struct store_sandbox *row)
{
	struct err err;

	assert_ok(store_sandbox_insert(store, row, &err), &err);
}

static void add_plain(const char *id, int64_t created_at_ms)
{
	struct store_sandbox row = plain_row(id, acme.id);

	row.created_at_ms = created_at_ms;
	add(&row);
}

static struct store_sandbox *get(const char *id)
{
	struct err err = ERR_INIT;
	struct store_sandbox *row = store_sandbox_get(store, id, &err);

	if (!row) {
		fail_msg("%s: %s", id, err.msg);
	}
	return row;
}

static void end(const char *id, const char *state, int64_t ended_at_ms, bool releases_uid)
{
	struct store_sandbox_change change = {
		.state = state, .ended_at_ms = ended_at_ms, .releases_uid = releases_uid};
	struct err err;

	assert_ok(store_sandbox_set_state(store, id, &change, &err), &err);
}

/* ---- rows ---- */

static void test_row_comes_back_as_it_was_written(void **state)
{
	static char env[] = "A=1\0B=\0C=x y";
	struct store_sandbox row = plain_row("sb_1", acme.id);

	(void)state;
	row.name = (char *)"web";
	row.reason = (char *)"why";
	row.size = (char *)"small";
	row.vcpus = 2;
	row.memory_mb = 4096;
	row.disk_gb = 40;
	row.network = (char *)"egress";
	row.is_temporary = true;
	row.env = env;
	row.env_len = sizeof(env);
	row.metadata = (char *)"{\"k\":\"v\"}";
	row.ready_at_ms = 2000;
	row.expires_at_ms = 3000;
	row.idempotency_key = (char *)"key";
	row.request_hash = (char *)"hash";
	row.uid = 4000000000U;
	row.pid = 77;
	row.pid_start = UINT64_MAX;
	add(&row);
	_cleanup_store_sandbox_ struct store_sandbox *got = get("sb_1");

	assert_string_equal(got->id, "sb_1");
	assert_string_equal(got->account, acme.id);
	assert_string_equal(got->name, "web");
	assert_string_equal(got->state, "provisioning");
	assert_string_equal(got->reason, "why");
	assert_string_equal(got->size, "small");
	assert_int_equal(got->vcpus, 2);
	assert_int_equal(got->memory_mb, 4096);
	assert_int_equal(got->disk_gb, 40);
	assert_string_equal(got->image, "minimal");
	assert_string_equal(got->image_version, "681a6057bbc1bccf");
	assert_string_equal(got->network, "egress");
	assert_true(got->is_temporary);
	assert_int_equal(got->env_len, sizeof(env));
	assert_memory_equal(got->env, env, sizeof(env));
	assert_string_equal(got->metadata, "{\"k\":\"v\"}");
	assert_int_equal(got->created_at_ms, 1000);
	assert_int_equal(got->ready_at_ms, 2000);
	assert_int_equal(got->expires_at_ms, 3000);
	assert_int_equal(got->ended_at_ms, 0);
	assert_string_equal(got->idempotency_key, "key");
	assert_string_equal(got->request_hash, "hash");
	assert_int_equal(got->uid, 4000000000U);
	assert_int_equal(got->pid, 77);
	assert_true(got->pid_start == UINT64_MAX);
}

static void test_what_was_left_out_comes_back_as_nothing(void **state)
{
	(void)state;
	add_plain("sb_1", 1000);
	_cleanup_store_sandbox_ struct store_sandbox *got = get("sb_1");

	assert_null(got->name);
	assert_null(got->reason);
	assert_null(got->size);
	assert_null(got->env);
	assert_null(got->metadata);
	assert_null(got->idempotency_key);
	assert_null(got->request_hash);
	assert_int_equal(got->ready_at_ms, 0);
	assert_int_equal(got->expires_at_ms, 0);
	assert_int_equal(got->uid, 0);
	assert_int_equal(got->pid, 0);
	assert_int_equal(got->pid_start, 0);
}

static void test_missing_row_is_not_found(void **state)
{
	struct err err = ERR_INIT;

	(void)state;
	assert_null(store_sandbox_get(store, "sb_none", &err));
	assert_int_equal(err.kind, ERR_NOT_FOUND);
	assert_null(store_sandbox_get_by_name(store, acme.id, "web", &err));
	assert_int_equal(err.kind, ERR_NOT_FOUND);
	assert_err(store_sandbox_set_expiry(store, "sb_none", 1, &err), &err, ERR_NOT_FOUND);
}

static void test_row_needs_an_account(void **state)
{
	struct store_sandbox row = plain_row("sb_1", "ac_none");
	struct err err;

	(void)state;
	assert_err(store_sandbox_insert(store, &row, &err), &err, ERR_NOT_FOUND);
}

/* ---- what is unique ---- */

static void test_name_is_unique_among_the_live_ones_of_an_account(void **state)
{
	struct store_sandbox row = plain_row("sb_1", acme.id);
	struct err err;

	(void)state;
	row.name = (char *)"web";
	add(&row);
	struct store_sandbox second = plain_row("sb_2", acme.id);
	second.name = row.name;
	assert_err(store_sandbox_insert(store, &second, &err), &err, ERR_CONFLICT);
	assert_err_says(&err, "a sandbox of that name");

	struct store_sandbox elsewhere = plain_row("sb_3", other.id);
	elsewhere.name = row.name;
	add(&elsewhere);

	end("sb_1", "deleted", 5000, true);
	add(&second);
	_cleanup_store_sandbox_ struct store_sandbox *got = store_sandbox_get_by_name(
		store, acme.id, "web", &err);
	assert_string_equal(got->id, "sb_2");
}

static void test_idempotency_key_stays_taken_when_its_sandbox_ended(void **state)
{
	struct store_sandbox row = plain_row("sb_1", acme.id);
	struct err err;

	(void)state;
	row.idempotency_key = (char *)"key";
	row.request_hash = (char *)"hash";
	add(&row);
	end("sb_1", "deleted", 5000, true);
	struct store_sandbox second = plain_row("sb_2", acme.id);
	second.idempotency_key = row.idempotency_key;
	second.request_hash = row.request_hash;
	assert_err(store_sandbox_insert(store, &second, &err), &err, ERR_CONFLICT);
	assert_err_says(&err, "idempotency key");
	_cleanup_store_sandbox_ struct store_sandbox *got = store_sandbox_get_by_idempotency(
		store, acme.id, "key", &err);
	assert_string_equal(got->id, "sb_1");
	assert_null(store_sandbox_get_by_idempotency(store, other.id, "key", &err));
}

static void test_uid_belongs_to_one_row_until_it_is_released(void **state)
{
	struct store_sandbox first = plain_row("sb_1", acme.id);
	struct store_sandbox second = plain_row("sb_2", other.id);
	struct err err;

	(void)state;
	first.uid = second.uid = 300000;
	add(&first);
	assert_err(store_sandbox_insert(store, &second, &err), &err, ERR_CONFLICT);
	assert_err_says(&err, "uid");
	end("sb_1", "failed", 5000, false);
	assert_err(store_sandbox_insert(store, &second, &err), &err, ERR_CONFLICT);
	end("sb_1", "failed", 5000, true);
	add(&second);
}

/* ---- changes ---- */

static void test_state_change_writes_what_it_names_and_leaves_the_rest(void **state)
{
	struct store_sandbox row = plain_row("sb_1", acme.id);
	struct store_sandbox_change running = {
		.state = "running", .ready_at_ms = 2000, .pid = 7, .pid_start = 8};
	struct store_sandbox_change deleting = {.state = "deleting", .reason = "expired"};
	struct store_sandbox_change deleted = {.state = "deleted", .ended_at_ms = 9000};
	struct err err;

	(void)state;
	row.uid = 300000;
	add(&row);
	assert_ok(store_sandbox_set_state(store, "sb_1", &running, &err), &err);
	_cleanup_store_sandbox_ struct store_sandbox *one = get("sb_1");
	assert_string_equal(one->state, "running");
	assert_null(one->reason);
	assert_int_equal(one->ready_at_ms, 2000);
	assert_int_equal(one->pid, 7);
	assert_int_equal(one->pid_start, 8);
	assert_int_equal(one->uid, 300000);

	assert_ok(store_sandbox_set_state(store, "sb_1", &deleting, &err), &err);
	assert_ok(store_sandbox_set_state(store, "sb_1", &deleted, &err), &err);
	_cleanup_store_sandbox_ struct store_sandbox *two = get("sb_1");
	assert_string_equal(two->state, "deleted");
	assert_string_equal(two->reason, "expired");
	assert_int_equal(two->ready_at_ms, 2000);
	assert_int_equal(two->ended_at_ms, 9000);
	assert_int_equal(two->pid, 0);
	assert_int_equal(two->uid, 300000);
	assert_err(store_sandbox_set_state(store, "sb_2", &deleted, &err), &err, ERR_NOT_FOUND);
}

static void test_expiry_of_an_ended_row_stands(void **state)
{
	struct err err;

	(void)state;
	add_plain("sb_1", 1000);
	assert_ok(store_sandbox_set_expiry(store, "sb_1", 7000, &err), &err);
	_cleanup_store_sandbox_ struct store_sandbox *got = get("sb_1");
	assert_int_equal(got->expires_at_ms, 7000);
	end("sb_1", "deleted", 8000, true);
	assert_err(store_sandbox_set_expiry(store, "sb_1", 9000, &err), &err, ERR_ENDED);
	_cleanup_store_sandbox_ struct store_sandbox *after = get("sb_1");
	assert_int_equal(after->expires_at_ms, 7000);
}

/* ---- lists ---- */

/* The ids of a page, joined. */
static char *page(const struct store_sandbox_query *query, bool *ret_has_more)
{
	_cleanup_store_sandbox_list_ struct store_sandbox_list list = {0};
	char *ids = xstrdup("");
	struct err err;

	assert_ok(store_sandbox_list(store, query, &list, &err), &err);
	for (size_t i = 0; i < list.count; i++) {
		char *longer = xasprintf("%s%s ", ids, list.rows[i]->id);

		free(ids);
		ids = longer;
	}
	*ret_has_more = list.has_more;
	return ids;
}

static void expect_page(const struct store_sandbox_query *query, const char *ids, bool has_more)
{
	bool got_more;
	_cleanup_free_ char *got = page(query, &got_more);

	assert_string_equal(got, ids);
	assert_int_equal(got_more, has_more);
}

static void test_pages_go_from_the_newest_to_the_oldest(void **state)
{
	struct store_sandbox_query query = {.account = acme.id, .limit = 2};

	(void)state;
	add_plain("sb_a", 10);
	add_plain("sb_c", 20);
	add_plain("sb_b", 20);
	add_plain("sb_d", 30);
	struct store_sandbox foreign = plain_row("sb_x", other.id);
	add(&foreign);

	expect_page(&query, "sb_d sb_c ", true);
	/* A row made meanwhile doesn't shift what follows. */
	add_plain("sb_e", 40);
	query.after_id = "sb_c";
	query.after_created_at_ms = 20;
	expect_page(&query, "sb_b sb_a ", false);
	query.after_id = "sb_a";
	query.after_created_at_ms = 10;
	expect_page(&query, "", false);

	struct store_sandbox_query all = {.limit = STORE_PAGE_MAX};
	expect_page(&all, "sb_x sb_e sb_d sb_c sb_b sb_a ", false);
}

static void test_lists_are_filtered_by_state_and_life(void **state)
{
	struct store_sandbox_query query = {.account = acme.id, .limit = 10};

	(void)state;
	add_plain("sb_a", 10);
	add_plain("sb_b", 20);
	add_plain("sb_c", 30);
	end("sb_b", "deleted", 99, true);
	query.state = "deleted";
	expect_page(&query, "sb_b ", false);
	query.state = NULL;
	query.is_live_only = true;
	expect_page(&query, "sb_c sb_a ", false);
	query.account = NULL;
	expect_page(&query, "sb_c sb_a ", false);
	query.account = other.id;
	expect_page(&query, "", false);
}

static void test_lists_are_filtered_by_metadata(void **state)
{
	struct store_sandbox_query query = {.account = acme.id, .limit = 10};
	struct store_sandbox a = plain_row("sb_a", acme.id);
	struct store_sandbox b = plain_row("sb_b", acme.id);

	(void)state;
	a.metadata = (char *)"{\"team\":\"x\",\"odd.$[\\\"key\":\"1\"}";
	b.metadata = (char *)"{\"team\":\"x\",\"job\":\"2\"}";
	add(&a);
	add(&b);
	add_plain("sb_c", 1000);
	query.metadata = "{\"team\":\"x\"}";
	expect_page(&query, "sb_b sb_a ", false);
	query.metadata = "{\"team\":\"x\",\"job\":\"2\"}";
	expect_page(&query, "sb_b ", false);
	query.metadata = "{\"odd.$[\\\"key\":\"1\"}";
	expect_page(&query, "sb_a ", false);
	query.metadata = "{\"team\":\"X\"}";
	expect_page(&query, "", false);
}

/* However much there is to look through, a page takes a bounded part of it. */
static void test_a_search_goes_on_with_the_next_page(void **state)
{
	struct store_sandbox_query query = {
		.account = acme.id, .limit = 10, .metadata = "{\"wanted\":\"1\"}"};
	_cleanup_free_ char *big = xcalloc(1, 1024 * 1024 + 1);
	_cleanup_free_ char *unwanted = NULL;
	char last[ID_BYTES];
	unsigned pages = 0;
	unsigned found = 0;
	bool has_more = true;

	(void)state;
	memset(big, 'x', 1024 * 1024);
	unwanted = xasprintf("{\"other\":\"%s\"}", big);
	for (int i = 0; i < 20; i++) {
		char id[ID_BYTES];

		snprintf(id, sizeof id, "sb_%d", 10 + i);
		struct store_sandbox row = plain_row(id, acme.id);

		row.metadata = i == 0 ? (char *)"{\"wanted\":\"1\"}" : unwanted;
		add(&row);
	}
	for (; has_more; pages++) {
		_cleanup_store_sandbox_list_ struct store_sandbox_list list = {0};
		struct err err;

		assert_ok(store_sandbox_list(store, &query, &list, &err), &err);
		found += (unsigned)list.count;
		has_more = list.has_more;
		memcpy(last, list.last_id, sizeof last);
		query.after_id = last;
		query.after_created_at_ms = list.last_created_at_ms;
	}
	assert_int_equal(found, 1);
	assert_in_range(pages, 4, 6);
}

static void test_start_sees_live_rows_and_those_that_own_a_uid(void **state)
{
	_cleanup_store_sandbox_list_ struct store_sandbox_list list = {0};
	struct store_sandbox row = plain_row("sb_owner", acme.id);
	struct err err;

	(void)state;
	row.uid = 300000;
	row.created_at_ms = 5;
	add(&row);
	add_plain("sb_live", 10);
	add_plain("sb_gone", 20);
	end("sb_owner", "failed", 99, false);
	end("sb_gone", "deleted", 99, true);
	assert_ok(store_sandbox_list_owning(store, &list, &err), &err);
	assert_int_equal(list.count, 2);
	assert_string_equal(list.rows[0]->id, "sb_owner");
	assert_string_equal(list.rows[1]->id, "sb_live");
}

static void test_free_uid_is_the_lowest_gap_of_the_range(void **state)
{
	struct err err;
	uid_t uid = 0;

	(void)state;
	assert_ok(store_sandbox_find_uid(store, 300000, 3, &uid, &err), &err);
	assert_int_equal(uid, 300000);
	for (uid_t i = 0; i < 3; i++) {
		_cleanup_free_ char *id = xasprintf("sb_%u", i);
		struct store_sandbox row = plain_row(id, acme.id);

		assert_ok(store_sandbox_find_uid(store, 300000, 3, &row.uid, &err), &err);
		assert_int_equal(row.uid, 300000 + i);
		add(&row);
	}
	assert_err(store_sandbox_find_uid(store, 300000, 3, &uid, &err), &err, ERR_UNAVAILABLE);
	assert_err_says(&err, "all 3 user ids");
	assert_ok(store_sandbox_find_uid(store, 300000, 4, &uid, &err), &err);
	assert_int_equal(uid, 300003);
	end("sb_1", "deleted", 1, true);
	assert_ok(store_sandbox_find_uid(store, 300000, 3, &uid, &err), &err);
	assert_int_equal(uid, 300001);
}

static void test_pruning_takes_old_ended_rows_that_own_nothing(void **state)
{
	struct store_sandbox owner = plain_row("sb_owner", acme.id);
	struct store_sandbox_query all = {.limit = 10};
	unsigned count = 0;
	struct err err;

	(void)state;
	owner.uid = 300000;
	add(&owner);
	add_plain("sb_live", 1);
	add_plain("sb_old", 2);
	add_plain("sb_older", 3);
	add_plain("sb_fresh", 4);
	end("sb_owner", "failed", 10, false);
	end("sb_older", "deleted", 10, true);
	end("sb_old", "deleted", 20, true);
	end("sb_fresh", "deleted", 100, true);
	assert_ok(store_sandbox_prune(store, 100, 1, &count, &err), &err);
	assert_int_equal(count, 1);
	expect_page(&all, "sb_owner sb_fresh sb_old sb_live ", false);
	assert_ok(store_sandbox_prune(store, 100, 10, &count, &err), &err);
	assert_int_equal(count, 1);
	expect_page(&all, "sb_owner sb_fresh sb_live ", false);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, open_new, close_it)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_row_comes_back_as_it_was_written),
		TEST(test_what_was_left_out_comes_back_as_nothing),
		TEST(test_missing_row_is_not_found),
		TEST(test_row_needs_an_account),
		TEST(test_name_is_unique_among_the_live_ones_of_an_account),
		TEST(test_idempotency_key_stays_taken_when_its_sandbox_ended),
		TEST(test_uid_belongs_to_one_row_until_it_is_released),
		TEST(test_state_change_writes_what_it_names_and_leaves_the_rest),
		TEST(test_expiry_of_an_ended_row_stands),
		TEST(test_pages_go_from_the_newest_to_the_oldest),
		TEST(test_lists_are_filtered_by_state_and_life),
		TEST(test_lists_are_filtered_by_metadata),
		TEST(test_a_search_goes_on_with_the_next_page),
		TEST(test_start_sees_live_rows_and_those_that_own_a_uid),
		TEST(test_free_uid_is_the_lowest_gap_of_the_range),
		TEST(test_pruning_takes_old_ended_rows_that_own_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
