#include "daemon/config.h"

#include <ini.h>
#include <limits.h>
#include <string.h>

#include "base/fs.h"
#include "base/id.h"
#include "base/log.h"
#include "base/parse.h"
#include "base/xalloc.h"
#include "daemon/config_table.h"

/*
 * Theory of operation. config_assign() is the one way in for a value, whatever its source; each
 * source only finds section, key and text. CONFIG_LINES keys replace what an earlier source gave
 * with the first line of the new one, so `replaced` remembers, per source, which rows have been
 * started afresh.
 */

#define CONFIG_FILE_MAX (256 * 1024)
#define VALUE_MAX       4096
/* With the end of the line and a terminator it just fits. */
#define LINE_MAX_BYTES (INI_MAX_LINE - 2)

struct config_source {
	struct config *config;
	bool replaced[64];
	struct err *err;
};

static void *member(const struct config *config, const struct config_row *row)
{
	return (char *)config + row->offset;
}

static char **split_list(const char *text)
{
	_cleanup_free_ char *copy = xstrdup(text);
	char **list = xcalloc(1, sizeof *list);
	size_t n = 0;
	char *save = NULL;

	for (char *word = strtok_r(copy, ", \t", &save); word;
		word = strtok_r(NULL, ", \t", &save)) {
		list = xrealloc(list, n + 2, sizeof *list);
		list[n++] = xstrdup(word);
		list[n] = NULL;
	}
	return list;
}

static void append_line(char ***list, const char *text)
{
	size_t n = strv_length(*list);

	*list = xrealloc(*list, n + 2, sizeof **list);
	(*list)[n] = xstrdup(text);
	(*list)[n + 1] = NULL;
}

static int assign_enum(
	const struct config_row *row, const char *value, int64_t *ret, struct err *err)
{
	char known[128] = "";

	for (int64_t i = 0; row->choices[i]; i++) {
		if (strcmp(row->choices[i], value) == 0) {
			*ret = i;
			return 0;
		}
		size_t n = strlen(known);
		snprintf(known + n, sizeof known - n, "%s%s", i ? ", " : "", row->choices[i]);
	}
	return err_set(err, ERR_INVALID, "must be one of %s", known);
}

static int assign_row(struct config_source *source, const struct config_row *row, const char *value,
	struct err *err)
{
	void *at = member(source->config, row);
	size_t index = (size_t)(row - config_rows);

	switch (row->type) {
	case CONFIG_STRING:
		free(*(char **)at);
		*(char **)at = xstrdup(value);
		return 0;
	case CONFIG_INT:
		return parse_int(value, row->min, row->max, at, err);
	case CONFIG_BOOL:
		return parse_bool(value, at, err);
	case CONFIG_ENUM:
		return assign_enum(row, value, at, err);
	case CONFIG_LIST:
		strv_free(*(char ***)at);
		*(char ***)at = split_list(value);
		return 0;
	case CONFIG_LINES:
		if (!source->replaced[index]) {
			source->replaced[index] = true;
			strv_free(*(char ***)at);
			*(char ***)at = xcalloc(1, sizeof(char *));
		}
		if (value[0] != '\0') {
			append_line(at, value);
		}
		return 0;
	default:
		ASSERT(!"a type without a case");
		return -1;
	}
}

