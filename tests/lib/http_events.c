#include "tests/lib/http_events.h"

#include <stdlib.h>

#include "base/xalloc.h"

static bool find(struct client *c, const char *what)
{
	client_poll(c);
	return evbuffer_search(c->in, what, strlen(what), NULL).pos >= 0;
}

struct event_stream *event_stream_new_raw(struct http_world *h, const char *method,
	const char *target, const char *key, const char *type, const void *body, size_t len)
{
	struct event_stream *s = xnew(struct event_stream);

	s->c = client_new(h);
	s->text = evbuffer_new();
	client_request(s->c, method, target, key, "Accept: text/event-stream\r\n", type, body, len);
	WORLD_UNTIL(h->w, find(s->c, "\r\n\r\n") || s->c->is_eof);
	if (!find(s->c, "Content-Type: text/event-stream\r\n")) {
		s->refusal = client_answer(s->c, false);
		return s;
	}
	size_t head = (size_t)evbuffer_search(s->c->in, "\r\n\r\n", 4, NULL).pos + 4;

	s->headers = xcalloc(1, head + 1);
	evbuffer_remove(s->c->in, s->headers, head);
	assert_int_equal(strncmp(s->headers, "HTTP/1.1 200 ", 13), 0);
	assert_non_null(strstr(s->headers, "Transfer-Encoding: chunked\r\n"));
	return s;
}

struct event_stream *event_stream_new(struct http_world *h, const char *method, const char *target,
	const char *key, const char *json)
{
	return event_stream_new_raw(h, method, target, key, json ? "application/json" : NULL, json,
		json ? strlen(json) : 0);
}

void event_stream_free(struct event_stream *s)
{
	if (s->refusal) {
		answer_free(s->refusal);
	}
	client_free(s->c);
	evbuffer_free(s->text);
	free(s->headers);
	free(s);
}

/* The line that begins a chunk, or ends one. */
static bool take_chunk_line(struct event_stream *s)
{
	size_t len;
	_cleanup_free_ char *line = evbuffer_readln(s->c->in, &len, EVBUFFER_EOL_CRLF_STRICT);

	if (line && len > 0) {
		s->chunk_left = strtoul(line, NULL, 16);
		s->is_end = s->chunk_left == 0;
	}
	return line != NULL;
}

/* Takes in what there is. */
static void poll_stream(struct event_stream *s)
{
	client_poll(s->c);
	for (bool goes_on = true; goes_on && !s->is_end;) {
		if (s->chunk_left == 0) {
			goes_on = take_chunk_line(s);
		} else {
			int n = evbuffer_remove_buffer(s->c->in, s->text, s->chunk_left);

			s->chunk_left -= (size_t)n;
			goes_on = n > 0;
		}
	}
	s->is_cut = s->c->is_eof && !s->is_end;
}

static bool take(struct event_stream *s, struct event *ret)
{
	while (event_take(s->text, ret)) {
		if (ret->name[0]) {
			return true;
		}
	}
	return false;
}

bool event_stream_next(struct event_stream *s, struct event *ret)
{
	bool is_there = false;

	assert_null(s->refusal);
	WORLD_UNTIL(
		s->c->h->w, (is_there = take(s, ret)) || (poll_stream(s), s->is_end || s->is_cut));
	return is_there || take(s, ret);
}

void event_stream_expect(struct event_stream *s, const char *name, struct event *ret)
{
	if (!event_stream_next(s, ret)) {
		fail_msg("the stream is over before %s", name);
	}
	assert_string_equal(ret->name, name);
}

void event_stream_drain(struct event_stream *s, struct evbuffer *outputs[2], struct event *ret_last)
{
	struct event event;

	*ret_last = (struct event){0};
	while (event_stream_next(s, &event)) {
		if (event.bytes) {
			evbuffer_add(
				outputs[strcmp(event.name, "stderr") == 0], event.bytes, event.len);
		}
		event_fini(ret_last);
		*ret_last = event;
	}
	assert_true(s->is_cut || evbuffer_get_length(s->text) == 0);
}
