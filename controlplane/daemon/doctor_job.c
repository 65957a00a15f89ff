#include "daemon/doctor_job.h"

#include <stdio.h>

#include "base/xalloc.h"
#include "daemon/doctor.h"
#include "hv/hv.h"
#include "loop/loop.h"
#include "loop/worker.h"
#include "netfilter/netfilter.h"

struct doctor_job {
	struct worker_job job;
	const struct config *config;
	struct doctor_live live;
	json_object *findings;
	struct err refused;
	doctor_done_fn done;
	void *arg;
};

#define COPY(to, from) snprintf((to), sizeof(to), "%s", (from) ? (from) : "")

static void take_snapshot(
	struct doctor_live *live, const struct hv *hv, const struct netfilter *netfilter)
{
	const struct hv_info *info = hv->ops->info(hv);
	struct netfilter_status filter;

	live->is_running = true;
	live->is_hv_ready = info->is_ready;
	COPY(live->hv_driver, info->driver);
	snprintf(live->hv_version, sizeof live->hv_version, "libvirt %s, QEMU %s",
		info->libvirt_version ? info->libvirt_version : "?",
		info->qemu_version ? info->qemu_version : "?");
	COPY(live->acceleration, info->acceleration);
	COPY(live->acceleration_why, info->acceleration_why);
	netfilter_status(netfilter, &filter);
	live->is_filter_active = filter.state == FILTER_ACTIVE;
	COPY(live->filter_reason, filter.reason);
	COPY(live->filter_fix, filter.fix);
	live->filter_breaches = filter.breaches;
}

static void run(struct worker_job *job)
{
	struct doctor_job *d = container_of(job, struct doctor_job, job);

	d->findings = doctor_run_blocking(d->config, &d->live);
}

static void on_done(struct worker_job *job, const struct err *err)
{
	struct doctor_job *d = container_of(job, struct doctor_job, job);

	if (err) {
		json_object_put(d->findings);
		d->findings = NULL;
	}
	d->done(d->arg, d->findings, err);
	free(d);
}

static void on_refused(void *arg)
{
	struct doctor_job *d = arg;

	on_done(&d->job, &d->refused);
}

void doctor_job_submit(struct loop *loop, struct worker_pool *pool, const struct config *config,
	const struct hv *hv, const struct netfilter *netfilter, doctor_done_fn done, void *arg)
{
	struct doctor_job *d = xnew(struct doctor_job);

	d->config = config;
	d->done = done;
	d->arg = arg;
	d->job.run = run;
	d->job.done = on_done;
	take_snapshot(&d->live, hv, netfilter);
	if (worker_submit(pool, &d->job, &d->refused) != 0) {
		loop_defer(loop, on_refused, d);
	}
}
