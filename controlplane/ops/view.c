#include "ops/view.h"

#include <string.h>

#include "api/api_errors.h"
#include "base/base64.h"
#include "base/clock.h"
#include "base/parse.h"
#include "base/xalloc.h"

#define MODE_BITS 07777u

/* Keys are constants of ours. */
#define KEY_FLAGS (JSON_C_OBJECT_ADD_KEY_IS_NEW | JSON_C_OBJECT_ADD_CONSTANT_KEY)

void view_set(json_object *obj, const char *key, json_object *value)
{
	json_object_object_add_ex(obj, key, value, KEY_FLAGS);
}

void view_set_text(json_object *obj, const char *key, const char *text)
{
	view_set(obj, key, text ? json_object_new_string(text) : NULL);
}

void view_set_int(json_object *obj, const char *key, int64_t number)
{
	view_set(obj, key, json_object_new_int64(number));
}

void view_set_bool(json_object *obj, const char *key, bool is_true)
{
	view_set(obj, key, json_object_new_boolean(is_true));
}

void view_set_time(json_object *obj, const char *key, int64_t wall_ms)
{
	char text[CLOCK_TEXT_BYTES];

	view_set_text(obj, key, clock_format(wall_ms, text));
}

void view_set_moment(json_object *obj, const char *key, int64_t wall_ms)
{
	if (wall_ms) {
		view_set_time(obj, key, wall_ms);
	} else {
		view_set(obj, key, NULL);
	}
}

/* ---- bytes ---- */

static json_object *lossy_text(const char *bytes, size_t len)
{
	static const char replacement[] = "\xef\xbf\xbd";
	_cleanup_free_ char *out = xcalloc(len * 3 + 1, 1);
	size_t n = 0;

	for (size_t i = 0; i < len;) {
		uint32_t code;
		size_t valid = utf8_decode(bytes + i, len - i, &code);

		memcpy(out + n, valid ? bytes + i : replacement, valid ? valid : 3);
		n += valid ? valid : 3;
		i += valid ? valid : 1;
	}
	return json_object_new_string_len(out, (int)n);
}

json_object *view_text(const char *bytes, size_t len)
{
	return utf8_is_valid(bytes, len) ? json_object_new_string_len(bytes, (int)len)
					 : lossy_text(bytes, len);
}

json_object *view_base64(const char *bytes, size_t len)
{
	size_t size = BASE64_ENCODED_BYTES(len);
	_cleanup_free_ char *out = xcalloc(size + 1, 1);

	base64_encode(out, bytes, len);
	return json_object_new_string_len(out, (int)size);
}

void view_set_bytes(json_object *obj, const char *key, const char *bytes, size_t len)
{
	char other[64];

	if (utf8_is_valid(bytes, len)) {
		view_set(obj, key, json_object_new_string_len(bytes, (int)len));
		return;
	}
	view_set(obj, key, lossy_text(bytes, len));
	snprintf(other, sizeof other, "%s_base64", key);
	json_object_object_add(obj, other, view_base64(bytes, len));
}

/* A message may hold what a guest said. */
static void set_message(json_object *obj, const char *key, const char *text)
{
	view_set(obj, key, text ? view_text(text, strlen(text)) : NULL);
}

/* ---- errors ---- */

json_object *view_error(const struct err *err, const char *code, const char *request_id)
{
	json_object *outer = json_object_new_object();
	json_object *error = json_object_new_object();

	view_set_text(error, "type", api_error_of(err->kind)->type);
	if (err->kind == ERR_INTERNAL) {
		view_set_text(error, "message", "internal error");
	} else {
		set_message(error, "message", err->msg);
	}
	if (code) {
		view_set_text(error, "code", code);
	}
	view_set_text(error, "request_id", request_id);
	view_set(outer, "error", error);
	return outer;
}

/* ---- sandboxes ---- */

json_object *view_sandbox(const struct store_sandbox *row, bool has_account)
{
	json_object *obj = json_object_new_object();
	json_object *metadata = row->metadata ? json_tokener_parse(row->metadata) : NULL;

	view_set_text(obj, "id", row->id);
	if (has_account) {
		view_set_text(obj, "account", row->account);
	}
	view_set_text(obj, "name", row->name);
	view_set_text(obj, "status", row->state);
	set_message(obj, "reason", row->reason);
	view_set_text(obj, "size", row->size ? row->size : "custom");
	view_set_int(obj, "vcpus", row->vcpus);
	view_set_int(obj, "memory_mb", row->memory_mb);
	view_set_int(obj, "disk_gb", row->disk_gb);
	view_set_text(obj, "image", row->image);
	view_set_text(obj, "network", row->network);
	view_set_bool(obj, "temporary", row->is_temporary);
	view_set(obj, "metadata", metadata ? metadata : json_object_new_object());
	view_set_moment(obj, "created_at", row->created_at_ms);
	view_set_moment(obj, "ready_at", row->ready_at_ms);
	view_set_moment(obj, "expires_at", row->expires_at_ms);
	view_set_moment(obj, "ended_at", row->ended_at_ms);
	return obj;
}

