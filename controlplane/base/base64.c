#include "base/base64.h"

#include <stdint.h>

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void base64_encode(char *out, const void *data, size_t len)
{
	const uint8_t *in = data;

	for (; len >= 3; len -= 3, in += 3) {
		*out++ = alphabet[in[0] >> 2];
		*out++ = alphabet[(in[0] & 3) << 4 | in[1] >> 4];
		*out++ = alphabet[(in[1] & 15) << 2 | in[2] >> 6];
		*out++ = alphabet[in[2] & 63];
	}
	if (len > 0) {
		uint8_t second = len == 2 ? in[1] : 0;

		*out++ = alphabet[in[0] >> 2];
		*out++ = alphabet[(in[0] & 3) << 4 | second >> 4];
		*out++ = len == 2 ? alphabet[(second & 15) << 2] : '=';
		*out++ = '=';
	}
}

/* 0 … 63, or -1. */
static int digit_of(char c)
{
	if (c >= 'A' && c <= 'Z') {
		return c - 'A';
	}
	if (c >= 'a' && c <= 'z') {
		return c - 'a' + 26;
	}
	if (c >= '0' && c <= '9') {
		return c - '0' + 52;
	}
	return c == '+' ? 62 : c == '/' ? 63 : -1;
}

static size_t padding_of(const char *text, size_t len)
{
	return len == 0 || text[len - 1] != '=' ? 0 : text[len - 2] != '=' ? 1 : 2;
}

size_t base64_decoded_bytes(const char *text, size_t len)
{
	return len < 4 ? 0 : len / 4 * 3 - padding_of(text, len);
}

/* Four characters, @digits of which count, into digits - 1 bytes at @out, if there is one. */
static bool decode_group(uint8_t *out, const char *text, unsigned digits)
{
	uint32_t bits = 0;

	for (unsigned i = 0; i < digits; i++) {
		int digit = digit_of(text[i]);

		if (digit < 0) {
			return false;
		}
		bits |= (uint32_t)digit << (18 - 6 * i);
	}
	if ((bits & (0xffffffu >> (8 * (digits - 1)))) != 0) {
		return false; /* bits that padding leaves over */
	}
	for (unsigned i = 0; out && i + 1 < digits; i++) {
		out[i] = (uint8_t)(bits >> (16 - 8 * i));
	}
	return true;
}

static bool decode(uint8_t *out, const char *text, size_t len)
{
	if (len % 4 != 0) {
		return false;
	}
	unsigned last_digits = 4 - (unsigned)padding_of(text, len);

	for (size_t i = 0; i < len; i += 4) {
		if (!decode_group(out, text + i, i + 4 == len ? last_digits : 4)) {
			return false;
		}
		out = out ? out + 3 : NULL;
	}
	return true;
}

bool base64_is_valid(const char *text, size_t len)
{
	return decode(NULL, text, len);
}

int base64_decode(void *out, const char *text, size_t len, struct err *err)
{
	if (!decode(out, text, len)) {
		return err_set(err, ERR_INVALID, "not base64");
	}
	return 0;
}
