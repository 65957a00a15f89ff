#include "ops/events.h"

#include <event2/buffer.h>
#include <event2/event.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base64.h"
#include "base/clock.h"
#include "base/parse.h"
#include "base/xalloc.h"

/*
 * Theory of operation
 *
 * What is given waits in a backlog, as it came: the bytes in one buffer, and how many are of which
 * kind in another, so that a guest that sends single bytes makes us hold few more. While the pipe
 * has room, the backlog is made into records, piece by piece; of a record that finds no room as a
 * whole the rest is the first thing to go on. So what is held beyond the pipe is one record and
 * what a guest still sends after it was paused.
 *
 * A piece ends where a character would be split: its part (carry) is the beginning of that output's
 * next piece, or, where something else than output follows, a piece of its own.
 */

#define PIECE_BYTES  (32 * 1024)
#define ESCAPE_BYTES 6 /* "\u0001" */
#define CARRY_BYTES  3
#define HEAD_BYTES   128 /* what is around a piece */
#define HEARTBEAT    ":\n\n"

enum kind { KIND_RECORD, KIND_STDOUT, KIND_STDERR, KIND_OFFSET };

struct run {
	uint32_t kind;
	uint32_t len;
};

struct carry {
	char bytes[CARRY_BYTES];
	size_t len;
	uint64_t offset; /* of the first one */
};

struct events {
	struct pipe *pipe; /* NULL: closed */
	struct event *timer;
	unsigned heartbeat_ms;
	uint64_t written_ms;
	events_flow_fn on_flow;
	void *arg;
	bool is_full;
	bool is_ending;

	struct evbuffer *bytes; /* the backlog */
	struct evbuffer *runs;  /* struct run each */
	struct evbuffer *rest;  /* of a record */
	struct carry carries[2];
	bool has_offset;
	uint64_t offset; /* behind the bytes that have left the backlog */
};

/* ---- into the pipe ---- */

static void write_out(struct events *events, const char *data, size_t len)
{
	size_t n = pipe_write(events->pipe, data, len);

	events->written_ms = clock_monotonic_ms();
	ASSERT(evbuffer_add(events->rest, data + n, len - n) == 0);
}

static void arm(struct events *events)
{
	uint64_t due = events->written_ms + events->heartbeat_ms;
	uint64_t now = clock_monotonic_ms();

	loop_timer_set(events->timer, due > now ? due - now : 1);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct events *events = arg;

	(void)fd;
	(void)what;
	/* A reader that is behind has enough to read. */
	if (clock_monotonic_ms() >= events->written_ms + events->heartbeat_ms) {
		events->written_ms = clock_monotonic_ms();
		if (pipe_room(events->pipe) >= strlen(HEARTBEAT) && !events->is_full) {
			write_out(events, HEARTBEAT, strlen(HEARTBEAT));
		}
	}
	arm(events);
}

/* ---- records of output ---- */

/* @text as the inside of a JSON string; returns the end. */
static char *escape(char *out, const char *text, size_t len)
{
	static const char shorts[32] = {
		['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r'};
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)text[i];

		if (c >= 0x20 && c != '"' && c != '\\') {
			*out++ = (char)c;
		} else if (c >= 0x20) {
			*out++ = '\\';
			*out++ = (char)c;
		} else if (shorts[c]) {
			*out++ = '\\';
			*out++ = shorts[c];
		} else {
			memcpy(out, "\\u00", 4);
			out[4] = digits[c >> 4];
			out[5] = digits[c & 15];
			out += ESCAPE_BYTES;
		}
	}
	return out;
}

/* After which no byte is missed: behind the last one, or before the first that waits. */
static uint64_t resume_offset(const struct events *events)
{
	uint64_t offset = events->offset;

	for (size_t i = 0; i < ARRAY_SIZE(events->carries); i++) {
		if (events->carries[i].len > 0) {
			offset = MIN(offset, events->carries[i].offset);
		}
	}
	return offset;
}

/* Returns how long it is. */
static size_t head_of(const struct events *events, const char *name, char out[HEAD_BYTES])
{
	char id[32] = "";

	if (events->has_offset) {
		snprintf(id, sizeof id, "id: %" PRIu64 "\n", resume_offset(events));
	}
	int len = snprintf(out, HEAD_BYTES, "event: %s\n%sdata: ", name, id);

	ASSERT(len > 0 && len < HEAD_BYTES);
	return (size_t)len;
}

static void write_piece(struct events *events, enum kind kind, const char *bytes, size_t len)
{
	static char record[HEAD_BYTES + ESCAPE_BYTES * (PIECE_BYTES + CARRY_BYTES)];
	bool is_text = !memchr(bytes, 0, len) && utf8_is_valid(bytes, len);
	char *out = record + head_of(events, kind == KIND_STDOUT ? "stdout" : "stderr", record);

	if (is_text) {
		out = stpcpy(out, "{\"text\":\"");
		out = escape(out, bytes, len);
	} else {
		out = stpcpy(out, "{\"base64\":\"");
		base64_encode(out, bytes, len);
		out += BASE64_ENCODED_BYTES(len);
	}
	out = stpcpy(out, "\"}\n\n");
	write_out(events, record, (size_t)(out - record));
}

/* The rest of these characters won't come. */
static void write_carries(struct events *events)
{
	for (size_t i = 0; i < ARRAY_SIZE(events->carries); i++) {
		struct carry carry = events->carries[i];

		events->carries[i].len = 0;
		if (carry.len > 0) {
			write_piece(events, KIND_STDOUT + i, carry.bytes, carry.len);
		}
	}
}

/* ---- the backlog ---- */

