#include "loop/pipe.h"

#include "base/xalloc.h"
#include "loop/bytes.h"

struct pipe_side {
	bool is_held;
	bool is_scheduled;
	pipe_fn fn;
	void *arg;
};

struct pipe {
	struct loop *loop;
	struct evbuffer *bytes;
	size_t capacity;
	bool is_closed;
	struct err failure;
	struct pipe_side writer;
	struct pipe_side reader;
};

static void on_reader_turn(void *arg)
{
	struct pipe *pipe = arg;

	pipe->reader.is_scheduled = false;
	if (pipe->reader.fn) {
		pipe->reader.fn(pipe->reader.arg);
	}
}

static void on_writer_turn(void *arg)
{
	struct pipe *pipe = arg;

	pipe->writer.is_scheduled = false;
	if (pipe->writer.fn) {
		pipe->writer.fn(pipe->writer.arg);
	}
}

static void wake_reader(struct pipe *pipe)
{
	if (pipe->reader.fn && !pipe->reader.is_scheduled) {
		pipe->reader.is_scheduled = true;
		loop_defer(pipe->loop, on_reader_turn, pipe);
	}
}

static void wake_writer(struct pipe *pipe)
{
	if (pipe->writer.fn && !pipe->writer.is_scheduled) {
		pipe->writer.is_scheduled = true;
		loop_defer(pipe->loop, on_writer_turn, pipe);
	}
}

struct pipe *pipe_new(struct loop *loop, size_t capacity)
{
	struct pipe *pipe = xnew(struct pipe);

	ASSERT(capacity > 0);
	pipe->loop = loop;
	pipe->capacity = capacity;
	pipe->bytes = evbuffer_new();
	ASSERT(pipe->bytes != NULL);
	pipe->writer.is_held = true;
	pipe->reader.is_held = true;
	return pipe;
}

static void side_free(struct pipe *pipe, struct pipe_side *side)
{
	side->is_held = false;
	side->fn = NULL;
	if (pipe->writer.is_held || pipe->reader.is_held) {
		return;
	}
	loop_cancel_deferred(pipe->loop, on_reader_turn, pipe);
	loop_cancel_deferred(pipe->loop, on_writer_turn, pipe);
	evbuffer_free(pipe->bytes);
	free(pipe);
}

static void fail_abandoned(struct pipe *pipe, const char *side)
{
	struct err err;

	err_set(&err, ERR_CANCELLED, "the %s went away", side);
	pipe_fail(pipe, &err);
}

void pipe_writer_free(struct pipe *pipe)
{
	if (pipe) {
		if (!pipe->is_closed) {
			fail_abandoned(pipe, "sender");
		}
		side_free(pipe, &pipe->writer);
	}
}

void pipe_reader_free(struct pipe *pipe)
{
	if (pipe) {
		if (!pipe_is_end(pipe)) {
			fail_abandoned(pipe, "receiver");
		}
		side_free(pipe, &pipe->reader);
	}
}

void pipe_set_writer(struct pipe *pipe, pipe_fn on_room, void *arg)
{
	pipe->writer.fn = on_room;
	pipe->writer.arg = arg;
	if (pipe_failure(pipe)) {
		wake_writer(pipe);
	}
}

size_t pipe_room(const struct pipe *pipe)
{
	size_t held = evbuffer_get_length(pipe->bytes);

	return pipe_failure(pipe) || pipe->is_closed || held >= pipe->capacity
		       ? 0
		       : pipe->capacity - held;
}

size_t pipe_write_buffer(struct pipe *pipe, struct evbuffer *from)
{
	size_t n = MIN(pipe_room(pipe), evbuffer_get_length(from));

	if (n > 0) {
		bytes_move(from, pipe->bytes, n);
		wake_reader(pipe);
	}
	return n;
}

size_t pipe_write(struct pipe *pipe, const void *data, size_t len)
{
	size_t n = MIN(pipe_room(pipe), len);

	if (n > 0) {
		ASSERT(evbuffer_add(pipe->bytes, data, n) == 0);
		wake_reader(pipe);
	}
	return n;
}

void pipe_close(struct pipe *pipe)
{
	if (!pipe->is_closed) {
		pipe->is_closed = true;
		wake_reader(pipe);
	}
}

void pipe_set_reader(struct pipe *pipe, pipe_fn on_data, void *arg)
{
	pipe->reader.fn = on_data;
	pipe->reader.arg = arg;
	if (evbuffer_get_length(pipe->bytes) > 0 || pipe->is_closed || pipe_failure(pipe)) {
		wake_reader(pipe);
	}
}

size_t pipe_available(const struct pipe *pipe)
{
	return evbuffer_get_length(pipe->bytes);
}

/* The writer hears of room once half is free, not for every byte. */
static void after_read(struct pipe *pipe, size_t held_before)
{
	size_t mark = pipe->capacity - pipe->capacity / 2;

	if (held_before >= mark && evbuffer_get_length(pipe->bytes) < mark) {
		wake_writer(pipe);
	}
}

size_t pipe_read_buffer(struct pipe *pipe, struct evbuffer *to, size_t max)
{
	size_t held = evbuffer_get_length(pipe->bytes);
	size_t n = MIN(held, max);

	if (n > 0) {
		bytes_move(pipe->bytes, to, n);
		after_read(pipe, held);
	}
	return n;
}

size_t pipe_read(struct pipe *pipe, void *out, size_t max)
{
	size_t held = evbuffer_get_length(pipe->bytes);
	size_t n = MIN(held, max);

	if (n > 0) {
		ASSERT(evbuffer_remove(pipe->bytes, out, n) == (int)n);
		after_read(pipe, held);
	}
	return n;
}

bool pipe_is_end(const struct pipe *pipe)
{
	return pipe->is_closed && !pipe_failure(pipe) && evbuffer_get_length(pipe->bytes) == 0;
}

void pipe_fail(struct pipe *pipe, const struct err *err)
{
	if (pipe_failure(pipe) || pipe_is_end(pipe)) {
		return;
	}
	pipe->failure = *err;
	evbuffer_drain(pipe->bytes, evbuffer_get_length(pipe->bytes));
	wake_reader(pipe);
	wake_writer(pipe);
}

const struct err *pipe_failure(const struct pipe *pipe)
{
	return pipe->failure.kind == ERR_NONE ? NULL : &pipe->failure;
}