/* ---- guests ---- */

/* A tail may begin within a character; that one is left out. */
static void set_tail(
	json_object *obj, const char *key, const char *count_key, const struct store_tail *tail)
{
	size_t skip = 0;

	while (tail->total > tail->len && skip < tail->len && skip < 3 &&
		((unsigned char)tail->bytes[skip] & 0xc0) == 0x80) {
		skip++;
	}
	view_set_bytes(obj, key, tail->len ? tail->bytes + skip : "", tail->len - skip);
	view_set_int(obj, count_key, (int64_t)MIN(tail->total, (uint64_t)INT64_MAX));
}

json_object *view_exec_record(const struct store_exec *row)
{
	json_object *obj = json_object_new_object();
	bool has_exited = row->state == STORE_EXEC_EXITED;
	int exit_code = row->timed_out ? VIEW_EXIT_CODE_TIMED_OUT : row->exit_code;

	view_set_text(obj, "id", row->id);
	view_set_text(obj, "status", store_exec_state_name(row->state));
	view_set_bool(obj, "background", row->is_background);
	view_set_bool(obj, "tty", row->has_tty);
	set_message(obj, "command", row->command);
	view_set_moment(obj, "started_at", row->started_at_ms);
	view_set_moment(obj, "ended_at", row->ended_at_ms);
	view_set(obj, "exit_code", has_exited ? json_object_new_int(exit_code) : NULL);
	view_set(obj, "signal", row->signal ? json_object_new_int(row->signal) : NULL);
	view_set_bool(obj, "timed_out", row->timed_out);
	view_set_bool(obj, "truncated", row->truncated);
	view_set(obj, "duration_ms", has_exited ? json_object_new_int64(row->duration_ms) : NULL);
	set_tail(obj, "stdout_tail", "stdout_bytes", &row->out);
	set_tail(obj, "stderr_tail", "stderr_bytes", &row->err_out);
	set_message(obj, "error", row->error);
	return obj;
}

static void set_file_info(json_object *obj, uint64_t size, uint32_t mode, int64_t mtime_ms)
{
	char text[16];

	snprintf(text, sizeof text, "%04o", mode & MODE_BITS);
	view_set_int(obj, "size_bytes", (int64_t)MIN(size, (uint64_t)INT64_MAX));
	view_set_text(obj, "mode", text);
	view_set_time(obj, "modified_at", mtime_ms);
}

static const char *entry_type(char type)
{
	switch (type) {
	case 'f':
		return "file";
	case 'd':
		return "dir";
	case 'l':
		return "symlink";
	default:
		return "other";
	}
}

/* "dir/name", as it can be asked for again. */
static void set_joined(
	json_object *obj, const char *dir, size_t dir_len, const struct guest_entry *entry)
{
	bool needs_slash = dir_len > 0 && dir[dir_len - 1] != '/';
	size_t len = dir_len + needs_slash + entry->name_len;
	_cleanup_free_ char *path = xcalloc(1, len + 1);

	memcpy(path, dir, dir_len);
	path[dir_len] = '/';
	memcpy(path + dir_len + needs_slash, entry->name, entry->name_len);
	view_set_bytes(obj, "path", path, len);
}

json_object *view_entry(const char *dir, size_t dir_len, const struct guest_entry *entry)
{
	json_object *obj = json_object_new_object();
	const char *slash = memrchr(entry->name, '/', entry->name_len);
	const char *name = slash ? slash + 1 : entry->name;

	view_set_bytes(obj, "name", name, entry->name_len - (size_t)(name - entry->name));
	set_joined(obj, dir, dir_len, entry);
	view_set_text(obj, "type", entry_type(entry->type));
	set_file_info(obj, entry->size, entry->mode, entry->mtime_ms);
	return obj;
}

json_object *view_file(const char *path, size_t path_len, const struct guest_file_info *info,
	struct evbuffer *content)
{
	json_object *obj = json_object_new_object();
	size_t len = evbuffer_get_length(content);
	const char *bytes = len ? (const char *)evbuffer_pullup(content, -1) : "";

