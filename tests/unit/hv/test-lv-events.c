#include "tests/lib/cm.h"

#include <libvirt/libvirt.h>
#include <stdlib.h>

#include "base/clock.h"
#include "hv/lv_error.h"
#include "hv/lv_events.h"
#include "off-loop.h"

/* libvirt's own test driver: a hypervisor in memory with one running domain, "test". */
#define TEST_URI   "test:///default"
#define AWAIT_MS   30000
#define GENERATION 7

static struct loop *loop;
static struct lv_events *events;
static virConnectPtr conn;
static struct lv_subscription subscription;
static struct lv_mail seen[16];
static size_t seen_count;

static void on_mail(void *arg, const struct lv_mail *mail)
{
	assert_true(loop_is_current());
	assert_ptr_equal(arg, &seen_count);
	assert_true(seen_count < ARRAY_SIZE(seen));
	seen[seen_count++] = *mail;
}

static void connect_and_subscribe(void *arg)
{
	struct err err;

	(void)arg;
	conn = virConnectOpen(TEST_URI);
	assert_non_null(conn);
	assert_ok(
		lv_events_subscribe_blocking(events, conn, GENERATION, false, &subscription, &err),
		&err);
}

static void disconnect(void *arg)
{
	(void)arg;
	lv_events_unsubscribe_blocking(conn, &subscription);
	virConnectClose(conn);
}

static void destroy_domain(void *arg)
{
	virDomainPtr domain = virDomainLookupByName(conn, "test");

	(void)arg;
	assert_non_null(domain);
	assert_int_equal(virDomainDestroy(domain), 0);
	virDomainFree(domain);
}

static void start_domain(void *arg)
{
	virDomainPtr domain = virDomainLookupByName(conn, "test");

	(void)arg;
	assert_non_null(domain);
	assert_int_equal(virDomainCreate(domain), 0);
	virDomainFree(domain);
}

static void pause_and_resume_often(void *arg)
{
	virDomainPtr domain = virDomainLookupByName(conn, "test");

	(void)arg;
	assert_non_null(domain);
	for (int i = 0; i < 100; i++) {
		assert_int_equal(virDomainSuspend(domain), 0);
		assert_int_equal(virDomainResume(domain), 0);
	}
	virDomainFree(domain);
}

static void shut_down_domain(void *arg)
{
	virDomainPtr domain = virDomainLookupByName(conn, "test");

	(void)arg;
	assert_non_null(domain);
	assert_int_equal(virDomainShutdown(domain), 0);
	virDomainFree(domain);
}

static void assert_end(void (*end)(void *arg), enum hv_event expected)
{
	seen_count = 0;
	off_loop(end, NULL);
	await(loop, seen_count > 0, AWAIT_MS);
	assert_int_equal(seen[0].kind, LV_MAIL_DOMAIN);
	assert_int_equal(seen[0].event, expected);
	assert_int_equal(seen[0].generation, GENERATION);
	off_loop(start_domain, NULL);
}

static void test_the_end_of_a_domain_reaches_the_loop(void **state)
{
	(void)state;
	assert_end(shut_down_domain, HV_EVENT_STOPPED);
	assert_end(destroy_domain, HV_EVENT_LOST);
}

/* The loop stands still meanwhile: what piles up is bounded by the number of domains. */
static void test_unread_pauses_are_replaced_by_the_last(void **state)
{
	(void)state;
	seen_count = 0;
	off_loop(pause_and_resume_often, NULL);
	/* The event thread may still be delivering; the end state comes last. */
	off_loop(destroy_domain, NULL);
	await(loop, seen_count > 0 && seen[seen_count - 1].event == HV_EVENT_LOST, AWAIT_MS);
	assert_true(seen_count >= 2);
	assert_int_equal(seen[seen_count - 2].event, HV_EVENT_RESUMED);
	off_loop(start_domain, NULL);
}

static void test_nothing_comes_once_muted(void **state)
{
	(void)state;
	seen_count = 0;
	lv_events_mute(events);
	off_loop(destroy_domain, NULL);
	for (int i = 0; i < 5; i++) {
		loop_turn_for(loop, 20);
	}
	assert_int_equal(seen_count, 0);
}

static int set_up(void **state)
{
	struct err err;

	(void)state;
	lv_error_silence();
	loop = loop_new(&err);
	events = loop ? lv_events_new(loop, on_mail, &seen_count, &err) : NULL;
	if (!events) {
		return -1;
	}
	off_loop(connect_and_subscribe, NULL);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	off_loop(disconnect, NULL);
	lv_events_free(events);
	loop_free(loop);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_end_of_a_domain_reaches_the_loop),
		cmocka_unit_test(test_unread_pauses_are_replaced_by_the_last),
		cmocka_unit_test(test_nothing_comes_once_muted),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
