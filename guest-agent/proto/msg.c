#include "proto/msg.h"

#include <string.h>

#include "proto/frame.h"

const char *msg_status_name(uint32_t status)
{
	static const char *const names[] = {
		[STATUS_OK] = "ok",
		[STATUS_INVALID] = "invalid",
		[STATUS_NOT_FOUND] = "not_found",
		[STATUS_PERMISSION] = "permission",
		[STATUS_EXISTS] = "exists",
		[STATUS_IS_DIRECTORY] = "is_directory",
		[STATUS_NOT_DIRECTORY] = "not_directory",
		[STATUS_NO_SPACE] = "no_space",
		[STATUS_READ_ONLY] = "read_only",
		[STATUS_NAME_TOO_LONG] = "name_too_long",
		[STATUS_LOOP] = "loop",
		[STATUS_NOT_REGULAR] = "not_regular",
		[STATUS_BUSY] = "busy",
		[STATUS_UNSUPPORTED] = "unsupported",
		[STATUS_CANCELLED] = "cancelled",
		[STATUS_IO] = "io",
		[STATUS_INTERNAL] = "internal",
		[STATUS_LIMIT] = "limit",
	};

	return status < sizeof names / sizeof names[0] ? names[status] : "unknown";
}

void msg_put_bytes(struct msg_writer *w, uint16_t tag, const void *data, size_t len)
{
	if (w->overflow || len > UINT32_MAX || w->size - w->len < MSG_FIELD_HEADER_BYTES ||
		w->size - w->len - MSG_FIELD_HEADER_BYTES < len) {
		w->overflow = true;
		return;
	}
	uint8_t *p = w->buf + w->len;

	put_le16(p, tag);
	put_le16(p + 2, 0);
	put_le32(p + 4, (uint32_t)len);
	if (len > 0) {
		memcpy(p + MSG_FIELD_HEADER_BYTES, data, len);
	}
	w->len += MSG_FIELD_HEADER_BYTES + len;
}

void msg_put_u32(struct msg_writer *w, uint16_t tag, uint32_t value)
{
	uint8_t raw[4];

	put_le32(raw, value);
	msg_put_bytes(w, tag, raw, sizeof raw);
}

void msg_put_u64(struct msg_writer *w, uint16_t tag, uint64_t value)
{
	uint8_t raw[8];

	put_le64(raw, value);
	msg_put_bytes(w, tag, raw, sizeof raw);
}

void msg_put_text(struct msg_writer *w, uint16_t tag, const char *text)
{
	msg_put_bytes(w, tag, text, strlen(text));
}

bool msg_next(struct msg_reader *r, struct msg_field *ret)
{
	if (r->bad || r->pos == r->len) {
		return false;
	}
	const uint8_t *p = r->buf + r->pos;
	size_t rest = r->len - r->pos;

	if (rest < MSG_FIELD_HEADER_BYTES || get_le16(p + 2) != 0 ||
		get_le32(p + 4) > rest - MSG_FIELD_HEADER_BYTES) {
		r->bad = true;
		return false;
	}
	ret->tag = get_le16(p);
	ret->len = get_le32(p + 4);
	ret->data = p + MSG_FIELD_HEADER_BYTES;
	r->pos += MSG_FIELD_HEADER_BYTES + ret->len;
	return true;
}

uint32_t msg_u32(struct msg_reader *r, const struct msg_field *f)
{
	if (f->len != 4) {
		r->bad = true;
		return 0;
	}
	return get_le32(f->data);
}

uint64_t msg_u64(struct msg_reader *r, const struct msg_field *f)
{
	if (f->len != 8) {
		r->bad = true;
		return 0;
	}
	return get_le64(f->data);
}

void msg_text(struct msg_reader *r, const struct msg_field *f, char *out, size_t size)
{
	if (f->len >= size || (f->len > 0 && memchr(f->data, 0, f->len) != NULL)) {
		r->bad = true;
		out[0] = '\0';
		return;
	}
	if (f->len > 0) {
		memcpy(out, f->data, f->len);
	}
	out[f->len] = '\0';
}

bool msg_entry_put(struct msg_writer *w, const struct msg_entry *entry)
{
	size_t need = MSG_ENTRY_HEADER_BYTES + entry->name_len;

	if (entry->name_len == 0 || entry->name_len > PROTO_PATH_MAX_BYTES ||
		w->size - w->len < need) {
		return false;
	}
	uint8_t *p = w->buf + w->len;

	put_le32(p, (uint32_t)need);
	put_le32(p + 4, entry->mode);
	put_le64(p + 8, entry->size);
	put_le64(p + 16, entry->mtime_ns);
	p[24] = entry->type;
	memset(p + 25, 0, 3);
	memcpy(p + MSG_ENTRY_HEADER_BYTES, entry->name, entry->name_len);
	w->len += need;
	return true;
}

