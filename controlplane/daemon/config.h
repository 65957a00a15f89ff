#pragma once

/*
 * config - the daemon's settings
 *
 * Purpose: one table (config_table.c) holds every key with type, range, default and documentation;
 *          the reader, --dump-config and docs/configuration.md follow from it.
 * Owns:    the strings in struct config.
 * Thread:  start-up, before there are others.
 * Errors:  ERR_INVALID: "FILE:LINE: section.key: what is wrong and what is allowed"; in place of
 * the file the name of the variable or flag. Uses:    base.
 *
 * Order, later wins: defaults, file, environment (PADDOCK_<SECTION>_<KEY>), --set
 * section.key=value. Unknown keys are refused, and so is a key that a file gives twice.
 */

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/cleanup.h"
#include "base/err.h"

#define CONFIG_SIZES_MAX 16

struct config_size {
	char name[32];
	unsigned vcpus;
	unsigned memory_mb;
	unsigned disk_gb;
};

enum config_acceleration { CONFIG_ACCEL_AUTO, CONFIG_ACCEL_KVM, CONFIG_ACCEL_TCG };
enum config_log { CONFIG_LOG_ERROR, CONFIG_LOG_WARNING, CONFIG_LOG_INFO, CONFIG_LOG_DEBUG };
enum config_network { CONFIG_NETWORK_EGRESS, CONFIG_NETWORK_NONE };

struct config {
	/* [server] */
	char *listen;
	char **allowed_hosts;
	char **allowed_origins;
	bool allow_insecure;
	char *admin_socket; /* empty: <state.dir>/admin.sock */

	/* [state] */
	char *state_dir;
	char *run_dir; /* empty: <state.dir>/run */
	char *images_dir;

	/* [hypervisor] */
	char *uri; /* "embed": the embedded driver below the state directory */
	int64_t acceleration;
	char *group;
	int64_t workers; /* 0: one a core */

	/* [image] */
	char *default_image;

	/* [sizes] */
	struct config_size sizes[CONFIG_SIZES_MAX];
	unsigned size_count;

	/* [limits] */
	int64_t sandboxes;
	int64_t vcpus;
	int64_t memory_mb;
	int64_t disk_gb;
	int64_t max_lifetime_minutes;
	int64_t default_timeout_minutes;
	int64_t exec_timeout_ms;
	int64_t exec_timeout_max_ms;
	int64_t exec_output_bytes;
	int64_t exec_output_max_bytes;
	int64_t body_bytes;
	int64_t upload_bytes;
	int64_t bodies_total_bytes;
	int64_t memory_overcommit_percent;
	int64_t boot_timeout_seconds;
	int64_t stray_grace_seconds;

	/* [network] */
	int64_t default_network;
	char **allow_private;
	char *uid_first; /* "auto" or a number */
	int64_t uid_count;

	/* [guest] */
	char **guest_env;
	char *guest_ca_file;

	/* [records] */
	int64_t records_keep_days;
	int64_t records_keep_count;
	int64_t records_results;
	int64_t records_result_bytes;

	/* [log] */
	int64_t log_level;
};

/* All defaults. */
void config_init(struct config *config);
void config_fini(struct config *config);

/* Reads an INI file over what is there. */
int config_read_file(struct config *config, const char *path, struct err *err);
/* Takes PADDOCK_SECTION_KEY from @environ for every key of the table. Other names that begin with
 * PADDOCK_ and a section are refused; beyond that (PADDOCK_URL) they aren't ours to judge. */
int config_read_environment(struct config *config, char *const *environment, struct err *err);
/* "section.key=value" */
int config_set(struct config *config, const char *assignment, struct err *err);
/* What spans keys: fills derived defaults, checks that they fit together. Last. */
int config_finish(struct config *config, struct err *err);

/* The whole configuration as an INI file with each key's documentation; it reads back the same. */
void config_dump(const struct config *config, FILE *out);
/* The table as docs/configuration.md. */
void config_doc(FILE *out);

/* NULL: none of that name. */
const struct config_size *config_find_size(const struct config *config, const char *name);
