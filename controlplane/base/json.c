#include "base/json.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/parse.h"

/*
 * Theory of operation. json-c validates syntax, depth and UTF-8 in strict mode, but silently keeps
 * the last of duplicate keys, and takes numbers like 1. and -01 and writes them as they came. So
 * before it runs, scan_text() walks the raw text once: numbers by their grammar, and a stack of
 * the open objects, each with the spans of its keys; equal spans are a duplicate. Keys written
 * with escapes are compared by their raw text, and any backslash in a key is refused: no field of
 * ours has one, and it closes the way around the comparison. User data (env, metadata) has keys
 * without escapes as well.
 */

#define JSON_KEYS_MAX 4096

struct key_span {
	const char *start;
	size_t len;
};

struct key_scan {
	struct key_span keys[JSON_KEYS_MAX];
	size_t count;
	size_t object_start[JSON_DEPTH_MAX + 1]; /* index of the open object's first key */
	char kind[JSON_DEPTH_MAX + 1];
	size_t depth;
	size_t at; /* what is being looked at */
	size_t values_max;
	size_t values; /* seen so far, at most; a comma or an opening bracket stands for one */
};

static int compare_spans(const void *a, const void *b)
{
	const struct key_span *x = a;
	const struct key_span *y = b;

	if (x->len != y->len) {
		return x->len < y->len ? -1 : 1;
	}
	return memcmp(x->start, y->start, x->len);
}

/* The object that ends owns the keys from its start on; sort them, and equals are neighbours. */
static int close_object(struct key_scan *scan, struct err *err)
{
	size_t first = scan->object_start[scan->depth - 1];
	size_t n = scan->count - first;

	qsort(scan->keys + first, n, sizeof scan->keys[0], compare_spans);
	for (size_t i = 1; i < n; i++) {
		const struct key_span *key = &scan->keys[first + i];

		if (compare_spans(key, key - 1) == 0) {
			return err_set(err, ERR_INVALID, "the body has the field \"%.*s\" twice",
				(int)MIN(key->len, (size_t)64), key->start);
		}
	}
	scan->count = first;
	return 0;
}

/* End of the string that starts at @i (a quote), or len when it doesn't end. */
static size_t string_end(const char *text, size_t len, size_t i)
{
	for (i++; i < len && text[i] != '"'; i++) {
		if (text[i] == '\\') {
			i++;
		}
	}
	return MIN(i, len);
}

/* The four hex digits of an escape at @text, or -1. */
static int escaped_unit(const char *text, const char *end)
{
	char digits[5] = "";

	if (end - text < 6 || text[0] != '\\' || text[1] != 'u') {
		return -1;
	}
	memcpy(digits, text + 2, 4);
	return strspn(digits, "0123456789abcdefABCDEF") == 4 ? (int)strtol(digits, NULL, 16) : -1;
}

/* json-c would put U+FFFD in place of half a character, and the client's text were another. */
static bool has_half_character(const char *text, const char *end)
{
	while ((text = memchr(text, '\\', (size_t)(end - text)))) {
		int unit = escaped_unit(text, end);
		bool is_pair = unit >= 0xd800 && unit < 0xdc00 &&
			       (escaped_unit(text + 6, end) & ~0x3ff) == 0xdc00;

		if (unit >= 0xd800 && unit < 0xe000 && !is_pair) {
			return true;
		}
		text += is_pair ? 12 : MIN(2, end - text);
	}
	return false;
}

static int scan_string(
	struct key_scan *scan, const char *text, size_t len, size_t *pos, struct err *err)
{
	size_t start = *pos + 1;
	size_t end = string_end(text, len, *pos);
	size_t next = end + 1;