	view_set_bytes(obj, "path", path, path_len);
	if (utf8_is_valid(bytes, len)) {
		view_set(obj, "content", json_object_new_string_len(bytes, (int)len));
	} else {
		view_set(obj, "content_base64", view_base64(bytes, len));
	}
	evbuffer_drain(content, len);
	set_file_info(obj, info->size, info->mode, info->mtime_ms);
	return obj;
}

/* ---- administration ---- */

json_object *view_account(const struct store_account *account)
{
	json_object *obj = json_object_new_object();

	view_set_text(obj, "id", account->id);
	view_set_text(obj, "name", account->name);
	view_set_moment(obj, "created_at", account->created_at_ms);
	view_set_bool(obj, "disabled", account->is_disabled);
	return obj;
}

json_object *view_key(const struct store_key *key)
{
	json_object *obj = json_object_new_object();

	view_set_text(obj, "id", key->id);
	view_set_text(obj, "account", key->account);
	view_set_text(obj, "name", key->name[0] ? key->name : NULL);
	view_set_text(obj, "hint", key->hint);
	view_set_moment(obj, "created_at", key->created_at_ms);
	view_set_moment(obj, "revoked_at", key->revoked_at_ms);
	view_set_moment(obj, "last_used_at", key->last_used_at_ms);
	return obj;
}

json_object *view_image(const struct image_status *image)
{
	static const char *const states[] = {[IMAGE_VERIFYING] = "verifying",
		[IMAGE_GOOD] = "good",
		[IMAGE_REFUSED] = "refused"};
	json_object *obj = json_object_new_object();
	const struct image *good = image->image;

	view_set_text(obj, "name", image->name);
	view_set_text(obj, "version", image->version);
	view_set_text(obj, "status", states[image->state]);
	view_set_text(obj, "problem", image->problem);
	view_set_bool(obj, "current", image->is_current);
	view_set_bool(obj, "default", image->is_default);
	view_set_text(obj, "kernel_version", good ? good->kernel_version : NULL);
	view_set_text(obj, "agent_version", good ? good->agent_version : NULL);
	view_set(obj, "virtual_size_bytes",
		good ? json_object_new_int64((int64_t)good->virtual_size_bytes) : NULL);
	view_set_text(obj, "created_at", good ? good->created : NULL);
	return obj;
}

static json_object *view_stray(const struct stray *stray, int64_t now_ms)
{
	json_object *obj = json_object_new_object();
	bool has_failed = stray->result == STRAY_FAILED;
	bool is_secret = stray->err.kind == ERR_INTERNAL;

	view_set_text(obj, "kind", stray_kind_name(stray->kind));
	view_set_text(obj, "id", stray->id[0] ? stray->id : NULL);
	view_set_text(obj, "account", stray->account[0] ? stray->account : NULL);
	view_set_text(obj, "instance", stray->instance[0] ? stray->instance : NULL);
	view_set_bytes(obj, "what", stray->what, strlen(stray->what));
	view_set_moment(obj, "since", stray->since_ms);
	view_set_int(obj, "age_seconds",
		stray->since_ms > 0 ? MAX(now_ms - stray->since_ms, (int64_t)0) / MS_PER_SECOND
				    : 0);
	view_set_text(obj, "reason", stray->reason);
	view_set_bool(obj, "reaped", stray->result == STRAY_REAPED);
	view_set_text(obj, "error",
		!has_failed ? NULL
		: is_secret ? "internal error; the log has more"
			    : stray->err.msg);
	return obj;
}

json_object *view_strays(const struct strays_report *report)
{
	json_object *answer = json_object_new_object();
	json_object *data = json_object_new_array();
	int64_t now_ms = clock_wall_ms();
	int64_t reaped = 0;
	int64_t left = 0;

	for (size_t i = 0; i < report->count; i++) {
		const struct stray *stray = &report->strays[i];

		reaped += stray->result == STRAY_REAPED;
		left += stray->result != STRAY_REAPED && !stray->instance[0];
		json_object_array_add(data, view_stray(stray, now_ms));
	}
	view_set(answer, "data", data);
	view_set_int(answer, "reaped", reaped);
	view_set_int(answer, "left", left);
	view_set_int(answer, "young", (int64_t)report->young);
	return answer;
}

json_object *view_hypervisor(const struct hv_info *info)
{
	json_object *obj = json_object_new_object();

	view_set_text(obj, "driver", info->driver);
	view_set_bool(obj, "ready", info->is_ready);
	view_set_text(obj, "acceleration", info->acceleration);
	view_set_text(obj, "acceleration_reason", info->acceleration_why);
	view_set_text(obj, "libvirt_version", info->libvirt_version);
	view_set_text(obj, "qemu_version", info->qemu_version);
	return obj;
}
