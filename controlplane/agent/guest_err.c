#include "agent/guest_err.h"

#include <stdbool.h>
#include <string.h>

#include "base/parse.h"
#include "proto/msg.h"

void guest_text_copy(char *out, size_t size, const void *data, size_t len)
{
	const uint8_t *in = data;
	bool is_text = utf8_is_valid(data, len);
	size_t n = MIN(len, size - 1);

	/* Not in the middle of a character. */
	while (is_text && n > 0 && n < len && (in[n] & 0xc0) == 0x80) {
		n--;
	}
	for (size_t i = 0; i < n; i++) {
		/* 0xc2 0x80..0x9f are the C1 control characters. */
		bool is_c1 = i + 1 < n && in[i] == 0xc2 && in[i + 1] < 0xa0;
		bool is_bad = in[i] < 0x20 || in[i] == 0x7f || (in[i] >= 0x80 && !is_text);

		out[i] = (char)in[i];
		if (is_c1) {
			out[i++] = '?';
		}
		if (is_c1 || is_bad) {
			out[i] = '?';
		}
	}
	out[n] = '\0';
}

static enum err_kind kind_of(uint32_t status)
{
	switch (status) {
	case STATUS_CANCELLED:
		return ERR_CANCELLED;
	case STATUS_BUSY:
		return ERR_UNAVAILABLE;
	case STATUS_LIMIT:
		return ERR_RATE;
	default:
		return ERR_GUEST;
	}
}

int guest_err_set(struct err *err, uint32_t status, const char *text)
{
	return err_set(err, kind_of(status), "%s", text[0] ? text : msg_status_name(status));
}
