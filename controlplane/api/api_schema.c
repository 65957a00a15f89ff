#include "api/api_schema.h"

#include <inttypes.h>
#include <string.h>

#include "api/api_errors.h"
#include "base/macros.h"

static void set(json_object *obj, const char *key, json_object *value)
{
	json_object_object_add(obj, key, value);
}

static void set_text(json_object *obj, const char *key, const char *text)
{
	set(obj, key, json_object_new_string(text));
}

static void set_int(json_object *obj, const char *key, int64_t number)
{
	set(obj, key, json_object_new_int64(number));
}

/* ---- JSON Schema ---- */

static const char *pattern_of(enum api_text text)
{
	switch (text) {
	case API_TEXT_NAME:
		return "^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$";
	case API_TEXT_REF:
		return "^[A-Za-z0-9_-]+$";
	case API_TEXT_MODE:
		return "^[0-7]{3,4}$";
	case API_TEXT_NO_NUL:
	case API_TEXT_LINE:
	case API_TEXT_PATH:
	case API_TEXT_ANY:
	case API_TEXT_BASE64:
	case API_TEXT_ENV:
	default:
		return NULL;
	}
}

/* minLength and maxLength count characters, our bounds bytes: as an upper bound it is right. */
static void describe_string(const struct api_field *field, json_object *schema)
{
	const char *pattern = pattern_of(field->text);

	set_text(schema, "type", "string");
	if (field->min > 0) {
		set_int(schema, "minLength", 1);
	}
	if (field->text == API_TEXT_BASE64) {
		set_text(schema, "contentEncoding", "base64");
	} else {
		set_int(schema, "maxLength", field->max);
	}
	if (pattern) {
		set_text(schema, "pattern", pattern);
	}
}

static json_object *item_schema(const struct api_field *field)
{
	json_object *item = json_object_new_object();

	set_text(item, "type", "string");
	set_int(item, "maxLength", field->item_max);
	return item;
}

static void describe_strings(const struct api_field *field, json_object *schema)
{
	set_text(schema, "type", "array");
	set(schema, "items", item_schema(field));
	set_int(schema, "minItems", field->min);
	set_int(schema, "maxItems", field->max);
}

static void describe_map(const struct api_field *field, json_object *schema)
{
	set_text(schema, "type", "object");
	set(schema, "additionalProperties", item_schema(field));
	set_int(schema, "maxProperties", field->max);
	if (field->text == API_TEXT_ENV) {
		json_object *names = json_object_new_object();

		set_text(names, "pattern", "^[A-Za-z_][A-Za-z0-9_]*$");
		set(schema, "propertyNames", names);
	}
}

static void describe_default(const struct api_field *field, json_object *schema)
{
	if (!field->default_text) {
		return;
	}
	if (field->type == API_STRING || field->type == API_ENUM) {
		set_text(schema, "default", field->default_text);
	} else {
		set(schema, "default", json_tokener_parse(field->default_text));
	}
}

json_object *api_schema_field(const struct api_field *field)
{
	json_object *schema = json_object_new_object();
	json_object *choices;

	switch (field->type) {
	case API_INT:
		set_text(schema, "type", "integer");
		set_int(schema, "minimum", field->min);
		set_int(schema, "maximum", field->max);
		break;
	case API_BOOL:
		set_text(schema, "type", "boolean");
		break;
	case API_ENUM:
		set_text(schema, "type", "string");
		choices = json_object_new_array();
		for (const char *const *choice = field->choices; *choice; choice++) {
			json_object_array_add(choices, json_object_new_string(*choice));
		}
		set(schema, "enum", choices);
		break;
	case API_STRINGS:
		describe_strings(field, schema);
		break;
	case API_MAP:
		describe_map(field, schema);
		break;
	case API_STRING:
	default:
		describe_string(field, schema);
		break;
	}
	if (field->is_nullable) {
		json_object *types = json_object_new_array();

		json_object_array_add(types, json_object_new_string("string"));
		json_object_array_add(types, json_object_new_string("null"));
		set(schema, "type", types);
	}
	describe_default(field, schema);
	set_text(schema, "description", field->doc);
	return schema;
}

