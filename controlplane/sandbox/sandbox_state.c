#include "sandbox/sandbox_state.h"

#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/xalloc.h"
#include "sandbox/exec_records.h"
#include "sandbox/sandbox_priv.h"

#define TO(state) (1U << SANDBOX_##state)

/* The states that may follow each. */
static const unsigned next_states[] = {
	[SANDBOX_PROVISIONING] = TO(RUNNING) | TO(STOPPED) | TO(DELETING) | TO(FAILED),
	[SANDBOX_RUNNING] = TO(PROVISIONING) | TO(STOPPED) | TO(DELETING),
	[SANDBOX_STOPPED] = TO(PROVISIONING) | TO(DELETING),
	[SANDBOX_DELETING] = TO(DELETED),
	[SANDBOX_DELETED] = 0,
	[SANDBOX_FAILED] = 0,
};
_Static_assert(ARRAY_SIZE(next_states) == SANDBOX_STATE_MAX, "every state has its line");

static const char *const state_names[] = {
#define X(id, name) [SANDBOX_##id] = name,
	SANDBOX_STATES(X)
#undef X
};

const char *sandbox_state_name(enum sandbox_state state)
{
	ASSERT(state < SANDBOX_STATE_MAX);
	return state_names[state];
}

bool sandbox_state_parse(const char *name, enum sandbox_state *ret)
{
	for (unsigned i = 0; i < SANDBOX_STATE_MAX; i++) {
		if (strcmp(state_names[i], name) == 0) {
			*ret = (enum sandbox_state)i;
			return true;
		}
	}
	return false;
}

bool sandbox_state_can(enum sandbox_state from, enum sandbox_state to)
{
	ASSERT(from < SANDBOX_STATE_MAX && to < SANDBOX_STATE_MAX);
	return next_states[from] & 1U << to;
}

bool sandbox_state_is_final(enum sandbox_state state)
{
	return next_states[state] == 0;
}

static void copy_text(char **field, const char *text)
{
	char *copy = xstrdup(text);

	free(*field);
	*field = copy;
}

static void fill_change(const struct sandbox *sb, enum sandbox_state to, const char *reason,
	struct store_sandbox_change *change)
{
	const struct store_sandbox *row = sb->row;
	bool is_final = sandbox_state_is_final(to);
	bool has_process = to == SANDBOX_RUNNING || to == SANDBOX_DELETING;
	int64_t now = clock_wall_ms();

	*change = (struct store_sandbox_change){
		.state = sandbox_state_name(to),
		.reason = reason,
		.task = to == SANDBOX_PROVISIONING ? restart_task_name(sb->task) : NULL,
		.ready_at_ms = to == SANDBOX_RUNNING ? now : 0,
		.ended_at_ms = is_final ? now : 0,
		.pid = has_process ? row->pid : 0,
		.pid_start = has_process ? row->pid_start : 0,
		.releases_uid = is_final && !sb->holds_uid,
	};
}

static void apply(
	struct sandbox *sb, enum sandbox_state to, const struct store_sandbox_change *change)
{
	struct store_sandbox *row = sb->row;

	LOG_REQUEST(sb->request[0] ? sb->request : log_request());

	char quoted[256];
	const char *text = change->reason ? change->reason : row->reason ? row->reason : "";

	log_info("sandbox state", "sb=%s from=%s to=%s reason=%s", row->id,
		sandbox_state_name(sb->state), change->state,
		log_quote(quoted, sizeof quoted, text, strlen(text)));
	if (to != SANDBOX_PROVISIONING && to != SANDBOX_DELETING) {
		sb->request[0] = '\0'; /* what it asked for is through */
	}
	copy_text(&row->state, change->state);
	if (change->reason) {
		copy_text(&row->reason, change->reason[0] ? change->reason : NULL);
	}
	copy_text(&row->task, change->task);
	row->ready_at_ms = change->ready_at_ms ? change->ready_at_ms : row->ready_at_ms;
	row->ended_at_ms = change->ended_at_ms;
	row->pid = change->pid;
	row->pid_start = change->pid_start;
	row->uid = change->releases_uid ? 0 : row->uid;
	sb->state = to;
	sb->changed_seq = ++sb->all->seq;
	sandbox_tell_waits(sb);
}

/* A sandbox that ended has the records of all its commands. */
static int write_change(
	struct sandbox *sb, const struct store_sandbox_change *change, struct err *err)
{
	_cleanup_store_tx_ struct store_tx tx = STORE_TX_INIT;
	_cleanup_store_exec_list_ struct store_exec_list gone = {0};
	struct store *store = sb->all->store;

	if (sb->records_due == 0 || change->ended_at_ms == 0) {
		return store_sandbox_set_state(store, sb->row->id, change, err);
	}
	if (store_begin(store, &tx, err) != 0 || exec_records_write(sb, &gone, err) != 0 ||
		store_sandbox_set_state(store, sb->row->id, change, err) != 0 ||
		store_commit(&tx, err) != 0) {
		return -1;
	}
	exec_records_written(sb, &gone);
	return 0;
}

int sandbox_set_state(
	struct sandbox *sb, enum sandbox_state to, const char *reason, struct err *err)
{
	struct store_sandbox_change change;

	ASSERT(sandbox_state_can(sb->state, to));
	fill_change(sb, to, reason, &change);
	if (fault_at("row.%s", change.state) == FAULT_FAIL) {
		return fault_fail(err, ERR_UNAVAILABLE);
	}
	if (write_change(sb, &change, err) != 0) {
		return -1;
	}
	(void)fault_at("row.%s.done", change.state);
	apply(sb, to, &change);
	return 0;
}

void sandbox_assume_state(struct sandbox *sb, enum sandbox_state to, const char *reason)
{
	struct store_sandbox_change change;

	ASSERT(sandbox_state_can(sb->state, to) && !sandbox_state_is_final(to));
	fill_change(sb, to, reason, &change);
	apply(sb, to, &change);
}

int sandbox_note_reason(struct sandbox *sb, const char *reason, struct err *err)
{
	struct store_sandbox *row = sb->row;
	const struct store_sandbox_change change = {.state = row->state,
		.reason = reason,
		.task = row->task,
		.pid = row->pid,
		.pid_start = row->pid_start};

	if (store_sandbox_set_state(sb->all->store, row->id, &change, err) != 0) {
		return -1;
	}
	sandbox_assume_reason(sb, reason);
	return 0;
}

void sandbox_assume_reason(struct sandbox *sb, const char *reason)
{
	copy_text(&sb->row->reason, reason[0] ? reason : NULL);
}
