#include "sandbox/env.h"

#include <stdbool.h>
#include <string.h>

#include "base/xalloc.h"

char *env_pack(char *const *env, size_t *ret_len)
{
	char *packed = NULL;
	size_t len = 0;

	for (char *const *entry = env; entry && *entry; entry++) {
		size_t n = strlen(*entry) + 1;

		packed = xrealloc(packed, len + n, 1);
		memcpy(packed + len, *entry, n);
		len += n;
	}
	*ret_len = len;
	return packed;
}

/* Both name the same variable. */
static bool is_same_name(const char *a, const char *b)
{
	size_t n = strcspn(a, "=");

	return n == strcspn(b, "=") && strncmp(a, b, n) == 0;
}

static bool is_overridden(const char *entry, const char *packed, size_t len)
{
	for (size_t at = 0; at < len; at += strlen(packed + at) + 1) {
		if (is_same_name(entry, packed + at)) {
			return true;
		}
	}
	return false;
}

char **env_merge(char *const *operators, const char *packed, size_t packed_len)
{
	size_t most = strv_length(operators) + 1;

	for (size_t i = 0; i < packed_len; i++) {
		most += packed[i] == '\0';
	}
	char **all = xcalloc(most, sizeof *all);
	size_t count = 0;

	for (char *const *entry = operators; entry && *entry; entry++) {
		if (!is_overridden(*entry, packed, packed_len)) {
			all[count++] = xstrdup(*entry);
		}
	}
	for (size_t at = 0; at < packed_len; at += strlen(packed + at) + 1) {
		all[count++] = xstrdup(packed + at);
	}
	return all;
}
