#include "tests/lib/cm.h"

#include "base/clock.h"
#include "loop/pipe.h"

struct fixture {
	struct loop *loop;
	struct pipe *pipe;
	int rooms;
	int datas;
};

static void on_room(void *arg)
{
	((struct fixture *)arg)->rooms++;
}

static void on_data(void *arg)
{
	((struct fixture *)arg)->datas++;
}

static void setup(struct fixture *f, size_t capacity)
{
	struct err err;

	memset(f, 0, sizeof *f);
	f->loop = loop_new(&err);
	f->pipe = pipe_new(f->loop, capacity);
	pipe_set_writer(f->pipe, on_room, f);
	pipe_set_reader(f->pipe, on_data, f);
}

static void teardown(struct fixture *f)
{
	pipe_writer_free(f->pipe);
	pipe_reader_free(f->pipe);
	loop_free(f->loop);
}

static void test_a_pipe_takes_no_more_than_its_capacity(void **state)
{
	struct fixture f;
	char out[16];

	(void)state;
	setup(&f, 8);
	assert_int_equal(pipe_write(f.pipe, "0123456789", 10), 8);
	assert_int_equal(pipe_room(f.pipe), 0);
	assert_int_equal(pipe_write(f.pipe, "x", 1), 0);
	assert_int_equal(pipe_read(f.pipe, out, sizeof out), 8);
	assert_memory_equal(out, "01234567", 8);
	assert_int_equal(pipe_room(f.pipe), 8);
	teardown(&f);
}

static void test_callbacks_come_from_the_loop_once_a_turn(void **state)
{
	struct fixture f;

	(void)state;
	setup(&f, 8);
	pipe_write(f.pipe, "a", 1);
	pipe_write(f.pipe, "b", 1);
	assert_int_equal(f.datas, 0);
	await(f.loop, f.datas > 0, 5000);
	assert_int_equal(f.datas, 1);
	teardown(&f);
}

static void test_the_writer_hears_of_room_once_half_is_free(void **state)
{
	struct fixture f;
	char out[8];

	(void)state;
	setup(&f, 8);
	pipe_write(f.pipe, "01234567", 8);
	pipe_read(f.pipe, out, 4);
	loop_turn_for(f.loop, 0);
	assert_int_equal(f.rooms, 0);
	pipe_read(f.pipe, out, 1);
	await(f.loop, f.rooms == 1, 5000);
	teardown(&f);
}

static void test_the_end_comes_after_the_last_byte(void **state)
{
	struct fixture f;
	char out[8];

	(void)state;
	setup(&f, 8);
	pipe_write(f.pipe, "ab", 2);
	pipe_close(f.pipe);
	assert_false(pipe_is_end(f.pipe));
	assert_int_equal(pipe_write(f.pipe, "c", 1), 0);
	assert_int_equal(pipe_read(f.pipe, out, sizeof out), 2);
	assert_true(pipe_is_end(f.pipe));
	assert_null(pipe_failure(f.pipe));
	teardown(&f);
}

static void test_a_writer_that_leaves_early_fails_the_reader(void **state)
{
	struct fixture f;

	(void)state;
	setup(&f, 8);
	pipe_write(f.pipe, "ab", 2);
	pipe_writer_free(f.pipe);
	await(f.loop, f.datas == 1, 5000);
	assert_non_null(pipe_failure(f.pipe));
	assert_int_equal(pipe_failure(f.pipe)->kind, ERR_CANCELLED);
	assert_int_equal(pipe_available(f.pipe), 0);
	pipe_reader_free(f.pipe);
	loop_free(f.loop);
}

static void test_a_reader_that_leaves_early_wakes_the_writer(void **state)
{
	struct fixture f;

	(void)state;
	setup(&f, 8);
	pipe_write(f.pipe, "01234567", 8);
	pipe_reader_free(f.pipe);
	await(f.loop, f.rooms == 1, 5000);
	assert_int_equal(pipe_failure(f.pipe)->kind, ERR_CANCELLED);
	assert_int_equal(pipe_room(f.pipe), 0);
	pipe_writer_free(f.pipe);
	loop_free(f.loop);
}

static void test_the_first_failure_stays(void **state)
{
	struct fixture f;
	struct err first;
	struct err second;

	(void)state;
	setup(&f, 8);
	err_set(&first, ERR_GUEST, "disk full");
	err_set(&second, ERR_INTERNAL, "other");
	pipe_fail(f.pipe, &first);
	pipe_fail(f.pipe, &second);
	assert_int_equal(pipe_failure(f.pipe)->kind, ERR_GUEST);
	teardown(&f);
}

static void test_a_late_reader_is_told_of_what_is_there(void **state)
{
	struct fixture f;

	(void)state;
	setup(&f, 8);
	pipe_set_reader(f.pipe, NULL, NULL);
	pipe_write(f.pipe, "a", 1);
	loop_turn_for(f.loop, 0);
	pipe_set_reader(f.pipe, on_data, &f);
	await(f.loop, f.datas == 1, 5000);
	teardown(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_pipe_takes_no_more_than_its_capacity),
		cmocka_unit_test(test_callbacks_come_from_the_loop_once_a_turn),
		cmocka_unit_test(test_the_writer_hears_of_room_once_half_is_free),
		cmocka_unit_test(test_the_end_comes_after_the_last_byte),
		cmocka_unit_test(test_a_writer_that_leaves_early_fails_the_reader),
		cmocka_unit_test(test_a_reader_that_leaves_early_wakes_the_writer),
		cmocka_unit_test(test_the_first_failure_stays),
		cmocka_unit_test(test_a_late_reader_is_told_of_what_is_there),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