static int assign_size(struct config *config, const char *name, const char *value, struct err *err)
{
	unsigned vcpus;
	unsigned memory_mb;
	unsigned disk_gb;
	int end = 0;

	if (!name_is_valid(name) || strlen(name) >= sizeof config->sizes[0].name) {
		return err_set(err, ERR_INVALID,
			"a size's name is up to 31 lower-case letters, digits and dashes");
	}
	if (sscanf(value, "%7u/%9u/%7u%n", &vcpus, &memory_mb, &disk_gb, &end) != 3 ||
		value[end] != '\0' || vcpus < 1 || vcpus > 256 || memory_mb < 128 ||
		memory_mb > 16777216 || disk_gb < 2 || disk_gb > 65536) {
		return err_set(err, ERR_INVALID,
			"must be vcpus/memory_mb/disk_gb within 1-256, 128-16777216 and 2-65536");
	}
	struct config_size *size = (struct config_size *)config_find_size(config, name);

	if (!size) {
		if (config->size_count == CONFIG_SIZES_MAX) {
			return err_set(err, ERR_INVALID, "at most %d sizes", CONFIG_SIZES_MAX);
		}
		size = &config->sizes[config->size_count++];
		snprintf(size->name, sizeof size->name, "%s", name);
	}
	size->vcpus = vcpus;
	size->memory_mb = memory_mb;
	size->disk_gb = disk_gb;
	return 0;
}

static int config_assign(struct config_source *source, const char *section, const char *key,
	const char *value, struct err *err)
{
	char quoted[128];
	int rc = -1;

	if (strlen(value) > VALUE_MAX) {
		err_set(err, ERR_INVALID, "longer than %d bytes", VALUE_MAX);
		return err_wrap(err, "%s.%s", section, key);
	}
	if (strcmp(section, "sizes") == 0) {
		rc = assign_size(source->config, key, value, err);
		return rc == 0 ? 0 : err_wrap(err, "sizes.%s", key);
	}
	for (size_t i = 0; i < config_row_count; i++) {
		const struct config_row *row = &config_rows[i];

		if (strcmp(row->section, section) == 0 && strcmp(row->key, key) == 0) {
			rc = assign_row(source, row, value, err);
			return rc == 0 ? 0 : err_wrap(err, "%s.%s", section, key);
		}
	}
	snprintf(quoted, sizeof quoted, "%s.%s", section, key);
	return err_set(err, ERR_INVALID, "%s: there is no such setting", quoted);
}

void config_init(struct config *config)
{
	struct config_source source = {.config = config};
	struct err err;

	ASSERT(config_row_count <= ARRAY_SIZE(source.replaced));
	memset(config, 0, sizeof *config);
	for (size_t i = 0; i < config_row_count; i++) {
		ASSERT(assign_row(&source, &config_rows[i], config_rows[i].preset, &err) == 0);
	}
	for (size_t i = 0; i < config_size_preset_count; i++) {
		ASSERT(assign_size(config, config_size_presets[i].name,
			       config_size_presets[i].value, &err) == 0);
	}
}

void config_fini(struct config *config)
{
	for (size_t i = 0; i < config_row_count; i++) {
		const struct config_row *row = &config_rows[i];

		if (row->type == CONFIG_STRING) {
			free(*(char **)member(config, row));
		} else if (row->type == CONFIG_LIST || row->type == CONFIG_LINES) {
			strv_free(*(char ***)member(config, row));
		}
	}
	memset(config, 0, sizeof *config);
}

static int on_ini(void *user, const char *section, const char *key, const char *value)
{
	struct config_source *source = user;

	/* inih goes on after an error; the first one is the one to tell. */
	if (source->err->kind != ERR_NONE) {
		return 0;
	}
	return config_assign(source, section, key, value ? value : "", source->err) == 0;
}

/* What inih would take for something else without a word: the end of a line that is too long for
 * its buffer is the next line to it, and an indented one is a further value of the key above, which
 * for most replaces the first. */
static int check_lines(const char *path, const char *text, struct err *err)
{
	for (unsigned number = 1; *text; number++) {
		size_t len = strcspn(text, "\n");
		size_t indent = strspn(text, " \t\r");

		if (len > LINE_MAX_BYTES) {
			return err_set(err, ERR_INVALID,
				"%s:%u: a line must have at most %d bytes, not %zu; the "
				"environment and --set take more",
				path, number, LINE_MAX_BYTES, len);
		}
		if (indent > 0 && indent < len && !strchr("#;", text[indent])) {
			return err_set(err, ERR_INVALID,
				"%s:%u: a line must not begin with a blank: values don't go on "
				"from one line to the next",
				path, number);
		}
		text += len + (text[len] == '\n');
	}
	return 0;
}

