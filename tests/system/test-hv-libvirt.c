/* The hypervisor layer on real libvirt and QEMU. */

#include "tests/lib/cm.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <libvirt/libvirt.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/xalloc.h"
#include "hv/domain_facts.h"
#include "hv/process.h"
#include "hv-rig.h"

#define BOOT_MS       90000
#define EVENT_MS      20000
#define RSS_LIMIT_KIB (60 * 1024)

static struct rig rig;
extern char **environ;

/* ---- helpers ---- */

static char *proc_text(pid_t pid, const char *file)
{
	_cleanup_free_ char *path = xasprintf("/proc/%d/%s", (int)pid, file);
	char *text = NULL;
	struct err err;

	assert_ok(fs_read(path, 1 << 20, &text, NULL, &err), &err);
	return text;
}

static bool is_alive(const struct hv_facts *facts)
{
	const struct process process = {.pid = facts->pid, .start = facts->pid_start};

	return process_is_alive(&process);
}

static void start_box(struct rig_box *box, unsigned n, struct hv_facts *facts)
{
	rig_box_init(&rig, box, n);
	assert_int_equal(rig_disk_create(&rig, box), ERR_NONE);
	assert_int_equal(rig_start(&rig, box, facts), ERR_NONE);
}

static void end_box(struct rig_box *box)
{
	assert_int_equal(rig_destroy(&rig, box->id), ERR_NONE);
	assert_int_equal(rig_disk_remove(&rig, box), ERR_NONE);
	rig_box_fini(box);
}

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
	assert_true(is_alive(&facts));
	assert_int_equal(rig_find(&rig, box.id, &listed), ERR_NONE);
	assert_int_equal(listed.pid, facts.pid);
	assert_int_equal(listed.state, HV_DOMAIN_RUNNING);
	begin = clock_monotonic_ms();
	assert_int_equal(rig_destroy(&rig, box.id), ERR_NONE);
	print_message("destroy: %d ms\n", (int)(clock_monotonic_ms() - begin));
	assert_false(is_alive(&facts));
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
	start_box(&box, 3, &facts);
	assert_int_equal(rig_start(&rig, &box, &again), ERR_CONFLICT);
	assert_true(is_alive(&facts));
	assert_int_equal(access(box.paths.agent_socket, F_OK), 0);
	/* Its events still reach us. */
	assert_int_equal(kill(facts.pid, SIGKILL), 0);
	assert_true(rig_wait_event(&rig, box.id, HV_EVENT_LOST, EVENT_MS));
	end_box(&box);
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
	end_box(&box);
}

static void assert_lost_by_signal(unsigned n, int signal)
{
	struct rig_box box;
	struct hv_facts facts;

	start_box(&box, n, &facts);
	assert_int_equal(kill(facts.pid, signal), 0);
	assert_true(rig_wait_event(&rig, box.id, HV_EVENT_LOST, EVENT_MS));
	assert_string_equal(rig.events[rig.event_count - 1].id, box.id);
	end_box(&box);
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
	end_box(&box);
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
	start_box(&box, 15, &facts);
	virConnectPtr conn = open_libvirt();
	virDomainPtr domain = look_up(conn, box.id);
	while (!has_text(domain, "state='connected'")) {
		assert_true(clock_monotonic_ms() - begin < BOOT_MS);
		rig_wait(&rig, &never, 20);
	}
	print_message("from disk to an open channel: %d ms\n", (int)(clock_monotonic_ms() - begin));
	virDomainFree(domain);
	virConnectClose(conn);
	end_box(&box);
}

/* A stopped process doesn't see TERM, so libvirt's call outlives the rig's deadline. */
static void test_destroy_ends_the_process_when_libvirt_hangs(void **state)
{
	struct rig_box box;
	struct hv_facts facts;
	bool never = false;

	(void)state;
	start_box(&box, 6, &facts);
	assert_int_equal(kill(facts.pid, SIGSTOP), 0);
	uint64_t begin = clock_monotonic_ms();
	assert_int_equal(rig_destroy(&rig, box.id), ERR_TIMEOUT);
	assert_true(clock_monotonic_ms() - begin < RIG_CALL_MS + 3000);
	for (int i = 0; i < 200 && (is_alive(&facts) || !rig.late_id[0]); i++) {
		rig_wait(&rig, &never, 50);
	}
	assert_false(is_alive(&facts));
	assert_string_equal(rig.late_id, box.id);
	end_box(&box);
}

