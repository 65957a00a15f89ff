#include "base/parse.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

int parse_int(const char *text, int64_t min, int64_t max, int64_t *ret, struct err *err)
{
	const char *digits = text + (min < 0 && text[0] == '-');
	size_t n = strspn(digits, "0123456789");

	errno = 0;
	long long value = strtoll(text, NULL, 10);
	if (n == 0 || digits[n] != '\0') {
		return err_set(err, ERR_INVALID,
			"must be a whole number from %" PRId64 " to %" PRId64, min, max);
	}
	if (errno == ERANGE || value < min || value > max) {
		return err_set(err, ERR_INVALID, "must be from %" PRId64 " to %" PRId64, min, max);
	}
	*ret = value;
	return 0;
}

int parse_bool(const char *text, bool *ret, struct err *err)
{
	static const char *const words[][2] = {
		{"no", "yes"}, {"false", "true"}, {"off", "on"}, {"0", "1"}};

	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		for (int value = 0; value < 2; value++) {
			if (strcmp(text, words[i][value]) == 0) {
				*ret = value;
				return 0;
			}
		}
	}
	return err_set(err, ERR_INVALID, "must be yes or no");
}

bool utf8_is_valid(const char *text, size_t len)
{
	const unsigned char *s = (const unsigned char *)text;
	size_t i = 0;

	while (i < len) {
		size_t more;
		uint32_t code;
		uint32_t least;

		if (s[i] < 0x80) {
			i++;
			continue;
		} else if ((s[i] & 0xe0) == 0xc0) {
			more = 1, code = s[i] & 0x1f, least = 0x80;
		} else if ((s[i] & 0xf0) == 0xe0) {
			more = 2, code = s[i] & 0x0f, least = 0x800;
		} else if ((s[i] & 0xf8) == 0xf0) {
			more = 3, code = s[i] & 0x07, least = 0x10000;
		} else {
			return false;
		}
		if (len - i <= more) {
			return false;
		}
		for (size_t k = 1; k <= more; k++) {
			if ((s[i + k] & 0xc0) != 0x80) {
				return false;
			}
			code = code << 6 | (s[i + k] & 0x3f);
		}
		if (code < least || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) {
			return false;
		}
		i += more + 1;
	}
	return true;
}
