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
 * command's process id while it runs.
 */

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#define RESTART_PAUSE_S 1

struct supervisor {
	char **command;
	const char *pid_file;
	bool restarts;
	bool is_stopping;
	pid_t child; /* 0: not running */
	int status;  /* of the last child that ended */
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
	FILE *f = fopen(s->pid_file, "we");

	if (!f || fprintf(f, "%d\n", (int)s->child) < 0 || fclose(f) != 0) {
		fprintf(stderr, "<4>paddock-supervise: write %s: %s\n", s->pid_file,
			strerror(errno));
	}
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

/* Until it is to end. Waits for signals, and for the pause before a restart. */
static int run(struct supervisor *s, const sigset_t *signals, const sigset_t *inherited)
{
	start(s, inherited);
	for (;;) {
		const struct timespec pause = {.tv_sec = RESTART_PAUSE_S};
		bool is_due = s->child == 0 && s->restarts && !s->is_stopping;
		int sig = is_due ? sigtimedwait(signals, NULL, &pause) : sigwaitinfo(signals, NULL);

		if (sig == SIGCHLD) {
			reap(s);
		} else if (sig == SIGTERM || sig == SIGINT) {
			s->is_stopping = true;
			if (s->child > 0) {
				kill(s->child, SIGTERM);
			}
		} else if ((sig == SIGHUP || (sig < 0 && errno == EAGAIN)) && s->child == 0) {
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
	struct supervisor s = {.restarts = true};
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
	if (sigprocmask(SIG_BLOCK, &signals, &inherited) != 0 ||
		prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) {
		fprintf(stderr, "<3>paddock-supervise: %s\n", strerror(errno));
		return 1;
	}
	return run(&s, &signals, &inherited);
}
