#include "api/api_fields.h"

#include <stdint.h>

#include "base/id.h"

/* clang-format off */

#define SANDBOX_ID                                                                                 \
	{"id", API_STRING, API_IN_PATH, .is_required = true, .text = API_TEXT_REF, .min = 1,       \
		.max = NAME_MAX_BYTES, .doc = "The sandbox, by id or by name"}

#define FILE_PATH(places)                                                                          \
	{"path", API_STRING, (places) | API_IN_HEADER, .is_required = true, .text = API_TEXT_PATH, \
		.min = 1, .max = API_PATH_MAX_BYTES, .header = "X-File-Path",                      \
		.doc = "Where it is in the sandbox; a relative path starts in `/workspace`. In a " \
		       "query any byte but NUL may be percent-encoded; a header is taken as it is"}

#define OCTETS_MAX INT64_C(0x7fffffffffff)

const struct api_field api_fields_none[] = {{NULL}};

/* ---- sandboxes ---- */

static const char *const networks[] = {"none", "egress", NULL};
static const char *const statuses[] = {
	"provisioning", "running", "stopped", "deleting", "deleted", "failed", "live", "all", NULL};

const struct api_field api_fields_sandbox_create[] = {
	{"size", API_STRING, API_IN_BODY, .text = API_TEXT_LINE, .min = 1, .max = 32,
		.doc = "One of the service's sizes (see `service.info`), `small` where nothing else is "
		       "set. Not together with `vcpus`, `memory_mb` and `disk_gb`"},
	{"vcpus", API_INT, API_IN_BODY, .min = 1, .max = 256,
		.doc = "Virtual CPUs; needs `memory_mb` and `disk_gb` as well"},
	{"memory_mb", API_INT, API_IN_BODY, .min = 128, .max = 4 * 1024 * 1024,
		.doc = "Memory in MiB; needs `vcpus` and `disk_gb` as well"},
	{"disk_gb", API_INT, API_IN_BODY, .min = 1, .max = 65536,
		.doc = "Disk in GB; needs `vcpus` and `memory_mb` as well"},
	{"timeout_minutes", API_INT, API_IN_BODY, .min = 1, .max = API_TIMEOUT_MINUTES_MAX,
		.doc = "Minutes until it is removed, at most the service's `max_lifetime_minutes`. Left "
		       "out: 15 where nothing else is set, and no expiry for a permanent one"},
	{"name", API_STRING, API_IN_BODY, .is_nullable = true, .text = API_TEXT_NAME, .min = 1,
		.max = NAME_MAX_BYTES,
		.doc = "A name, unique among the account's live sandboxes, that may stand wherever an "
		       "id may: lower-case letters, digits and hyphens"},
	{"temporary", API_BOOL, API_IN_BODY, .default_text = "true",
		.doc = "`false` makes a permanent one: it outlives its guest's power-off, and its disk a "
		       "crash of the host"},
	{"image", API_STRING, API_IN_BODY, .is_nullable = true, .text = API_TEXT_LINE, .min = 1,
		.max = NAME_MAX_BYTES, .doc = "Base image; the service's default where left out"},
	{"network", API_ENUM, API_IN_BODY, .choices = networks,
		.doc = "`egress` reaches public addresses, `none` nothing at all. Left out: the "
		       "service's default, and the answer says which it is. `egress` asked for while "
		       "the host's filter is not in place is refused as unavailable"},
	{"env", API_MAP, API_IN_BODY, .text = API_TEXT_ENV, .max = API_ENV_MAX,
		.item_max = API_ENV_VALUE_MAX_BYTES,
		.doc = "Environment of every command, on top of the image's; at most 131072 bytes together"},
	{"metadata", API_MAP, API_IN_BODY, .max = API_METADATA_MAX, .item_max = API_METADATA_MAX_BYTES,
		.doc = "Words of the client's own; `sandbox.list` can look for them"},
	{"wait", API_BOOL, API_IN_BODY, .default_text = "true",
		.doc = "`true`: answer 201 once it accepts commands. `false`: answer 202 at once"},
	{NULL},
};

