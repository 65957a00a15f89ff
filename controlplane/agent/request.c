#include "agent/request.h"

#include <stdbool.h>
#include <string.h>

#include "base/xalloc.h"
#include "proto/frame.h"
#include "proto/limits.h"
#include "proto/msg.h"

#define FIRST_SIZE 512u

void request_fini(struct request *request)
{
	free(steal_ptr(&request->buf));
}

static bool is_failed(const struct request *request)
{
	return request->err.kind != ERR_NONE;
}

void request_bytes(struct request *request, uint16_t tag, const char *field, const void *data,
	size_t len, size_t max)
{
	if (is_failed(request)) {
		return;
	}
	if (len > max) {
		err_set(&request->err, ERR_TOO_LARGE, "%s is longer than %zu bytes", field, max);
		return;
	}
	size_t need = request->len + MSG_FIELD_HEADER_BYTES + len;

	if (need > PROTO_REQUEST_MAX_BYTES) {
		err_set(&request->err, ERR_TOO_LARGE,
			"%s does not fit: a request may have %u bytes in all", field,
			PROTO_REQUEST_MAX_BYTES);
		return;
	}
	if (need > request->size) {
		request->size = MIN(
			MAX(need * 2, (size_t)FIRST_SIZE), (size_t)PROTO_REQUEST_MAX_BYTES);
		request->buf = xrealloc(request->buf, request->size, 1);
	}
	struct msg_writer w = {.buf = request->buf, .size = request->size, .len = request->len};

	msg_put_bytes(&w, tag, data, len);
	ASSERT(!w.overflow);
	request->len = w.len;
}

void request_u32(struct request *request, uint16_t tag, uint32_t value)
{
	uint8_t raw[4];

	put_le32(raw, value);
	request_bytes(request, tag, "a number", raw, sizeof raw, sizeof raw);
}

void request_u64(struct request *request, uint16_t tag, uint64_t value)
{
	uint8_t raw[8];

	put_le64(raw, value);
	request_bytes(request, tag, "a number", raw, sizeof raw, sizeof raw);
}

void request_text(
	struct request *request, uint16_t tag, const char *field, const char *text, size_t max)
{
	if (text) {
		request_bytes(request, tag, field, text, strlen(text), max);
	}
}

void request_texts(struct request *request, uint16_t tag, const char *field, char *const *texts,
	size_t max_count)
{
	if (!is_failed(request) && strv_length(texts) > max_count) {
		err_set(&request->err, ERR_TOO_LARGE, "%s has more than %zu entries", field,
			max_count);
	}
	for (size_t i = 0; texts && texts[i] && !is_failed(request); i++) {
		request_text(request, tag, field, texts[i], PROTO_REQUEST_MAX_BYTES);
	}
}

void request_env(struct request *request, char *const *env)
{
	for (size_t i = 0; env && env[i] && !is_failed(request); i++) {
		const char *equals = strchr(env[i], '=');

		if (!equals || equals == env[i]) {
			err_set(&request->err, ERR_INVALID,
				"env has an entry that isn't NAME=VALUE");
		}
	}
	request_texts(request, MSG_ENV, "env", env, PROTO_ENV_MAX);
}

int request_check(const struct request *request, struct err *err)
{
	if (!is_failed(request)) {
		return 0;
	}
	*err = request->err;
	return -1;
}

uint8_t *request_steal(struct request *request)
{
	request->len = 0;
	request->size = 0;
	return steal_ptr(&request->buf);
}
