/*
 * Every cell of the reconciliation's table, made real: what the row says, what domain there is and
 * whether the disk is there; then a daemon starts, and does what the table says.
 */
#include "tests/lib/world.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/xalloc.h"
#include "sandbox/reconcile_table.h"

#define QUIET_MS 40

struct cell {
	enum reconcile_row row;
	enum reconcile_domain domain;
	enum reconcile_disk disk;
	char id[ID_BYTES];
	char content[32]; /* of the disk that it had */
};

static const struct {
	const char *state;
	const char *task;
} rows[RECONCILE_ROW_MAX] = {
	[RECONCILE_CREATING] = {"provisioning", NULL},
	[RECONCILE_RESTARTING] = {"provisioning", "restart"},
	[RECONCILE_RESETTING] = {"provisioning", "reset"},
	[RECONCILE_RUNNING] = {"running", NULL},
	[RECONCILE_STOPPED] = {"stopped", NULL},
	[RECONCILE_DELETING] = {"deleting", NULL},
};

static char *disk_of(struct world *w, const struct cell *cell)
{
	return xasprintf("%s/sandboxes/%s/disk/overlay.qcow2", w->dir, cell->id);
}

static void read_disk(struct world *w, const struct cell *cell, char ret[32])
{
	_cleanup_free_ char *path = disk_of(w, cell);
	_cleanup_free_ char *text = NULL;
	struct err err;

	assert_ok(fs_read(path, 32, &text, NULL, &err), &err);
	snprintf(ret, 32, "%s", text);
}

static bool has_disk(struct world *w, const struct cell *cell)
{
	_cleanup_free_ char *path = disk_of(w, cell);

	return access(path, F_OK) == 0;
}

/* ---- what a daemon finds ---- */

static void set_domain(struct world *w, const struct cell *cell)
{
	static const enum hv_domain_state states[RECONCILE_DOMAIN_MAX] = {
		[RECONCILE_ACTIVE] = HV_DOMAIN_RUNNING,
		[RECONCILE_PAUSED] = HV_DOMAIN_PAUSED,
		[RECONCILE_SHUTOFF] = HV_DOMAIN_SHUTOFF,
		[RECONCILE_UNSETTLED] = HV_DOMAIN_UNSETTLED,
	};

	if (cell->domain == RECONCILE_ABSENT) {
		fake_hv_stop_domain(w->hv, cell->id, false);
	} else {
		fake_hv_find(w->hv, cell->id)->facts.state = states[cell->domain];
	}
}

static void set_row(struct world *w, const struct cell *cell)
{
	_cleanup_free_ char *path = xasprintf("%s/paddock.db", w->dir);
	const struct store_sandbox_change change = {.state = rows[cell->row].state,
		.task = rows[cell->row].task,
		.reason = cell->row == RECONCILE_DELETING ? "deleted" : NULL};
	struct err err;
	struct store *store = store_open(path, &err);

	assert_non_null(store);
	assert_ok(store_sandbox_set_state(store, cell->id, &change, &err), &err);
	store_close(store);
}

static struct world *make(struct cell *cell)
{
	struct world *w = world_new(NULL);
	struct sandbox_create_spec spec = world_spec(w, "alpha");

	spec.is_temporary = false;
	snprintf(cell->id, sizeof cell->id, "%s", world_create_spec(w, &spec));
	WORLD_UNTIL(w, world_is_state(w, cell->id, "running"));
	read_disk(w, cell, cell->content);
	world_stop(w);
	set_row(w, cell);
	set_domain(w, cell);
	if (cell->disk == RECONCILE_NO_DISK) {
		_cleanup_free_ char *path = disk_of(w, cell);

		assert_int_equal(unlink(path), 0);
	}
	return w;
}

/* ---- what it does ---- */

static bool says(struct world *w, const struct cell *cell, const char *reason)
{
	return strncmp(world_reason(w, cell->id), reason, strlen(reason)) == 0;
}

/* A command is taken: it runs, its channel is there, and it isn't paused any more. */
static bool begin_exec(struct world *w, const struct cell *cell, struct world_answer *answer)
{
	const struct sandbox_exec_spec spec = {.command = "echo here"};
	struct sandbox *sb = world_find(w, cell->id);
	struct err err;

	return sb && sandbox_exec(sb, &spec, world_on_exec, answer, &err);
}

