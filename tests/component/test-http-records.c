/* What is kept of sandboxes: pages of records, the last results, and how they go in the end. */
#include "tests/lib/http_fixture.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/rand.h"
#include "base/xalloc.h"
#include "store/store_stmt.h"

static void run_sql(const char *sql)
{
	struct err err = ERR_INIT;

	assert_ok(store_exec(h->w->store, sql, &err), &err);
}

static unsigned count_records(const char *key)
{
	struct answer *a = http_get(h, key, "/v1/sandboxes?status=all&limit=500");

	assert_int_equal(a->status, 200);
	assert_null(answer_text(a, "next_cursor"));
	return (unsigned)json_object_array_length(json_object_object_get(a->json, "data"));
}

static bool has_records(void)
{
	const struct store_sandbox_query query = {.account = h->account, .limit = 1};
	_cleanup_store_sandbox_list_ struct store_sandbox_list list = {0};
	struct err err;

	assert_ok(store_sandbox_list(h->w->store, &query, &list, &err), &err);
	return list.count > 0;
}

/* ---- pages ---- */

#define KEPT_MAX 4096

/* A row of the model. */
struct record {
	char id[ID_BYTES];
	int64_t created_at_ms;
	bool is_blue;
	bool is_there;
	bool was_there; /* since the first page */
	unsigned seen;
};
static struct record records[KEPT_MAX];
static size_t record_count;
static unsigned random_state;

static unsigned roll(unsigned below)
{
	random_state = random_state * 1664525 + 1013904223;
	return (random_state >> 8) % below;
}

static void put_row(const char *account, const char *id, int64_t created_at_ms, int64_t ended_at_ms,
	bool is_blue)
{
	struct store_sandbox row = {.state = (char *)"deleted",
		.vcpus = 1,
		.memory_mb = 256,
		.disk_gb = 2,
		.image = (char *)"minimal",
		.image_version = (char *)"1",
		.network = (char *)"none",
		.metadata = (char *)(is_blue ? "{\"team\":\"blue\"}" : "{\"team\":\"red\"}"),
		.created_at_ms = created_at_ms,
		.ended_at_ms = ended_at_ms};
	struct err err;

	snprintf(row.id, sizeof row.id, "%s", id);
	snprintf(row.account, sizeof row.account, "%s", account);
	assert_ok(store_sandbox_insert(h->w->store, &row, &err), &err);
}

static void add_record(void)
{
	struct record *record = &records[record_count++];

	assert_true(record_count <= KEPT_MAX);
	*record = (struct record){.is_there = true, .is_blue = roll(2)};
	id_make(record->id, ID_SANDBOX);
	/* Few different times: most pages end among rows of the same one. */
	record->created_at_ms = 1000 + (int64_t)roll(8);
	put_row(h->account, record->id, record->created_at_ms, 2000, record->is_blue);
}

static void drop_record(void)
{
	struct record *record = &records[roll((unsigned)record_count)];
	_cleanup_free_ char *sql = xasprintf("DELETE FROM sandbox WHERE id = '%s'", record->id);

	run_sql(sql);
	record->is_there = false;
	record->was_there = false;
}

static void note_page(struct answer *a, struct record *last)
{
	json_object *data = json_object_object_get(a->json, "data");

	for (size_t i = 0; i < json_object_array_length(data); i++) {
		const char *id = json_object_get_string(
			json_object_object_get(json_object_array_get_idx(data, i), "id"));

		for (size_t k = 0; k < record_count; k++) {
			struct record *record = &records[k];

			if (strcmp(record->id, id) != 0) {
				continue;
			}
			record->seen++;
			assert_true(last->created_at_ms > record->created_at_ms ||
				    (last->created_at_ms == record->created_at_ms &&
					    strcmp(last->id, record->id) > 0));
			*last = *record;
		}
	}
}

static void walk_a_changing_table(bool is_blue_only)
{
	struct record last = {.created_at_ms = INT64_MAX};
	_cleanup_free_ char *cursor = NULL;
	unsigned pages = 0;

	for (size_t i = 0; i < record_count; i++) {
		records[i].was_there = records[i].is_there;
		records[i].seen = 0;
	}
	do {
		_cleanup_free_ char *target = xasprintf("/v1/sandboxes?status=all%s&limit=%u%s%s",
			is_blue_only ? "&metadata.team=blue" : "", 1 + roll(6),
			cursor ? "&cursor=" : "", cursor ? cursor : "");
		struct answer *a = http_get(h, h->key, target);

		assert_int_equal(a->status, 200);
		note_page(a, &last);
		free(cursor);
		cursor = xstrdup(answer_text(a, "next_cursor"));
		for (unsigned n = roll(3); n > 0; n--) {
			add_record();
		}
		for (unsigned n = roll(3); n > 0; n--) {
			drop_record();
		}
		assert_true(++pages < 1000);
	} while (cursor);
	for (size_t i = 0; i < record_count; i++) {
		const struct record *record = &records[i];
		bool is_wanted = record->was_there && (record->is_blue || !is_blue_only);

		assert_true(record->seen <= 1);
		if (is_wanted) {
			assert_int_equal(record->seen, 1);
		} else if (is_blue_only && !record->is_blue) {
			assert_int_equal(record->seen, 0);
		}
	}
}

