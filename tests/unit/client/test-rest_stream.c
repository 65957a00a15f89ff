#include "rest_server.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

/* Body and answer at the same time, and what goes on beside a call. */

static const struct api_row row = {
	.name = "test", .method = API_POST, .path = "/v1/sandboxes/{id}/exec/{eid}/stdin"};

/* A call whose body comes out of a pipe. */
struct talk {
	int body[2];
	int ready[2];
	struct rest_request request;
	char got[256];
	size_t got_len;
	int says; /* what the sink answers */
};

static long give(void *arg, void *out, size_t size)
{
	const struct talk *talk = arg;

	return read(talk->body[0], out, size);
}

static int take(void *arg, const void *data, size_t len)
{
	struct talk *talk = arg;

	assert_true(len <= sizeof talk->got - talk->got_len);
	memcpy(talk->got + talk->got_len, data, len);
	talk->got_len += len;
	return talk->says;
}

static void talk_start(struct talk *talk)
{
	memset(talk, 0, sizeof *talk);
	assert_int_equal(pipe2(talk->body, O_CLOEXEC), 0);
	assert_int_equal(pipe2(talk->ready, O_CLOEXEC), 0);
	talk->request = (struct rest_request){
		.row = &row,
		.id = "sb_1",
		.exec_id = "ex_1",
		.read = give,
		.read_arg = talk,
		.read_bytes = UINT64_MAX,
		.read_fd = &talk->body[0],
		.timeout_s = 20,
	};
}

static void talk_end(struct talk *talk)
{
	for (int i = 0; i < 2; i++) {
		close(talk->ready[i]);
		if (talk->body[i] >= 0) {
			close(talk->body[i]);
		}
	}
}

static int talk_call(struct talk *talk, struct err *err)
{
	_cleanup_rest_response_ struct rest_response response = REST_RESPONSE_INIT;
	_cleanup_client_ struct rest_client *client = server_client("");

	*err = ERR_INIT;
	return rest_call(client, &talk->request, &response, err);
}

static int write_the_body(void *arg)
{
	struct talk *talk = arg;
	char byte;

	assert_int_equal(read(talk->ready[0], &byte, 1), 1);
	assert_int_equal(write(talk->body[1], "hello", 5), 5);
	close(steal_fd(&talk->body[1]));
	return 0;
}

static int give_up(void *arg)
{
	(void)arg;
	return -1;
}

static void make_ready(struct talk *talk, rest_ready_fn ready)
{
	talk->request.ready = ready;
	talk->request.ready_arg = talk;
	talk->request.ready_fd = talk->ready[0];
	assert_int_equal(write(talk->ready[1], "x", 1), 1);
}

static void test_a_body_may_come_later(void **state)
{
	struct talk talk;
	struct err err;

	(void)state;
	server_start(AF_INET);
	server_script(200, "", "{}");
	talk_start(&talk);
	make_ready(&talk, write_the_body);
	assert_ok(talk_call(&talk, &err), &err);
	assert_head_has("POST /v1/sandboxes/sb_1/exec/ex_1/stdin HTTP/1.1\r\n");
	assert_head_has("\r\nTransfer-Encoding: chunked\r\n");
	assert_int_equal(server.body_len, 5);
	assert_memory_equal(server.body, "hello", 5);
	talk_end(&talk);
}

static void test_a_pipe_that_is_closed_ends_the_body(void **state)
{
	struct talk talk;
	struct err err;

	(void)state;
	server_start(AF_INET);
	server_script(200, "", "{}");
	talk_start(&talk);
	close(steal_fd(&talk.body[1]));
	assert_ok(talk_call(&talk, &err), &err);
	assert_int_equal(server.body_len, 0);
	talk_end(&talk);
}

