#include "tests/lib/cm.h"

#include <libvirt/libvirt.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/xalloc.h"
#include "hv/lv_conn.h"
#include "hv/lv_error.h"
#include "off-loop.h"

/* libvirt's own test driver: a hypervisor in memory, shared by all connections of the process. */
#define TEST_URI "test:///default"
#define AWAIT_MS 30000

static struct loop *loop;
static struct worker_pool *pool;
static struct lv_conn *conn;
static virConnectPtr mine;
static char root[] = "/tmp/paddock-conn-XXXXXX";

/* What lv_conn calls while it opens: the end of an attempt waits for `go_on`. */
static sem_t has_arrived, go_on;

int lv_domain_list_blocking(
	const struct lv_target *target, struct lv_facts **ret, size_t *ret_count, struct err *err)
{
	(void)target;
	(void)err;
	sem_post(&has_arrived);
	sem_wait(&go_on);
	*ret = NULL;
	*ret_count = 0;
	return 0;
}

bool lv_domain_settle_blocking(const struct lv_target *target, const char *id)
{
	(void)target;
	(void)id;
	return true;
}

char *virConnectGetDomainCapabilities(virConnectPtr virt, const char *emulator, const char *arch,
	const char *machine, const char *virttype, unsigned flags)
{
	(void)virt;
	(void)emulator;
	(void)arch;
	(void)machine;
	(void)virttype;
	(void)flags;
	return xstrdup("");
}

static unsigned ups, losses;

static void on_up(void *arg, const struct lv_opened *opened)
{
	(void)arg;
	(void)opened;
	assert_int_equal(losses, 0);
	ups++;
}

static void on_down(void *arg, const struct err *err)
{
	(void)arg;
	fail_msg("down: %s", err->msg);
}

static void on_domain(void *arg, const unsigned char *uuid, enum hv_event event)
{
	(void)arg;
	(void)uuid;
	losses += event == HV_EVENT_LOST;
}

/* libvirt calls subscribers in the order in which they came, so this one knows that all know. */
static _Atomic unsigned told;

static int on_told(virConnectPtr virt, virDomainPtr domain, int event, int detail, void *arg)
{
	(void)virt;
	(void)domain;
	(void)detail;
	(void)arg;
	told += event == VIR_DOMAIN_EVENT_STOPPED;
	return 0;
}

static void destroy_domain(void *arg)
{
	int id = virConnectDomainEventRegisterAny(mine, NULL, VIR_DOMAIN_EVENT_ID_LIFECYCLE,
		VIR_DOMAIN_EVENT_CALLBACK(on_told), NULL, NULL);
	virDomainPtr domain = virDomainLookupByName(mine, "test");

	(void)arg;
	assert_true(id >= 0);
	assert_non_null(domain);
	assert_int_equal(virDomainDestroy(domain), 0);
	while (told == 0) {
		usleep(1000);
	}
	assert_int_equal(virConnectDomainEventDeregisterAny(mine, id), 0);
	virDomainFree(domain);
}

/* The list that an attempt brings is older than its answer. */
static void test_what_happens_while_a_connection_opens_is_told_once_it_is_up(void **state)
{
	(void)state;
	lv_conn_open(conn);
	/* The second list is the one that is shown. */
	sem_wait(&has_arrived);
	sem_post(&go_on);
	sem_wait(&has_arrived);
	off_loop(destroy_domain, NULL);
	for (int i = 0; i < 3; i++) {
		loop_turn_for(loop, 1);
	}
	assert_int_equal(ups, 0);
	sem_post(&go_on);
	await(loop, ups == 1, AWAIT_MS);
	await(loop, losses == 1, AWAIT_MS);
}

static void open_mine(void *arg)
{
	(void)arg;
	mine = virConnectOpen(TEST_URI);
	assert_non_null(mine);
}

static void close_mine(void *arg)
{
	(void)arg;
	virConnectClose(mine);
}

static int set_up(void **state)
{
	static struct lv_place place = {.uri = (char *)TEST_URI, .root = root};
	const struct worker_limits limits = {.threads = 1, .queue_max = 8};
	const struct lv_conn_hooks hooks = {
		.on_up = on_up, .on_down = on_down, .on_domain = on_domain};
	const struct lv_conn_config config = {
		.place = &place, .instance = "0123456789abcdef", .open_ms = 60000, .settle_ms = 1};
	struct err err;

	(void)state;
	lv_error_silence();
	sem_init(&has_arrived, 0, 0);
	sem_init(&go_on, 0, 0);
	loop = loop_new(&err);
	pool = worker_pool_new(loop, "test", &limits, &err);
	conn = lv_conn_new(loop, pool, &config, &hooks, &err);
	off_loop(open_mine, NULL);
	return mkdtemp(root) ? 0 : -1;
}

static int tear_down(void **state)
{
	struct err err;

	(void)state;
	lv_conn_free(conn, worker_pool_free(pool, AWAIT_MS));
	off_loop(close_mine, NULL);
	loop_free(loop);
	return fs_remove_tree(root, &err);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_happens_while_a_connection_opens_is_told_once_it_is_up),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