json_object *api_schema_args(const struct api_row *row, unsigned in)
{
	json_object *schema = json_object_new_object();
	json_object *properties = json_object_new_object();
	json_object *required = json_object_new_array();

	for (const struct api_field *field = row->fields; field->name; field++) {
		if (in != 0 && !(field->in & in)) {
			continue;
		}
		set(properties, field->name, api_schema_field(field));
		if (field->is_required && (in == 0 || !(field->in & API_IN_HEADER))) {
			json_object_array_add(required, json_object_new_string(field->name));
		}
	}
	set_text(schema, "type", "object");
	set(schema, "properties", properties);
	if (json_object_array_length(required) > 0) {
		set(schema, "required", required);
	} else {
		json_object_put(required);
	}
	set(schema, "additionalProperties", json_object_new_boolean(false));
	return schema;
}

/* ---- OpenAPI ---- */

static json_object *parameter(
	const char *name, const char *in, bool is_required, const char *doc, json_object *schema)
{
	json_object *param = json_object_new_object();

	set_text(param, "name", name);
	set_text(param, "in", in);
	set(param, "required", json_object_new_boolean(is_required));
	set_text(param, "description", doc);
	set(param, "schema", schema);
	return param;
}

static json_object *parameters_of(const struct api_row *row)
{
	json_object *params = json_object_new_array();

	for (const struct api_field *field = row->fields; field->name; field++) {
		bool is_elsewhere = field->in & (API_IN_BODY | API_IN_HEADER);

		if (field->in & API_IN_PATH) {
			json_object_array_add(params, parameter(field->name, "path", true,
							      field->doc, api_schema_field(field)));
		}
		if (field->in & (API_IN_QUERY | API_IN_RAW_QUERY)) {
			json_object_array_add(params,
				parameter(field->name, "query", field->is_required && !is_elsewhere,
					field->doc, api_schema_field(field)));
		}
		if (field->in & API_IN_HEADER) {
			json_object_array_add(params, parameter(field->header, "header", false,
							      field->doc, api_schema_field(field)));
		}
	}
	if (row->flags & API_IDEMPOTENCY_KEY) {
		json_object *schema = json_object_new_object();

		set_text(schema, "type", "string");
		set_int(schema, "maxLength", API_IDEMPOTENCY_MAX_BYTES);
		json_object_array_add(params,
			parameter("Idempotency-Key", "header", false,
				"The same key with the same request answers with what the first "
				"one made; with another request it is a conflict",
				schema));
	}
	return params;
}

static json_object *media(json_object *schema)
{
	json_object *type = json_object_new_object();

	set(type, "schema", schema);
	return type;
}

static json_object *octets(void)
{
	json_object *schema = json_object_new_object();

	set_text(schema, "type", "string");
	set_text(schema, "format", "binary");
	return media(schema);
}

static json_object *any_object(void)
{
	json_object *schema = json_object_new_object();

	set_text(schema, "type", "object");
	return media(schema);
}

static json_object *error_answer(void)
{
	json_object *answer = json_object_new_object();
	json_object *content = json_object_new_object();
	json_object *ref = json_object_new_object();

	set_text(ref, "$ref", "#/components/schemas/Error");
	set(content, "application/json", media(ref));
	set_text(answer, "description", "A failure; its type tells which");
	set(answer, "content", content);
	return answer;
}

static json_object *answers_of(const struct api_row *row)
{
	json_object *answers = json_object_new_object();
	json_object *ok = json_object_new_object();
	json_object *content = json_object_new_object();
	char status[8];

	snprintf(status, sizeof status, "%d", row->status);
	set(content, "application/json", any_object());
	if (row->flags & API_RAW_ANSWER) {
		set(content, "application/octet-stream", octets());
	}
	if (row->flags & API_EVENTS) {
		json_object *schema = json_object_new_object();

		set_text(schema, "type", "string");
		set(content, "text/event-stream", media(schema));
	}
	set_text(ok, "description", row->answer);
	set(ok, "content", content);
	set(answers, status, ok);
	set(answers, "default", error_answer());
	return answers;
}

