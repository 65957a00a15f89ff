#include "tests/lib/cm.h"

#include "hv/lv_known.h"

#define ONE "sb_00000000000000000001"
#define TWO "sb_00000000000000000002"

static const unsigned char uuid_a[DOMAIN_UUID_BYTES] = {1};
static const unsigned char uuid_b[DOMAIN_UUID_BYTES] = {2};

static struct lv_facts facts_of(const char *id, const unsigned char *uuid, pid_t pid)
{
	struct lv_facts facts = {.facts = {.pid = pid, .pid_start = 7}};

	strcpy(facts.facts.id, id);
	memcpy(facts.uuid, uuid, DOMAIN_UUID_BYTES);
	return facts;
}

static void test_events_belong_to_a_start_from_its_beginning(void **state)
{
	struct lv_known *known = lv_known_new();

	(void)state;
	assert_null(lv_known_find(known, uuid_a));
	lv_known_expect(known, ONE, uuid_a);
	assert_string_equal(lv_known_find(known, uuid_a), ONE);
	lv_known_drop_expected(known, ONE);
	assert_null(lv_known_find(known, uuid_a));
	lv_known_free(known);
}

static void test_a_failed_start_keeps_the_domain_that_is_there(void **state)
{
	struct lv_known *known = lv_known_new();
	struct lv_facts facts = facts_of(ONE, uuid_a, 42);

	(void)state;
	lv_known_learn(known, &facts);
	lv_known_expect(known, ONE, uuid_b);
	lv_known_drop_expected(known, ONE);
	assert_string_equal(lv_known_find(known, uuid_a), ONE);
	assert_null(lv_known_find(known, uuid_b));
	assert_int_equal(lv_known_process(known, ONE).pid, 42);
	lv_known_free(known);
}

static void test_a_new_domain_replaces_the_old_one_s_uuid_and_process(void **state)
{
	struct lv_known *known = lv_known_new();
	struct lv_facts old = facts_of(ONE, uuid_a, 42);
	struct lv_facts new = facts_of(ONE, uuid_b, 0);

	(void)state;
	lv_known_learn(known, &old);
	lv_known_learn(known, &new);
	assert_null(lv_known_find(known, uuid_a));
	assert_int_equal(lv_known_process(known, ONE).pid, 0);
	lv_known_free(known);
}

static void test_a_process_out_of_sight_isn_t_forgotten(void **state)
{
	struct lv_known *known = lv_known_new();
	struct lv_facts seen = facts_of(ONE, uuid_a, 42);
	struct lv_facts unseen = facts_of(ONE, uuid_a, 0);

	(void)state;
	lv_known_learn(known, &seen);
	lv_known_learn(known, &unseen);
	assert_int_equal(lv_known_process(known, ONE).pid, 42);
	lv_known_forget(known, ONE);
	lv_known_forget(known, TWO);
	assert_int_equal(lv_known_process(known, ONE).pid, 0);
	lv_known_free(known);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_events_belong_to_a_start_from_its_beginning),
		cmocka_unit_test(test_a_failed_start_keeps_the_domain_that_is_there),
		cmocka_unit_test(test_a_new_domain_replaces_the_old_one_s_uuid_and_process),
		cmocka_unit_test(test_a_process_out_of_sight_isn_t_forgotten),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
