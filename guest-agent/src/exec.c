/*
 * Theory of operation
 *
 * A call ends when the command's first process has ended and what was in its pipes at that moment
 * has been passed on. What it left running keeps the pipes, whose read ends go to drain.c.
 * Time-out and CANCEL are different: they end when nothing is left of the whole tree.
 *
 *   EXEC_RUNNING ──time-out: TERM──► TERMINATING ──grace over: KILL──► KILLING ──► GONE
 *        │                                └────────── all ended ───────────────────►▲
 *        └──CANCEL: KILL──► KILLING
 *
 * Between the end of a command and END there are only: wait, two FIONREAD and one write. Closing
 * and looking after the cgroup comes behind.
 */

#include "src/exec.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/drain.h"
#include "src/env.h"
#include "src/exec-request.h"
#include "src/options.h"
#include "src/port.h"
#include "src/spawn.h"
#include "src/stream.h"

/* Reads of one output in one turn, so that 64 streams share the port. */
#define READS_PER_TURN 4
/* How often a dying tree is looked at, and for how long after SIGKILL. */
#define TREE_POLL_MS    10u
#define TREE_GIVE_UP_MS 2000u

static int null_fd = -1;

int exec_init(void)
{
	null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	return null_fd < 0 ? -1 : 0;
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

static void close_pipes(struct stream *s)
{
	struct exec *e = &s->exec;

	feed_stop(s, &e->in);
	util_close(&e->out.fd);
	util_close(&e->err.fd);
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

static void spawn(struct stream *s, struct exec_request *q, struct spawn_plan *plan)
{
	static struct env env;
	char cwd[PROTO_PATH_MAX_BYTES + 512];
	struct exec *e = &s->exec;
	struct spawn_result result;
	char *shell_argv[5] = {NULL, (char *)env_shell(), NULL, NULL, NULL};

	env_begin(&env, plan->is_root);
	for (size_t i = 0; i < q->var_count; i++) {
		env_put(&env, q->vars[i]);
	}
	plan->envp = env.vars;
	plan->cwd = full_cwd(q, cwd, sizeof cwd);
	plan->argv = q->args + 1;
	plan->path = env_get(&env, "PATH");
	if (q->command != NULL) {
		bool is_file = plan->script_fd >= 0;

		shell_argv[2] = (char *)(is_file ? SPAWN_SCRIPT_PATH : "-c");
		shell_argv[3] = is_file ? NULL : q->command;
		plan->argv = shell_argv + 1;
		plan->path = NULL;
	}
	e->tree = tree_take();
	plan->cgroup_fd = tree_fd(e->tree);
	e->started_us = now_us();
	spawn_run(plan, &result);
	if (result.pid == 0) {
		close_pipes(s);
		tree_release(e->tree);
		say_not_started(s, q, &result);
		return;
	}
	e->pid = s->pid = result.pid;
}

static void started(struct stream *s, const struct exec_request *q)
{
	struct exec *e = &s->exec;
	uint8_t body[16];
	struct msg_writer w = {.buf = body, .size = sizeof body};

	loop_watch(e->out.fd, EPOLLIN, stream_ref(s, LOOP_STREAM_OUT));
	loop_watch(e->err.fd, EPOLLIN, stream_ref(s, LOOP_STREAM_ERR));
	if (e->in.state == FEED_OPEN) {
		loop_watch(e->in.fd, EPOLLOUT, stream_ref(s, LOOP_STREAM_IN));
	}
	e->grace_ms = q->grace_ms;
	e->cap_left = q->output_cap;
	if (q->timeout_ms > 0) {
		s->deadline_ms = now_ms() + q->timeout_ms;
	}
	msg_put_u32(&w, MSG_PID, (uint32_t)e->pid);
	port_put(FRAME_STARTED, 0, s->id, body, w.len);
}

static void start_parsed(struct stream *s, struct exec_request *q)
{
	struct exec *e = &s->exec;
	struct spawn_plan plan = {.in_fd = -1,
		.out_fd = -1,
		.err_fd = -1,
		.script_fd = -1,
		.is_root = (q->flags & MSG_EXEC_ROOT) != 0};
	bool has_stdin = (q->flags & MSG_EXEC_STDIN) != 0;
	int in_fd = -1;
	bool is_ok = make_pipe(&e->out.fd, &plan.out_fd, false) &&
		     make_pipe(&e->err.fd, &plan.err_fd, false) &&
		     (!has_stdin || make_pipe(&in_fd, &plan.in_fd, true));

	if (is_ok && q->command != NULL && strlen(q->command) >= EXEC_ARG_MAX_BYTES) {
		plan.script_fd = script_of(q->command);
		is_ok = plan.script_fd >= 0;
	}
	if (in_fd >= 0) {
		feed_open(&e->in, in_fd);
	}
	if (!has_stdin) {
		plan.in_fd = null_fd;
	}
	if (is_ok) {
		spawn(s, q, &plan);
	} else {
		int sys = errno;

		close_pipes(s);
		stream_fail(s, stream_status_of(sys), sys, "can't make pipes: %s", strerror(sys));
	}
	if (has_stdin) {
		util_close(&plan.in_fd);
	}
	util_close(&plan.out_fd);
	util_close(&plan.err_fd);
	util_close(&plan.script_fd);
	if (s->id != 0) {
		started(s, q);
	}
}

static void exec_start(struct stream *s, const uint8_t *body, size_t len)
{
	static struct exec_request q; /* too large for a stack; one at a time */

	s->exec.in = FEED_INIT;
	s->exec.out.fd = s->exec.err.fd = -1;
	if (!exec_request_init(&q, len)) {
		stream_fail(s, STATUS_BUSY, ENOMEM, "out of memory");
		return;
	}
	if (exec_request_parse(s, &q, body, len)) {
		start_parsed(s, &q);
	}
	exec_request_fini(&q);
}

/* ---- stdin ---------------------------------------------------------------------------------- */

static void exec_data(struct stream *s, const uint8_t *data, size_t len)
{
	/* A reader that is gone isn't an error: the rest is dropped. */
	feed_data(s, &s->exec.in, data, len);
}

static void exec_in_closed(struct stream *s)
{
	feed_pump(s, &s->exec.in);
}

/* ---- output --------------------------------------------------------------------------------- */

/* Over the cap: counted, not kept. */
static ssize_t swallow(int fd, size_t limit)
{
	static char nothing[65536];
	ssize_t n;

	do {
		n = read(fd, nothing, MIN(limit, sizeof nothing));
	} while (n < 0 && errno == EINTR);
	return n;
}

/* Nothing of the command runs that END would have to wait for. */
static bool is_over(const struct exec *e)
{
	return e->has_exited && (e->ending == EXEC_RUNNING || e->ending == EXEC_GONE);
}

static void pump_output(struct stream *s, enum frame_channel channel, struct exec_output *o)
{
	struct exec *e = &s->exec;
	bool is_bounded = is_over(e);

	for (int i = 0; o->fd >= 0 && o->is_ready; i++) {
		size_t limit = is_bounded ? o->left : SIZE_MAX;
		bool is_dropped = e->cap_left == 0;
		bool is_blocked = false;
		ssize_t n;

		if (limit == 0) {
			return;
		}
		if (i == READS_PER_TURN) {
			loop_kick();
			return;
		}
		if (is_dropped) {
			n = swallow(o->fd, limit);
		} else {
			limit = (size_t)MIN((uint64_t)limit, e->cap_left);
			n = stream_pump_out(s, channel, o->fd, limit, &is_blocked);
		}
		if (is_blocked) {
			return;
		}
		if (n > 0) {
			o->bytes += (uint64_t)n;
			e->cap_left -= is_dropped ? 0 : (uint64_t)n;
			e->end_flags |= is_dropped ? MSG_END_TRUNCATED : 0;
			o->left -= is_bounded ? (size_t)n : 0;
		} else if (n < 0 && errno == EAGAIN) {
			o->is_ready = false;
			o->left = 0;
		} else {
			util_close(&o->fd);
			stream_close_channel(s, channel);
		}
	}
}

/* ---- end ------------------------------------------------------------------------------------ */

/* Whatever still holds the pipe may go on writing. */
static void let_go(struct exec_output *o)
{
	char byte;

	if (o->fd < 0) {
		return;
	}
	if (read(o->fd, &byte, 1) == 0) {
		util_close(&o->fd);
	} else {
		drain_take(&o->fd);
	}
}

static void clean_up(struct stream *s)
{
	struct exec *e = &s->exec;

	feed_stop(s, &e->in);
	let_go(&e->out);
	let_go(&e->err);
	tree_release(e->tree);
	e->tree = NULL;
}

static void finish(struct stream *s)
{
	struct exec *e = &s->exec;
	struct stream_result r = {
		.status = STATUS_OK,
		.is_exec = true,
		.flags = e->end_flags,
		.has_counts = true,
		.out_bytes = e->out.bytes,
		.err_bytes = e->err.bytes,
		.duration_us = e->ended_us - e->started_us,
	};

	if (WIFSIGNALED(e->wait_status)) {
		r.signal = (uint32_t)WTERMSIG(e->wait_status);
		r.exit_code = 128 + r.signal;
	} else {
		r.exit_code = (uint32_t)WEXITSTATUS(e->wait_status);
	}
	stream_end(s, &r);
	port_flush();
	clean_up(s);
}

static void exec_pump(struct stream *s)
{
	struct exec *e = &s->exec;

	if (e->ending == EXEC_KILLING && (e->end_flags & MSG_END_CANCELLED) != 0) {
		return; /* nobody wants its output */
	}
	pump_output(s, FRAME_CHANNEL_OUT, &e->out);
	pump_output(s, FRAME_CHANNEL_ERR, &e->err);

	bool is_drained = (e->out.fd < 0 || e->out.left == 0) &&
			  (e->err.fd < 0 || e->err.left == 0);
	bool is_cancelled = (e->end_flags & MSG_END_CANCELLED) != 0;

	if (is_over(e) && (is_drained || is_cancelled)) {
		finish(s);
	}
}

static void note_left(struct exec_output *o)
{
	int left = 0;

	if (o->fd >= 0) {
		ioctl(o->fd, FIONREAD, &left);
	}
	o->left = (size_t)MAX(left, 0);
	o->is_ready = o->left > 0;
}

static void exec_exited(struct stream *s, int wait_status)
{
	struct exec *e = &s->exec;

	e->has_exited = true;
	e->wait_status = wait_status;
	e->ended_us = now_us();
	note_left(&e->out);
	note_left(&e->err);
	if (e->ending == EXEC_RUNNING) {
		s->deadline_ms = 0;
	} else {
		s->deadline_ms = now_ms();
		loop_kick();
	}
}

static void kill_all(struct stream *s)
{
	struct exec *e = &s->exec;

	tree_kill(e->tree, e->pid);
	e->ending = EXEC_KILLING;
	e->kill_at_ms = now_ms() + TREE_GIVE_UP_MS;
	s->deadline_ms = now_ms() + TREE_POLL_MS;
}

/* The first process is gone; looks after the others. */
static void watch_tree(struct stream *s, uint64_t now)
{
	struct exec *e = &s->exec;

	if (tree_is_empty(e->tree, e->pid)) {
		e->ending = EXEC_GONE;
	} else if (e->ending == EXEC_TERMINATING) {
		s->deadline_ms = MIN(now + TREE_POLL_MS, e->kill_at_ms);
	} else if (now >= e->kill_at_ms) {
		e->ending = EXEC_GONE; /* in the kernel, beyond reach */
	} else {
		tree_kill(e->tree, e->pid);
		s->deadline_ms = now + TREE_POLL_MS;
	}
	if (e->ending == EXEC_GONE) {
		note_left(&e->out);
		note_left(&e->err);
	}
}

static void exec_timer(struct stream *s)
{
	struct exec *e = &s->exec;
	uint64_t now = now_ms();

	if (e->ending == EXEC_RUNNING) {
		e->end_flags |= MSG_END_TIMED_OUT;
		tree_signal(e->tree, e->pid, SIGTERM);
		tree_signal(e->tree, e->pid, SIGCONT);
		e->ending = EXEC_TERMINATING;
		e->kill_at_ms = now + e->grace_ms;
		s->deadline_ms = e->kill_at_ms;
	} else if (e->ending == EXEC_TERMINATING && now >= e->kill_at_ms) {
		kill_all(s);
	} else if (e->has_exited) {
		watch_tree(s, now);
	} else if (now < e->kill_at_ms) {
		s->deadline_ms = now + TREE_POLL_MS;
	} else {
		/* In the kernel, or a zombie that its tracer keeps: SIGKILL is what it ends by. */
		s->pid = 0;
		exec_exited(s, SIGKILL);
	}
}

static void exec_cancel(struct stream *s)
{
	struct exec *e = &s->exec;

	e->end_flags |= MSG_END_CANCELLED;
	if (e->ending != EXEC_GONE) {
		kill_all(s);
	}
}

static void exec_abandon(struct stream *s)
{
	struct exec *e = &s->exec;

	tree_kill(e->tree, e->pid);
	clean_up(s);
}

static void exec_event(struct stream *s, enum loop_kind kind)
{
	struct exec *e = &s->exec;

	if (kind == LOOP_STREAM_IN) {
		feed_pump(s, &e->in);
	} else if (kind == LOOP_STREAM_OUT) {
		e->out.is_ready = true;
	} else {
		e->err.is_ready = true;
	}
}

const struct call_ops exec_ops = {
	.type = FRAME_EXEC,
	.name = "exec",
	.start = exec_start,
	.data = exec_data,
	.in_closed = exec_in_closed,
	.event = exec_event,
	.pump = exec_pump,
	.timer = exec_timer,
	.exited = exec_exited,
	.cancel = exec_cancel,
	.abandon = exec_abandon,
};