static void assert_works(struct world *w, const struct cell *cell)
{
	struct world_answer answer = {0};

	WORLD_UNTIL(w, begin_exec(w, cell, &answer));
	WORLD_UNTIL(w, answer.count > 0);
	assert_int_equal(answer.kind, ERR_NONE);
	assert_int_equal(fake_hv_find(w->hv, cell->id)->facts.state, HV_DOMAIN_RUNNING);
}

static void assert_gone(
	struct world *w, const struct cell *cell, const char *state, const char *reason)
{
	WORLD_UNTIL(w, world_is_state(w, cell->id, state));
	assert_true(says(w, cell, reason));
	assert_true(world_is_clean(w, cell->id));
	assert_int_equal(world_charged(w), 0);
}

static void assert_done_again(struct world *w, const struct cell *cell)
{
	char content[32];

	assert_works(w, cell);
	read_disk(w, cell, content);
	assert_int_equal(strcmp(content, cell->content) != 0, cell->row == RECONCILE_RESETTING);
}

static void assert_done(struct world *w, const struct cell *cell, enum reconcile_action action)
{
	switch (action) {
	case RECONCILE_KEEP:
		world_run(w, QUIET_MS);
		assert_string_equal(world_state(w, cell->id), rows[cell->row].state);
		assert_true(has_disk(w, cell));
		assert_int_equal(world_charged(w), 1);
		break;
	case RECONCILE_WAIT:
		world_run(w, QUIET_MS);
		assert_string_equal(world_state(w, cell->id), rows[cell->row].state);
		assert_int_equal(fake_hv_calls(w->hv, FAKE_HV_DESTROY), 0);
		assert_int_equal(has_disk(w, cell), cell->disk == RECONCILE_DISK);
		break;
	case RECONCILE_ATTACH:
		assert_works(w, cell);
		assert_true(has_disk(w, cell));
		break;
	case RECONCILE_DISKLESS:
		assert_works(w, cell);
		assert_true(says(w, cell, "its disk was removed"));
		break;
	case RECONCILE_ENDED:
		WORLD_UNTIL(w, world_is_state(w, cell->id, "stopped"));
		assert_true(says(w, cell, "lost"));
		assert_true(has_disk(w, cell));
		break;
	case RECONCILE_LOST:
		assert_gone(w, cell, "deleted", "lost: its disk is gone");
		break;
	case RECONCILE_UNDO:
		assert_gone(w, cell, "failed", "interrupted");
		break;
	case RECONCILE_REDO:
		assert_done_again(w, cell);
		break;
	case RECONCILE_FINISH:
		assert_gone(w, cell, "deleted", "deleted");
		break;
	case RECONCILE_END:
		WORLD_UNTIL(w, !fake_hv_find(w->hv, cell->id));
		assert_string_equal(world_state(w, cell->id), "stopped");
		break;
	default:
		fail_msg("no such action: %d", (int)action);
	}
}

static void run_cell(struct cell *cell)
{
	struct world *w = make(cell);

	/* A fake keeps its counts over the restart. */
	assert_int_equal(fake_hv_calls(w->hv, FAKE_HV_DESTROY), 0);
	if (cell->domain == RECONCILE_UNSETTLED) {
		world_start_only(w);
	} else {
		world_start(w);
	}
	assert_done(w, cell, reconcile_decide(cell->row, cell->domain, cell->disk));
	world_free(w);
}

static void test_every_cell_is_done_as_the_table_says(void **state)
{
	unsigned count = 0;

	(void)state;
	for (unsigned row = 0; row < RECONCILE_ROW_MAX; row++) {
		for (unsigned domain = 0; domain < RECONCILE_DOMAIN_MAX; domain++) {
			for (unsigned disk = 0; disk < RECONCILE_DISK_MAX; disk++) {
				struct cell cell = {.row = row, .domain = domain, .disk = disk};

				run_cell(&cell);
				count++;
			}
		}
	}
	assert_int_equal(count, RECONCILE_ROW_MAX * RECONCILE_DOMAIN_MAX * RECONCILE_DISK_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_cell_is_done_as_the_table_says),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
