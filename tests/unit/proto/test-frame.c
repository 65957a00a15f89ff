#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/frame.h"

#define SYNC_FRAME_BYTES (PROTO_HEADER_BYTES + FRAME_SYNC_BYTES)

/* The SYNC of PROTOCOL.md, byte by byte. */
static const uint8_t documented_sync[SYNC_FRAME_BYTES] = {0x20, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00,
	0x00, 0x00, 0x00, 0x00, 0x00, 0xff, 0x50, 0x44, 0x4b, 0x9d, 0x1c, 0xe2, 0x77, 0x05, 0xb8,
	0x63, 0xfa, 0x31, 0xce, 0x8a, 0x0e, 0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08,
	0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f};

/* A frame with a payload of zeros, in a buffer of exactly its size so that ASan sees an overread.
 */
static uint8_t *make(
	uint16_t type, uint16_t flags, uint32_t stream, uint32_t length, size_t *ret_len)
{
	uint8_t *buf = calloc(1, PROTO_HEADER_BYTES + length);

	assert_non_null(buf);
	frame_header(buf, type, flags, stream, length);
	if ((type == FRAME_SYNC || type == FRAME_SYNC_ACK) && length >= FRAME_MAGIC_BYTES) {
		memcpy(buf + PROTO_HEADER_BYTES, frame_magic, FRAME_MAGIC_BYTES);
	}
	*ret_len = PROTO_HEADER_BYTES + length;
	return buf;
}

static enum frame_result parse_one(
	enum frame_side from, uint16_t type, uint16_t flags, uint32_t stream, uint32_t length)
{
	size_t len;
	size_t used = 0;
	struct frame f;
	uint8_t *buf = make(type, flags, stream, length, &len);
	enum frame_result result = frame_parse(from, buf, len, &f, &used);

	if (result == FRAME_OK) {
		assert_int_equal(used, len);
		assert_int_equal(f.type, type);
		assert_int_equal(f.flags, flags);
		assert_int_equal(f.stream, stream);
		assert_int_equal(f.length, length);
		assert_ptr_equal(f.payload, buf + PROTO_HEADER_BYTES);
	}
	free(buf);
	return result;
}

static void test_frame_header_is_little_endian(void **state)
{
	static const uint8_t expected[PROTO_HEADER_BYTES] = {
		0x04, 0x03, 0x02, 0x01, 0x06, 0x05, 0x08, 0x07, 0x0c, 0x0b, 0x0a, 0x09};
	uint8_t out[PROTO_HEADER_BYTES];

	(void)state;
	frame_header(out, 0x0506, 0x0708, 0x090a0b0c, 0x01020304);
	assert_memory_equal(out, expected, sizeof out);
	put_le64(out, 0x1122334455667788u);
	assert_int_equal(out[0], 0x88);
	assert_true(get_le64(out) == 0x1122334455667788u);
}

static void test_frame_parses_the_documented_sync(void **state)
{
	struct frame f;
	size_t used;

	(void)state;
	assert_int_equal(
		frame_parse(FRAME_SIDE_HOST, documented_sync, sizeof documented_sync, &f, &used),
		FRAME_OK);
	assert_int_equal(f.type, FRAME_SYNC);
	assert_int_equal(used, sizeof documented_sync);
}

static void test_frame_needs_every_byte(void **state)
{
	(void)state;
	for (size_t len = 0; len < sizeof documented_sync; len++) {
		uint8_t *exact = malloc(len + (len == 0));
		struct frame f;
		size_t used = 77;

		assert_non_null(exact);
		memcpy(exact, documented_sync, len);
		assert_int_equal(
			frame_parse(FRAME_SIDE_HOST, exact, len, &f, &used), FRAME_INCOMPLETE);
		assert_int_equal(used, 77);
		free(exact);
	}
}

static void test_frame_refuses_an_excessive_length_before_its_payload_came(void **state)
{
	uint8_t header[PROTO_HEADER_BYTES];
	struct frame f;
	size_t used;

	(void)state;
	frame_header(header, FRAME_EXEC, 0, 1, PROTO_PAYLOAD_MAX_BYTES);
	assert_int_equal(
		frame_parse(FRAME_SIDE_HOST, header, sizeof header, &f, &used), FRAME_INCOMPLETE);
	frame_header(header, FRAME_EXEC, 0, 1, PROTO_PAYLOAD_MAX_BYTES + 1);
	assert_int_equal(frame_parse(FRAME_SIDE_HOST, header, sizeof header, &f, &used), FRAME_BAD);
	frame_header(header, FRAME_EXEC, 0, 1, UINT32_MAX);
	assert_int_equal(frame_parse(FRAME_SIDE_HOST, header, sizeof header, &f, &used), FRAME_BAD);
}

