#include "ctl/ctl.h"

#include <inttypes.h>
#include <string.h>

#include "base/parse.h"
#include "base/xalloc.h"

/* "timeout-minutes" for the field timeout_minutes. */
static bool names_field(const char *option, size_t len, const char *field)
{
	if (strlen(field) != len) {
		return false;
	}
	for (size_t i = 0; i < len; i++) {
		if (option[i] != (field[i] == '_' ? '-' : field[i])) {
			return false;
		}
	}
	return true;
}

static const struct api_field *find_field(const struct api_row *row, const char *name, size_t len)
{
	for (const struct api_field *f = row->fields; f && f->name; f++) {
		if ((f->in & ~(unsigned)API_IN_PATH) != 0 && names_field(name, len, f->name)) {
			return f;
		}
	}
	return NULL;
}

static json_object *member_of_type(json_object *values, const char *name, enum json_type type)
{
	json_object *member = NULL;

	if (!json_object_object_get_ex(values, name, &member)) {
		member = type == json_type_array ? json_object_new_array()
						 : json_object_new_object();
		json_object_object_add(values, name, member);
	}
	return member;
}

/* --@option is how the user wrote it. */
static int set_field(
	json_object *values, const struct api_field *field, const char *option, const char *value)
{
	int64_t number;
	bool yes;
	struct err err;

	switch (field->type) {
	case API_INT:
		/* Bounds are the service's to say: its configuration has a word in them. */
		if (parse_int(value, INT64_MIN / 2, INT64_MAX / 2, &number, &err) != 0) {
			fprintf(stderr, "paddockctl: --%s: must be a whole number\n", option);
			return -1;
		}
		json_object_object_add(values, field->name, json_object_new_int64(number));
		return 0;
	case API_BOOL:
		if (parse_bool(value, &yes, &err) != 0) {
			fprintf(stderr, "paddockctl: --%s: %s\n", option, err.msg);
			return -1;
		}
		json_object_object_add(values, field->name, json_object_new_boolean(yes));
		return 0;
	case API_STRINGS:
		json_object_array_add(member_of_type(values, field->name, json_type_array),
			json_object_new_string(value));
		return 0;
	case API_MAP: {
		const char *equals = strchr(value, '=');

		if (!equals || equals == value) {
			fprintf(stderr, "paddockctl: --%s: must look like NAME=VALUE\n", option);
			return -1;
		}
		_cleanup_free_ char *key = xasprintf("%.*s", (int)(equals - value), value);
		json_object_object_add(member_of_type(values, field->name, json_type_object), key,
			json_object_new_string(equals + 1));
		return 0;
	}
	case API_STRING:
	case API_ENUM:
	default:
		json_object_object_add(values, field->name, json_object_new_string(value));
		return 0;
	}
}

/* Index of the verb's own option, or -1. */
static int find_own(const char *const *own, const char *name, size_t len, bool *ret_takes_value)
{
	for (int i = 0; own && own[i]; i++) {
		size_t n = strcspn(own[i], "=");

		if (n == len && strncmp(own[i], name, len) == 0) {
			*ret_takes_value = own[i][n] == '=';
			return i;
		}
	}
	return -1;
}

/* What the word behind the dashes means: a field, an option of the verb's own, or --json. */
struct meaning {
	const struct api_field *field;
	int own; /* -1: none */
	bool is_json;
	bool is_no; /* --no-FIELD */
	bool takes_value;
	bool may_have_value;
};

static bool find_meaning(const struct api_row *row, const char *const *own, const char *name,
	size_t len, struct meaning *ret)
{
	bool own_takes_value = false;

	*ret = (struct meaning){.own = find_own(own, name, len, &own_takes_value)};
	if (ret->own >= 0) {
		ret->takes_value = ret->may_have_value = own_takes_value;
		return true;
	}
	ret->field = find_field(row, name, len);
	if (ret->field) {
		ret->takes_value = ret->field->type != API_BOOL;
		ret->may_have_value = true;
		return true;
	}
	if (len > 3 && strncmp(name, "no-", 3) == 0) {
		ret->field = find_field(row, name + 3, len - 3);
		ret->is_no = ret->field && ret->field->type == API_BOOL;
		return ret->is_no;
	}
	ret->is_json = len == 4 && strncmp(name, "json", 4) == 0;
	return ret->is_json;
}

