#include "daemon/config.h"

#include <limits.h>
#include <string.h>

#include "base/fs.h"
#include "base/id.h"
#include "base/log.h"
#include "base/parse.h"
#include "base/xalloc.h"
#include "daemon/config_table.h"
#include "daemon/ini.h"

/*
 * Theory of operation. config_assign() is the one way in for a value, whatever its source; each
 * source only finds section, key and text. CONFIG_LINES keys replace what an earlier source gave
 * with the first line of the new one, so `given` remembers, per source, which rows it has named.
 *
 * What a file can't hold is refused from every source, so that what is dumped reads back the same.
 */

#define CONFIG_FILE_MAX (256 * 1024)
#define VALUE_MAX       4096
#define ENV_PREFIX      "PADDOCK_"

struct config_source {
	struct config *config;
	bool given[64];
	bool sizes_given[CONFIG_SIZES_MAX];
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

static int check_list(const struct config_row *row, char *const *list, struct err *err)
{
	for (; row->check && *list; list++) {
		if (row->check(*list, err) != 0) {
			return -1;
		}
	}
	return 0;
}

static int assign_list(const struct config_row *row, const char *value, char ***at, struct err *err)
{
	char **list = split_list(value);

	if (check_list(row, list, err) != 0) {
		strv_free(list);
		return -1;
	}
	strv_free(*at);
	*at = list;
	return 0;
}

/* The first line of a source replaces those of the source before; an empty one gives none. */
static int assign_line(
	const struct config_row *row, bool is_first, const char *value, char ***at, struct err *err)
{
	if (value[0] != '\0' && row->check && row->check(value, err) != 0) {
		return -1;
	}
	if (is_first) {
		strv_free(*at);
		*at = xcalloc(1, sizeof **at);
	}
	if (value[0] != '\0') {
		append_line(at, value);
	}
	return 0;
}

static int assign_row(struct config_source *source, const struct config_row *row, const char *value,
	struct err *err)
{
	void *at = member(source->config, row);
	size_t index = (size_t)(row - config_rows);

	bool is_first = !source->given[index];

	if (!is_first && row->type != CONFIG_LINES) {
		return err_set(err, ERR_INVALID, "given twice");
	}
	source->given[index] = true;
	switch (row->type) {
	case CONFIG_STRING:
		if (row->check && row->check(value, err) != 0) {
			return -1;
		}
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
		return assign_list(row, value, at, err);
	case CONFIG_LINES:
		return assign_line(row, is_first, value, at, err);
	default:
		ASSERT(!"a type without a case");
		return -1;
	}
}

static int assign_size(
	struct config_source *source, const char *name, const char *value, struct err *err)
{
	struct config *config = source->config;
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
	size_t index = (size_t)(size - config->sizes);

	if (source->sizes_given[index]) {
		return err_set(err, ERR_INVALID, "given twice");
	}
	source->sizes_given[index] = true;
	size->vcpus = vcpus;
	size->memory_mb = memory_mb;
	size->disk_gb = disk_gb;
	return 0;
}

static const struct config_row *find_row(const char *section, const char *key)
{
	for (size_t i = 0; i < config_row_count; i++) {
		if (strcmp(config_rows[i].section, section) == 0 &&
			strcmp(config_rows[i].key, key) == 0) {
			return &config_rows[i];
		}
	}
	return NULL;
}

/* Can a line of a file hold it? */
static int check_text(const char *value, struct err *err)
{
	size_t len = strlen(value);

	if (len > VALUE_MAX) {
		return err_set(err, ERR_INVALID, "longer than %d bytes", VALUE_MAX);
	}
	if (!utf8_is_valid(value, len)) {
		return err_set(err, ERR_INVALID, "not UTF-8 text");
	}
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)value[i];

		if ((c < 0x20 && c != '\t') || c == 0x7f) {
			return err_set(err, ERR_INVALID, "holds a control character");
		}
		if (c == ';' && (i == 0 || strchr(" \t", value[i - 1]))) {
			return err_set(err, ERR_INVALID,
				"holds a ; behind a blank, where a comment begins");
		}
	}
	if (len > 0 && (strchr(" \t", value[0]) || strchr(" \t", value[len - 1]))) {
		return err_set(err, ERR_INVALID, "begins or ends with a blank");
	}
	return 0;
}

static int config_assign(struct config_source *source, const char *section, const char *key,
	const char *value, struct err *err)
{
	const struct config_row *row = find_row(section, key);
	bool is_size = strcmp(section, "sizes") == 0;

	if (!row && !is_size) {
		return err_set(
			err, ERR_INVALID, "%.64s.%.64s: there is no such setting", section, key);
	}
	if (check_text(value, err) != 0 || (is_size ? assign_size(source, key, value, err)
						    : assign_row(source, row, value, err)) != 0) {
		return err_wrap(err, "%s.%.64s", section, key);
	}
	return 0;
}

