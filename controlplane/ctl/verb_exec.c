#include "ctl/ctl.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"
#include "ctl/command.h"
#include "ctl/input.h"
#include "ctl/signals.h"

/*
 * Theory of operation. A command streams: its outputs come as events and go on at once, our stdin
 * is the call's body. Signals are left alone until the command has started, since a client that
 * leaves takes its command with it; from then on they go to the command, whose end is ours. What
 * was asked for as JSON is collected by the service instead.
 */

/* The arguments of a call with a raw body are in its URL, which the service holds up to 32 KiB of
 * headers with. */
#define QUERY_MAX_BYTES ((size_t)24 * 1024)
/* A second Ctrl-C within that time means it. */
#define IMPATIENCE_MS  1500
#define KILL_TIMEOUT_S 10

struct run {
	struct ctl *ctl;
	const struct ctl_verb *verb;
	struct rest_request request;
	struct command_stream stream;
	struct rest_client *aside; /* for signals; made at the first one */
	uint64_t interrupted_ms;
	bool is_killed;
};

/* ---- signals ---- */

static int send_signal(struct run *run, const char *name)
{
	_cleanup_rest_response_ struct rest_response response = REST_RESPONSE_INIT;
	_cleanup_json_ json_object *body = json_object_new_object();
	struct rest_request request = {
		.row = api_row(API_EXEC_KILL),
		.id = run->request.id,
		.exec_id = run->stream.id,
		.body = body,
		.timeout_s = KILL_TIMEOUT_S,
	};
	struct err err = ERR_INIT;

	if (!run->aside && !(run->aside = ctl_client_new(run->ctl, run->verb))) {
		return -1;
	}
	json_object_object_add(body, "signal", json_object_new_string(name));
	/* What has ended meanwhile says so itself. */
	if (rest_call(run->aside, &request, &response, &err) == 0 || response.status == 404 ||
		response.status == 409) {
		return 0;
	}
	fprintf(stderr, "paddockctl: the signal didn't reach the command\n");
	ctl_print_failure(&err, &response);
	return -1;
}

static int on_signal(void *arg, int number)
{
	struct run *run = arg;
	uint64_t now = clock_monotonic_ms();
	bool is_first = run->interrupted_ms == 0 || now - run->interrupted_ms > IMPATIENCE_MS;

	if (run->is_killed) {
		signals_die(number);
	}
	run->interrupted_ms = now;
	if (number == SIGINT && is_first) {
		return send_signal(run, "INT");
	}
	run->is_killed = true;
	return send_signal(run, "KILL");
}

static int on_ready(void *arg)
{
	(void)arg;
	return signals_deal();
}

static void on_start(void *arg)
{
	static const int signals[] = {SIGINT, SIGTERM};
	struct run *run = arg;

	run->request.ready = on_ready;
	run->request.ready_fd = signals_catch(signals, ARRAY_SIZE(signals), on_signal, run);
}

/* ---- the calls ---- */

static int run_streaming(struct run *run)
{
	_cleanup_rest_response_ struct rest_response response = REST_RESPONSE_INIT;

	command_stream_init(&run->stream);
	run->stream.on_start = on_start;
	run->stream.arg = run;
	run->request.wants_events = true;
	run->request.write = command_stream_take;
	run->request.write_arg = &run->stream;
	int status = ctl_call_request(run->ctl, run->verb, &run->request, &response);

	if (status == 0 && !run->stream.exit && !run->stream.has_failed) {
		fprintf(stderr,
			"paddockctl: the stream ended without telling how the command did\n");
	}
	/* A failure of ours must not look like the command's own status. */
	status = status == 0 && run->stream.exit ? command_status(run->stream.exit)
						 : CTL_EXIT_FAILED;
	command_stream_fini(&run->stream);
	rest_client_free(run->aside);
	return status;
}

static int run_collecting(struct run *run)
{
	_cleanup_rest_response_ struct rest_response response = REST_RESPONSE_INIT;

	if (ctl_call_request(run->ctl, run->verb, &run->request, &response) != 0) {
		return CTL_EXIT_FAILED;
	}
	ctl_print_json(response.json);
	return command_status(response.json);
}