/* One option at argv[*i]; moves *i over its value. */
static int read_option(struct ctl *ctl, struct ctl_options *options, const struct api_row *row,
	const char *const *own, int argc, char **argv, int *i)
{
	const char *equals = strchr(argv[*i], '=');
	size_t len = (equals ? (size_t)(equals - argv[*i]) : strlen(argv[*i])) - 2;
	_cleanup_free_ char *name = xasprintf("%.*s", (int)len, argv[*i] + 2);
	const char *value = equals ? equals + 1 : NULL;
	struct meaning meaning;

	if (!find_meaning(row, own, name, len, &meaning)) {
		fprintf(stderr, "paddockctl: there is no option --%s\n", name);
		return -1;
	}
	if (value && !meaning.may_have_value) {
		fprintf(stderr, "paddockctl: --%s takes no value\n", name);
		return -1;
	}
	if (meaning.takes_value && !value) {
		if (*i + 1 >= argc) {
			fprintf(stderr, "paddockctl: --%s needs a value\n", name);
			return -1;
		}
		value = argv[++*i];
	}
	if (meaning.is_json) {
		ctl->is_json = true;
		return 0;
	}
	if (meaning.own >= 0) {
		options->own[meaning.own] = value ? value : "";
		return 0;
	}
	return set_field(options->values, meaning.field, name,
		value ? value : (meaning.is_no ? "no" : "yes"));
}

int ctl_options_read(struct ctl *ctl, struct ctl_options *options, const struct api_row *row,
	const char *const *own, bool stop_early, int argc, char **argv)
{
	bool is_rest = false;

	memset(options, 0, sizeof *options);
	options->values = json_object_new_object();
	for (int i = 0; i < argc; i++) {
		if (!is_rest && strcmp(argv[i], "--") == 0) {
			is_rest = true;
			continue;
		}
		if (!is_rest && strncmp(argv[i], "--", 2) == 0) {
			if (read_option(ctl, options, row, own, argc, argv, &i) != 0) {
				return -1;
			}
			continue;
		}
		if (options->positional_count == CTL_POSITIONALS_MAX) {
			fprintf(stderr, "paddockctl: more than %d arguments\n",
				CTL_POSITIONALS_MAX);
			return -1;
		}
		options->positionals[options->positional_count++] = argv[i];
		is_rest = is_rest || (stop_early && options->positional_count == 2);
	}
	return 0;
}

void ctl_options_fini(struct ctl_options *options)
{
	json_object_put(options->values);
	options->values = NULL;
}

int ctl_expect(
	const struct ctl_verb *verb, const struct ctl_options *options, size_t least, size_t most)
{
	if (options->positional_count >= least && options->positional_count <= most) {
		return 0;
	}
	ctl_usage(verb, stderr);
	return -1;
}

void ctl_usage(const struct ctl_verb *verb, FILE *out)
{
	const struct api_row *row = api_row(verb->op);

	fprintf(out, "usage: paddockctl %s%s%s [OPTIONS]%s%s\n%s.\n", verb->noun ? verb->noun : "",
		verb->noun ? " " : "", verb->name, verb->usage[0] ? " " : "", verb->usage,
		verb->doc);
	for (const struct api_field *f = row->fields; f && f->name; f++) {
		char option[64];

		if ((f->in & ~(unsigned)API_IN_PATH) == 0) {
			continue;
		}
		snprintf(option, sizeof option, "--%s", f->name);
		for (char *c = option; *c; c++) {
			*c = (char)(*c == '_' ? '-' : *c);
		}
		fprintf(out, "  %-22s %s\n", option, f->doc);
	}
	fputs(verb->more ? verb->more : "", out);
}