const struct api_field api_fields_sandbox_list[] = {
	{"status", API_ENUM, API_IN_QUERY, .choices = statuses, .default_text = "live",
		.doc = "Only those in this status. `live`: all that haven't ended; `all`: every record"},
	{"metadata", API_MAP, API_IN_QUERY, .max = API_METADATA_MAX, .item_max = API_METADATA_MAX_BYTES,
		.doc = "Only those whose metadata has KEY with just this value"},
	{"limit", API_INT, API_IN_QUERY, .min = 1, .max = API_LIST_LIMIT_MAX, .default_text = "100",
		.doc = "At most so many"},
	{"cursor", API_STRING, API_IN_QUERY, .text = API_TEXT_LINE, .min = 1, .max = 128,
		.doc = "`next_cursor` of the page before, together with the same filters"},
	{"account", API_STRING, API_IN_QUERY, .text = API_TEXT_REF, .min = 1, .max = NAME_MAX_BYTES,
		.doc = "For administrators: only those of this account, by id or by name"},
	{NULL},
};

const struct api_field api_fields_sandbox_one[] = {SANDBOX_ID, {NULL}};

const struct api_field api_fields_sandbox_extend[] = {
	SANDBOX_ID,
	{"minutes", API_INT, API_IN_BODY, .is_required = true, .min = 1, .max = API_TIMEOUT_MINUTES_MAX,
		.doc = "Added to the present expiry. It never lies further ahead than the service's "
		       "`max_lifetime_minutes`"},
	{NULL},
};

const struct api_field api_fields_sandbox_again[] = {
	SANDBOX_ID,
	{"wait", API_BOOL, API_IN_BODY, .default_text = "true",
		.doc = "`true`: answer once it accepts commands. `false`: answer 202 at once"},
	{NULL},
};

/* ---- commands ---- */

#define EXEC_IN (API_IN_BODY | API_IN_RAW_QUERY)

const struct api_field api_fields_exec[] = {
	SANDBOX_ID,
	{"command", API_STRING, EXEC_IN, .min = 1, .max = API_COMMAND_MAX_BYTES,
		.doc = "A line for the image's shell. Either this or `args`"},
	{"args", API_STRINGS, EXEC_IN, .min = 1, .max = API_ARGS_MAX, .item_max = API_ARG_MAX_BYTES,
		.doc = "Program and arguments, run without a shell"},
	{"shell", API_STRING, EXEC_IN, .min = 1, .max = API_PATH_MAX_BYTES,
		.doc = "Program that takes `command` after `-c`, such as `sh`; the image's `bash`, or else "
		       "its `sh`, where left out"},
	{"cwd", API_STRING, EXEC_IN, .text = API_TEXT_PATH, .min = 1, .max = API_PATH_MAX_BYTES,
		.doc = "Working directory; `/workspace` where left out"},
	{"env", API_MAP, EXEC_IN, .text = API_TEXT_ENV, .max = API_EXEC_ENV_MAX,
		.item_max = API_ENV_VALUE_MAX_BYTES, .doc = "Added to the sandbox's environment"},
	{"stdin", API_STRING, API_IN_BODY, .text = API_TEXT_ANY, .max = API_CONTENT_MAX_BYTES,
		.doc = "Text for its standard input, which is empty where left out"},
	{"stdin_base64", API_STRING, API_IN_BODY, .text = API_TEXT_BASE64, .max = API_CONTENT_MAX_BYTES,
		.doc = "Bytes for its standard input, in base64"},
	{"timeout_ms", API_INT, EXEC_IN, .min = 1, .max = API_EXEC_TIMEOUT_MS_MAX,
		.doc = "The command and all that it started are killed after so long; 120000 where "
		       "nothing else is set, at most the service's `exec_timeout_max_ms`. A background "
		       "command may take longer, and has no limit where it is left out"},
	{"output_limit_bytes", API_INT, EXEC_IN, .min = 1, .max = API_EXEC_OUTPUT_MAX_BYTES,
		.doc = "Keep so many bytes of both outputs together: the first and the last ones. At most "
		       "the service's `exec_output_max_bytes`, and its `exec_output_bytes` where left out. "
		       "A stream is cut off behind so many, and has no limit where left out"},
	{"background", API_BOOL, EXEC_IN, .default_text = "false",
		.doc = "Answer 202 with the command's record once it runs; it goes on by itself, whoever "
		       "leaves and whatever becomes of the service"},
	{"keep_stdin", API_BOOL, EXEC_IN, .default_text = "false",
		.doc = "With `background`: its standard input stays open for `exec.stdin`"},
	{NULL},
};

