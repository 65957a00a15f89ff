#include <string.h>

#include "agent/guest_private.h"
#include "agent/request.h"
#include "base/xalloc.h"

/*
 * Theory of operation.
 *
 * PUT moves bytes from the pipe to the guest as its credit allows. It's fine only when the pipe has
 * ended, as much came as was announced, and the guest says OK and counts the same bytes. A pipe
 * that fails, since the sender went away, cancels the call: a file cut short is never kept.
 *
 * GET moves bytes from the guest into the pipe. What the pipe has no room for waits in `pending`,
 * which the window bounds, and credit is given as the pipe takes bytes. The call is done once the
 * last byte is in the pipe, which may be after END.
 *
 * LIST hands entries on as they come. At LIST_BYTES_MAX of them it stops the guest and calls the
 * list cut.
 */

struct put_call {
	struct guest_call call;
	guest_done_fn done;
	void *arg;
	struct pipe *body;
	uint64_t announced; /* UINT64_MAX: unknown */
	uint64_t sent;
	bool is_all_sent;
};

struct get_call {
	struct guest_call call;
	struct guest_get_hooks hooks;
	struct pipe *body;
	struct evbuffer *pending;
	uint64_t wanted;
	uint64_t received;
	bool has_info;
};

struct list_call {
	struct guest_call call;
	struct guest_list_hooks hooks;
	uint32_t limit;
	uint32_t count;
	size_t bytes;
	bool is_cut;
};

/* Names and headers of one list. */
#define LIST_BYTES_MAX (16u * 1024u * 1024u)

static struct put_call *put_of(const struct guest_call *call)
{
	return container_of(call, struct put_call, call);
}

static struct get_call *get_of(const struct guest_call *call)
{
	return container_of(call, struct get_call, call);
}

static struct list_call *list_of(const struct guest_call *call)
{
	return container_of(call, struct list_call, call);
}

static int write_path(struct request *body, const struct guest_file_spec *spec, struct err *err)
{
	if (spec->path_len == 0 || memchr(spec->path, 0, spec->path_len)) {
		return err_set(err, ERR_INVALID, "path is empty or has a NUL");
	}
	request_bytes(body, MSG_PATH, "path", spec->path, spec->path_len, PROTO_PATH_MAX_BYTES);
	return request_check(body, err);
}

static void call_done(
	const struct guest_call *call, guest_done_fn done, void *arg, const struct err *err)
{
	struct guest_status status = rpc_status(call);

	done(arg, call->is_ended ? &status : NULL, err);
}

/* On the wire it has no sign, but means one: files may be older than the epoch. */
static int64_t mtime_ms(uint64_t mtime_ns)
{
	return (int64_t)mtime_ns / 1000000;
}

/* ---- put ---- */

static size_t put_pull(struct guest_call *call, uint8_t *out, size_t max, bool *ret_is_end)
{
	struct put_call *self = put_of(call);
	size_t n = pipe_read(self->body, out, MIN(max, self->announced - self->sent));

	self->sent += n;
	self->is_all_sent = pipe_is_end(self->body) &&
			    (self->announced == UINT64_MAX || self->sent == self->announced);
	*ret_is_end = self->is_all_sent;
	if (pipe_is_end(self->body) && !self->is_all_sent) {
		struct err err;

		err_set(&err, ERR_INVALID, "the body is shorter than announced");
		rpc_finish_later(call, &err);
	}
	return n;
}

static void put_on_body(void *arg)
{
	struct put_call *self = arg;
	const struct err *failure = pipe_failure(self->body);
	struct err err;

	if (failure) {
		rpc_finish(&self->call, failure);
	} else if (pipe_available(self->body) > self->announced - self->sent) {
		err_set(&err, ERR_INVALID, "the body is longer than announced");
		rpc_finish(&self->call, &err);
	} else {
		rpc_poke(&self->call);
	}
}

static bool put_is_guests_turn(const struct guest_call *call)
{
	const struct put_call *self = put_of(call);

	return self->is_all_sent || pipe_available(self->body) > 0;
}

static int put_on_end(struct guest_call *call, struct err *err)
{
	const struct put_call *self = put_of(call);

	if (!self->is_all_sent) {
		return rpc_violation(err, "a file that is complete before its bytes were sent");
	}
	if (!call->end.has_bytes || call->end.bytes != self->sent) {
		return rpc_violation(err, "a file with another number of bytes than were sent");
	}
	rpc_finish(call, NULL);
	return 0;
}

static void put_release(struct guest_call *call, const struct err *err)
{
	struct put_call *self = put_of(call);

	if (err) {
		pipe_fail(self->body, err);
	}
	pipe_reader_free(steal_ptr(&self->body));
}

static void put_done(struct guest_call *call, const struct err *err)
{
	const struct put_call *self = put_of(call);

	call_done(call, self->done, self->arg, err);
}

static const struct call_ops put_ops = {
	.on_end = put_on_end,
	.pull = put_pull,
	.is_guests_turn = put_is_guests_turn,
	.release = put_release,
	.done = put_done,
};