void config_init(struct config *config)
{
	struct config_source source = {.config = config};
	struct err err;

	ASSERT(config_row_count <= ARRAY_SIZE(source.given));
	memset(config, 0, sizeof *config);
	for (size_t i = 0; i < config_row_count; i++) {
		ASSERT(assign_row(&source, &config_rows[i], config_rows[i].preset, &err) == 0);
	}
	for (size_t i = 0; i < config_size_preset_count; i++) {
		ASSERT(assign_size(&source, config_size_presets[i].name,
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

static int on_line(
	void *arg, const char *section, const char *key, const char *value, struct err *err)
{
	return config_assign(arg, section, key, value, err);
}

int config_read_file(struct config *config, const char *path, struct err *err)
{
	struct config_source source = {.config = config};
	_cleanup_free_ char *text = NULL;
	unsigned line;
	size_t len;

	if (fs_read(path, CONFIG_FILE_MAX, &text, &len, err) != 0) {
		return err_wrap(err, "configuration");
	}
	if (strlen(text) != len || !utf8_is_valid(text, len)) {
		return err_set(err, ERR_INVALID, "%s: not UTF-8 text", path);
	}
	if (ini_read(text, on_line, &source, &line, err) != 0) {
		return err_wrap(err, "%s:%u", path, line);
	}
	return 0;
}

/* ---- environment ---- */

/* @name begins with PADDOCK_<SECTION>_: returns what follows. */
static const char *after_section(const char *name, const char *section)
{
	size_t len = strlen(section);

	name += strlen(ENV_PREFIX);
	return strncasecmp(name, section, len) == 0 && name[len] == '_' ? name + len + 1 : NULL;
}

/* "limits" for PADDOCK_LIMITS_…; NULL: no section of ours. *ret_key: what follows. */
static const char *find_section(const char *name, const char **ret_key)
{
	for (size_t i = 0; i < config_row_count; i++) {
		*ret_key = after_section(name, config_rows[i].section);
		if (*ret_key) {
			return config_rows[i].section;
		}
	}
	*ret_key = after_section(name, "sizes");
	return *ret_key ? "sizes" : NULL;
}

static int read_variable(struct config_source *source, const char *variable, struct err *err)
{
	const char *equals = strchr(variable, '=');
	_cleanup_free_ char *name = xasprintf(
		"%.*s", equals ? (int)(equals - variable) : 0, variable);
	const char *rest;
	const char *section = equals ? find_section(name, &rest) : NULL;

	if (!section) {
		return 0;
	}
	_cleanup_free_ char *key = xstrdup(rest);

	for (char *c = key; *c; c++) {
		*c = (char)(*c >= 'A' && *c <= 'Z' ? *c - 'A' + 'a' : *c);
		/* A size's name has dashes, which a variable's can't have. */
		*c = (char)(*c == '_' && strcmp(section, "sizes") == 0 ? '-' : *c);
	}
	if (config_assign(source, section, key, equals + 1, err) != 0) {
		return err_wrap(err, "environment variable %.64s", name);
	}
	return 0;
}

int config_read_environment(struct config *config, char *const *environment, struct err *err)
{
	struct config_source source = {.config = config};

	for (; *environment; environment++) {
		if (strncmp(*environment, ENV_PREFIX, strlen(ENV_PREFIX)) == 0 &&
			read_variable(&source, *environment, err) != 0) {
			return -1;
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

/* ---- what spans keys ---- */

static void default_path(char **path, const char *dir, const char *name)
{
	if ((*path)[0] == '\0') {
		free(*path);
		*path = xasprintf("%s/%s", dir, name);
	}
}

static int check_listen(const struct config *config, struct err *err)
{
	_cleanup_free_ char *host = NULL;
	uint16_t port;
	bool is_loopback;

	if (config_parse_listen(config->listen, &host, &port, &is_loopback, err) != 0) {
		return err_wrap(err, "server.listen");
	}
	if (!is_loopback && !config->allow_insecure) {
		return err_set(err, ERR_INVALID,
			"server.listen: %s is reachable from other machines, and keys would cross "
			"the network in clear; put a TLS proxy before a loopback address, or set "
			"server.allow_insecure = yes",
			host);
	}
	return 0;
}

int config_finish(struct config *config, struct err *err)
{
	default_path(&config->admin_socket, config->state_dir, "admin.sock");
	default_path(&config->run_dir, config->state_dir, "run");
	if (check_listen(config, err) != 0) {
		return -1;
	}
	if (config->exec_timeout_ms > config->exec_timeout_max_ms) {
		return err_set(err, ERR_INVALID,
			"limits.exec_timeout_ms: may not exceed limits.exec_timeout_max_ms");
	}
	if (config->exec_output_bytes > config->exec_output_max_bytes) {
		return err_set(err, ERR_INVALID,
			"limits.exec_output_bytes: may not exceed limits.exec_output_max_bytes");
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

const struct config_size *config_find_size(const struct config *config, const char *name)
{
	for (unsigned i = 0; i < config->size_count; i++) {
		if (strcmp(config->sizes[i].name, name) == 0) {
			return &config->sizes[i];
		}
	}
	return NULL;
}
