#include "loop/bytes.h"

#include "base/macros.h"

/* Of more than this an allocation is filled by a good part. */
#define COPY_MAX_BYTES 1024

void bytes_move(struct evbuffer *from, struct evbuffer *to, size_t n)
{
	char few[COPY_MAX_BYTES];
	int moved;

	if (n <= sizeof few) {
		moved = evbuffer_remove(from, few, n);
		ASSERT(evbuffer_add(to, few, n) == 0);
	} else {
		moved = evbuffer_remove_buffer(from, to, n);
	}
	ASSERT(moved >= 0 && (size_t)moved == n);
}
