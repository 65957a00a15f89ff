#include "ctl/ctl.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "client/buffer.h"
#include "client/ws.h"
#include "ctl/command.h"
#include "ctl/detach.h"
#include "ctl/signals.h"
#include "ctl/terminal.h"

/*
 * Theory of operation. A conversation: binary messages are keys and screen, text messages JSON
 * about it. One loop waits for the service, the keyboard and signals. Our terminal is raw, so that
 * every key is the guest's to interpret, Ctrl-C too; only the key that detaches is ours.
 *
 * The shell in the guest doesn't need us: whatever happens to this end, it goes on, and a later
 * --attach finds it. A hang-up is the exception: who closes the window of a shell means its end.
 */

#define READ_BYTES  4096
#define QUEUE_BYTES ((size_t)64 * 1024) /* no more keys while so many haven't left */
#define CLOSE_MS    2000
/* What the service starts on a terminal where no command is given. */
#define LOGIN_SHELL "command -v bash >/dev/null && exec bash -l; exec sh -l"

struct shell {
	struct ctl *ctl;
	const char *sandbox;
	struct ws *ws;
	struct detach detach;
	char id[80];
	bool has_terminal; /* ours; else stdin is a pipe to an attached one */
	bool has_input;    /* there is more of stdin */
	bool has_left;     /* by the key */
	int died_of;       /* a signal, or 0 */
	bool has_failed;   /* what went wrong was told */
	json_object *exit;
};

static int on_message(void *arg, bool is_text, const char *data, size_t len)
{
	struct shell *shell = arg;
	struct err err = ERR_INIT;

	if (!is_text) {
		return ctl_write(STDOUT_FILENO, data, len);
	}
	_cleanup_json_ json_object *message = json_parse_answer(data, len, &err);
	json_object *start = NULL;
	json_object *end = NULL;
	json_object *error = NULL;

	if (json_object_object_get_ex(message, "start", &start)) {
		snprintf(shell->id, sizeof shell->id, "%s", ctl_member(start, "id"));
	}
	if (json_object_object_get_ex(message, "error", &error)) {
		const char *text = ctl_member(error, "message");

		terminal_restore();
		fputs("paddockctl: ", stderr);
		ctl_print_text(text, strlen(text), stderr);
		fputc('\n', stderr);
		shell->has_failed = true;
		return -1;
	}
	if (json_object_object_get_ex(message, "exit", &end)) {
		shell->exit = json_object_get(end);
		return -1; /* there is nothing more to hear */
	}
	return 0;
}

static void send_json(struct shell *shell, const char *name, json_object *value)
{
	_cleanup_json_ json_object *message = json_object_new_object();
	size_t len;

	json_object_object_add(message, name, value);
	const char *text = json_text(message, &len);

	ws_send(shell->ws, true, text, len);
}

static void send_size(struct shell *shell)
{
	json_object *size = json_object_new_object();
	unsigned rows;
	unsigned cols;

	terminal_size(&rows, &cols);
	json_object_object_add(size, "rows", json_object_new_int((int)rows));
	json_object_object_add(size, "cols", json_object_new_int((int)cols));
	send_json(shell, "resize", size);
}

/* ---- signals ---- */

static int on_signal(void *arg, int number)
{
	struct shell *shell = arg;

	switch (number) {
	case SIGTSTP:
		terminal_restore();
		raise(SIGSTOP);
		break; /* SIGCONT follows */
	case SIGCONT:
		if (shell->has_terminal) {
			terminal_make_raw();
			send_size(shell);
		}
		break;
	case SIGWINCH:
		if (shell->has_terminal) {
			send_size(shell);
		}
		break;
	case SIGINT: /* not from our keyboard */
		send_json(shell, "signal", json_object_new_string("INT"));
		break;
	case SIGHUP:
		send_json(shell, "signal", json_object_new_string("HUP"));
		shell->died_of = number;
		return -1;
	default:
		shell->died_of = number;
		return -1;
	}
	return 0;
}

/* ---- the keyboard ---- */

