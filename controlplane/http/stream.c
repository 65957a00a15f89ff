#include "http/stream.h"

#include <event2/buffer.h>
#include <stdlib.h>

#include "base/xalloc.h"
#include "http/reply.h"
#include "http/server_priv.h"
#include "loop/pipe.h"
#include "ops/ops.h"

/*
 * Theory of operation. Bytes move from the pipe to evhttp's output while less than out_high_bytes
 * wait there. Over that mark nothing is taken; the pipe fills, and the guest stops sending. When
 * the output has drained evhttp calls back, and it goes on. What waits is so bounded by the mark
 * and the pipe's capacity, which the domain chose.
 */

struct http_stream {
	struct http_request *request;
	struct pipe *pipe;
	struct evbuffer *chunk;
	bool is_full; /* waits for on_drained() */
};

static uint64_t unsent(const struct http_stream *stream)
{
	return evbuffer_get_length(bufferevent_get_output(stream->request->conn->bev));
}

static void finish(struct http_stream *stream)
{
	struct http_request *request = stream->request;

	http_stream_free(stream);
	request->stream = NULL;
	http_request_send_end(request);
}

static void pump(struct http_stream *stream);

static void on_drained(struct evhttp_connection *evcon, void *arg)
{
	struct http_stream *stream = arg;

	(void)evcon;
	stream->is_full = false;
	pump(stream);
}

static void pump(struct http_stream *stream)
{
	struct http_request *request = stream->request;
	uint64_t high = request->server->config.out_high_bytes;

	if (stream->is_full) {
		return;
	}
	uint64_t waiting = unsent(stream);

	if (waiting < high) {
		request->sent_bytes += pipe_read_buffer(
			stream->pipe, stream->chunk, high - waiting);
	}
	if (evbuffer_get_length(stream->chunk) > 0) {
		stream->is_full = waiting + evbuffer_get_length(stream->chunk) >= high;
		evhttp_send_reply_chunk_with_cb(request->evreq, stream->chunk, on_drained, stream);
	}
	if (pipe_failure(stream->pipe)) {
		http_conn_break(request->conn); /* comes back as http_request_lost() */
	} else if (pipe_is_end(stream->pipe)) {
		finish(stream);
	}
}

static void on_data(void *arg)
{
	pump(arg);
}

void http_stream_begin(struct http_request *request, struct op_answer *answer)
{
	struct http_stream *stream = xnew(struct http_stream);

	stream->request = request;
	stream->pipe = steal_ptr(&answer->body);
	http_reply_headers(request, answer->status,
		answer->content_type ? answer->content_type : "application/octet-stream");
	if (request->is_head) {
		stream->chunk = evbuffer_new();
		http_stream_free(stream);
		http_request_send(request, answer->status);
		return;
	}
	stream->chunk = evbuffer_new();
	ASSERT(stream->chunk);
	request->stream = stream;
	evhttp_send_reply_start(request->evreq, answer->status, http_reason(answer->status));
	pipe_set_reader(stream->pipe, on_data, stream);
}

void http_stream_free(struct http_stream *stream)
{
	pipe_reader_free(stream->pipe);
	evbuffer_free(stream->chunk);
	free(stream);
}
