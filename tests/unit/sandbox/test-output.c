#include "tests/lib/cm.h"

#include <stdlib.h>

#include "base/parse.h"
#include "sandbox/output.h"

/* ---- a command, and a guest that keeps to its caps ---- */

#define WRITTEN_MAX 4096

/* What a command wrote to one output, and what of it is kept for the end. */
struct written {
	char bytes[WRITTEN_MAX];
	size_t len;
	size_t sent;
};

struct scene {
	struct written outputs[2];
	uint64_t head_left;
	uint64_t tail_cap;
	uint64_t room; /* of the host's, for all that it is sent */
	struct output kept[2];
};

static void scene_init(struct scene *scene, uint64_t cap, uint64_t tail_cap)
{
	*scene = (struct scene){
		.head_left = cap - tail_cap, .tail_cap = tail_cap, .room = UINT64_MAX};
	output_init(&scene->kept[0]);
	output_init(&scene->kept[1]);
}

static void scene_fini(struct scene *scene)
{
	output_fini(&scene->kept[0]);
	output_fini(&scene->kept[1]);
}

static void deliver(struct scene *scene, size_t i, const char *data, size_t len)
{
	scene->room -= output_add(&scene->kept[i], data, len, scene->room);
}

static void scene_write(struct scene *scene, size_t i, const char *data, size_t len)
{
	struct written *written = &scene->outputs[i];
	size_t now = (size_t)MIN(len, scene->head_left);

	assert_true(written->len + len <= WRITTEN_MAX);
	memcpy(written->bytes + written->len, data, len);
	written->len += len;
	written->sent += now;
	scene->head_left -= now;
	deliver(scene, i, data, now);
}

static uint64_t send_tail(struct scene *scene, size_t i)
{
	const struct written *written = &scene->outputs[i];
	size_t tail = (size_t)MIN(scene->tail_cap, written->len - written->sent);

	deliver(scene, i, written->bytes + written->len - tail, tail);
	return tail;
}

static void scene_end(struct scene *scene, uint64_t cap)
{
	struct guest_exec_result result = {
		.stdout_bytes = scene->outputs[0].len, .stderr_bytes = scene->outputs[1].len};

	result.stdout_tail = send_tail(scene, 0);
	result.stderr_tail = send_tail(scene, 1);
	output_settle(&scene->kept[0], &scene->kept[1], &result, cap);
}

static size_t kept_bytes(struct scene *scene, size_t i)
{
	return evbuffer_get_length(scene->kept[i].kept.bytes);
}

static const char *kept(struct scene *scene, size_t i)
{
	static char text[2][WRITTEN_MAX + 1];
	size_t len = kept_bytes(scene, i);

	evbuffer_copyout(scene->kept[i].kept.bytes, text[i], len);
	text[i][len] = '\0';
	return text[i];
}

/* Beginning and end of what was written, and the numbers say which. */
static void assert_true_to(struct scene *scene, size_t i)
{
	const struct sandbox_output *output = &scene->kept[i].kept;
	const struct written *written = &scene->outputs[i];
	size_t len = kept_bytes(scene, i);
	size_t at = (size_t)output->omitted_at;

	assert_int_equal(output->total, written->len);
	assert_int_equal(output->omitted, written->len - len);
	assert_true(output->omitted > 0 || at == 0);
	assert_true(at <= len);
	assert_memory_equal(kept(scene, i), written->bytes, at);
	assert_memory_equal(
		kept(scene, i) + at, written->bytes + written->len - (len - at), len - at);
}

/* ---- tables ---- */

