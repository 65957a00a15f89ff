#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/frame.h"
#include "proto/msg.h"

static void test_msg_gives_back_what_was_put(void **state)
{
	uint8_t buf[256];
	struct msg_writer w = {.buf = buf, .size = sizeof buf};
	struct msg_field f;
	char text[16];

	(void)state;
	msg_put_text(&w, MSG_ARG, "uname");
	msg_put_u64(&w, MSG_TIMEOUT_MS, 0x1122334455667788u);
	msg_put_u32(&w, MSG_EXEC_FLAGS, MSG_EXEC_ROOT);
	msg_put_bytes(&w, MSG_ENTROPY, NULL, 0);
	assert_false(w.overflow);

	struct msg_reader r = {.buf = buf, .len = w.len};

	assert_true(msg_next(&r, &f));
	assert_int_equal(f.tag, MSG_ARG);
	msg_text(&r, &f, text, sizeof text);
	assert_string_equal(text, "uname");
	assert_true(msg_next(&r, &f));
	assert_int_equal(f.tag, MSG_TIMEOUT_MS);
	assert_true(msg_u64(&r, &f) == 0x1122334455667788u);
	assert_true(msg_next(&r, &f));
	assert_int_equal(msg_u32(&r, &f), MSG_EXEC_ROOT);
	assert_true(msg_next(&r, &f));
	assert_int_equal(f.len, 0);
	assert_false(msg_next(&r, &f));
	assert_false(r.bad);
}

/* The body of the EXEC in PROTOCOL.md. */
static void test_msg_writes_the_documented_exec(void **state)
{
	static const uint8_t expected[] = {0x10, 0x00, 0x00, 0x00, 0x05, 0x00, 0x00, 0x00, 'u', 'n',
		'a', 'm', 'e', 0x10, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, '-', 's', 0x14, 0x00,
		0x00, 0x00, 0x08, 0x00, 0x00, 0x00, 0x88, 0x13, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00};
	uint8_t buf[64];
	struct msg_writer w = {.buf = buf, .size = sizeof buf};

	(void)state;
	msg_put_text(&w, MSG_ARG, "uname");
	msg_put_text(&w, MSG_ARG, "-s");
	msg_put_u64(&w, MSG_TIMEOUT_MS, 5000);
	assert_int_equal(w.len, sizeof expected);
	assert_memory_equal(buf, expected, sizeof expected);
}

static void test_msg_writer_stops_at_its_end(void **state)
{
	(void)state;
	for (size_t size = 0; size < 24; size++) {
		uint8_t *buf = malloc(size + (size == 0));
		struct msg_writer w = {.buf = buf, .size = size};

		assert_non_null(buf);
		msg_put_u32(&w, MSG_STATUS, 1);
		msg_put_u32(&w, MSG_ERRNO, 2);
		assert_int_equal(w.overflow, true);
		assert_int_equal(w.len, size < 12 ? 0 : 12);
		/* What would fit now is not written either: the body is spoiled. */
		msg_put_bytes(&w, MSG_TEXT, "", 0);
		assert_int_equal(w.len, size < 12 ? 0 : 12);
		free(buf);
	}
}

static void test_msg_reader_latches_every_cut(void **state)
{
	uint8_t whole[64];
	struct msg_writer w = {.buf = whole, .size = sizeof whole};

	(void)state;
	msg_put_u32(&w, MSG_STATUS, 1);
	msg_put_text(&w, MSG_TEXT, "hello");
	for (size_t len = 1; len < w.len; len++) {
		uint8_t *exact = malloc(len);
		struct msg_field f;

		assert_non_null(exact);
		memcpy(exact, whole, len);
		struct msg_reader r = {.buf = exact, .len = len};

		while (msg_next(&r, &f)) {
		}
		assert_int_equal(r.bad, len != 12);
		assert_false(msg_next(&r, &f));
		free(exact);
	}
}

static void test_msg_reader_refuses_lengths_beyond_the_body(void **state)
{
	uint8_t buf[16] = {0};
	struct msg_reader r = {.buf = buf, .len = sizeof buf};
	struct msg_field f;

	(void)state;
	put_le16(buf, MSG_TEXT);
	put_le32(buf + 4, UINT32_MAX);
	assert_false(msg_next(&r, &f));
	assert_true(r.bad);
}

static void test_msg_reader_refuses_a_stray_bit(void **state)
{
	uint8_t buf[8] = {0};
	struct msg_reader r = {.buf = buf, .len = sizeof buf};
	struct msg_field f;

	(void)state;
	put_le16(buf, MSG_TEXT);
	put_le16(buf + 2, 1);
	assert_false(msg_next(&r, &f));
	assert_true(r.bad);
}

static void test_msg_numbers_have_one_size(void **state)
{
	uint8_t data[16] = {0};

	(void)state;
	for (size_t len = 0; len <= sizeof data; len++) {
		struct msg_reader r = {0};
		struct msg_field f = {.data = data, .len = len};

		msg_u32(&r, &f);
		assert_int_equal(r.bad, len != 4);
		r.bad = false;
		msg_u64(&r, &f);
		assert_int_equal(r.bad, len != 8);
	}
}