	for (size_t i = start; i < end; i++) {
		if ((unsigned char)text[i] < 0x20) {
			return err_set(err, ERR_INVALID,
				"the body is not valid JSON: control character at byte %zu", i);
		}
	}
	if (has_half_character(text + start, text + end)) {
		return err_set(err, ERR_INVALID,
			"the body is not valid JSON: half a surrogate pair after byte %zu", start);
	}
	*pos = end;
	while (next < len && strchr(" \t\r\n", text[next]) && text[next] != '\0') {
		next++;
	}
	if (end >= len || next >= len || text[next] != ':' || scan->depth == 0 ||
		scan->kind[scan->depth - 1] != '{') {
		return 0; /* a value, or something that the parser will refuse */
	}
	if (memchr(text + start, '\\', end - start)) {
		return err_set(err, ERR_INVALID, "field names may not contain a backslash");
	}
	if (scan->count == JSON_KEYS_MAX) {
		return err_set(err, ERR_INVALID, "the body has more than %d fields", JSON_KEYS_MAX);
	}
	scan->keys[scan->count++] = (struct key_span){text + start, end - start};
	return 0;
}

static int unexpected(size_t i, struct err *err)
{
	return err_set(err, ERR_INVALID,
		"the body is not valid JSON: unexpected character at byte %zu", i);
}

static size_t skip_digits(const char *text, size_t len, size_t i)
{
	while (i < len && text[i] >= '0' && text[i] <= '9') {
		i++;
	}
	return i;
}

/* *pos is at a minus or a digit, and at the number's last character afterwards. */
static int scan_number(const char *text, size_t len, size_t *pos, struct err *err)
{
	size_t start = *pos + (text[*pos] == '-');
	size_t end = skip_digits(text, len, start);
	bool is_good = end > start && (text[start] != '0' || end == start + 1);

	if (is_good && end < len && text[end] == '.') {
		start = end + 1;
		end = skip_digits(text, len, start);
		is_good = end > start;
	}
	if (is_good && end < len && (text[end] == 'e' || text[end] == 'E')) {
		start = end + 1 + (end + 1 < len && (text[end + 1] == '+' || text[end + 1] == '-'));
		end = skip_digits(text, len, start);
		is_good = end > start;
	}
	if (!is_good) {
		return unexpected(*pos, err);
	}
	*pos = end - 1;
	return 0;
}

/* A value of one byte takes a hundred in memory. */
static int count_value(struct key_scan *scan, struct err *err)
{
	if (++scan->values > scan->values_max) {
		return err_set(
			err, ERR_INVALID, "the body has more than %zu values", scan->values_max);
	}
	return 0;
}

static int scan_text(struct key_scan *scan, const char *text, size_t len, struct err *err)
{
	for (size_t i = 0; i < len; i++) {
		scan->at = i;
		if (strchr(",{[", text[i]) && text[i] != '\0' && count_value(scan, err) != 0) {
			return -1;
		}
		switch (text[i]) {
		case '"':
			if (scan_string(scan, text, len, &i, err) != 0) {
				return -1;
			}
			break;
		case '{':
		case '[':
			if (scan->depth == JSON_DEPTH_MAX) {
				return err_set(err, ERR_INVALID,
					"the body is nested more than %d deep", JSON_DEPTH_MAX);
			}
			scan->object_start[scan->depth] = scan->count;
			scan->kind[scan->depth++] = text[i];
			break;
		case '}':
			if (scan->depth > 0 && scan->kind[scan->depth - 1] == '{' &&
				close_object(scan, err) != 0) {
				return -1;
			}
			__attribute__((fallthrough));
		case ']':
			if (scan->depth > 0) {
				scan->depth--;
			}
			break;
		default:
			if (text[i] == '-' || (text[i] >= '0' && text[i] <= '9')) {
				if (scan_number(text, len, &i, err) != 0) {
					return -1;
				}
			} else if (text[i] == '\0' || !strchr(" \t\r\n,:truefalsn", text[i])) {
				return unexpected(i, err);
			}
		}
	}
	return 0;
}

/* ---- where it went wrong ---- */

/* The first byte that starts no character; @len: there is none. */
static size_t valid_length(const char *text, size_t len)
{
	uint32_t code;
	size_t i = 0;

	for (size_t used; i < len && (used = utf8_decode(text + i, len - i, &code)) > 0;
		i += used) {
	}
	return i;
}

/* Adds the outermost object's field that byte @at belongs to, as far as there is one: whoever wrote
 * the text knows it by its fields. What is before @at needn't be sound. */
