/* The hypervisor layer on real libvirt and QEMU, with the embedded driver. */

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "hv-rig.h"

static struct rig rig;

static void test_a_domain_starts_and_is_destroyed(void **state)
{
	struct rig_box box;
	struct hv_facts facts;

	(void)state;
	rig_box_init(&rig, &box, 1);
	assert_int_equal(rig_disk_create(&rig, &box), ERR_NONE);
	uint64_t begin = clock_monotonic_ms();
	assert_int_equal(rig_start(&rig, &box, &facts), ERR_NONE);
	print_message("start: %d ms\n", (int)(clock_monotonic_ms() - begin));
	assert_string_equal(facts.id, box.id);
	assert_string_equal(facts.account, RIG_ACCOUNT);
	assert_int_equal(facts.state, HV_DOMAIN_RUNNING);
	assert_true(facts.pid > 0);
	begin = clock_monotonic_ms();
	assert_int_equal(rig_destroy(&rig, box.id), ERR_NONE);
	print_message("destroy: %d ms\n", (int)(clock_monotonic_ms() - begin));
	assert_int_equal(rig_find(&rig, box.id, &facts), ERR_NOT_FOUND);
	assert_int_equal(rig_disk_remove(&rig, &box), ERR_NONE);
	rig_box_fini(&box);
}

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
	};

	if (!rig_has_image()) {
		puts("skipped: PADDOCK_TEST_IMAGE names no directory with an image");
		return 77;
	}
	return cmocka_run_group_tests(tests, open_rig, close_rig);
}
