#include "sandbox/exec_records.h"

#include <string.h>

#include "base/clock.h"
#include "base/parse.h"
#include "base/xalloc.h"
#include "sandbox/job.h"

/*
 * Theory of operation
 *
 * A commit costs an fsync, which no command should wait for: rows wait in memory and go into the
 * database once a second, those of many sandboxes in one transaction, and no later than with the
 * row that says that the sandbox is over. A command that takes less than that is written once, when
 * it has ended. A daemon that is killed loses the last second's. Background commands are the
 * exception: job.c writes their row before anything is begun.
 *
 * Of what ended and has no row yet no more is held than is kept. What has a row is held until the
 * row is right: no more than ran when the database stopped taking writes.
 */

#define WRITE_MS          1000
#define WRITE_BATCH       64 /* sandboxes in one turn of the loop */
#define COMMAND_MAX_BYTES 256
#define JOBS_KEPT         32 /* that ended last; of foreground ones it is a setting */

struct sandbox_exec_wait {
	TAILQ_ENTRY(sandbox_exec_wait) link; /* sandbox.exec_waits */
	struct sandbox *sb;
	char id[ID_BYTES];
	sandbox_exec_wait_fn fn;
	void *arg;
};

static void arm(struct sandboxes *all, unsigned ms)
{
	if (!evtimer_pending(all->records_write_timer, NULL)) {
		loop_timer_set(all->records_write_timer, ms);
	}
}

/* ---- waits ---- */

static void wait_end(struct sandbox_exec_wait *wait)
{
	sandbox_exec_wait_fn fn = wait->fn;
	void *arg = wait->arg;

	sandbox_exec_wait_cancel(wait);
	fn(arg);
}

static struct sandbox_exec_wait *find_wait(struct sandbox *sb, const char *id)
{
	struct sandbox_exec_wait *wait;

	TAILQ_FOREACH (wait, &sb->exec_waits, link) {
		if (strcmp(wait->id, id) == 0) {
			return wait;
		}
	}
	return NULL;
}

/* Whoever is told may cancel any other, and have rows written. */
static void tell_waits(struct sandbox *sb, const char *id)
{
	struct sandbox_exec_wait *wait;
	char copy[ID_BYTES];

	snprintf(copy, sizeof copy, "%s", id);
	while ((wait = find_wait(sb, copy))) {
		wait_end(wait);
	}
}

struct sandbox_exec_wait *sandbox_exec_wait(
	struct sandbox *sb, const char *id, sandbox_exec_wait_fn fn, void *arg)
{
	loop_assert();
	if (!exec_record_find(sb, id)) {
		return NULL;
	}
	struct sandbox_exec_wait *wait = xnew(struct sandbox_exec_wait);

	wait->sb = sb;
	snprintf(wait->id, sizeof wait->id, "%s", id);
	wait->fn = fn;
	wait->arg = arg;
	TAILQ_INSERT_TAIL(&sb->exec_waits, wait, link);
	return wait;
}

void sandbox_exec_wait_cancel(struct sandbox_exec_wait *wait)
{
	TAILQ_REMOVE(&wait->sb->exec_waits, wait, link);
	free(wait);
}

/* ---- records ---- */

static void record_free(struct exec_record *record)
{
	struct sandbox *sb = record->sb;

	TAILQ_REMOVE(&sb->records, record, link);
	sb->records_due -= record->is_due;
	store_exec_fini(&record->row);
	free(record);
}

static void set_due(struct exec_record *record, bool is_due)
{
	record->sb->records_due += (unsigned)is_due - (unsigned)record->is_due;
	record->is_due = is_due;
}

/* The first bytes, and no part of a character. */
static char *preview(char *const *args, const char *command)
{
	char text[COMMAND_MAX_BYTES + 2] = "";
	size_t len = 0;

	if (command) {
		len = (size_t)snprintf(text, sizeof text, "%s", command);
	}
	for (size_t i = 0; !command && args && args[i] && len < sizeof text; i++) {
		len += (size_t)snprintf(
			text + len, sizeof text - len, "%s%s", i > 0 ? " " : "", args[i]);
	}
	if (len > COMMAND_MAX_BYTES) {
		len = COMMAND_MAX_BYTES;
		while (len > 0 && ((unsigned char)text[len] & 0xc0) == 0x80) {
			len--;
		}
		text[len] = '\0';
	}
	return xstrdup(text);
}

static struct exec_record *record_new(struct sandbox *sb)
{
	struct exec_record *record = xnew(struct exec_record);

