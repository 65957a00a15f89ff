#include "src/feed.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/stream.h"

#define BUF_BYTES PROTO_WINDOW_INITIAL_BYTES

void feed_open(struct feed *f, int fd)
{
	f->fd = fd;
	f->state = FEED_OPEN;
}

void feed_stop(struct stream *s, struct feed *f)
{
	size_t dropped = f->len;

	f->state = FEED_STOPPED;
	if (f->is_shared && f->fd >= 0) {
		loop_forget(f->fd);
	}
	util_close(&f->fd);
	free(f->buf);
	f->buf = NULL;
	f->len = 0;
	if (dropped > 0) {
		stream_in_done(s, dropped);
	}
}

/* Returns how much was taken. On an error the feed stops and everything counts as taken. */
static size_t write_some(struct stream *s, struct feed *f, const uint8_t *data, size_t len)
{
	ssize_t n;

	do {
		n = write(f->fd, data, len);
	} while (n < 0 && errno == EINTR);
	if (n < 0 && errno != EAGAIN) {
		f->sys = errno;
		feed_stop(s, f);
		return len;
	}
	f->bytes += n > 0 ? (uint64_t)n : 0;
	return n > 0 ? (size_t)n : 0;
}

void feed_pump(struct stream *s, struct feed *f)
{
	while (f->state == FEED_OPEN && f->len > 0) {
		size_t n = write_some(s, f, f->buf + f->head, MIN(f->len, BUF_BYTES - f->head));

		if (n == 0 || f->state != FEED_OPEN) {
			return;
		}
		f->head = (f->head + n) % BUF_BYTES;
		f->len -= n;
		stream_in_done(s, n);
	}
	if (f->state == FEED_OPEN && s->is_in_closed && !f->goes_on) {
		feed_stop(s, f);
	}
}

static void keep(struct stream *s, struct feed *f, const uint8_t *data, size_t len)
{
	if (f->buf == NULL) {
		f->buf = malloc(BUF_BYTES);
		f->head = 0;
	}
	if (f->buf == NULL) {
		f->sys = ENOMEM;
		feed_stop(s, f);
		stream_in_done(s, len);
		return;
	}
	while (len > 0) {
		size_t at = (f->head + f->len) % BUF_BYTES;
		size_t piece = MIN(len, BUF_BYTES - at);

		memcpy(f->buf + at, data, piece);
		f->len += piece;
		data += piece;
		len -= piece;
	}
}

void feed_data(struct stream *s, struct feed *f, const uint8_t *data, size_t len)
{
	size_t n = f->state == FEED_STOPPED ? len : 0;

	while (f->state == FEED_OPEN && f->len == 0 && n < len) {
		size_t taken = write_some(s, f, data + n, len - n);

		n += taken;
		if (taken == 0) {
			break;
		}
	}
	if (n > 0) {
		stream_in_done(s, n);
	}
	if (n < len) {
		keep(s, f, data + n, len - n);
	}
}