/* ---- small changes ---- */

static void test_the_expiry_is_kept_in_the_metadata(void **state)
{
	struct rig_box box;
	struct hv_facts facts;

	(void)state;
	start_box(&box, 7, &facts);
	assert_int_equal(facts.expires_at_ms, box.spec.expires_at_ms);
	assert_int_equal(rig_set_expiry(&rig, box.id, 1800000000123), ERR_NONE);
	assert_int_equal(rig_find(&rig, box.id, &facts), ERR_NONE);
	assert_int_equal(facts.expires_at_ms, 1800000000123);
	assert_string_equal(facts.account, RIG_ACCOUNT);
	end_box(&box);
}

static void test_a_paused_domain_is_resumed(void **state)
{
	struct rig_box box;
	struct hv_facts facts;

	(void)state;
	start_box(&box, 8, &facts);
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
	end_box(&box);
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
	end_box(&box);
}

/* ---- isolation ---- */

static void assert_status_line(const char *status, const char *key, const char *value)
{
	_cleanup_free_ char *line = xasprintf("\n%s:\t%s", key, value);

	if (!strstr(status, line)) {
		fail_msg("no line \"%s: %s\" in:\n%s", key, value, status);
	}
}

static void test_qemu_runs_as_its_sandbox_and_with_nothing_more(void **state)
{
	struct rig_box box;
	struct hv_facts facts;

	(void)state;
	start_box(&box, 10, &facts);
	_cleanup_free_ char *status = proc_text(facts.pid, "status");
	assert_status_line(status, "Uid", "300011\t300011\t300011\t300011\n");
	unsigned gid = box.spec.gid;
	_cleanup_free_ char *gids = xasprintf("%u\t%u\t%u\t%u\n", gid, gid, gid, gid);
	assert_status_line(status, "Gid", gids);
	_cleanup_free_ char *groups = xasprintf("%u \n", gid);
	assert_status_line(status, "Groups", groups);
	assert_status_line(status, "CapEff", "0000000000000000\n");
	assert_status_line(status, "NoNewPrivs", "1\n");
	assert_status_line(status, "Seccomp", "2\n");
	end_box(&box);
}

/* Returns 0 or the errno of connecting to @path. */
static int connect_errno(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	_cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
	return connect(fd, (const struct sockaddr *)&address, sizeof address) == 0 ? 0 : errno;
}

static int open_errno(const char *path, int flags)
{
	_cleanup_close_ int fd = open(path, flags | O_CLOEXEC, 0600);

	return fd >= 0 ? 0 : errno;
}

/* In a child: one bit for each thing that another sandbox's user could do. */
static int attack(const struct rig_box *box, const char *monitor, uid_t uid)
{
	int holes = 0;
	_cleanup_free_ char *new_file = xasprintf("%s/new", box->paths.disk_dir);

	if (setgroups(0, NULL) != 0 || setgid(box->spec.gid) != 0 || setuid(uid) != 0) {
		return 0xff;
	}
	holes |= connect_errno(box->paths.agent_socket) != EACCES ? 1 : 0;
	holes |= connect_errno(box->paths.console_socket) != EACCES ? 2 : 0;
	holes |= connect_errno(monitor) != EACCES ? 4 : 0;
	holes |= open_errno(box->paths.overlay, O_RDONLY) != EACCES ? 8 : 0;
	holes |= open_errno(box->base, O_RDWR) != EACCES ? 16 : 0;
	holes |= open_errno(new_file, O_WRONLY | O_CREAT) != EACCES ? 32 : 0;
	/* What it must be able to do, so that the rest isn't refused for a silly reason. */
	holes |= open_errno(box->base, O_RDONLY) != 0 ? 64 : 0;
	return holes;
}