#define EXEC_ID                                                                                    \
	{"eid", API_STRING, API_IN_PATH, .is_required = true, .text = API_TEXT_REF, .min = 1,      \
		.max = NAME_MAX_BYTES, .doc = "The command, by its id"}

const struct api_field api_fields_exec_get[] = {
	SANDBOX_ID,
	EXEC_ID,
	{"wait_ms", API_INT, API_IN_QUERY, .min = 0, .max = API_WAIT_MS_MAX, .default_text = "0",
		.doc = "While it runs: wait so long for its end"},
	{NULL},
};

const struct api_field api_fields_exec_output[] = {
	SANDBOX_ID,
	EXEC_ID,
	{"offset", API_INT, API_IN_QUERY | API_IN_HEADER, .min = 0, .max = OCTETS_MAX,
		.default_text = "0", .header = "Last-Event-ID",
		.doc = "First byte: 0, or a `next_offset`; of a stream that broke off, the last event's id"},
	{"limit", API_INT, API_IN_QUERY, .min = 1, .max = API_OUTPUT_LIMIT_MAX,
		.default_text = "262144", .doc = "At most so many bytes of both outputs together. A stream "
		"has no limit"},
	{"wait_ms", API_INT, API_IN_QUERY, .min = 0, .max = API_WAIT_MS_MAX, .default_text = "0",
		.doc = "Where there is nothing yet: wait so long for the first byte, or the command's end"},
	{NULL},
};

const struct api_field api_fields_exec_stdin[] = {
	SANDBOX_ID,
	EXEC_ID,
	{"data", API_STRING, API_IN_BODY, .text = API_TEXT_ANY, .max = API_CONTENT_MAX_BYTES,
		.doc = "Text to write. Either this or `data_base64`, unless the body is raw"},
	{"data_base64", API_STRING, API_IN_BODY, .text = API_TEXT_BASE64, .max = API_CONTENT_MAX_BYTES,
		.doc = "Bytes to write, in base64"},
	{"close", API_BOOL, EXEC_IN, .default_text = "false",
		.doc = "That was all: the command's standard input ends"},
	{NULL},
};

const struct api_field api_fields_exec_kill[] = {
	SANDBOX_ID,
	EXEC_ID,
	{"signal", API_STRING, API_IN_BODY, .text = API_TEXT_LINE, .min = 1, .max = 16,
		.default_text = "KILL",
		.doc = "A name such as `TERM`, `INT`, `HUP`, `KILL` or `USR1`, or a number in quotes"},
	{NULL},
};

const struct api_field api_fields_pty[] = {
	SANDBOX_ID,
	{"command", API_STRING, API_IN_QUERY, .min = 1, .max = API_COMMAND_MAX_BYTES,
		.doc = "A line for the shell; a login shell where left out"},
	{"shell", API_STRING, API_IN_QUERY, .min = 1, .max = API_PATH_MAX_BYTES,
		.doc = "The shell; the image's `bash`, or else its `sh`, where left out"},
	{"cwd", API_STRING, API_IN_QUERY, .text = API_TEXT_PATH, .min = 1, .max = API_PATH_MAX_BYTES,
		.doc = "Working directory; `/workspace` where left out"},
	{"env", API_MAP, API_IN_QUERY, .text = API_TEXT_ENV, .max = API_ENV_MAX,
		.item_max = API_ENV_VALUE_MAX_BYTES, .doc = "Added to the sandbox's environment"},
	{"exec", API_STRING, API_IN_QUERY, .text = API_TEXT_REF, .min = 1, .max = NAME_MAX_BYTES,
		.doc = "Attach to the terminal of this command, instead of starting one. Several may be "
		       "attached at once"},
	{"replay_bytes", API_INT, API_IN_QUERY, .min = 0, .max = API_OUTPUT_LIMIT_MAX,
		.default_text = "65536",
		.doc = "With `exec`: show so much of what it has written last, as far as that is kept"},
	{"rows", API_INT, API_IN_QUERY, .min = 1, .max = API_TTY_SIZE_MAX,
		.doc = "Of the terminal; 24 where left out. With `exec` it is resized"},
	{"cols", API_INT, API_IN_QUERY, .min = 1, .max = API_TTY_SIZE_MAX,
		.doc = "Likewise; 80 where left out"},
	{NULL},
};

