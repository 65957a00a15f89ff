/*
 * Theory of operation
 *
 * A command is over when its first process has ended. What it left running keeps the pipes, whose
 * read ends go to drain.c. Time-out and kill are different: they are over when nothing is left of
 * the whole tree.
 *
 *   RUNNING ──time-out: TERM──► TERMINATING ──grace over: KILL──► KILLING ──► GONE
 *      │                             └────────── all ended ───────────────────►▲
 *      └──command_kill()──► KILLING
 */

#include "src/command.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/drain.h"
#include "src/env.h"
#include "src/exec-request.h"
#include "src/job.h"
#include "src/options.h"
#include "src/pty.h"
#include "src/spawn.h"
#include "src/stream.h"

/* How often a dying tree is looked at, and for how long after SIGKILL. */
#define TREE_POLL_MS    10u
#define TREE_GIVE_UP_MS 2000u
/* What may still be on its way through a terminal when its first process has ended. */
#define TTY_LEFT_BYTES 65536u

static int null_fd = -1;
static struct command *named[PROTO_STREAMS_MAX + JOBS_MAX];

int command_init(void)
{
	null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	return null_fd < 0 ? -1 : 0;
}

/* ---- ids ------------------------------------------------------------------------------------ */

struct command *command_find(const char *id)
{
	for (size_t i = 0; i < ARRAY_SIZE(named); i++) {
		if (named[i] != NULL && strcmp(named[i]->id, id) == 0) {
			return named[i];
		}
	}
	return NULL;
}

/* There are as many places as commands can be. */
static void set_name(struct command *c, const char *id)
{
	for (size_t i = 0; id[0] != '\0' && i < ARRAY_SIZE(named); i++) {
		if (named[i] == NULL) {
			snprintf(c->id, sizeof c->id, "%s", id);
			named[i] = c;
			return;
		}
	}
}

void command_release(struct command *c)
{
	for (size_t i = 0; c->id[0] != '\0' && i < ARRAY_SIZE(named); i++) {
		if (named[i] == c) {
			named[i] = NULL;
		}
	}
	tree_release(c->tree);
	c->tree = NULL;
}

/* ---- start ---------------------------------------------------------------------------------- */

/* A command too long for an argument is handed over as a file without a name. */
static int script_of(const char *command)
{
	int fd = memfd_create("command", MFD_CLOEXEC);

	if (fd >= 0 && util_write_all(fd, command, strlen(command)) != 0) {
		util_close(&fd);
	}
	return fd;
}

static bool make_pipe(int *ret_ours, int *ret_theirs, bool is_stdin)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) != 0) {
		return false;
	}
	*ret_ours = ends[is_stdin ? 1 : 0];
	*ret_theirs = ends[is_stdin ? 0 : 1];
	return fcntl(*ret_ours, F_SETFL, O_NONBLOCK) == 0;
}

static bool make_terminal(
	const struct exec_request *q, struct command_pipes *ours, struct spawn_plan *plan)
{
	ours->out = pty_open(q->rows, q->cols, plan->is_root, &plan->in_fd);
	if (ours->out < 0) {
		return false;
	}
	ours->in = fcntl(ours->out, F_DUPFD_CLOEXEC, 0);
	plan->out_fd = plan->err_fd = plan->in_fd;
	return ours->in >= 0;
}

static bool make_pipes(
	const struct exec_request *q, struct command_pipes *ours, struct spawn_plan *plan)
{
	bool has_stdin = (q->flags & MSG_EXEC_STDIN) != 0;

	plan->in_fd = has_stdin ? -1 : null_fd;
	return make_pipe(&ours->out, &plan->out_fd, false) &&
	       make_pipe(&ours->err, &plan->err_fd, false) &&
	       (!has_stdin || make_pipe(&ours->in, &plan->in_fd, true));
}

static void close_ours(struct command_pipes *ours)
{
	util_close(&ours->in);
	util_close(&ours->out);
	util_close(&ours->err);
}

static void close_theirs(struct spawn_plan *plan)
{
	if (plan->in_fd != null_fd) {
		util_close(&plan->in_fd);
	}
	if (!plan->has_tty) {
		util_close(&plan->out_fd);
		util_close(&plan->err_fd);
	}
	util_close(&plan->script_fd);
}

