/*
 * paddock-supervise - a reaping parent for paddockd
 *
 * Purpose: where PID 1 reaps slowly or not at all (containers, minimal inits), the QEMU processes
 * that libvirt's embedded driver leaves to it linger as zombies, and libvirt takes up to 2 s to
 * believe that a domain is gone. This parent declares itself their reaper, reaps at once, and
 * outlives paddockd's restarts. paddockd can't do that itself: libvirt's capability probes would
 * stay its zombies.
 *
 * usage: paddock-supervise [--no-restart] [--pid-file FILE] COMMAND [ARG...]
 *
 * A command that ends with a failure is started again, after 1 s, unless its status says that its
 * configuration is wrong (78, EX_CONFIG of sysexits.h): that takes a person. SIGTERM and SIGINT are
 * passed on, and once the command has ended so does this, with the command's status. SIGHUP starts
 * the command again where it isn't running: with --no-restart that is the only way. FILE holds the
 * command's process id while it runs; it appears whole.
 */

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#include "base/macros.h"

#define RESTART_PAUSE_MS 1000
#define NEVER_RAN        (1 << 8) /* as waitpid() would tell an exit with 1 */

struct supervisor {
	char **command;
	const char *pid_file;
	bool restarts;
	bool is_stopping;
	pid_t child;    /* 0: not running */
	int status;     /* of the last child that ended */
	int64_t due_ms; /* when it is started again */
};

static void write_pid(const struct supervisor *s)
{
	if (!s->pid_file) {
		return;
	}
	if (s->child == 0) {
		unlink(s->pid_file);
		return;
	}
	/* Whoever waits for the file must not find it empty. */
	char temporary[PATH_MAX];
	int n = snprintf(temporary, sizeof temporary, "%s.new", s->pid_file);
	FILE *f = n < (int)sizeof temporary ? fopen(temporary, "we") : NULL;
	bool is_written = f && fprintf(f, "%d\n", (int)s->child) > 0;

	if (f && fclose(f) != 0) {
		is_written = false;
	}
	if (!is_written || rename(temporary, s->pid_file) != 0) {
		fprintf(stderr, "<4>paddock-supervise: write %s: %s\n", s->pid_file,
			strerror(errno));
	}
}

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void start(struct supervisor *s, const sigset_t *inherited)
{
	pid_t child = fork();

	if (child == 0) {
		sigprocmask(SIG_SETMASK, inherited, NULL);
		execvp(s->command[0], s->command);
		fprintf(stderr, "<3>paddock-supervise: run %s: %s\n", s->command[0],
			strerror(errno));
		_exit(127);
	}
	if (child < 0) {
		fprintf(stderr, "<3>paddock-supervise: fork: %s\n", strerror(errno));
		s->due_ms = now_ms() + RESTART_PAUSE_MS;
		return;
	}
	s->child = child;
	write_pid(s);
}

/* Everything that has ended, ours or left to us. */
static void reap(struct supervisor *s)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (pid == s->child) {
			s->child = 0;
			s->status = status;
			s->due_ms = now_ms() + RESTART_PAUSE_MS;
			write_pid(s);
		}
	}
}

static int exit_status(int status)
{
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Whether another start may do better. */
static bool is_worth_a_restart(int status)
{
	return !WIFEXITED(status) || (WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != EX_CONFIG);
}

/* The next signal; 0: the pause before a restart is over. */
static int wait_signal(const struct supervisor *s, const sigset_t *signals)
{
	for (;;) {
		/* Orphans that end meanwhile must not put the restart off. */
		int64_t left = MAX(s->due_ms - now_ms(), INT64_C(0));
		const struct timespec pause = {left / 1000, left % 1000 * 1000000};
		bool has_pause = s->child == 0 && s->restarts && !s->is_stopping;
		int sig = has_pause ? sigtimedwait(signals, NULL, &pause)
				    : sigwaitinfo(signals, NULL);

		if (sig > 0) {
			return sig;
		}
		if (errno == EAGAIN) {
			return 0;
		}
	}
}

/* Until it is to end. */
static int run(struct supervisor *s, const sigset_t *signals, const sigset_t *inherited)
{
	start(s, inherited);
	for (;;) {
		int sig = wait_signal(s, signals);

		/* Whatever it is: a hang-up may overtake the news of an end that it is about. */
		reap(s);
		if (sig == SIGTERM || sig == SIGINT) {
			s->is_stopping = true;
			if (s->child > 0) {
				kill(s->child, SIGTERM);
			}
		} else if (sig != SIGCHLD && s->child == 0) {
			/* SIGHUP, or the pause is over. */
			start(s, inherited);
		}
		bool is_over = s->is_stopping || (s->restarts && !is_worth_a_restart(s->status));
		if (s->child == 0 && is_over) {
			return exit_status(s->status);
		}
	}
}

int main(int argc, char **argv)
{
	struct supervisor s = {.restarts = true, .status = NEVER_RAN};
	sigset_t signals;
	sigset_t inherited;
	int i = 1;

	for (; i < argc && strncmp(argv[i], "--", 2) == 0; i++) {
		if (strcmp(argv[i], "--no-restart") == 0) {
			s.restarts = false;
		} else if (strcmp(argv[i], "--pid-file") == 0 && i + 1 < argc) {
			s.pid_file = argv[++i];
		} else {
			break;
		}
	}
	if (i >= argc || argv[i][0] == '-') {
		fprintf(stderr, "usage: paddock-supervise [--no-restart] [--pid-file FILE] COMMAND "
				"[ARG...]\n");
		return 2;
	}
	s.command = argv + i;
	sigemptyset(&signals);
	sigaddset(&signals, SIGCHLD);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGHUP);
	/* Where a parent left it ignored, the kernel would reap, and not tell us. */
	signal(SIGCHLD, SIG_DFL);
	if (sigprocmask(SIG_BLOCK, &signals, &inherited) != 0 ||
		prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) {
		fprintf(stderr, "<3>paddock-supervise: %s\n", strerror(errno));
		return 1;
	}
	return run(&s, &signals, &inherited);
}