static char *monitor_path(pid_t pid)
{
	_cleanup_free_ char *path = xasprintf("/proc/%d/cmdline", (int)pid);
	char *args;
	size_t len;
	struct err err;

	assert_ok(fs_read(path, 1 << 20, &args, &len, &err), &err);
	for (size_t at = 0; at < len; at += strlen(args + at) + 1) {
		char *found = strstr(args + at, "\"file\":\"");
		char *end = found ? strstr(found, "/master-key.aes") : NULL;
		if (end) {
			char *dir = found + strlen("\"file\":\"");
			char *result = xasprintf("%.*s/monitor.sock", (int)(end - dir), dir);
			free(args);
			return result;
		}
	}
	fail_msg("QEMU's directory isn't on its command line");
	return NULL;
}

static void test_another_sandbox_s_user_reaches_nothing(void **state)
{
	struct rig_box box;
	struct hv_facts facts;
	int status;

	(void)state;
	start_box(&box, 11, &facts);
	_cleanup_free_ char *monitor = monitor_path(facts.pid);
	assert_int_equal(access(monitor, F_OK), 0);
	assert_int_equal(connect_errno(box.paths.agent_socket), 0);
	pid_t child = fork();
	if (child == 0) {
		_exit(attack(&box, monitor, RIG_UID + 500));
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	/* The sandbox's own user can't add files either, or reach the daemon's sockets. */
	child = fork();
	if (child == 0) {
		_exit(attack(&box, monitor, box.spec.uid));
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(WEXITSTATUS(status), 8);
	end_box(&box);
}

static void test_the_shared_base_stays_root_s(void **state)
{
	struct rig_box box;
	struct hv_facts facts;
	struct stat before, after;

	(void)state;
	rig_box_init(&rig, &box, 12);
	assert_int_equal(stat(box.base, &before), 0);
	rig_box_fini(&box);
	start_box(&box, 12, &facts);
	assert_int_equal(stat(box.base, &after), 0);
	assert_int_equal(after.st_uid, before.st_uid);
	assert_int_equal(after.st_mode, before.st_mode);
	assert_int_equal(after.st_ctim.tv_sec, before.st_ctim.tv_sec);
	end_box(&box);
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
	_cleanup_free_ char *status = proc_text(getpid(), "status");
	const char *line = strstr(status, "\nVmRSS:");

	assert_non_null(line);
	long kib = strtol(line + strlen("\nVmRSS:"), NULL, 10);
	print_message("resident: %ld KiB\n", kib);
#ifndef __SANITIZE_ADDRESS__
	assert_true(kib < RSS_LIMIT_KIB);
#endif
}

/* ---- re-attaching: libvirt opens one embedded root in the life of a process ---- */

#define REATTACHED_BOX 20

static void print_facts(const struct hv_facts *facts)
{
	printf("%d %d %llu\n", (int)facts->state, (int)facts->pid,
		(unsigned long long)facts->pid_start);
	fflush(stdout);
}

/* Child: holds the embedded driver, starts a domain, and waits to be killed. */
static int hold(const char *dir)
{
	struct rig_box box;
	struct hv_facts facts;
	bool never = false;

	rig_open(&rig, dir);
	start_box(&box, REATTACHED_BOX, &facts);
	print_facts(&facts);
	rig_wait(&rig, &never, 120000);
	return 1;
}

/* Child: opens what another left, says what it sees at once, and ends it. */
static int look(const char *dir)
{
	struct rig_box box;
	struct hv_facts facts;

	rig_open(&rig, dir);
	rig_box_init(&rig, &box, REATTACHED_BOX);
	if (rig_find(&rig, box.id, &facts) == ERR_NONE) {
		print_facts(&facts);
		assert_int_equal(kill(facts.pid, SIGKILL), 0);
		assert_true(rig_wait_event(&rig, box.id, HV_EVENT_LOST, EVENT_MS));
	} else {
		facts = (struct hv_facts){.state = HV_DOMAIN_SHUTOFF};
		print_facts(&facts);
	}
	end_box(&box);
	rig_close(&rig, true);
	return 0;
}

/* Runs this program with @command; reads the facts that it prints. */
static pid_t run_self(const char *command, const char *dir, struct hv_facts *ret)
{
	char *const argv[] = {(char *)"test-hv-libvirt", (char *)command, (char *)dir, NULL};
	posix_spawn_file_actions_t actions;
	int fds[2];
	pid_t pid;
	int state, qemu_pid;
	unsigned long long start;

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, fds[1], STDOUT_FILENO);
	assert_int_equal(posix_spawn(&pid, "/proc/self/exe", &actions, NULL, argv, environ), 0);
	posix_spawn_file_actions_destroy(&actions);
	close(fds[1]);
	_cleanup_fclose_ FILE *out = fdopen(fds[0], "r");
	assert_int_equal(fscanf(out, "%d %d %llu", &state, &qemu_pid, &start), 3);
	*ret = (struct hv_facts){
		.state = (enum hv_domain_state)state, .pid = qemu_pid, .pid_start = start};
	return pid;
}

static void test_domains_outlive_the_death_of_the_daemon(void **state)
{
	struct hv_facts before, after;
	char dir[RIG_DIR_BYTES];
	int status;

	(void)state;
	rig_make_directory(dir);
	pid_t holder = run_self("hold", dir, &before);
	assert_int_equal(kill(holder, SIGKILL), 0);
	assert_int_equal(waitpid(holder, &status, 0), holder);
	assert_true(is_alive(&before));

	uint64_t begin = clock_monotonic_ms();
	pid_t looker = run_self("look", dir, &after);
	print_message("ready after kill -9: %d ms\n", (int)(clock_monotonic_ms() - begin));
	/* Ready means settled: the first look is the true one. */
	assert_int_equal(after.state, HV_DOMAIN_RUNNING);
	assert_int_equal(after.pid, before.pid);
	assert_int_equal(after.pid_start, before.pid_start);
	assert_int_equal(waitpid(looker, &status, 0), looker);
	assert_int_equal(status, 0);
	assert_false(is_alive(&before));
}

static void test_a_domain_that_died_meanwhile_is_gone_when_ready(void **state)
{
	struct hv_facts before, after;
	char dir[RIG_DIR_BYTES];
	int status;

	(void)state;
	rig_make_directory(dir);
	pid_t holder = run_self("hold", dir, &before);
	assert_int_equal(kill(holder, SIGKILL), 0);
	assert_int_equal(waitpid(holder, &status, 0), holder);
	assert_int_equal(kill(before.pid, SIGKILL), 0);
	pid_t looker = run_self("look", dir, &after);
	assert_int_equal(after.pid, 0);
	assert_int_equal(waitpid(looker, &status, 0), looker);
	assert_int_equal(status, 0);
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

int main(int argc, char **argv)
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
		cmocka_unit_test(test_qemu_runs_as_its_sandbox_and_with_nothing_more),
		cmocka_unit_test(test_another_sandbox_s_user_reaches_nothing),
		cmocka_unit_test(test_the_shared_base_stays_root_s),
		cmocka_unit_test(test_a_foreign_domain_with_our_name_is_left_alone),
		cmocka_unit_test(test_memory_stays_small),
	};
	const struct CMUnitTest reattach_tests[] = {
		cmocka_unit_test(test_domains_outlive_the_death_of_the_daemon),
		cmocka_unit_test(test_a_domain_that_died_meanwhile_is_gone_when_ready),
	};

	if (!rig_has_image()) {
		puts("skipped: PADDOCK_TEST_IMAGE names no directory with an image");
		return 77;
	}
	if (argc == 3) {
		return strcmp(argv[1], "hold") == 0 ? hold(argv[2]) : look(argv[2]);
	}
	int failed = cmocka_run_group_tests_name("re-attach", reattach_tests, NULL, NULL);

	return failed + cmocka_run_group_tests_name("embedded", tests, open_rig, close_rig);
}
