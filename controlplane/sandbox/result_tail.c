#include "sandbox/result_tail.h"

#include <stdlib.h>
#include <string.h>

#include "base/xalloc.h"

void result_tail_add(struct result_tail *tail, size_t cap, const void *data, size_t len)
{
	const char *bytes = data;

	tail->total += len;
	if (cap == 0 || len == 0) {
		return;
	}
	if (!tail->ring) {
		tail->ring = xcalloc(cap, 1);
	}
	if (len > cap) {
		bytes += len - cap;
		len = cap;
	}
	size_t first = MIN(len, cap - tail->end);

	memcpy(tail->ring + tail->end, bytes, first);
	memcpy(tail->ring, bytes + first, len - first);
	tail->end = (tail->end + len) % cap;
	tail->len = MIN(tail->len + len, cap);
}

void result_tail_take(struct result_tail *tail, size_t cap, struct store_tail *ret)
{
	*ret = (struct store_tail){.total = tail->total, .len = tail->len};
	if (tail->len > 0) {
		size_t start = (tail->end + cap - tail->len) % cap;
		size_t first = MIN(tail->len, cap - start);

		ret->bytes = xcalloc(tail->len, 1);
		memcpy(ret->bytes, tail->ring + start, first);
		memcpy(ret->bytes + first, tail->ring, tail->len - first);
	}
	result_tail_fini(tail);
}

void result_tail_fini(struct result_tail *tail)
{
	free(tail->ring);
	*tail = (struct result_tail){0};
}
