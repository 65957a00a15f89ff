#include "ops/op.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/xalloc.h"
#include "ops/view.h"

/*
 * Theory of operation. A file is read through a pipe in both forms of the answer. As bytes: the
 * call is answered as soon as the guest has said how long the file is, with the pipe as its body;
 * the transfer goes on behind it and ends the pipe. As JSON: the pipe is drained here, up to
 * json_limit(), and the call is answered at the end.
 */

/* What a file's bytes wait in between guest and client. */
#define READ_PIPE_BYTES (1024 * 1024)

struct reading {
	struct op_call *call;
	struct sandbox_call *running; /* NULL: it has ended */
	struct pipe *body;            /* reader's end, until the answer has it */
	struct evbuffer *content;     /* JSON: what came so far */
	struct guest_file_info info;
	uint64_t collected_bytes; /* JSON: of ops.collected_bytes */
	struct err failure;       /* JSON: too much came */
	uint64_t wanted_bytes;
	uint64_t offset;
};

static void reading_free(struct reading *reading)
{
	reading->call->ops->collected_bytes -= reading->collected_bytes;
	pipe_reader_free(reading->body);
	if (reading->content) {
		evbuffer_free(reading->content);
	}
	free(reading);
}

static void drop_reading(struct op_call *call)
{
	struct reading *reading = call->own;

	sandbox_call_abandon(reading->running);
	reading_free(reading);
}

static void take_path(const struct op_call *call, struct guest_file_spec *spec)
{
	spec->path = api_args_bytes(&call->args, "path", &spec->path_len);
}

/* ---- reading as bytes ---- */

static uint64_t bytes_to_come(const struct reading *reading, const struct guest_file_info *info)
{
	uint64_t rest = info->size > reading->offset ? info->size - reading->offset : 0;

	return MIN(rest, reading->wanted_bytes);
}

static void on_info(void *arg, const struct guest_file_info *info)
{
	struct reading *reading = arg;

	reading->info = *info;
	if (!reading->content) {
		op_reply_file(reading->call, steal_ptr(&reading->body),
			bytes_to_come(reading, info), info);
	}
}

static void on_read(void *arg, const struct guest_status *status, const struct err *err)
{
	struct reading *reading = arg;
	struct op_call *call = reading->call;
	bool is_answered = op_answer(call) != NULL;

	call->drop = NULL;
	reading_free(reading);
	if (is_answered) {
		return; /* the pipe tells the transport */
	}
	struct err no_info;

	if (!err) {
		err_set(&no_info, ERR_UNAVAILABLE, "the guest sent no file");
		err = &no_info;
	}
	op_fail_guest(call, status, err);
}

/* ---- reading as JSON ---- */

static uint64_t json_limit(const struct ops *ops)
{
	return MIN(ops->config.body_bytes, (uint64_t)API_JSON_MAX_BYTES);
}

/* What was collected is of no use any more, nor is what still comes. */
static void throw_away(struct reading *reading)
{
	reading->call->ops->collected_bytes -= reading->collected_bytes;
	reading->collected_bytes = 0;
	evbuffer_drain(reading->content, evbuffer_get_length(reading->content));
}

static void give_up(struct reading *reading, enum err_kind kind)
{
	if (kind == ERR_TOO_LARGE) {
		err_set(&reading->failure, kind,
			"more than %" PRIu64 " bytes don't fit into JSON: accept "
			"application/octet-stream, or read pieces with \"offset\" and \"length\"",
			json_limit(reading->call->ops));
	} else {
		err_set(&reading->failure, kind, "too much is under way; try again");
	}
	throw_away(reading);
	if (reading->running) {
		sandbox_call_cancel(reading->running);
	}
}

