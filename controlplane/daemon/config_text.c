#include <string.h>

#include "base/macros.h"
#include "daemon/config.h"
#include "daemon/config_table.h"

/*
 * Theory of operation. The table as text, twice: config_dump() writes the settings as they are,
 * with their documentation as comments, and config_doc() the documentation alone.
 */

static const void *member(const struct config *config, const struct config_row *row)
{
	return (const char *)config + row->offset;
}

/* What the row accepts, as the end of a sentence's row: " From 1 to 20. Default: 5". */
static void write_limits(const struct config_row *row, FILE *out)
{
	if (row->type == CONFIG_INT) {
		fprintf(out, " From %lld to %lld.", (long long)row->min, (long long)row->max);
	}
	for (size_t i = 0; row->choices && row->choices[i]; i++) {
		fprintf(out, "%s%s", i ? ", " : " One of: ", row->choices[i]);
	}
	fputs(row->choices ? "." : "", out);
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

void config_dump(const struct config *config, FILE *out)
{
	const char *section = "";

	for (size_t i = 0; i < config_row_count; i++) {
		const struct config_row *row = &config_rows[i];

		if (strcmp(section, row->section) != 0) {
			fprintf(out, "%s[%s]\n", i ? "\n" : "", row->section);
			section = row->section;
		}
		fprintf(out, "# %s", row->doc);
		write_limits(row, out);
		fprintf(out, " Default: %s\n", row->preset[0] ? row->preset : "empty");
		dump_value(config, row, out);
	}
	fprintf(out, "\n[sizes]\n# NAME = vcpus/memory_mb/disk_gb\n");
	for (unsigned i = 0; i < config->size_count; i++) {
		const struct config_size *size = &config->sizes[i];

		fprintf(out, "%s = %u/%u/%u\n", size->name, size->vcpus, size->memory_mb,
			size->disk_gb);
	}
}

static const char *type_name(enum config_type type)
{
	static const char *const names[] = {
		[CONFIG_STRING] = "text",
		[CONFIG_INT] = "whole number",
		[CONFIG_BOOL] = "yes or no",
		[CONFIG_ENUM] = "word",
		[CONFIG_LIST] = "list, separated by commas or blanks",
		[CONFIG_LINES] = "text; repeat the key for more",
	};

	return names[type];
}

static const char intro[] =
	"# Configuration of paddockd\n\n"
	"Written by `ninja docs-config` from `controlplane/daemon/config_table.c`; a test "
	"compares.\n\n"
	"paddockd reads, and what comes later wins: its defaults; the file that `--config`, else\n"
	"`PADDOCK_CONFIG`, names, else `/etc/paddock/paddockd.conf` where that exists; the "
	"environment,\n"
	"`PADDOCK_SECTION_KEY=value`; flags, `--set section.key=value`. A setting that there "
	"isn't, one\n"
	"that a file gives twice and a value that isn't allowed are refused with the file and "
	"line, the\n"
	"variable or the flag, and the reason; paddockd exits with 78 then. `--check-config` does "
	"only\n"
	"that; `--dump-config` prints the settings as they come out, as a file that reads back the "
	"same.\n\n"
	"A line of the file is empty, a comment (`#` or `;`), a `[section]` or `key = value`. "
	"Blanks around\n"
	"the parts don't count, ` ;` begins a comment behind a value, and nothing continues on the "
	"next\n"
	"line. A value has at most 4096 bytes of UTF-8 without control characters.\n";

static const char sizes_text[] =
	"\n## [sizes]\n\n"
	"`NAME = vcpus/memory_mb/disk_gb` makes a size that clients can ask for, or changes one: "
	"at most\n"
	"16, each within 1-256 vcpus, 128-16777216 MiB and 2-65536 GB. In the environment the "
	"name's\n"
	"dashes are underscores (`PADDOCK_SIZES_BIG_ONE` is `big-one`). Default:\n\n";

void config_doc(FILE *out)
{
	const char *section = "";

	fputs(intro, out);
	for (size_t i = 0; i < config_row_count; i++) {
		const struct config_row *row = &config_rows[i];

		if (strcmp(section, row->section) != 0) {
			fprintf(out, "\n## [%s]\n\n| key | default | what |\n|---|---|---|\n",
				row->section);
			section = row->section;
		}
		fprintf(out, "| `%s` | %s%s%s | %s *%s.*", row->key, row->preset[0] ? "`" : "",
			row->preset[0] ? row->preset : "empty", row->preset[0] ? "`" : "", row->doc,
			type_name(row->type));
		write_limits(row, out);
		fputs(" |\n", out);
	}
	fputs(sizes_text, out);
	for (size_t i = 0; i < config_size_preset_count; i++) {
		fprintf(out, "    %s = %s\n", config_size_presets[i].name,
			config_size_presets[i].value);
	}
}
