/* Life and death of domains, and small changes, on real libvirt and QEMU. */

#include "tests/lib/cm.h"

#include <libvirt/libvirt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/xalloc.h"
#include "hv/domain_facts.h"
#include "hv-rig.h"

#define BOOT_MS       90000
#define EVENT_MS      20000
#define RSS_LIMIT_KIB (60 * 1024)

static struct rig rig;

/* ---- helpers ---- */

/* libvirt itself, past our layer: what an administrator could do. */
static virConnectPtr open_libvirt(void)
{
	virConnectPtr conn = virConnectOpen(rig.uri);

	assert_non_null(conn);
	return conn;
}

static virDomainPtr look_up(virConnectPtr conn, const char *id)
{
	char name[DOMAIN_NAME_BYTES];

	domain_name(name, RIG_INSTANCE, id);
	virDomainPtr domain = virDomainLookupByName(conn, name);
	assert_non_null(domain);
	return domain;
}

/* ---- life and death ---- */

static void test_a_domain_starts_and_is_destroyed(void **state)
{
	struct rig_box box;
	struct hv_facts facts;
	struct hv_facts listed;

	(void)state;
	rig_box_init(&rig, &box, 1);
	assert_int_equal(rig_disk_create(&rig, &box), ERR_NONE);
	uint64_t begin = clock_monotonic_ms();
	assert_int_equal(rig_start(&rig, &box, &facts), ERR_NONE);
	print_message("start: %d ms\n", (int)(clock_monotonic_ms() - begin));
	assert_string_equal(facts.id, box.id);
	assert_string_equal(facts.account, RIG_ACCOUNT);
	assert_int_equal(facts.state, HV_DOMAIN_RUNNING);
	assert_true(rig_is_alive(&facts));
	assert_int_equal(rig_find(&rig, box.id, &listed), ERR_NONE);
	assert_int_equal(listed.pid, facts.pid);
	assert_int_equal(listed.state, HV_DOMAIN_RUNNING);
	begin = clock_monotonic_ms();
	assert_int_equal(rig_destroy(&rig, box.id), ERR_NONE);
	print_message("destroy: %d ms\n", (int)(clock_monotonic_ms() - begin));
	assert_false(rig_is_alive(&facts));
	assert_int_equal(rig_find(&rig, box.id, &listed), ERR_NOT_FOUND);
	assert_int_equal(rig_disk_remove(&rig, &box), ERR_NONE);
	assert_int_equal(access(box.paths.disk_dir, F_OK), -1);
	assert_int_equal(access(box.paths.run_dir, F_OK), -1);
	rig_box_fini(&box);
}

static void test_destroying_what_is_not_there_is_fine(void **state)
{
	struct rig_box box;

	(void)state;
	rig_box_init(&rig, &box, 2);
	assert_int_equal(rig_destroy(&rig, box.id), ERR_NONE);
	assert_int_equal(rig_disk_remove(&rig, &box), ERR_NONE);
	rig_box_fini(&box);
}

static void test_a_second_start_conflicts_and_leaves_the_first_alone(void **state)
{
	struct rig_box box;
	struct hv_facts facts;
	struct hv_facts again;

	(void)state;
	rig_box_start(&rig, &box, 3, &facts);
	assert_int_equal(rig_start(&rig, &box, &again), ERR_CONFLICT);
	assert_true(rig_is_alive(&facts));
	assert_int_equal(access(box.paths.agent_socket, F_OK), 0);
	/* Its events still reach us. */
	assert_int_equal(kill(facts.pid, SIGKILL), 0);
	assert_true(rig_wait_event(&rig, box.id, HV_EVENT_LOST, EVENT_MS));
	rig_box_end(&rig, &box);
}

static void test_a_start_without_its_kernel_fails_and_leaves_no_domain(void **state)
{
	struct rig_box box;
	struct hv_facts facts;

	(void)state;
	rig_box_init(&rig, &box, 4);
	box.spec.kernel = "/nonexistent/vmlinuz";
	assert_int_equal(rig_disk_create(&rig, &box), ERR_NONE);
	assert_int_equal(rig_start(&rig, &box, &facts), ERR_INTERNAL);
	assert_int_equal(rig_find(&rig, box.id, &facts), ERR_NOT_FOUND);
	rig_box_end(&rig, &box);
}