static void test_frame_takes_the_largest_payload(void **state)
{
	(void)state;
	assert_int_equal(parse_one(FRAME_SIDE_HOST, FRAME_DATA, FRAME_CHANNEL_IN, 1,
				 PROTO_PAYLOAD_MAX_BYTES),
		FRAME_OK);
}

/* Every type that exists, with a payload size and stream that suit it. */
static void test_frame_lets_each_type_come_from_its_side_only(void **state)
{
	static const struct {
		uint16_t type;
		enum frame_side side;
		uint32_t length;
	} types[] = {
		{FRAME_SYNC, FRAME_SIDE_HOST, FRAME_SYNC_BYTES},
		{FRAME_SYNC_ACK, FRAME_SIDE_GUEST, FRAME_SYNC_BYTES},
		{FRAME_HELLO, FRAME_SIDE_BOTH, 0},
		{FRAME_ABORT, FRAME_SIDE_BOTH, 0},
		{FRAME_PING, FRAME_SIDE_HOST, 0},
		{FRAME_PONG, FRAME_SIDE_GUEST, 64},
		{FRAME_EXEC, FRAME_SIDE_HOST, 5},
		{FRAME_FILE_PUT, FRAME_SIDE_HOST, 5},
		{FRAME_FILE_GET, FRAME_SIDE_HOST, 5},
		{FRAME_FILE_LIST, FRAME_SIDE_HOST, 5},
		{FRAME_CONFIGURE, FRAME_SIDE_HOST, 0},
		{FRAME_SHUTDOWN, FRAME_SIDE_HOST, 0},
		{FRAME_SIGNAL, FRAME_SIDE_HOST, 5},
		{FRAME_JOB_START, FRAME_SIDE_HOST, 5},
		{FRAME_JOB_WAIT, FRAME_SIDE_HOST, 5},
		{FRAME_JOB_READ, FRAME_SIDE_HOST, 5},
		{FRAME_JOB_INPUT, FRAME_SIDE_HOST, 5},
		{FRAME_JOB_RESIZE, FRAME_SIDE_HOST, 5},
		{FRAME_JOB_LIST, FRAME_SIDE_HOST, 0},
		{FRAME_JOB_FORGET, FRAME_SIDE_HOST, 5},
		{FRAME_CANCEL, FRAME_SIDE_HOST, 0},
		{FRAME_STARTED, FRAME_SIDE_GUEST, 9},
		{FRAME_END, FRAME_SIDE_GUEST, 9},
		{FRAME_GAP, FRAME_SIDE_GUEST, 8},
	};

	(void)state;
	for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
		uint32_t stream = types[i].type < FRAME_EXEC ? 0 : 3;

		for (enum frame_side from = FRAME_SIDE_HOST; from <= FRAME_SIDE_GUEST; from++) {
			assert_int_equal(parse_one(from, types[i].type, 0, stream, types[i].length),
				(types[i].side & from) != 0 ? FRAME_OK : FRAME_BAD);
		}
		/* On the wrong kind of stream. */
		assert_int_equal(parse_one(types[i].side & FRAME_SIDE_HOST ? FRAME_SIDE_HOST
									   : FRAME_SIDE_GUEST,
					 types[i].type, 0, 3 - stream, types[i].length),
			FRAME_BAD);
	}
}

static void test_frame_refuses_every_unknown_type(void **state)
{
	(void)state;
	for (unsigned type = 0; type <= UINT16_MAX; type++) {
		if (frame_type_name((uint16_t)type) == NULL) {
			assert_int_equal(
				parse_one(FRAME_SIDE_HOST, (uint16_t)type, 0, 1, 0), FRAME_BAD);
			assert_int_equal(
				parse_one(FRAME_SIDE_GUEST, (uint16_t)type, 0, 0, 0), FRAME_BAD);
		}
	}
}

