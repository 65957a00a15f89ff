#include "tests/lib/http_check.h"

#include <stdlib.h>
#include <strings.h>

#include "api/api_errors.h"
#include "base/xalloc.h"

/* Slashes that a message may have. */
static const char *const harmless[] = {"application/json", "application/octet-stream",
	"text/event-stream", "docs/api.md", "/openapi.json", "HTTP/1.0", "HTTP/1.1", NULL};

static const char *const internals[] = {"/", "sqlite", "libvirt", "qemu", "virDomain", "errno",
	".c:", "0x", "(null)", "nftables", "nft ", "SQL", NULL};

#define ERRNO_MAX 133

static void blank_out(char *text, const char *piece)
{
	for (char *at = strstr(text, piece); at; at = strstr(at, piece)) {
		memset(at, ' ', strlen(piece));
	}
}

const char *http_check_text(const char *text)
{
	_cleanup_free_ char *rest = xstrdup(text);

	for (size_t i = 0; harmless[i]; i++) {
		blank_out(rest, harmless[i]);
	}
	for (size_t i = 0; internals[i]; i++) {
		if (strcasestr(rest, internals[i])) {
			return internals[i];
		}
	}
	for (int code = 1; code <= ERRNO_MAX; code++) {
		const char *said = strerrordesc_np(code);
		const char *name = strerrorname_np(code);

		if (said && strcasestr(rest, said)) {
			return said;
		}
		if (name && strstr(rest, name)) {
			return name;
		}
	}
	return NULL;
}

static bool is_documented(int status, const char *type)
{
	/* The statuses beside the table: a path without this method, an expectation that can't be
	 * met, a path that speaks WebSocket, a method that nothing has. */
	if (status == 405 || status == 417 || status == 426 || status == 501) {
		return strcmp(type, "invalid_request") == 0;
	}
	for (size_t kind = ERR_NONE + 1; kind < ERR_KIND_MAX; kind++) {
		const struct api_error *error = api_error_of((enum err_kind)kind);

		if (error->status == status && strcmp(error->type, type) == 0) {
			return true;
		}
	}
	return false;
}

const char *http_check_error(const struct answer *a)
{
	static char text[400];
	const char *type = answer_text(a, "error.type");
	const char *message = answer_text(a, "error.message");
	const char *id = answer_text(a, "error.request_id");
	const char *header = answer_header(a, "X-Request-Id");

	if (!type || !message || !id) {
		return "it has no type, message or request_id";
	}
	if (!is_documented(a->status, type)) {
		return "its type isn't documented with this status";
	}
	if (!header || strcmp(header, id) != 0) {
		return "X-Request-Id isn't the request_id";
	}
	if ((a->status == 429 || a->status == 503) && !answer_header(a, "Retry-After")) {
		return "it has no Retry-After";
	}
	const char *inner = http_check_text(message);

	if (inner) {
		snprintf(text, sizeof text, "it tells of \"%s\": %s", inner, message);
		return text;
	}
	return NULL;
}
