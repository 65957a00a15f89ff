#include "tests/lib/cm.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/xalloc.h"
#include "hv/hv_libvirt.h"

/* Without a connection: what is answered, when, and how often. No libvirt is opened. */

#define ID       "sb_00112233445566778899"
#define AWAIT_MS 30000

static char *dir;
static struct loop *loop;
static struct hv *hv;

struct answer {
	unsigned count;
	enum err_kind kind;
	struct hv *submit_again;
};

static void on_done(void *arg, const struct err *err)
{
	struct answer *answer = arg;

	answer->count++;
	answer->kind = err ? err->kind : ERR_NONE;
}

static void on_started(void *arg, const struct hv_facts *facts, const struct err *err)
{
	assert_null(facts);
	on_done(arg, err);
}

static void on_listed(void *arg, const struct hv_facts *facts, size_t count, const struct err *err)
{
	(void)facts;
	assert_int_equal(count, 0);
	on_done(arg, err);
}

static struct hv_libvirt_config config(void)
{
	return (struct hv_libvirt_config){.uri = "qemu:///embed?root=/tmp/never-opened",
		.instance = "0123456789abcdef",
		.accel = HV_ACCEL_TCG,
		.workers = 2,
		.tb_cache_mib = 32,
		.deadlines = HV_LIBVIRT_DEADLINES};
}

static void test_wrong_settings_are_refused(void **state)
{
	struct hv_libvirt_config bad = config();
	struct err err;

	(void)state;
	bad.uri = "qemu+tcp://host/system";
	assert_null(hv_libvirt_new(loop, &bad, &err));
	assert_int_equal(err.kind, ERR_INVALID);
	bad = config();
	bad.instance = "short";
	assert_null(hv_libvirt_new(loop, &bad, &err));
	assert_int_equal(err.kind, ERR_INVALID);
}

static void test_info_speaks_before_there_is_a_connection(void **state)
{
	(void)state;
	const struct hv_info *info = hv->ops->info(hv);
	assert_false(info->is_ready);
	assert_string_equal(info->driver, "libvirt (qemu:///embed)");
	assert_string_equal(info->acceleration, "");
	assert_non_null(strstr(info->acceleration_why, "tcg"));
}

static void test_calls_without_a_connection_are_refused_from_the_loop(void **state)
{
	struct answer answers[4] = {0};
	const struct hv_paths paths = {0};
	const struct hv_spec spec = {
		.id = ID, .account = "ac_99887766554433221100", .paths = &paths};

	(void)state;
	hv->ops->start(hv, &spec, on_started, &answers[0]);
	hv->ops->destroy(hv, ID, on_done, &answers[1]);
	hv->ops->set_link(hv, ID, true, on_done, &answers[2]);
	hv->ops->list(hv, on_listed, &answers[3]);
	for (size_t i = 0; i < ARRAY_SIZE(answers); i++) {
		/* Not from within the call. */
		assert_int_equal(answers[i].count, 0);
	}
	await(loop, answers[3].count > 0, AWAIT_MS);
	for (size_t i = 0; i < ARRAY_SIZE(answers); i++) {
		assert_int_equal(answers[i].count, 1);
		assert_int_equal(answers[i].kind, ERR_UNAVAILABLE);
	}
}

static void call_again(void *arg, const struct err *err)
{
	struct answer *answer = arg;

	on_done(arg, err);
	if (answer->count < 3) {
		answer->submit_again->ops->destroy(answer->submit_again, ID, call_again, answer);
		assert_true(answer->count < 3);
	}
}

static void test_a_callback_may_call_again(void **state)
{
	struct answer answer = {.submit_again = hv};

	(void)state;
	hv->ops->destroy(hv, ID, call_again, &answer);
	await(loop, answer.count == 3, AWAIT_MS);
}

/* A sandbox's disk, as disk_create() wants it; the paths are in a directory of its own. */
struct disk {
	char *base;
	char *disk_dir;
	char *overlay;
	char *run_dir;
	struct hv_paths paths;
	struct hv_spec spec;
};

static void disk_init(struct disk *disk, const char *id, const char *base)
{
	disk->base = xasprintf("%s/%s", dir, base);
	disk->disk_dir = xasprintf("%s/%s-disk", dir, id);
	disk->overlay = xasprintf("%s/disk.qcow2", disk->disk_dir);
	disk->run_dir = xasprintf("%s/%s-run", dir, id);
	disk->paths = (struct hv_paths){.disk_dir = disk->disk_dir,
		.overlay = disk->overlay,
		.run_dir = disk->run_dir,
		.agent_socket = disk->run_dir,
		.console_socket = disk->run_dir};
	disk->spec = (struct hv_spec){.id = id,
		.account = "ac_99887766554433221100",
		.uid = geteuid(),
		.gid = getegid(),
		.disk_bytes = 1 << 20,
		.base_image = disk->base,
		.paths = &disk->paths};
}

static void disk_fini(struct disk *disk)
{
	free(disk->base);
	free(disk->disk_dir);
	free(disk->overlay);
	free(disk->run_dir);
}

static void make_base(const struct disk *disk)
{
	_cleanup_free_ char *command = xasprintf("qemu-img create -q -f qcow2 '%s' 1M", disk->base);

	assert_int_equal(system(command), 0);
}