static void collect(struct reading *reading)
{
	struct ops *ops = reading->call->ops;
	size_t came = pipe_read_buffer(reading->body, reading->content, SIZE_MAX);

	reading->collected_bytes += came;
	ops->collected_bytes += came;
	if (reading->failure.kind != ERR_NONE) {
		throw_away(reading);
	} else if (reading->collected_bytes > json_limit(ops)) {
		give_up(reading, ERR_TOO_LARGE);
	} else if (ops->collected_bytes > ops->config.bodies_total_bytes) {
		give_up(reading, ERR_UNAVAILABLE);
	}
}

static void on_data(void *arg)
{
	collect(arg);
}

static void on_collected(void *arg, const struct guest_status *status, const struct err *err)
{
	struct reading *reading = arg;
	struct op_call *call = reading->call;
	struct err failure = reading->failure;
	json_object *answer = NULL;

	reading->running = NULL;
	if (!err && failure.kind == ERR_NONE) {
		collect(reading);
		failure = reading->failure;
	}
	if (!err && failure.kind == ERR_NONE) {
		size_t path_len;
		const char *path = api_args_bytes(&call->args, "path", &path_len);

		answer = view_file(path, path_len, &reading->info, reading->content);
	}
	call->drop = NULL;
	reading_free(reading);
	if (answer) {
		op_reply(call, call->row->status, answer);
	} else if (failure.kind != ERR_NONE) {
		op_fail(call, &failure);
	} else {
		op_fail_guest(call, status, err);
	}
}

static enum op_ret read_file(struct op_call *call, struct sandbox *sb, struct guest_file_spec *spec)
{
	struct err err = ERR_INIT;
	struct reading *reading = xnew(struct reading);
	struct guest_get_hooks hooks = {.on_info = on_info, .on_done = on_read, .arg = reading};
	struct pipe *pipe = pipe_new(call->ops->parts.loop, READ_PIPE_BYTES);

	reading->call = call;
	reading->body = pipe;
	reading->offset = spec->offset;
	reading->wanted_bytes = spec->length;
	if (!call->accepts_raw) {
		reading->content = evbuffer_new();
		ASSERT(reading->content);
		hooks.on_done = on_collected;
		pipe_set_reader(pipe, on_data, reading);
	}
	reading->running = sandbox_file_get(sb, spec, pipe, &hooks, &err);
	if (!reading->running) {
		pipe_writer_free(pipe);
		reading_free(reading);
		return op_fail(call, &err);
	}
	return op_wait(call, drop_reading, reading);
}

/* ---- listing ---- */

struct listing {
	struct op_call *call;
	struct sandbox_call *running;
	json_object *entries;
	size_t max;
	bool is_cut;
};

static void listing_free(struct listing *listing)
{
	json_object_put(listing->entries);
	free(listing);
}

static void drop_listing(struct op_call *call)
{
	struct listing *listing = call->own;

	sandbox_call_abandon(listing->running);
	listing_free(listing);
}

/* The guest was told the limit, and is not trusted to keep it. */
static void on_entry(void *arg, const struct guest_entry *entry)
{
	struct listing *listing = arg;
	size_t dir_len;
	const char *dir = api_args_bytes(&listing->call->args, "path", &dir_len);

	if (json_object_array_length(listing->entries) < listing->max) {
		json_object_array_add(listing->entries, view_entry(dir, dir_len, entry));
	} else {
		listing->is_cut = true;
	}
}

static void on_listed(
	void *arg, bool is_cut, const struct guest_status *status, const struct err *err)
{
	struct listing *listing = arg;
	struct op_call *call = listing->call;
	json_object *answer = NULL;

	if (!err) {
		answer = json_object_new_object();
		view_set(answer, "entries", steal_ptr(&listing->entries));
		view_set_bool(answer, "truncated", is_cut || listing->is_cut);
	}
	listing_free(listing);
	if (err) {
		op_fail_guest(call, status, err);
	} else {
		op_reply(call, call->row->status, answer);
	}
}

