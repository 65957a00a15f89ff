#include "tests/lib/cm.h"

#include <poll.h>
#include <pthread.h>

#include "hv/lv_mailbox.h"

#define POSTERS 4
#define POSTS   2000

static struct lv_mail mail_of(unsigned domain, enum hv_event event)
{
	struct lv_mail mail = {.kind = LV_MAIL_DOMAIN, .generation = 1, .event = event};

	mail.uuid[0] = (unsigned char)domain;
	return mail;
}

static void post(struct lv_mailbox *box, unsigned domain, enum hv_event event)
{
	const struct lv_mail mail = mail_of(domain, event);

	lv_mailbox_post(box, &mail);
}

static bool is_ringing(const struct lv_mailbox *box)
{
	struct pollfd fd = {.fd = lv_mailbox_fd(box), .events = POLLIN};

	return poll(&fd, 1, 0) == 1;
}

/* Takes all and writes them as "domain event" pairs into @out; returns how many. */
static size_t take(struct lv_mailbox *box, unsigned (*out)[2], size_t max)
{
	struct lv_letters letters = STAILQ_HEAD_INITIALIZER(letters);
	struct lv_letter *letter;
	size_t count = 0;

	lv_mailbox_take(box, &letters);
	STAILQ_FOREACH (letter, &letters, link) {
		assert_true(count < max);
		out[count][0] = letter->mail.uuid[0];
		out[count++][1] = letter->mail.event;
	}
	lv_letters_free(&letters);
	return count;
}

static void test_letters_come_in_order_and_ring(void **state)
{
	struct lv_mailbox *box = lv_mailbox_new();
	unsigned seen[4][2];

	(void)state;
	assert_false(is_ringing(box));
	post(box, 1, HV_EVENT_PAUSED);
	post(box, 2, HV_EVENT_STOPPED);
	assert_true(is_ringing(box));
	assert_int_equal(take(box, seen, 4), 2);
	assert_int_equal(seen[0][0], 1);
	assert_int_equal(seen[1][0], 2);
	assert_false(is_ringing(box));
	assert_int_equal(take(box, seen, 4), 0);
	lv_mailbox_unref(box);
}

static void test_a_newer_pause_state_replaces_an_unread_one(void **state)
{
	struct lv_mailbox *box = lv_mailbox_new();
	unsigned seen[4][2];

	(void)state;
	post(box, 1, HV_EVENT_PAUSED);
	post(box, 2, HV_EVENT_PAUSED);
	post(box, 1, HV_EVENT_RESUMED);
	post(box, 1, HV_EVENT_STOPPED);
	post(box, 1, HV_EVENT_STOPPED);
	post(box, 1, HV_EVENT_PAUSED);
	assert_int_equal(take(box, seen, 4), 3);
	assert_int_equal(seen[0][0], 2);
	assert_int_equal(seen[1][1], HV_EVENT_STOPPED);
	assert_int_equal(seen[2][1], HV_EVENT_PAUSED);
	lv_mailbox_unref(box);
}

static void test_a_lost_domain_isn_t_covered_up_by_its_stop(void **state)
{
	struct lv_mailbox *box = lv_mailbox_new();
	unsigned seen[4][2];

	(void)state;
	post(box, 1, HV_EVENT_LOST);
	post(box, 1, HV_EVENT_STOPPED);
	assert_int_equal(take(box, seen, 4), 2);
	assert_int_equal(seen[0][1], HV_EVENT_LOST);
	lv_mailbox_unref(box);
}

static void test_letters_of_different_connections_are_kept_apart(void **state)
{
	struct lv_mailbox *box = lv_mailbox_new();
	struct lv_mail old = mail_of(1, HV_EVENT_STOPPED);
	struct lv_mail new = mail_of(1, HV_EVENT_STOPPED);
	const struct lv_mail closed = {.kind = LV_MAIL_CLOSED, .generation = 1};
	unsigned seen[4][2];

	(void)state;
	new.generation = 2;
	lv_mailbox_post(box, &old);
	lv_mailbox_post(box, &new);
	lv_mailbox_post(box, &closed);
	assert_int_equal(take(box, seen, 4), 3);
	lv_mailbox_unref(box);
}

static void test_unread_letters_go_with_the_last_reference(void **state)
{
	struct lv_mailbox *box = lv_mailbox_new();

	(void)state;
	lv_mailbox_ref(box);
	post(box, 1, HV_EVENT_STOPPED);
	lv_mailbox_unref(box);
	post(box, 2, HV_EVENT_STOPPED);
	lv_mailbox_unref(box);
}

struct poster {
	struct lv_mailbox *box;
	unsigned domain;
};

static void *post_often(void *arg)
{
	const struct poster *poster = arg;

	for (int i = 0; i < POSTS; i++) {
		post(poster->box, poster->domain, i % 2 ? HV_EVENT_RESUMED : HV_EVENT_PAUSED);
	}
	post(poster->box, poster->domain, HV_EVENT_STOPPED);
	lv_mailbox_unref(poster->box);
	return NULL;
}

static void test_many_threads_lose_nothing_that_counts(void **state)
{
	struct lv_mailbox *box = lv_mailbox_new();
	struct poster posters[POSTERS];
	pthread_t threads[POSTERS];
	unsigned seen[2 * POSTERS][2];
	unsigned last_pause_state[POSTERS] = {0};
	unsigned stopped = 0;

	(void)state;
	for (unsigned i = 0; i < POSTERS; i++) {
		posters[i] = (struct poster){.box = lv_mailbox_ref(box), .domain = i};
		assert_int_equal(pthread_create(&threads[i], NULL, post_often, &posters[i]), 0);
	}
	while (stopped < POSTERS) {
		struct pollfd fd = {.fd = lv_mailbox_fd(box), .events = POLLIN};

		assert_int_equal(poll(&fd, 1, 30000), 1);
		size_t count = take(box, seen, ARRAY_SIZE(seen));
		for (size_t i = 0; i < count; i++) {
			if (seen[i][1] == HV_EVENT_STOPPED) {
				stopped++;
			} else {
				last_pause_state[seen[i][0]] = seen[i][1];
			}
		}
	}
	for (unsigned i = 0; i < POSTERS; i++) {
		assert_int_equal(last_pause_state[i], HV_EVENT_RESUMED);
		pthread_join(threads[i], NULL);
	}
	lv_mailbox_unref(box);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_letters_come_in_order_and_ring),
		cmocka_unit_test(test_a_newer_pause_state_replaces_an_unread_one),
		cmocka_unit_test(test_a_lost_domain_isn_t_covered_up_by_its_stop),
		cmocka_unit_test(test_letters_of_different_connections_are_kept_apart),
		cmocka_unit_test(test_unread_letters_go_with_the_last_reference),
		cmocka_unit_test(test_many_threads_lose_nothing_that_counts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
