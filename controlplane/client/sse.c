#include "client/sse.h"

#include <string.h>

/*
 * Theory of operation. Bytes are gathered to lines, lines to an event; an empty line hands the
 * event out. A CR ends its line at once: waiting for the LF that may follow would hold back an
 * event that is complete.
 */

static void drop_event(struct sse *sse)
{
	buffer_clear(&sse->name);
	buffer_clear(&sse->data);
	sse->has_data = false;
}

static int end_event(struct sse *sse, struct err *err)
{
	if (!sse->has_data) {
		drop_event(sse);
		return 0;
	}
	struct sse_event event = {
		.name = sse->name.len > 0 ? sse->name.data : "message",
		.id = sse->id.len > 0 ? sse->id.data : "",
		.data = sse->data.len > 0 ? sse->data.data : "",
		.len = sse->data.len,
	};
	int rc = sse->on_event(sse->arg, &event);

	drop_event(sse);
	return rc == 0 ? 0 : err_set(err, ERR_CANCELLED, "given up");
}

static bool is_field(const char *line, size_t name_len, const char *name)
{
	return strlen(name) == name_len && memcmp(line, name, name_len) == 0;
}

static void set(struct buffer *b, const char *value, size_t len)
{
	buffer_clear(b);
	buffer_add(b, value, len);
}

static void take_field(struct sse *sse, const char *line, size_t len)
{
	const char *colon = memchr(line, ':', len);
	size_t name_len = colon ? (size_t)(colon - line) : len;
	const char *value = colon ? colon + 1 : line + len;
	size_t value_len = (size_t)(line + len - value);

	if (value_len > 0 && value[0] == ' ') {
		value++;
		value_len--;
	}
	if (is_field(line, name_len, "data")) {
		if (sse->has_data) {
			buffer_add(&sse->data, "\n", 1);
		}
		buffer_add(&sse->data, value, value_len);
		sse->has_data = true;
	} else if (is_field(line, name_len, "event")) {
		set(&sse->name, value, value_len);
	} else if (is_field(line, name_len, "id") && !memchr(value, '\0', value_len)) {
		set(&sse->id, value, value_len);
	}
}

static int end_line(struct sse *sse, struct err *err)
{
	const char *line = sse->line.len > 0 ? sse->line.data : "";
	size_t len = sse->line.len;
	int rc = 0;

	if (!sse->is_started && len >= 3 && memcmp(line, "\xef\xbb\xbf", 3) == 0) {
		line += 3;
		len -= 3;
	}
	sse->is_started = true;
	if (len == 0) {
		rc = end_event(sse, err);
	} else if (line[0] != ':') {
		take_field(sse, line, len);
	}
	buffer_clear(&sse->line);
	return rc;
}

/* Bytes before the next line end, or all. */
static size_t span_of_line(const char *data, size_t len)
{
	const char *lf = memchr(data, '\n', len);
	size_t span = lf ? (size_t)(lf - data) : len;
	const char *cr = memchr(data, '\r', span);

	return cr ? (size_t)(cr - data) : span;
}

int sse_feed(struct sse *sse, const char *data, size_t len, struct err *err)
{
	while (len > 0) {
		if (sse->is_after_cr) {
			sse->is_after_cr = false;
			if (data[0] == '\n') {
				data++;
				len--;
				continue;
			}
		}
		size_t span = span_of_line(data, len);

		if (span > SSE_EVENT_MAX_BYTES - sse->line.len ||
			sse->line.len + span > SSE_EVENT_MAX_BYTES - sse->data.len) {
			return err_set(err, ERR_TOO_LARGE,
				"an event of the stream is larger than %zu bytes",
				SSE_EVENT_MAX_BYTES);
		}
		buffer_add(&sse->line, data, span);
		if (span == len) {
			return 0;
		}
		sse->is_after_cr = data[span] == '\r';
		data += span + 1;
		len -= span + 1;
		if (end_line(sse, err) != 0) {
			return -1;
		}
	}
	return 0;
}

void sse_fini(struct sse *sse)
{
	buffer_fini(&sse->line);
	buffer_fini(&sse->name);
	buffer_fini(&sse->id);
	buffer_fini(&sse->data);
}