static enum op_ret list_directory(
	struct op_call *call, struct sandbox *sb, struct guest_file_spec *spec)
{
	struct err err = ERR_INIT;
	struct listing *listing = xnew(struct listing);
	struct guest_list_hooks hooks = {
		.on_entry = on_entry, .on_done = on_listed, .arg = listing};

	spec->recursive = api_args_bool(&call->args, "recursive");
	spec->limit = (uint32_t)api_args_int(&call->args, "limit");
	listing->call = call;
	listing->max = spec->limit;
	listing->entries = json_object_new_array();
	listing->running = sandbox_file_list(sb, spec, &hooks, &err);
	if (!listing->running) {
		listing_free(listing);
		return op_fail(call, &err);
	}
	return op_wait(call, drop_listing, listing);
}

enum op_ret op_file_read(struct op_call *call)
{
	struct err err = ERR_INIT;
	const struct api_args *args = &call->args;
	struct guest_file_spec spec = {
		.offset = (uint64_t)api_args_int(args, "offset"), .length = UINT64_MAX};
	struct sandbox *sb = op_live_sandbox(call, &err);

	if (!sb) {
		return op_fail(call, &err);
	}
	if (api_args_has(args, "length")) {
		spec.length = (uint64_t)api_args_int(args, "length");
	}
	take_path(call, &spec);
	return api_args_bool(args, "list") ? list_directory(call, sb, &spec)
					   : read_file(call, sb, &spec);
}

/* ---- writing ---- */

struct writing {
	struct sandbox_call *running;
	struct op_call *call;
	uint64_t bytes; /* UINT64_MAX: the body will tell */
};

static void drop_writing(struct op_call *call)
{
	struct writing *writing = call->own;

	sandbox_call_abandon(writing->running);
	free(writing);
}

static void on_written(void *arg, const struct guest_status *status, const struct err *err)
{
	struct writing *writing = arg;
	struct op_call *call = writing->call;
	uint64_t bytes = writing->bytes == UINT64_MAX ? call->body_bytes : writing->bytes;

	free(writing);
	if (err) {
		op_fail_guest(call, status, err);
		return;
	}
	json_object *answer = json_object_new_object();
	size_t path_len;
	const char *path = api_args_bytes(&call->args, "path", &path_len);

	view_set_bytes(answer, "path", path, path_len);
	view_set_int(answer, "size_bytes", (int64_t)bytes);
	op_reply(call, call->row->status, answer);
}

/* NULL with @err set: nothing to write. */
static struct pipe *take_content(struct op_call *call, uint64_t *ret_len, struct err *err)
{
	if (call->body) {
		*ret_len = call->body_bytes;
		return steal_ptr(&call->body);
	}
	struct pipe *pipe = op_pipe_of_content(call, "content", "content_base64", ret_len, err);

	if (!pipe && err->kind == ERR_NONE) {
		err_set(err, ERR_INVALID,
			"\"content\" is missing: give it, \"content_base64\" or an "
			"application/octet-stream body");
	}
	return pipe;
}

enum op_ret op_file_write(struct op_call *call)
{
	struct err err = ERR_INIT;
	const char *mode = api_args_text(&call->args, "mode");
	struct guest_file_spec spec = {
		.mode = mode ? (uint32_t)strtoul(mode, NULL, 8) : 0,
		.make_parents = true,
		.offset = (uint64_t)api_args_int(&call->args, "offset"),
	};
	struct sandbox *sb = op_live_sandbox(call, &err);
	struct pipe *body = sb ? take_content(call, &spec.length, &err) : NULL;

	if (!body) {
		return op_fail(call, &err);
	}
	struct writing *writing = xnew(struct writing);

	take_path(call, &spec);
	writing->call = call;
	writing->bytes = spec.length;
	writing->running = sandbox_file_put(sb, &spec, body, on_written, writing, &err);
	if (!writing->running) {
		pipe_reader_free(body);
		free(writing);
		return op_fail(call, &err);
	}
	return op_wait(call, drop_writing, writing);
}
