#include "api/api_args.h"

#include <inttypes.h>
#include <limits.h>
#include <string.h>

#include "base/base64.h"
#include "base/id.h"
#include "base/parse.h"
#include "base/xalloc.h"

#define MAP_KEY_MAX_BYTES 128

void api_args_init(struct api_args *args, const struct api_row *row)
{
	args->row = row;
	args->values = json_object_new_object();
}

void api_args_fini(struct api_args *args)
{
	json_object_put(args->values);
	*args = API_ARGS_INIT;
}

/* ---- texts ---- */

static bool is_ref(const char *text)
{
	return text[strspn(text,
		       "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")] == '\0';
}

static bool is_line(const char *text)
{
	for (const char *c = text; *c; c++) {
		if ((unsigned char)*c < 0x20 || *c == 0x7f) {
			return false;
		}
	}
	return true;
}

static bool is_env_name(const char *name)
{
	static const char allowed[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789";

	return name[0] != '\0' && name[strspn(name, allowed)] == '\0' &&
	       !(name[0] >= '0' && name[0] <= '9');
}

/* Bytes of text, as .min and .max count them. */
static size_t text_length(enum api_text kind, const char *text, size_t len)
{
	return kind == API_TEXT_BASE64 ? base64_decoded_bytes(text, len) : len;
}

/* What is wrong with the form of @text: the end of a sentence; NULL: nothing. */
static const char *text_problem(enum api_text kind, const char *text, size_t len)
{
	if (kind != API_TEXT_ANY && memchr(text, '\0', len)) {
		return "must not contain a NUL character";
	}
	if (kind != API_TEXT_PATH && !utf8_is_valid(text, len)) {
		return "must be UTF-8";
	}
	switch (kind) {
	case API_TEXT_NAME:
		return name_is_valid(text) ? NULL
					   : "must consist of lower-case letters, digits and inner "
					     "hyphens, at most 63 characters";
	case API_TEXT_REF:
		return is_ref(text) ? NULL : "must consist of letters, digits, \"_\" and \"-\"";
	case API_TEXT_LINE:
		return is_line(text) ? NULL : "must not contain control characters";
	case API_TEXT_MODE:
		return strspn(text, "01234567") == len
			       ? NULL
			       : "must be an octal number in quotes, such as \"0644\"";
	case API_TEXT_BASE64:
		return base64_is_valid(text, len) ? NULL : "must be base64 with padding";
	case API_TEXT_NO_NUL:
	case API_TEXT_PATH:
	case API_TEXT_ANY:
	case API_TEXT_ENV:
	default:
		return NULL;
	}
}

/* ---- checks ---- */

static int check_type(const struct api_field *field, json_object *value, json_type type,
	const char *wanted, struct err *err)
{
	if (json_object_get_type(value) != type) {
		return err_set(err, ERR_INVALID, "\"%s\" must be %s, not %s", field->name, wanted,
			json_kind(value));
	}
	return 0;
}

static int check_int(const struct api_field *field, json_object *value, struct err *err)
{
	if (check_type(field, value, json_type_int, "a whole number", err) < 0) {
		return -1;
	}
	int64_t number = json_object_get_int64(value);

	if (number < field->min || number > field->max) {
		return err_set(err, ERR_INVALID,
			"\"%s\" must be between %" PRId64 " and %" PRId64 ", not %s", field->name,
			field->min, field->max, json_object_get_string(value));
	}
	return 0;
}

static int check_string(const struct api_field *field, json_object *value, struct err *err)
{
	if (check_type(field, value, json_type_string, "a string", err) < 0) {
		return -1;
	}
	const char *text = json_object_get_string(value);
	size_t len = (size_t)json_object_get_string_len(value);
	const char *problem = text_problem(field->text, text, len);
	size_t counted = problem ? 0 : text_length(field->text, text, len);

	if (problem && len > 0) {
		return err_set(err, ERR_INVALID, "\"%s\" %s", field->name, problem);
	}
	if ((int64_t)counted < field->min) {
		return counted == 0
			       ? err_set(err, ERR_INVALID, "\"%s\" must not be empty", field->name)
			       : err_set(err, ERR_INVALID,
					 "\"%s\" must have at least %" PRId64 " bytes, not %zu",
					 field->name, field->min, counted);
	}
	if ((int64_t)counted > field->max) {
		return err_set(err, ERR_INVALID,
			"\"%s\" must have at most %" PRId64 " bytes, not %zu", field->name,
			field->max, counted);
	}
	return 0;
}

static int check_enum(const struct api_field *field, json_object *value, struct err *err)
{
	char choices[200] = "";

	if (check_type(field, value, json_type_string, "a string", err) < 0) {
		return -1;
	}
	for (const char *const *choice = field->choices; *choice; choice++) {
		size_t used = strlen(choices);

		if (strcmp(*choice, json_object_get_string(value)) == 0 &&
			strlen(*choice) == (size_t)json_object_get_string_len(value)) {
			return 0;
		}
		snprintf(choices + used, sizeof choices - used, "%s%s", used ? ", " : "", *choice);
	}
	return err_set(err, ERR_INVALID, "\"%s\" must be one of %s", field->name, choices);
}

/* One member of STRINGS or MAP; @where names it in messages. */
static int check_item(
	const struct api_field *field, const char *where, json_object *value, struct err *err)
{
	if (json_object_get_type(value) != json_type_string) {
		return err_set(
			err, ERR_INVALID, "%s must be a string, not %s", where, json_kind(value));
	}
	size_t len = (size_t)json_object_get_string_len(value);
	const char *problem = text_problem(API_TEXT_NO_NUL, json_object_get_string(value), len);

	if (problem) {
		return err_set(err, ERR_INVALID, "%s %s", where, problem);
	}
	if ((int64_t)len > field->item_max) {
		return err_set(err, ERR_INVALID, "%s must have at most %" PRId64 " bytes, not %zu",
			where, field->item_max, len);
	}
	return 0;
}

static int check_count(const struct api_field *field, size_t count, struct err *err)
{
	if ((int64_t)count < field->min || (int64_t)count > field->max) {
		return err_set(err, ERR_INVALID,
			"\"%s\" must have between %" PRId64 " and %" PRId64 " members, not %zu",
			field->name, field->min, field->max, count);
	}
	return 0;
}

static int check_strings(const struct api_field *field, json_object *value, struct err *err)
{
	if (check_type(field, value, json_type_array, "an array of strings", err) < 0 ||
		check_count(field, json_object_array_length(value), err) < 0) {
		return -1;
	}
	for (size_t i = 0; i < json_object_array_length(value); i++) {
		char where[64];

		snprintf(where, sizeof where, "\"%s\"[%zu]", field->name, i);
		if (check_item(field, where, json_object_array_get_idx(value, i), err) < 0) {
			return -1;
		}
	}
	return 0;
}

static int check_map_key(const struct api_field *field, const char *key, struct err *err)
{
	if (key[0] == '\0' || strlen(key) > MAP_KEY_MAX_BYTES) {
		return err_set(err, ERR_INVALID, "names in \"%s\" must have 1 to %d bytes",
			field->name, MAP_KEY_MAX_BYTES);
	}
	if (field->text == API_TEXT_ENV && !is_env_name(key)) {
		return err_set(err, ERR_INVALID,
			"names in \"%s\" must consist of letters, digits and \"_\" and not start "
			"with a digit",
			field->name);
	}
	if (!utf8_is_valid(key, strlen(key)) || !is_line(key)) {
		return err_set(err, ERR_INVALID,
			"names in \"%s\" must be UTF-8 without control characters", field->name);
	}
	return 0;
}

static int check_map(const struct api_field *field, json_object *value, struct err *err)
{
	if (check_type(field, value, json_type_object, "an object of strings", err) < 0 ||
		check_count(field, (size_t)json_object_object_length(value), err) < 0) {
		return -1;
	}
	json_object_object_foreach (value, key, member) {
		char where[MAP_KEY_MAX_BYTES + 64];

		if (check_map_key(field, key, err) < 0) {
			return -1;
		}
		snprintf(where, sizeof where, "\"%s.%s\"", field->name, key);
		if (check_item(field, where, member, err) < 0) {
			return -1;
		}
	}
	return 0;
}

static int check_value(const struct api_field *field, json_object *value, struct err *err)
{
	switch (field->type) {
	case API_INT:
		return check_int(field, value, err);
	case API_BOOL:
		return check_type(field, value, json_type_boolean, "true or false", err);
	case API_ENUM:
		return check_enum(field, value, err);
	case API_STRINGS:
		return check_strings(field, value, err);
	case API_MAP:
		return check_map(field, value, err);
	case API_STRING:
	default:
		return check_string(field, value, err);
	}
}

/* ---- adding ---- */

/* Field names are the table's, or a client's that isn't in it: shown short and safe. */
static int refuse_unknown(
	const struct api_args *args, const char *what, const char *name, struct err *err)
{
	char shown[48];
	size_t n = 0;

	for (const char *c = name; *c && n < sizeof shown - 1; c++) {
		shown[n++] = *c > 0x20 && *c < 0x7f && *c != '"' ? *c : '?';
	}
	shown[n] = '\0';
	return err_set(
		err, ERR_INVALID, "%s does not take the %s \"%s\"", args->row->name, what, shown);
}

/* Takes @value. */
static int add_value(
	struct api_args *args, const struct api_field *field, json_object *value, struct err *err)
{
	_cleanup_json_ json_object *owned = value;

	if (json_object_object_get_ex(args->values, field->name, NULL)) {
		return err_set(err, ERR_INVALID, "\"%s\" is given twice", field->name);
	}
	if (check_value(field, owned, err) < 0) {
		return -1;
	}
	json_object_object_add_ex(args->values, field->name, steal_ptr(&owned),
		JSON_C_OBJECT_ADD_KEY_IS_NEW | JSON_C_OBJECT_ADD_CONSTANT_KEY);
	return 0;
}

int api_args_add_body(struct api_args *args, json_object *body, struct err *err)
{
	if (json_object_get_type(body) != json_type_object) {
		return err_set(err, ERR_INVALID, "the body must be a JSON object, not %s",
			json_kind(body));
	}
	json_object_object_foreach (body, name, value) {
		const struct api_field *field = api_row_field(args->row, name);

		if (!field || !(field->in & API_IN_BODY)) {
			return refuse_unknown(args, "field", name, err);
		}
		if (!value && field->is_nullable) {
			continue;
		}
		if (add_value(args, field, json_object_get(value), err) < 0) {
			return -1;
		}
	}
	return 0;
}

/* The value that text stands for; NULL with @err set when it stands for none. */
static json_object *value_of_text(
	const struct api_field *field, const char *text, size_t len, struct err *err)
{
	int64_t number;
	bool is_true;

	switch (field->type) {
	case API_INT:
		if (strlen(text) != len ||
			parse_int(text, INT64_MIN, INT64_MAX, &number, err) < 0) {
			err_set(err, ERR_INVALID,
				"\"%s\" must be a whole number between %" PRId64 " and %" PRId64,
				field->name, field->min, field->max);
			return NULL;
		}
		return json_object_new_int64(number);
	case API_BOOL:
		if (strlen(text) != len || parse_bool(text, &is_true, err) < 0) {
			err_set(err, ERR_INVALID, "\"%s\" must be true or false", field->name);
			return NULL;
		}
		return json_object_new_boolean(is_true);
	case API_STRING:
	case API_ENUM:
	case API_STRINGS:
	case API_MAP:
	default:
		if (len > INT_MAX) {
			err_set(err, ERR_INVALID, "\"%s\" is too long", field->name);
			return NULL;
		}
		return json_object_new_string_len(text, (int)len);
	}
}

static int add_text(struct api_args *args, const struct api_field *field, const char *text,
	size_t len, struct err *err)
{
	json_object *value = value_of_text(field, text, len, err);

	return value ? add_value(args, field, value, err) : -1;
}

/* STRINGS and MAP grow by one with each parameter; api_args_finish() checks them as a whole. */
static json_object *growing(struct api_args *args, const struct api_field *field, bool is_map)
{
	json_object *all = api_args_object(args, field->name);

	if (!all) {
		all = is_map ? json_object_new_object() : json_object_new_array();
		json_object_object_add_ex(args->values, field->name, all,
			JSON_C_OBJECT_ADD_KEY_IS_NEW | JSON_C_OBJECT_ADD_CONSTANT_KEY);
	}
	return all;
}

static int add_item(struct api_args *args, const struct api_field *field, const char *key,
	const char *text, size_t len, struct err *err)
{
	json_object *all = growing(args, field, key != NULL);
	size_t count = key ? (size_t)json_object_object_length(all) : json_object_array_length(all);

	if (check_count(field, count + 1, err) < 0) {
		return -1;
	}
	if (len > INT_MAX) {
		return err_set(err, ERR_INVALID, "\"%s\" is too long", field->name);
	}
	if (key && json_object_object_get_ex(all, key, NULL)) {
		return err_set(err, ERR_INVALID, "\"%s.%s\" is given twice", field->name, key);
	}
	json_object *value = json_object_new_string_len(text, (int)len);

	return key ? json_object_object_add(all, key, value) : json_object_array_add(all, value);
}

/* NAME, or for a MAP NAME.KEY; *ret_key is NULL or KEY. */
static const struct api_field *query_field(
	const struct api_row *row, const char *name, const char **ret_key)
{
	const char *dot = strchr(name, '.');

	*ret_key = NULL;
	for (const struct api_field *field = row->fields; field->name; field++) {
		size_t n = strlen(field->name);

		if (field->type != API_MAP && strcmp(field->name, name) == 0) {
			return field;
		}
		if (field->type == API_MAP && dot && (size_t)(dot - name) == n &&
			strncmp(field->name, name, n) == 0) {
			*ret_key = dot + 1;
			return field;
		}
	}
	return NULL;
}

int api_args_add_query(struct api_args *args, const char *name, const char *value, size_t len,
	bool has_raw_body, struct err *err)
{
	const char *key;
	const struct api_field *field = query_field(args->row, name, &key);
	unsigned places = API_IN_QUERY | (has_raw_body ? API_IN_RAW_QUERY : 0);

	if (!field || !(field->in & places)) {
		return refuse_unknown(args, "query parameter", name, err);
	}
	if (field->type == API_STRINGS || field->type == API_MAP) {
		return add_item(args, field, key, value, len, err);
	}
	return add_text(args, field, value, len, err);
}

int api_args_add_path(struct api_args *args, const char *name, const char *value, struct err *err)
{
	const struct api_field *field = api_row_field(args->row, name);

	ASSERT(field && (field->in & API_IN_PATH));
	return add_text(args, field, value, strlen(value), err);
}

int api_args_add_header(
	struct api_args *args, const struct api_field *field, const char *value, struct err *err)
{
	ASSERT(field->in & API_IN_HEADER);
	if (json_object_object_get_ex(args->values, field->name, NULL)) {
		return 0;
	}
	return add_text(args, field, value, strlen(value), err);
}

int api_args_finish(struct api_args *args, struct err *err)
{
	for (const struct api_field *field = args->row->fields; field->name; field++) {
		json_object *value = NULL;

		if (json_object_object_get_ex(args->values, field->name, &value)) {
			/* Those from a query haven't been looked at as a whole. */
			if ((field->type == API_STRINGS || field->type == API_MAP) &&
				check_value(field, value, err) < 0) {
				return -1;
			}
		} else if (field->is_required) {
			return err_set(err, ERR_INVALID, "\"%s\" is missing", field->name);
		} else if (field->default_text) {
			int ret = add_text(
				args, field, field->default_text, strlen(field->default_text), err);

			ASSERT(ret == 0);
		}
	}
	return 0;
}

/* ---- reading ---- */

static json_object *value_of(const struct api_args *args, const char *name)
{
	json_object *value = NULL;

	ASSERT(api_row_field(args->row, name));
	json_object_object_get_ex(args->values, name, &value);
	return value;
}

bool api_args_has(const struct api_args *args, const char *name)
{
	return value_of(args, name) != NULL;
}

const char *api_args_text(const struct api_args *args, const char *name)
{
	json_object *value = value_of(args, name);

	return value ? json_object_get_string(value) : NULL;
}

const char *api_args_bytes(const struct api_args *args, const char *name, size_t *ret_len)
{
	json_object *value = value_of(args, name);

	*ret_len = value ? (size_t)json_object_get_string_len(value) : 0;
	return value ? json_object_get_string(value) : NULL;
}

int64_t api_args_int(const struct api_args *args, const char *name)
{
	return json_object_get_int64(value_of(args, name));
}

bool api_args_bool(const struct api_args *args, const char *name)
{
	return json_object_get_boolean(value_of(args, name));
}

json_object *api_args_object(const struct api_args *args, const char *name)
{
	return value_of(args, name);
}

char **api_args_strv(const struct api_args *args, const char *name)
{
	json_object *value = value_of(args, name);

	if (!value) {
		return NULL;
	}
	if (json_object_get_type(value) == json_type_array) {
		size_t count = json_object_array_length(value);
		char **strv = xcalloc(count + 1, sizeof(char *));

		for (size_t i = 0; i < count; i++) {
			strv[i] = xstrdup(
				json_object_get_string(json_object_array_get_idx(value, i)));
		}
		return strv;
	}
	char **strv = xcalloc((size_t)json_object_object_length(value) + 1, sizeof(char *));
	size_t n = 0;

	json_object_object_foreach (value, key, member) {
		strv[n++] = xasprintf("%s=%s", key, json_object_get_string(member));
	}
	return strv;
}
