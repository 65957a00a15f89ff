#include "http/stream.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/xalloc.h"
#include "http/reply.h"
#include "http/server_priv.h"
#include "loop/bytes.h"
#include "loop/pipe.h"
#include "ops/ops.h"

/*
 * Theory of operation. Bytes move from the pipe to the link's buffer while less than out_high_bytes
 * wait there. Over that mark nothing is taken; the pipe fills, and its writer stops. When bytes
 * have left, it goes on. What waits is so bounded by the mark and the pipe's capacity, which the
 * domain chose.
 *
 * The answer has chunks, so that its end can be told from a broken connection. HTTP/1.0 has none:
 * there a length says so where it is known, and a reset where it isn't.
 */

struct http_stream {
	struct http_request *request;
	struct pipe *pipe;
	struct evbuffer *piece;
	bool is_chunked;
	uint64_t left; /* of the length that was announced; UINT64_MAX: none was */
};

static void on_data(void *arg)
{
	struct http_stream *stream = arg;

	http_conn_turn(stream->request->conn);
}

static void add_piece(struct http_stream *stream)
{
	struct evbuffer *out = stream->request->conn->link.out;
	size_t len = evbuffer_get_length(stream->piece);

	if (stream->is_chunked) {
		evbuffer_add_printf(out, "%zx\r\n", len);
	}
	bytes_move(stream->piece, out, len);
	if (stream->is_chunked) {
		evbuffer_add(out, "\r\n", 2);
	}
}

static void finish(struct http_stream *stream)
{
	struct http_request *request = stream->request;

	if (stream->is_chunked) {
		evbuffer_add(request->conn->link.out, "0\r\n\r\n", 5);
	}
	http_request_answered(request);
}

void http_stream_pump(struct http_stream *stream)
{
	struct http_request *request = stream->request;
	struct http_conn *conn = request->conn;
	uint64_t high = request->server->config.out_high_bytes;
	uint64_t unsent = evbuffer_get_length(conn->link.out);
	size_t n = unsent < high ? pipe_read_buffer(stream->pipe, stream->piece, high - unsent) : 0;

	if (n > stream->left || pipe_failure(stream->pipe) ||
		(pipe_is_end(stream->pipe) && stream->left != UINT64_MAX && n < stream->left)) {
		http_conn_break(conn);
		return;
	}
	if (n > 0) {
		request->sent_bytes += n;
		stream->left -= stream->left == UINT64_MAX ? 0 : n;
		add_piece(stream);
	}
	if (pipe_is_end(stream->pipe)) {
		finish(stream);
	}
}

/* How the answer's end is told: sets up @stream for it. */
static void add_framing(struct http_stream *stream, struct http_reply *reply, uint64_t length)
{
	struct http_conn *conn = stream->request->conn;

	stream->left = UINT64_MAX;
	if (!conn->head.is_old) {
		stream->is_chunked = true;
		http_reply_line(reply, "Transfer-Encoding: chunked");
	} else if (length != UINT64_MAX) {
		stream->left = length;
		http_reply_line(reply, "Content-Length: %" PRIu64, length);
	}
}

void http_stream_begin(struct http_request *request, struct op_answer *answer)
{
	bool is_file = answer->content_type == NULL;
	struct http_conn *conn = request->conn;
	struct http_stream *stream = xnew(struct http_stream);
	struct http_reply reply;

	stream->request = request;
	stream->pipe = steal_ptr(&answer->body);
	stream->piece = evbuffer_new();
	ASSERT(stream->piece);
	request->stream = stream;
	request->is_streamed = true;
	http_conn_answers(conn, !request->is_head);
	conn->closes |= conn->head.is_old && !is_file;
	http_reply_begin(&reply, request, answer->status,
		is_file ? "application/octet-stream" : answer->content_type);
	if (is_file) {
		http_reply_file_lines(&reply, answer);
	}
	if (!request->is_head) {
		add_framing(stream, &reply, is_file ? answer->body_bytes : UINT64_MAX);
	}
	http_reply_end(&reply);
	if (request->is_head) {
		http_request_answered(request);
	} else {
		pipe_set_reader(stream->pipe, on_data, stream);
	}
}

void http_stream_free(struct http_stream *stream)
{
	if (stream) {
		pipe_reader_free(stream->pipe);
		evbuffer_free(stream->piece);
		free(stream);
	}
}