static void put(struct events *events, enum kind kind, const void *data, size_t len)
{
	const struct run run = {.kind = kind, .len = (uint32_t)len};

	ASSERT(len <= UINT32_MAX);
	if (len > 0) {
		ASSERT(evbuffer_add(events->bytes, data, len) == 0 &&
			evbuffer_add(events->runs, &run, sizeof run) == 0);
	}
}

/* The first run; NULL: there is none. It may be changed. */
static struct run *first_run(struct events *events)
{
	return evbuffer_get_length(events->runs) == 0
		       ? NULL
		       : (struct run *)(void *)evbuffer_pullup(
				 events->runs, (ssize_t)sizeof(struct run));
}

/* Takes up to @max bytes of the first run. */
static size_t take(struct events *events, char *out, size_t max)
{
	struct run *run = first_run(events);
	size_t n = MIN(run->len, max);

	ASSERT(evbuffer_remove(events->bytes, out, n) == (int)n);
	run->len -= (uint32_t)n;
	if (run->len == 0) {
		evbuffer_drain(events->runs, sizeof *run);
	}
	return n;
}

static void write_output(struct events *events, enum kind kind)
{
	static char piece[CARRY_BYTES + PIECE_BYTES];
	struct carry *carry = &events->carries[kind - KIND_STDOUT];
	size_t len = carry->len;

	memcpy(piece, carry->bytes, len);
	for (struct run *run;
		(run = first_run(events)) && run->kind == kind && len < PIECE_BYTES;) {
		size_t n = take(events, piece + len, PIECE_BYTES - len);

		len += n;
		events->offset += n;
	}
	carry->len = utf8_split_end(piece, len);
	carry->offset = events->offset - carry->len;
	memcpy(carry->bytes, piece + len - carry->len, carry->len);
	if (len > carry->len) {
		write_piece(events, kind, piece, len - carry->len);
	}
}

/* A run of this kind is its name, NUL, and its JSON. */
static void write_record(struct events *events)
{
	size_t len = first_run(events)->len;
	_cleanup_free_ char *name = xcalloc(1, len + strlen("\n\n"));
	char head[HEAD_BYTES];

	take(events, name, len);
	memcpy(name + len, "\n\n", strlen("\n\n"));
	write_out(events, head, head_of(events, name, head));
	write_out(events, name + strlen(name) + 1, len + strlen("\n\n") - strlen(name) - 1);
}

static void write_next(struct events *events)
{
	enum kind kind = first_run(events)->kind;

	if (kind == KIND_STDOUT || kind == KIND_STDERR) {
		write_output(events, kind);
		return;
	}
	write_carries(events);
	if (kind == KIND_OFFSET) {
		take(events, (char *)&events->offset, sizeof events->offset);
		events->has_offset = true;
	} else {
		write_record(events);
	}
}

static bool has_backlog(const struct events *events)
{
	return evbuffer_get_length(events->rest) > 0 || evbuffer_get_length(events->runs) > 0;
}

static void end(struct events *events)
{
	pipe_close(events->pipe);
	pipe_writer_free(events->pipe);
	events->pipe = NULL;
	evtimer_del(events->timer);
}

static void flush(struct events *events)
{
	pipe_write_buffer(events->pipe, events->rest);
	while (evbuffer_get_length(events->rest) == 0 && first_run(events) &&
		pipe_room(events->pipe) > 0) {
		write_next(events);
	}
	if (events->is_ending && !first_run(events)) {
		write_carries(events);
	}
	if (has_backlog(events) != events->is_full) {
		events->is_full = !events->is_full;
		events->on_flow(events->arg, events->is_full);
	}
	if (events->is_ending && !has_backlog(events)) {
		end(events);
	}
}

static void on_room(void *arg)
{
	flush(arg);
}

/* ---- for callers ---- */

struct events *events_new(struct loop *loop, struct pipe *pipe, unsigned heartbeat_ms,
	events_flow_fn on_flow, void *arg)
{
	struct events *events = xnew(struct events);

	events->pipe = pipe;
	events->timer = loop_timer_new(loop, on_timer, events);
	events->heartbeat_ms = heartbeat_ms;
	events->written_ms = clock_monotonic_ms();
	events->on_flow = on_flow;
	events->arg = arg;
	events->bytes = evbuffer_new();
	events->runs = evbuffer_new();
	events->rest = evbuffer_new();
	ASSERT(events->bytes && events->runs && events->rest);
	pipe_set_writer(pipe, on_room, events);
	arm(events);
	return events;
}

void events_free(struct events *events)
{
	if (events) {
		pipe_writer_free(events->pipe);
		event_free(events->timer);
		evbuffer_free(events->bytes);
		evbuffer_free(events->runs);
		evbuffer_free(events->rest);
		free(events);
	}
}

void events_add(struct events *events, const char *name, json_object *data)
{
	_cleanup_json_ json_object *json = data;
	size_t len;
	const char *text = json_text(json, &len);
	size_t name_len = strlen(name) + 1;
	_cleanup_free_ char *run = xcalloc(1, name_len + len);

	ASSERT(!events->is_ending);
	memcpy(run, name, name_len);
	memcpy(run + name_len, text, len);
	put(events, KIND_RECORD, run, name_len + len);
	flush(events);
}

void events_output(struct events *events, int fd, const void *data, size_t len)
{
	ASSERT((fd == 1 || fd == 2) && !events->is_ending);
	put(events, fd == 1 ? KIND_STDOUT : KIND_STDERR, data, len);
	flush(events);
}

void events_locate(struct events *events, uint64_t offset)
{
	put(events, KIND_OFFSET, &offset, sizeof offset);
	flush(events);
}

void events_end(struct events *events)
{
	events->is_ending = true;
	flush(events);
}
