#include "http/rest.h"

#include <string.h>
#include <strings.h>

#include "api/api_args.h"
#include "auth/auth.h"
#include "base/xalloc.h"
#include "http/router.h"
#include "http/server_priv.h"
#include "http/websocket.h"
#include "loop/pipe.h"
#include "ops/ops.h"

/*
 * Theory of operation. A head passes three gates: its form (what is asked for must be one thing to
 * everybody), its source and route, and the operation's own terms. What fails at the first ends the
 * connection, since what comes behind isn't certain. Then the call can be made, unless its
 * arguments are in a JSON body: those pass a fourth gate when they are there.
 */

#define TYPE_JSON   "application/json"
#define TYPE_OCTETS "application/octet-stream"
#define TYPE_EVENTS "text/event-stream"

/* A raw body waits in this between its connection and its reader. */
#define UPLOAD_PIPE_BYTES (256 * 1024)

static const char *header(const struct http_request *request, const char *name)
{
	return http_head_find(&request->conn->head, name);
}

/* ---- who may talk to us at all ---- */

static bool is_listed(char *const *list, const char *text, size_t len)
{
	for (; list && *list; list++) {
		if (strlen(*list) == len && strncasecmp(*list, text, len) == 0) {
			return true;
		}
	}
	return false;
}

/* Length of the host in "host:port", "[::1]:port", "host". */
static size_t host_length(const char *host)
{
	const char *end = host[0] == '[' ? strchr(host, ']') : NULL;

	return end ? (size_t)(end - host) + 1 : strcspn(host, ":");
}

/* A page of another site can have a name of its own point to us (DNS rebinding), but then its
 * browser says that name here, and that site in Origin. */
static int check_source(
	const struct http_request *request, const struct target *target, struct err *err)
{
	const struct http_server *server = request->server;
	const char *host = header(request, "Host");
	const char *also = target->authority;
	const char *origin = header(request, "Origin");

	if (!host) {
		return err_set(err, ERR_INVALID, "the Host header is missing");
	}
	if (!is_listed(server->hosts, host, host_length(host)) ||
		(also && !is_listed(server->hosts, also, host_length(also)))) {
		return err_set(err, ERR_FORBIDDEN,
			"this Host is not one that the service answers for (server.allowed_hosts)");
	}
	if (origin && !is_listed(server->config.allowed_origins, origin, strlen(origin))) {
		return err_set(err, ERR_FORBIDDEN,
			"pages of this Origin may not use the service (server.allowed_origins)");
	}
	return 0;
}

static int find_principal(const struct http_request *request, const struct api_row *row,
	struct principal *ret, struct err *err)
{
	struct auth *auth = request->server->auth;

	if (row->scope == API_SCOPE_ANONYMOUS) {
		return 0;
	}
	if (request->conn->door->is_admin) {
		return auth_by_peer(auth, request->conn->link.fd, ret, err);
	}
	return auth_by_header(
		auth, header(request, "Authorization"), header(request, "x-api-key"), ret, err);
}

/* ---- what it asks for ---- */

/* Media type of @value without its parameters. */
static bool is_type(const char *value, const char *type)
{
	size_t len = strlen(type);

	return value && strncasecmp(value, type, len) == 0 && strchr(" \t;", value[len]);
}

/* Accept is looked through for a type as a word: no weights, we have at most two forms. */
static bool accepts(const struct http_request *request, const char *type)
{
	const char *accept = header(request, "Accept");

	return accept && strcasestr(accept, type);
}

struct reading {
	struct api_args *args;
	bool has_raw_body;
};

static int add_parameter(
	void *arg, const char *name, const char *value, size_t len, struct err *err)
{
	struct reading *reading = arg;

	return api_args_add_query(reading->args, name, value, len, reading->has_raw_body, err);
}

static int add_headers(struct http_request *request, struct api_args *args, struct err *err)
{
	for (const struct api_field *field = args->row->fields; field->name; field++) {
		const char *value = field->in & API_IN_HEADER ? header(request, field->header)
							      : NULL;

		if (value && api_args_add_header(args, field, value, err) < 0) {
			return -1;
		}
	}
	return 0;
}

