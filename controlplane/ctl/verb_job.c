#include "ctl/ctl.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ctl/command.h"
#include "ctl/input.h"

/* What is done with a command that runs by itself, or ran. */

/* The most that the service waits in one call. */
#define WAIT_MS 60000

/* Options and ID EID; the exit status of wrong usage, or 0. */
static int read_options(struct ctl *ctl, const struct ctl_verb *verb, const char *const *own,
	int argc, char **argv, struct ctl_options *options)
{
	if (ctl_options_read(ctl, options, api_row(verb->op), own, false, argc, argv) != 0 ||
		ctl_expect(verb, options, 2, 2) != 0) {
		return CTL_EXIT_USAGE;
	}
	return 0;
}

static struct rest_request request_of(
	const struct ctl_verb *verb, const struct ctl_options *options)
{
	return (struct rest_request){.row = api_row(verb->op),
		.id = options->positionals[0],
		.exec_id = options->positionals[1]};
}

/* ---- output ---- */

/* Follows until the command's end; says how to go on where that isn't reached. */
static int follow(struct ctl *ctl, const struct ctl_verb *verb, struct rest_request *request)
{
	_cleanup_rest_response_ struct rest_response response = REST_RESPONSE_INIT;
	_cleanup_command_stream_ struct command_stream stream;

	command_stream_init(&stream);
	request->wants_events = true;
	request->write = command_stream_take;
	request->write_arg = &stream;
	int status = ctl_call_request(ctl, verb, request, &response);

	if (status == 0 && stream.exit) {
		return 0;
	}
	if (stream.offset[0]) {
		fputs("paddockctl: the output may go on; to read on: paddockctl output --follow "
		      "--offset ",
			stderr);
		ctl_print_text(stream.offset, strlen(stream.offset), stderr);
		fprintf(stderr, " %s %s\n", request->id, request->exec_id);
	}
	return status ? status : CTL_EXIT_FAILED;
}

/* Writes a page; its next offset, or -1 after a message. */
static int64_t write_page(json_object *page)
{
	int64_t dropped = json_object_get_int64(json_object_object_get(page, "dropped_bytes"));
	json_object *next = json_object_object_get(page, "next_offset");

	if (dropped > 0) {
		fprintf(stderr,
			"paddockctl: %" PRId64 " bytes that came before are no longer kept\n",
			dropped);
	}
	if (command_write_output(page, "stdout", "stdout_base64", STDOUT_FILENO) != 0 ||
		command_write_output(page, "stderr", "stderr_base64", STDERR_FILENO) != 0) {
		return -1;
	}
	if (!json_object_is_type(next, json_type_int)) {
		fprintf(stderr, "paddockctl: the service's answer has no next_offset\n");
		return -1;
	}
	return json_object_get_int64(next);
}

/* All that there is by now. */
static int read_pages(struct ctl *ctl, const struct ctl_verb *verb,
	const struct rest_request *request, json_object *values)
{
	for (int64_t next = -1;;) {
		_cleanup_rest_response_ struct rest_response response = REST_RESPONSE_INIT;
		int64_t before = next;
		int status = ctl_call_request(ctl, verb, request, &response);

		if (status != 0) {
			return status;
		}
		next = write_page(response.json);
		if (next < 0) {
			return CTL_EXIT_FAILED;
		}
		if (next == before || ctl_is_true(response.json, "is_end")) {
			return 0;
		}
		json_object_object_add(values, "offset", json_object_new_int64(next));
		/* To wait is for the first page. */
		json_object_object_del(values, "wait_ms");
	}
}

int ctl_output(struct ctl *ctl, const struct ctl_verb *verb, int argc, char **argv)
{
	static const char *const own[] = {"follow", NULL};
	_cleanup_ctl_options_ struct ctl_options options;
	_cleanup_rest_response_ struct rest_response response = REST_RESPONSE_INIT;

	if (read_options(ctl, verb, own, argc, argv, &options) != 0) {
		return CTL_EXIT_USAGE;
	}
	struct rest_request request = request_of(verb, &options);

	request.query = options.values;
	if (options.own[0]) {
		return follow(ctl, verb, &request);
	}
	if (!ctl->is_json) {
		return read_pages(ctl, verb, &request, options.values);
	}
	int status = ctl_call_request(ctl, verb, &request, &response);

	if (status == 0) {
		ctl_print_json(response.json);
	}
	return status;
}

/* ---- the others ---- */

static bool has_member(json_object *values, const char *name)
{
	return json_object_object_get_ex(values, name, NULL);
}

int ctl_input(struct ctl *ctl, const struct ctl_verb *verb, int argc, char **argv)
{
	_cleanup_ctl_options_ struct ctl_options options;
	_cleanup_rest_response_ struct rest_response response = REST_RESPONSE_INIT;
	struct input input;

	if (read_options(ctl, verb, NULL, argc, argv, &options) != 0) {
		return CTL_EXIT_USAGE;
	}
	struct rest_request request = request_of(verb, &options);
	bool is_given = has_member(options.values, "data") ||
			has_member(options.values, "data_base64") ||
			(ctl_is_true(options.values, "close") && isatty(STDIN_FILENO));
	int rc = is_given ? 0 : input_open(&input);

	if (rc < 0) {
		return CTL_EXIT_FAILED;
	}
	if (rc > 0) {
		input_stream(&input, &request);
		request.query = options.values;
	} else {
		request.body = options.values;
	}
	int status = ctl_call_request(ctl, verb, &request, &response);

	if (status == 0 && ctl->is_json) {
		ctl_print_json(response.json);
	}
	return status;
}

int ctl_kill(struct ctl *ctl, const struct ctl_verb *verb, int argc, char **argv)
{
	_cleanup_ctl_options_ struct ctl_options options;
	_cleanup_rest_response_ struct rest_response response = REST_RESPONSE_INIT;

	if (read_options(ctl, verb, NULL, argc, argv, &options) != 0) {
		return CTL_EXIT_USAGE;
	}
	struct rest_request request = request_of(verb, &options);

	request.body = options.values;
	int status = ctl_call_request(ctl, verb, &request, &response);

	if (status == 0 && ctl->is_json) {
		ctl_print_json(response.json);
	}
	return status;
}

int ctl_wait(struct ctl *ctl, const struct ctl_verb *verb, int argc, char **argv)
{
	_cleanup_ctl_options_ struct ctl_options options;

	if (read_options(ctl, verb, NULL, argc, argv, &options) != 0) {
		return CTL_EXIT_USAGE;
	}
	struct rest_request request = request_of(verb, &options);
	bool is_once = has_member(options.values, "wait_ms");

	if (!is_once) {
		json_object_object_add(options.values, "wait_ms", json_object_new_int(WAIT_MS));
	}
	request.query = options.values;
	for (;;) {
		_cleanup_rest_response_ struct rest_response response = REST_RESPONSE_INIT;

		if (ctl_call_request(ctl, verb, &request, &response) != 0) {
			return CTL_EXIT_FAILED;
		}
		bool is_running = strcmp(ctl_member(response.json, "status"), "running") == 0;

		if (is_running && !is_once) {
			continue;
		}
		if (ctl->is_json) {
			ctl_print_json(response.json);
		}
		if (is_running) {
			fprintf(stderr, "paddockctl: the command still runs\n");
			return CTL_EXIT_TIMED_OUT;
		}
		return command_status(response.json);
	}
}
