#include "api/api_schema.h"

#include <inttypes.h>
#include <string.h>

#include "api/api_errors.h"

/* docs/api.md from the table. The prose around it is here, so that one file has it all. */

_Static_assert(API_JSON_MAX_BYTES == 16 * 1024 * 1024, "the text below says so");

static const char head[] =
	"<!-- Made by api-doc from controlplane/api; edit that, then run `ninja -C build "
	"docs-api`. -->\n"
	"\n"
	"# REST API (v1)\n"
	"\n"
	"JSON in UTF-8, snake_case; times are RFC 3339 in UTC; durations are in the unit that the "
	"name "
	"says.\n"
	"\n"
	"**Who calls.** `Authorization: Bearer pdk_…` or `x-api-key: pdk_…`. On the admin socket "
	"(a unix "
	"socket) root and the\n"
	"daemon's user need no key; the admin routes exist there alone. Nobody sees or touches "
	"another "
	"account's sandboxes: they are\n"
	"`not_found` for every operation. An administrator may name any sandbox by its id.\n"
	"\n"
	"**Base URL.** The service's origin, or the origin with `/v1`: paths below are the same "
	"behind both, and may leave out\n"
	"their own `/v1` (`/v1/sandboxes`, `/sandboxes` and `/v1/v1/sandboxes` are one). Slashes "
	"at the front don't count.\n"
	"\n"
	"**Names and ids.** A sandbox has an id (`sb_…`) and may have a name; either may stand in "
	"a path. "
	"Names have no underscore. A\n"
	"name belongs to live sandboxes; records of ended ones are found by id.\n"
	"\n"
	"**Arguments.** Unknown fields and parameters are refused by name, and so is a value that "
	"is given "
	"twice. `null` is a wrong\n"
	"type unless the table says otherwise. A query writes a list as a repeated parameter "
	"(`args=ls&args=-l`) and an object as\n"
	"`NAME.KEY=value` (`metadata.team=blue`). A body is `application/json`, or, where the "
	"operation "
	"says *raw body*,\n"
	"`application/octet-stream`: it is the content itself then, and the arguments are in the "
	"query.\n"
	"\n"
	"**Form.** A request must be one that everybody reads alike: one `Host`, one "
	"`Content-Length` of digits or `Transfer-Encoding:\n"
	"chunked`, no body with `GET`, `HEAD` and `DELETE`, lines that end with CR LF and aren't "
	"folded, at most 256 of them, and no\n"
	"`Content-Encoding`. Anything else is `invalid_request`, and the connection ends where it "
	"isn't certain what comes next.\n"
	"\n"
	"**Bodies.** A request is judged by its head before its body is read: `Expect: "
	"100-continue` saves sending one that is refused.\n"
	"A raw body is of any size, of a known length or in chunks, and goes to the sandbox as it "
	"comes; one that breaks off is never\n"
	"taken for a whole one. An answer may come before the end of the body: the rest isn't read "
	"then, and the connection ends.\n"
	"\n"
	"**Leaving.** A client that closes its connection, or its sending half, before it has the "
	"answer "
	"counts as gone: a command is\n"
	"stopped and a transfer ends; a creation and a removal go on.\n"
	"\n"
	"**Streams.** Where an operation *streams* and `Accept` has `text/event-stream`, the "
	"answer is a stream of events, each with\n"
	"a name and a line of JSON. Output is `text` where it is UTF-8 without NUL, and then of "
	"whole characters; else it is `base64`.\n"
	"The bytes of all its events, one after the other, are the output. A comment comes where "
	"there would be silence for 15 seconds.\n"
	"A stream that fails says so in an event `error` (as under *Errors*), or breaks off. Only "
	"one that has an `exit` is whole:\n"
	"without it nothing is known of the command's end.\n"
	"\n"
	"**Doing it once.** Operations that take `Idempotency-Key` (1 to 255 printable bytes; an "
	"account's own) answer a repeated\n"
	"request with what the first one made: 200, or 202 while it starts and `wait` is false. "
	"Requests are the same when they give\n"
	"the same values for the same fields, however written; `wait` doesn't count. Another "
	"request with the key is a `conflict`\n"
	"that names the sandbox. A creation that failed frees its key at once, and a request that "
	"was refused binds none. When the\n"
	"sandbox has ended after it ran or was deleted, the answer is `sandbox_ended` with its "
	"id. The key is remembered for as long as\n"
	"the sandbox's record. Without a key a *name* does the same: a live one of that name is a "
	"`conflict` that names its id, and\n"
	"`unavailable` while that one is being removed.\n"
	"\n"
	"**Every answer** has `X-Request-Id`. `HEAD` works wherever `GET` does. A method that a "
	"path does "
	"not have is 405 with `Allow`.\n"
	"A download that fails midway ends without its last chunk, so it can't be taken for a "
	"whole file.\n"
	"\n"
	"**The record** of a sandbox is `{id, name, status, reason, size, vcpus, memory_mb, "
	"disk_gb, image, "
	"network, temporary,\n"
	"metadata, created_at, ready_at, expires_at, ended_at}`, on the admin socket with "
	"`account`. "
	"`status` is `provisioning`,\n"
	"`running`, `stopped`, `deleting`, `deleted` or `failed`; `size` is `custom` where the "
	"figures were "
	"given one by one; what\n"
	"isn't so (yet) is null.\n";