static void test_pages_of_a_changing_table_skip_and_repeat_nothing(void **state)
{
	const char *seed = getenv("TEST_SEED");

	(void)state;
	rand_bytes(&random_state, sizeof random_state);
	random_state = seed ? (unsigned)strtoul(seed, NULL, 10) : random_state;
	print_message("TEST_SEED=%u\n", random_state);
	record_count = 0;
	for (int i = 0; i < 40; i++) {
		add_record();
	}
	for (int i = 0; i < 30; i++) {
		walk_a_changing_table(i % 2);
	}
}

static void expect_bad_cursor(const char *key, const char *filters, const char *cursor)
{
	_cleanup_free_ char *target = xasprintf("/v1/sandboxes?%scursor=%s", filters, cursor);
	struct answer *a = http_get(h, key, target);

	if (a->status != 400 || !strstr(answer_text(a, "error.message"), "\"cursor\"")) {
		fail_msg("%s: %d", target, a->status);
	}
}

static void test_a_cursor_that_is_damaged_or_elsewhere_is_refused(void **state)
{
	(void)state;
	for (int i = 0; i < 4; i++) {
		char id[ID_BYTES];

		id_make(id, ID_SANDBOX);
		put_row(h->account, id, 1000 + i, 2000, true);
	}
	struct answer *a = http_get(h, h->key, "/v1/sandboxes?status=deleted&limit=2");
	_cleanup_free_ char *cursor = xstrdup(answer_text(a, "next_cursor"));
	size_t len = strlen(cursor);

	for (size_t i = 0; i < len; i++) {
		char old = cursor[i];

		cursor[i] = old == '0' ? '1' : '0';
		expect_bad_cursor(h->key, "status=deleted&", cursor);
		cursor[i] = old >= 'a' ? (char)(old - 32) : 'x';
		expect_bad_cursor(h->key, "status=deleted&", cursor);
		cursor[i] = '\0';
		expect_bad_cursor(h->key, "status=deleted&", cursor);
		cursor[i] = old;
	}
	_cleanup_free_ char *longer = xasprintf("%s0", cursor);

	expect_bad_cursor(h->key, "status=deleted&", longer);
	expect_bad_cursor(h->key, "", cursor);
	expect_bad_cursor(h->key, "status=all&", cursor);
	expect_bad_cursor(h->key, "status=deleted&metadata.team=blue&", cursor);
	expect_bad_cursor(h->other_key, "status=deleted&", cursor);
	/* The size of a page is no filter. */
	_cleanup_free_ char *target = xasprintf(
		"/v1/sandboxes?status=deleted&limit=1&cursor=%s", cursor);

	assert_int_equal(http_get(h, h->key, target)->status, 200);
}

static void test_a_page_has_bounds(void **state)
{
	(void)state;
	assert_int_equal(http_get(h, h->key, "/v1/sandboxes?limit=1")->status, 200);
	assert_int_equal(http_get(h, h->key, "/v1/sandboxes?limit=1000")->status, 200);
	assert_int_equal(http_get(h, h->key, "/v1/sandboxes?limit=0")->status, 400);
	assert_int_equal(http_get(h, h->key, "/v1/sandboxes?limit=1001")->status, 400);
	assert_int_equal(http_get(h, h->key, "/v1/sandboxes?limit=-1")->status, 400);
	assert_int_equal(http_get(h, h->key, "/v1/sandboxes?status=gone")->status, 400);
	assert_int_equal(http_get(h, h->key, "/v1/sandboxes?metadata=x")->status, 400);
}

/* ---- results ---- */

static struct answer *results_of(const char *id)
{
	struct answer *a = http_get(h, h->key, http_at(id, "/exec"));

	assert_int_equal(a->status, 200);
	return a;
}

static void run(const char *id, const char *command)
{
	_cleanup_free_ char *body = xasprintf("{\"command\":\"%s\"}", command);

	http_json(h, "POST", http_at(id, "/exec"), h->key, body);
}