static void test_msg_text_refuses_nul_and_excess(void **state)
{
	char out[4];
	struct msg_reader r = {0};
	struct msg_field fits = {.data = (const uint8_t *)"abc", .len = 3};
	struct msg_field over = {.data = (const uint8_t *)"abcd", .len = 4};
	struct msg_field nul = {.data = (const uint8_t *)"a\0c", .len = 3};

	(void)state;
	msg_text(&r, &fits, out, sizeof out);
	assert_false(r.bad);
	assert_string_equal(out, "abc");
	msg_text(&r, &over, out, sizeof out);
	assert_true(r.bad);
	assert_string_equal(out, "");
	r.bad = false;
	msg_text(&r, &nul, out, sizeof out);
	assert_true(r.bad);
	assert_string_equal(out, "");
}

static const struct msg_entry some_entry = {
	.mode = 0100644,
	.size = 1ull << 40,
	.mtime_ns = 1234567890123456789u,
	.type = ENTRY_FILE,
	.name = "dir/file",
	.name_len = 8,
};

static void test_entry_gives_back_what_was_put(void **state)
{
	uint8_t buf[128];
	struct msg_writer w = {.buf = buf, .size = sizeof buf};
	struct msg_entry got;

	(void)state;
	assert_true(msg_entry_put(&w, &some_entry));
	assert_true(msg_entry_put(&w, &some_entry));

	struct msg_reader r = {.buf = buf, .len = w.len};

	for (int i = 0; i < 2; i++) {
		assert_true(msg_entry_next(&r, &got));
		assert_int_equal(got.mode, some_entry.mode);
		assert_true(got.size == some_entry.size && got.mtime_ns == some_entry.mtime_ns);
		assert_int_equal(got.type, ENTRY_FILE);
		assert_int_equal(got.name_len, 8);
		assert_memory_equal(got.name, "dir/file", 8);
	}
	assert_false(msg_entry_next(&r, &got));
	assert_false(r.bad);
}

static void test_entry_that_does_not_fit_leaves_the_packet_as_it_was(void **state)
{
	uint8_t buf[MSG_ENTRY_HEADER_BYTES + 8 + 35];
	struct msg_writer w = {.buf = buf, .size = sizeof buf};

	(void)state;
	assert_true(msg_entry_put(&w, &some_entry));
	assert_false(msg_entry_put(&w, &some_entry));
	assert_int_equal(w.len, MSG_ENTRY_HEADER_BYTES + 8);
	assert_false(w.overflow);
}

static void test_entry_needs_a_name_of_proper_length(void **state)
{
	static uint8_t buf[2 * PROTO_PATH_MAX_BYTES];
	static char name[PROTO_PATH_MAX_BYTES + 2];
	struct msg_writer w = {.buf = buf, .size = sizeof buf};
	struct msg_entry entry = some_entry;
	struct msg_entry got;

	(void)state;
	memset(name, 'n', sizeof name);
	entry.name = name;
	entry.name_len = 0;
	assert_false(msg_entry_put(&w, &entry));
	entry.name_len = PROTO_PATH_MAX_BYTES + 1;
	assert_false(msg_entry_put(&w, &entry));
	entry.name_len = PROTO_PATH_MAX_BYTES;
	assert_true(msg_entry_put(&w, &entry));

	struct msg_reader r = {.buf = buf, .len = w.len};

	assert_true(msg_entry_next(&r, &got));
	assert_int_equal(got.name_len, PROTO_PATH_MAX_BYTES);
}

static void test_entry_reader_refuses_bad_lengths_and_names(void **state)
{
	(void)state;
	for (uint32_t length = 0; length < 64; length++) {
		uint8_t buf[40] = {0};
		struct msg_reader r = {.buf = buf, .len = sizeof buf};
		struct msg_entry got;

		memset(buf + MSG_ENTRY_HEADER_BYTES, 'n', sizeof buf - MSG_ENTRY_HEADER_BYTES);
		put_le32(buf, length);
		bool is_good = length > MSG_ENTRY_HEADER_BYTES && length <= sizeof buf;

		assert_int_equal(msg_entry_next(&r, &got), is_good);
		assert_int_equal(r.bad, !is_good);
	}
	uint8_t buf[40] = {0};
	struct msg_reader r = {.buf = buf, .len = sizeof buf};
	struct msg_entry got;

	put_le32(buf, sizeof buf); /* a name of NULs */
	assert_false(msg_entry_next(&r, &got));
	assert_true(r.bad);
}

static struct msg_job put_and_take(const struct msg_job *job)
{
	uint8_t buf[MSG_JOB_MAX_BYTES - 4];
	struct msg_writer w = {.buf = buf, .size = sizeof buf};
	struct msg_job got = {0};