/* 0, or -1: this is the end of it. */
static int take_keys(struct shell *shell)
{
	char in[READ_BYTES];
	char out[READ_BYTES + 1];
	size_t len = 0;
	ssize_t n = read(STDIN_FILENO, in, sizeof in);

	if (n < 0 && (errno == EINTR || errno == EAGAIN)) {
		return 0;
	}
	if (n <= 0 && shell->has_terminal) {
		/* The terminal has gone; SIGHUP may still be on its way, or never come. */
		return on_signal(shell, SIGHUP);
	}
	if (n <= 0) {
		shell->has_input = false;
		return 0;
	}
	if (!shell->has_terminal) {
		ws_send(shell->ws, false, in, (size_t)n);
		return 0;
	}
	shell->has_left = detach_filter(&shell->detach, in, (size_t)n, out, &len);
	if (len > 0) {
		ws_send(shell->ws, false, out, len);
	}
	return shell->has_left ? -1 : 0;
}

static void release_key(struct shell *shell)
{
	static const char key = DETACH_FIRST;

	if (detach_release(&shell->detach)) {
		ws_send(shell->ws, false, &key, 1);
	}
}

/* ---- the conversation ---- */

/* Until its end, of which @shell knows the cause, or @err. */
static int converse(struct shell *shell, int signals, struct err *err)
{
	for (;;) {
		struct pollfd fds[3] = {[1] = {.fd = signals, .events = POLLIN},
			[2] = {.fd = STDIN_FILENO, .events = POLLIN}};
		bool reads = shell->has_input && ws_queued(shell->ws) < QUEUE_BYTES;
		int timeout = shell->detach.is_held ? DETACH_WAIT_MS : -1;

		if (ws_turn(shell->ws, err) != 0) {
			return -1;
		}
		ws_poll(shell->ws, &fds[0], &timeout);
		int ready = poll(fds, reads ? 3 : 2, timeout);

		if (signals_deal() != 0) {
			return 0;
		}
		if (ready == 0) {
			release_key(shell);
		}
		if (ready > 0 && reads && fds[2].revents && take_keys(shell) != 0) {
			return 0;
		}
	}
}

/* How to come back. */
static void say_how_to_attach(const struct shell *shell, const char *what)
{
	if (shell->id[0]) {
		fprintf(stderr, "%spaddockctl: %s; attach again: paddockctl shell %s --attach ",
			shell->has_terminal ? "\n" : "", what, shell->sandbox);
		ctl_print_text(shell->id, strlen(shell->id), stderr);
		fputc('\n', stderr);
	}
}

/* Our exit status for what the conversation came to. */
static int settle(struct shell *shell, const struct err *err)
{
	terminal_restore();
	if (shell->exit) {
		return command_status(shell->exit);
	}
	if (shell->has_left) {
		say_how_to_attach(shell, "detached");
		return 0;
	}
	if (shell->died_of) {
		if (shell->died_of != SIGHUP) {
			say_how_to_attach(shell, "the shell goes on");
		}
		signals_die(shell->died_of);
	}
	if (err->kind != ERR_CANCELLED) {
		static const struct rest_response none;

		fputs(shell->has_terminal ? "\n" : "", stderr);
		ctl_print_failure(err, &none);
		say_how_to_attach(shell, "the shell may go on");
	}
	return CTL_EXIT_FAILED;
}

static int run_shell(struct shell *shell)
{
	static const int numbers[] = {SIGWINCH, SIGTSTP, SIGCONT, SIGINT, SIGHUP, SIGTERM, SIGQUIT};
	struct err err = ERR_INIT;
	int signals = signals_catch(numbers, ARRAY_SIZE(numbers), on_signal, shell);

	if (shell->has_terminal && terminal_make_raw() != 0) {
		perror("paddockctl: the terminal");
		return CTL_EXIT_FAILED;
	}
	if (converse(shell, signals, &err) == 0) {
		ws_close(shell->ws, CLOSE_MS);
	}
	return settle(shell, &err);
}

/* ---- the verb ---- */

/* A word as the shell reads it as itself. */
static void add_quoted(struct buffer *line, const char *word)
{
	buffer_add_text(line, line->len > 0 ? " '" : "'");
	for (const char *c = word; *c; c++) {
		buffer_add(line, *c == '\'' ? "'\\''" : c, *c == '\'' ? 4 : 1);
	}
	buffer_add_text(line, "'");
}

static void add_command(json_object *values, const char *const *words, size_t count)
{
	_cleanup_buffer_ struct buffer line = {0};

	for (size_t i = 0; i < count; i++) {
		add_quoted(&line, words[i]);
	}
	if (count > 0) {
		json_object_object_add(values, "command", json_object_new_string(line.data));
	}
}

