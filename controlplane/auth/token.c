#include "auth/token.h"

#include <openssl/evp.h>
#include <string.h>

#include "base/macros.h"
#include "base/rand.h"

/* 32 letters, five bits each: the low bits of a random byte choose without bias. */
static const char alphabet[] = "abcdefghijklmnopqrstuvwxyz234567";

void token_mint(char out[TOKEN_BYTES])
{
	unsigned char raw[TOKEN_RANDOM_CHARS];
	char *p = out + sizeof(TOKEN_PREFIX) - 1;

	memcpy(out, TOKEN_PREFIX, sizeof(TOKEN_PREFIX) - 1);
	rand_bytes(raw, sizeof(raw));
	for (size_t i = 0; i < sizeof(raw); i++) {
		p[i] = alphabet[raw[i] & 31];
	}
	p[sizeof(raw)] = '\0';
	explicit_bzero(raw, sizeof(raw));
}

bool token_is_valid(const char *text)
{
	const char *random = text + sizeof(TOKEN_PREFIX) - 1;

	return strnlen(text, TOKEN_BYTES) == TOKEN_LENGTH &&
	       strncmp(text, TOKEN_PREFIX, sizeof(TOKEN_PREFIX) - 1) == 0 &&
	       strspn(random, alphabet) == TOKEN_RANDOM_CHARS;
}

void token_hash(const char *token, uint8_t out[TOKEN_HASH_BYTES])
{
	unsigned len = 0;

	ASSERT(token_is_valid(token));
	ASSERT(EVP_Digest(token, TOKEN_LENGTH, out, &len, EVP_sha256(), NULL) == 1);
	ASSERT(len == TOKEN_HASH_BYTES);
}

void token_hint(const char *token, char out[TOKEN_HINT_BYTES])
{
	ASSERT(token_is_valid(token));
	memcpy(out, token + TOKEN_LENGTH - (TOKEN_HINT_BYTES - 1), TOKEN_HINT_BYTES);
}
