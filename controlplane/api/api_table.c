#include "api/api.h"

#include <string.h>

#include "api/api_fields.h"
#include "base/macros.h"

/* clang-format off */
static const struct api_row rows[] = {
	[API_SANDBOX_CREATE] = {API_SANDBOX_CREATE, "sandbox.create", API_POST, "/v1/sandboxes",
		API_SCOPE_USE, API_IDEMPOTENCY_KEY, 201, api_fields_sandbox_create,
		"Make a sandbox: a virtual machine of its own, gone at its expiry.",
		"The sandbox's record. Should the client leave meanwhile, the creation goes on. 202 "
		"with `wait: false`; 200 for the sandbox that the same `Idempotency-Key` made before."},
	[API_SANDBOX_LIST] = {API_SANDBOX_LIST, "sandbox.list", API_GET, "/v1/sandboxes",
		API_SCOPE_READ, 0, 200, api_fields_sandbox_list,
		"List sandboxes, newest first.",
		"`{data: [record, …], next_cursor}`; `next_cursor` is null on the last page alone. Looking "
		"for metadata, a page may hold fewer records than asked for, or none, and not be the last."},
	[API_SANDBOX_GET] = {API_SANDBOX_GET, "sandbox.get", API_GET, "/v1/sandboxes/{id}",
		API_SCOPE_READ, API_SANDBOX, 200, api_fields_sandbox_one,
		"Show a sandbox. By its id also after its end.",
		"The record."},
	[API_SANDBOX_DELETE] = {API_SANDBOX_DELETE, "sandbox.delete", API_DELETE,
		"/v1/sandboxes/{id}", API_SCOPE_USE, API_SANDBOX, 200, api_fields_sandbox_one,
		"Remove a sandbox and everything in it. Again is fine.",
		"The final record, once nothing is left of it."},
	[API_SANDBOX_EXTEND] = {API_SANDBOX_EXTEND, "sandbox.extend", API_POST,
		"/v1/sandboxes/{id}/extend", API_SCOPE_USE, API_SANDBOX, 200,
		api_fields_sandbox_extend,
		"Move a sandbox's expiry.",
		"The record with the new `expires_at`. `timeout`: the guest did not confirm, and the old "
		"expiry stands."},
	[API_SANDBOX_RESTART] = {API_SANDBOX_RESTART, "sandbox.restart", API_POST,
		"/v1/sandboxes/{id}/restart", API_SCOPE_USE, API_SANDBOX, 200, api_fields_sandbox_again,
		"Restart a sandbox, or start a stopped one: its disk, id, name and expiry stay.",
		"The record, once it accepts commands. The guest is asked to power off and has 10 seconds "
		"for it; commands under way end. A restart that fails leaves the sandbox `stopped`, with "
		"the reason. Should the client leave meanwhile, it goes on. 202 with `wait: false`."},
	[API_SANDBOX_RESET] = {API_SANDBOX_RESET, "sandbox.reset", API_POST,
		"/v1/sandboxes/{id}/reset", API_SCOPE_USE, API_SANDBOX, 200, api_fields_sandbox_again,
		"Give a sandbox a fresh disk: all files in it go, its id, name and expiry stay.",
		"As `sandbox.restart`. A reset that fails before it has the fresh disk changes nothing."},
	[API_EXEC] = {API_EXEC, "exec", API_POST, "/v1/sandboxes/{id}/exec", API_SCOPE_USE,
		API_SANDBOX | API_RAW_BODY | API_EVENTS, 200, api_fields_exec,
		"Run a command and wait for its end. When the client leaves, the command is stopped.",
		"`{id, stdout, stderr, exit_code, signal, timed_out, truncated, duration_ms, stdout_bytes, "
		"stderr_bytes}`. A command that ran is a success whatever its exit code. `signal` is the "
		"number of the signal that ended it, else null; the exit code is 128 more then. After a "
		"time-out `exit_code` is 124, and the outputs are there. Output that is not UTF-8 has U+FFFD "
		"for what can't be shown, and the very bytes in `stdout_base64` or `stderr_base64` beside it. "
		"`stdout_bytes` and `stderr_bytes` are what the command wrote. Where that is more than is "
		"kept, `truncated` is true, the text has a line that says how much is left out there, and "
		"`stdout_omitted_bytes` and `stdout_omitted_at` (likewise of stderr) tell how many bytes are "
		"missing and before which of the kept ones; `stdout_base64` has no such line. A stream has "
		"the events `start` (`{id}`), `stdout` and `stderr` (`{text}` or `{base64}`) and `exit`, which "
		"is the answer without the outputs. It begins once the command runs: what fails before is an "
		"ordinary error. Should its reader fall behind, the command waits."},
	[API_EXEC_LIST] = {API_EXEC_LIST, "exec.list", API_GET, "/v1/sandboxes/{id}/exec",
		API_SCOPE_READ, API_SANDBOX, 200, api_fields_sandbox_one,
		"Show the commands that run and the last ones that ended. By the sandbox's id also after "
		"its end.",
		"`{data: [{id, status, background, tty, command, started_at, ended_at, exit_code, signal, "
		"timed_out, truncated, duration_ms, stdout_tail, stdout_bytes, stderr_tail, stderr_bytes, "
		"error}, …]}`, newest first: all that run, as many ended ones as the service keeps, and "
		"apart from these the last 32 background ones that ended; for as long as it keeps the "
		"record. `id` is that of the command's answer. `status` is "
		"`running`, `exited` (it ran to its end), `lost` (how it ended isn't known: the sandbox, "
		"its agent or the service ended meanwhile) or `failed` (it never began, or was called "
		"off); `error` says why for the last two, else it is null, and `exit_code` and "
		"`duration_ms` are null unless it is `exited`. `command` is its first 256 bytes; the tails "
		"are the last bytes of what was kept of its outputs (not UTF-8: as with `exec`) and the "
		"counts what it wrote: once it has ended, and nothing before."},
	[API_EXEC_GET] = {API_EXEC_GET, "exec.get", API_GET, "/v1/sandboxes/{id}/exec/{eid}",
		API_SCOPE_READ, API_SANDBOX, 200, api_fields_exec_get,
		"Show one command, or wait for its end.",
		"The record, as in `exec.list`; after `wait_ms` the command may still be `running`."},
	[API_EXEC_OUTPUT] = {API_EXEC_OUTPUT, "exec.output", API_GET,
		"/v1/sandboxes/{id}/exec/{eid}/output", API_SCOPE_READ, API_SANDBOX | API_EVENTS, 200,
		api_fields_exec_output,
		"Read what a background command has written, from any byte on and any number of times.",
		"`{id, status, stdout, stderr, offset, next_offset, dropped_bytes, is_end, exit_code, signal, "
		"timed_out, error}`. Offsets count the bytes of both outputs in the order they were written. "
		"The guest keeps the last MiB of each while it runs; where what was asked for is gone, "
		"`dropped_bytes` says how much, and `offset` is the first byte that is there. What is not "
		"UTF-8 is as with `exec`. `is_end`: the command has ended, and this was the rest. Once the "
		"guest no longer has it, and after the sandbox's end, only the tail of the record is left. "
		"(Of a foreground command, too: what is left of stdout comes first then.) A stream has the "
		"events `stdout`, `stderr` (`{text}` or `{base64}`), `gap` (`{dropped_bytes}`) and, when the "
		"command has ended, `exit` (`{id, status, exit_code, signal, timed_out, error, duration_ms, "
		"stdout_bytes, stderr_bytes}`), or `error` where how it ended isn't known; the events' ids "
		"are offsets. While a stream's reader is behind, the command waits. The output of a "
		"foreground command that runs is a `conflict`: it goes to who started it."},
	[API_EXEC_STDIN] = {API_EXEC_STDIN, "exec.stdin", API_POST,
		"/v1/sandboxes/{id}/exec/{eid}/stdin", API_SCOPE_USE, API_SANDBOX | API_RAW_BODY, 200,
		api_fields_exec_stdin,
		"Write to the standard input of a background command that was started with `keep_stdin`.",
		"`{id, closed}`, once the command has been given all of it: one that doesn't read keeps the "
		"request waiting."},
	[API_EXEC_KILL] = {API_EXEC_KILL, "exec.kill", API_POST, "/v1/sandboxes/{id}/exec/{eid}/kill",
		API_SCOPE_USE, API_SANDBOX, 200, api_fields_exec_kill,
		"Send a signal to a command that runs, foreground or background, and to all it started.",
		"`{id, signal}`: that the signal was sent. How the command ends is told by `exec.get`."},
	[API_PTY] = {API_PTY, "pty", API_GET, "/v1/sandboxes/{id}/pty", API_SCOPE_USE,
		API_SANDBOX | API_SOCKET, 101, api_fields_pty,
		"Start a command with a terminal, or attach to one.",
		"Binary messages are bytes, both ways. Text messages are JSON. The client's: `{resize: "
		"{rows, cols}}`, `{signal: \"INT\"}`. The service's: first `{start: {id, offset}}`, which "
		"names the command and the byte of its output that comes next; `{gap: {dropped_bytes}}`; "
		"and in the end `{exit: …}`, as of `exec.output`, or `{error: …}`. Closing detaches: the "
		"command goes on and is like any other background one, with `tty` true. While a client is "
		"behind the command waits, unless another one reads faster.",
		.subprotocol = "paddock.pty.v1"},
	[API_FILE_READ] = {API_FILE_READ, "file.read", API_GET, "/v1/sandboxes/{id}/files",
		API_SCOPE_READ, API_SANDBOX | API_RAW_ANSWER, 200, api_fields_file_read,
		"Read a file, or list a directory.",
		"`{path, content, size_bytes, mode, modified_at}`, with `content_base64` in place of "
		"`content` where the bytes are not UTF-8; or the bytes themselves. With `list`: "
		"`{entries: [{name, path, type, size_bytes, mode, modified_at}, …], truncated}`, `type` "
		"being `file`, `dir`, `symlink` or `other`, and `path` the listed path with the entry's "
		"below it."},
	[API_FILE_WRITE] = {API_FILE_WRITE, "file.write", API_PUT, "/v1/sandboxes/{id}/files",
		API_SCOPE_USE, API_SANDBOX | API_RAW_BODY, 200, api_fields_file_write,
		"Write a file; missing parent directories are made.",
		"`{path, size_bytes}`: how many bytes were written."},
	[API_SERVICE_INFO] = {API_SERVICE_INFO, "service.info", API_GET, "/v1/service",
		API_SCOPE_ANONYMOUS, 0, 200, api_fields_none,
		"Show what the service offers.",
		"`{version, limits, sizes, default_size, images, default_image, networks, "
		"default_network, network_reason, acceleration}`."},
	[API_HEALTHZ] = {API_HEALTHZ, "service.health", API_GET, "/healthz", API_SCOPE_ANONYMOUS, 0,
		200, api_fields_none,
		"Tell that the daemon runs.",
		"`{status: \"ok\"}`."},
	[API_READYZ] = {API_READYZ, "service.ready", API_GET, "/readyz", API_SCOPE_ANONYMOUS, 0,
		200, api_fields_none,
		"Tell whether sandboxes can be made.",
		"`{status: \"ready\"}`, or `unavailable` with the reason."},
	[API_OPENAPI] = {API_OPENAPI, "service.openapi", API_GET, "/openapi.json",
		API_SCOPE_ANONYMOUS, 0, 200, api_fields_none,
		"Describe this interface to machines.",
		"An OpenAPI 3.1 document."},
	[API_ACCOUNT_CREATE] = {API_ACCOUNT_CREATE, "account.create", API_POST,
		"/v1/admin/accounts", API_SCOPE_ADMIN, API_ADMIN_SOCKET, 201,
		api_fields_account_create,
		"Make an account.",
		"`{id, name, created_at, disabled}`."},
	[API_ACCOUNT_LIST] = {API_ACCOUNT_LIST, "account.list", API_GET, "/v1/admin/accounts",
		API_SCOPE_ADMIN, API_ADMIN_SOCKET, 200, api_fields_none,
		"List the accounts.",
		"`{data: [account, …]}` with what each `used`: `{sandboxes, vcpus, memory_mb, disk_gb}`."},
	[API_KEY_CREATE] = {API_KEY_CREATE, "key.create", API_POST, "/v1/admin/keys",
		API_SCOPE_ADMIN, API_ADMIN_SOCKET, 201, api_fields_key_create,
		"Make an API key.",
		"`{id, account, name, hint, created_at, revoked_at, last_used_at, key}`; `key` is shown "
		"this one time."},
	[API_KEY_LIST] = {API_KEY_LIST, "key.list", API_GET, "/v1/admin/keys", API_SCOPE_ADMIN,
		API_ADMIN_SOCKET, 200, api_fields_key_list,
		"List API keys, revoked ones too.",
		"`{data: [key, …]}`; `hint` is the last four characters."},
	[API_KEY_REVOKE] = {API_KEY_REVOKE, "key.revoke", API_DELETE, "/v1/admin/keys/{id}",
		API_SCOPE_ADMIN, API_ADMIN_SOCKET, 200, api_fields_key_one,
		"Revoke an API key: it is refused from the next request on. Again is fine.",
		"The key as in the list."},
	[API_IMAGE_LIST] = {API_IMAGE_LIST, "image.list", API_GET, "/v1/admin/images",
		API_SCOPE_ADMIN, API_ADMIN_SOCKET, 200, api_fields_none,
		"List the images with their versions, and the refused ones with the reason.",
		"`{data: [{name, version, status, problem, current, default, kernel_version, "
		"agent_version, virtual_size_bytes, created_at}, …]}`, `status` being `verifying`, `good` "
		"or `refused`."},
	[API_DOCTOR] = {API_DOCTOR, "doctor", API_GET, "/v1/admin/doctor", API_SCOPE_ADMIN,
		API_ADMIN_SOCKET, 200, api_fields_none,
		"Check the host: each finding comes with its fix.",
		"`{findings: […]}`."},
	[API_STRAYS] = {API_STRAYS, "strays", API_POST, "/v1/admin/strays", API_SCOPE_ADMIN,
		API_ADMIN_SOCKET, 200, api_fields_strays,
		"List what is real without a live record, and live records without anything real; remove "
		"it where asked to.",
		"`{data: [{kind, id, account, instance, what, since, age_seconds, reason, reaped, error}, "
		"…], reaped, left, young}`. `kind` is `domain`, `record`, `disk`, `sockets`, `process`, "
		"`log` or `leftover`; `instance` is null for our own; `left` counts our own that are "
		"still there, `young` what is younger than the grace period and therefore neither "
		"listed nor removed."},
	[API_STATUS] = {API_STATUS, "status", API_GET, "/v1/admin/status", API_SCOPE_ADMIN,
		API_ADMIN_SOCKET, 200, api_fields_none,
		"Show how the daemon is.",
		"`{version, ready, reason, sandboxes, calls, hypervisor, egress, …}`."},
};
/* clang-format on */