	record->sb = sb;
	TAILQ_INSERT_TAIL(&sb->records, record, link);
	return record;
}

struct exec_record *exec_record_begin(struct sandbox *sb, const char *id, char *const *args,
	const char *command, bool is_background)
{
	struct exec_record *record = record_new(sb);

	snprintf(record->row.id, sizeof record->row.id, "%s", id);
	record->row.command = preview(args, command);
	record->row.is_background = is_background;
	record->row.started_at_ms = clock_wall_ms();
	set_due(record, true);
	arm(sb->all, WRITE_MS);
	return record;
}

struct exec_record *exec_record_find(const struct sandbox *sb, const char *id)
{
	struct exec_record *record;

	TAILQ_FOREACH (record, &sb->records, link) {
		if (record->row.state == STORE_EXEC_RUNNING && strcmp(record->row.id, id) == 0) {
			return record;
		}
	}
	return NULL;
}

/* Ended ones without a row beyond what is kept. */
static void drop_surplus(struct sandbox *sb)
{
	struct exec_record *oldest = NULL;
	struct exec_record *record;
	unsigned count = 0;

	TAILQ_FOREACH (record, &sb->records, link) {
		if (record->row.state != STORE_EXEC_RUNNING && !record->is_stored) {
			count++;
			if (!oldest || record->end_no < oldest->end_no) {
				oldest = record;
			}
		}
	}
	if (count > sb->all->config.results_count) {
		record_free(oldest);
	}
}

void exec_record_end(struct exec_record *record, struct store_exec *end)
{
	struct sandbox *sb = record->sb;
	struct store_exec *row = &record->row;
	const struct store_exec old = *row;

	ASSERT(end->state != STORE_EXEC_RUNNING && row->state == STORE_EXEC_RUNNING);
	*row = *end;
	*end = (struct store_exec){0};
	memcpy(row->id, old.id, sizeof row->id);
	row->is_background = old.is_background;
	row->has_tty = old.has_tty;
	row->command = old.command;
	row->started_at_ms = old.started_at_ms;
	/* Clocks are set back at times. */
	row->ended_at_ms = MAX(clock_wall_ms(), old.started_at_ms);
	record->end_no = ++sb->all->exec_ends;
	char id[ID_BYTES];

	memcpy(id, row->id, sizeof id);
	set_due(record, true);
	arm(sb->all, WRITE_MS);
	drop_surplus(sb);
	tell_waits(sb, id);
}

void exec_record_fail(struct exec_record *record, enum store_exec_state state, const char *why)
{
	struct store_exec end = {.state = state, .error = xstrdup(why)};

	exec_record_end(record, &end);
}

void exec_record_drop(struct exec_record *record)
{
	ASSERT(!record->is_stored);
	record_free(record);
}

/* The connection of a foreground command went with the daemon of before. */
static void adopt(struct sandbox *sb, struct store_exec *row)
{
	struct exec_record *record = record_new(sb);

	record->row = *row;
	*row = (struct store_exec){0};
	record->is_stored = true;
	if (sb->state != SANDBOX_RUNNING) {
		exec_record_fail(record, STORE_EXEC_LOST, "the sandbox stopped while it ran");
	} else if (record->row.is_background) {
		job_adopt(record);
	} else {
		exec_record_fail(record, STORE_EXEC_LOST, "the service was restarted while it ran");
	}
}

int exec_records_load(struct sandbox *sb, struct err *err)
{
	_cleanup_store_exec_list_ struct store_exec_list list = {0};

	if (store_exec_list_running(sb->all->store, sb->row->id, &list, err) != 0) {
		return -1;
	}
	/* In the order in which they began. */
	for (size_t i = list.count; i > 0; i--) {
		adopt(sb, &list.rows[i - 1]);
	}
	return 0;
}

void exec_records_free(struct sandbox *sb)
{
	struct sandbox_exec_wait *wait;
	struct exec_record *record;

	while ((wait = TAILQ_FIRST(&sb->exec_waits))) {
		wait_end(wait);
	}
	while ((record = TAILQ_FIRST(&sb->records))) {
		record_free(record);
	}
}

/* ---- writing ---- */

/* Of those that have ended, foreground or background ones. */
static int prune(
	struct sandbox *sb, bool is_background, struct store_exec_list *gone, struct err *err)
{
	unsigned keep = is_background ? JOBS_KEPT : sb->all->config.results_count;

	return store_exec_prune(sb->all->store, sb->row->id, is_background, keep, gone, err);
}

