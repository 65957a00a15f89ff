#include "agent/console.h"

#include <errno.h>
#include <string.h>

#include "agent/dial.h"
#include "base/xalloc.h"

#define CONSOLE_RETRY_MS 100u

struct console {
	struct loop *loop;
	struct dial dial;
	int fd;
	struct event *read_event;
	uint8_t *ring; /* NULL before the first byte */
	size_t end;    /* where the next byte goes */
	size_t held;
};

static void hang_up(struct console *console)
{
	if (console->fd >= 0) {
		event_free(steal_ptr(&console->read_event));
		close(steal_fd(&console->fd));
	}
}

static void keep(struct console *console, const uint8_t *data, size_t len)
{
	size_t part = MIN(len, CONSOLE_RING_BYTES - console->end);

	if (!console->ring) {
		console->ring = xcalloc(1, CONSOLE_RING_BYTES);
	}
	memcpy(console->ring + console->end, data, part);
	memcpy(console->ring, data + part, len - part);
	console->end = (console->end + len) % CONSOLE_RING_BYTES;
	console->held = MIN(console->held + len, (size_t)CONSOLE_RING_BYTES);
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	struct console *console = arg;
	uint8_t bytes[CONSOLE_TURN_BYTES];
	ssize_t n = read(fd, bytes, sizeof bytes);

	(void)what;
	if (n > 0) {
		keep(console, bytes, (size_t)n);
	} else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
		hang_up(console);
		dial_start(&console->dial, CONSOLE_RETRY_MS);
	}
}

static void on_connected(void *arg, int fd)
{
	struct console *console = arg;

	console->fd = fd;
	console->read_event = event_new(
		loop_base(console->loop), fd, EV_READ | EV_PERSIST, on_readable, console);
	ASSERT(console->read_event && event_add(console->read_event, NULL) == 0);
}

static void on_trouble(void *arg, const struct err *err)
{
	/* The channel has the same directory and tells. */
	(void)arg;
	(void)err;
}

struct console *console_new(struct loop *loop, const char *path)
{
	struct console *console = xnew(struct console);
	struct dial_hooks hooks = {
		.on_connected = on_connected, .on_trouble = on_trouble, .arg = console};

	console->loop = loop;
	console->fd = -1;
	dial_init(&console->dial, loop, path, &hooks);
	dial_start(&console->dial, 0);
	return console;
}

void console_free(struct console *console)
{
	if (console) {
		hang_up(console);
		dial_fini(&console->dial);
		free(console->ring);
		free(console);
	}
}

void console_copy(const struct console *console, struct evbuffer *to, size_t max)
{
	size_t len = MIN(max, console->held);
	size_t start = (console->end + CONSOLE_RING_BYTES - len) % CONSOLE_RING_BYTES;
	size_t part = MIN(len, CONSOLE_RING_BYTES - start);

	if (len > 0) {
		ASSERT(evbuffer_add(to, console->ring + start, part) == 0);
		ASSERT(evbuffer_add(to, console->ring, len - part) == 0);
	}
}
