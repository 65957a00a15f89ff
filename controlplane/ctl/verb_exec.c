#include "ctl/ctl.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/base64.h"
#include "base/xalloc.h"

struct input {
	char *data;
	size_t len;
};

/* In base64, and with the command beside it, it must fit into a JSON body. */
#define INPUT_MAX_MIB 11
#define INPUT_MAX     ((size_t)INPUT_MAX_MIB * 1024 * 1024)
_Static_assert(BASE64_ENCODED_BYTES(INPUT_MAX) + 1024 * 1024 < API_JSON_MAX_BYTES, "room for both");

static int read_stdin(struct input *input)
{
	size_t size = 65536;

	input->data = xcalloc(1, size);
	for (;;) {
		ssize_t n = read(STDIN_FILENO, input->data + input->len, size - input->len);

		if (n < 0 && errno == EINTR) {
			continue;
		}
		if (n < 0) {
			fprintf(stderr, "paddockctl: reading stdin: %s\n", strerror(errno));
			return -1;
		}
		if (n == 0) {
			return 0;
		}
		input->len += (size_t)n;
		if (input->len > INPUT_MAX) {
			fprintf(stderr,
				"paddockctl: stdin is larger than %d MiB; push it as a file\n",
				INPUT_MAX_MIB);
			return -1;
		}
		if (input->len == size) {
			size *= 2;
			input->data = xrealloc(input->data, 1, size);
		}
	}
}

static json_object *input_base64(const struct input *input)
{
	size_t len = BASE64_ENCODED_BYTES(input->len);
	_cleanup_free_ char *text = xcalloc(1, len + 1);

	base64_encode(text, input->data, input->len);
	return json_object_new_string_len(text, (int)len);
}

static int write_base64(json_object *text, FILE *out)
{
	const char *encoded = json_object_get_string(text);
	size_t len = (size_t)json_object_get_string_len(text);
	size_t size = base64_is_valid(encoded, len) ? base64_decoded_bytes(encoded, len) : 0;
	_cleanup_free_ char *bytes = xcalloc(1, size);
	struct err err;

	if (base64_decode(bytes, encoded, len, &err) != 0) {
		return -1;
	}
	fwrite(bytes, 1, size, out);
	return 0;
}

/* The bytes where the output isn't UTF-8, else the text. */
static int write_output(json_object *answer, const char *name, const char *base64_name, FILE *out)
{
	json_object *member = NULL;

	if (json_object_object_get_ex(answer, base64_name, &member) && member) {
		if (write_base64(member, out) != 0) {
			fprintf(stderr, "paddockctl: the service's %s is not base64\n",
				base64_name);
			return -1;
		}
	} else if (json_object_object_get_ex(answer, name, &member) && member) {
		fwrite(json_object_get_string(member), 1,
			(size_t)json_object_get_string_len(member), out);
	}
	return 0;
}

static int print_result(const struct ctl *ctl, json_object *answer)
{
	json_object *code = NULL;

	/* What doesn't fit into an exit status would come out as another one, 256 as success. */
	if (!json_object_object_get_ex(answer, "exit_code", &code) ||
		!json_object_is_type(code, json_type_int) || json_object_get_int64(code) < 0 ||
		json_object_get_int64(code) > 255) {
		fprintf(stderr, "paddockctl: the service's answer has no exit code\n");
		return CTL_EXIT_FAILED;
	}
	if (ctl->is_json) {
		ctl_print_json(answer);
		return json_object_get_int(code);
	}
	if (write_output(answer, "stdout", "stdout_base64", stdout) != 0 || fflush(stdout) != 0 ||
		write_output(answer, "stderr", "stderr_base64", stderr) != 0) {
		return CTL_EXIT_FAILED;
	}
	if (ctl_is_true(answer, "timed_out")) {
		fprintf(stderr, "paddockctl: the command ran out of time\n");
	}
	if (ctl_is_true(answer, "truncated")) {
		fprintf(stderr, "paddockctl: the output was cut at the service's limit\n");
	}
	return json_object_get_int(code);
}

int ctl_exec(struct ctl *ctl, const struct ctl_verb *verb, int argc, char **argv)
{
	static const char *const own[] = {"no-stdin", NULL};
	const struct api_row *row = api_row(verb->op);
	_cleanup_ctl_options_ struct ctl_options options;
	_cleanup_rest_response_ struct rest_response response = REST_RESPONSE_INIT;
	struct input input = {0};

	if (ctl_options_read(ctl, &options, row, own, true, argc, argv) != 0 ||
		ctl_expect(verb, &options, 1, CTL_POSITIONALS_MAX) != 0) {
		return CTL_EXIT_USAGE;
	}
	if (options.positional_count > 1) {
		json_object *args = json_object_new_array();

		for (size_t i = 1; i < options.positional_count; i++) {
			json_object_array_add(args, json_object_new_string(options.positionals[i]));
		}
		json_object_object_add(options.values, "args", args);
	}
	bool has_stdin = !options.own[0] && !isatty(STDIN_FILENO) &&
			 !json_object_object_get_ex(options.values, "stdin", NULL) &&
			 !json_object_object_get_ex(options.values, "stdin_base64", NULL);
	if (has_stdin && read_stdin(&input) != 0) {
		free(input.data);
		return CTL_EXIT_FAILED;
	}
	if (input.len > 0) {
		json_object_object_add(options.values, "stdin_base64", input_base64(&input));
	}
	free(input.data);
	int status = ctl_call(ctl, verb, options.positionals[0], options.values, &response);
	/* A failure of ours must not look like the command's own status. */
	return status ? CTL_EXIT_FAILED : print_result(ctl, response.json);
}
