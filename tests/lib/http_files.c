#include "tests/lib/http_files.h"

#include <stdlib.h>

#include "base/rand.h"
#include "base/xalloc.h"

const char *http_files_id;

const char *http_files_at(const char *rest)
{
	return http_at(http_files_id, rest);
}

static void set_up_with(const struct http_config *config)
{
	h = http_world_new(config);
	http_files_id = http_running(h, NULL);
}

int http_files_set_up(void **state)
{
	(void)state;
	set_up_with(NULL);
	return 0;
}

int http_files_set_up_small(void **state)
{
	const struct http_config config = {.body_bytes = 1 << 20,
		.upload_bytes = 1 << 20,
		.bodies_total_bytes = 4 << 20,
		.out_high_bytes = 64 << 10};

	(void)state;
	set_up_with(&config);
	return 0;
}

char *http_files_random(size_t len)
{
	char *bytes = xcalloc(len + 1, 1);

	rand_bytes(bytes, len);
	return bytes;
}

struct answer *http_files_put(const char *target, const void *data, size_t len)
{
	return http_request(h, "PUT", http_files_at(target), h->key, NULL, HTTP_OCTETS, data, len);
}

struct answer *http_files_get(const char *target)
{
	return http_request(
		h, "GET", http_files_at(target), h->key, HTTP_ACCEPT_OCTETS, NULL, NULL, 0);
}

void http_files_put_large(size_t len)
{
	/* In pieces: one body is smaller. */
	_cleanup_free_ char *bytes = http_files_random(512 << 10);

	for (size_t offset = 0; offset < len; offset += 512 << 10) {
		_cleanup_free_ char *target = xasprintf(
			"/files?path=/tmp/large&offset=%zu", offset);

		assert_int_equal(http_files_put(target, bytes, 512 << 10)->status, 200);
	}
}
