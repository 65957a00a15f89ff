#pragma once

/*
 * config_table - the keys
 *
 * Purpose: the rows that config.c works off. To add a setting: a member in struct config, a row
 * here.
 */

#include <stddef.h>
#include <stdint.h>

#include "daemon/config_check.h"

enum config_type {
	CONFIG_STRING, /* char * */
	CONFIG_INT,    /* int64_t within [min, max] */
	CONFIG_BOOL,
	CONFIG_ENUM,  /* int64_t: index into choices */
	CONFIG_LIST,  /* char **: separated by commas and blanks */
	CONFIG_LINES, /* char **: one value a line, the key repeated */
};

struct config_row {
	const char *section;
	const char *key;
	enum config_type type;
	size_t offset; /* in struct config */
	const char *preset;
	int64_t min;
	int64_t max;
	const char *const *choices; /* NULL-terminated */
	const char *doc;
	config_check_fn check; /* STRING, LIST and LINES: every value or entry; NULL: any text */
};

extern const struct config_row config_rows[];
extern const size_t config_row_count;

/* [sizes] is apart: any name, value "vcpus/memory_mb/disk_gb". */
struct config_size_preset {
	const char *name;
	const char *value;
};
extern const struct config_size_preset config_size_presets[];
extern const size_t config_size_preset_count;