/* What of the arguments the head has. */
static int read_args(struct http_request *request, const struct target *target,
	const struct route *route, bool is_raw, struct err *err)
{
	struct reading reading = {.args = &request->args, .has_raw_body = is_raw};

	if (query_each(target->query, add_parameter, &reading, err) < 0) {
		return -1;
	}
	for (size_t i = 0; i < route->param_count; i++) {
		if (api_args_add_path(&request->args, route->params[i].name, route->params[i].value,
			    err) < 0) {
			return -1;
		}
	}
	return 0;
}

static int check_idempotency_key(const char *key, struct err *err)
{
	size_t len = key ? strlen(key) : 1;

	if (len == 0 || len > API_IDEMPOTENCY_MAX_BYTES) {
		return err_set(err, ERR_INVALID, "Idempotency-Key must have 1 to %d bytes, not %zu",
			API_IDEMPOTENCY_MAX_BYTES, len);
	}
	for (; key && *key; key++) {
		if (*key < 0x20 || *key == 0x7f) {
			return err_set(err, ERR_INVALID, "Idempotency-Key must be printable ASCII");
		}
	}
	return 0;
}

/* The answer is JSON or, for some, bytes or events; other wishes can't be met. */
static int check_accept(const struct http_request *request, struct err *err)
{
	if (!(request->row->flags & API_EVENTS) && accepts(request, TYPE_EVENTS) &&
		!accepts(request, TYPE_JSON) && !accepts(request, "*/*")) {
		return err_set(err, ERR_INVALID,
			"answers are not available as " TYPE_EVENTS "; accept " TYPE_JSON);
	}
	return 0;
}

/* A compressed file would be written as it is. */
static int check_coding(const struct http_request *request, struct err *err)
{
	const char *coding = header(request, "Content-Encoding");

	if (coding && strcasecmp(coding, "identity") != 0) {
		return err_set(err, ERR_INVALID,
			"Content-Encoding is not supported: send the body as it is");
	}
	return 0;
}

int http_rest_check_json_length(const struct http_request *request, uint64_t len, struct err *err)
{
	uint64_t max = request->server->config.body_bytes;

	if (len > API_JSON_MAX_BYTES || len > max) {
		return err_set(err, ERR_TOO_LARGE,
			"a JSON body must have at most %llu bytes: send more as " TYPE_OCTETS,
			(unsigned long long)MIN(max, (uint64_t)API_JSON_MAX_BYTES));
	}
	return 0;
}

static int check_raw_length(const struct http_request *request, uint64_t len, struct err *err)
{
	uint64_t max = request->server->config.upload_bytes;

	if (max > 0 && len > max) {
		return err_set(err, ERR_TOO_LARGE, "the body must have at most %llu bytes",
			(unsigned long long)max);
	}
	return 0;
}

/* ---- the body ---- */

enum body_kind { BODY_NONE, BODY_JSON, BODY_RAW, BODY_BAD };

/* What the body is by its headers. BODY_BAD: @err says what is wrong with it. */
static enum body_kind judge_body(const struct http_request *request, struct err *err)
{
	const struct api_row *row = request->row;
	const struct http_body *body = &request->conn->body;
	const char *type = header(request, "Content-Type");

	if (check_coding(request, err) < 0) {
		return BODY_BAD;
	}
	if ((row->flags & API_RAW_BODY) && is_type(type, TYPE_OCTETS)) {
		return check_raw_length(request, body->left, err) < 0 ? BODY_BAD : BODY_RAW;
	}
	if (http_body_is_end(body)) {
		return BODY_NONE;
	}
	if (!api_row_has_body(row)) {
		err_set(err, ERR_INVALID, "%s takes no body", row->name);
		return BODY_BAD;
	}
	if (!is_type(type, TYPE_JSON)) {
		err_set(err, ERR_INVALID, "the Content-Type must be " TYPE_JSON "%s",
			row->flags & API_RAW_BODY ? " or " TYPE_OCTETS : "");
		return BODY_BAD;
	}
	return http_rest_check_json_length(request, body->left, err) < 0 ? BODY_BAD : BODY_JSON;
}