int config_read_file(struct config *config, const char *path, struct err *err)
{
	struct config_source source = {.config = config, .err = err};
	_cleanup_free_ char *text = NULL;
	size_t len;

	if (fs_read(path, CONFIG_FILE_MAX, &text, &len, err) != 0) {
		return err_wrap(err, "configuration");
	}
	if (strlen(text) != len || !utf8_is_valid(text, len)) {
		return err_set(err, ERR_INVALID, "%s: not UTF-8 text", path);
	}
	if (check_lines(path, text, err) < 0) {
		return -1;
	}
	err->kind = ERR_NONE;
	int line = ini_parse_string(text, on_ini, &source);

	if (line == 0) {
		return 0;
	}
	if (err->kind == ERR_NONE) {
		err_set(err, ERR_INVALID, "neither a [section], a key = value nor a comment");
	}
	return err_wrap(err, "%s:%d", path, line);
}

int config_read_environment(struct config *config, char *const *environment, struct err *err)
{
	struct config_source source = {.config = config};

	for (size_t i = 0; i < config_row_count; i++) {
		const struct config_row *row = &config_rows[i];
		char name[64];
		int n = snprintf(name, sizeof name, "PADDOCK_%s_%s=", row->section, row->key);

		for (char *c = name; *c; c++) {
			*c = (char)(*c >= 'a' && *c <= 'z' ? *c - 'a' + 'A' : *c);
		}
		for (size_t k = 0; environment[k]; k++) {
			if (strncmp(environment[k], name, (size_t)n) == 0 &&
				config_assign(&source, row->section, row->key, environment[k] + n,
					err) != 0) {
				name[n - 1] = '\0';
				return err_wrap(err, "environment variable %s", name);
			}
		}
	}
	return 0;
}

int config_set(struct config *config, const char *assignment, struct err *err)
{
	struct config_source source = {.config = config};
	_cleanup_free_ char *copy = xstrdup(assignment);
	char *equals = strchr(copy, '=');
	char *dot = strchr(copy, '.');

	if (!equals || !dot || dot > equals) {
		return err_set(err, ERR_INVALID, "must look like section.key=value");
	}
	*dot = '\0';
	*equals = '\0';
	return config_assign(&source, copy, dot + 1, equals + 1, err);
}

static void default_path(char **path, const char *dir, const char *name)
{
	if ((*path)[0] == '\0') {
		free(*path);
		*path = xasprintf("%s/%s", dir, name);
	}
}

static int check_absolute(const char *key, const char *path, struct err *err)
{
	return path[0] == '/' ? 0 : err_set(err, ERR_INVALID, "%s: must be an absolute path", key);
}

static int check_env(char *const *env, struct err *err)
{
	for (size_t i = 0; env && env[i]; i++) {
		size_t n = strcspn(env[i], "=");

		if (n == 0 || env[i][n] != '=' || (env[i][0] >= '0' && env[i][0] <= '9') ||
			strspn(env[i], "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_"
				       "0123456789") != n) {
			return err_set(err, ERR_INVALID,
				"guest.env: must be NAME=VALUE with letters, digits and _ in the "
				"name");
		}
	}
	return 0;
}

static int check_log_level(const char *name, struct err *err)
{
	static const char *const names[] = {"error", "warning", "info", "debug"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (strcmp(name, names[i]) == 0) {
			return 0;
		}
	}
	return err_set(err, ERR_INVALID, "log.level: must be error, warning, info or debug");
}