static void test_frame_keeps_channels_to_their_direction(void **state)
{
	const enum frame_side host = FRAME_SIDE_HOST;
	const enum frame_side guest = FRAME_SIDE_GUEST;

	(void)state;
	assert_int_equal(parse_one(host, FRAME_DATA, FRAME_CHANNEL_IN, 1, 1), FRAME_OK);
	assert_int_equal(parse_one(host, FRAME_DATA, FRAME_CHANNEL_OUT, 1, 1), FRAME_BAD);
	assert_int_equal(parse_one(host, FRAME_DATA, FRAME_CHANNEL_ERR, 1, 1), FRAME_BAD);
	assert_int_equal(parse_one(host, FRAME_CLOSE, FRAME_CHANNEL_IN, 1, 0), FRAME_OK);
	assert_int_equal(parse_one(host, FRAME_CLOSE, FRAME_CHANNEL_OUT, 1, 0), FRAME_BAD);
	assert_int_equal(parse_one(host, FRAME_WINDOW, FRAME_CHANNEL_OUT, 1, 4), FRAME_OK);
	assert_int_equal(parse_one(host, FRAME_WINDOW, FRAME_CHANNEL_ERR, 1, 4), FRAME_OK);
	assert_int_equal(parse_one(host, FRAME_WINDOW, FRAME_CHANNEL_IN, 1, 4), FRAME_BAD);
	assert_int_equal(parse_one(guest, FRAME_DATA, FRAME_CHANNEL_ERR, 1, 1), FRAME_OK);
	assert_int_equal(parse_one(guest, FRAME_DATA, FRAME_CHANNEL_IN, 1, 1), FRAME_BAD);
	assert_int_equal(parse_one(guest, FRAME_WINDOW, FRAME_CHANNEL_IN, 1, 4), FRAME_OK);
	assert_int_equal(parse_one(guest, FRAME_WINDOW, FRAME_CHANNEL_OUT, 1, 4), FRAME_BAD);
	assert_int_equal(parse_one(guest, FRAME_DATA, FRAME_CHANNEL_MAX, 1, 1), FRAME_BAD);
	assert_int_equal(parse_one(guest, FRAME_DATA, 0xff, 1, 1), FRAME_BAD);
}

static void test_frame_refuses_stray_flags(void **state)
{
	(void)state;
	assert_int_equal(parse_one(FRAME_SIDE_HOST, FRAME_EXEC, FRAME_MORE, 1, 1), FRAME_OK);
	assert_int_equal(parse_one(FRAME_SIDE_HOST, FRAME_EXEC, FRAME_MORE | 1, 1, 1), FRAME_BAD);
	assert_int_equal(parse_one(FRAME_SIDE_HOST, FRAME_EXEC, 0x0200, 1, 1), FRAME_BAD);
	assert_int_equal(parse_one(FRAME_SIDE_HOST, FRAME_DATA, FRAME_MORE, 1, 1), FRAME_BAD);
	assert_int_equal(parse_one(FRAME_SIDE_HOST, FRAME_CANCEL, FRAME_MORE, 1, 0), FRAME_BAD);
	assert_int_equal(parse_one(FRAME_SIDE_HOST, FRAME_PING, 1, 0, 0), FRAME_BAD);
	assert_int_equal(parse_one(FRAME_SIDE_GUEST, FRAME_END, FRAME_MORE, 1, 0), FRAME_BAD);
}

static void test_frame_holds_fixed_payloads_to_their_size(void **state)
{
	(void)state;
	assert_int_equal(parse_one(FRAME_SIDE_HOST, FRAME_SYNC, 0, 0, 31), FRAME_BAD);
	assert_int_equal(parse_one(FRAME_SIDE_HOST, FRAME_SYNC, 0, 0, 33), FRAME_BAD);
	assert_int_equal(parse_one(FRAME_SIDE_HOST, FRAME_PING, 0, 0, 65), FRAME_BAD);
	assert_int_equal(
		parse_one(FRAME_SIDE_HOST, FRAME_WINDOW, FRAME_CHANNEL_OUT, 1, 3), FRAME_BAD);
	assert_int_equal(
		parse_one(FRAME_SIDE_HOST, FRAME_WINDOW, FRAME_CHANNEL_OUT, 1, 8), FRAME_BAD);
	assert_int_equal(parse_one(FRAME_SIDE_HOST, FRAME_CANCEL, 0, 1, 1), FRAME_BAD);
	assert_int_equal(parse_one(FRAME_SIDE_HOST, FRAME_CLOSE, 0, 1, 1), FRAME_BAD);
	assert_int_equal(parse_one(FRAME_SIDE_HOST, FRAME_DATA, 0, 1, 0), FRAME_BAD);
}

