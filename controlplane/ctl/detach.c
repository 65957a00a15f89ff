#include "ctl/detach.h"

bool detach_filter(struct detach *detach, const char *in, size_t len, char *out, size_t *ret_len)
{
	size_t n = 0;

	for (size_t i = 0; i < len; i++) {
		bool was_held = detach_release(detach);

		if (was_held && in[i] == DETACH_SECOND) {
			*ret_len = n;
			return true;
		}
		if (was_held) {
			out[n++] = DETACH_FIRST;
		}
		if (in[i] == DETACH_FIRST) {
			detach->is_held = true;
		} else {
			out[n++] = in[i];
		}
	}
	*ret_len = n;
	return false;
}

bool detach_release(struct detach *detach)
{
	bool was_held = detach->is_held;

	detach->is_held = false;
	return was_held;
}