static json_object *operation_of(const struct api_row *row)
{
	json_object *operation = json_object_new_object();

	set_text(operation, "operationId", row->name);
	set_text(operation, "summary", row->doc);
	set(operation, "parameters", parameters_of(row));
	if (api_row_has_body(row)) {
		json_object *body = json_object_new_object();
		json_object *content = json_object_new_object();

		set(content, "application/json", media(api_schema_args(row, API_IN_BODY)));
		if (row->flags & API_RAW_BODY) {
			set(content, "application/octet-stream", octets());
		}
		set(body, "content", content);
		set(operation, "requestBody", body);
	}
	set(operation, "responses", answers_of(row));
	if (row->scope == API_SCOPE_ANONYMOUS) {
		set(operation, "security", json_object_new_array());
	}
	return operation;
}

static json_object *error_schema(void)
{
	static const char *const members[] = {"type", "message", "request_id", "code"};
	json_object *schema = json_object_new_object();
	json_object *properties = json_object_new_object();
	json_object *inner = json_object_new_object();
	json_object *inner_properties = json_object_new_object();

	for (size_t i = 0; i < ARRAY_SIZE(members); i++) {
		json_object *member = json_object_new_object();

		set_text(member, "type", "string");
		set(inner_properties, members[i], member);
	}
	set_text(inner, "type", "object");
	set(inner, "properties", inner_properties);
	set(properties, "error", inner);
	set_text(schema, "type", "object");
	set(schema, "properties", properties);
	return schema;
}

static json_object *components(void)
{
	json_object *all = json_object_new_object();
	json_object *schemas = json_object_new_object();
	json_object *schemes = json_object_new_object();
	json_object *bearer = json_object_new_object();
	json_object *header = json_object_new_object();

	set_text(bearer, "type", "http");
	set_text(bearer, "scheme", "bearer");
	set_text(header, "type", "apiKey");
	set_text(header, "in", "header");
	set_text(header, "name", "x-api-key");
	set(schemes, "bearer", bearer);
	set(schemes, "apiKey", header);
	set(schemas, "Error", error_schema());
	set(all, "schemas", schemas);
	set(all, "securitySchemes", schemes);
	return all;
}

static json_object *security(void)
{
	json_object *either = json_object_new_array();
	static const char *const schemes[] = {"bearer", "apiKey"};

	for (size_t i = 0; i < ARRAY_SIZE(schemes); i++) {
		json_object *one = json_object_new_object();

		set(one, schemes[i], json_object_new_array());
		json_object_array_add(either, one);
	}
	return either;
}

json_object *api_openapi(const char *version)
{
	json_object *doc = json_object_new_object();
	json_object *info = json_object_new_object();
	json_object *paths = json_object_new_object();
	static const char *const methods[] = {"get", "post", "put", "delete"};

	_Static_assert(ARRAY_SIZE(methods) == API_METHOD_MAX, "every method has a name");
	set_text(doc, "openapi", "3.1.0");
	set_text(info, "title", "Paddock");
	set_text(info, "version", version);
	set(doc, "info", info);
	for (enum api_op op = 0; op < API_OP_MAX; op++) {
		const struct api_row *row = api_row(op);
		json_object *path = NULL;

		if (row->flags & API_ADMIN_SOCKET) {
			continue;
		}
		if (!json_object_object_get_ex(paths, row->path, &path)) {
			path = json_object_new_object();
			set(paths, row->path, path);
		}
		set(path, methods[row->method], operation_of(row));
	}
	set(doc, "paths", paths);
	set(doc, "components", components());
	set(doc, "security", security());
	return doc;
}