static int run_in_background(struct run *run)
{
	_cleanup_rest_response_ struct rest_response response = REST_RESPONSE_INIT;

	if (ctl_call_request(run->ctl, run->verb, &run->request, &response) != 0) {
		return CTL_EXIT_FAILED;
	}
	if (run->ctl->is_json) {
		ctl_print_json(response.json);
		return 0;
	}
	const char *id = ctl_member(response.json, "id");

	ctl_print_text(id, strlen(id), stdout);
	putchar('\n');
	return 0;
}

/* As a query would be, or a little less. */
static bool fits_query(json_object *values)
{
	size_t len;

	json_text(values, &len);
	return len <= QUERY_MAX_BYTES / 3; /* "%20" */
}

int ctl_run(struct ctl *ctl, const struct ctl_verb *verb, const char *id, json_object *values,
	bool has_stdin)
{
	bool is_background = ctl_is_true(values, "background");
	struct run run = {.ctl = ctl,
		.verb = verb,
		.request = {.row = api_row(API_EXEC), .id = id, .body = values}};
	struct input input;

	/* Nobody waits for the end of what a command in the background is to read. */
	if (has_stdin && !is_background) {
		int rc = input_open(&input);

		if (rc < 0) {
			return CTL_EXIT_FAILED;
		}
		if (rc > 0 && fits_query(values)) {
			input_stream(&input, &run.request);
			run.request.query = values;
			run.request.body = NULL;
		} else if (rc > 0) {
			json_object *all = input_collect(&input);

			if (!all) {
				return CTL_EXIT_FAILED;
			}
			json_object_object_add(values, "stdin_base64", all);
		}
	}
	if (is_background) {
		return run_in_background(&run);
	}
	return ctl->is_json ? run_collecting(&run) : run_streaming(&run);
}

/* ---- the verb ---- */

/* "90", "1.5", "500ms", "2m", "1h". */
static int add_timeout(json_object *values, const char *text)
{
	static const struct {
		const char *name;
		double ms;
	} units[] = {{"", 1000}, {"s", 1000}, {"ms", 1}, {"m", 60000}, {"h", 3600000}};
	char *unit = NULL;
	double number = strtod(text, &unit);

	for (size_t i = 0; i < ARRAY_SIZE(units) && unit > text; i++) {
		double ms = number * units[i].ms;

		if (strcmp(unit, units[i].name) == 0 && isfinite(ms) && ms >= 1 && ms < 1e15) {
			json_object_object_add(
				values, "timeout_ms", json_object_new_int64((int64_t)ms));
			return 0;
		}
	}
	fprintf(stderr, "paddockctl: --timeout: must be a time such as 90, 500ms, 2m or 1h\n");
	return -1;
}

static int add_output_limit(json_object *values, const char *text)
{
	char *end = NULL;
	long long bytes = strtoll(text, &end, 10);

	if (end == text || *end || bytes < 1) {
		fprintf(stderr, "paddockctl: --output-limit: must be a number of bytes\n");
		return -1;
	}
	json_object_object_add(values, "output_limit_bytes", json_object_new_int64(bytes));
	return 0;
}

void ctl_add_args(json_object *values, const char *const *words, size_t count)
{
	json_object *args = json_object_new_array();

	for (size_t i = 0; i < count; i++) {
		json_object_array_add(args, json_object_new_string(words[i]));
	}
	json_object_object_add(values, "args", args);
}

int ctl_exec(struct ctl *ctl, const struct ctl_verb *verb, int argc, char **argv)
{
	static const char *const own[] = {"no-stdin", "timeout=", "output-limit=", NULL};
	_cleanup_ctl_options_ struct ctl_options options;

	if (ctl_options_read(ctl, &options, api_row(verb->op), own, true, argc, argv) != 0 ||
		ctl_expect(verb, &options, 1, CTL_POSITIONALS_MAX) != 0 ||
		(options.own[1] && add_timeout(options.values, options.own[1]) != 0) ||
		(options.own[2] && add_output_limit(options.values, options.own[2]) != 0)) {
		return CTL_EXIT_USAGE;
	}
	if (options.positional_count > 1) {
		ctl_add_args(options.values, options.positionals + 1, options.positional_count - 1);
	}
	bool has_stdin = !options.own[0] && !isatty(STDIN_FILENO) &&
			 !json_object_object_get_ex(options.values, "stdin", NULL) &&
			 !json_object_object_get_ex(options.values, "stdin_base64", NULL);

	return ctl_run(ctl, verb, options.positionals[0], options.values, has_stdin);
}
