#include "ctl/ctl.h"

#include <string.h>

#include "base/macros.h"

/* The pattern of most verbs: options, @count positional arguments, one call. Fills @options and
 * @ret. */
static int simple_call(struct ctl *ctl, const struct ctl_verb *verb, int argc, char **argv,
	size_t count, struct ctl_options *options, struct rest_response *ret)
{
	if (ctl_options_read(ctl, options, api_row(verb->op), NULL, false, argc, argv) != 0 ||
		ctl_expect(verb, options, count, count) != 0) {
		return CTL_EXIT_USAGE;
	}
	return ctl_call(ctl, verb, count ? options->positionals[0] : NULL, options->values, ret);
}

static void print_answer(const struct ctl *ctl, json_object *object)
{
	if (ctl->is_json) {
		ctl_print_json(object);
	} else {
		ctl_print_record(object);
	}
}

int ctl_create(struct ctl *ctl, const struct ctl_verb *verb, int argc, char **argv)
{
	_cleanup_ctl_options_ struct ctl_options options;
	_cleanup_rest_response_ struct rest_response response = REST_RESPONSE_INIT;

	if (ctl_options_read(ctl, &options, api_row(verb->op), NULL, false, argc, argv) != 0 ||
		ctl_expect(verb, &options, 0, 1) != 0) {
		return CTL_EXIT_USAGE;
	}
	if (options.positional_count == 1) {
		json_object_object_add(
			options.values, "name", json_object_new_string(options.positionals[0]));
	}
	int status = ctl_call(ctl, verb, NULL, options.values, &response);
	if (status == 0) {
		print_answer(ctl, response.json);
	}
	return status;
}

int ctl_one(struct ctl *ctl, const struct ctl_verb *verb, int argc, char **argv)
{
	_cleanup_ctl_options_ struct ctl_options options = {0};
	_cleanup_rest_response_ struct rest_response response = REST_RESPONSE_INIT;
	int status = simple_call(ctl, verb, argc, argv, 1, &options, &response);

	if (status == 0) {
		print_answer(ctl, response.json);
	}
	return status;
}

int ctl_service(struct ctl *ctl, const struct ctl_verb *verb, int argc, char **argv)
{
	_cleanup_ctl_options_ struct ctl_options options = {0};
	_cleanup_rest_response_ struct rest_response response = REST_RESPONSE_INIT;
	int status = simple_call(ctl, verb, argc, argv, 0, &options, &response);

	if (status == 0) {
		print_answer(ctl, response.json);
	}
	return status;
}

int ctl_list(struct ctl *ctl, const struct ctl_verb *verb, int argc, char **argv)
{
	static const struct ctl_column columns[] = {{"ID", "id"}, {"NAME", "name"},
		{"STATUS", "status"}, {"SIZE", "size"}, {"IMAGE", "image"}, {"NETWORK", "network"},
		{"EXPIRES", "expires_at"}};
	_cleanup_ctl_options_ struct ctl_options options = {0};
	_cleanup_rest_response_ struct rest_response response = REST_RESPONSE_INIT;
	int status = simple_call(ctl, verb, argc, argv, 0, &options, &response);

	if (status != 0) {
		return status;
	}
	if (ctl->is_json) {
		ctl_print_json(response.json);
		return 0;
	}
	json_object *data = ctl_array(response.json, "data");
	const char *cursor = ctl_member(response.json, "next_cursor");

	if (!data) {
		return CTL_EXIT_FAILED;
	}
	ctl_print_table(data, columns, ARRAY_SIZE(columns));
	if (cursor[0]) {
		fputs("paddockctl: there are more: --cursor ", stderr);
		ctl_print_text(cursor, strlen(cursor), stderr);
		fputc('\n', stderr);
	}
	return 0;
}

int ctl_extend(struct ctl *ctl, const struct ctl_verb *verb, int argc, char **argv)
{
	_cleanup_ctl_options_ struct ctl_options options;
	_cleanup_rest_response_ struct rest_response response = REST_RESPONSE_INIT;
	char *option[] = {(char *)"--minutes", NULL};
	struct ctl_options minutes;

	if (ctl_options_read(ctl, &options, api_row(verb->op), NULL, false, argc, argv) != 0 ||
		ctl_expect(verb, &options, 1, 2) != 0) {
		return CTL_EXIT_USAGE;
	}
	if (options.positional_count == 2) {
		option[1] = (char *)options.positionals[1];
		int rc = ctl_options_read(ctl, &minutes, api_row(verb->op), NULL, false, 2, option);
		_cleanup_json_ json_object *values = minutes.values;
		json_object *value = NULL;

		if (rc != 0) {
			return CTL_EXIT_USAGE;
		}
		json_object_object_get_ex(values, "minutes", &value);
		json_object_object_add(options.values, "minutes", json_object_get(value));
	}
	int status = ctl_call(ctl, verb, options.positionals[0], options.values, &response);
	if (status == 0) {
		print_answer(ctl, response.json);
	}
	return status;
}

int ctl_destroy(struct ctl *ctl, const struct ctl_verb *verb, int argc, char **argv)
{
	_cleanup_ctl_options_ struct ctl_options options;
	int status = 0;

	if (ctl_options_read(ctl, &options, api_row(verb->op), NULL, false, argc, argv) != 0 ||
		ctl_expect(verb, &options, 1, CTL_POSITIONALS_MAX) != 0) {
		return CTL_EXIT_USAGE;
	}
	for (size_t i = 0; i < options.positional_count; i++) {
		_cleanup_rest_response_ struct rest_response response = REST_RESPONSE_INIT;
		int rc = ctl_call(ctl, verb, options.positionals[i], NULL, &response);

		status = rc ? rc : status;
		if (rc == 0 && ctl->is_json) {
			ctl_print_json(response.json);
		} else if (rc == 0) {
			printf("%s %s\n", ctl_member(response.json, "id"),
				ctl_member(response.json, "status"));
		}
	}
	return status;
}
