#include "ctl/ctl.h"

#include <string.h>

#include "base/xalloc.h"

/* Characters of an output's last line that the table shows. */
#define LINE_MAX_CHARS 60

static bool is_running(json_object *row)
{
	return strcmp(ctl_member(row, "status"), "running") == 0;
}

/* "running", "exit 7", "signal 9", "timed out", "lost", "failed". The caller frees. */
static char *ending_of(json_object *result)
{
	const char *signal = ctl_member(result, "signal");
	const char *status = ctl_member(result, "status");

	if (is_running(result)) {
		return xstrdup(status);
	}
	if (ctl_member(result, "error")[0]) {
		return xstrdup(strcmp(status, "lost") == 0 ? status : "failed");
	}
	if (ctl_is_true(result, "timed_out")) {
		return xstrdup("timed out");
	}
	return signal[0] ? xasprintf("signal %s", signal)
			 : xasprintf("exit %s", ctl_member(result, "exit_code"));
}

/* The last line that isn't empty, cut if it is long. The caller frees. */
static char *last_line(const char *text)
{
	size_t end = strlen(text);

	while (end > 0 && strchr("\r\n", text[end - 1])) {
		end--;
	}
	size_t begin = end;

	while (begin > 0 && text[begin - 1] != '\n') {
		begin--;
	}
	size_t chars = 0;

	for (size_t i = begin; i < end; i++) {
		chars += ((unsigned char)text[i] & 0xc0) != 0x80;
		if (chars > LINE_MAX_CHARS) {
			return xasprintf("%.*s\u2026", (int)(i - begin), text + begin);
		}
	}
	return xasprintf("%.*s", (int)(end - begin), text + begin);
}

/* Why there is no result, or what the command said last: of what went wrong rather on stderr. */
static char *line_of(json_object *result)
{
	const char *error = ctl_member(result, "error");
	const char *err_out = ctl_member(result, "stderr_tail");
	bool is_fine = strcmp(ctl_member(result, "exit_code"), "0") == 0;

	if (error[0]) {
		return xstrdup(error);
	}
	return last_line(!is_fine && err_out[0] ? err_out : ctl_member(result, "stdout_tail"));
}

/* What a column needs that the answer says in another form. */
static void add_texts(json_object *data)
{
	for (size_t i = 0; i < json_object_array_length(data); i++) {
		json_object *result = json_object_array_get_idx(data, i);
		_cleanup_free_ char *ending = ending_of(result);
		_cleanup_free_ char *line = line_of(result);

		json_object_object_add(result, "ending", json_object_new_string(ending));
		json_object_object_add(result, "line", json_object_new_string(line));
	}
}

/* Those that ended. The caller puts it. */
static json_object *ended_of(json_object *data)
{
	json_object *ended = json_object_new_array();

	for (size_t i = 0; i < json_object_array_length(data); i++) {
		json_object *row = json_object_array_get_idx(data, i);

		if (!is_running(row)) {
			json_object_array_add(ended, json_object_get(row));
		}
	}
	return ended;
}

/* The call that both verbs make; the list, or NULL with @ret_status. */
static json_object *call_list(struct ctl *ctl, const struct ctl_verb *verb, int argc, char **argv,
	struct ctl_options *options, struct rest_response *response, int *ret_status)
{
	if (ctl_options_read(ctl, options, api_row(verb->op), NULL, false, argc, argv) != 0 ||
		ctl_expect(verb, options, 1, 1) != 0) {
		*ret_status = CTL_EXIT_USAGE;
		return NULL;
	}
	*ret_status = ctl_call(ctl, verb, options->positionals[0], options->values, response);
	json_object *data = *ret_status == 0 ? ctl_array(response->json, "data") : NULL;

	if (!data && *ret_status == 0) {
		*ret_status = CTL_EXIT_FAILED;
	}
	return data;
}

int ctl_results(struct ctl *ctl, const struct ctl_verb *verb, int argc, char **argv)
{
	static const struct ctl_column columns[] = {{"ID", "id"}, {"ENDED", "ended_at"},
		{"MS", "duration_ms"}, {"RESULT", "ending"}, {"STDOUT", "stdout_bytes"},
		{"STDERR", "stderr_bytes"}, {"LAST LINE", "line"}};
	_cleanup_ctl_options_ struct ctl_options options;
	_cleanup_rest_response_ struct rest_response response = REST_RESPONSE_INIT;
	int status;
	json_object *data = call_list(ctl, verb, argc, argv, &options, &response, &status);

	if (!data) {
		return status;
	}
	_cleanup_json_ json_object *ended = ended_of(data);

	if (ctl->is_json) {
		json_object_object_add(response.json, "data", json_object_get(ended));
		ctl_print_json(response.json);
		return 0;
	}
	add_texts(ended);
	ctl_print_table(ended, columns, ARRAY_SIZE(columns));
	return 0;
}

int ctl_ps(struct ctl *ctl, const struct ctl_verb *verb, int argc, char **argv)
{
	static const struct ctl_column columns[] = {{"ID", "id"}, {"STATE", "ending"},
		{"BACKGROUND", "background"}, {"STARTED", "started_at"}, {"COMMAND", "command"}};
	_cleanup_ctl_options_ struct ctl_options options;
	_cleanup_rest_response_ struct rest_response response = REST_RESPONSE_INIT;
	int status;
	json_object *data = call_list(ctl, verb, argc, argv, &options, &response, &status);

	if (!data) {
		return status;
	}
	if (ctl->is_json) {
		ctl_print_json(response.json);
		return 0;
	}
	add_texts(data);
	ctl_print_table(data, columns, ARRAY_SIZE(columns));
	return 0;
}