static void test_what_fits_is_whole_whichever_output_it_is(void **state)
{
	static const struct {
		size_t out;
		size_t err_out;
	} cases[] = {{0, 0}, {1, 0}, {100, 0}, {0, 100}, {50, 50}, {99, 1}, {20, 80}};
	static const char block[100] = "0123456789";

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct scene scene;

		scene_init(&scene, 100, 50);
		scene_write(&scene, 0, block, cases[i].out);
		scene_write(&scene, 1, block, cases[i].err_out);
		scene_end(&scene, 100);
		assert_int_equal(kept_bytes(&scene, 0), cases[i].out);
		assert_int_equal(kept_bytes(&scene, 1), cases[i].err_out);
		assert_true_to(&scene, 0);
		assert_true_to(&scene, 1);
		scene_fini(&scene);
	}
}

static void test_of_more_the_first_and_the_last_bytes_stay(void **state)
{
	static const struct {
		const char *out;
		const char *err_out;
		const char *kept_out;
		uint64_t at;
		const char *kept_err;
		uint64_t err_at;
	} cases[] = {
		{"abcdefghijk", "", "abcdeghijk", 5, "", 0},
		{"abcdefghijklmnopqrstuvwxyz", "", "abcdevwxyz", 5, "", 0},
		{"", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "", 0, "ABCDEVWXYZ", 5},
		/* The first five are stdout's, and the room for the last ones, too: stderr has none
		   of it unless it gets a share. */
		{"abcdefghijklmn", "ABCDEFGHIJ", "abcde", 5, "FGHIJ", 0},
		{"abcdefghijklmn", "AB", "abcdelmn", 5, "AB", 0},
		{"abc", "ABCDEFGHIJKLMN", "abc", 0, "ABJKLMN", 2},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct scene scene;

		scene_init(&scene, 10, 5);
		scene_write(&scene, 0, cases[i].out, strlen(cases[i].out));
		scene_write(&scene, 1, cases[i].err_out, strlen(cases[i].err_out));
		scene_end(&scene, 10);
		assert_true_to(&scene, 0);
		assert_true_to(&scene, 1);
		assert_string_equal(kept(&scene, 0), cases[i].kept_out);
		assert_string_equal(kept(&scene, 1), cases[i].kept_err);
		assert_int_equal(scene.kept[0].kept.omitted_at, cases[i].at);
		assert_int_equal(scene.kept[1].kept.omitted_at, cases[i].err_at);
		scene_fini(&scene);
	}
}

static void test_a_character_that_the_gap_splits_goes_with_it(void **state)
{
	struct scene scene;

	(void)state;
	/* Five bytes of the beginning and five of the end; a euro sign has three. */
	scene_init(&scene, 10, 5);
	scene_write(&scene, 0, "€€€€€€", 18);
	scene_end(&scene, 10);
	assert_string_equal(kept(&scene, 0), "€€");
	assert_int_equal(scene.kept[0].kept.omitted_at, 3);
	assert_int_equal(scene.kept[0].kept.omitted, 12);
	assert_true_to(&scene, 0);
	scene_fini(&scene);
}

static void test_the_end_of_an_output_is_left_as_it_is(void **state)
{
	struct scene scene;

	(void)state;
	scene_init(&scene, 10, 5);
	scene_write(&scene, 0, "ab\xe2\x82", 4);
	scene_end(&scene, 10);
	assert_int_equal(kept_bytes(&scene, 0), 4);
	assert_int_equal(scene.kept[0].kept.omitted, 0);
	scene_fini(&scene);
}

static void test_nothing_stands_behind_a_byte_that_found_no_room(void **state)
{
	struct scene scene;

	(void)state;
	scene_init(&scene, 100, 50);
	scene.room = 3;
	scene_write(&scene, 0, "abcdef", 6);
	scene.room = 50; /* another command has ended */
	scene_write(&scene, 0, "ghi", 3);
	scene_end(&scene, 100);
	assert_string_equal(kept(&scene, 0), "abc");
	assert_int_equal(scene.kept[0].kept.omitted, 6);
	assert_int_equal(scene.kept[0].kept.omitted_at, 3);
	scene_fini(&scene);
}

/* ---- anything ---- */

static unsigned roll(unsigned *seed, unsigned sides)
{
	return (unsigned)rand_r(seed) % sides;
}

