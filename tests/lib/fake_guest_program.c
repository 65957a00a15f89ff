#include <event2/buffer.h>
#include <signal.h>
#include <stdio.h>

#include "proto/msg.h"
#include "tests/lib/fake_guest_priv.h"

/*
 * Theory of operation
 *
 * A program runs in an EXEC call or as the process of a job; both are a struct guest_call. Output
 * of the first goes to the caller, but what is written while it's paused is held; that of the
 * second into the job's pipe. Where something is still held, the end waits for it.
 */

/* ---- output ---- */

static void hold(struct guest_call *call, int fd, const void *data, size_t len)
{
	evbuffer_add(call->held.data, data, len);
	for (size_t i = 0; i < len; i++) {
		evbuffer_add(call->held.fds, &(char){(char)fd}, 1);
	}
}

static void hand_on(struct guest_call *call, int fd, const void *data, size_t len)
{
	if (call->is_paused || evbuffer_get_length(call->held.data) > 0) {
		hold(call, fd, data, len);
	} else {
		call->exec_hooks.on_output(call->exec_hooks.arg, fd, data, len);
	}
}

/* Beyond the cap: the last of each stream. */
static void keep_tail(struct guest_call *call, int fd, const char *data, size_t len)
{
	struct evbuffer *tail = call->tails[fd - 1];

	evbuffer_add(tail, data, len);
	if (evbuffer_get_length(tail) > call->tail_cap) {
		evbuffer_drain(tail, evbuffer_get_length(tail) - call->tail_cap);
		call->result.truncated = true;
	}
}

void fake_exec_output(struct guest_call *call, int fd, const void *data, size_t len)
{
	uint64_t kept = call->result.stdout_bytes + call->result.stderr_bytes;
	size_t take = kept >= call->output_cap ? 0 : (size_t)MIN(len, call->output_cap - kept);

	if (call->is_ended) {
		return;
	}
	*(fd == 1 ? &call->result.stdout_bytes : &call->result.stderr_bytes) += len;
	if (call->job) {
		fake_task_output(call->job, fd, data, len);
		return;
	}
	if (take > 0) {
		hand_on(call, fd, data, take);
	}
	if (take < len && !call->is_ended) {
		keep_tail(call, fd, (const char *)data + take, len - take);
	}
}

void fake_guest_ignore_cap(struct guest_call *call)
{
	call->output_cap = UINT64_MAX;
}

/* In runs of one descriptor. */
static void flush(struct guest_call *call)
{
	while (!call->is_ended && !call->is_paused && evbuffer_get_length(call->held.data) > 0) {
		const unsigned char *fds = evbuffer_pullup(call->held.fds, -1);
		size_t len = evbuffer_get_length(call->held.fds);
		size_t n = 1;
		char block[4096];

		while (n < MIN(len, sizeof block) && fds[n] == fds[0]) {
			n++;
		}
		int fd = fds[0];

		evbuffer_drain(call->held.fds, n);
		evbuffer_remove(call->held.data, block, n);
		call->exec_hooks.on_output(call->exec_hooks.arg, fd, block, n);
	}
}

static void finish(struct guest_call *call)
{
	call->is_exiting = true;
	for (int i = 0; i < 2; i++) {
		size_t len = evbuffer_get_length(call->tails[i]);

		if (len > 0) {
			*(i == 0 ? &call->result.stdout_tail : &call->result.stderr_tail) = len;
			hand_on(call, i + 1, evbuffer_pullup(call->tails[i], -1), len);
			evbuffer_drain(call->tails[i], len);
		}
	}
	if (evbuffer_get_length(call->held.data) == 0) {
		fake_call_end(call, STATUS_OK, NULL);
	}
}

bool fake_exec_is_paused(const struct guest_call *call)
{
	return call->is_paused;
}

void fake_exec_exit(struct guest_call *call, int code)
{
	if (!call->is_ended && !call->is_exiting) {
		call->result.exit_code = code;
		finish(call);
	}
}

void fake_process_on_timer(struct guest_call *call)
{
	if (call->is_sleeping && !call->is_exiting) {
		finish(call);
		return;
	}
	flush(call);
	if (call->is_exiting && !call->is_ended && evbuffer_get_length(call->held.data) == 0) {
		fake_call_end(call, STATUS_OK, NULL);
	}
}

void fake_process_pause(struct guest_call *call, bool is_paused)
{
	call->is_paused = is_paused;
	if (!is_paused && evbuffer_get_length(call->held.data) > 0) {
		set_timer(call->timer, 0);
	}
}

void fake_process_signal(struct guest_call *call, int signal)
{
	bool is_ignored = signal == 0 || signal == SIGCHLD || signal == SIGCONT ||
			  signal == SIGURG || signal == SIGWINCH ||
			  (call->is_stubborn && signal != SIGKILL);

	if (!is_ignored && !call->is_exiting) {
		call->result.signal = signal;
		call->result.timed_out = false;
		fake_exec_exit(call, 128 + signal);
	}
}

/* ---- programs ---- */

static void write_bytes(struct guest_call *call, size_t count)
{
	char block[4096];

	memset(block, 'x', sizeof block);
	while (count > 0 && !call->is_ended) {
		size_t n = MIN(count, sizeof block);

		fake_exec_output(call, 1, block, n);
		count -= n;
	}
}

