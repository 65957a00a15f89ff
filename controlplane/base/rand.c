#include "base/rand.h"

#include <errno.h>
#include <sys/random.h>

#include "base/macros.h"

void rand_bytes(void *out, size_t len)
{
	char *p = out;

	while (len > 0) {
		ssize_t n = getrandom(p, len, 0);

		if (n < 0) {
			ASSERT(errno == EINTR);
			continue;
		}
		p += n;
		len -= (size_t)n;
	}
}

void rand_hex(char *out, size_t digits)
{
	static const char alphabet[] = "0123456789abcdef";
	unsigned char raw[64];

	ASSERT(digits <= sizeof raw);
	rand_bytes(raw, digits);
	for (size_t i = 0; i < digits; i++) {
		out[i] = alphabet[raw[i] & 15];
	}
	out[digits] = '\0';
}

bool equal_constant_time(const void *a, const void *b, size_t len)
{
	const volatile unsigned char *x = a;
	const volatile unsigned char *y = b;
	unsigned char diff = 0;

	for (size_t i = 0; i < len; i++) {
		diff = (unsigned char)(diff | (x[i] ^ y[i]));
	}
	return diff == 0;
}