/* The reader's end of the pipe that the body will come through; NULL with @err set: no room. */
static struct pipe *open_upload(struct http_request *request, struct err *err)
{
	const struct http_body *body = &request->conn->body;
	struct pipe *pipe;

	if (!http_body_is_end(body) && !http_conn_charge(request->conn, UPLOAD_PIPE_BYTES)) {
		err_set(err, ERR_UNAVAILABLE, "too much is under way; try again");
		return NULL;
	}
	pipe = pipe_new(request->server->loop, UPLOAD_PIPE_BYTES);
	if (http_body_is_end(body)) {
		pipe_close(pipe);
		pipe_writer_free(pipe);
	} else {
		request->upload = pipe;
	}
	return pipe;
}

/* ---- the whole ---- */

/* All arguments are there but those in headers, which stand behind the others. */
static int make_call(
	struct http_request *request, bool is_raw, struct op_call **ret, struct err *err)
{
	const struct api_row *row = request->row;
	const struct http_body *body = &request->conn->body;
	struct op_request op = {
		.id = request->id,
		.principal = &request->principal,
		.args = &request->args,
		.accepts_raw = (row->flags & API_RAW_ANSWER) && accepts(request, TYPE_OCTETS),
		.accepts_events = (row->flags & API_EVENTS) && accepts(request, TYPE_EVENTS),
		.body_bytes = body->is_chunked ? UINT64_MAX : body->left,
	};

	if (row->flags & API_IDEMPOTENCY_KEY) {
		op.idempotency_key = header(request, "Idempotency-Key");
	}
	if (add_headers(request, &request->args, err) < 0 ||
		api_args_finish(&request->args, err) < 0) {
		return -1;
	}
	if (is_raw) {
		op.body = open_upload(request, err);
		if (!op.body) {
			return -1;
		}
	}
	*ret = op_call_new(request->server->ops, row, &op);
	return 0;
}

static void run(struct http_request *request, bool is_raw)
{
	struct err err = ERR_INIT;
	struct op_call *call = NULL;

	if (make_call(request, is_raw, &call, &err) < 0) {
		http_request_fail(request, 0, &err);
	} else {
		http_request_start(request, call);
	}
}

/* The operation's own terms. */
static int judge_operation(struct http_request *request, const struct target *target,
	const struct route *route, bool is_raw, struct err *err)
{
	const char *key = request->row->flags & API_IDEMPOTENCY_KEY
				  ? header(request, "Idempotency-Key")
				  : NULL;

	return check_accept(request, err) < 0 || check_idempotency_key(key, err) < 0 ||
			       read_args(request, target, route, is_raw, err) < 0
		       ? -1
		       : 0;
}

static void serve(
	struct http_request *request, const struct target *target, const struct route *route)
{
	struct principal principal = {0};
	struct err err = ERR_INIT;
	int status = 0;

	if (find_principal(request, request->row, &principal, &err) < 0) {
		http_request_fail(request, 0, &err);
		return;
	}
	request->principal = principal;
	api_args_init(&request->args, request->row);
	enum body_kind kind = judge_body(request, &err);

	if (kind == BODY_BAD ||
		judge_operation(request, target, route, kind == BODY_RAW, &err) < 0 ||
		((request->row->flags & API_SOCKET) &&
			http_websocket_check(&request->conn->head, request->row->subprotocol,
				&status, &err) < 0)) {
		http_request_fail(request, status, &err);
	} else if (kind == BODY_JSON) {
		request->json = evbuffer_new();
		ASSERT(request->json);
	} else {
		run(request, kind == BODY_RAW);
	}
}

/* A path without this method, or without any. */
static void refuse_route(struct http_request *request, const struct route *route)
{
	struct err err;

	if (route->allowed[0]) {
		request->allow = route->allowed;
		err_set(&err, ERR_INVALID, "this path takes %s", route->allowed);
		http_request_fail(request, 405, &err);
		request->allow = NULL;
	} else {
		err_set(&err, ERR_NOT_FOUND,
			"there is no such path; see docs/api.md or /openapi.json");
		http_request_fail(request, 0, &err);
	}
}

