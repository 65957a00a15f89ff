#include "src/exec-request.h"

#include <stdlib.h>
#include <string.h>

#include "src/env.h"
#include "src/stream.h"

bool exec_request_init(struct exec_request *q, size_t len)
{
	memset(q, 0, sizeof *q);
	q->grace_ms = PROTO_EXEC_GRACE_MS;
	q->output_cap = UINT64_MAX;
	q->rows = 24;
	q->cols = 80;
	q->arena = malloc(len + 1);
	return q->arena != NULL;
}

/* Copies a text field into the arena. NULL where it holds a NUL. */
static char *keep_text(struct exec_request *q, const struct msg_field *f)
{
	char *text = q->arena + q->arena_len;

	if (f->len > 0 && memchr(f->data, 0, f->len) != NULL) {
		return NULL;
	}
	memcpy(text, f->data, f->len);
	text[f->len] = '\0';
	q->arena_len += f->len + 1;
	return text;
}

/* Returns the name of the field that is wrong, or NULL. */
static const char *take_field(
	struct exec_request *q, struct msg_reader *r, const struct msg_field *f)
{
	switch (f->tag & ~MSG_CRITICAL) {
	case MSG_ARG:
		if (q->arg_count >= PROTO_ARGS_MAX) {
			return "too many arguments";
		}
		q->args[1 + q->arg_count] = keep_text(q, f);
		return q->args[1 + q->arg_count++] == NULL ? "an argument holds a NUL" : NULL;
	case MSG_COMMAND:
		q->command = keep_text(q, f);
		return q->command == NULL ? "command holds a NUL" : NULL;
	case MSG_CWD:
		if (f->len > PROTO_PATH_MAX_BYTES) {
			return "cwd is too long";
		}
		q->cwd = keep_text(q, f);
		return q->cwd == NULL ? "cwd holds a NUL" : NULL;
	case MSG_ENV:
		if (q->var_count >= PROTO_ENV_MAX) {
			return "too many environment variables";
		}
		if (!env_is_valid((const char *)f->data, f->len)) {
			return "an environment variable is not NAME=VALUE";
		}
		q->vars[q->var_count++] = keep_text(q, f);
		return NULL;
	case MSG_TIMEOUT_MS:
		q->timeout_ms = MIN(msg_u64(r, f), EXEC_TIME_MAX_MS);
		return NULL;
	case MSG_GRACE_MS:
		q->grace_ms = MIN(msg_u64(r, f), EXEC_TIME_MAX_MS);
		return NULL;
	case MSG_OUTPUT_CAP:
		q->output_cap = msg_u64(r, f);
		return NULL;
	case MSG_EXEC_FLAGS:
		q->flags = msg_u32(r, f);
		return NULL;
	case MSG_SHELL:
		q->shell = f->len > 0 ? keep_text(q, f) : NULL;
		return q->shell == NULL ? "shell is empty or holds a NUL" : NULL;
	case MSG_ID:
		msg_text(r, f, q->id, sizeof q->id);
		return msg_id_is_valid(q->id, strlen(q->id)) ? NULL : "id isn't one of a command";
	case MSG_TAIL_CAP:
		q->tail_cap = MIN(msg_u64(r, f), PROTO_TAIL_MAX_BYTES);
		return NULL;
	case MSG_ROWS:
		q->rows = msg_u32(r, f);
		return q->rows - 1 < PROTO_TTY_SIZE_MAX ? NULL : "impossible rows";
	case MSG_COLS:
		q->cols = msg_u32(r, f);
		return q->cols - 1 < PROTO_TTY_SIZE_MAX ? NULL : "impossible cols";
	default:
		return (f->tag & MSG_CRITICAL) != 0 ? "unsupported field" : NULL;
	}
}

/* What doesn't go together, or NULL. */
static const char *find_contradiction(const struct exec_request *q)
{
	bool is_login = (q->flags & MSG_EXEC_TTY) != 0 && q->command == NULL && q->arg_count == 0;

	if (!is_login && (q->command != NULL) == (q->arg_count > 0)) {
		return "either a command or arguments are needed";
	}
	return q->shell != NULL && q->arg_count > 0 ? "arguments need no shell" : NULL;
}

bool exec_request_parse(
	struct stream *s, struct exec_request *q, const uint8_t *body, size_t len, uint32_t flags)
{
	struct msg_reader r = {.buf = body, .len = len};

	for (struct msg_field f; msg_next(&r, &f);) {
		const char *wrong = take_field(q, &r, &f);

		if (wrong != NULL) {
			bool is_unknown = strcmp(wrong, "unsupported field") == 0;

			stream_fail(s, is_unknown ? STATUS_UNSUPPORTED : STATUS_INVALID, 0, "%s",
				wrong);
			return false;
		}
	}
	const char *wrong = r.bad ? "malformed request" : find_contradiction(q);

	if (wrong != NULL) {
		stream_fail(s, STATUS_INVALID, 0, "%s", wrong);
		return false;
	}
	if ((q->flags & ~flags) != 0) {
		stream_fail(s, STATUS_UNSUPPORTED, 0, "unsupported exec flag");
		return false;
	}
	q->args[1 + q->arg_count] = NULL;
	return true;
}

void exec_request_fini(struct exec_request *q)
{
	free(q->arena);
	q->arena = NULL;
}