_Static_assert(ARRAY_SIZE(rows) == API_OP_MAX, "every operation has a row");

const struct api_row *api_row(enum api_op op)
{
	ASSERT((size_t)op < API_OP_MAX && rows[op].name);
	return &rows[op];
}

const struct api_row *api_row_by_name(const char *name)
{
	for (size_t i = 0; i < API_OP_MAX; i++) {
		if (strcmp(rows[i].name, name) == 0) {
			return &rows[i];
		}
	}
	return NULL;
}

const struct api_field *api_row_field(const struct api_row *row, const char *name)
{
	for (const struct api_field *field = row->fields; field->name; field++) {
		if (strcmp(field->name, name) == 0) {
			return field;
		}
	}
	return NULL;
}

bool api_row_has_body(const struct api_row *row)
{
	for (const struct api_field *field = row->fields; field->name; field++) {
		if (field->in & API_IN_BODY) {
			return true;
		}
	}
	return false;
}

const char *api_method_name(enum api_method method)
{
	static const char *const names[] = {"GET", "POST", "PUT", "DELETE"};

	_Static_assert(ARRAY_SIZE(names) == API_METHOD_MAX, "every method has a name");
	ASSERT((size_t)method < API_METHOD_MAX);
	return names[method];
}

const char *api_scope_name(enum api_scope scope)
{
	switch (scope) {
	case API_SCOPE_ANONYMOUS:
		return "anonymous";
	case API_SCOPE_READ:
		return "read";
	case API_SCOPE_USE:
		return "use";
	case API_SCOPE_ADMIN:
	default:
		return "admin";
	}
}
