#include "image/manifest.h"

#include <string.h>

#include "base/json.h"
#include "base/xalloc.h"

#define FORMAT           1
#define CMDLINE_MAX      1024
#define TEXT_MAX         128
#define HEX_SHA256_CHARS 64

const char *const manifest_file_names[3] = {"vmlinuz", "initrd.img", "root.qcow2"};

static int damaged(struct err *err, const char *field)
{
	return err_set(err, ERR_UNAVAILABLE, "its manifest is damaged at \"%s\"", field);
}

/* Printable ASCII: this goes to a kernel command line and into answers. */
static int read_text(json_object *from, const char *field, size_t max, char **ret, struct err *err)
{
	json_object *value = NULL;
	const char *text;
	size_t len;

	if (!json_object_object_get_ex(from, field, &value) ||
		!json_object_is_type(value, json_type_string)) {
		return damaged(err, field);
	}
	text = json_object_get_string(value);
	len = (size_t)json_object_get_string_len(value);
	if (len == 0 || len > max) {
		return damaged(err, field);
	}
	for (size_t i = 0; i < len; i++) {
		if (text[i] < ' ' || text[i] > '~') {
			return damaged(err, field);
		}
	}
	*ret = xstrdup(text);
	return 0;
}

static int read_size(json_object *from, const char *field, uint64_t *ret, struct err *err)
{
	json_object *value = NULL;

	if (!json_object_object_get_ex(from, field, &value) ||
		!json_object_is_type(value, json_type_int) || json_object_get_int64(value) <= 0) {
		return damaged(err, field);
	}
	*ret = (uint64_t)json_object_get_int64(value);
	return 0;
}

static int read_file(
	json_object *files, const char *name, struct manifest_file *ret, struct err *err)
{
	_cleanup_free_ char *sha256 = NULL;
	json_object *file = NULL;

	if (!json_object_object_get_ex(files, name, &file) ||
		!json_object_is_type(file, json_type_object)) {
		return damaged(err, name);
	}
	if (read_text(file, "sha256", HEX_SHA256_CHARS, &sha256, err) < 0 ||
		read_size(file, "size", &ret->size, err) < 0) {
		return -1;
	}
	if (strlen(sha256) != HEX_SHA256_CHARS ||
		strspn(sha256, "0123456789abcdef") != HEX_SHA256_CHARS) {
		return damaged(err, name);
	}
	memcpy(ret->sha256, sha256, sizeof(ret->sha256));
	return 0;
}

static int read_files(json_object *root, struct manifest *ret, struct err *err)
{
	json_object *files = NULL;

	if (!json_object_object_get_ex(root, "files", &files) ||
		!json_object_is_type(files, json_type_object)) {
		return damaged(err, "files");
	}
	for (size_t i = 0; i < ARRAY_SIZE(ret->files); i++) {
		if (read_file(files, manifest_file_names[i], &ret->files[i], err) < 0) {
			return -1;
		}
	}
	return 0;
}

int manifest_parse(const char *text, size_t len, struct manifest *ret, struct err *err)
{
	_cleanup_json_ json_object *root = json_parse(text, len, err);
	uint64_t format = 0;

	if (!root || !json_object_is_type(root, json_type_object)) {
		return err_set(err, ERR_UNAVAILABLE, "its manifest is not JSON as it should be");
	}
	if (read_size(root, "format", &format, err) < 0) {
		return -1;
	}
	if (format != FORMAT) {
		return err_set(err, ERR_UNAVAILABLE,
			"its manifest has format %llu, and this paddockd knows only %d",
			(unsigned long long)format, FORMAT);
	}
	if (read_text(root, "name", TEXT_MAX, &ret->name, err) < 0 ||
		read_text(root, "version", TEXT_MAX, &ret->version, err) < 0 ||
		read_text(root, "cmdline", CMDLINE_MAX, &ret->cmdline, err) < 0 ||
		read_text(root, "kernel_version", TEXT_MAX, &ret->kernel_version, err) < 0 ||
		read_text(root, "agent_version", TEXT_MAX, &ret->agent_version, err) < 0 ||
		read_text(root, "created", TEXT_MAX, &ret->created, err) < 0 ||
		read_size(root, "virtual_size_bytes", &ret->virtual_size_bytes, err) < 0) {
		return -1;
	}
	return read_files(root, ret, err);
}

void manifest_fini(struct manifest *manifest)
{
	free(manifest->name);
	free(manifest->version);
	free(manifest->cmdline);
	free(manifest->kernel_version);
	free(manifest->agent_version);
	free(manifest->created);
	*manifest = (struct manifest){0};
}

void manifest_hex(const void *data, size_t len, char *out)
{
	static const char digits[] = "0123456789abcdef";
	const unsigned char *bytes = data;

	for (size_t i = 0; i < len; i++) {
		out[2 * i] = digits[bytes[i] >> 4];
		out[2 * i + 1] = digits[bytes[i] & 15];
	}
	out[2 * len] = '\0';
}