static void assert_lost_by_signal(unsigned n, int signal)
{
	struct rig_box box;
	struct hv_facts facts;

	rig_box_start(&rig, &box, n, &facts);
	assert_int_equal(kill(facts.pid, signal), 0);
	assert_true(rig_wait_event(&rig, box.id, HV_EVENT_LOST, EVENT_MS));
	assert_string_equal(rig.events[rig.event_count - 1].id, box.id);
	rig_box_end(&rig, &box);
	assert_int_equal(rig_find(&rig, box.id, &facts), ERR_NOT_FOUND);
}

static void test_a_process_ended_from_outside_is_a_lost_domain(void **state)
{
	(void)state;
	assert_lost_by_signal(5, SIGKILL);
	assert_lost_by_signal(16, SIGTERM);
}

/* Its kernel finds no root, panics and reboots, which on_reboot turns into the end. */
static void test_a_guest_that_ends_itself_is_an_event(void **state)
{
	struct rig_box box;
	struct hv_facts facts;

	(void)state;
	rig_box_init(&rig, &box, 14);
	box.spec.cmdline = "console=ttyS0 quiet panic=-1 root=/dev/nothing";
	assert_int_equal(rig_disk_create(&rig, &box), ERR_NONE);
	assert_int_equal(rig_start(&rig, &box, &facts), ERR_NONE);
	assert_true(rig_wait_event(&rig, box.id, HV_EVENT_STOPPED, BOOT_MS));
	rig_box_end(&rig, &box);
}

static bool has_text(virDomainPtr domain, const char *text)
{
	_cleanup_free_ char *xml = virDomainGetXMLDesc(domain, 0);

	return xml && strstr(xml, text);
}

static void test_the_guest_opens_its_end_of_the_channel(void **state)
{
	struct rig_box box;
	struct hv_facts facts;
	bool never = false;

	(void)state;
	uint64_t begin = clock_monotonic_ms();
	rig_box_start(&rig, &box, 15, &facts);
	virConnectPtr conn = open_libvirt();
	virDomainPtr domain = look_up(conn, box.id);
	while (!has_text(domain, "state='connected'")) {
		assert_true(clock_monotonic_ms() - begin < BOOT_MS);
		rig_wait(&rig, &never, 20);
	}
	print_message("from disk to an open channel: %d ms\n", (int)(clock_monotonic_ms() - begin));
	virDomainFree(domain);
	virConnectClose(conn);
	rig_box_end(&rig, &box);
}

/* A stopped process doesn't see TERM, so libvirt's call outlives the rig's deadline. */
static void test_destroy_ends_the_process_when_libvirt_hangs(void **state)
{
	struct rig_box box;
	struct hv_facts facts;
	bool never = false;

	(void)state;
	rig_box_start(&rig, &box, 6, &facts);
	assert_int_equal(kill(facts.pid, SIGSTOP), 0);
	uint64_t begin = clock_monotonic_ms();
	assert_int_equal(rig_destroy(&rig, box.id), ERR_TIMEOUT);
	assert_true(clock_monotonic_ms() - begin < RIG_CALL_MS + 3000);
	for (int i = 0; i < 200 && (rig_is_alive(&facts) || !rig.late_id[0]); i++) {
		rig_wait(&rig, &never, 50);
	}
	assert_false(rig_is_alive(&facts));
	assert_string_equal(rig.late_id, box.id);
	rig_box_end(&rig, &box);
}

/* ---- small changes ---- */

static void test_the_expiry_is_kept_in_the_metadata(void **state)
{
	struct rig_box box;
	struct hv_facts facts;

	(void)state;
	rig_box_start(&rig, &box, 7, &facts);
	assert_int_equal(facts.expires_at_ms, box.spec.expires_at_ms);
	assert_int_equal(rig_set_expiry(&rig, box.id, 1800000000123), ERR_NONE);
	assert_int_equal(rig_find(&rig, box.id, &facts), ERR_NONE);
	assert_int_equal(facts.expires_at_ms, 1800000000123);
	assert_string_equal(facts.account, RIG_ACCOUNT);
	rig_box_end(&rig, &box);
}

static void test_a_paused_domain_is_resumed(void **state)
{
	struct rig_box box;
	struct hv_facts facts;

	(void)state;
	rig_box_start(&rig, &box, 8, &facts);
	virConnectPtr conn = open_libvirt();
	virDomainPtr domain = look_up(conn, box.id);
	assert_int_equal(virDomainSuspend(domain), 0);
	assert_true(rig_wait_event(&rig, box.id, HV_EVENT_PAUSED, EVENT_MS));
	assert_int_equal(rig_find(&rig, box.id, &facts), ERR_NONE);
	assert_int_equal(facts.state, HV_DOMAIN_PAUSED);
	assert_int_equal(rig_resume(&rig, box.id), ERR_NONE);
	assert_true(rig_wait_event(&rig, box.id, HV_EVENT_RESUMED, EVENT_MS));
	assert_int_equal(rig_find(&rig, box.id, &facts), ERR_NONE);
	assert_int_equal(facts.state, HV_DOMAIN_RUNNING);
	virDomainFree(domain);
	virConnectClose(conn);
	rig_box_end(&rig, &box);
}

