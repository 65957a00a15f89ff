#include "http/rest.h"

#include <string.h>
#include <strings.h>

#include "api/api_args.h"
#include "auth/auth.h"
#include "base/xalloc.h"
#include "http/head.h"
#include "http/reply.h"
#include "http/router.h"
#include "http/server_priv.h"
#include "loop/pipe.h"
#include "ops/ops.h"

#define TYPE_JSON   "application/json"
#define TYPE_OCTETS "application/octet-stream"
#define TYPE_EVENTS "text/event-stream"

static const char *header(const struct http_request *request, const char *name)
{
	return evhttp_find_header(evhttp_request_get_input_headers(request->evreq), name);
}

static const char *method_of(const struct http_request *request)
{
	switch (evhttp_request_get_command(request->evreq)) {
	case EVHTTP_REQ_GET:
		return "GET";
	case EVHTTP_REQ_HEAD:
		return "HEAD";
	case EVHTTP_REQ_POST:
		return "POST";
	case EVHTTP_REQ_PUT:
		return "PUT";
	case EVHTTP_REQ_DELETE:
		return "DELETE";
	case EVHTTP_REQ_OPTIONS:
		return "OPTIONS";
	case EVHTTP_REQ_PATCH:
		return "PATCH";
	case EVHTTP_REQ_TRACE:
	case EVHTTP_REQ_CONNECT:
	default:
		return "";
	}
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

/* As evhttp has it: of other methods it reads none. */
static bool may_have_body(const struct http_request *request)
{
	switch (evhttp_request_get_command(request->evreq)) {
	case EVHTTP_REQ_POST:
	case EVHTTP_REQ_PUT:
	case EVHTTP_REQ_PATCH:
		return true;
	case EVHTTP_REQ_GET:
	case EVHTTP_REQ_HEAD:
	case EVHTTP_REQ_DELETE:
	case EVHTTP_REQ_OPTIONS:
	case EVHTTP_REQ_TRACE:
	case EVHTTP_REQ_CONNECT:
	default:
		return false;
	}
}

static int find_principal(const struct http_request *request, const struct api_row *row,
	struct principal *ret, struct err *err)
{
	struct auth *auth = request->server->auth;

	if (row->scope == API_SCOPE_ANONYMOUS) {
		return 0;
	}
	if (request->conn->door->is_admin) {
		return auth_by_peer(auth, request->conn->fd, ret, err);
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

static int add_json(struct http_request *request, struct api_args *args, struct err *err)
{
	struct evbuffer *input = evhttp_request_get_input_buffer(request->evreq);
	size_t len = evbuffer_get_length(input);
	const char *text = (const char *)evbuffer_pullup(input, -1);
	_cleanup_json_ json_object *body = text ? json_parse(text, len, err) : NULL;

	if (!body) {
		/* A parser gives NULL for the text "null", too. */
		return err->kind != ERR_NONE ? -1
					     : err_set(err, ERR_INVALID,
						       "the body must be a JSON object, not null");
	}
	evbuffer_drain(input, len);
	return api_args_add_body(args, body, err);
}

static int add_body(
	struct http_request *request, struct api_args *args, bool is_raw, struct err *err)
{
	size_t len = evbuffer_get_length(evhttp_request_get_input_buffer(request->evreq));

	if (is_raw || len == 0) {
		return 0;
	}
	if (!api_row_has_body(args->row)) {
		return err_set(err, ERR_INVALID, "%s takes no body", args->row->name);
	}
	if (!is_type(header(request, "Content-Type"), TYPE_JSON)) {
		return err_set(err, ERR_INVALID, "the Content-Type must be " TYPE_JSON "%s",
			args->row->flags & API_RAW_BODY ? " or " TYPE_OCTETS : "");
	}
	return add_json(request, args, err);
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

static int read_args(struct http_request *request, const struct target *target,
	const struct route *route, bool is_raw, struct api_args *args, struct err *err)
{
	struct reading reading = {.args = args, .has_raw_body = is_raw};

	if (add_body(request, args, is_raw, err) < 0 ||
		query_each(target->query, add_parameter, &reading, err) < 0) {
		return -1;
	}
	for (size_t i = 0; i < route->param_count; i++) {
		if (api_args_add_path(args, route->params[i].name, route->params[i].value, err) <
			0) {
			return -1;
		}
	}
	return add_headers(request, args, err) < 0 ? -1 : api_args_finish(args, err);
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

/* conn.c lets more in, since it can't tell a body from what is around it. */
static int check_length(const struct http_request *request, bool is_raw, struct err *err)
{
	uint64_t len = evbuffer_get_length(evhttp_request_get_input_buffer(request->evreq));
	uint64_t max = request->server->config.body_bytes;

	if (len > max) {
		return err_set(err, ERR_TOO_LARGE, "the body must have at most %llu bytes",
			(unsigned long long)max);
	}
	if (!is_raw && len > API_JSON_MAX_BYTES) {
		return err_set(err, ERR_TOO_LARGE,
			"a JSON body must have at most %d bytes: send more as " TYPE_OCTETS,
			API_JSON_MAX_BYTES);
	}
	return 0;
}

static struct pipe *body_pipe(struct http_request *request, uint64_t *ret_len)
{
	struct evbuffer *input = evhttp_request_get_input_buffer(request->evreq);
	size_t len = evbuffer_get_length(input);
	struct pipe *pipe = pipe_new(request->server->loop, MAX(len, (size_t)1));

	pipe_write_buffer(pipe, input);
	pipe_close(pipe);
	pipe_writer_free(pipe);
	*ret_len = len;
	return pipe;
}

/* ---- the whole ---- */

static int make_call(struct http_request *request, const struct target *target,
	const struct route *route, struct op_call **ret, struct err *err)
{
	const struct api_row *row = route->row;
	bool is_raw = (row->flags & API_RAW_BODY) &&
		      is_type(header(request, "Content-Type"), TYPE_OCTETS);
	struct principal principal = {0};
	_cleanup_api_args_ struct api_args args = API_ARGS_INIT;
	struct op_request op = {
		.id = request->id,
		.principal = &request->principal,
		.args = &args,
		.accepts_raw = (row->flags & API_RAW_ANSWER) && accepts(request, TYPE_OCTETS),
		.accepts_events = (row->flags & API_EVENTS) && accepts(request, TYPE_EVENTS),
	};

	if (find_principal(request, row, &principal, err) < 0) {
		return -1;
	}
	request->principal = principal;
	if (row->flags & API_IDEMPOTENCY_KEY) {
		op.idempotency_key = header(request, "Idempotency-Key");
	}
	api_args_init(&args, row);
	if (check_coding(request, err) < 0 || check_length(request, is_raw, err) < 0 ||
		check_accept(request, err) < 0 ||
		check_idempotency_key(op.idempotency_key, err) < 0 ||
		read_args(request, target, route, is_raw, &args, err) < 0) {
		return -1;
	}
	if (is_raw) {
		op.body = body_pipe(request, &op.body_bytes);
	}
	*ret = op_call_new(request->server->ops, row, &op);
	return 0;
}

/* A path without this method, or without any. */
static void refuse_route(struct http_request *request, const struct route *route)
{
	struct err err;

	if (route->allowed[0]) {
		evhttp_add_header(
			evhttp_request_get_output_headers(request->evreq), "Allow", route->allowed);
		err_set(&err, ERR_INVALID, "this path takes %s", route->allowed);
		http_request_fail(request, 405, &err);
	} else {
		err_set(&err, ERR_NOT_FOUND,
			"there is no such path; see docs/api.md or /openapi.json");
		http_request_fail(request, 0, &err);
	}
}

void http_rest(struct http_request *request)
{
	struct err err = ERR_INIT;
	struct op_call *call = NULL;
	struct route route;
	_cleanup_target_ struct target target = {NULL};
	const struct evkeyvalq *headers = evhttp_request_get_input_headers(request->evreq);
	bool is_admin = request->conn->door->is_admin;

	/* evhttp reads sizes of chunks as strtoll() does: what follows is never another request. */
	request->closes = request->closes || http_head_is_chunked(headers);
	if (http_head_check(headers, may_have_body(request), &err) < 0) {
		request->closes = true;
		http_request_fail(request, 0, &err);
		return;
	}
	if (target_parse(evhttp_request_get_uri(request->evreq), &target, &err) < 0) {
		http_request_fail(request, 0, &err);
		return;
	}
	/* evhttp takes it for a proxy's, and closes. */
	request->closes = request->closes || target.authority;
	if ((!is_admin && check_source(request, &target, &err) < 0) ||
		route_find(method_of(request), target.path, is_admin, &route, &err) < 0) {
		http_request_fail(request, 0, &err);
		return;
	}
	request->row = route.row;
	if (!route.row) {
		refuse_route(request, &route);
	} else if (make_call(request, &target, &route, &call, &err) < 0) {
		http_request_fail(request, 0, &err);
	} else {
		http_request_run(request, call);
	}
}
