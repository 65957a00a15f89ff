#include "tests/lib/http_fixture.h"

#include <stdio.h>

struct http_world *h;

int http_set_up(void **state)
{
	(void)state;
	h = http_world_new(NULL);
	return 0;
}

int http_tear_down(void **state)
{
	(void)state;
	http_world_free(h);
	return 0;
}

const char *http_at(const char *id, const char *rest)
{
	static char path[512];

	snprintf(path, sizeof path, "/v1/sandboxes/%s%s", id, rest);
	return path;
}