struct guest_call *agent_put(struct guest *guest, const struct guest_file_spec *spec,
	struct pipe *pipe, guest_done_fn done, void *arg, struct err *err)
{
	struct agent *agent = agent_of(guest);
	_cleanup_request_ struct request body = REQUEST_INIT;
	_cleanup_free_ struct put_call *self = xnew(struct put_call);
	uint32_t flags = (spec->make_parents ? MSG_FILE_PARENTS : 0u) |
			 (spec->append ? MSG_FILE_APPEND : 0u);
	struct rpc_request request = {
		.type = FRAME_FILE_PUT,
		.body = &body,
		.ops = &put_ops,
		.idle_ms = agent->driver->timing.idle_ms,
		.has_input = true,
	};

	if (write_path(&body, spec, err) < 0) {
		return NULL;
	}
	request_u32(&body, MSG_FILE_FLAGS, flags);
	if (spec->mode != 0) {
		request_u32(&body, MSG_MODE, spec->mode);
	}
	if (spec->offset != 0) {
		request_u64(&body, MSG_OFFSET, spec->offset);
	}
	if (spec->length != UINT64_MAX) {
		request_u64(&body, MSG_SIZE, spec->length);
	}
	self->done = done;
	self->arg = arg;
	self->announced = spec->length;
	if (rpc_start(&agent->rpc, &self->call, &request, err) < 0) {
		return NULL;
	}
	self->body = pipe;
	pipe_set_reader(pipe, put_on_body, self);
	return &steal_ptr(&self)->call;
}

/* ---- get ---- */

static int get_on_started(struct guest_call *call, const uint8_t *body, size_t len, struct err *err)
{
	struct get_call *self = get_of(call);
	struct msg_reader r = {.buf = body, .len = len};
	struct guest_file_info info = {0};

	for (struct msg_field f; msg_next(&r, &f);) {
		switch (f.tag & ~MSG_CRITICAL) {
		case MSG_SIZE:
			info.size = msg_u64(&r, &f);
			break;
		case MSG_MODE:
			info.mode = msg_u32(&r, &f) & 07777u;
			break;
		case MSG_MTIME_NS:
			info.mtime_ms = mtime_ms(msg_u64(&r, &f));
			break;
		default:
			r.bad = r.bad || (f.tag & MSG_CRITICAL) != 0;
			break;
		}
	}
	if (r.bad) {
		return rpc_violation(err, "a malformed STARTED");
	}
	self->has_info = true;
	if (self->hooks.on_info) {
		self->hooks.on_info(self->hooks.arg, &info);
	}
	return 0;
}

static int get_on_data(
	struct guest_call *call, unsigned channel, const uint8_t *data, size_t len, struct err *err)
{
	struct get_call *self = get_of(call);
	size_t n = 0;

	if (!self->has_info) {
		return rpc_violation(err, "bytes of a file before its description");
	}
	if (len > self->wanted - self->received) {
		return rpc_violation(err, "more of a file than was asked for");
	}
	self->received += len;
	if (evbuffer_get_length(self->pending) == 0) {
		n = pipe_write(self->body, data, len);
	}
	ASSERT(evbuffer_add(self->pending, data + n, len - n) == 0);
	rpc_consume(call, channel, n);
	return 0;
}

/* After END: fine once the pipe has it all. */
static void get_finish_if_all(struct get_call *self)
{
	if (self->call.is_ended && evbuffer_get_length(self->pending) == 0) {
		pipe_close(self->body);
		rpc_finish(&self->call, NULL);
	}
}

static void get_on_room(void *arg)
{
	struct get_call *self = arg;
	const struct err *failure = pipe_failure(self->body);

	if (failure) {
		rpc_finish(&self->call, failure);
		return;
	}
	size_t n = pipe_write_buffer(self->body, self->pending);

	rpc_consume(&self->call, FRAME_CHANNEL_OUT, n);
	get_finish_if_all(self);
}

static bool get_is_guests_turn(const struct guest_call *call)
{
	return evbuffer_get_length(get_of(call)->pending) == 0;
}

static int get_on_end(struct guest_call *call, struct err *err)
{
	struct get_call *self = get_of(call);

	if (!self->has_info || !call->end.has_bytes || call->end.bytes != self->received) {
		return rpc_violation(err, "a file with another number of bytes than came");
	}
	get_finish_if_all(self);
	return 0;
}

static void get_release(struct guest_call *call, const struct err *err)
{
	struct get_call *self = get_of(call);

	if (err) {
		pipe_fail(self->body, err);
	}
	pipe_writer_free(steal_ptr(&self->body));
	evbuffer_free(steal_ptr(&self->pending));
}

static void get_done(struct guest_call *call, const struct err *err)
{
	const struct get_call *self = get_of(call);

	call_done(call, self->hooks.on_done, self->hooks.arg, err);
}

static const struct call_ops get_ops = {
	.on_started = get_on_started,
	.on_data = get_on_data,
	.on_end = get_on_end,
	.is_guests_turn = get_is_guests_turn,
	.release = get_release,
	.done = get_done,
};

