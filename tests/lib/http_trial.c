#include "tests/lib/http_trial.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/base64.h"
#include "base/xalloc.h"
#include "tests/lib/http_check.h"

size_t trial_tried;
size_t trial_failed;

/* What an operation wants besides its required fields. */
static const struct {
	enum api_op op;
	const char *body;  /* members of its JSON */
	const char *query; /* with a raw body */
} extras[] = {
	{API_EXEC, "\"command\":\"true\"", "command=true"},
	{API_FILE_WRITE, "\"content\":\"x\"", ""},
};

/* ---- values ---- */

char *trial_repeat(char c, int64_t count)
{
	char *text = xcalloc((size_t)count + 1, 1);

	memset(text, c, (size_t)count);
	return text;
}

char *trial_text(const struct api_field *field, int64_t count)
{
	if (field->text == API_TEXT_MODE) {
		return trial_repeat('7', count);
	}
	if (field->text != API_TEXT_BASE64) {
		return trial_repeat('a', count);
	}
	_cleanup_free_ char *bytes = trial_repeat('\0', count);
	char *text = xcalloc(BASE64_ENCODED_BYTES((size_t)count) + 1, 1);

	base64_encode(text, bytes, (size_t)count);
	return text;
}

char *trial_members(const struct api_field *field, int64_t count, int64_t item)
{
	bool is_map = field->type == API_MAP;
	_cleanup_free_ char *value = trial_repeat('a', item);
	struct evbuffer *out = evbuffer_new();

	for (int64_t i = 0; i < count; i++) {
		evbuffer_add_printf(out, i ? "," : "");
		if (is_map) {
			evbuffer_add_printf(out, "\"K%" PRId64 "\":", i);
		}
		evbuffer_add_printf(out, "\"%s\"", value);
	}
	evbuffer_add(out, "", 1);
	char *text = xasprintf(is_map ? "{%s}" : "[%s]", evbuffer_pullup(out, -1));

	evbuffer_free(out);
	return text;
}

static char *quoted(char *text)
{
	char *all = xasprintf("\"%s\"", text);

	free(text);
	return all;
}

char *trial_value(const struct api_field *field)
{
	switch (field->type) {
	case API_INT:
		return xasprintf("%" PRId64, field->min);
	case API_BOOL:
		return xstrdup("false");
	case API_ENUM:
		return xasprintf("\"%s\"", field->choices[0]);
	case API_STRINGS:
	case API_MAP:
		return trial_members(field, MAX(field->min, (int64_t)1), 1);
	case API_STRING:
	default:
		return quoted(trial_text(field, MAX(field->min, (int64_t)1)));
	}
}

/* ---- one request: a row, the field on trial, where it is ---- */

static bool is_raw(const struct trial *t)
{
	return t->place == API_IN_RAW_QUERY;
}

/* The required fields but the one on trial, and the extras; @separator between them. */
static void add_rest(const struct trial *t, bool is_body, struct evbuffer *out)
{
	const char *separator = is_body ? "," : "&";
	unsigned place = is_body ? API_IN_BODY : API_IN_QUERY | API_IN_RAW_QUERY;

	for (const struct api_field *field = t->row->fields; field->name; field++) {
		/* In both places is once too often. */
		bool is_elsewhere = !is_body && !is_raw(t) && (field->in & API_IN_BODY);

		if (field == t->field || !field->is_required || !(field->in & place) ||
			is_elsewhere) {
			continue;
		}
		_cleanup_free_ char *value = trial_value(field);
		size_t len = strlen(value);

		if (is_body) {
			evbuffer_add_printf(out, "%s\"%s\":%s", separator, field->name, value);
		} else {
			bool has_quotes = value[0] == '"';

			evbuffer_add_printf(out, "%s%s=%.*s", separator, field->name,
				(int)(has_quotes ? len - 2 : len), value + has_quotes);
		}
	}
	for (size_t i = 0; i < ARRAY_SIZE(extras); i++) {
		const char *extra = is_body ? extras[i].body : extras[i].query;
		const char *name = t->field ? t->field->name : "?";

		if (extras[i].op == t->row->op && is_body != is_raw(t) && extra[0] &&
			!strstr(extra, name)) {
			evbuffer_add_printf(out, "%s%s", separator, extra);
		}
	}
}

/* What usually stands for {@name}. */
static const char *usual_of(const struct trial *t, const char *name)
{
	if (strncmp(name, "eid}", 4) == 0) {
		return "ex_none";
	}
	return t->row->flags & API_SANDBOX ? t->sandbox : "ky_none";
}