bool msg_entry_next(struct msg_reader *r, struct msg_entry *ret)
{
	if (r->bad || r->pos == r->len) {
		return false;
	}
	const uint8_t *p = r->buf + r->pos;
	size_t rest = r->len - r->pos;
	uint32_t need = rest >= MSG_ENTRY_HEADER_BYTES ? get_le32(p) : 0;

	if (need <= MSG_ENTRY_HEADER_BYTES || need > rest ||
		need - MSG_ENTRY_HEADER_BYTES > PROTO_PATH_MAX_BYTES ||
		memchr(p + MSG_ENTRY_HEADER_BYTES, 0, need - MSG_ENTRY_HEADER_BYTES) != NULL) {
		r->bad = true;
		return false;
	}
	*ret = (struct msg_entry){
		.mode = get_le32(p + 4),
		.size = get_le64(p + 8),
		.mtime_ns = get_le64(p + 16),
		.type = p[24],
		.name = (const char *)p + MSG_ENTRY_HEADER_BYTES,
		.name_len = need - MSG_ENTRY_HEADER_BYTES,
	};
	r->pos += need;
	return true;
}

bool msg_id_is_valid(const char *id, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		char c = id[i];
		bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');

		if (!is_letter && !(c >= '0' && c <= '9') && c != '_' && c != '-') {
			return false;
		}
	}
	return len > 0 && len <= PROTO_ID_MAX_BYTES;
}

void msg_job_put(struct msg_writer *w, const struct msg_job *job)
{
	msg_put_text(w, MSG_ID, job->id);
	msg_put_u32(w, MSG_JOB_FLAGS, job->flags);
	msg_put_u64(w, MSG_FIRST_OFFSET, job->first_offset);
	msg_put_u64(w, MSG_END_OFFSET, job->end_offset);
	if ((job->flags & MSG_JOB_RUNNING) != 0) {
		return;
	}
	msg_put_u32(w, MSG_EXIT_CODE, job->exit_code);
	msg_put_u32(w, MSG_SIGNAL, job->signal);
	msg_put_u32(w, MSG_END_FLAGS, job->end_flags);
	msg_put_u64(w, MSG_OUT_BYTES, job->out_bytes);
	msg_put_u64(w, MSG_ERR_BYTES, job->err_bytes);
	msg_put_u64(w, MSG_DURATION_US, job->duration_us);
}

bool msg_job_take(struct msg_reader *r, const struct msg_field *f, struct msg_job *job)
{
	switch (f->tag & ~MSG_CRITICAL) {
	case MSG_ID:
		msg_text(r, f, job->id, sizeof job->id);
		return true;
	case MSG_JOB_FLAGS:
		job->flags = msg_u32(r, f);
		return true;
	case MSG_FIRST_OFFSET:
		job->first_offset = msg_u64(r, f);
		return true;
	case MSG_END_OFFSET:
		job->end_offset = msg_u64(r, f);
		return true;
	case MSG_EXIT_CODE:
		job->exit_code = msg_u32(r, f);
		return true;
	case MSG_SIGNAL:
		job->signal = msg_u32(r, f);
		return true;
	case MSG_END_FLAGS:
		job->end_flags = msg_u32(r, f);
		return true;
	case MSG_OUT_BYTES:
		job->out_bytes = msg_u64(r, f);
		return true;
	case MSG_ERR_BYTES:
		job->err_bytes = msg_u64(r, f);
		return true;
	case MSG_DURATION_US:
		job->duration_us = msg_u64(r, f);
		return true;
	default:
		return false;
	}
}

bool msg_job_is_sound(const struct msg_job *job)
{
	if (!msg_id_is_valid(job->id, strlen(job->id)) || job->first_offset > job->end_offset ||
		job->end_offset > INT64_MAX) {
		return false;
	}
	if ((job->flags & MSG_JOB_RUNNING) != 0) {
		return true;
	}
	return job->exit_code <= 255 && job->signal <= PROTO_SIGNAL_MAX &&
	       job->out_bytes <= job->end_offset &&
	       job->err_bytes == job->end_offset - job->out_bytes;
}