/* So many results, with tails of so many bytes, from the next start on. */
static void keep_results(unsigned count, size_t bytes)
{
	h->w->config.results_count = count;
	h->w->config.result_bytes = bytes;
	http_world_restart(h);
}

static void test_a_sandbox_that_ended_keeps_its_last_results(void **state)
{
	(void)state;
	keep_results(3, 8);
	const char *id = http_running(h, NULL);

	run(id, "echo one");
	run(id, "echo abcdefghijkl");
	run(id, "warn oops");
	run(id, "exit 7");
	struct answer *a = results_of(id);

	assert_string_equal(answer_text(a, "data.0.exit_code"), "7");
	assert_string_equal(answer_text(a, "data.1.stderr_tail"), "oops\n");
	assert_string_equal(answer_text(a, "data.2.stdout_tail"), "fghijkl\n");
	assert_string_equal(answer_text(a, "data.2.stdout_bytes"), "13");
	assert_null(answer_text(a, "data.3"));
	http_json(h, "DELETE", http_at(id, ""), h->key, NULL);
	struct answer *b = results_of(id);

	assert_string_equal(a->body, b->body);
	http_world_restart(h);
	b = results_of(id);
	assert_string_equal(a->body, b->body);
	/* They are nobody else's. */
	assert_int_equal(http_get(h, h->other_key, http_at(id, "/exec"))->status, 404);
}

static void test_a_command_that_the_end_cuts_off_is_told(void **state)
{
	static const char body[] = "{\"command\":\"hang\"}";

	(void)state;
	keep_results(3, 8);
	const char *id = http_running(h, NULL);
	struct client *c = client_new(h);

	client_request(c, "POST", http_at(id, "/exec"), h->key, NULL, "application/json", body,
		sizeof body - 1);
	WORLD_UNTIL(h->w, fake_guest_call_count(h->w->guests) == 1);
	http_json(h, "DELETE", http_at(id, ""), h->key, NULL);
	answer_free(client_answer(c, false));
	client_free(c);
	struct answer *a = results_of(id);

	assert_null(answer_text(a, "data.0.exit_code"));
	assert_non_null(strstr(answer_text(a, "data.0.error"), "has ended: deleted"));
}

static void test_who_left_finds_the_result(void **state)
{
	static const char body[] = "{\"command\":\"hang\"}";

	(void)state;
	keep_results(3, 8);
	const char *id = http_running(h, NULL);
	struct client *c = client_new(h);

	client_request(c, "POST", http_at(id, "/exec"), h->key, NULL, "application/json", body,
		sizeof body - 1);
	WORLD_UNTIL(h->w, fake_guest_call_count(h->w->guests) == 1);
	client_free(c);
	WORLD_UNTIL(h->w, fake_guest_call_count(h->w->guests) == 0);
	assert_string_equal(
		answer_text(results_of(id), "data.0.error"), "stopped: its client left");
}

/* What waits in memory is no more than what is kept, and goes to the database by itself. */
static void test_results_are_written_without_being_asked_for(void **state)
{
	unsigned rows = 0;

	(void)state;
	keep_results(2, 1024);
	const char *id = http_running(h, NULL);

	for (int i = 0; i < 20; i++) {
		run(id, "bytes 5000");
	}
	while (rows != 2) {
		_cleanup_store_exec_list_ struct store_exec_list list = {0};
		struct err err;

		world_turn(h->w);
		assert_ok(store_exec_list(h->w->store, id, &list, &err), &err);
		rows = (unsigned)list.count;
	}
	/* As when the daemon is killed now. */
	http_world_restart(h);
	struct answer *a = results_of(id);

	assert_int_equal(strlen(answer_text(a, "data.0.stdout_tail")), 1024);
	assert_string_equal(answer_text(a, "data.0.truncated"), "true");
	assert_null(answer_text(a, "data.2"));
}

static void test_results_can_be_switched_off(void **state)
{
	(void)state;
	keep_results(0, 1024);
	const char *id = http_running(h, NULL);

	run(id, "echo secret");
	assert_null(answer_text(results_of(id), "data.0"));
}

/* ---- pruning ---- */

#define DAY_MS (INT64_C(24) * 60 * MS_PER_MINUTE)

static void start_pruning(unsigned days, unsigned count)
{
	h->w->config.records_days = days;
	h->w->config.records_count = count;
	h->w->config.records_pass_ms = 50;
	http_world_restart(h);
}