static size_t make_text(unsigned *seed, char *out, size_t max)
{
	static const char *const letters[] = {"a", "\n", "ä", "€", "🐧"};
	size_t len = 0;

	while (len + 4 <= max) {
		len = (size_t)(stpcpy(out + len, letters[roll(seed, ARRAY_SIZE(letters))]) - out);
	}
	return len;
}

static void try_one(unsigned *seed, bool is_short_of_room)
{
	struct scene scene;
	char text[512];
	uint64_t cap = 1 + roll(seed, 600);
	uint64_t tail_cap = roll(seed, (unsigned)cap / 2 + 1);

	scene_init(&scene, cap, tail_cap);
	if (is_short_of_room) {
		scene.room = roll(seed, 800);
	}
	for (unsigned i = roll(seed, 12); i > 0; i--) {
		size_t len = make_text(seed, text, 1 + roll(seed, 300));

		scene_write(&scene, roll(seed, 2), text, len);
	}
	scene_end(&scene, cap);
	size_t sum = kept_bytes(&scene, 0) + kept_bytes(&scene, 1);
	size_t written = scene.outputs[0].len + scene.outputs[1].len;

	assert_true_to(&scene, 0);
	assert_true_to(&scene, 1);
	assert_true(sum <= cap);
	assert_true(utf8_is_valid(kept(&scene, 0), kept_bytes(&scene, 0)));
	assert_true(utf8_is_valid(kept(&scene, 1), kept_bytes(&scene, 1)));
	if (!is_short_of_room) {
		/* All that fits, and no room wasted but for split characters. */
		assert_true(sum + 12 >= MIN(written, cap));
		assert_true(written > cap || sum == written);
	}
	scene_fini(&scene);
}

static void test_whatever_is_written_the_numbers_are_true(void **state)
{
	unsigned seed = 1;

	(void)state;
	for (int i = 0; i < 20000; i++) {
		try_one(&seed, i % 4 == 0);
	}
}

static void test_a_guest_that_lies_about_its_tails_gets_no_more_room(void **state)
{
	unsigned seed = 2;
	static const char block[700];

	(void)state;
	for (int i = 0; i < 20000; i++) {
		struct output kept[2];
		uint64_t cap = 1 + roll(&seed, 400);
		size_t came[2] = {roll(&seed, 600), roll(&seed, 600)};
		struct guest_exec_result result = {.stdout_bytes = came[0] + roll(&seed, 3),
			.stderr_bytes = came[1] + roll(&seed, 3) * UINT32_MAX,
			.stdout_tail = roll(&seed, 700),
			.stderr_tail = roll(&seed, 700)};

		for (size_t n = 0; n < 2; n++) {
			output_init(&kept[n]);
			output_add(&kept[n], block, came[n], roll(&seed, 700));
		}
		output_settle(&kept[0], &kept[1], &result, cap);
		assert_true(evbuffer_get_length(kept[0].kept.bytes) +
				    evbuffer_get_length(kept[1].kept.bytes) <=
			    cap);
		for (size_t n = 0; n < 2; n++) {
			size_t len = evbuffer_get_length(kept[n].kept.bytes);

			assert_int_equal(kept[n].kept.omitted, kept[n].kept.total - len);
			assert_true(kept[n].kept.omitted_at <= len);
			output_fini(&kept[n]);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_fits_is_whole_whichever_output_it_is),
		cmocka_unit_test(test_of_more_the_first_and_the_last_bytes_stay),
		cmocka_unit_test(test_a_character_that_the_gap_splits_goes_with_it),
		cmocka_unit_test(test_the_end_of_an_output_is_left_as_it_is),
		cmocka_unit_test(test_nothing_stands_behind_a_byte_that_found_no_room),
		cmocka_unit_test(test_whatever_is_written_the_numbers_are_true),
		cmocka_unit_test(test_a_guest_that_lies_about_its_tails_gets_no_more_room),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
