#include "http/request.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "api/api_errors.h"
#include "base/xalloc.h"
#include "http/reply.h"
#include "http/rest.h"
#include "http/server_priv.h"
#include "http/stream.h"
#include "ops/ops.h"

/*
 * Theory of operation. evhttp hands a request over and expects one terminal send for it, however
 * late, and whatever became of the connection; only that frees it. Each function here that makes
 * the terminal send frees our object as well, and nothing else does.
 *
 * While a request waits, evhttp doesn't read from the connection, so it doesn't see a client that
 * leaves; and reading must not be switched on by hand, since a pipelined request would end the
 * process. So we watch ourselves. An EV_CLOSED event on the same descriptor isn't enough: a reset
 * shows as EPOLLERR, which libevent delivers as EV_READ and EV_WRITE only; with none of them wanted
 * it is dropped, and a level-triggered epoll reports it again at once, for ever. The watch is
 * therefore on a duplicate of the descriptor, which has its own place in the epoll set,
 * edge-triggered and for EV_WRITE too; each edge is answered by asking poll() what is so.
 */

static void watch_end(struct http_request *request)
{
	if (request->gone) {
		event_free(request->gone);
		close(request->gone_fd);
		request->gone = NULL;
	}
}

static void request_free(struct http_request *request)
{
	watch_end(request);
	op_call_free(request->call, request->sent_bytes);
	request->server->pending--;
	free(request);
}

/* ---- terminal sends ---- */

/*
 * They may end the connection there and then (HTTP/1.0, with nothing left to write), which must
 * find no request of ours any more: so it is let go of first. Until the last byte has left, the
 * answer is the connection's.
 */
static struct evhttp_request *hand_over(struct http_request *request)
{
	struct evhttp_request *evreq = request->evreq;
	struct http_conn *conn = request->conn;

	conn->request = NULL;
	conn->is_sending = true;
	request->server->sending++;
	request_free(request);
	return evreq;
}

void http_request_send(struct http_request *request, int status)
{
	evhttp_send_reply(hand_over(request), status, http_reason(status), NULL);
}

void http_request_send_end(struct http_request *request)
{
	evhttp_send_reply_end(hand_over(request));
}

/* ---- answers ---- */

/* evhttp has sent the last byte, or given up: nothing of this answer is held any more. */
static void on_complete(struct evhttp_request *evreq, void *arg)
{
	struct http_door *door = arg;

	if (evhttp_request_get_connection(evreq)) {
		http_conn_sent(http_conn_of(door, evreq));
	}
}

static void send_json(struct http_request *request, int status, json_object *json)
{
	request->sent_bytes = http_reply_json(request, status, json);
	http_request_send(request, status);
}

void http_request_fail(struct http_request *request, int status, const struct err *err)
{
	_cleanup_json_ json_object *json = op_error_json(err, request->id);

	if (status == 0) {
		status = api_error_of(err->kind)->status;
	}
	if (err->kind == ERR_INTERNAL) {
		http_log_failure(request, err);
	} else {
		http_log_refusal(request->server, request, request->id, status, err);
	}
	http_reply_error_headers(request, err->kind);
	send_json(request, status, json);
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
	_cleanup_json_ json_object *json = NULL;

	watch_end(request);
	if (answer->body) {
		http_reply_answer_headers(request, answer);
		http_stream_begin(request, answer);
		return;
	}
	if (!charge_answer(request, answer->json)) {
		struct err err;

		err_set(&err, ERR_UNAVAILABLE, "too much is under way; try again");
		http_request_fail(request, 0, &err);
		return;
	}
	http_reply_answer_headers(request, answer);
	json = json_object_get(answer->json);
	send_json(request, answer->status, json);
}

/* ---- waiting ---- */

static bool has_left(int fd)
{
	struct pollfd state = {.fd = fd, .events = POLLRDHUP};

	return poll(&state, 1, 0) > 0 && (state.revents & (POLLRDHUP | POLLERR | POLLHUP));
}

