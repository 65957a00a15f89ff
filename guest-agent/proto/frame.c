#include "proto/frame.h"

#include <string.h>

/* Random bytes; the first isn't UTF-8, so no text contains them. */
const uint8_t frame_magic[FRAME_MAGIC_BYTES] = {0xff, 0x50, 0x44, 0x4b, 0x9d, 0x1c, 0xe2, 0x77,
	0x05, 0xb8, 0x63, 0xfa, 0x31, 0xce, 0x8a, 0x0e};

uint16_t get_le16(const uint8_t *p)
{
	return (uint16_t)(p[0] | p[1] << 8);
}

uint32_t get_le32(const uint8_t *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

uint64_t get_le64(const uint8_t *p)
{
	return (uint64_t)get_le32(p) | (uint64_t)get_le32(p + 4) << 32;
}

void put_le16(uint8_t *p, uint16_t v)
{
	p[0] = (uint8_t)v;
	p[1] = (uint8_t)(v >> 8);
}

void put_le32(uint8_t *p, uint32_t v)
{
	put_le16(p, (uint16_t)v);
	put_le16(p + 2, (uint16_t)(v >> 16));
}

void put_le64(uint8_t *p, uint64_t v)
{
	put_le32(p, (uint32_t)v);
	put_le32(p + 4, (uint32_t)(v >> 32));
}

void frame_header(uint8_t *out, uint16_t type, uint16_t flags, uint32_t stream, uint32_t length)
{
	put_le32(out, length);
	put_le16(out + 4, type);
	put_le16(out + 6, flags);
	put_le32(out + 8, stream);
}

const char *frame_type_name(uint16_t type)
{
	switch (type) {
#define X(number, name, dir)                                                                       \
	case number:                                                                               \
		return #name;
		FRAME_TYPES(X)
#undef X
	default:
		return NULL;
	}
}

bool frame_type_is_call(uint16_t type)
{
	return type >= FRAME_EXEC && type <= FRAME_JOB_FORGET;
}

static enum frame_side type_sender(uint16_t type)
{
	switch (type) {
#define X(number, name, dir)                                                                       \
	case number:                                                                               \
		return FRAME_SIDE_##dir;
		FRAME_TYPES(X)
#undef X
	default:
		return 0;
	}
}

static bool channel_fits(enum frame_side from, uint16_t type, uint16_t flags)
{
	uint16_t channel = flags & FRAME_CHANNEL_MASK;

	if (channel >= FRAME_CHANNEL_MAX) {
		return false;
	}
	/* Who sends data on IN gets credit for IN, and the other way round. */
	bool host_sends = channel == FRAME_CHANNEL_IN;
	bool is_from_host = from == FRAME_SIDE_HOST;

	return type == FRAME_WINDOW ? is_from_host != host_sends : is_from_host == host_sends;
}

static bool length_fits(uint16_t type, uint32_t length)
{
	switch (type) {
	case FRAME_SYNC:
	case FRAME_SYNC_ACK:
		return length == FRAME_SYNC_BYTES;
	case FRAME_PING:
	case FRAME_PONG:
		return length <= 64;
	case FRAME_WINDOW:
		return length == 4;
	case FRAME_GAP:
		return length == 8;
	case FRAME_CLOSE:
	case FRAME_CANCEL:
		return length == 0;
	case FRAME_DATA:
		return length > 0;
	default:
		return true;
	}
}

enum frame_result frame_parse(
	enum frame_side from, const uint8_t *buf, size_t len, struct frame *ret, size_t *ret_used)
{
	if (len < PROTO_HEADER_BYTES) {
		return FRAME_INCOMPLETE;
	}
	struct frame f = {
		.length = get_le32(buf),
		.type = get_le16(buf + 4),
		.flags = get_le16(buf + 6),
		.stream = get_le32(buf + 8),
		.payload = buf + PROTO_HEADER_BYTES,
	};

	if (f.length > PROTO_PAYLOAD_MAX_BYTES || !length_fits(f.type, f.length)) {
		return FRAME_BAD;
	}
	if ((type_sender(f.type) & from) == 0) {
		return FRAME_BAD;
	}
	if ((f.type < FRAME_EXEC) != (f.stream == 0)) {
		return FRAME_BAD;
	}
	if (f.type == FRAME_DATA || f.type == FRAME_CLOSE || f.type == FRAME_WINDOW) {
		if ((f.flags & ~FRAME_CHANNEL_MASK) != 0 || !channel_fits(from, f.type, f.flags)) {
			return FRAME_BAD;
		}
	} else if (f.flags != 0 && !(f.flags == FRAME_MORE && frame_type_is_call(f.type))) {
		return FRAME_BAD;
	}
	if (len - PROTO_HEADER_BYTES < f.length) {
		return FRAME_INCOMPLETE;
	}
	if ((f.type == FRAME_SYNC || f.type == FRAME_SYNC_ACK) &&
		memcmp(f.payload, frame_magic, FRAME_MAGIC_BYTES) != 0) {
		return FRAME_BAD;
	}
	*ret = f;
	*ret_used = PROTO_HEADER_BYTES + f.length;
	return FRAME_OK;
}

enum frame_result frame_hunt(
	enum frame_side from, const uint8_t *buf, size_t len, size_t *ret_offset)
{
	uint8_t pattern[PROTO_HEADER_BYTES + FRAME_MAGIC_BYTES];
	size_t offset = 0;

	frame_header(pattern, from == FRAME_SIDE_HOST ? FRAME_SYNC : FRAME_SYNC_ACK, 0, 0,
		FRAME_SYNC_BYTES);
	memcpy(pattern + PROTO_HEADER_BYTES, frame_magic, FRAME_MAGIC_BYTES);

	for (; offset < len; offset++) {
		size_t rest = len - offset;
		size_t part = rest < sizeof pattern ? rest : sizeof pattern;

		if (memcmp(buf + offset, pattern, part) == 0) {
			break;
		}
	}
	*ret_offset = offset;
	return len - offset >= PROTO_HEADER_BYTES + FRAME_SYNC_BYTES ? FRAME_OK : FRAME_INCOMPLETE;
}
