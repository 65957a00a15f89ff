#include <inttypes.h>
#include <string.h>

#include "base/parse.h"
#include "base/xalloc.h"
#include "ops/view.h"

/* Where an output isn't whole: in its text, for people. */
#define GAP_TEXT      "[%" PRIu64 " bytes of output left out here]\n"
#define GAP_MAX_BYTES 64

static void set_count(json_object *obj, const char *key, const char *what, uint64_t count)
{
	char full[64];

	snprintf(full, sizeof full, "%s_%s", key, what);
	json_object_object_add(
		obj, full, json_object_new_int64((int64_t)MIN(count, (uint64_t)INT64_MAX)));
}

/* The text has a line at the gap; the bytes beside it have none. */
static json_object *text_with_gap(
	const struct sandbox_output *output, const char *bytes, size_t len)
{
	size_t at = (size_t)output->omitted_at;
	_cleanup_free_ char *text = xcalloc(1, len + GAP_MAX_BYTES);
	size_t n = at;

	memcpy(text, bytes, at);
	if (n > 0 && text[n - 1] != '\n') {
		text[n++] = '\n';
	}
	n += (size_t)snprintf(text + n, GAP_MAX_BYTES - 1, GAP_TEXT, output->omitted);
	memcpy(text + n, bytes + at, len - at);
	return view_text(text, n + len - at);
}

static void set_output(json_object *obj, const char *key, const struct sandbox_output *output)
{
	char base64_key[32];
	size_t len = evbuffer_get_length(output->bytes);
	const char *bytes = len ? (const char *)evbuffer_pullup(output->bytes, -1) : "";

	if (output->omitted == 0) {
		view_set_bytes(obj, key, bytes, len);
		return;
	}
	view_set(obj, key, text_with_gap(output, bytes, len));
	if (!utf8_is_valid(bytes, len)) {
		snprintf(base64_key, sizeof base64_key, "%s_base64", key);
		json_object_object_add(obj, base64_key, view_base64(bytes, len));
	}
	set_count(obj, key, "omitted_bytes", output->omitted);
	set_count(obj, key, "omitted_at", output->omitted_at);
}

static void set_end(json_object *obj, const struct sandbox_exec_result *result)
{
	const struct guest_exec_result *guest = &result->guest;

	view_set_int(
		obj, "exit_code", guest->timed_out ? VIEW_EXIT_CODE_TIMED_OUT : guest->exit_code);
	view_set(obj, "signal", guest->signal ? json_object_new_int(guest->signal) : NULL);
	view_set_bool(obj, "timed_out", guest->timed_out);
	view_set_bool(obj, "truncated", guest->truncated);
	view_set_int(obj, "duration_ms", (int64_t)(guest->duration_us / 1000));
	set_count(obj, "stdout", "bytes", result->out.total);
	set_count(obj, "stderr", "bytes", result->err_out.total);
}

json_object *view_exec(const struct sandbox_exec_result *result)
{
	json_object *obj = json_object_new_object();

	view_set_text(obj, "id", result->id);
	set_output(obj, "stdout", &result->out);
	set_output(obj, "stderr", &result->err_out);
	set_end(obj, result);
	return obj;
}

json_object *view_exec_end(const struct sandbox_exec_result *result)
{
	json_object *obj = json_object_new_object();

	view_set_text(obj, "id", result->id);
	set_end(obj, result);
	return obj;
}