static void say_not_started(
	struct stream *s, const struct exec_request *q, const struct spawn_result *r)
{
	switch (r->stage) {
	case SPAWN_STAGE_CWD:
		stream_fail(s, STATUS_INVALID, r->sys, "cwd %.150s: %s",
			q->cwd != NULL ? q->cwd : options.workspace, strerror(r->sys));
		break;
	case SPAWN_STAGE_EXEC:
		stream_fail(s, stream_status_of(r->sys), r->sys,
			r->sys == E2BIG
				? "arguments and environment are longer than the kernel takes"
				: "not enough memory to start the command");
		break;
	case SPAWN_STAGE_CLONE:
		stream_fail(s, stream_status_of(r->sys), r->sys, "can't start a process: %s",
			strerror(r->sys));
		break;
	case SPAWN_STAGE_SETUP:
	case SPAWN_STAGE_DONE:
	default:
		stream_fail(s, STATUS_INTERNAL, r->sys, "can't set up the process: %s",
			strerror(r->sys));
		break;
	}
}

/* Absolute directory to start in. */
static const char *full_cwd(const struct exec_request *q, char *out, size_t size)
{
	if (q->cwd == NULL || q->cwd[0] == '\0') {
		return options.workspace;
	}
	if (q->cwd[0] == '/') {
		return q->cwd;
	}
	snprintf(out, size, "%s/%s", options.workspace, q->cwd);
	return out;
}

/* What argv and path say which program runs. @argv has room for five, the first is spare. */
static void choose_program(
	struct exec_request *q, struct spawn_plan *plan, char **argv, char *login_name, size_t size)
{
	char *shell = q->shell != NULL ? q->shell : (char *)env_shell();

	plan->argv = q->args + 1;
	if (q->arg_count > 0) {
		return;
	}
	plan->argv = argv + 1;
	plan->path = q->shell != NULL ? plan->path : NULL;
	if (q->command == NULL) {
		const char *slash = strrchr(shell, '/');

		snprintf(login_name, size, "-%s", slash != NULL ? slash + 1 : shell);
		plan->file = shell;
		argv[1] = login_name;
		return;
	}
	bool is_file = plan->script_fd >= 0;

	argv[1] = shell;
	argv[2] = (char *)(is_file ? SPAWN_SCRIPT_PATH : "-c");
	argv[3] = is_file ? NULL : q->command;
}

static bool spawn(
	struct command *c, struct stream *s, struct exec_request *q, struct spawn_plan *plan)
{
	static struct env env;
	char cwd[PROTO_PATH_MAX_BYTES + 512];
	char login_name[256];
	struct spawn_result result;
	char *shell_argv[5] = {NULL};

	env_begin(&env, plan->is_root);
	if (plan->has_tty && strcmp(env_get(&env, "TERM"), ENV_NO_TERMINAL) == 0) {
		env_put(&env, (char *)"TERM=xterm-256color");
	}
	for (size_t i = 0; i < q->var_count; i++) {
		env_put(&env, q->vars[i]);
	}
	plan->envp = env.vars;
	plan->cwd = full_cwd(q, cwd, sizeof cwd);
	plan->path = env_get(&env, "PATH");
	choose_program(q, plan, shell_argv, login_name, sizeof login_name);
	c->tree = tree_take();
	plan->cgroup_fd = tree_fd(c->tree);
	c->started_us = now_us();
	spawn_run(plan, &result);
	if (result.pid == 0) {
		tree_release(c->tree);
		c->tree = NULL;
		say_not_started(s, q, &result);
		return false;
	}
	c->pid = result.pid;
	return true;
}

static bool start(struct command *c, struct stream *s, struct exec_request *q,
	struct command_pipes *ours, struct spawn_plan *plan)
{
	bool is_ok = plan->has_tty ? make_terminal(q, ours, plan) : make_pipes(q, ours, plan);

	if (is_ok && q->command != NULL && strlen(q->command) >= EXEC_ARG_MAX_BYTES) {
		plan->script_fd = script_of(q->command);
		is_ok = plan->script_fd >= 0;
	}
	if (!is_ok) {
		int sys = errno;

		stream_fail(s, stream_status_of(sys), sys, "can't make %s: %s",
			plan->has_tty ? "a terminal" : "pipes", strerror(sys));
		return false;
	}
	return spawn(c, s, q, plan);
}

bool command_start(struct command *c, struct stream *s, struct exec_request *q,
	struct command_pipes *ret_pipes)
{
	struct command_pipes ours = {.in = -1, .out = -1, .err = -1};
	struct spawn_plan plan = {.in_fd = -1,
		.out_fd = -1,
		.err_fd = -1,
		.script_fd = -1,
		.is_root = (q->flags & MSG_EXEC_ROOT) != 0,
		.has_tty = (q->flags & MSG_EXEC_TTY) != 0};

	*c = (struct command){.grace_ms = q->grace_ms};
	if (q->id[0] != '\0' && command_find(q->id) != NULL) {
		stream_fail(s, STATUS_EXISTS, 0, "there is a command %s already", q->id);
		return false;
	}
	bool is_ok = start(c, s, q, &ours, &plan);

