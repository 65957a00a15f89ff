/*
 * Theory of operation
 *
 * paddock-agent is PID 1 of a guest, a service under another init, or a child of a test. One
 * thread, one epoll, no memory that grows with what the host or the commands do:
 *
 *   wait ─► events set flags ─► dead children are reaped ─► received frames start or feed calls
 *     ▲                                                                        │
 *     └──── what is to be sent is written ◄── jobs and calls do what they can ◄┘
 */

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/command.h"
#include "src/deadman.h"
#include "src/drain.h"
#include "src/env.h"
#include "src/facts.h"
#include "src/guard.h"
#include "src/job.h"
#include "src/log.h"
#include "src/loop.h"
#include "src/machine.h"
#include "src/options.h"
#include "src/port.h"
#include "src/pty.h"
#include "src/session.h"
#include "src/spawn.h"
#include "src/stream.h"
#include "src/tree.h"

struct options options = {
	.owns_machine = true,
	.port_fd = -1,
	.user = "sandbox",
	.uid = 1000,
	.gid = 1000,
	.home = "/home/sandbox",
	.workspace = "/workspace",
	.cgroup_dir = "/sys/fs/cgroup/paddock",
};

static int signal_fd = -1;

/* ---- signals -------------------------------------------------------------------------------- */

static int catch_signals(void)
{
	sigset_t all;
	sigset_t wanted;

	/* Commands would inherit what whoever started us ignores. */
	for (int number = 1; number < NSIG; number++) {
		signal(number, SIG_DFL);
	}
	/* Everything is blocked: SIGPIPE shows as EPIPE, and no handler runs in a vfork child. */
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, NULL);
	sigemptyset(&wanted);
	sigaddset(&wanted, SIGCHLD);
	sigaddset(&wanted, SIGTERM);
	sigaddset(&wanted, SIGINT);
	signal_fd = signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
	return signal_fd < 0
		       ? -1
		       : loop_watch(signal_fd, EPOLLIN, (struct loop_ref){.kind = LOOP_SIGNAL});
}

static void reap(void)
{
	int wait_status;

	for (pid_t pid; (pid = waitpid(-1, &wait_status, WNOHANG)) > 0;) {
		if (!stream_child_exited(pid, wait_status)) {
			job_child_exited(pid, wait_status);
		}
	}
}

static void on_signal(void)
{
	struct signalfd_siginfo info[8];
	ssize_t n;

	while ((n = read(signal_fd, info, sizeof info)) > 0) {
		for (size_t i = 0; i < (size_t)n / sizeof info[0]; i++) {
			if (info[i].ssi_signo != SIGCHLD) {
				machine_power_off();
			}
		}
		if ((size_t)n < sizeof info) {
			break;
		}
	}
	reap();
}

/* ---- loop ----------------------------------------------------------------------------------- */

static void on_event(struct loop_ref ref, uint32_t events)
{
	struct stream *s;

	switch (ref.kind) {
	case LOOP_PORT:
		port_on_event(events);
		break;
	case LOOP_SIGNAL:
		on_signal();
		break;
	case LOOP_DEADMAN:
		deadman_on_event();
		break;
	case LOOP_DRAIN:
		drain_on_event(ref);
		break;
	case LOOP_STREAM_IN:
	case LOOP_STREAM_OUT:
	case LOOP_STREAM_ERR:
	case LOOP_STREAM_HELPER:
		s = stream_of_event(ref);
		if (s != NULL) {
			s->ops->event(s, ref.kind);
		}
		break;
	case LOOP_JOB_OUT:
	case LOOP_JOB_ERR:
		job_on_event(ref);
		break;
	}
}

_noreturn_ static void run(void)
{
	for (;;) {
		loop_turn(on_event);
		session_step();
		job_run_all();
		stream_run_all();
		port_flush();
		if (port_tick()) {
			session_host_gone();
		}
		session_tick();
	}
}

/* ---- start ---------------------------------------------------------------------------------- */

_noreturn_ static void usage(int code)
{
	fprintf(code == 0 ? stdout : stderr,
		"usage: paddock-agent [--port PATH | --fd N] [--test]\n"
		"                     [--user NAME] [--user-id UID] [--home DIR] [--workspace "
		"DIR]\n"
		"                     [--cgroup DIR | --no-cgroup]\n"
		"       paddock-agent --version\n");
	exit(code);
}

static long number(const char *text)
{
	char *end;
	long value = strtol(text, &end, 10);

	if (*text == '\0' || *end != '\0' || value < 0 || value > INT32_MAX) {
		usage(2);
	}
	return value;
}

static void parse_options(int argc, char **argv)
{
	static const struct option known[] = {
		{"port", required_argument, NULL, 'p'},
		{"fd", required_argument, NULL, 'f'},
		{"test", no_argument, NULL, 't'},
		{"user", required_argument, NULL, 'u'},
		{"user-id", required_argument, NULL, 'i'},
		{"home", required_argument, NULL, 'h'},
		{"workspace", required_argument, NULL, 'w'},
		{"cgroup", required_argument, NULL, 'c'},
		{"no-cgroup", no_argument, NULL, 'C'},
		{"version", no_argument, NULL, 'V'},
		{"help", no_argument, NULL, '?'},
		{0},
	};

	for (int c; (c = getopt_long(argc, argv, "", known, NULL)) != -1;) {
		switch (c) {
		case 'p':
			options.port_path = optarg;
			break;
		case 'f':
			options.port_fd = (int)number(optarg);
			break;
		case 't':
			options.owns_machine = false;
			break;
		case 'u':
			options.user = optarg;
			break;
		case 'i':
			options.uid = options.gid = (uid_t)number(optarg);
			break;
		case 'h':
			options.home = optarg;
			break;
		case 'w':
			options.workspace = optarg;
			break;
		case 'c':
			options.cgroup_dir = optarg;
			break;
		case 'C':
			options.cgroup_dir = NULL;
			break;
		case 'V':
			puts("paddock-agent " PADDOCK_VERSION);
			exit(0);
		default:
			usage(2);
		}
	}
	if (optind != argc) {
		usage(2);
	}
}

/* Descriptors 0, 1 and 2 must not become something else. */
static void hold_standard_descriptors(void)
{
	int fd;

	do {
		fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	} while (fd >= 0 && fd <= STDERR_FILENO);
	util_close(&fd);
}

int main(int argc, char **argv)
{
	options.is_init = getpid() == 1;
	options.can_setuid = geteuid() == 0;
	if (!options.is_init) {
		/* The kernel hands its own unknown arguments to init. */
		parse_options(argc, argv);
	} else {
		machine_set_up();
	}
	hold_standard_descriptors();
	if (loop_init() != 0 || catch_signals() != 0 || spawn_init() != 0 || command_init() != 0 ||
		deadman_init() != 0) {
		log_err("can't start: %s", strerror(errno));
		exit(1);
	}
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	facts_init();
	facts.features |= PROTO_FEATURE_JOBS | (pty_is_there() ? PROTO_FEATURE_PTY : 0u);
	env_init();
	if (tree_init()) {
		facts.features |= PROTO_FEATURE_CGROUP;
	}
	if (options.is_init && machine_grow_root()) {
		facts.features |= PROTO_FEATURE_RESIZE;
	}
	guard_start();
	if (options.owns_machine && !tree_shares_processor()) {
		util_become_first();
	}
	log_info("version " PADDOCK_VERSION " is up");
	port_start();
	run();
}