/* @value stands for the field on trial, where that is in the path. */
static char *path_of(const struct trial *t, const char *value)
{
	struct evbuffer *out = evbuffer_new();
	const char *at = t->row->path;
	char *path;

	for (const char *slot; (slot = strchr(at, '{')); at = strchr(slot, '}') + 1) {
		size_t len = strcspn(slot + 1, "}");
		bool is_tried = value && strlen(t->field->name) == len &&
				strncmp(t->field->name, slot + 1, len) == 0;

		evbuffer_add(out, at, (size_t)(slot - at));
		evbuffer_add_printf(out, "%s", is_tried ? value : usual_of(t, slot + 1));
	}
	evbuffer_add(out, at, strlen(at) + 1);
	path = xstrdup((const char *)evbuffer_pullup(out, -1));
	evbuffer_free(out);
	return path;
}

struct answer *trial_ask(const struct trial *t, const char *member, size_t len)
{
	bool has_body = api_row_has_body(t->row) || is_raw(t);
	struct evbuffer *query = evbuffer_new();
	struct evbuffer *body = evbuffer_new();
	struct evbuffer *target = evbuffer_new();
	bool in_query = t->place & (API_IN_QUERY | API_IN_RAW_QUERY);
	_cleanup_free_ char *path = path_of(t, t->place == API_IN_PATH ? member : NULL);
	bool is_admin = t->row->flags & API_ADMIN_SOCKET;
	_cleanup_free_ char *handshake = http_handshake(t->row);
	struct client *c = is_admin ? client_new_admin(t->h) : client_new(t->h);

	evbuffer_add(query, member, in_query ? len : 0);
	add_rest(t, false, query);
	evbuffer_add_printf(target, "%s?", path);
	evbuffer_add_buffer(target, query);
	evbuffer_add(target, "", 1);
	if (is_raw(t)) {
		evbuffer_add_printf(body, "raw");
	} else {
		evbuffer_add_printf(body, "{");
		evbuffer_add(body, member, t->place == API_IN_BODY ? len : 0);
		add_rest(t, true, body);
		evbuffer_add_printf(body, "}");
		/* Without a member of the trial's it starts with a comma. */
		char *text = (char *)evbuffer_pullup(body, -1);

		if (text[1] == ',') {
			text[1] = ' ';
		}
	}
	client_request(c, api_method_name(t->row->method), (char *)evbuffer_pullup(target, -1),
		is_admin ? NULL : t->h->key, t->place == API_IN_HEADER ? member : handshake,
		is_raw(t) ? "application/octet-stream" : "application/json",
		has_body ? evbuffer_pullup(body, -1) : NULL,
		has_body ? evbuffer_get_length(body) : 0);
	struct answer *a = client_answer(c, false);

	trial_tried++;
	client_free(c);
	evbuffer_free(query);
	evbuffer_free(body);
	evbuffer_free(target);
	return a;
}

/* ---- what must come of it ---- */

void trial_fail(const struct trial *t, const struct answer *a, const char *why)
{
	trial_failed++;
	print_error("%s \"%s\" (place %d), %s: %s: %d %.300s\n", t->row->name,
		t->field ? t->field->name : "", t->place, t->what, why, a->status, a->body);
}

void trial_expect_refused_len(
	const struct trial *t, const char *member, size_t len, const char *says)
{
	struct answer *a = trial_ask(t, member, len);
	const char *problem = a->status == 400 ? http_check_error(a) : "not 400";
	_cleanup_free_ char *name = xasprintf("\"%s", t->field ? t->field->name : says);

	if (problem) {
		trial_fail(t, a, problem);
	} else if (strcmp(answer_text(a, "error.type"), "invalid_request") != 0) {
		trial_fail(t, a, "not invalid_request");
	} else if (!strstr(answer_text(a, "error.message"), name)) {
		trial_fail(t, a, "the message doesn't name the field");
	} else if (says && !strstr(answer_text(a, "error.message"), says)) {
		trial_fail(t, a, says);
	}
	answer_free(a);
}

void trial_expect_refused(const struct trial *t, const char *member, const char *says)
{
	trial_expect_refused_len(t, member, strlen(member), says);
}

void trial_expect_taken(const struct trial *t, const char *member)
{
	struct answer *a = trial_ask(t, member, strlen(member));
	_cleanup_free_ char *name = xasprintf("\"%s\"", t->field->name);
	const char *message = answer_text(a, "error.message");

	if (a->status >= 300) {
		const char *problem = a->status >= 500 && a->status != 503 ? "a fault"
									   : http_check_error(a);

		if (problem) {
			trial_fail(t, a, problem);
		} else if (a->status == 400 && !strstr(message, name)) {
			trial_fail(t, a, "the message doesn't name the field");
		} else if (strstr(message, "bytes, not") || strstr(message, "members, not")) {
			trial_fail(t, a, "it is within the documented bounds");
		}
	}
	answer_free(a);
}
