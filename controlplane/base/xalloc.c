#include "base/xalloc.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *xcalloc(size_t count, size_t size)
{
	void *p = calloc(count ? count : 1, size ? size : 1);

	ASSERT(p != NULL);
	return p;
}

void *xrealloc(void *p, size_t count, size_t size)
{
	void *q = reallocarray(p, count ? count : 1, size);

	ASSERT(q != NULL);
	return q;
}

void *xmemdup(const void *p, size_t len)
{
	void *q = xcalloc(1, len);

	if (len > 0) {
		memcpy(q, p, len);
	}
	return q;
}

char *xstrdup(const char *s)
{
	return s ? xmemdup(s, strlen(s) + 1) : NULL;
}

char *xasprintf(const char *fmt, ...)
{
	char *s = NULL;
	va_list ap;

	va_start(ap, fmt);
	int n = vasprintf(&s, fmt, ap);
	va_end(ap);
	ASSERT(n >= 0);
	return s;
}

size_t strv_length(char *const *strv)
{
	size_t n = 0;

	while (strv && strv[n]) {
		n++;
	}
	return n;
}

char **strv_dup(char *const *strv)
{
	size_t n = strv_length(strv);
	char **copy = xcalloc(n + 1, sizeof *copy);

	for (size_t i = 0; i < n; i++) {
		copy[i] = xstrdup(strv[i]);
	}
	return copy;
}

void strv_free(char **strv)
{
	for (size_t i = 0; strv && strv[i]; i++) {
		free(strv[i]);
	}
	free(strv);
}