int exec_records_write(struct sandbox *sb, struct store_exec_list *gone, struct err *err)
{
	bool has_ended[2] = {false, false};
	struct exec_record *record;

	TAILQ_FOREACH (record, &sb->records, link) {
		if (!record->is_due) {
			continue;
		}
		if (store_exec_put(sb->all->store, sb->row->id, &record->row, err) != 0) {
			return -1;
		}
		has_ended[record->row.is_background] |= record->row.state != STORE_EXEC_RUNNING;
	}
	for (int is_background = 0; is_background < 2; is_background++) {
		if (has_ended[is_background] && prune(sb, is_background, gone, err) != 0) {
			return -1;
		}
	}
	return 0;
}

void exec_records_written(struct sandbox *sb, const struct store_exec_list *gone)
{
	struct exec_record *record = TAILQ_FIRST(&sb->records);

	while (record) {
		struct exec_record *next = TAILQ_NEXT(record, link);

		if (record->is_due && record->row.state != STORE_EXEC_RUNNING) {
			record_free(record);
		} else if (record->is_due) {
			set_due(record, false);
			record->is_stored = true;
		}
		record = next;
	}
	jobs_forget(sb, gone);
}

static int write_batch(
	struct sandboxes *all, struct sandbox *const *batch, size_t count, struct err *err)
{
	_cleanup_store_tx_ struct store_tx tx = STORE_TX_INIT;
	struct store_exec_list gone[WRITE_BATCH] = {0};
	int ret = store_begin(all->store, &tx, err);

	for (size_t i = 0; ret == 0 && i < count; i++) {
		ret = exec_records_write(batch[i], &gone[i], err);
	}
	if (ret == 0) {
		ret = store_commit(&tx, err);
	}
	for (size_t i = 0; i < count; i++) {
		if (ret == 0) {
			exec_records_written(batch[i], &gone[i]);
		}
		store_exec_list_fini(&gone[i]);
	}
	return ret;
}

/* Of all, or of one. *ret_more: there are others. */
static int flush(struct sandboxes *all, struct sandbox *one, bool *ret_more, struct err *err)
{
	struct sandbox *batch[WRITE_BATCH];
	struct sandbox *sb;
	size_t count = 0;

	*ret_more = false;
	TAILQ_FOREACH (sb, &all->live, link) {
		if (sb->records_due == 0 || (one && sb != one)) {
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

int exec_record_write(struct exec_record *record, struct err *err)
{
	bool has_more;

	return flush(record->sb->all, record->sb, &has_more, err);
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
		log_failure(LOG_LEVEL_WARN, "records of commands not written, will retry", &err,
			"suppressed=%u", suppressed);
	}
	arm(all, WRITE_MS);
}

void exec_records_init(struct sandboxes *all)
{
	all->records_write_timer = loop_timer_new(all->loop, on_timer, all);
}

void exec_records_fini(struct sandboxes *all)
{
	bool has_more = true;
	struct err err;

	while (has_more) {
		if (flush(all, NULL, &has_more, &err) != 0) {
			log_failure(LOG_LEVEL_WARN, "records of commands not written", &err,
				"live=%zu", all->count);
			break;
		}
	}
	event_free(all->records_write_timer);
}

/* ---- for ops ---- */

/* Nothing waits to be written about @id then, if it is a live one. */
static int settle(struct sandboxes *all, struct sandbox *sb, struct err *err)
{
	bool has_more;

	loop_assert();
	return sb ? flush(all, sb, &has_more, err) : 0;
}

int sandbox_execs(
	struct sandboxes *all, const char *id, struct store_exec_list *ret, struct err *err)
{
	return settle(all, sandbox_find_id(all, id), err) == 0
		       ? store_exec_list(all->store, id, ret, err)
		       : -1;
}

/* The record of @exec_id whose row isn't right. */
static const struct exec_record *find_due(const struct sandbox *sb, const char *exec_id)
{
	struct exec_record *record;

	TAILQ_FOREACH (record, &sb->records, link) {
		if (record->is_due && strcmp(record->row.id, exec_id) == 0) {
			return record;
		}
	}
	return NULL;
}

int sandbox_exec_get(struct sandboxes *all, const char *id, const char *exec_id,
	struct store_exec *ret, struct err *err)
{
	struct sandbox *sb = sandbox_find_id(all, id);
	const struct exec_record *record;

	/* It must be possible to kill it, and to tell its end, when nothing can be written. */
	if (settle(all, sb, err) != 0 && (record = find_due(sb, exec_id))) {
		store_exec_copy(&record->row, ret);
		return 0;
	}
	return store_exec_get(all->store, id, exec_id, ret, err);
}
