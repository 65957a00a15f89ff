#include "ops/digest.h"

#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include "base/xalloc.h"

struct digest {
	EVP_MD_CTX *md;
};

struct digest *digest_new(void)
{
	struct digest *digest = xnew(struct digest);

	digest->md = EVP_MD_CTX_new();
	ASSERT(digest->md && EVP_DigestInit_ex(digest->md, EVP_sha256(), NULL) == 1);
	return digest;
}

void digest_add_text(struct digest *digest, const char *name, const char *text)
{
	EVP_DigestUpdate(digest->md, name, strlen(name) + 1);
	EVP_DigestUpdate(digest->md, text ? "=" : "-", 1);
	EVP_DigestUpdate(digest->md, text ? text : "", text ? strlen(text) + 1 : 1);
}

static int compare_keys(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

void digest_add(struct digest *digest, const char *name, json_object *value)
{
	EVP_MD_CTX *md = digest->md;
	size_t len;

	EVP_DigestUpdate(md, name, strlen(name) + 1);
	if (json_object_get_type(value) != json_type_object) {
		const char *text = json_text(value, &len);

		EVP_DigestUpdate(md, text, len + 1);
		return;
	}
	size_t count = (size_t)json_object_object_length(value);
	_cleanup_free_ const char **keys = xcalloc(count + 1, sizeof(char *));
	size_t n = 0;

	json_object_object_foreach (value, key, member) {
		(void)member;
		keys[n++] = key;
	}
	qsort(keys, count, sizeof keys[0], compare_keys);
	EVP_DigestUpdate(md, &count, sizeof count);
	for (size_t i = 0; i < count; i++) {
		digest_add(digest, keys[i], json_object_object_get(value, keys[i]));
	}
}

void digest_end(struct digest *digest, char out[DIGEST_TEXT_BYTES])
{
	unsigned char bytes[(DIGEST_TEXT_BYTES - 1) / 2];

	ASSERT(EVP_DigestFinal_ex(digest->md, bytes, NULL) == 1);
	EVP_MD_CTX_free(digest->md);
	free(digest);
	for (size_t i = 0; i < sizeof bytes; i++) {
		snprintf(out + 2 * i, 3, "%02x", bytes[i]);
	}
}
