#include "ctl/ctl.h"

#include <string.h>

#include "base/macros.h"

/* Reads options, puts positional arguments into @fields in their order, calls, prints by @columns.
 */
static int admin_call(struct ctl *ctl, const struct ctl_verb *verb, int argc, char **argv,
	const char *const *fields, size_t least, size_t most, struct rest_response *ret)
{
	_cleanup_ctl_options_ struct ctl_options options;
	const char *id = NULL;

	if (ctl_options_read(ctl, &options, api_row(verb->op), NULL, false, argc, argv) != 0 ||
		ctl_expect(verb, &options, least, most) != 0) {
		return CTL_EXIT_USAGE;
	}
	for (size_t i = 0; i < options.positional_count; i++) {
		if (strcmp(fields[i], "id") == 0) {
			id = options.positionals[i];
		} else {
			json_object_object_add(options.values, fields[i],
				json_object_new_string(options.positionals[i]));
		}
	}
	return ctl_call(ctl, verb, id, options.values, ret);
}

static int print_list(const struct ctl *ctl, int status, json_object *answer,
	const struct ctl_column *columns, size_t count)
{
	if (status != 0) {
		return status;
	}
	if (ctl->is_json) {
		ctl_print_json(answer);
		return 0;
	}
	json_object *data = ctl_array(answer, "data");

	if (!data) {
		return CTL_EXIT_FAILED;
	}
	ctl_print_table(data, columns, count);
	return 0;
}

static int print_one(const struct ctl *ctl, int status, json_object *answer)
{
	if (status == 0 && ctl->is_json) {
		ctl_print_json(answer);
	} else if (status == 0) {
		ctl_print_record(answer);
	}
	return status;
}

int ctl_account_create(struct ctl *ctl, const struct ctl_verb *verb, int argc, char **argv)
{
	static const char *const fields[] = {"name"};
	_cleanup_rest_response_ struct rest_response response = REST_RESPONSE_INIT;
	int status = admin_call(ctl, verb, argc, argv, fields, 1, 1, &response);

	return print_one(ctl, status, response.json);
}

int ctl_account_list(struct ctl *ctl, const struct ctl_verb *verb, int argc, char **argv)
{
	static const struct ctl_column columns[] = {{"ID", "id"}, {"NAME", "name"},
		{"CREATED", "created_at"}, {"DISABLED", "disabled"}};
	_cleanup_rest_response_ struct rest_response response = REST_RESPONSE_INIT;
	int status = admin_call(ctl, verb, argc, argv, NULL, 0, 0, &response);

	return print_list(ctl, status, response.json, columns, ARRAY_SIZE(columns));
}

int ctl_key_create(struct ctl *ctl, const struct ctl_verb *verb, int argc, char **argv)
{
	static const char *const fields[] = {"account", "name"};
	_cleanup_rest_response_ struct rest_response response = REST_RESPONSE_INIT;
	int status = admin_call(ctl, verb, argc, argv, fields, 1, 2, &response);

	return print_one(ctl, status, response.json);
}

int ctl_key_list(struct ctl *ctl, const struct ctl_verb *verb, int argc, char **argv)
{
	static const char *const fields[] = {"account"};
	static const struct ctl_column columns[] = {{"ID", "id"}, {"ACCOUNT", "account"},
		{"NAME", "name"}, {"ENDS IN", "hint"}, {"CREATED", "created_at"},
		{"LAST USED", "last_used_at"}, {"REVOKED", "revoked_at"}};
	_cleanup_rest_response_ struct rest_response response = REST_RESPONSE_INIT;
	int status = admin_call(ctl, verb, argc, argv, fields, 0, 1, &response);

	return print_list(ctl, status, response.json, columns, ARRAY_SIZE(columns));
}

int ctl_key_revoke(struct ctl *ctl, const struct ctl_verb *verb, int argc, char **argv)
{
	static const char *const fields[] = {"id"};
	_cleanup_rest_response_ struct rest_response response = REST_RESPONSE_INIT;
	int status = admin_call(ctl, verb, argc, argv, fields, 1, 1, &response);

	return print_one(ctl, status, response.json);
}

int ctl_images(struct ctl *ctl, const struct ctl_verb *verb, int argc, char **argv)
{
	static const struct ctl_column columns[] = {{"NAME", "name"}, {"VERSION", "version"},
		{"STATUS", "status"}, {"DEFAULT", "default"}, {"PROBLEM", "problem"}};
	_cleanup_rest_response_ struct rest_response response = REST_RESPONSE_INIT;
	int status = admin_call(ctl, verb, argc, argv, NULL, 0, 0, &response);

	return print_list(ctl, status, response.json, columns, ARRAY_SIZE(columns));
}

/* Exits with 1 when something is wrong, so that a script can ask. */
static int count_faults(json_object *findings)
{
	int faults = 0;

	for (size_t i = 0; i < json_object_array_length(findings); i++) {
		const char *level = ctl_member(json_object_array_get_idx(findings, i), "level");

		faults += strcmp(level, "error") == 0;
	}
	return faults;
}

static void print_findings(json_object *findings)
{
	for (size_t i = 0; i < json_object_array_length(findings); i++) {
		json_object *finding = json_object_array_get_idx(findings, i);
		const char *text = ctl_member(finding, "text");
		const char *fix = ctl_member(finding, "fix");

		printf("%-8s %-14s ", ctl_member(finding, "level"), ctl_member(finding, "check"));
		ctl_print_text(text, strlen(text), stdout);
		putchar('\n');
		if (fix[0]) {
			printf("%24s fix: ", "");
			ctl_print_text(fix, strlen(fix), stdout);
			putchar('\n');
		}
	}
}

int ctl_doctor(struct ctl *ctl, const struct ctl_verb *verb, int argc, char **argv)
{
	_cleanup_rest_response_ struct rest_response response = REST_RESPONSE_INIT;
	int status = admin_call(ctl, verb, argc, argv, NULL, 0, 0, &response);
	json_object *findings = status == 0 ? ctl_array(response.json, "findings") : NULL;

	if (!findings) {
		return status ? status : CTL_EXIT_FAILED;
	}
	if (ctl->is_json) {
		ctl_print_json(response.json);
	} else {
		print_findings(findings);
	}
	return count_faults(findings) ? 1 : 0;
}
