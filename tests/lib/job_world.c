#include "tests/lib/job_world.h"

#include <stdio.h>

static void on_started(
	void *arg, const char *exec_id, const struct guest_status *status, const struct err *err)
{
	struct started *started = arg;

	(void)status;
	started->count++;
	snprintf(started->id, sizeof started->id, "%s", exec_id);
	started->kind = err ? err->kind : ERR_NONE;
	snprintf(started->msg, sizeof started->msg, "%s", err ? err->msg : "");
}

struct sandbox_job *job_begin(
	struct world *w, const char *id, const char *command, struct started *ret, struct err *err)
{
	const struct guest_job_spec spec = {.exec = {.command = command}};

	*ret = (struct started){0};
	return sandbox_job_start(world_find(w, id), &spec, on_started, ret, err);
}

const char *job_start(struct world *w, const char *id, const char *command)
{
	static struct started kept[4];
	static unsigned next;
	struct started *started = &kept[next++ % ARRAY_SIZE(kept)];
	struct err err;

	if (!job_begin(w, id, command, started, &err)) {
		fail_msg("%s: %s", command, err.msg);
	}
	WORLD_UNTIL(w, started->count == 1);
	assert_string_equal(started->msg, "");
	return started->id;
}

void job_reopen(struct world *w)
{
	unsigned lists = fake_guest_calls(w->guests, FAKE_GUEST_JOB_LIST);

	world_stop(w);
	world_start(w);
	WORLD_UNTIL(w, fake_guest_calls(w->guests, FAKE_GUEST_JOB_LIST) > lists);
}

void job_keep_results(struct world *w, unsigned count, size_t bytes)
{
	w->config.results_count = count;
	w->config.result_bytes = bytes;
	job_reopen(w);
}

struct store_exec job_record(struct world *w, const char *id, const char *eid)
{
	struct store_exec row;
	struct err err;

	assert_ok(sandbox_exec_get(w->all, id, eid, &row, &err), &err);
	return row;
}

bool job_is(struct world *w, const char *id, const char *eid, enum store_exec_state state)
{
	struct store_exec row = job_record(w, id, eid);
	bool is = row.state == state;

	store_exec_fini(&row);
	return is;
}

void job_expect_error(struct world *w, const char *id, const char *eid, enum store_exec_state state,
	const char *text)
{
	struct store_exec row = job_record(w, id, eid);

	assert_string_equal(store_exec_state_name(row.state), store_exec_state_name(state));
	if (!row.error || !strstr(row.error, text)) {
		fail_msg("\"%s\" doesn't say \"%s\"", row.error ? row.error : "", text);
	}
	store_exec_fini(&row);
}

void job_put_row(struct world *w, const char *id, const char *eid, bool is_background,
	enum store_exec_state state)
{
	struct store_exec row = {.state = state,
		.is_background = is_background,
		.command = (char *)"hang",
		.started_at_ms = 1000,
		.ended_at_ms = state == STORE_EXEC_RUNNING ? 0 : 2000,
		.error = state == STORE_EXEC_FAILED ? (char *)"the guest didn't answer" : NULL};
	struct err err;

	snprintf(row.id, sizeof row.id, "%s", eid);
	assert_ok(store_exec_put(w->store, id, &row, &err), &err);
}

void job_count_up(void *arg)
{
	(*(unsigned *)arg)++;
}
