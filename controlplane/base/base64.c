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

/* One more than the digit's value; 0: no digit. */
static const uint8_t digits_plus_one[256] = {
	/* clang-format off */
	['A'] = 1, ['B'] = 2, ['C'] = 3, ['D'] = 4, ['E'] = 5, ['F'] = 6, ['G'] = 7, ['H'] = 8,
	['I'] = 9, ['J'] = 10, ['K'] = 11, ['L'] = 12, ['M'] = 13, ['N'] = 14, ['O'] = 15, ['P'] = 16,
	['Q'] = 17, ['R'] = 18, ['S'] = 19, ['T'] = 20, ['U'] = 21, ['V'] = 22, ['W'] = 23, ['X'] = 24,
	['Y'] = 25, ['Z'] = 26, ['a'] = 27, ['b'] = 28, ['c'] = 29, ['d'] = 30, ['e'] = 31, ['f'] = 32,
	['g'] = 33, ['h'] = 34, ['i'] = 35, ['j'] = 36, ['k'] = 37, ['l'] = 38, ['m'] = 39, ['n'] = 40,
	['o'] = 41, ['p'] = 42, ['q'] = 43, ['r'] = 44, ['s'] = 45, ['t'] = 46, ['u'] = 47, ['v'] = 48,
	['w'] = 49, ['x'] = 50, ['y'] = 51, ['z'] = 52, ['0'] = 53, ['1'] = 54, ['2'] = 55, ['3'] = 56,
	['4'] = 57, ['5'] = 58, ['6'] = 59, ['7'] = 60, ['8'] = 61, ['9'] = 62, ['+'] = 63, ['/'] = 64,
	/* clang-format on */
};

/* 0 … 63, or -1. */
static int digit_of(char c)
{
	return digits_plus_one[(uint8_t)c] - 1;
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
