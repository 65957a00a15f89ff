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

int parse_hex_digit(char c)
{
	if (c >= '0' && c <= '9') {
		return c - '0';
	}
	if (c >= 'a' && c <= 'f') {
		return c - 'a' + 10;
	}
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

size_t utf8_decode(const char *text, size_t len, uint32_t *ret_code)
{
	static const struct {
		unsigned char mask;
		unsigned char lead;
		size_t length;
		uint32_t least;
	} forms[] = {{0x80, 0x00, 1, 0}, {0xe0, 0xc0, 2, 0x80}, {0xf0, 0xe0, 3, 0x800},
		{0xf8, 0xf0, 4, 0x10000}};
	const unsigned char *s = (const unsigned char *)text;

	for (size_t f = 0; f < ARRAY_SIZE(forms); f++) {
		if ((s[0] & forms[f].mask) != forms[f].lead) {
			continue;
		}
		if (len < forms[f].length) {
			return 0;
		}
		uint32_t code = s[0] & (unsigned char)~forms[f].mask;

		for (size_t i = 1; i < forms[f].length; i++) {
			if ((s[i] & 0xc0) != 0x80) {
				return 0;
			}
			code = code << 6 | (s[i] & 0x3f);
		}
		if (code < forms[f].least || code > 0x10ffff ||
			(code >= 0xd800 && code <= 0xdfff)) {
			return 0;
		}
		*ret_code = code;
		return forms[f].length;
	}
	return 0;
}

/* How many bytes at @text are ASCII. Most text is that alone: eight bytes at a time. */
static size_t ascii_length(const char *text, size_t len)
{
	const uint64_t high_bits = UINT64_C(0x8080808080808080);
	size_t i = 0;

	for (uint64_t eight; len - i >= sizeof eight; i += sizeof eight) {
		memcpy(&eight, text + i, sizeof eight);
		if (eight & high_bits) {
			break;
		}
	}
	while (i < len && !(text[i] & 0x80)) {
		i++;
	}
	return i;
}

bool utf8_is_valid(const char *text, size_t len)
{
	uint32_t code;
	size_t used;

	for (size_t i = ascii_length(text, len); i < len;
		i += used + ascii_length(text + i + used, len - i - used)) {
		used = utf8_decode(text + i, len - i, &code);
		if (used == 0) {
			return false;
		}
	}
	return true;
}

/* What the sequence that begins with @lead has in all; 0: none does. */
static size_t sequence_bytes(unsigned char lead)
{
	return lead >= 0xf5 ? 0 : lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc2 ? 2 : 0;
}

size_t utf8_split_end(const char *text, size_t len)
{
	static const char rest[] = "\x80\xbf";

	for (size_t n = 1; n <= 3 && n <= len; n++) {
		const char *from = text + len - n;
		size_t whole = sequence_bytes((unsigned char)*from);

		if ((*from & 0xc0) == 0x80) {
			continue;
		}
		/* It is a beginning if the least or the greatest continuation makes it a character.
		 */
		for (size_t i = 0; n < whole && i < 2; i++) {
			char sequence[4];
			uint32_t code;

			memset(sequence, rest[i], sizeof sequence);
			memcpy(sequence, from, n);
			if (utf8_decode(sequence, whole, &code) > 0) {
				return n;
			}
		}
		return 0;
	}
	return 0;
}

size_t utf8_split_start(const char *text, size_t len)
{
	size_t n = 0;

	while (n < 3 && n < len && (text[n] & 0xc0) == 0x80) {
		n++;
	}
	return n;
}
