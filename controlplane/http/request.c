#include "http/request.h"

#include <stdlib.h>

#include "api/api_errors.h"
#include "base/xalloc.h"
#include "http/reply.h"
#include "http/rest.h"
#include "http/server_priv.h"
#include "http/stream.h"
#include "http/websocket.h"
#include "loop/bytes.h"
#include "loop/pipe.h"
#include "ops/ops.h"

/*
 * Theory of operation. rest.c judges the head and says what the body is: none, JSON, which is
 * collected here and judged when it is whole, or raw, which goes through a pipe to a call that runs
 * already. The pipe's room is how much is read from the client. A body that ends early fails its
 * pipe, so that nobody takes a part for the whole.
 *
 * An answer may come at any time, before the end of the body too: then nobody wants the rest of it.
 * The object lives until the answer's last byte has left; conn.c ends it then.
 */

static struct http_request *request_new(struct http_conn *conn)
{
	struct http_request *request = xnew(struct http_request);

	ASSERT(conn->request == NULL);
	request->server = conn->server;
	request->conn = conn;
	id_make(request->id, ID_REQUEST);
	request->args = API_ARGS_INIT;
	conn->request = request;
	conn->state = HTTP_CONN_SERVE;
	conn->closes = false;
	conn->is_continue_owed = false;
	conn->is_held = false;
	conn->window_ms = conn->progress_ms;
	conn->window_bytes = 0;
	conn->server->pending++;
	http_body_init(&conn->body, false, 0);
	return request;
}

/* Whatever ran for it ends; a body on its way is a broken one. */
static void call_off(struct http_request *request)
{
	http_stream_free(steal_ptr(&request->stream));
	op_call_free(steal_ptr(&request->call), request->sent_bytes);
	pipe_writer_free(steal_ptr(&request->upload));
	if (request->json) {
		evbuffer_free(steal_ptr(&request->json));
	}
}

void http_request_free(struct http_request *request)
{
	if (request) {
		call_off(request);
		api_args_fini(&request->args);
		request->server->pending--;
		free(request);
	}
}

void http_request_begin(struct http_conn *conn)
{
	http_rest(request_new(conn));
}

void http_request_refuse(struct http_conn *conn, int status, const struct err *err)
{
	struct http_request *request = request_new(conn);

	conn->closes = true;
	http_request_fail(request, status, err);
}

/* ---- its body ---- */

size_t http_request_room(const struct http_request *request)
{
	if (request->is_answered) {
		return 0;
	}
	return request->upload ? pipe_room(request->upload) : SIZE_MAX;
}

static void fail(struct http_request *request, enum err_kind kind, const char *text)
{
	struct err err;

	err_set(&err, kind, "%s", text);
	http_request_fail(request, 0, &err);
}

static void collect(struct http_request *request, struct evbuffer *bytes)
{
	size_t len = evbuffer_get_length(bytes);
	struct err err = ERR_INIT;

	if (http_rest_check_json_length(request, evbuffer_get_length(request->json) + len, &err) ==
			0 &&
		!http_conn_charge(request->conn, len)) {
		err_set(&err, ERR_UNAVAILABLE, "too much is under way; try again");
	}
	if (err.kind == ERR_NONE) {
		bytes_move(bytes, request->json, len);
		return;
	}
	evbuffer_drain(bytes, len);
	http_request_fail(request, 0, &err);
}

void http_request_take(struct http_request *request, struct evbuffer *bytes)
{
	uint64_t max = request->server->config.upload_bytes;
	size_t len = evbuffer_get_length(bytes);

	if (request->json) {
		collect(request, bytes);
		return;
	}
	size_t n = pipe_write_buffer(request->upload, bytes);

	ASSERT(n == len);
	if (max > 0 && request->conn->body.total_bytes > max) {
		fail(request, ERR_TOO_LARGE, "the body is larger than the service takes");
	}
}

void http_request_body_end(struct http_request *request)
{
	if (request->upload) {
		op_body_came(request->call, request->conn->body.total_bytes);
		pipe_close(request->upload);
		pipe_writer_free(steal_ptr(&request->upload));
	} else {
		http_rest_body(request);
	}
}

/* ---- answers ---- */

void http_request_answered(struct http_request *request)
{
	call_off(request);
	request->is_answered = true;
}

static void send_json(
	struct http_request *request, int status, json_object *json, unsigned retry_after_s)
{
	http_conn_answers(request->conn, false);
	request->sent_bytes = http_reply_json(request, status, json, retry_after_s);
	http_request_answered(request);
}

void http_request_fail(struct http_request *request, int status, const struct err *err)
{
	const struct api_error *error = api_error_of(err->kind);
	_cleanup_json_ json_object *json = op_error_json(err, request->id);

	ASSERT(!request->is_answered && !request->stream);
	call_off(request);
	if (status == 0) {
		status = error->status;
	}
	if (err->kind == ERR_INTERNAL) {
		http_log_failure(request, err);
	} else {
		http_log_refusal(request, status, err);
	}
	send_json(request, status, json, error->retry_after_s);
}

/* A large answer counts against the total like a large body, until it has been sent. */
static bool charge_answer(struct http_request *request, json_object *json)
{
	size_t len;

	json_text(json, &len);
	return http_conn_charge(request->conn, len);
}

static void send_answer(struct http_request *request)
{
	struct op_answer *answer = op_answer(request->call);

	if (answer->socket) {
		http_websocket_begin(request, answer->socket);
	} else if (answer->body) {
		http_stream_begin(request, answer);
	} else if (charge_answer(request, answer->json)) {
		_cleanup_json_ json_object *json = json_object_get(answer->json);

		send_json(request, answer->status, json, answer->retry_after_s);
	} else {
		fail(request, ERR_UNAVAILABLE, "too much is under way; try again");
	}
}

/* From within somebody's call: what comes behind this answer has to wait for the loop. */
static void on_done(void *arg, struct op_call *call)
{
	struct http_request *request = arg;
	struct http_conn *conn = request->conn;

	ASSERT(call == request->call);
	send_answer(request);
	http_link_write(&conn->link);
	http_conn_wake(conn);
}

static void on_room(void *arg)
{
	struct http_request *request = arg;

	http_conn_turn(request->conn);
}

void http_request_start(struct http_request *request, struct op_call *call)
{
	request->call = call;
	if (request->upload) {
		pipe_set_writer(request->upload, on_room, request);
	}
	if (op_start(call, on_done, request) == OP_DONE) {
		send_answer(request);
	}
}
