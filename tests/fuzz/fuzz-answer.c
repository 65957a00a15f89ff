#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "base/macros.h"
#include "client/ws_handshake.h"

/* What a service that may be anybody answers to a client's handshake. */

/* The example of RFC 6455. */
#define KEY    "dGhlIHNhbXBsZSBub25jZQ=="
#define ACCEPT "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct ws_offer offer = {
		.target = "/", .host = "localhost", .key = KEY, .protocol = "paddock.pty.v1"};
	const char *bytes = (const char *)data;
	size_t len = ws_head_bytes(bytes, size);
	struct ws_head head;
	struct err err;

	ASSERT(len <= size);
	if (len > 0 && ws_read_head(bytes, len, &offer, &head, &err) == 0) {
		ASSERT(head.status >= 100 && head.status <= 999);
		/* Nobody passes who doesn't know the answer to the key. */
		ASSERT(head.status != 101 || memmem(bytes, len, ACCEPT, strlen(ACCEPT)));
	}
	return 0;
}