/* The most time that a command may have, in @ret_ms. */
static int longest_time(struct ctl *ctl, const struct ctl_verb *verb, int64_t *ret_ms)
{
	_cleanup_rest_response_ struct rest_response response = REST_RESPONSE_INIT;
	struct rest_request request = {.row = api_row(API_SERVICE_INFO)};
	int status = ctl_call_request(ctl, verb, &request, &response);
	json_object *limits = NULL;
	json_object *most = NULL;

	if (status == 0 && json_object_object_get_ex(response.json, "limits", &limits)) {
		json_object_object_get_ex(limits, "exec_timeout_max_ms", &most);
	}
	*ret_ms = json_object_get_int64(most);
	if (status == 0 && *ret_ms < 1) {
		fprintf(stderr, "paddockctl: the service's answer has no exec_timeout_max_ms\n");
	}
	return status == 0 && *ret_ms > 0 ? 0 : -1;
}

/*
 * Without a terminal of ours a shell gets none either, as with ssh: its input ends where ours does,
 * and its outputs stay apart.
 */
static int run_piped(struct ctl *ctl, const struct ctl_verb *verb, const char *id,
	json_object *values, const char *const *words, size_t count)
{
	int64_t timeout_ms;

	if (longest_time(ctl, verb, &timeout_ms) != 0) {
		return CTL_EXIT_FAILED;
	}
	json_object_object_add(values, "timeout_ms", json_object_new_int64(timeout_ms));
	if (count > 0) {
		ctl_add_args(values, words, count);
	} else if (!json_object_object_get_ex(values, "command", NULL)) {
		json_object_object_add(values, "command", json_object_new_string(LOGIN_SHELL));
	}
	return ctl_run(ctl, verb, id, values, true);
}

static void add_default(json_object *values, const char *name, json_object *value)
{
	if (json_object_object_get_ex(values, name, NULL)) {
		json_object_put(value);
	} else {
		json_object_object_add(values, name, value);
	}
}

/* What our terminal is, for the other one to be the same. */
static void add_terminal(json_object *values, bool is_new)
{
	const char *term = ctl_environment("TERM");
	json_object *env = NULL;
	unsigned rows;
	unsigned cols;

	terminal_size(&rows, &cols);
	add_default(values, "rows", json_object_new_int((int)rows));
	add_default(values, "cols", json_object_new_int((int)cols));
	if (is_new && term) {
		add_default(values, "env", json_object_new_object());
		json_object_object_get_ex(values, "env", &env);
		add_default(env, "TERM", json_object_new_string(term));
	}
}

static int open_shell(struct shell *shell, const struct ctl_verb *verb, json_object *values)
{
	_cleanup_rest_response_ struct rest_response response = REST_RESPONSE_INIT;
	struct rest_request request = {
		.row = api_row(verb->op), .id = shell->sandbox, .query = values};
	struct err err = ERR_INIT;

	if (!ctl_has_client(shell->ctl, verb)) {
		return CTL_EXIT_USAGE;
	}
	shell->ws = ws_open(shell->ctl->client, &request, on_message, shell, &response, &err);
	if (!shell->ws) {
		ctl_print_failure(&err, &response);
		return CTL_EXIT_FAILED;
	}
	return 0;
}

int ctl_shell(struct ctl *ctl, const struct ctl_verb *verb, int argc, char **argv)
{
	static const char *const own[] = {"attach=", NULL};
	_cleanup_ctl_options_ struct ctl_options options;

	if (ctl_options_read(ctl, &options, api_row(verb->op), own, true, argc, argv) != 0 ||
		ctl_expect(verb, &options, 1, CTL_POSITIONALS_MAX) != 0) {
		return CTL_EXIT_USAGE;
	}
	const char *const *words = options.positionals + 1;
	size_t count = options.positional_count - 1;
	struct shell shell = {.ctl = ctl,
		.sandbox = options.positionals[0],
		.has_terminal = terminal_is_there(),
		.has_input = true};

	if (!options.own[0] && !shell.has_terminal) {
		return run_piped(ctl, verb, shell.sandbox, options.values, words, count);
	}
	if (options.own[0]) {
		json_object_object_add(
			options.values, "exec", json_object_new_string(options.own[0]));
	}
	add_command(options.values, words, count);
	if (shell.has_terminal) {
		add_terminal(options.values, !options.own[0]);
	}
	int status = open_shell(&shell, verb, options.values);

	if (status == 0) {
		status = run_shell(&shell);
	}
	ws_free(shell.ws);
	json_object_put(shell.exit);
	return status;
}
