#pragma once

/*
 * config_check - what a setting's text must look like
 *
 * Purpose: the checks that rows of config_table.c name. They look at one value alone, so that a
 *          refusal can name the place it came from. A list is checked entry by entry.
 * Thread:  any.
 * Errors:  ERR_INVALID: what is wrong and what is allowed, without the setting's name.
 * Uses:    base, netfilter (exceptions).
 */

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

typedef int (*config_check_fn)(const char *value, struct err *err);

int config_check_listen(const char *value, struct err *err);
int config_check_host(const char *value, struct err *err);
int config_check_origin(const char *value, struct err *err);
int config_check_path(const char *value, struct err *err);          /* absolute */
int config_check_optional_path(const char *value, struct err *err); /* or empty */
int config_check_uri(const char *value, struct err *err);
int config_check_group(const char *value, struct err *err);
int config_check_name(const char *value, struct err *err);
int config_check_private(const char *value, struct err *err);
int config_check_uid(const char *value, struct err *err);
int config_check_env(const char *value, struct err *err);

/* "127.0.0.1:8470", "[::1]:8470"; the caller frees *ret_host. */
int config_parse_listen(const char *text, char **ret_host, uint16_t *ret_port,
	bool *ret_is_loopback, struct err *err);
/* 0: "auto". */
int config_parse_uid(const char *text, int64_t *ret, struct err *err);
