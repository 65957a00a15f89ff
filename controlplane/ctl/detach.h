#pragma once

/*
 * detach - finds the key that leaves a shell in what is typed
 *
 * Purpose: Ctrl-P Ctrl-Q leaves; a Ctrl-P that isn't followed by it goes to the guest like all
 *          other keys, held back only until it is clear what it was.
 * Thread:  any.
 */

#include <stdbool.h>
#include <stddef.h>

#define DETACH_FIRST  0x10 /* Ctrl-P */
#define DETACH_SECOND 0x11 /* Ctrl-Q */
/* After so long a Ctrl-P was one: detach_release(). */
#define DETACH_WAIT_MS 500

struct detach {
	bool is_held; /* a Ctrl-P */
};

/* What of @in goes on, into @out, which has room for @len + 1 bytes. True: leave; what came after
 * the key is dropped. */
bool detach_filter(struct detach *detach, const char *in, size_t len, char *out, size_t *ret_len);
/* Whether a Ctrl-P was held back, which goes on now. */
bool detach_release(struct detach *detach);
