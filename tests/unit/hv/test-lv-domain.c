#include "tests/lib/cm.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/xalloc.h"
#include "hv/lv_domain.h"
#include "hv/lv_error.h"
#include "off-loop.h"

/* Without a libvirt: every call on the connection fails. */

#define ID       "sb_00112233445566778899"
#define INSTANCE "0123456789abcdef"

static struct loop *loop;
static char dir[] = "/tmp/paddock-domain-XXXXXX";

static void start(void *arg)
{
	_cleanup_free_ char *run_dir = xasprintf("%s/run", dir);
	_cleanup_free_ char *agent = xasprintf("%s/run/agent.sock", dir);
	const struct hv_paths paths = {.disk_dir = run_dir,
		.overlay = agent,
		.run_dir = run_dir,
		.agent_socket = agent,
		.console_socket = agent};
	const struct hv_spec spec = {.id = ID,
		.account = "ac_99887766554433221100",
		.uid = 300001,
		.gid = 107,
		.vcpus = 1,
		.memory_mb = 256,
		.kernel = "/k",
		.initrd = "/i",
		.cmdline = "c",
		.base_image = "/b",
		.paths = &paths};
	const struct lv_target target = {.instance = INSTANCE, .pid_dir = dir};
	const struct domain_xml_host host = {.instance = INSTANCE, .tb_cache_mib = 32};
	const unsigned char uuid[DOMAIN_UUID_BYTES] = {1};
	struct lv_facts facts;
	struct err err;

	(void)arg;
	assert_err(lv_domain_start_blocking(&target, &spec, &host, uuid, &facts, &err), &err,
		ERR_UNAVAILABLE);
}

/* It may be there, with its sockets, for all that anybody knows. */
static void test_a_start_that_can_t_look_for_an_old_domain_touches_nothing(void **state)
{
	_cleanup_free_ char *run_dir = xasprintf("%s/run", dir);
	_cleanup_free_ char *agent = xasprintf("%s/run/agent.sock", dir);
	struct err err;

	(void)state;
	assert_ok(fs_mkdir(run_dir, 0700, &err), &err);
	assert_ok(fs_write_atomic(agent, "", 0, 0600, &err), &err);
	off_loop(start, NULL);
	assert_int_equal(access(agent, F_OK), 0);
}

static int set_up(void **state)
{
	struct err err;

	(void)state;
	virInitialize();
	lv_error_silence();
	loop = loop_new(&err);
	return loop && mkdtemp(dir) ? 0 : -1;
}

static int tear_down(void **state)
{
	struct err err;

	(void)state;
	loop_free(loop);
	return fs_remove_tree(dir, &err);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_start_that_can_t_look_for_an_old_domain_touches_nothing),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
