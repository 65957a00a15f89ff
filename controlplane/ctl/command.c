#include "ctl/command.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/base64.h"
#include "base/xalloc.h"
#include "ctl/ctl.h"

static void say_quoted(const char *before, const char *text)
{
	fprintf(stderr, "paddockctl: %s", before);
	ctl_print_text(text, strlen(text), stderr);
	fputc('\n', stderr);
}

int command_status(json_object *answer)
{
	json_object *code = json_object_object_get(answer, "exit_code");
	const char *error = ctl_member(answer, "error");

	if (!code && error[0]) {
		say_quoted("there is no result: ", error);
		return CTL_EXIT_FAILED;
	}
	/* What doesn't fit into an exit status would come out as another one, 256 as success. */
	if (!json_object_is_type(code, json_type_int) || json_object_get_int64(code) < 0 ||
		json_object_get_int64(code) > 255) {
		fprintf(stderr, "paddockctl: the service's answer has no exit code\n");
		return CTL_EXIT_FAILED;
	}
	if (ctl_is_true(answer, "timed_out")) {
		fprintf(stderr, "paddockctl: the command ran out of time\n");
	}
	if (ctl_is_true(answer, "truncated")) {
		fprintf(stderr, "paddockctl: the output was cut at its limit\n");
	}
	return json_object_get_int(code);
}

static int write_base64(json_object *text, const char *name, int fd)
{
	const char *encoded = json_object_get_string(text);
	size_t len = (size_t)json_object_get_string_len(text);
	size_t size = base64_is_valid(encoded, len) ? base64_decoded_bytes(encoded, len) : 0;
	_cleanup_free_ char *bytes = xcalloc(1, size);
	struct err err;

	if (base64_decode(bytes, encoded, len, &err) != 0) {
		fprintf(stderr, "paddockctl: the service's %s is not base64\n", name);
		return -1;
	}
	return ctl_write(fd, bytes, size);
}

int command_write_output(json_object *answer, const char *name, const char *base64_name, int fd)
{
	json_object *bytes = json_object_object_get(answer, base64_name);
	json_object *text = json_object_object_get(answer, name);

	if (json_object_is_type(bytes, json_type_string)) {
		return write_base64(bytes, base64_name, fd);
	}
	if (json_object_is_type(text, json_type_string)) {
		return ctl_write(
			fd, json_object_get_string(text), (size_t)json_object_get_string_len(text));
	}
	return 0;
}

/* ---- the stream ---- */

static int take_start(struct command_stream *stream, json_object *data)
{
	bool is_first = !stream->id[0];

	snprintf(stream->id, sizeof stream->id, "%s", ctl_member(data, "id"));
	if (is_first && stream->on_start) {
		stream->on_start(stream->arg);
	}
	return 0;
}

static int take_stdout(struct command_stream *stream, json_object *data)
{
	(void)stream;
	return command_write_output(data, "text", "base64", STDOUT_FILENO);
}

static int take_stderr(struct command_stream *stream, json_object *data)
{
	(void)stream;
	return command_write_output(data, "text", "base64", STDERR_FILENO);
}

static int take_gap(struct command_stream *stream, json_object *data)
{
	(void)stream;
	say_quoted("output that nobody read in time is lost, in bytes: ",
		ctl_member(data, "dropped_bytes"));
	return 0;
}

static int take_exit(struct command_stream *stream, json_object *data)
{
	json_object_put(stream->exit);
	stream->exit = json_object_get(data);
	return 0;
}

static int take_error(struct command_stream *stream, json_object *data)
{
	json_object *error = json_object_object_get(data, "error");

	say_quoted("", json_object_is_type(error, json_type_object) ? ctl_member(error, "message")
								    : "the stream failed");
	stream->has_failed = true;
	return 0;
}

static int on_event(void *arg, const struct sse_event *event)
{
	static const struct {
		const char *name;
		int (*take)(struct command_stream *stream, json_object *data);
	} takers[] = {{"start", take_start}, {"stdout", take_stdout}, {"stderr", take_stderr},
		{"gap", take_gap}, {"exit", take_exit}, {"error", take_error}};
	struct command_stream *stream = arg;
	struct err err = ERR_INIT;
	_cleanup_json_ json_object *data = json_parse_answer(event->data, event->len, &err);

	if (!json_object_is_type(data, json_type_object)) {
		say_quoted("the service's stream makes no sense: ",
			err.kind != ERR_NONE ? err.msg : "an event's data is no JSON object");
		return -1;
	}
	snprintf(stream->offset, sizeof stream->offset, "%s", event->id);
	for (size_t i = 0; i < ARRAY_SIZE(takers); i++) {
		if (strcmp(event->name, takers[i].name) == 0) {
			return takers[i].take(stream, data);
		}
	}
	return 0; /* a later service's */
}

void command_stream_init(struct command_stream *stream)
{
	*stream = (struct command_stream){.sse = SSE_INIT(on_event, stream)};
}

void command_stream_fini(struct command_stream *stream)
{
	sse_fini(&stream->sse);
	json_object_put(stream->exit);
}

int command_stream_take(void *arg, const void *data, size_t len)
{
	struct command_stream *stream = arg;
	struct err err = ERR_INIT;

	if (sse_feed(&stream->sse, data, len, &err) != 0) {
		if (err.kind != ERR_CANCELLED) {
			say_quoted("the service's stream makes no sense: ", err.msg);
		}
		return -1;
	}
	return stream->exit || stream->has_failed ? 1 : 0;
}
