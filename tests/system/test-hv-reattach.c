/*
 * Domains of a daemon that died, on real libvirt and QEMU. libvirt opens one embedded root in the
 * life of a process, so this program runs itself for each of them.
 */

#include "tests/lib/cm.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "hv-rig.h"

#define EVENT_MS 20000

#define REATTACHED_BOX 20

static struct rig rig;
extern char **environ;

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
	rig_box_start(&rig, &box, REATTACHED_BOX, &facts);
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
	rig_box_end(&rig, &box);
	rig_close(&rig, true);
	return 0;
}

/* Runs this program with @command; reads the facts that it prints. */
static pid_t run_self(const char *command, const char *dir, struct hv_facts *ret)
{
	char *const argv[] = {(char *)"test-hv-reattach", (char *)command, (char *)dir, NULL};
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
	assert_true(rig_is_alive(&before));

	uint64_t begin = clock_monotonic_ms();
	pid_t looker = run_self("look", dir, &after);
	print_message("ready after kill -9: %d ms\n", (int)(clock_monotonic_ms() - begin));
	/* Ready means settled: the first look is the true one. */
	assert_int_equal(after.state, HV_DOMAIN_RUNNING);
	assert_int_equal(after.pid, before.pid);
	assert_int_equal(after.pid_start, before.pid_start);
	assert_int_equal(waitpid(looker, &status, 0), looker);
	assert_int_equal(status, 0);
	assert_false(rig_is_alive(&before));
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

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
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
	return cmocka_run_group_tests(tests, NULL, NULL);
}