static void test_frame_refuses_a_sync_without_magic(void **state)
{
	uint8_t buf[SYNC_FRAME_BYTES];
	struct frame f;
	size_t used;

	(void)state;
	for (size_t i = PROTO_HEADER_BYTES; i < PROTO_HEADER_BYTES + FRAME_MAGIC_BYTES; i++) {
		memcpy(buf, documented_sync, sizeof buf);
		buf[i] ^= 0x10;
		assert_int_equal(
			frame_parse(FRAME_SIDE_HOST, buf, sizeof buf, &f, &used), FRAME_BAD);
	}
}

static void test_hunt_finds_sync_behind_any_garbage(void **state)
{
	(void)state;
	for (size_t before = 0; before < 100; before++) {
		size_t len = before + SYNC_FRAME_BYTES;
		uint8_t *buf = malloc(len);
		size_t offset;

		assert_non_null(buf);
		/* Garbage that looks like the beginning of what is wanted. */
		for (size_t i = 0; i < before; i++) {
			buf[i] = documented_sync[i % 20];
		}
		memcpy(buf + before, documented_sync, SYNC_FRAME_BYTES);
		assert_int_equal(frame_hunt(FRAME_SIDE_HOST, buf, len, &offset), FRAME_OK);
		assert_int_equal(offset, before);
		free(buf);
	}
}

/* However the bytes are cut, nothing of a SYNC is dropped and all before it may be. */
static void test_hunt_keeps_a_beginning_and_drops_the_rest(void **state)
{
	uint8_t buf[10 + SYNC_FRAME_BYTES];

	(void)state;
	memset(buf, 'x', 10);
	memcpy(buf + 10, documented_sync, SYNC_FRAME_BYTES);
	for (size_t len = 0; len < sizeof buf; len++) {
		size_t offset;

		assert_int_equal(frame_hunt(FRAME_SIDE_HOST, buf, len, &offset), FRAME_INCOMPLETE);
		assert_int_equal(offset, len < 10 ? len : 10);
	}
}

static void test_hunt_looks_for_the_other_sides_frame(void **state)
{
	size_t offset;

	(void)state;
	assert_int_equal(
		frame_hunt(FRAME_SIDE_GUEST, documented_sync, sizeof documented_sync, &offset),
		FRAME_INCOMPLETE);
	assert_int_equal(offset, sizeof documented_sync);
}

/* Whatever comes, the parser reads within its buffer and says something sensible. */
static void test_frame_survives_random_bytes(void **state)
{
	uint32_t x = 1;

	(void)state;
	for (int round = 0; round < 200000; round++) {
		size_t len = (size_t)(round % 80);
		uint8_t *buf = malloc(len + 1);
		struct frame f = {0};
		size_t used = 0;

		assert_non_null(buf);
		for (size_t i = 0; i < len; i++) {
			x = x * 1664525u + 1013904223u;
			/* Mostly small numbers, or hardly any header would be plausible. */
			buf[i] = (uint8_t)((x >> 24) & ((x & 0x300) != 0 ? 0x21 : 0xff));
		}
		enum frame_result result = frame_parse(
			round % 2 != 0 ? FRAME_SIDE_HOST : FRAME_SIDE_GUEST, buf, len, &f, &used);

		if (result == FRAME_OK) {
			assert_true(used >= PROTO_HEADER_BYTES && used <= len);
			assert_non_null(frame_type_name(f.type));
		}
		assert_true(frame_hunt(FRAME_SIDE_HOST, buf, len, &used) != FRAME_BAD);
		assert_true(used <= len);
		free(buf);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_frame_header_is_little_endian),
		cmocka_unit_test(test_frame_parses_the_documented_sync),
		cmocka_unit_test(test_frame_needs_every_byte),
		cmocka_unit_test(test_frame_refuses_an_excessive_length_before_its_payload_came),
		cmocka_unit_test(test_frame_takes_the_largest_payload),
		cmocka_unit_test(test_frame_lets_each_type_come_from_its_side_only),
		cmocka_unit_test(test_frame_refuses_every_unknown_type),
		cmocka_unit_test(test_frame_keeps_channels_to_their_direction),
		cmocka_unit_test(test_frame_refuses_stray_flags),
		cmocka_unit_test(test_frame_holds_fixed_payloads_to_their_size),
		cmocka_unit_test(test_frame_refuses_a_sync_without_magic),
		cmocka_unit_test(test_hunt_finds_sync_behind_any_garbage),
		cmocka_unit_test(test_hunt_keeps_a_beginning_and_drops_the_rest),
		cmocka_unit_test(test_hunt_looks_for_the_other_sides_frame),
		cmocka_unit_test(test_frame_survives_random_bytes),
	};

	return cmocka_run_group_tests_name("frame", tests, NULL, NULL);
}
