#include "http/reply.h"

#include <event2/util.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "api/api.h"
#include "api/api_errors.h"
#include "base/clock.h"
#include "base/log.h"
#include "http/server_priv.h"
#include "ops/ops.h"

/* Up to here a copy costs less than keeping the object. */
#define COPY_MAX_BYTES 4096

const char *http_reason(int status)
{
	static const struct {
		int status;
		const char *reason;
	} reasons[] = {
		{101, "Switching Protocols"},
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
		{417, "Expectation Failed"},
		{426, "Upgrade Required"},
		{429, "Too Many Requests"},
		{500, "Internal Server Error"},
		{501, "Not Implemented"},
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

/* Made once a second: formatting it would be a good part of a small answer's cost. */
static const char *date_line(void)
{
	static char line[64];
	static int64_t made_s;
	int64_t now_s = clock_wall_ms() / MS_PER_SECOND;

	if (now_s != made_s) {
		const time_t now = (time_t)now_s;
		struct tm tm;

		made_s = now_s;
		gmtime_r(&now, &tm);
		evutil_date_rfc1123(line, sizeof line, &tm);
	}
	return line;
}

void http_reply_line(struct http_reply *reply, const char *fmt, ...)
{
	va_list args;
	size_t room = sizeof reply->text - reply->len;

	va_start(args, fmt);
	int n = vsnprintf(reply->text + reply->len, room, fmt, args);

	va_end(args);
	ASSERT(n >= 0 && (size_t)n + 2 < room);
	reply->len += (size_t)n;
	reply->text[reply->len++] = '\r';
	reply->text[reply->len++] = '\n';
}

/* What an old client has to be told is that the connection stays, and a new one that it ends. */
static void add_connection(struct http_reply *reply)
{
	const struct http_conn *conn = reply->request->conn;

	if (conn->closes) {
		http_reply_line(reply, "Connection: close");
	} else if (conn->head.is_old) {
		http_reply_line(reply, "Connection: keep-alive");
	}
}

void http_reply_begin(struct http_reply *reply, struct http_request *request, int status,
	const char *content_type)
{
	reply->request = request;
	reply->len = 0;
	http_reply_line(reply, "HTTP/1.1 %d %s", status, http_reason(status));
	http_reply_line(reply, "Date: %s", date_line());
	if (content_type) {
		http_reply_line(reply, "Content-Type: %s", content_type);
	}
	http_reply_line(reply, "X-Request-Id: %s", request->id);
	http_reply_line(reply, "Cache-Control: no-store");
	http_reply_line(reply, "X-Content-Type-Options: nosniff");
	if (status == 101) {
		return;
	}
	if (status == 401) {
		http_reply_line(reply, "WWW-Authenticate: Bearer");
	}
	if (request->allow) {
		http_reply_line(reply, "Allow: %s", request->allow);
	}
	if (status == 426) {
		http_reply_line(reply, "Upgrade: websocket");
		http_reply_line(reply, "Sec-WebSocket-Version: 13");
	}
	add_connection(reply);
}

void http_reply_end(struct http_reply *reply)
{
	http_reply_line(reply, "%s", "");
	evbuffer_add(reply->request->conn->link.out, reply->text, reply->len);
}

void http_reply_file_lines(struct http_reply *reply, const struct op_answer *answer)
{
	http_reply_line(reply, "X-File-Size: %" PRIu64, answer->body_bytes);
	http_reply_line(reply, "X-File-Mode: %04o", answer->mode & 07777u);
}

/* The text belongs to the object, which lives until the evbuffer has sent it. */
static void release_json(const void *data, size_t len, void *arg)
{
	(void)data;
	(void)len;
	json_object_put(arg);
}

uint64_t http_reply_json(
	struct http_request *request, int status, json_object *json, unsigned retry_after_s)
{
	struct evbuffer *out = request->conn->link.out;
	struct http_reply reply;
	size_t len;
	const char *text = json_text(json, &len);

	http_reply_begin(&reply, request, status, "application/json");
	http_reply_line(&reply, "Content-Length: %zu", len);
	if (retry_after_s > 0) {
		http_reply_line(&reply, "Retry-After: %u", retry_after_s);
	}
	http_reply_end(&reply);
	if (request->is_head) {
		return 0;
	}
	if (len <= COPY_MAX_BYTES) {
		evbuffer_add(out, text, len);
	} else {
		evbuffer_add_reference(out, text, len, release_json, json_object_get(json));
	}
	return len;
}

/* ---- log ---- */

static const char *operation_of(const struct http_request *request)
{
	return request->row ? request->row->name : "-";
}

void http_log_refusal(const struct http_request *request, int status, const struct err *err)
{
	const struct principal *principal = &request->principal;
	char quoted[256];
	unsigned held_back;

	if (principal_may_log(principal, &request->server->refusals, &held_back)) {
		log_info("request refused",
			"rq=%s op=%s account=%s by=%s status=%d error=%s held_back=%u why=%s",
			request->id, operation_of(request), log_dash(principal->account_id),
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