static void write_places(FILE *out, const struct api_field *field)
{
	const char *separator = "";
	static const struct {
		unsigned bit;
		const char *name;
	} places[] = {
		{API_IN_PATH, "path"},
		{API_IN_QUERY, "query"},
		{API_IN_BODY, "body"},
		{API_IN_RAW_QUERY, "query of a raw body"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
		bool is_said = places[i].bit == API_IN_RAW_QUERY && (field->in & API_IN_QUERY);

		if ((field->in & places[i].bit) && !is_said) {
			fprintf(out, "%s%s", separator, places[i].name);
			separator = ", ";
		}
	}
	if (field->in & API_IN_HEADER) {
		fprintf(out, "%sheader `%s`", separator, field->header);
	}
}

static void write_range(FILE *out, const struct api_field *field, const char *unit)
{
	fprintf(out, ", %" PRId64 " to %" PRId64 "%s", field->min, field->max, unit);
}

static void write_type(FILE *out, const struct api_field *field)
{
	switch (field->type) {
	case API_INT:
		fputs("integer", out);
		write_range(out, field, "");
		break;
	case API_BOOL:
		fputs("boolean", out);
		break;
	case API_ENUM:
		for (const char *const *choice = field->choices; *choice; choice++) {
			fprintf(out, "%s`%s`", choice == field->choices ? "" : ", ", *choice);
		}
		break;
	case API_STRINGS:
		fputs("array of strings", out);
		write_range(out, field, "");
		break;
	case API_MAP:
		fprintf(out, "object of strings, at most %" PRId64, field->max);
		break;
	case API_STRING:
	default:
		fputs(field->text == API_TEXT_BASE64 ? "base64" : "string", out);
		write_range(out, field, " bytes");
		break;
	}
	if (field->is_nullable) {
		fputs(", or null", out);
	}
	if (field->default_text) {
		fprintf(out, "; default `%s`", field->default_text);
	}
}

static void write_fields(FILE *out, const struct api_row *row)
{
	if (!row->fields[0].name) {
		return;
	}
	fputs("\n| argument | in | type | |\n|---|---|---|---|\n", out);
	for (const struct api_field *field = row->fields; field->name; field++) {
		fprintf(out, "| `%s`%s | ", field->name, field->is_required ? " (required)" : "");
		write_places(out, field);
		fputs(" | ", out);
		write_type(out, field);
		fprintf(out, " | %s |\n", field->doc);
	}
}

static void write_row(FILE *out, const struct api_row *row)
{
	fprintf(out, "\n### %s\n\n`%s %s`: %s", row->name, api_method_name(row->method), row->path,
		row->doc);
	fprintf(out, "\n\nScope: %s.", api_scope_name(row->scope));
	fprintf(out, "%s%s%s%s%s", row->flags & API_ADMIN_SOCKET ? " Admin socket only." : "",
		row->flags & API_RAW_BODY ? " Raw body." : "",
		row->flags & API_RAW_ANSWER ? " Raw answer where `Accept` has "
					      "`application/octet-stream`."
					    : "",
		row->flags & API_EVENTS ? " Streams where `Accept` has "
					  "`text/event-stream`."
					: "",
		row->flags & API_IDEMPOTENCY_KEY ? " Takes `Idempotency-Key`: see above." : "");
	if (row->flags & API_SOCKET) {
		fprintf(out, " WebSocket, subprotocol `%s`.", row->subprotocol);
	}
	fprintf(out, " Answers %d: %s\n", row->status, row->answer);
	write_fields(out, row);
}

static void write_errors(FILE *out)
{
	fputs("\n## Errors\n\n`{\"error\": {\"type\", \"message\", \"request_id\"}}`, and `code` "
	      "where "
	      "the guest said no. The exit code is paddockctl's.\n\n"
	      "| type | status | exit code | |\n|---|---|---|---|\n",
		out);
	for (enum err_kind kind = ERR_NONE + 1; kind < ERR_KIND_MAX; kind++) {
		const struct api_error *error = api_error_of(kind);

		if (kind != ERR_CANCELLED && kind != ERR_GUEST) {
			fprintf(out, "| `%s` | %d | %d | %s |\n", error->type, error->status,
				error->exit_code, error->doc);
		}
	}
	fputs("\n429 and 503 carry `Retry-After` (seconds) where waiting can help.\n"
	      "\nWhat a guest refuses has the guest's own word in `code` beside the type:\n\n"
	      "| code | type | |\n|---|---|---|\n",
		out);
	for (const struct api_guest_code *row = api_guest_codes; row->code; row++) {
		fprintf(out, "| `%s` | `%s` | %s |\n", row->code, api_error_of(row->kind)->type,
			row->doc);
	}
}

void api_write_doc(FILE *out)
{
	fputs(head, out);
	fputs("\n## Operations\n", out);
	for (enum api_op op = 0; op < API_OP_MAX; op++) {
		write_row(out, api_row(op));
	}
	write_errors(out);
}
