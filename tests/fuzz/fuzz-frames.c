#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "base/macros.h"
#include "base/parse.h"
#include "http/frames.h"

/* What a client sends in a conversation: the messages that are made of it, and what it is answered
 * with. */

#define MESSAGE_MAX 1000
#define OUT_MAX     500

static void note(struct evbuffer *log, enum http_frames_event event,
	const struct http_frames_message *message)
{
	ASSERT(message->len <= MESSAGE_MAX);
	ASSERT(event == HTTP_FRAMES_MESSAGE || message->code == 0 || message->code >= 1000);
	if (event == HTTP_FRAMES_MESSAGE && message->is_text) {
		ASSERT(utf8_is_valid(message->text, message->len));
	}
	evbuffer_add_printf(
		log, "%d %d %u %zu ", event, message->is_text, message->code, message->len);
	evbuffer_add(log, message->text, message->len);
}

/* True: it may go on. */
static bool take_all(struct http_frames *frames, struct evbuffer *log)
{
	for (;;) {
		struct http_frames_message message = {.text = ""};
		enum http_frames_event event = http_frames_next(frames, OUT_MAX, &message);

		if (event == HTTP_FRAMES_MORE) {
			return true;
		}
		note(log, event, &message);
		if (event != HTTP_FRAMES_MESSAGE) {
			http_frames_close(frames, message.code, message.text);
			return false;
		}
	}
}

/* All that came of it, in @log. */
static void run(unsigned way, const uint8_t *data, size_t size, struct evbuffer *log)
{
	struct evbuffer *in = evbuffer_new();
	struct evbuffer *out = evbuffer_new();
	struct http_frames *frames = http_frames_new(in, out, MESSAGE_MAX);
	bool goes_on = true;

	for (size_t at = 0; at < size && goes_on;) {
		size_t n = fuzz_piece(way, at, size - at);

		evbuffer_add(in, data + at, n);
		goes_on = take_all(frames, log);
		ASSERT(!goes_on || evbuffer_get_length(in) == 0);
		at += n;
	}
	/* A pong and a goodbye may come on top of what is the most. */
	ASSERT(evbuffer_get_length(out) <= OUT_MAX + 2 * 127);
	evbuffer_add_printf(log, "%d ", goes_on);
	evbuffer_add_buffer(log, out);
	http_frames_free(frames);
	evbuffer_free(in);
	evbuffer_free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct evbuffer *expected = evbuffer_new();

	run(0, data, size, expected);
	for (unsigned way = 1; way < FUZZ_WAYS; way++) {
		struct evbuffer *log = evbuffer_new();

		run(way, data, size, log);
		size_t len = evbuffer_get_length(log);

		ASSERT(len == evbuffer_get_length(expected));
		ASSERT(memcmp(evbuffer_pullup(log, -1), evbuffer_pullup(expected, -1), len) == 0);
		evbuffer_free(log);
	}
	evbuffer_free(expected);
	return 0;
}
