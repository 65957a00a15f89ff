#include "http/reply.h"

#include <inttypes.h>
#include <string.h>

#include "api/api.h"
#include "api/api_errors.h"
#include "base/log.h"
#include "http/server_priv.h"
#include "ops/ops.h"

const char *http_reason(int status)
{
	static const struct {
		int status;
		const char *reason;
	} reasons[] = {
		{200, "OK"},
		{201, "Created"},
		{202, "Accepted"},
		{400, "Bad Request"},
		{401, "Unauthorized"},
		{402, "Payment Required"},
		{403, "Forbidden"},
		{404, "Not Found"},
		{405, "Method Not Allowed"},
		{409, "Conflict"},
		{413, "Content Too Large"},
		{429, "Too Many Requests"},
		{500, "Internal Server Error"},
		{503, "Service Unavailable"},
		{504, "Gateway Timeout"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(reasons); i++) {
		if (reasons[i].status == status) {
			return reasons[i].reason;
		}
	}
	return "Unknown";
}

static void add(struct http_request *request, const char *name, const char *value)
{
	evhttp_add_header(evhttp_request_get_output_headers(request->evreq), name, value);
}

static void add_number(struct http_request *request, const char *name, uint64_t number)
{
	char text[24];

	snprintf(text, sizeof text, "%" PRIu64, number);
	add(request, name, text);
}

void http_reply_headers(struct http_request *request, int status, const char *content_type)
{
	add(request, "Content-Type", content_type);
	add(request, "X-Request-Id", request->id);
	add(request, "Cache-Control", "no-store");
	add(request, "X-Content-Type-Options", "nosniff");
	if (status == 401) {
		add(request, "WWW-Authenticate", "Bearer");
	}
	if (request->closes || request->conn->door->server->is_stopping) {
		add(request, "Connection", "close");
	}
}

static void add_retry_after(struct http_request *request, unsigned seconds)
{
	if (seconds > 0) {
		add_number(request, "Retry-After", seconds);
	}
}

void http_reply_error_headers(struct http_request *request, enum err_kind kind)
{
	add_retry_after(request, api_error_of(kind)->retry_after_s);
}

void http_reply_answer_headers(struct http_request *request, const struct op_answer *answer)
{
	add_retry_after(request, answer->retry_after_s);
	if (answer->body && !answer->content_type) {
		char mode[16];

		snprintf(mode, sizeof mode, "%04o", answer->mode & 07777u);
		add_number(request, "X-File-Size", answer->body_bytes);
		add(request, "X-File-Mode", mode);
	}
}

/* The text belongs to the object, which lives until the evbuffer has sent it. */
static void release_json(const void *data, size_t len, void *arg)
{
	(void)data;
	(void)len;
	json_object_put(arg);
}

uint64_t http_reply_json(struct http_request *request, int status, json_object *json)
{
	size_t len;
	const char *text = json_text(json, &len);

	http_reply_headers(request, status, "application/json");
	if (request->is_head) {
		add_number(request, "Content-Length", len);
		return 0;
	}
	struct evbuffer *body = evhttp_request_get_output_buffer(request->evreq);

	evbuffer_add_reference(body, text, len, release_json, json_object_get(json));
	return len;
}

/* ---- log ---- */

static const char *operation_of(const struct http_request *request)
{
	return request && request->row ? request->row->name : "-";
}

void http_log_refusal(struct http_server *server, const struct http_request *request,
	const char *id, int status, const struct err *err)
{
	static const struct principal nobody;
	const struct principal *principal = request ? &request->principal : &nobody;
	char quoted[256];
	unsigned held_back;

	if (principal_may_log(principal, &server->refusals, &held_back)) {
		log_info("request refused",
			"rq=%s op=%s account=%s by=%s status=%d error=%s held_back=%u why=%s", id,
			operation_of(request), log_dash(principal->account_id),
			principal_log_name(principal), status, api_error_of(err->kind)->type,
			held_back, log_quote(quoted, sizeof quoted, err->msg, strlen(err->msg)));
	}
}

void http_log_failure(const struct http_request *request, const struct err *err)
{
	const struct principal *principal = &request->principal;
	unsigned held_back;

	if (principal_may_log(principal, &request->server->failures, &held_back)) {
		log_failure(LOG_LEVEL_ERR, "request failed", err,
			"rq=%s op=%s account=%s by=%s held_back=%u", request->id,
			operation_of(request), log_dash(principal->account_id),
			principal_log_name(principal), held_back);
	}
}
