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
static struct lv_mail seen[16]; /* the last ones */
static size_t seen_count;

static void on_mail(void *arg, const struct lv_mail *mail)
{
	assert_true(loop_is_current());
	assert_ptr_equal(arg, &seen_count);
	seen[seen_count++ % ARRAY_SIZE(seen)] = *mail;
}

/* The last but @n. */
static enum hv_event event_from_end(size_t n)
{
	assert_true(seen_count > n);
	return seen[(seen_count - 1 - n) % ARRAY_SIZE(seen)].event;
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

/* How many of the pauses get through depends on who is faster; the last one and the end do. */
static void test_the_last_pause_state_and_the_end_come_in_order(void **state)
{
	(void)state;
	seen_count = 0;
	off_loop(pause_and_resume_often, NULL);
	off_loop(destroy_domain, NULL);
	await(loop, seen_count > 0 && event_from_end(0) == HV_EVENT_LOST, AWAIT_MS);
	assert_int_equal(event_from_end(1), HV_EVENT_RESUMED);
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
		cmocka_unit_test(test_the_last_pause_state_and_the_end_come_in_order),
		cmocka_unit_test(test_nothing_comes_once_muted),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