static void test_the_link_goes_up_and_down(void **state)
{
	struct rig_box box;
	struct hv_facts facts;

	(void)state;
	rig_box_init(&rig, &box, 9);
	box.spec.network = HV_NETWORK_USER;
	box.spec.is_link_down = true;
	assert_int_equal(rig_disk_create(&rig, &box), ERR_NONE);
	assert_int_equal(rig_start(&rig, &box, &facts), ERR_NONE);
	virConnectPtr conn = open_libvirt();
	virDomainPtr domain = look_up(conn, box.id);
	assert_true(has_text(domain, "<link state='down'/>"));
	assert_int_equal(rig_set_link(&rig, box.id, true), ERR_NONE);
	assert_true(has_text(domain, "<link state='up'/>"));
	assert_int_equal(rig_set_link(&rig, box.id, false), ERR_NONE);
	assert_true(has_text(domain, "<link state='down'/>"));
	virDomainFree(domain);
	virConnectClose(conn);
	rig_box_end(&rig, &box);
}

static void await_stopped(const struct hv_facts *facts, bool is_wanted)
{
	uint64_t begin = clock_monotonic_ms();
	bool is_stopped = !is_wanted;

	/* The loop stands still meanwhile: what is seen was done before. */
	while (is_stopped != is_wanted) {
		_cleanup_free_ char *stat = rig_proc_text(facts->pid, "stat");

		is_stopped = strrchr(stat, ')')[2] == 'T';
		assert_true(clock_monotonic_ms() - begin < EVENT_MS);
	}
}

static void count_answer(void *arg, const struct err *err)
{
	(void)err;
	(*(unsigned *)arg)++;
}

/* Every worker waits for a process that doesn't react, so libvirt isn't even asked in time. */
static void test_a_guest_is_stopped_while_its_link_can_t_be_pulled(void **state)
{
	struct rig_box stuck[RIG_WORKERS];
	struct hv_facts stuck_facts[RIG_WORKERS];
	struct rig_box box;
	struct hv_facts facts;
	unsigned answers = 0;
	bool never = false;

	(void)state;
	for (unsigned i = 0; i < RIG_WORKERS; i++) {
		rig_box_start(&rig, &stuck[i], 30 + i, &stuck_facts[i]);
	}
	rig_box_init(&rig, &box, 40);
	box.spec.network = HV_NETWORK_USER;
	assert_int_equal(rig_disk_create(&rig, &box), ERR_NONE);
	assert_int_equal(rig_start(&rig, &box, &facts), ERR_NONE);
	for (unsigned i = 0; i < RIG_WORKERS; i++) {
		assert_int_equal(kill(stuck_facts[i].pid, SIGSTOP), 0);
		rig.hv->ops->destroy(rig.hv, stuck[i].id, count_answer, &answers);
	}
	/* Nor does it wait for what hangs about the same sandbox. */
	rig.hv->ops->set_expiry(rig.hv, box.id, 1, count_answer, &answers);
	uint64_t begin = clock_monotonic_ms();
	assert_int_equal(rig_set_link(&rig, box.id, false), ERR_TIMEOUT);
	assert_true(clock_monotonic_ms() - begin < 1000);
	await_stopped(&facts, true);

	/* What was stopped for one pull must run for the next, which succeeds at last. */
	while (answers < RIG_WORKERS + 1) {
		rig_wait(&rig, &never, 50);
	}
	begin = clock_monotonic_ms();
	while (rig_set_link(&rig, box.id, false) != ERR_NONE) {
		assert_true(clock_monotonic_ms() - begin < EVENT_MS);
	}
	await_stopped(&facts, false);

	/* Before libvirt answers, too, once there is no reason any more. */
	assert_int_equal(kill(facts.pid, SIGSTOP), 0);
	await_stopped(&facts, true);
	rig.hv->ops->set_link(rig.hv, box.id, true, count_answer, &answers);
	await_stopped(&facts, false);
	assert_int_equal(answers, RIG_WORKERS + 1);
	while (answers == RIG_WORKERS + 1) {
		rig_wait(&rig, &never, 50);
	}
	for (unsigned i = 0; i < RIG_WORKERS; i++) {
		rig_box_end(&rig, &stuck[i]);
	}
	rig_box_end(&rig, &box);
}

