#include "client/buffer.h"

#include <string.h>

#include "base/xalloc.h"

void buffer_add(struct buffer *b, const void *data, size_t len)
{
	if (b->size - b->len < len + 1) {
		b->size = (b->len + len + 1) * 2;
		b->data = xrealloc(b->data, 1, b->size);
	}
	memcpy(b->data + b->len, data, len);
	b->len += len;
	b->data[b->len] = '\0';
}

void buffer_add_text(struct buffer *b, const char *text)
{
	buffer_add(b, text, strlen(text));
}

void buffer_drop(struct buffer *b, size_t len)
{
	ASSERT(len <= b->len);
	if (len > 0) {
		memmove(b->data, b->data + len, b->len - len + 1);
		b->len -= len;
	}
}

void buffer_clear(struct buffer *b)
{
	buffer_drop(b, b->len);
}

void buffer_fini(struct buffer *b)
{
	free(b->data);
	*b = (struct buffer){0};
}
