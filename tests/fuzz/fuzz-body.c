#include "tests/fuzz/fuzz.h"

#include <stdbool.h>
#include <string.h>

#include "base/macros.h"
#include "http/body.h"

/* A request's body. The first byte: 255 is chunked, others are a length. */

struct outcome {
	const char *problem;
	bool is_end;
	size_t used;
	uint64_t total;
	char content[4096]; /* its beginning */
};

static void keep(struct outcome *outcome, const char *bytes, size_t n)
{
	if (outcome->total < sizeof outcome->content) {
		memcpy(outcome->content + outcome->total, bytes,
			MIN(n, sizeof outcome->content - (size_t)outcome->total));
	}
	outcome->total += n;
}

/* The loop of body.h, on @len bytes that have come. */
static void take(struct http_body *body, const char *bytes, size_t len, struct outcome *outcome)
{
	size_t at = 0;

	while (at < len && !http_body_is_end(body) && !body->problem) {
		size_t n = (size_t)MIN(http_body_content(body), (uint64_t)(len - at));

		if (n > 0) {
			keep(outcome, bytes + at, n);
			http_body_took(body, n);
		} else {
			n = http_body_frame(body, bytes + at, len - at);
			ASSERT(n > 0);
		}
		at += n;
	}
	outcome->used += at;
}

static void run(unsigned way, const uint8_t *data, size_t size, struct outcome *outcome)
{
	const char *bytes = (const char *)data + 1;
	size_t len = size - 1;
	struct http_body body;

	*outcome = (struct outcome){.problem = NULL};
	http_body_init(&body, data[0] == 255, data[0]);
	for (size_t at = 0; at < len;) {
		size_t n = fuzz_piece(way, at, len - at);

		take(&body, bytes + at, n, outcome);
		at += n;
	}
	outcome->problem = body.problem;
	outcome->is_end = http_body_is_end(&body);
	ASSERT(!(outcome->is_end && outcome->problem));
	ASSERT(outcome->total == body.total_bytes && outcome->total <= outcome->used);
	ASSERT(data[0] == 255 || outcome->total == MIN(len, (size_t)data[0]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct outcome outcomes[FUZZ_WAYS];

	for (unsigned way = 0; way < FUZZ_WAYS && size > 0; way++) {
		struct outcome *outcome = &outcomes[way];

		run(way, data, size, outcome);
		ASSERT(outcome->problem == outcomes[0].problem);
		ASSERT(outcome->is_end == outcomes[0].is_end);
		ASSERT(outcome->used == outcomes[0].used);
		ASSERT(outcome->total == outcomes[0].total);
		ASSERT(memcmp(outcome->content, outcomes[0].content,
			       MIN(outcome->total, (uint64_t)sizeof outcome->content)) == 0);
	}
	return 0;
}