/* ---- files ---- */

const struct api_field api_fields_file_read[] = {
	SANDBOX_ID,
	FILE_PATH(API_IN_QUERY),
	{"offset", API_INT, API_IN_QUERY, .min = 0, .max = OCTETS_MAX, .default_text = "0",
		.doc = "First byte"},
	{"length", API_INT, API_IN_QUERY, .min = 0, .max = OCTETS_MAX,
		.doc = "At most so many bytes; to the end where left out"},
	{"list", API_BOOL, API_IN_QUERY, .default_text = "false",
		.doc = "List the directory instead of reading a file"},
	{"recursive", API_BOOL, API_IN_QUERY, .default_text = "false",
		.doc = "With `list`: the whole tree below it"},
	{"limit", API_INT, API_IN_QUERY, .min = 1, .max = API_FILE_LIST_LIMIT_MAX,
		.default_text = "1000", .doc = "With `list`: at most so many entries"},
	{NULL},
};

const struct api_field api_fields_file_write[] = {
	SANDBOX_ID,
	FILE_PATH(API_IN_RAW_QUERY | API_IN_QUERY | API_IN_BODY),
	{"content", API_STRING, API_IN_BODY, .text = API_TEXT_ANY, .max = API_CONTENT_MAX_BYTES,
		.doc = "The file's text. Either this or `content_base64`, unless the body is raw"},
	{"content_base64", API_STRING, API_IN_BODY, .text = API_TEXT_BASE64,
		.max = API_CONTENT_MAX_BYTES, .doc = "The file's bytes in base64"},
	{"mode", API_STRING, API_IN_BODY | API_IN_RAW_QUERY, .text = API_TEXT_MODE, .min = 3, .max = 4,
		.doc = "Permissions as an octal number in quotes, such as \"0755\""},
	{"offset", API_INT, API_IN_BODY | API_IN_RAW_QUERY, .min = 0, .max = OCTETS_MAX,
		.doc = "Above 0: write from this byte on and keep what is before; else the file is replaced"},
	{NULL},
};

/* ---- administration ---- */

const struct api_field api_fields_account_create[] = {
	{"name", API_STRING, API_IN_BODY, .is_required = true, .text = API_TEXT_NAME, .min = 1,
		.max = NAME_MAX_BYTES, .doc = "Unique: lower-case letters, digits and hyphens"},
	{NULL},
};

const struct api_field api_fields_key_create[] = {
	{"account", API_STRING, API_IN_BODY, .is_required = true, .text = API_TEXT_REF, .min = 1,
		.max = NAME_MAX_BYTES, .doc = "Whose key it is: an account's id or name"},
	{"name", API_STRING, API_IN_BODY, .is_nullable = true, .text = API_TEXT_NAME, .min = 1,
		.max = NAME_MAX_BYTES, .doc = "A label"},
	{NULL},
};

const struct api_field api_fields_key_list[] = {
	{"account", API_STRING, API_IN_QUERY, .text = API_TEXT_REF, .min = 1, .max = NAME_MAX_BYTES,
		.doc = "Only those of this account, by id or by name"},
	{NULL},
};

const struct api_field api_fields_key_one[] = {
	{"id", API_STRING, API_IN_PATH, .is_required = true, .text = API_TEXT_REF, .min = 1,
		.max = NAME_MAX_BYTES, .doc = "The key's id"},
	{NULL},
};

const struct api_field api_fields_strays[] = {
	{"reap", API_BOOL, API_IN_BODY, .default_text = "false", .doc = "Remove them"},
	{"all_instances", API_BOOL, API_IN_BODY, .default_text = "false",
		.doc = "List domains of other instances on this host, too. They are never removed"},
	{NULL},
};
