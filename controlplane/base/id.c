#include "base/id.h"

#include <string.h>

#include "base/macros.h"
#include "base/rand.h"

void id_make(char out[ID_BYTES], const char *prefix)
{
	size_t n = strlen(prefix);

	ASSERT(n + ID_RANDOM_DIGITS < ID_BYTES);
	memcpy(out, prefix, n);
	rand_hex(out + n, ID_RANDOM_DIGITS);
}

bool id_is_valid(const char *text, const char *prefix)
{
	size_t n = strlen(prefix);

	return strncmp(text, prefix, n) == 0 && strlen(text + n) == ID_RANDOM_DIGITS &&
	       strspn(text + n, "0123456789abcdef") == ID_RANDOM_DIGITS;
}

bool name_is_valid(const char *text)
{
	size_t n = strlen(text);

	return n >= 1 && n <= NAME_MAX_BYTES &&
	       strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-") == n && text[0] != '-' &&
	       text[n - 1] != '-';
}