static int run_env(struct guest_call *call, const char *name)
{
	size_t len = strlen(name);
	char *const *lists[] = {call->env, call->machine->settings.env};

	for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
		for (char *const *entry = lists[i]; entry && *entry; entry++) {
			if (strncmp(*entry, name, len) == 0 && (*entry)[len] == '=') {
				fake_exec_output(
					call, 1, *entry + len + 1, strlen(*entry) - len - 1);
				return 0;
			}
		}
	}
	return 1;
}

static void run_sleep(struct guest_call *call, unsigned ms)
{
	call->is_sleeping = true;
	if (call->timeout_ms > 0 && call->timeout_ms < ms) {
		call->result.timed_out = true;
		call->result.signal = 9;
		call->result.exit_code = 137;
		ms = (unsigned)call->timeout_ms;
	}
	call->result.duration_us = (uint64_t)ms * 1000;
	set_timer(call->timer, ms);
}

static void run_text(struct guest_call *call, int fd, const char *text)
{
	fake_exec_output(call, fd, text, strlen(text));
	fake_exec_output(call, fd, "\n", 1);
	fake_exec_exit(call, 0);
}

static void run_cat(struct guest_call *call)
{
	if (call->job) {
		fake_process_on_input(call);
		return;
	}
	fake_exec_output(
		call, 1, evbuffer_pullup(call->bytes, -1), evbuffer_get_length(call->bytes));
	fake_exec_exit(call, 0);
}

/* The rest of @command when it begins with the word @program, else NULL. */
static const char *rest_after(const char *command, const char *program)
{
	size_t n = strlen(program);

	if (strncmp(command, program, n) != 0 || (command[n] != ' ' && command[n] != '\0')) {
		return NULL;
	}
	return command[n] == ' ' ? command + n + 1 : command + n;
}

void fake_process_run(struct guest_call *call)
{
	struct fake_guest *fake = call->fake;
	const struct fake_exec exec = {.id = call->id ? call->id : "",
		.command = call->command,
		.shell = call->shell,
		.env = call->env,
		.timeout_ms = call->timeout_ms,
		.input = call->bytes};
	const char *rest;

	call->has_begun = true;
	if (fake->program && fake->program(fake->program_arg, call, &exec)) {
		return;
	}
	if (rest_after(call->command, "true")) {
		fake_exec_exit(call, 0);
	} else if (rest_after(call->command, "false")) {
		fake_exec_exit(call, 1);
	} else if ((rest = rest_after(call->command, "exit"))) {
		fake_exec_exit(call, atoi(rest));
	} else if ((rest = rest_after(call->command, "kill"))) {
		call->result.signal = atoi(rest);
		fake_exec_exit(call, 128 + atoi(rest));
	} else if ((rest = rest_after(call->command, "echo"))) {
		run_text(call, 1, rest);
	} else if ((rest = rest_after(call->command, "warn"))) {
		run_text(call, 2, rest);
	} else if (rest_after(call->command, "cat") || rest_after(call->command, "shell")) {
		run_cat(call);
	} else if ((rest = rest_after(call->command, "bytes"))) {
		write_bytes(call, (size_t)atoll(rest));
		fake_exec_exit(call, 0);
	} else if ((rest = rest_after(call->command, "env"))) {
		fake_exec_exit(call, run_env(call, rest));
	} else if ((rest = rest_after(call->command, "sleep"))) {
		run_sleep(call, (unsigned)atoi(rest));
	} else if ((rest = rest_after(call->command, "stubborn"))) {
		call->is_stubborn = true;
		run_sleep(call, (unsigned)atoi(rest));
	} else if (rest_after(call->command, "winsize") && call->job) {
		fake_process_on_winsize(call);
	} else if (!rest_after(call->command, "hang")) {
		fake_exec_exit(call, 127);
	}
}

/* ---- what reaches the process of a job ---- */

void fake_process_on_input(struct guest_call *call)
{
	struct fake_task *job = call->job;
	bool is_tty = job->is.has_tty;

	if (!call->has_begun ||
		!(rest_after(call->command, "cat") || rest_after(call->command, "shell"))) {
		return;
	}
	size_t len = evbuffer_get_length(job->input);
	const char *text = (const char *)evbuffer_pullup(job->input, -1);
	const char *eof = is_tty && len > 0 ? memchr(text, 4, len) : NULL;

	if (len > 0) {
		fake_exec_output(call, 1, text, eof ? (size_t)(eof - text) : len);
		evbuffer_drain(job->input, len);
	}
	if (eof || !job->has_stdin) {
		fake_exec_exit(call, 0);
	}
}

void fake_process_on_winsize(struct guest_call *call)
{
	struct fake_task *job = call->job;
	char text[32];

	if (call->has_begun && rest_after(call->command, "winsize")) {
		int n = snprintf(text, sizeof text, "%u %u\n", job->view.rows, job->view.cols);

		fake_exec_output(call, 1, text, (size_t)n);
	}
}

static char *join(char *const *args)
{
	char *all = xstrdup("");

	for (char *const *arg = args; arg && *arg; arg++) {
		char *longer = xasprintf("%s%s%s", all, arg == args ? "" : " ", *arg);

		free(all);
		all = longer;
	}
	return all;
}

void fake_process_take(struct guest_call *call, const struct guest_exec_spec *spec)
{
	call->id = spec->id ? xstrdup(spec->id) : NULL;
	call->command = spec->command ? xstrdup(spec->command) : join(spec->args);
	call->shell = spec->shell ? xstrdup(spec->shell) : NULL;
	call->env = strv_dup(spec->env);
	call->timeout_ms = spec->timeout_ms;
	call->output_cap = spec->output_cap;
	call->tail_cap = spec->tail_cap;
}