static void add_field(const char *text, size_t at, struct err *err)
{
	struct key_span field = {NULL, 0};
	size_t depth = 0;

	for (size_t i = 0; i < at; i++) {
		if (text[i] == '{' || text[i] == '[') {
			depth++;
		} else if (text[i] == '}' || text[i] == ']') {
			depth -= depth > 0;
		} else if (text[i] == '"') {
			size_t end = string_end(text, at, i);
			size_t next = end + 1;

			while (next < at && strchr(" \t\r\n", text[next])) {
				next++;
			}
			if (depth == 1 && next < at && text[next] == ':') {
				field = (struct key_span){text + i + 1, end - i - 1};
			}
			i = end;
		}
	}
	if (field.start && depth > 0) {
		size_t used = strlen(err->msg);

		snprintf(err->msg + used, sizeof err->msg - used, ", in \"%.*s\"",
			(int)MIN(field.len, (size_t)64), field.start);
	}
}

static int check_text(const char *text, size_t len, size_t values_max, struct err *err)
{
	size_t valid = valid_length(text, len);
	_cleanup_free_ struct key_scan *scan = malloc(sizeof *scan);

	if (!scan) {
		return err_set(err, ERR_UNAVAILABLE, "out of memory");
	}
	if (valid < len) {
		err_set(err, ERR_INVALID, "the body is not valid UTF-8 at byte %zu", valid);
		add_field(text, valid, err);
		return -1;
	}
	scan->count = 0;
	scan->depth = 0;
	scan->at = 0;
	scan->values_max = values_max;
	scan->values = 0;
	if (scan_text(scan, text, len, err) != 0) {
		/* The outermost object's own end belongs to none of its fields. */
		if (scan->depth > 1 || text[scan->at] != '}') {
			add_field(text, scan->at, err);
		}
		return -1;
	}
	return 0;
}

static json_object *parse(const char *text, size_t len, size_t values_max, struct err *err)
{
	if (len > INT_MAX - 1) {
		err_set(err, ERR_TOO_LARGE, "the body is too large");
		return NULL;
	}
	if (check_text(text, len, values_max, err) != 0) {
		return NULL;
	}
	struct json_tokener *tok = json_tokener_new_ex(JSON_DEPTH_MAX + 1);

	if (!tok) {
		err_set(err, ERR_UNAVAILABLE, "out of memory");
		return NULL;
	}
	json_tokener_set_flags(tok, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
	json_object *obj = json_tokener_parse_ex(tok, text, (int)len);
	enum json_tokener_error result = json_tokener_get_error(tok);
	size_t used = json_tokener_get_parse_end(tok);

	if (result == json_tokener_continue) {
		/* A bare number at the end of the text waits for more digits. */
		obj = json_tokener_parse_ex(tok, "", 1);
		result = json_tokener_get_error(tok);
		used = len;
	}
	json_tokener_free(tok);
	while (used < len && text[used] != '\0' && strchr(" \t\r\n", text[used])) {
		used++;
	}
	if (result != json_tokener_success) {
		json_object_put(obj);
		err_set(err, ERR_INVALID, "the body is not valid JSON: %s at byte %zu",
			json_tokener_error_desc(result), used);
		add_field(text, MIN(used, len), err);
		return NULL;
	}
	if (used != len) {
		json_object_put(obj);
		err_set(err, ERR_INVALID, "the body goes on after the JSON value, at byte %zu",
			used);
		return NULL;
	}
	return obj;
}

json_object *json_parse(const char *text, size_t len, struct err *err)
{
	return parse(text, len, JSON_VALUES_MAX, err);
}

json_object *json_parse_answer(const char *text, size_t len, struct err *err)
{
	return parse(text, len, JSON_ANSWER_VALUES_MAX, err);
}

const char *json_kind(json_object *obj)
{
	switch (json_object_get_type(obj)) {
	case json_type_boolean:
		return "a boolean";
	case json_type_double:
		return "a number with a fraction";
	case json_type_int:
		return "a whole number";
	case json_type_object:
		return "an object";
	case json_type_array:
		return "an array";
	case json_type_string:
		return "a string";
	case json_type_null:
	default:
		return "null";
	}
}

const char *json_text(json_object *obj, size_t *ret_len)
{
	return json_object_to_json_string_length(
		obj, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE, ret_len);
}
