#include "sandbox/held_uids.h"

#include "base/clock.h"
#include "base/xalloc.h"

struct held_uid {
	TAILQ_ENTRY(held_uid) link; /* sandboxes.held_uids */
	char id[ID_BYTES];
	uint64_t since_ms;
};

static void held_free(struct sandboxes *all, struct held_uid *held)
{
	TAILQ_REMOVE(&all->held_uids, held, link);
	free(held);
}

void held_uids_init(struct sandboxes *all)
{
	TAILQ_INIT(&all->held_uids);
}

void held_uids_fini(struct sandboxes *all)
{
	while (!TAILQ_EMPTY(&all->held_uids)) {
		held_free(all, TAILQ_FIRST(&all->held_uids));
	}
}

void held_uids_add(struct sandboxes *all, const char *id)
{
	struct held_uid *held = xnew(struct held_uid);

	snprintf(held->id, sizeof held->id, "%s", id);
	held->since_ms = clock_monotonic_ms();
	TAILQ_INSERT_TAIL(&all->held_uids, held, link);
}

static int release(struct sandboxes *all, const char *id, struct err *err)
{
	_cleanup_store_sandbox_ struct store_sandbox *row = store_sandbox_get(all->store, id, err);

	if (!row) {
		return -1;
	}
	const struct store_sandbox_change change = {.state = row->state, .releases_uid = true};

	return store_sandbox_set_state(all->store, id, &change, err);
}

int held_uids_release(struct sandboxes *all, const struct hv_survey *survey,
	const struct paths_list *files, struct err *err)
{
	uint64_t now = clock_monotonic_ms();
	struct held_uid *next;

	for (struct held_uid *held = TAILQ_FIRST(&all->held_uids); held; held = next) {
		next = TAILQ_NEXT(held, link);
		if (now - held->since_ms < HELD_UID_MS ||
			stray_is_present(survey, files, held->id)) {
			continue;
		}
		if (release(all, held->id, err) != 0) {
			return -1;
		}
		held_free(all, held);
	}
	return 0;
}
