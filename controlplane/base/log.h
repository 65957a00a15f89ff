#pragma once

/*
 * log - structured log lines on stderr
 *
 * Purpose: one line an event: `<6>sandbox started sb=sb_1 req=rq_2 ms=41`. The number in front is
 *          the syslog priority, which journald understands.
 * Thread:  any; a line is one write.
 *
 * The message is a constant sentence; data goes into fields, so both can be searched. Whatever
 * comes from outside (clients, guests, libraries) is passed through log_quote() or log_failure(),
 * which escape and shorten it. Environment, file contents and command output are never
 * logged. An error is logged once: where it stops travelling.
 */

#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/err.h"

/* What API keys begin with: no line has what follows it, wherever in a line it stands. */
#define LOG_SECRET_PREFIX "pdk_"

enum log_level { LOG_LEVEL_ERR = 3, LOG_LEVEL_WARN = 4, LOG_LEVEL_INFO = 6, LOG_LEVEL_DEBUG = 7 };

/* Lines above @level are dropped. Default: info. */
void log_set_level(enum log_level level);
enum log_level log_level(void);

/* @fields: printf format of `key=value key=value`, or "". */
void log_line(enum log_level level, const char *message, const char *fields, ...) _printf_(3, 4);

#define log_err(message, ...)   log_line(LOG_LEVEL_ERR, message, __VA_ARGS__)
#define log_warn(message, ...)  log_line(LOG_LEVEL_WARN, message, __VA_ARGS__)
#define log_info(message, ...)  log_line(LOG_LEVEL_INFO, message, __VA_ARGS__)
#define log_debug(message, ...) log_line(LOG_LEVEL_DEBUG, message, __VA_ARGS__)

/* Logs @err with kind, origin, system code and quoted text, after @fields. */
void log_failure(enum log_level level, const char *message, const struct err *err,
	const char *fields, ...) _printf_(4, 5);

/*
 * Lines that are written while a request is worked on carry its id as `rq=`, in front: what one
 * request did can be found by it. Of this thread; it ends with the block.
 *
 *	LOG_REQUEST(call->id);
 */
#define LOG_REQUEST(id)                                                                            \
	_cleanup_(log_request_end)                                                                 \
		_unused_ struct log_request log_request_before_ = log_request_begin(id)

struct log_request {
	char id[32];
};

/* The id that lines carry now, or "". Valid until the block ends. */
const char *log_request(void);
/* For LOG_REQUEST(). "" carries none; @id is copied. Returns what was before. */
struct log_request log_request_begin(const char *id);
void log_request_end(const struct log_request *before);

/*
 * Quoted form of @len bytes at @text: printable ASCII and UTF-8 kept, the rest as \xNN, at most
 * @size - 1 bytes including the quotes, "…" at the end when shortened. Returns @out.
 */
const char *log_quote(char *out, size_t size, const char *text, size_t len);

/* For a field that may be empty. */
static inline const char *log_dash(const char *text)
{
	return text && text[0] ? text : "-";
}

/*
 * The same for a person's terminal: no quotes around it, and only what isn't printable is escaped.
 * Stops before a piece that doesn't fit; returns how many bytes of @text are in @out.
 */
size_t log_printable(char *out, size_t size, const char *text, size_t len);

/* Allows a burst of lines, then a few a second; counts what it held back. One a source. */
struct log_limit {
	uint64_t window_start_ms;
	unsigned in_window;
	unsigned suppressed;
};
#define LOG_LIMIT_PER_SECOND 5
/* True when a line may be written; *ret_suppressed is the number held back since the last one. */
bool log_limit_allows(struct log_limit *limit, uint64_t now_ms, unsigned *ret_suppressed);
