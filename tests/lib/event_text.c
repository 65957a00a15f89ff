#include "tests/lib/event_text.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/base64.h"
#include "base/parse.h"
#include "base/xalloc.h"
#include "tests/lib/cm.h"

/* What follows @field in its line, which must be the next one; the line is taken off *text. */
static const char *take_line(char **text, const char *field)
{
	size_t len = strlen(field);

	if (strncmp(*text, field, len) != 0) {
		return NULL;
	}
	return strsep(text, "\n") + len;
}

static void copy(char *to, size_t size, const char *from)
{
	assert_true(strlen(from) < size);
	memcpy(to, from, strlen(from) + 1);
}

/* {"text": …} of whole characters, or {"base64": …}; nothing else. */
static void decode(struct event *event)
{
	json_object *text = json_object_object_get(event->data, "text");
	json_object *base64 = json_object_object_get(event->data, "base64");
	json_object *value = text ? text : base64;
	struct err err;

	assert_true(json_object_object_length(event->data) == 1 && value);
	const char *chars = json_object_get_string(value);
	size_t len = (size_t)json_object_get_string_len(value);

	event->is_text = text != NULL;
	event->len = text ? len : base64_decoded_bytes(chars, len);
	event->bytes = xcalloc(1, event->len + 1);
	if (text) {
		memcpy(event->bytes, chars, len);
		assert_int_equal(strlen(event->bytes), len);
	} else {
		assert_ok(base64_decode(event->bytes, chars, len, &err), &err);
		/* What can be text is text, but for what has NUL. */
		assert_true(!utf8_is_valid(event->bytes, event->len) ||
			    memchr(event->bytes, 0, event->len));
	}
	assert_true(event->len > 0);
}

static void parse(char *text, struct event *ret)
{
	struct err err;
	const char *value;

	if (strcmp(text, ":") == 0) {
		return;
	}
	value = take_line(&text, "event: ");
	assert_non_null(value);
	copy(ret->name, sizeof ret->name, value);
	value = take_line(&text, "id: ");
	copy(ret->id, sizeof ret->id, value ? value : "");
	value = take_line(&text, "data: ");
	assert_non_null(value);
	assert_null(text);
	ret->data = json_parse_answer(value, strlen(value), &err);
	assert_true(json_object_is_type(ret->data, json_type_object));
	if (strcmp(ret->name, "stdout") == 0 || strcmp(ret->name, "stderr") == 0) {
		decode(ret);
	}
}

bool event_take(struct evbuffer *from, struct event *ret)
{
	struct evbuffer_ptr end = evbuffer_search(from, "\n\n", 2, NULL);

	if (end.pos < 0) {
		return false;
	}
	_cleanup_free_ char *text = xcalloc(1, (size_t)end.pos + 1);

	evbuffer_remove(from, text, (size_t)end.pos);
	evbuffer_drain(from, 2);
	*ret = (struct event){0};
	parse(text, ret);
	return true;
}

void event_fini(struct event *event)
{
	json_object_put(event->data);
	free(event->bytes);
	*event = (struct event){0};
}

const char *event_field(const struct event *event, const char *path)
{
	json_object *obj = event->data;
	_cleanup_free_ char *names = xstrdup(path);
	char *rest = names;

	for (char *name; obj && (name = strsep(&rest, "."));) {
		if (!json_object_object_get_ex(obj, name, &obj)) {
			return NULL;
		}
	}
	return obj ? json_object_get_string(obj) : NULL;
}