static void put_ended(const char *account, unsigned count, int64_t ended_at_ms)
{
	for (unsigned i = 0; i < count; i++) {
		char id[ID_BYTES];

		id_make(id, ID_SANDBOX);
		put_row(account, id, ended_at_ms, ended_at_ms, true);
	}
}

static void test_old_records_go_with_time(void **state)
{
	static const char key[] = "Idempotency-Key: k\r\n";

	(void)state;
	h->w->config.results_count = 3;
	h->w->config.result_bytes = 100;
	start_pruning(2, 1000);
	const char *live = http_running(h, NULL);
	struct answer *a = http_request(
		h, "POST", "/v1/sandboxes", h->key, key, "application/json", "{}", 2);
	const char *id = answer_text(a, "id");

	run(id, "echo hello");
	http_json(h, "DELETE", http_at(id, ""), h->key, NULL);
	assert_int_equal(
		http_request(h, "POST", "/v1/sandboxes", h->key, key, "application/json", "{}", 2)
			->status,
		409);
	clock_test_advance(0, DAY_MS);
	world_run(h->w, 200);
	assert_int_equal(http_get(h, h->key, http_at(id, ""))->status, 200);
	/* (The live one has expired by now.) */
	WORLD_UNTIL(h->w, world_is_state(h->w, live, "deleted"));
	clock_test_advance(0, DAY_MS + MS_PER_MINUTE);
	WORLD_UNTIL(h->w, http_get(h, h->key, http_at(id, ""))->status == 404);
	assert_int_equal(http_get(h, h->key, http_at(id, "/exec"))->status, 404);
	/* One day younger: it stays. */
	assert_int_equal(http_get(h, h->key, http_at(live, ""))->status, 200);
	/* The key went with the record. */
	assert_int_equal(
		http_request(h, "POST", "/v1/sandboxes", h->key, key, "application/json", "{}", 2)
			->status,
		201);
	clock_test_advance(0, -2 * DAY_MS - MS_PER_MINUTE);
}

static void test_too_many_records_push_out_an_accounts_own(void **state)
{
	int64_t now = clock_wall_ms();

	(void)state;
	put_ended(h->account, 150, now - 1000);
	put_ended(h->account, 20, now);
	put_ended(h->other_account, 18, now - 2000);
	start_pruning(30, 20);
	const char *id = http_running(h, NULL);

	WORLD_UNTIL(h->w, count_records(h->key) == 21);
	assert_int_equal(http_get(h, h->key, http_at(id, ""))->status, 200);
	world_run(h->w, 300);
	assert_int_equal(count_records(h->key), 21);
	assert_int_equal(count_records(h->other_key), 18);
	/* Those that stay are the youngest. */
	char text[CLOCK_TEXT_BYTES];
	struct answer *a = http_get(h, h->key, "/v1/sandboxes?status=deleted&limit=500");

	assert_string_equal(answer_text(a, "data.19.ended_at"), clock_format(now, text));
	assert_null(answer_text(a, "data.20"));
}

static void test_pruning_thousands_does_not_stall_the_loop(void **state)
{
	uint64_t longest = 0;

	(void)state;
	run_sql("BEGIN");
	put_ended(h->account, 3000, 1000);
	run_sql("COMMIT");
	start_pruning(1, 1000);
	for (uint64_t until = real_ms() + WORLD_PATIENCE_MS; real_ms() < until;) {
		uint64_t start = real_ms();

		world_turn(h->w);
		longest = MAX(longest, real_ms() - start);
		if (!has_records()) {
			break;
		}
	}
	assert_false(has_records());
	assert_in_range(longest, 0, 1000);
}

static void test_nothing_is_pruned_where_that_is_not_wanted(void **state)
{
	(void)state;
	put_ended(h->account, 50, 1000);
	start_pruning(0, 1);
	world_run(h->w, 200);
	assert_int_equal(count_records(h->key), 50);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, http_set_up, http_tear_down)
		T(test_pages_of_a_changing_table_skip_and_repeat_nothing),
		T(test_a_cursor_that_is_damaged_or_elsewhere_is_refused),
		T(test_a_page_has_bounds),
		T(test_a_sandbox_that_ended_keeps_its_last_results),
		T(test_a_command_that_the_end_cuts_off_is_told),
		T(test_who_left_finds_the_result),
		T(test_results_are_written_without_being_asked_for),
		T(test_results_can_be_switched_off),
		T(test_old_records_go_with_time),
		T(test_too_many_records_push_out_an_accounts_own),
		T(test_pruning_thousands_does_not_stall_the_loop),
		T(test_nothing_is_pruned_where_that_is_not_wanted),
#undef T
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