static void find_route(struct http_request *request, const struct target *target)
{
	const char *method = request->conn->head.method;
	bool is_admin = request->conn->door->is_admin;
	struct err err = ERR_INIT;
	struct route route;

	if ((!is_admin && check_source(request, target, &err) < 0) ||
		route_find(method, target->path, is_admin, &route, &err) < 0) {
		http_request_fail(request, 0, &err);
		return;
	}
	request->row = route.row;
	if (route.row) {
		serve(request, target, &route);
	} else {
		refuse_route(request, &route);
	}
}

/* ---- the form ---- */

struct method {
	const char *name;
	bool may_have_body;
};

static const struct method *find_method(const char *name)
{
	static const struct method methods[] = {
		{"GET", false},
		{"HEAD", false},
		{"POST", true},
		{"PUT", true},
		{"DELETE", false},
		{"PATCH", true},
		{"OPTIONS", false},
	};

	for (size_t i = 0; i < ARRAY_SIZE(methods); i++) {
		if (strcmp(methods[i].name, name) == 0) {
			return &methods[i];
		}
	}
	return NULL;
}

/* -1: @err, and a status that isn't its kind's, or 0. */
static int judge_form(struct http_request *request, int *ret_status, struct err *err)
{
	struct http_conn *conn = request->conn;
	const struct method *method = find_method(conn->head.method);
	const char *expect = header(request, "Expect");
	struct http_length length;

	if (strcmp(conn->head.method, "CONNECT") == 0) {
		return err_set(err, ERR_INVALID, "CONNECT is for proxies; this is none");
	}
	if (!method) {
		*ret_status = 501;
		return err_set(err, ERR_INVALID, "no operation has this method");
	}
	if (http_head_length(&conn->head, method->may_have_body, &length, err) < 0) {
		return -1;
	}
	if (expect && strcasecmp(expect, "100-continue") != 0) {
		*ret_status = 417;
		return err_set(err, ERR_INVALID, "Expect can only be 100-continue");
	}
	http_body_init(&conn->body, length.is_chunked, length.bytes);
	conn->is_continue_owed = expect && !conn->head.is_old && !http_body_is_end(&conn->body);
	return 0;
}

/* HTTP/1.1 stays unless it is told otherwise, HTTP/1.0 the other way round. */
static bool wants_close(const struct http_head *head)
{
	return http_head_has_token(head, "Connection", "close") ||
	       (head->is_old && !http_head_has_token(head, "Connection", "keep-alive"));
}

void http_rest(struct http_request *request)
{
	const struct http_head *head = &request->conn->head;
	_cleanup_target_ struct target target = {NULL};
	struct err err = ERR_INIT;
	int status = 0;

	request->is_head = strcmp(head->method, "HEAD") == 0;
	request->conn->closes = wants_close(head);
	if (judge_form(request, &status, &err) < 0) {
		request->conn->closes = true;
		http_request_fail(request, status, &err);
	} else if (target_parse(head->target, &target, &err) < 0) {
		http_request_fail(request, 0, &err);
	} else {
		find_route(request, &target);
	}
}

/* ---- behind the body ---- */

void http_rest_body(struct http_request *request)
{
	struct err err = ERR_INIT;
	size_t len = evbuffer_get_length(request->json);
	const char *text = (const char *)evbuffer_pullup(request->json, -1);
	_cleanup_json_ json_object *body = len > 0 ? json_parse(text, len, &err) : NULL;

	if (len > 0 && !body && err.kind == ERR_NONE) {
		/* A parser gives NULL for the text "null", too. */
		err_set(&err, ERR_INVALID, "the body must be a JSON object, not null");
	}
	evbuffer_free(steal_ptr(&request->json));
	if (err.kind != ERR_NONE || (body && api_args_add_body(&request->args, body, &err) < 0)) {
		http_request_fail(request, 0, &err);
	} else {
		run(request, false);
	}
}