	msg_job_put(&w, job);
	assert_false(w.overflow);
	struct msg_reader r = {.buf = buf, .len = w.len};

	for (struct msg_field f; msg_next(&r, &f);) {
		assert_true(msg_job_take(&r, &f, &got));
	}
	assert_false(r.bad);
	return got;
}

static void test_job_gives_back_what_was_put(void **state)
{
	struct msg_job job = {.flags = MSG_JOB_TTY,
		.first_offset = UINT64_MAX - 1,
		.end_offset = UINT64_MAX,
		.exit_code = 137,
		.signal = 9,
		.end_flags = MSG_END_TIMED_OUT,
		.out_bytes = 5,
		.err_bytes = 6,
		.duration_us = 7};

	(void)state;
	memset(job.id, 'x', PROTO_ID_MAX_BYTES);
	struct msg_job got = put_and_take(&job);

	assert_memory_equal(&got, &job, sizeof job);
	/* Of a running one there is no result yet. */
	job.flags = MSG_JOB_RUNNING;
	got = put_and_take(&job);
	assert_int_equal(got.exit_code, 0);
	assert_string_equal(got.id, job.id);
}

static void test_job_that_contradicts_itself_is_not_sound(void **state)
{
	const struct msg_job sound = {.id = "ex_1",
		.first_offset = 2,
		.end_offset = 10,
		.out_bytes = 4,
		.err_bytes = 6,
		.exit_code = 255,
		.signal = 64};
	struct msg_job job = sound;

	(void)state;
	assert_true(msg_job_is_sound(&job));
	job.first_offset = 11;
	assert_false(msg_job_is_sound(&job));
	job = sound;
	job.out_bytes = 5;
	assert_false(msg_job_is_sound(&job));
	job.flags = MSG_JOB_RUNNING;
	assert_true(msg_job_is_sound(&job));
	job = sound;
	job.out_bytes = UINT64_MAX;
	job.err_bytes = 11;
	assert_false(msg_job_is_sound(&job));
	job = sound;
	job.exit_code = 256;
	assert_false(msg_job_is_sound(&job));
	job = sound;
	job.signal = 65;
	assert_false(msg_job_is_sound(&job));
	job = sound;
	job.id[0] = '\0';
	assert_false(msg_job_is_sound(&job));
	job = (struct msg_job){
		.id = "ex_1", .flags = MSG_JOB_RUNNING, .end_offset = (uint64_t)INT64_MAX + 1};
	assert_false(msg_job_is_sound(&job));
}

static void test_ids_are_short_and_plain(void **state)
{
	static const char *const bad[] = {"", "a b", "a/b", "a.b", "a\n", "\xc3\xa9"};
	char longest[PROTO_ID_MAX_BYTES + 1];

	(void)state;
	memset(longest, 'A', sizeof longest);
	assert_true(msg_id_is_valid("ex_09-azAZ", 10));
	assert_true(msg_id_is_valid(longest, PROTO_ID_MAX_BYTES));
	assert_false(msg_id_is_valid(longest, PROTO_ID_MAX_BYTES + 1));
	assert_false(msg_id_is_valid("a\0b", 3));
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		assert_false(msg_id_is_valid(bad[i], strlen(bad[i])));
	}
}

static void test_status_names_cover_every_status(void **state)
{
	(void)state;
#define X(number, name) assert_string_not_equal(msg_status_name(number), "unknown");
	MSG_STATUSES(X)
#undef X
	assert_string_equal(msg_status_name(STATUS_NO_SPACE), "no_space");
	assert_string_equal(msg_status_name(STATUS_LIMIT + 1), "unknown");
	assert_string_equal(msg_status_name(UINT32_MAX), "unknown");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_msg_gives_back_what_was_put),
		cmocka_unit_test(test_msg_writes_the_documented_exec),
		cmocka_unit_test(test_msg_writer_stops_at_its_end),
		cmocka_unit_test(test_msg_reader_latches_every_cut),
		cmocka_unit_test(test_msg_reader_refuses_lengths_beyond_the_body),
		cmocka_unit_test(test_msg_reader_refuses_a_stray_bit),
		cmocka_unit_test(test_msg_numbers_have_one_size),
		cmocka_unit_test(test_msg_text_refuses_nul_and_excess),
		cmocka_unit_test(test_entry_gives_back_what_was_put),
		cmocka_unit_test(test_entry_that_does_not_fit_leaves_the_packet_as_it_was),
		cmocka_unit_test(test_entry_needs_a_name_of_proper_length),
		cmocka_unit_test(test_entry_reader_refuses_bad_lengths_and_names),
		cmocka_unit_test(test_job_gives_back_what_was_put),
		cmocka_unit_test(test_job_that_contradicts_itself_is_not_sound),
		cmocka_unit_test(test_ids_are_short_and_plain),
		cmocka_unit_test(test_status_names_cover_every_status),
	};

	return cmocka_run_group_tests_name("msg", tests, NULL, NULL);
}
