#include "sandbox/results.h"

#include <string.h>

#include "base/clock.h"
#include "base/xalloc.h"

/*
 * Theory of operation
 *
 * A commit costs an fsync, which no command should wait for: results wait in memory, no more of
 * them than are kept, and go into the database once a second, those of many sandboxes in one
 * transaction, and no later than with the row that says that the sandbox is over. A daemon that is
 * killed loses the last second's.
 */

#define WRITE_MS    1000
#define WRITE_BATCH 64 /* sandboxes in one turn of the loop */

struct result {
	STAILQ_ENTRY(result) link; /* sandbox.results */
	struct store_result row;
};

/* ---- tails ---- */

void result_tail_add(struct result_tail *tail, size_t cap, const void *data, size_t len)
{
	const char *bytes = data;

	tail->total += len;
	if (cap == 0 || len == 0) {
		return;
	}
	if (!tail->ring) {
		tail->ring = xcalloc(cap, 1);
	}
	if (len > cap) {
		bytes += len - cap;
		len = cap;
	}
	size_t first = MIN(len, cap - tail->end);

	memcpy(tail->ring + tail->end, bytes, first);
	memcpy(tail->ring, bytes + first, len - first);
	tail->end = (tail->end + len) % cap;
	tail->len = MIN(tail->len + len, cap);
}

void result_tail_take(struct result_tail *tail, size_t cap, struct store_tail *ret)
{
	*ret = (struct store_tail){.total = tail->total, .len = tail->len};
	if (tail->len > 0) {
		size_t start = (tail->end + cap - tail->len) % cap;
		size_t first = MIN(tail->len, cap - start);

		ret->bytes = xcalloc(tail->len, 1);
		memcpy(ret->bytes, tail->ring + start, first);
		memcpy(ret->bytes + first, tail->ring, tail->len - first);
	}
	result_tail_fini(tail);
}

void result_tail_fini(struct result_tail *tail)
{
	free(tail->ring);
	*tail = (struct result_tail){0};
}

/* ---- what waits ---- */

static void arm(struct sandboxes *all, unsigned ms)
{
	if (!evtimer_pending(all->results_timer, NULL)) {
		loop_timer_set(all->results_timer, ms);
	}
}

static void drop_oldest(struct sandbox *sb)
{
	struct result *oldest = STAILQ_FIRST(&sb->results);

	STAILQ_REMOVE_HEAD(&sb->results, link);
	sb->result_count--;
	store_result_fini(&oldest->row);
	free(oldest);
}

void results_add(struct sandbox *sb, struct store_result *row)
{
	struct result *result = xnew(struct result);

	result->row = *row;
	*row = (struct store_result){0};
	STAILQ_INSERT_TAIL(&sb->results, result, link);
	sb->result_count++;
	if (sb->result_count > sb->all->config.results_count) {
		drop_oldest(sb);
	}
	arm(sb->all, WRITE_MS);
}

int results_write(struct sandbox *sb, struct err *err)
{
	struct result *result;

	STAILQ_FOREACH (result, &sb->results, link) {
		if (store_result_add(sb->all->store, sb->row->id, &result->row,
			    sb->all->config.results_count, err) != 0) {
			return -1;
		}
	}
	return 0;
}

void results_written(struct sandbox *sb)
{
	while (sb->result_count > 0) {
		drop_oldest(sb);
	}
}

static int write_batch(
	struct sandboxes *all, struct sandbox *const *batch, size_t count, struct err *err)
{
	_cleanup_store_tx_ struct store_tx tx = STORE_TX_INIT;

	if (store_begin(all->store, &tx, err) != 0) {
		return -1;
	}
	for (size_t i = 0; i < count; i++) {
		if (results_write(batch[i], err) != 0) {
			return -1;
		}
	}
	if (store_commit(&tx, err) != 0) {
		return -1;
	}
	for (size_t i = 0; i < count; i++) {
		results_written(batch[i]);
	}
	return 0;
}

/* Of all, or of one. *ret_more: there are others. */
static int flush(struct sandboxes *all, struct sandbox *one, bool *ret_more, struct err *err)
{
	struct sandbox *batch[WRITE_BATCH];
	struct sandbox *sb;
	size_t count = 0;

	*ret_more = false;
	TAILQ_FOREACH (sb, &all->live, link) {
		if (sb->result_count == 0 || (one && sb != one)) {
			continue;
		}
		if (count == WRITE_BATCH) {
			*ret_more = true;
			break;
		}
		batch[count++] = sb;
	}
	return count == 0 ? 0 : write_batch(all, batch, count, err);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct sandboxes *all = arg;
	unsigned suppressed;
	struct err err;
	bool has_more;

	(void)fd;
	(void)what;
	if (flush(all, NULL, &has_more, &err) == 0) {
		if (has_more) {
			arm(all, 0);
		}
		return;
	}
	if (log_limit_allows(&all->row_log, clock_monotonic_ms(), &suppressed)) {
		log_failure(LOG_LEVEL_WARN, "results not written, will retry", &err,
			"suppressed=%u", suppressed);
	}
	arm(all, WRITE_MS);
}

void results_init(struct sandboxes *all)
{
	all->results_timer = loop_timer_new(all->loop, on_timer, all);
}

void results_fini(struct sandboxes *all)
{
	bool has_more = true;
	struct err err;

	while (has_more) {
		if (flush(all, NULL, &has_more, &err) != 0) {
			log_failure(LOG_LEVEL_WARN, "results not written", &err, "live=%zu",
				all->count);
			break;
		}
	}
	event_free(all->results_timer);
}

int sandbox_results(
	struct sandboxes *all, const char *id, struct store_result_list *ret, struct err *err)
{
	struct sandbox *sb = sandbox_find_id(all, id);
	bool has_more;

	loop_assert();
	if (sb && flush(all, sb, &has_more, err) != 0) {
		return -1;
	}
	return store_result_list(all->store, id, ret, err);
}