/* ---- strangers ---- */

#define FOREIGN_XML                                                                                \
	"<domain type='qemu'><name>%s</name><memory unit='MiB'>64</memory>"                        \
	"<metadata><p:sandbox xmlns:p='urn:paddock:domain' format='1' instance='%s' id='%s' "      \
	"account='" RIG_ACCOUNT "' expires='0'/></metadata>"                                       \
	"<os><type arch='x86_64' machine='q35'>hvm</type></os>"                                    \
	"<devices><controller type='usb' model='none'/><memballoon model='none'/></devices>"       \
	"</domain>"

static void test_a_foreign_domain_with_our_name_is_left_alone(void **state)
{
	struct rig_box box;
	struct hv_facts facts;
	char name[DOMAIN_NAME_BYTES];

	(void)state;
	rig_box_init(&rig, &box, 13);
	domain_name(name, RIG_INSTANCE, box.id);
	_cleanup_free_ char *xml = xasprintf(FOREIGN_XML, name, "fedcba9876543210", box.id);
	virConnectPtr conn = open_libvirt();
	virDomainPtr domain = virDomainCreateXML(conn, xml, 0);
	assert_non_null(domain);
	assert_int_equal(rig_find(&rig, box.id, &facts), ERR_NOT_FOUND);
	assert_int_equal(rig_destroy(&rig, box.id), ERR_NONE);
	assert_int_equal(rig_set_expiry(&rig, box.id, 1), ERR_NOT_FOUND);
	assert_int_equal(rig_start(&rig, &box, &facts), ERR_CONFLICT);
	assert_int_equal(virDomainIsActive(domain), 1);
	size_t events = rig.event_count;
	assert_int_equal(virDomainDestroy(domain), 0);
	bool never = false;
	rig_wait(&rig, &never, 500);
	assert_int_equal(rig.event_count, events);
	virDomainFree(domain);
	virConnectClose(conn);
	rig_box_fini(&box);
}

/* ---- the daemon's own size ---- */

static void test_memory_stays_small(void **state)
{
	(void)state;
	_cleanup_free_ char *status = rig_proc_text(getpid(), "status");
	const char *line = strstr(status, "\nVmRSS:");

	assert_non_null(line);
	long kib = strtol(line + strlen("\nVmRSS:"), NULL, 10);
	print_message("resident: %ld KiB\n", kib);
#ifndef __SANITIZE_ADDRESS__
	assert_true(kib < RSS_LIMIT_KIB);
#endif
}

/* ---- groups ---- */

static int open_rig(void **state)
{
	(void)state;
	uint64_t begin = clock_monotonic_ms();

	rig_open(&rig, NULL);
	print_message("ready: %d ms\n", (int)(clock_monotonic_ms() - begin));
	return 0;
}

static int close_rig(void **state)
{
	(void)state;
	rig_close(&rig, true);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_domain_starts_and_is_destroyed),
		cmocka_unit_test(test_destroying_what_is_not_there_is_fine),
		cmocka_unit_test(test_a_second_start_conflicts_and_leaves_the_first_alone),
		cmocka_unit_test(test_a_start_without_its_kernel_fails_and_leaves_no_domain),
		cmocka_unit_test(test_a_process_ended_from_outside_is_a_lost_domain),
		cmocka_unit_test(test_a_guest_that_ends_itself_is_an_event),
		cmocka_unit_test(test_the_guest_opens_its_end_of_the_channel),
		cmocka_unit_test(test_destroy_ends_the_process_when_libvirt_hangs),
		cmocka_unit_test(test_the_expiry_is_kept_in_the_metadata),
		cmocka_unit_test(test_a_paused_domain_is_resumed),
		cmocka_unit_test(test_the_link_goes_up_and_down),
		cmocka_unit_test(test_a_guest_is_stopped_while_its_link_can_t_be_pulled),
		cmocka_unit_test(test_a_foreign_domain_with_our_name_is_left_alone),
		cmocka_unit_test(test_memory_stays_small),
	};

	if (!rig_has_image()) {
		puts("skipped: PADDOCK_TEST_IMAGE names no directory with an image");
		return 77;
	}
	return cmocka_run_group_tests(tests, open_rig, close_rig);
}
