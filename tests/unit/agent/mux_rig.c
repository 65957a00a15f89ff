#include "mux_rig.h"

#include "tests/lib/cm.h"

#include <stdlib.h>
#include <string.h>

#include "base/xalloc.h"

int owner;

static uint8_t wire[MUX_FRAME_MAX_BYTES];

static size_t pull(void *source, uint8_t *out, size_t max, bool *ret_is_end)
{
	struct source *s = source;
	size_t ready = MIN(s->left, s->available);
	size_t n = MIN(max, ready);

	memset(out, 'x', n);
	s->left -= n;
	s->available -= n;
	*ret_is_end = s->left == 0 && !s->is_open;
	return n;
}

struct mux_stream *open_call(struct mux *mux, uint16_t type, size_t len, void *call_owner)
{
	struct err err;
	struct mux_request request = {
		.type = type,
		.body = xcalloc(1, len),
		.len = len,
		.pull = type == FRAME_FILE_PUT ? pull : NULL,
	};
	struct mux_stream *stream = mux_open(mux, &request, call_owner, &err);

	assert_non_null(stream);
	return stream;
}

struct frame next(struct mux *mux)
{
	struct frame frame = {0};
	size_t used;
	size_t n = mux_write(mux, wire);

	if (n > 0) {
		assert_int_equal(frame_parse(FRAME_SIDE_HOST, wire, n, &frame, &used), FRAME_OK);
		assert_int_equal(used, n);
	}
	return frame;
}

void expect(struct mux *mux, uint16_t type, uint32_t stream)
{
	struct frame frame = next(mux);

	assert_int_equal(frame.type, type);
	assert_int_equal(frame.stream, stream);
}

int give(struct mux *mux, uint16_t type, uint16_t flags, uint32_t stream, size_t len,
	struct mux_event *ret)
{
	static uint8_t zeros[PROTO_PAYLOAD_MAX_BYTES];
	struct err err = ERR_INIT;
	struct frame frame = {.type = type,
		.flags = flags,
		.stream = stream,
		.length = (uint32_t)len,
		.payload = zeros};
	int r = mux_input(mux, &frame, ret, &err);

	assert_int_equal(err.kind, r < 0 ? ERR_UNAVAILABLE : ERR_NONE);
	return r;
}

int grant(struct mux *mux, uint32_t stream, uint32_t credit)
{
	uint8_t raw[4];
	struct mux_event event;
	struct err err = ERR_INIT;
	struct frame frame = {.type = FRAME_WINDOW, .stream = stream, .length = 4, .payload = raw};

	put_le32(raw, credit);
	return mux_input(mux, &frame, &event, &err);
}
