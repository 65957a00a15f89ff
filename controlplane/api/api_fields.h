#pragma once

/*
 * api_fields - the arguments of each operation
 *
 * Purpose: what api_table.c's rows point to. The last field of each has no name.
 * Uses:    api.
 */

#include "api/api.h"

extern const struct api_field api_fields_none[];
extern const struct api_field api_fields_sandbox_create[];
extern const struct api_field api_fields_sandbox_list[];
extern const struct api_field api_fields_sandbox_one[];
extern const struct api_field api_fields_sandbox_extend[];
extern const struct api_field api_fields_sandbox_again[]; /* restart, reset */
extern const struct api_field api_fields_exec[];
extern const struct api_field api_fields_exec_get[];
extern const struct api_field api_fields_exec_output[];
extern const struct api_field api_fields_exec_stdin[];
extern const struct api_field api_fields_exec_kill[];
extern const struct api_field api_fields_pty[];
extern const struct api_field api_fields_file_read[];
extern const struct api_field api_fields_file_write[];
extern const struct api_field api_fields_account_create[];
extern const struct api_field api_fields_key_create[];
extern const struct api_field api_fields_key_list[];
extern const struct api_field api_fields_key_one[];
extern const struct api_field api_fields_strays[];
