#include "sandbox/output.h"

#include "base/parse.h"

/*
 * Theory of operation
 *
 * The guest sends the first bytes of both outputs as they come; beyond its cap it keeps the last
 * ones of each, drops what is in between, and sends them when the command ends. Here they follow
 * each other: that something is missing shows in the counts, and the length of the tail says where.
 *
 * Either tail may be as long as both may be together, since a command may write to one alone. When
 * both are long, the longer one gives until they fit.
 */

/* The longest part of a character, which is what a gap may leave at its edges. */
#define SPLIT_MAX_BYTES 3

void output_init(struct output *output)
{
	*output = (struct output){.kept.bytes = evbuffer_new()};
	ASSERT(output->kept.bytes);
}

void output_fini(struct output *output)
{
	evbuffer_free(output->kept.bytes);
}

size_t output_add(struct output *output, const void *data, size_t len, uint64_t room)
{
	/* What comes behind a byte that found no room would stand in the wrong place. */
	size_t take = output->is_cut ? 0 : (size_t)MIN(len, room);

	output->came += len;
	output->is_cut |= take < len;
	ASSERT(evbuffer_add(output->kept.bytes, data, take) == 0);
	return take;
}

static uint64_t held(const struct output *output)
{
	return evbuffer_get_length(output->kept.bytes);
}

static bool has_gap(const struct output *output)
{
	return output->kept.total > held(output);
}

static void take_out(struct output *output, uint64_t at, uint64_t len)
{
	struct evbuffer *head = evbuffer_new();

	ASSERT(head && at + len <= held(output));
	evbuffer_remove_buffer(output->kept.bytes, head, (size_t)at);
	evbuffer_drain(output->kept.bytes, (size_t)len);
	evbuffer_prepend_buffer(output->kept.bytes, head);
	evbuffer_free(head);
}

/* Where is something missing? The last @tail bytes that came belong behind it. */
static void find_gap(struct output *output, uint64_t total, uint64_t tail)
{
	uint64_t head = output->came - MIN(tail, output->came);

	output->kept.total = MAX(total, output->came);
	output->kept.omitted_at = held(output);
	if (output->kept.total > output->came && held(output) > head) {
		/* A tail that isn't whole has lost its end. */
		if (output->is_cut) {
			take_out(output, head, held(output) - head);
		}
		output->kept.omitted_at = head;
	}
}

static void shrink(struct output *output, uint64_t max)
{
	uint64_t excess = held(output) - MIN(held(output), max);

	if (excess > 0) {
		uint64_t at = has_gap(output) ? output->kept.omitted_at : max / 2;

		/* A guest may claim a tail that is too short for that. */
		output->kept.omitted_at = MIN(at, held(output) - excess);
		take_out(output, output->kept.omitted_at, excess);
	}
}

/* What must stay whatever the other output needs. */
static uint64_t head_of(const struct output *output)
{
	return has_gap(output) ? output->kept.omitted_at : 0;
}

static void shrink_both(struct output *out, struct output *err_out, uint64_t cap)
{
	uint64_t half = cap / 2;
	uint64_t out_max = held(err_out) < half ? cap - held(err_out)
						: MAX(MIN(held(out), half), head_of(out));

	if (out_max + head_of(err_out) > cap) {
		out_max = cap - MIN(head_of(err_out), cap);
	}
	shrink(out, out_max);
	shrink(err_out, cap - MIN(held(out), cap));
}

static void trim_edges(struct output *output)
{
	uint64_t at = output->kept.omitted_at;
	size_t before = (size_t)MIN(at, (uint64_t)SPLIT_MAX_BYTES);
	char edge[2 * SPLIT_MAX_BYTES];
	struct evbuffer_ptr from;

	if (!has_gap(output)) {
		return;
	}
	evbuffer_ptr_set(output->kept.bytes, &from, (size_t)at - before, EVBUFFER_PTR_SET);
	size_t len = (size_t)evbuffer_copyout_from(
		output->kept.bytes, &from, edge, before + SPLIT_MAX_BYTES);
	size_t end = utf8_split_end(edge, before);
	size_t start = utf8_split_start(edge + before, len - before);

	take_out(output, at - end, end + start);
	output->kept.omitted_at = at - end;
}

static void count(struct output *output)
{
	output->kept.omitted = output->kept.total - held(output);
	if (output->kept.omitted == 0) {
		output->kept.omitted_at = 0;
	}
}

void output_settle(struct output *out, struct output *err_out,
	const struct guest_exec_result *result, uint64_t cap)
{
	find_gap(out, result->stdout_bytes, result->stdout_tail);
	find_gap(err_out, result->stderr_bytes, result->stderr_tail);
	if (held(out) + held(err_out) > cap) {
		shrink_both(out, err_out, cap);
	}
	trim_edges(out);
	trim_edges(err_out);
	count(out);
	count(err_out);
}
