#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int err_set_at(struct err *err, enum err_kind kind, int sys, const char *file, int line,
	const char *fmt, ...)
{
	va_list ap;

	ASSERT(kind != ERR_NONE && kind < ERR_KIND_MAX);
	err->kind = kind;
	err->sys = sys;
	err->file = file;
	err->line = line;
	va_start(ap, fmt);
	vsnprintf(err->msg, sizeof err->msg, fmt, ap);
	va_end(ap);
	return -1;
}

int err_sys_at(struct err *err, int sys, const char *file, int line, const char *fmt, ...)
{
	char what[sizeof err->msg];
	char text[128];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof what, fmt, ap);
	va_end(ap);
	return err_set_at(err, ERR_INTERNAL, sys, file, line, "%s: %s", what,
		strerror_r(sys, text, sizeof text));
}

int err_wrap_at(struct err *err, const char *fmt, ...)
{
	char old[sizeof err->msg];
	va_list ap;

	ASSERT(err->kind != ERR_NONE);
	memcpy(old, err->msg, sizeof old);
	va_start(ap, fmt);
	int n = vsnprintf(err->msg, sizeof err->msg, fmt, ap);
	va_end(ap);
	if (n >= 0 && (size_t)n < sizeof err->msg) {
		snprintf(err->msg + n, sizeof err->msg - (size_t)n, ": %s", old);
	}
	return -1;
}

const char *err_kind_name(enum err_kind kind)
{
	static const char *const names[] = {
#define X(id, name) [ERR_##id] = name,
		ERR_KINDS(X)
#undef X
	};

	ASSERT(kind < ERR_KIND_MAX);
	return names[kind];
}
