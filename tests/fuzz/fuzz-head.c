#include "tests/fuzz/fuzz.h"

#include <ctype.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/macros.h"
#include "http/head.h"
#include "http/router.h"

/* A request's head, and what is made of its target. */

#define MAX_BYTES 4096

static size_t take(struct http_head *head, unsigned way, const char *bytes, size_t len)
{
	size_t used = 0;

	while (used < len && head->state != HTTP_HEAD_OVER && head->state != HTTP_HEAD_BAD) {
		size_t n = fuzz_piece(way, used, len - used);

		used += http_head_take(head, bytes + used, n);
	}
	return used;
}

static void check_same(const struct http_head *a, const struct http_head *b)
{
	ASSERT(a->state == b->state && a->problem == b->problem);
	ASSERT(a->len == b->len && a->header_count == b->header_count);
	ASSERT(a->len == 0 || memcmp(a->text, b->text, a->len) == 0);
	ASSERT(a->header_count <= HTTP_HEAD_LINES_MAX);
}

static int take_pair(void *arg, const char *name, const char *value, size_t len, struct err *err)
{
	(void)err;
	ASSERT(value[len] == '\0');
	*(size_t *)arg += strlen(name) + len;
	return 0;
}

static void check_target(const struct http_head *head)
{
	_cleanup_target_ struct target target = {NULL};
	struct route route;
	struct err err;
	size_t total = 0;

	for (const char *c = head->target; *c; c++) {
		ASSERT(*c > ' ' && *c < 0x7f);
	}
	ASSERT(head->target[0] != '\0');
	if (target_parse(head->target, &target, &err) == 0) {
		ASSERT(target.path[0] == '/' && !strchr(target.path, '?'));
		query_each(target.query, take_pair, &total, &err);
		ASSERT(total <= strlen(head->target));
		for (int is_admin = 0; is_admin < 2; is_admin++) {
			if (route_find(head->method, target.path, is_admin, &route, &err) == 0 &&
				route.row) {
				ASSERT(is_admin || !(route.row->flags & API_ADMIN_SOCKET));
			}
		}
	}
}

static void check_over(const struct http_head *head)
{
	struct http_length length;
	struct err err;

	ASSERT(strlen(head->method) >= 1 && strlen(head->method) <= HTTP_METHOD_MAX_BYTES);
	for (size_t i = 0; i < head->header_count; i++) {
		const char *name = head->text + head->headers[i].name;
		const char *value = head->text + head->headers[i].value;

		ASSERT(name[0] && !strpbrk(name, " \t:\r\n") && !strpbrk(value, "\r\n"));
		ASSERT(value[0] != ' ');
		ASSERT(http_head_find(head, name) != NULL);
		http_head_has_token(head, name, "close");
	}
	if (http_head_length(head, true, &length, &err) == 0) {
		ASSERT(!length.is_chunked || length.bytes == 0);
		ASSERT(length.is_chunked == (http_head_find(head, "Transfer-Encoding") != NULL));
		ASSERT(!length.is_chunked || !http_head_find(head, "Content-Length"));
		ASSERT(length.bytes < UINT64_C(1000000000000000000));
	}
	check_target(head);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *bytes = (const char *)data;
	struct http_head heads[FUZZ_WAYS];
	size_t used[FUZZ_WAYS];

	for (unsigned way = 0; way < FUZZ_WAYS; way++) {
		http_head_init(&heads[way], MAX_BYTES);
		used[way] = take(&heads[way], way, bytes, size);
		ASSERT(used[way] == used[0] && used[way] <= MAX_BYTES + 1);
		check_same(&heads[way], &heads[0]);
	}
	if (heads[0].state == HTTP_HEAD_OVER) {
		check_over(&heads[0]);
		/* A second one in the same memory is as if it were the first. */
		http_head_reset(&heads[1]);
		take(&heads[1], 0, bytes, size);
		check_same(&heads[1], &heads[0]);
	}
	for (unsigned way = 0; way < FUZZ_WAYS; way++) {
		http_head_fini(&heads[way]);
	}
	return 0;
}