struct guest_call *agent_get(struct guest *guest, const struct guest_file_spec *spec,
	struct pipe *pipe, const struct guest_get_hooks *hooks, struct err *err)
{
	struct agent *agent = agent_of(guest);
	_cleanup_request_ struct request body = REQUEST_INIT;
	_cleanup_free_ struct get_call *self = xnew(struct get_call);
	struct rpc_request request = {
		.type = FRAME_FILE_GET,
		.body = &body,
		.ops = &get_ops,
		.idle_ms = agent->driver->timing.idle_ms,
	};

	if (write_path(&body, spec, err) < 0) {
		return NULL;
	}
	if (spec->offset != 0) {
		request_u64(&body, MSG_OFFSET, spec->offset);
	}
	if (spec->length != UINT64_MAX) {
		request_u64(&body, MSG_LENGTH, spec->length);
	}
	self->hooks = *hooks;
	self->wanted = spec->length;
	if (rpc_start(&agent->rpc, &self->call, &request, err) < 0) {
		return NULL;
	}
	self->body = pipe;
	self->pending = evbuffer_new();
	ASSERT(self->pending != NULL);
	pipe_set_writer(pipe, get_on_room, self);
	return &steal_ptr(&self)->call;
}

/* ---- list ---- */

static bool type_is_known(uint8_t type)
{
	return type == ENTRY_FILE || type == ENTRY_DIR || type == ENTRY_SYMLINK ||
	       type == ENTRY_OTHER;
}

/* As PROTOCOL.md has it, lest who joins it to a path of his own ends up elsewhere. */
static bool name_is_relative(const char *name, size_t len)
{
	for (size_t start = 0, end = 0; start <= len; start = end + 1) {
		for (end = start; end < len && name[end] != '/'; end++) {
		}
		size_t n = end - start;

		if (n == 0 || (n <= 2 && memcmp(name + start, "..", n) == 0)) {
			return false;
		}
	}
	return true;
}

/* It goes on until END, but nothing more is handed on. */
static void list_cut(struct list_call *self)
{
	self->is_cut = true;
	rpc_cancel(&self->call);
}

static int list_on_data(
	struct guest_call *call, unsigned channel, const uint8_t *data, size_t len, struct err *err)
{
	struct list_call *self = list_of(call);
	struct msg_reader r = {.buf = data, .len = len};

	for (struct msg_entry e; !call->is_done && !self->is_cut && msg_entry_next(&r, &e);) {
		struct guest_entry entry = {
			.name = e.name,
			.name_len = e.name_len,
			.type = (char)e.type,
			.size = e.size,
			.mode = e.mode & 07777u,
			.mtime_ms = mtime_ms(e.mtime_ns),
		};

		if (!type_is_known(e.type) || !name_is_relative(e.name, e.name_len)) {
			return rpc_violation(
				err, "an entry of no known type, or not of the directory");
		}
		if (self->count == self->limit) {
			return rpc_violation(err, "more entries than were asked for");
		}
		self->count++;
		self->bytes += MSG_ENTRY_HEADER_BYTES + e.name_len;
		if (self->bytes > LIST_BYTES_MAX) {
			list_cut(self);
			break;
		}
		self->hooks.on_entry(self->hooks.arg, &entry);
	}
	if (r.bad) {
		return rpc_violation(err, "a malformed entry");
	}
	rpc_consume(call, channel, len);
	return 0;
}

static void list_done(struct guest_call *call, const struct err *err)
{
	struct list_call *self = list_of(call);
	struct guest_status status = rpc_status(call);
	bool is_cut = self->is_cut || (call->end.flags & MSG_END_TRUNCATED);
	bool has_word = call->is_ended;

	/* Stopped by us, not by the caller, and the guest has stopped. */
	if (self->is_cut && err && err->kind == ERR_CANCELLED && has_word) {
		status = (struct guest_status){.status = STATUS_OK, .text = ""};
		err = NULL;
	}
	self->hooks.on_done(self->hooks.arg, is_cut, has_word ? &status : NULL, err);
}

static const struct call_ops list_ops = {
	.on_data = list_on_data,
	.done = list_done,
};

struct guest_call *agent_list(struct guest *guest, const struct guest_file_spec *spec,
	const struct guest_list_hooks *hooks, struct err *err)
{
	struct agent *agent = agent_of(guest);
	_cleanup_request_ struct request body = REQUEST_INIT;
	_cleanup_free_ struct list_call *self = xnew(struct list_call);
	struct rpc_request request = {
		.type = FRAME_FILE_LIST,
		.body = &body,
		.ops = &list_ops,
		.idle_ms = agent->driver->timing.idle_ms,
	};

	if (write_path(&body, spec, err) < 0) {
		return NULL;
	}
	if (spec->limit == 0) {
		err_set(err, ERR_INVALID, "limit is zero");
		return NULL;
	}
	request_u32(&body, MSG_FILE_FLAGS, spec->recursive ? MSG_FILE_RECURSIVE : 0u);
	request_u32(&body, MSG_LIMIT, spec->limit);
	self->hooks = *hooks;
	self->limit = spec->limit;
	if (rpc_start(&agent->rpc, &self->call, &request, err) < 0) {
		return NULL;
	}
	return &steal_ptr(&self)->call;
}