static void test_an_answer_does_not_wait_for_the_body(void **state)
{
	struct talk talk;
	struct err err;

	(void)state;
	server_start(AF_INET);
	server_script_raw("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
			  "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
		true);
	server.skips_body = true;
	talk_start(&talk);
	talk.request.write = take;
	talk.request.write_arg = &talk;
	talk.request.wants_events = true;
	talk.says = 1;
	assert_ok(talk_call(&talk, &err), &err);
	assert_int_equal(talk.got_len, 5);
	assert_memory_equal(talk.got, "hello", 5);
	server_stop();
	assert_head_has("\r\nAccept: text/event-stream\r\n");
	talk_end(&talk);
}

static void test_a_whole_answer_needs_no_more_of_the_body(void **state)
{
	struct talk talk;
	struct err err;

	(void)state;
	server_start(AF_INET);
	server_script(200, "", "{\"exit_code\":0}");
	server.skips_body = true;
	talk_start(&talk);
	assert_ok(talk_call(&talk, &err), &err);
	server_stop();
	talk_end(&talk);
}

static void test_a_stream_that_breaks_off_is_an_error(void **state)
{
	struct talk talk;
	struct err err;

	(void)state;
	server_start(AF_INET);
	server_script_raw(
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", true);
	talk_start(&talk);
	close(steal_fd(&talk.body[1]));
	talk.request.write = take;
	talk.request.write_arg = &talk;
	assert_err(talk_call(&talk, &err), &err, ERR_UNAVAILABLE);
	assert_err_says(&err, "broke off");
	assert_int_equal(talk.got_len, 5);
	talk_end(&talk);
}

static void test_a_refusal_does_not_wait_for_the_body(void **state)
{
	struct talk talk;
	struct err err;

	(void)state;
	server_start(AF_INET);
	server_script(404, "",
		"{\"error\":{\"type\":\"not_found\",\"message\":\"there is no such command\"}}");
	server.skips_body = true;
	talk_start(&talk);
	assert_err(talk_call(&talk, &err), &err, ERR_NOT_FOUND);
	assert_err_says(&err, "no such command");
	server_stop();
	talk_end(&talk);
}

static void test_what_happens_beside_a_call_may_end_it(void **state)
{
	struct talk talk;
	struct err err;

	(void)state;
	server_start(AF_INET);
	server.skips_body = true;
	server_script_raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", false);
	talk_start(&talk);
	make_ready(&talk, give_up);
	assert_err(talk_call(&talk, &err), &err, ERR_CANCELLED);
	server_stop();
	talk_end(&talk);
}

static void test_a_call_ends_at_its_time_out(void **state)
{
	uint64_t begin = clock_monotonic_ms();
	struct talk talk;
	struct err err;

	(void)state;
	server_start(AF_INET);
	server.skips_body = true;
	server_script_raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", false);
	talk_start(&talk);
	talk.request.timeout_s = 1;
	assert_err(talk_call(&talk, &err), &err, ERR_UNAVAILABLE);
	assert_true(clock_monotonic_ms() - begin >= 900);
	server_stop();
	talk_end(&talk);
}

static void test_an_empty_exec_id_is_refused_before_any_call(void **state)
{
	struct talk talk;
	struct err err;

	(void)state;
	server_start(AF_INET);
	talk_start(&talk);
	talk.request.exec_id = "";
	assert_err(talk_call(&talk, &err), &err, ERR_INVALID);
	assert_int_equal(server.connections, 0);
	talk_end(&talk);
}

#define T(f) cmocka_unit_test_setup_teardown(f, server_set_up, server_tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_a_body_may_come_later),
		T(test_a_pipe_that_is_closed_ends_the_body),
		T(test_an_answer_does_not_wait_for_the_body),
		T(test_a_whole_answer_needs_no_more_of_the_body),
		T(test_a_stream_that_breaks_off_is_an_error),
		T(test_a_refusal_does_not_wait_for_the_body),
		T(test_what_happens_beside_a_call_may_end_it),
		T(test_a_call_ends_at_its_time_out),
		T(test_an_empty_exec_id_is_refused_before_any_call),
	};

	return cmocka_run_group_tests_name("calls that go both ways", tests, NULL, NULL);
}
