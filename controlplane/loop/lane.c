#include "loop/lane.h"

#include <string.h>

#include "base/xalloc.h"

/*
 * Theory of operation. A lane exists while it has a job. The list of lanes is as long as there are
 * sandboxes with a hypervisor operation under way: a handful, so it is searched.
 */

struct lane {
	LIST_ENTRY(lane) link; /* lanes.all */
	struct lanes *lanes;
	char *key;
	unsigned count; /* waiting, not the running one */
	STAILQ_HEAD(, lane_job) waiting;
};

struct lanes {
	struct loop *loop;
	struct worker_pool *pool;
	LIST_HEAD(, lane) all;
};

struct lanes *lanes_new(struct loop *loop, struct worker_pool *pool)
{
	struct lanes *lanes = xnew(struct lanes);

	lanes->loop = loop;
	lanes->pool = pool;
	LIST_INIT(&lanes->all);
	return lanes;
}

void lanes_free(struct lanes *lanes)
{
	if (lanes) {
		ASSERT(LIST_EMPTY(&lanes->all));
		free(lanes);
	}
}

static void lane_free(struct lane *lane)
{
	LIST_REMOVE(lane, link);
	free(lane->key);
	free(lane);
}

/* Submits the next job; one that the pool refuses is done with that error, and the next is tried.
 */
static void advance(struct lane *lane)
{
	struct lane_job *next;

	while ((next = STAILQ_FIRST(&lane->waiting))) {
		struct err err;

		STAILQ_REMOVE_HEAD(&lane->waiting, link);
		lane->count--;
		if (worker_submit(lane->lanes->pool, &next->job, &err) == 0) {
			return;
		}
		next->done(&next->job, &err);
	}
	lane_free(lane);
}

static void on_done(struct worker_job *job, const struct err *err)
{
	struct lane_job *lane_job = container_of(job, struct lane_job, job);
	struct lane *lane = lane_job->lane;

	/* First, so that what done() submits queues up behind what is there. */
	lane_job->done(job, err);
	advance(lane);
}

static struct lane *lane_find(struct lanes *lanes, const char *key)
{
	struct lane *lane;

	LIST_FOREACH (lane, &lanes->all, link) {
		if (strcmp(lane->key, key) == 0) {
			return lane;
		}
	}
	return NULL;
}

int lane_submit(struct lanes *lanes, const char *key, struct lane_job *job, struct err *err)
{
	struct lane *lane = lane_find(lanes, key);

	loop_assert();
	job->done = job->job.done;
	job->job.done = on_done;
	if (lane) {
		job->lane = lane;
		if (lane->count == LANE_JOBS_MAX) {
			job->job.done = job->done;
			return err_set(err, ERR_UNAVAILABLE,
				"too many operations on this sandbox; try again soon");
		}
		STAILQ_INSERT_TAIL(&lane->waiting, job, link);
		lane->count++;
		return 0;
	}
	if (worker_submit(lanes->pool, &job->job, err) != 0) {
		job->job.done = job->done;
		return -1;
	}
	lane = xnew(struct lane);
	lane->lanes = lanes;
	lane->key = xstrdup(key);
	STAILQ_INIT(&lane->waiting);
	LIST_INSERT_HEAD(&lanes->all, lane, link);
	job->lane = lane;
	return 0;
}