	close_theirs(&plan);
	if (!is_ok) {
		close_ours(&ours);
		return false;
	}
	set_name(c, q->id);
	c->deadline_ms = q->timeout_ms > 0 ? now_ms() + q->timeout_ms : 0;
	*ret_pipes = ours;
	return true;
}

/* ---- end ------------------------------------------------------------------------------------ */

bool command_is_over(const struct command *c)
{
	return c->has_exited && (c->ending == COMMAND_RUNNING || c->ending == COMMAND_GONE);
}

void command_exited(struct command *c, int wait_status)
{
	c->has_exited = true;
	c->wait_status = wait_status;
	c->ended_us = now_us();
	if (c->ending == COMMAND_RUNNING) {
		c->deadline_ms = 0;
	} else {
		c->deadline_ms = now_ms();
		loop_kick();
	}
}

void command_signal(struct command *c, int signal)
{
	if (signal == SIGKILL) {
		tree_kill(c->tree, c->pid);
	} else {
		tree_signal(c->tree, c->pid, signal);
	}
}

void command_kill(struct command *c)
{
	if (c->ending == COMMAND_GONE) {
		return;
	}
	tree_kill(c->tree, c->pid);
	c->ending = COMMAND_KILLING;
	c->kill_at_ms = now_ms() + TREE_GIVE_UP_MS;
	c->deadline_ms = now_ms() + TREE_POLL_MS;
}

/* The first process is gone; looks after the others. */
static bool watch_tree(struct command *c, uint64_t now)
{
	if (tree_is_empty(c->tree, c->pid)) {
		c->ending = COMMAND_GONE;
	} else if (c->ending == COMMAND_TERMINATING) {
		c->deadline_ms = MIN(now + TREE_POLL_MS, c->kill_at_ms);
	} else if (now >= c->kill_at_ms) {
		c->ending = COMMAND_GONE; /* in the kernel, beyond reach */
	} else {
		tree_kill(c->tree, c->pid);
		c->deadline_ms = now + TREE_POLL_MS;
	}
	return c->ending == COMMAND_GONE;
}

bool command_timer(struct command *c)
{
	uint64_t now = now_ms();

	c->deadline_ms = 0;
	if (c->ending == COMMAND_RUNNING) {
		c->end_flags |= MSG_END_TIMED_OUT;
		tree_signal(c->tree, c->pid, SIGTERM);
		tree_signal(c->tree, c->pid, SIGCONT);
		c->ending = COMMAND_TERMINATING;
		c->kill_at_ms = now + c->grace_ms;
		c->deadline_ms = c->kill_at_ms;
	} else if (c->ending == COMMAND_TERMINATING && now >= c->kill_at_ms) {
		command_kill(c);
	} else if (c->has_exited) {
		return watch_tree(c, now);
	} else if (now < c->kill_at_ms) {
		c->deadline_ms = now + TREE_POLL_MS;
	} else {
		/* In the kernel, or a zombie that its tracer keeps: SIGKILL is what it ends by. */
		command_exited(c, SIGKILL);
	}
	return false;
}

uint32_t command_exit_signal(const struct command *c)
{
	return WIFSIGNALED(c->wait_status) ? (uint32_t)WTERMSIG(c->wait_status) : 0;
}

uint32_t command_exit_code(const struct command *c)
{
	return WIFSIGNALED(c->wait_status) ? 128 + command_exit_signal(c)
					   : (uint32_t)WEXITSTATUS(c->wait_status);
}

/* ---- outputs -------------------------------------------------------------------------------- */

void output_note_left(struct output *o)
{
	int left = 0;

	if (o->fd >= 0 && !o->is_tty) {
		ioctl(o->fd, FIONREAD, &left);
	}
	o->left = o->fd >= 0 && o->is_tty ? TTY_LEFT_BYTES : (size_t)MAX(left, 0);
	o->is_ready = o->left > 0;
}

bool output_is_drained(const struct output *o)
{
	return o->fd < 0 || o->left == 0;
}

ssize_t output_read(struct output *o, size_t limit, const uint8_t **ret_data)
{
	static uint8_t data[65536];
	ssize_t n;

	do {
		n = read(o->fd, data, MIN(limit, sizeof data));
	} while (n < 0 && errno == EINTR);
	*ret_data = data;
	return n < 0 && errno != EAGAIN ? 0 : n;
}

void output_let_go(struct output *o)
{
	char byte;

	if (o->fd < 0) {
		return;
	}
	if (o->is_tty || read(o->fd, &byte, 1) == 0) {
		util_close(&o->fd);
	} else {
		drain_take(&o->fd);
	}
}