static void test_disks_are_made_and_removed_without_libvirt(void **state)
{
	struct answer made = {0};
	struct answer removed = {0};
	struct disk disk;

	(void)state;
	disk_init(&disk, ID, "base.qcow2");
	make_base(&disk);
	hv->ops->disk_create(hv, &disk.spec, on_done, &made);
	/* Behind the first, in the order of the calls. */
	hv->ops->disk_remove(hv, ID, &disk.paths, on_done, &removed);
	await(loop, made.count == 1, AWAIT_MS);
	assert_int_equal(made.kind, ERR_NONE);
	await(loop, removed.count == 1, AWAIT_MS);
	assert_int_equal(removed.kind, ERR_NONE);
	assert_int_equal(access(disk.disk_dir, F_OK), -1);
	disk_fini(&disk);
}

/* ---- calls that hang: qemu-img opens a base that nobody writes to ---- */

static struct {
	char *path;
	int fd;
	struct answer answer; /* not on the stack: a test that fails leaves its frame before the
				 calls end */
} hung[2];

/* From here on who opens it, or waits in open(), has a writer, and can't seek. */
static void end_hung(size_t i)
{
	if (hung[i].path && hung[i].fd < 0) {
		hung[i].fd = open(hung[i].path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
	}
}

/* Before the deadline of those that hang, which is far away here. */
static void test_hanging_calls_hold_up_other_sandboxes_for_seconds_at_most(void **state)
{
	struct answer made = {0};
	struct disk disks[3];

	(void)state;
	disk_init(&disks[0], "sb_00000000000000000001", "fifo1");
	disk_init(&disks[1], "sb_00000000000000000002", "fifo2");
	disk_init(&disks[2], "sb_00000000000000000003", "base2.qcow2");
	make_base(&disks[2]);
	/* As many as there are workers. */
	for (size_t i = 0; i < ARRAY_SIZE(hung); i++) {
		assert_int_equal(mkfifo(disks[i].base, 0600), 0);
		hung[i].path = xstrdup(disks[i].base);
		hv->ops->disk_create(hv, &disks[i].spec, on_done, &hung[i].answer);
	}
	hv->ops->disk_create(hv, &disks[2].spec, on_done, &made);
	await(loop, made.count == 1, AWAIT_MS);
	assert_int_equal(made.kind, ERR_NONE);
	for (size_t i = 0; i < ARRAY_SIZE(hung); i++) {
		assert_int_equal(hung[i].answer.count, 0);
		end_hung(i);
		await(loop, hung[i].answer.count == 1, AWAIT_MS);
		assert_int_equal(hung[i].answer.kind, ERR_INTERNAL);
	}
	for (size_t i = 0; i < ARRAY_SIZE(disks); i++) {
		disk_fini(&disks[i]);
	}
}

static void test_closing_answers_what_waits_exactly_once(void **state)
{
	struct answer refused = {0};
	struct answer after = {0};

	(void)state;
	hv->ops->destroy(hv, ID, on_done, &refused);
	hv->ops->close(hv);
	assert_int_equal(refused.count, 1);
	hv->ops->destroy(hv, ID, on_done, &after);
	assert_int_equal(after.count, 0);
	for (int i = 0; i < 3; i++) {
		loop_turn_for(loop, 1);
	}
	assert_int_equal(refused.count, 1);
	assert_int_equal(after.count, 1);
	assert_int_equal(after.kind, ERR_UNAVAILABLE);
}

static int open_hv(void **state)
{
	const struct hv_libvirt_config good = config();
	struct err err;

	(void)state;
	hv = hv_libvirt_new(loop, &good, &err);
	return hv ? 0 : -1;
}

static int free_hv(void **state)
{
	(void)state;
	hv_libvirt_free(hv);
	return 0;
}

static int open_patient_hv(void **state)
{
	struct hv_libvirt_config patient = config();
	struct err err;

	(void)state;
	patient.deadlines.disk_ms = 600000;
	hv = hv_libvirt_new(loop, &patient, &err);
	for (size_t i = 0; i < ARRAY_SIZE(hung); i++) {
		hung[i].fd = -1;
	}
	return hv ? 0 : -1;
}

/* No qemu-img stays behind, however the test went. */
static int free_hung_hv(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(hung); i++) {
		end_hung(i);
	}
	int rc = free_hv(state);

	for (size_t i = 0; i < ARRAY_SIZE(hung); i++) {
		free(hung[i].path);
		if (hung[i].fd >= 0) {
			close(hung[i].fd);
		}
	}
	return rc;
}

static int set_up(void **state)
{
	struct err err;

	(void)state;
	dir = xstrdup("/tmp/paddock-hv-XXXXXX");
	loop = loop_new(&err);
	return loop && mkdtemp(dir) ? 0 : -1;
}

static int tear_down(void **state)
{
	struct err err;

	(void)state;
	int rc = fs_remove_tree(dir, &err);
	free(dir);
	loop_free(loop);
	return rc;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_wrong_settings_are_refused),
		cmocka_unit_test_setup_teardown(
			test_info_speaks_before_there_is_a_connection, open_hv, free_hv),
		cmocka_unit_test_setup_teardown(
			test_calls_without_a_connection_are_refused_from_the_loop, open_hv,
			free_hv),
		cmocka_unit_test_setup_teardown(test_a_callback_may_call_again, open_hv, free_hv),
		cmocka_unit_test_setup_teardown(
			test_disks_are_made_and_removed_without_libvirt, open_hv, free_hv),
		cmocka_unit_test_setup_teardown(
			test_hanging_calls_hold_up_other_sandboxes_for_seconds_at_most,
			open_patient_hv, free_hung_hv),
		cmocka_unit_test_setup_teardown(
			test_closing_answers_what_waits_exactly_once, open_hv, free_hv),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