static void on_edge(evutil_socket_t fd, short what, void *arg)
{
	struct http_request *request = arg;
	struct err err;

	(void)what;
	if (!has_left(fd)) {
		return;
	}
	/* Nobody will read it, but evhttp needs its terminal send; it notices the rest then. */
	op_call_free(request->call, 0);
	request->call = NULL;
	request->closes = true;
	err_set(&err, ERR_CANCELLED, "the client left before the answer");
	http_request_fail(request, 0, &err);
}

/* Without a descriptor to spare the call runs on unwatched. */
static void watch_begin(struct http_request *request)
{
	struct http_server *server = request->server;

	request->gone_fd = fcntl(request->conn->fd, F_DUPFD_CLOEXEC, 0);
	if (request->gone_fd < 0) {
		log_warn("client can't be watched", "rq=%s errno=%d", request->id, errno);
		return;
	}
	request->gone = event_new(loop_base(server->loop), request->gone_fd,
		EV_CLOSED | EV_WRITE | EV_ET | EV_PERSIST, on_edge, request);
	ASSERT(request->gone);
	event_add(request->gone, NULL);
}

static void on_done(void *arg, struct op_call *call)
{
	struct http_request *request = arg;

	ASSERT(call == request->call);
	send_answer(request);
}

void http_request_run(struct http_request *request, struct op_call *call)
{
	request->call = call;
	if (op_start(call, on_done, request) == OP_DONE) {
		send_answer(request);
	} else {
		watch_begin(request);
	}
}

/* ---- begin, and ends that come from elsewhere ---- */

void http_request_begin(struct evhttp_request *evreq, void *arg)
{
	struct http_door *door = arg;
	struct http_request *request;
	struct err err;

	/* evhttp never closes behind an answer to it, whatever the answer says. */
	if (evhttp_request_get_command(evreq) == EVHTTP_REQ_CONNECT) {
		http_conn_reject(http_conn_of(door, evreq));
		return;
	}
	request = xnew(struct http_request);
	request->server = door->server;
	request->conn = http_conn_of(door, evreq);
	request->evreq = evreq;
	request->gone_fd = -1;
	evhttp_request_set_on_complete_cb(evreq, on_complete, door);
	id_make(request->id, ID_REQUEST);
	ASSERT(request->conn->request == NULL);
	request->conn->request = request;
	http_conn_arrived(request->conn);
	door->server->pending++;
	request->is_head = evhttp_request_get_command(evreq) == EVHTTP_REQ_HEAD;
	if (request->conn->refusal != ERR_NONE) {
		/* All of it arrived in the turn that took it over the limit. */
		loop_cancel_deferred(door->server->loop, http_conn_refuse, request->conn);
		http_conn_explain(request->conn, &err);
	} else if (request->conn->head.problem) {
		err_set(&err, ERR_INVALID, "%s", request->conn->head.problem);
	} else {
		http_rest(request);
		return;
	}
	request->closes = true;
	http_request_fail(request, 0, &err);
}

void http_request_lost(struct http_request *request)
{
	bool is_ours = evhttp_request_get_connection(request->evreq) == NULL;

	request->conn = NULL;
	if (request->stream) {
		http_stream_free(request->stream);
		request->stream = NULL;
	}
	/* Detached from its connection it is freed by the terminal send, else by evhttp itself. */
	if (is_ours) {
		evhttp_send_reply_end(request->evreq);
	}
	request_free(request);
}

void http_request_abort(struct http_request *request)
{
	struct err err;

	if (request->stream) {
		http_conn_cut(request->conn); /* comes back as http_request_lost() */
		return;
	}
	op_call_free(request->call, 0);
	request->call = NULL;
	request->closes = true;
	err_set(&err, ERR_UNAVAILABLE, "the service is stopping");
	http_request_fail(request, 0, &err);
}
