#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/parse.h"

static _Atomic int current_level = LOG_LEVEL_INFO;

void log_set_level(enum log_level level)
{
	current_level = (int)level;
}

enum log_level log_level(void)
{
	return (enum log_level)current_level;
}

static _Thread_local struct log_request current;

const char *log_request(void)
{
	return current.id;
}

struct log_request log_request_begin(const char *id)
{
	struct log_request before = current;
	struct log_request next; /* @id may be current.id */

	snprintf(next.id, sizeof next.id, "%s", id);
	current = next;
	return before;
}

void log_request_end(const struct log_request *before)
{
	current = *before;
}

/* Clients put keys where none belongs, and messages quote what isn't understood. @line shrinks. */
static size_t hide_keys(char *line, size_t len)
{
	static const char prefix[] = LOG_SECRET_PREFIX;
	static const char letters[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
	char *at = line;

	line[len] = '\0';
	while ((at = strstr(at, prefix))) {
		at += sizeof prefix - 1;
		size_t secret = strspn(at, letters);

		if (secret > 0) {
			*at++ = '*';
			memmove(at, at + secret - 1, len - (size_t)(at - line) - (secret - 1) + 1);
			len -= secret - 1;
		}
	}
	return len;
}

static _printf_(3, 0) void write_line(enum log_level level, const char *message, const char *fields,
	va_list ap, const char *suffix)
{
	char line[2048];
	size_t room = sizeof line - 1; /* for the newline */
	/* Some lines name it themselves: they are written when nothing is worked on any more. */
	bool has_request = current.id[0] != '\0' && strncmp(fields, "rq=", 3) != 0;
	int n = snprintf(line, room, "<%d>%s%s%s", (int)level, message, has_request ? " rq=" : "",
		has_request ? current.id : "");
	size_t len = MIN((size_t)MAX(n, 0), room - 1);

	if (fields[0] != '\0') {
		line[len++] = ' ';
		n = vsnprintf(line + len, room - len, fields, ap);
		len = MIN(len + (size_t)MAX(n, 0), room - 1);
	}
	n = snprintf(line + len, room - len, "%s", suffix);
	len = MIN(len + (size_t)MAX(n, 0), room - 1);
	for (size_t i = 0; i < len; i++) {
		if (line[i] == '\n' || line[i] == '\r') {
			line[i] = ' ';
		}
	}
	len = hide_keys(line, len);
	line[len++] = '\n';
	/* Nothing sensible can be done when stderr is gone. */
	if (write(STDERR_FILENO, line, len) < 0) {
		return;
	}
}

void log_line(enum log_level level, const char *message, const char *fields, ...)
{
	va_list ap;

	if ((int)level > current_level) {
		return;
	}
	va_start(ap, fields);
	write_line(level, message, fields, ap, "");
	va_end(ap);
}

void log_failure(
	enum log_level level, const char *message, const struct err *err, const char *fields, ...)
{
	char quoted[sizeof err->msg + 16];
	char suffix[sizeof quoted + 192];
	va_list ap;

	if ((int)level > current_level) {
		return;
	}
	snprintf(suffix, sizeof suffix, " kind=%s at=%s:%d sys=%d error=%s",
		err_kind_name(err->kind), err->file ? err->file : "-", err->line, err->sys,
		log_quote(quoted, sizeof quoted, err->msg, strlen(err->msg)));
	va_start(ap, fields);
	write_line(level, message, fields, ap, suffix);
	va_end(ap);
}

/* Length of the UTF-8 sequence at @s, 0 when it is none or a control character. */
static size_t printable_length(const unsigned char *s, size_t len)
{
	uint32_t code = 0;
	size_t length = utf8_decode((const char *)s, len, &code);

	/* C1 controls can drive a terminal just as escape sequences do. */
	return code < 0x20 || (code >= 0x7f && code < 0xa0) ? 0 : length;
}

/* One character of @s, escaped where need be, into @piece; *ret_used is its length in @s. */
static size_t escape_one(char piece[5], const unsigned char *s, size_t len, size_t *ret_used)
{
	size_t take = printable_length(s, len);

	*ret_used = take ? take : 1;
	if (take > 0) {
		memcpy(piece, s, take);
		return take;
	}
	snprintf(piece, 5, "\\x%02x", s[0]);
	return 4;
}

const char *log_quote(char *out, size_t size, const char *text, size_t len)
{
	static const char ellipsis[] = "\u2026\"";
	const unsigned char *s = (const unsigned char *)text;
	size_t n = 0;
	size_t used;

	ASSERT(size > 8);
	out[n++] = '"';
	for (size_t i = 0; i < len; i += used) {
		char piece[5];
		size_t take = escape_one(piece, s + i, len - i, &used);

		if (s[i] == '"' || s[i] == '\\') {
			piece[0] = '\\';
			piece[1] = (char)s[i];
			take = 2;
		}
		if (n + take + sizeof ellipsis > size) {
			memcpy(out + n, ellipsis, sizeof ellipsis);
			return out;
		}
		memcpy(out + n, piece, take);
		n += take;
	}
	out[n++] = '"';
	out[n] = '\0';
	return out;
}

size_t log_printable(char *out, size_t size, const char *text, size_t len)
{
	const unsigned char *s = (const unsigned char *)text;
	size_t n = 0;
	size_t i = 0;
	size_t used;

	for (; i < len; i += used) {
		char piece[5];
		size_t take = escape_one(piece, s + i, len - i, &used);

		if (n + take + 1 > size) {
			break;
		}
		memcpy(out + n, piece, take);
		n += take;
	}
	out[n] = '\0';
	return i;
}

bool log_limit_allows(struct log_limit *limit, uint64_t now_ms, unsigned *ret_suppressed)
{
	if (now_ms - limit->window_start_ms >= 1000) {
		limit->window_start_ms = now_ms;
		limit->in_window = 0;
	}
	if (limit->in_window >= LOG_LIMIT_PER_SECOND) {
		limit->suppressed++;
		return 0;
	}
	limit->in_window++;
	*ret_suppressed = limit->suppressed;
	limit->suppressed = 0;
	return 1;
}