int config_finish(struct config *config, struct err *err)
{
	if (check_absolute("state.dir", config->state_dir, err) != 0) {
		return -1;
	}
	default_path(&config->admin_socket, config->state_dir, "admin.sock");
	default_path(&config->run_dir, config->state_dir, "run");
	if (check_absolute("server.admin_socket", config->admin_socket, err) != 0 ||
		check_absolute("state.run_dir", config->run_dir, err) != 0 ||
		check_absolute("state.images", config->images_dir, err) != 0 ||
		check_env(config->guest_env, err) != 0 ||
		check_log_level(config->log_level, err) != 0) {
		return -1;
	}
	if (config->guest_ca_file[0] != '\0' &&
		check_absolute("guest.ca_file", config->guest_ca_file, err) != 0) {
		return -1;
	}
	if (config->exec_timeout_ms > config->exec_timeout_max_ms) {
		return err_set(err, ERR_INVALID,
			"limits.exec_timeout_ms: may not exceed limits.exec_timeout_max_ms");
	}
	if (config->default_timeout_minutes > config->max_lifetime_minutes) {
		return err_set(err, ERR_INVALID,
			"limits.default_timeout: may not exceed limits.max_lifetime");
	}
	if (config->body_bytes > config->bodies_total_bytes) {
		return err_set(err, ERR_INVALID,
			"limits.body_bytes: may not exceed limits.bodies_total_bytes");
	}
	return 0;
}

static void dump_value(const struct config *config, const struct config_row *row, FILE *out)
{
	const void *at = member(config, row);

	switch (row->type) {
	case CONFIG_STRING:
		fprintf(out, "%s = %s\n", row->key, *(char *const *)at);
		break;
	case CONFIG_INT:
		fprintf(out, "%s = %lld\n", row->key, (long long)*(const int64_t *)at);
		break;
	case CONFIG_BOOL:
		fprintf(out, "%s = %s\n", row->key, *(const bool *)at ? "yes" : "no");
		break;
	case CONFIG_ENUM:
		fprintf(out, "%s = %s\n", row->key, row->choices[*(const int64_t *)at]);
		break;
	case CONFIG_LIST:
		fprintf(out, "%s =", row->key);
		for (char *const *word = *(char **const *)at; *word; word++) {
			fprintf(out, " %s", *word);
		}
		fputc('\n', out);
		break;
	case CONFIG_LINES:
		for (char *const *line = *(char **const *)at; *line; line++) {
			fprintf(out, "%s = %s\n", row->key, *line);
		}
		break;
	default:
		ASSERT(!"a type without a case");
	}
}

static void dump_doc(const struct config_row *row, FILE *out)
{
	fprintf(out, "# %s", row->doc);
	if (row->type == CONFIG_INT) {
		fprintf(out, " From %lld to %lld.", (long long)row->min, (long long)row->max);
	}
	for (size_t i = 0; row->choices && row->choices[i]; i++) {
		fprintf(out, "%s%s", i ? ", " : " One of: ", row->choices[i]);
	}
	fprintf(out, "%s Default: %s\n", row->choices ? "." : "",
		row->preset[0] ? row->preset : "empty");
}

void config_dump(const struct config *config, FILE *out)
{
	const char *section = "";

	for (size_t i = 0; i < config_row_count; i++) {
		const struct config_row *row = &config_rows[i];

		if (strcmp(section, row->section) != 0) {
			fprintf(out, "%s[%s]\n", i ? "\n" : "", row->section);
			section = row->section;
		}
		dump_doc(row, out);
		dump_value(config, row, out);
	}
	fprintf(out, "\n[sizes]\n# NAME = vcpus/memory_mb/disk_gb\n");
	for (unsigned i = 0; i < config->size_count; i++) {
		const struct config_size *size = &config->sizes[i];

		fprintf(out, "%s = %u/%u/%u\n", size->name, size->vcpus, size->memory_mb,
			size->disk_gb);
	}
}

const struct config_size *config_find_size(const struct config *config, const char *name)
{
	for (unsigned i = 0; i < config->size_count; i++) {
		if (strcmp(config->sizes[i].name, name) == 0) {
			return &config->sizes[i];
		}
	}
	return NULL;
}
