#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "base/macros.h"
#include "client/sse.h"

/* A stream of events from a service that may be anybody. */

static int on_event(void *arg, const struct sse_event *event)
{
	struct buffer *log = arg;

	ASSERT(event->data[event->len] == '\0');
	buffer_add(log, event->name, strlen(event->name) + 1);
	buffer_add(log, event->id, strlen(event->id) + 1);
	buffer_add(log, event->data, event->len + 1);
	return 0;
}

static void run(unsigned way, const uint8_t *data, size_t size, struct buffer *log)
{
	_cleanup_sse_ struct sse sse = SSE_INIT(on_event, log);
	struct err err;

	for (size_t at = 0; at < size;) {
		size_t n = fuzz_piece(way, at, size - at);

		ASSERT(sse_feed(&sse, (const char *)data + at, n, &err) == 0);
		at += n;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_buffer_ struct buffer expected = {0};

	run(0, data, size, &expected);
	for (unsigned way = 1; way < FUZZ_WAYS; way++) {
		_cleanup_buffer_ struct buffer log = {0};

		run(way, data, size, &log);
		ASSERT(log.len == expected.len);
		ASSERT(log.len == 0 || memcmp(log.data, expected.data, log.len) == 0);
	}
	return 0;
}
